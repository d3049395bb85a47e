//! What changed in a node since it was last written or told by a delta: see [`delta`](crate::layout::delta).

use std::mem::offset_of;

use basalt_vfs::FileKind;
use zerocopy::IntoBytes;

use crate::layout::BLOCK_SIZE;
use crate::layout::delta::Written;
use crate::layout::inode::{InlineFlags, RawExtra, RawInode, SLOTS_OFFSET};
use crate::mutant::{self, Mutant};

/// Four-byte values in a block.
const VALUES: usize = BLOCK_SIZE / 4;

/// What of a dirty node nothing behind the checkpoint tells.
#[derive(Clone)]
pub(super) struct Untold {
    /// Which four-byte values may hold another address; a bit each.
    values: [u64; VALUES / 64],
    /// Of an inode, what no delta tells, as it was when it was last written; `None` where all of it has to be written.
    fixed: Option<Box<[u8]>>,
    /// Of an inode, what the last delta told of it.
    written: Option<Written>,
}

impl Untold {
    /// Of a node of a file that is about to change and that was written as it is, if it is no inode.
    pub(super) fn of_node() -> Untold {
        Untold { values: [0; _], fixed: None, written: None }
    }

    /// The same of an inode.
    pub(super) fn of_inode(raw: &RawInode, flexible: bool) -> Untold {
        Untold { fixed: fixed(raw, flexible), written: Some(Written::of(raw)), ..Untold::of_node() }
    }

    /// The value at byte `at` changed.
    pub(super) fn note(&mut self, at: usize) {
        self.values[at / 4 / 64] |= 1 << (at / 4 % 64);
    }

    /// The bytes of the values that changed, rising.
    pub(super) fn bytes(&self) -> impl Iterator<Item = usize> + '_ {
        self.values.iter().enumerate().filter(|(_, bits)| **bits != 0).flat_map(|(word, &bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| 4 * (64 * word + bit))
        })
    }

    /// Whether a delta can tell all that changed of an inode.
    pub(super) fn is_tellable(&self, raw: &RawInode, flexible: bool) -> bool {
        let now = fixed(raw, flexible);
        self.fixed.is_some() && now.is_some() && (self.fixed == now || mutant::active(Mutant::InodeNotTold))
    }

    /// What the last delta told of an inode, or what it was when it was written.
    pub(super) fn written(&self) -> Option<Written> {
        self.written
    }

    /// A delta told all of it.
    pub(super) fn note_told(&mut self, written: Option<Written>) {
        self.values = [0; _];
        self.written = written;
    }
}

/// What no delta tells of an inode: all but size, times, counts, pointers, and what is made anew when it is written. `None` of one that is no
/// file's, or whose slots hold content.
fn fixed(raw: &RawInode, flexible: bool) -> Option<Box<[u8]>> {
    let is_file = FileKind::from_mode(u32::from(raw.i_mode.get())) == Some(FileKind::Regular);
    if !is_file || raw.is_inline(InlineFlags::DATA) {
        return None;
    }
    let mut rest = *raw;
    Written::default().give(&mut rest);
    rest.i_blocks.set(0);
    [rest.i_ext.fofs, rest.i_ext.blk, rest.i_ext.len] = [0.into(); 3];
    if raw.has_extra(offset_of!(RawExtra, i_inode_checksum) + 4) {
        rest.extra_mut().i_inode_checksum.set(0);
    }
    let bytes = rest.as_bytes();
    let in_front = SLOTS_OFFSET + raw.extra_size() as usize;
    Some([&bytes[..in_front], &bytes[raw.inline_xattr_range(flexible)]].concat().into())
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::layout::inode::NIDS;

    fn inode() -> RawInode {
        let mut raw = RawInode::new_zeroed();
        raw.i_mode.set(0o100_644);
        raw.i_inline = (InlineFlags::EXTRA_ATTR | InlineFlags::XATTR).bits();
        raw.extra_mut().i_extra_isize.set(36);
        raw
    }

    /// Each field of an inode: those that a delta has, that recovery makes, and that are made when it is written; and all others.
    #[test]
    fn a_delta_tells_size_times_and_addresses_and_nothing_else() {
        type Change = fn(&mut RawInode);
        let told: [(&str, Change); 9] = [
            ("i_size", |raw| raw.i_size.set(77)),
            ("i_blocks", |raw| raw.i_blocks.set(77)),
            ("times", |raw| (raw.i_atime, raw.i_ctime_nsec, raw.i_mtime) = (7.into(), 8.into(), 9.into())),
            ("i_ext", |raw| raw.i_ext.len.set(5)),
            ("the first address", |raw| raw.addresses_mut(false)[0].set(5_000)),
            ("the last address", |raw| raw.addresses_mut(false).last_mut().unwrap().set(5_000)),
            ("i_nid", |raw| raw.i_nid[NIDS - 1].set(9)),
            ("i_inode_checksum", |raw| raw.extra_mut().i_inode_checksum.set(9)),
            ("footer", |raw| raw.footer.cp_ver.set(9)),
        ];
        let others: [(&str, Change); 12] = [
            ("i_mode", |raw| raw.i_mode.set(0o100_600)),
            ("i_advise", |raw| raw.i_advise = 0x10),
            ("i_inline", |raw| raw.i_inline |= InlineFlags::PIN_FILE.bits()),
            ("i_uid", |raw| raw.i_uid.set(5)),
            ("i_links", |raw| raw.i_links.set(2)),
            ("i_generation", |raw| raw.i_generation.set(2)),
            ("i_xattr_nid", |raw| raw.i_xattr_nid.set(2)),
            ("i_flags", |raw| raw.i_flags.set(0x10)),
            ("i_name", |raw| raw.i_name[254] = 1),
            ("i_projid", |raw| raw.extra_mut().i_projid.set(1)),
            ("the last inline xattr", |raw| raw.slots[922].set(1)),
            ("its data", |raw| raw.i_inline |= InlineFlags::DATA.bits()),
        ];
        let is_tellable = |change: Change| {
            let mut raw = inode();
            let untold = Untold::of_inode(&raw, false);
            change(&mut raw);
            untold.is_tellable(&raw, false)
        };
        told.into_iter().for_each(|(field, change)| assert!(is_tellable(change), "{field}"));
        others.into_iter().for_each(|(field, change)| assert!(!is_tellable(change), "{field}"));
        let mut directory = inode();
        directory.i_mode.set(0o040_755);
        assert!(!Untold::of_inode(&directory, false).is_tellable(&directory, false));
    }

    #[test]
    fn values_are_told_by_their_bytes() {
        let mut untold = Untold::of_node();
        [4092, 0, 256, 252, 0].into_iter().for_each(|at| untold.note(at));
        assert_eq!(untold.bytes().collect::<Vec<_>>(), [0, 252, 256, 4092]);
        untold.note_told(None);
        assert_eq!(untold.bytes().count(), 0);
    }
}
