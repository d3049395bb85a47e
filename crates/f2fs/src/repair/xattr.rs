//! Lists of extended attributes.

use zerocopy::FromBytes;

use crate::layout::xattr::{HEADER_SIZE, MAGIC, RawXattrEntry, RawXattrHeader};

/// Clears everything from the first attribute on that cannot be; how many attributes are left, or `None` if there is no room for a list.
pub(super) fn cut(list: &mut [u8]) -> Option<usize> {
    let (header, _) = RawXattrHeader::read_from_prefix(list).ok()?;
    let (at, kept) = sound_part(list);
    let end = list.len();
    list[at.min(end)..].fill(0);
    if kept > 0 && header.h_magic.get() != MAGIC {
        list[..4].copy_from_slice(&MAGIC.to_le_bytes());
    }
    Some(kept)
}

/// Whether a list is one up to its end, which is a word of zeros.
pub(super) fn is_sound(list: &[u8]) -> bool {
    let is_headed = list.starts_with(&MAGIC.to_le_bytes());
    let (at, _) = sound_part(list);
    is_headed && list.get(at..at + 4) == Some(&[0; 4])
}

/// Where the first attribute is that cannot be, or the end of the list; and how many are in front of it.
fn sound_part(list: &[u8]) -> (usize, usize) {
    let (mut at, mut kept) = (HEADER_SIZE, 0);
    while let Some(word) = list.get(at..at + 4)
        && word != [0; 4]
        && let Ok(entry) = RawXattrEntry::read_from_bytes(word)
    {
        let size = size_of::<RawXattrEntry>() + usize::from(entry.e_name_len) + usize::from(entry.e_value_size.get());
        let end = at + size.next_multiple_of(4);
        if entry.e_name_index == 0 || end > list.len() {
            break;
        }
        (at, kept) = (end, kept + 1);
    }
    (at, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_attributes_stay() {
        let mut list = vec![0; 100];
        list[..4].copy_from_slice(&MAGIC.to_le_bytes());
        list[24..32].copy_from_slice(&[1, 1, 2, 0, b'a', 1, 2, 0]);
        let sound = list.clone();
        list[32..36].copy_from_slice(&[1, 3, 0xFF, 0xFF]);
        list[90] = 7;
        assert_eq!(cut(&mut list), Some(1));
        assert_eq!(list, sound);
        list[0] = 0;
        assert_eq!(cut(&mut list), Some(1));
        assert_eq!(list, sound);
        assert_eq!(cut(&mut [0; 10]), None);
    }
}
