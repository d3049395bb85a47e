//! Cold and hot files by the extensions that the superblock lists.

use crate::layout::inode::Advise;
use crate::layout::superblock::RawSuperblock;

/// The placement hint for a new file of this name.
pub fn advise_for(superblock: &RawSuperblock, name: &[u8]) -> Advise {
    // Both counts were checked to fit the list.
    let cold = superblock.extension_count.get() as usize;
    let hot = usize::from(superblock.hot_ext_count);
    let listed = |range: std::ops::Range<usize>| {
        superblock.extension_list.get(range).unwrap_or_default().iter().any(|extension| has_extension(name, extension))
    };
    if listed(0..cold) {
        Advise::COLD
    } else if listed(cold..cold + hot) {
        Advise::HOT
    } else {
        Advise::empty()
    }
}

fn has_extension(name: &[u8], padded: &[u8; 8]) -> bool {
    let length = padded.iter().position(|&byte| byte == 0).unwrap_or(padded.len());
    let extension = &padded[..length];
    !extension.is_empty()
        && name.len() > length
        && name[name.len() - length - 1] == b'.'
        && name[name.len() - length..].eq_ignore_ascii_case(extension)
}
