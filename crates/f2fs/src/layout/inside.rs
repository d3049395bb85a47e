//! Seals inside inodes: how an fsync whose file has nothing to write but its inode needs no block for its [seal](super::seal).
//!
//! The inode vouches for itself, and for one run of pages that it points to. That takes 12 bytes at the end of the extra attributes, where an
//! inode of a volume with compression would say how its file is compressed. Without that feature nobody reads them.
//!
//! Linux keeps these bytes when it writes the inode elsewhere, and cleaning copies an inode as it is. So they count at one address alone, with
//! the bytes that the inode had there: its footer has the checkpoint's version.

use std::mem::offset_of;

use zerocopy::{FromBytes, IntoBytes};

use super::crc::crc_from;
use super::inode::{EXTRA_SIZE_MAX, RawExtra, RawInode, SLOTS_OFFSET};
use super::node::NodeFlags;
use super::{Address, FileBlock};

/// Where they begin in the block.
const OFFSET: usize = SLOTS_OFFSET + offset_of!(RawExtra, i_compr_blocks);
/// How many there are: CRC, CRC of the run, run and count.
const SIZE: usize = 12;
/// Where the inode's checksum is, which covers them.
const CHECKSUM: usize = SLOTS_OFFSET + offset_of!(RawExtra, i_inode_checksum);
/// "BSEI": with what the CRCs begin.
const SEED: u32 = 0x4945_5342;
/// Bits of the number of a page that an inode points to, and of how many there are.
const PAGE_BITS: u32 = 10;
const PAGE_MASK: u32 = (1 << PAGE_BITS) - 1;
/// The largest count of blocks that were not durable; it stands for more, too.
const UNDURABLE_MAX: u32 = (1 << (32 - 2 * PAGE_BITS)) - 1;

const _: () = {
    assert!(OFFSET == 384 && OFFSET + SIZE == SLOTS_OFFSET + EXTRA_SIZE_MAX as usize);
    assert!(super::inode::SLOTS < 1 << PAGE_BITS);
};

/// What an inode says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inside {
    /// The first page that it vouches for.
    pub first: FileBlock,
    /// How many it vouches for.
    pub pages: u32,
    /// What [`data_crc`] says of them.
    pub data_crc: u32,
    /// Blocks of the chain right in front of it that no flush had made durable when it was written, with all that their seals list; `None` if
    /// they were too many to tell.
    pub undurable: Option<u32>,
}

/// One CRC for blocks in their order, each by its CRC.
pub fn data_crc(blocks: impl IntoIterator<Item = u32>) -> u32 {
    blocks.into_iter().fold(SEED, |sum, block| crc_from(sum, &block.to_le_bytes()))
}

impl Inside {
    /// Whether an inode has the bytes for it; that the volume has no compression is for the caller to know.
    pub fn has_room(raw: &RawInode) -> bool {
        raw.has_extra(EXTRA_SIZE_MAX as usize)
    }

    /// Takes what an inode says of itself off it, where there is room for it.
    pub fn clear(raw: &mut RawInode) {
        if Inside::has_room(raw) {
            raw.as_mut_bytes()[OFFSET..][..SIZE].copy_from_slice(&[0; SIZE]);
        }
    }

    /// Whether it is not clear.
    pub fn is_set(raw: &RawInode) -> bool {
        Inside::has_room(raw) && raw.as_bytes()[OFFSET..][..SIZE].iter().any(|byte| *byte != 0)
    }

    /// Has an inode say so, which is otherwise as it will lie at this address, but for its checksum. It must have the room.
    pub fn write(&self, raw: &mut RawInode, address: Address) {
        let undurable = self.undurable.unwrap_or(UNDURABLE_MAX).min(UNDURABLE_MAX);
        let run = self.first.get() & PAGE_MASK | (self.pages & PAGE_MASK) << PAGE_BITS;
        let bytes = &mut raw.as_mut_bytes()[OFFSET..][..SIZE];
        bytes[4..8].copy_from_slice(&self.data_crc.to_le_bytes());
        bytes[8..].copy_from_slice(&(run | undurable << (2 * PAGE_BITS)).to_le_bytes());
        let sum = checksum(raw, address);
        raw.as_mut_bytes()[OFFSET..][..4].copy_from_slice(&sum.to_le_bytes());
    }

    /// What the inode that was read from this address says of itself; `None` if it does not, or is not whole.
    pub fn read(raw: &RawInode, address: Address) -> Option<Inside> {
        let is_right = Inside::has_room(raw) && slot(raw, 0) == checksum(raw, address);
        is_right.then(|| Inside::unchecked(raw))
    }

    /// The same, from a block of the chain that is marked.
    pub fn of_block(block: &[u8], address: Address) -> Option<Inside> {
        Inside::read(marked_inode(block)?, address)
    }

    /// What these bytes say, whether or not they were written as they are.
    pub fn unchecked(raw: &RawInode) -> Inside {
        let (data_crc, counts) = (slot(raw, 1), slot(raw, 2));
        let undurable = counts >> (2 * PAGE_BITS);
        Inside {
            first: FileBlock::new(counts & PAGE_MASK),
            pages: counts >> PAGE_BITS & PAGE_MASK,
            data_crc,
            undurable: Some(undurable).filter(|count| *count < UNDURABLE_MAX),
        }
    }

    /// The addresses of the pages, as the inode has them; `None` if they are none that an inode holds itself. `flexible` is the volume's
    /// FLEXIBLE_INLINE_XATTR.
    pub fn addresses(&self, raw: &RawInode, flexible: bool) -> Option<Vec<Address>> {
        let first = self.first.get() as usize;
        let slots = raw.addresses(flexible).get(first..first + self.pages as usize)?;
        Some(slots.iter().map(|slot| Address::from(*slot)).collect())
    }
}

/// A block as an inode, if it is one that carries the fsync mark.
pub fn marked_inode(block: &[u8]) -> Option<&RawInode> {
    let raw = RawInode::ref_from_bytes(block).ok()?;
    let is_marked = raw.footer.is_inode() == Some(true) && raw.footer.flags().contains(NodeFlags::FSYNC);
    is_marked.then_some(raw)
}

/// The slot of this number of the bytes.
fn slot(raw: &RawInode, number: usize) -> u32 {
    let at = OFFSET + 4 * number;
    let bytes = raw.as_bytes();
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// CRC of the address and of the block, with this CRC and the inode's checksum as zero.
fn checksum(raw: &RawInode, address: Address) -> u32 {
    let bytes = raw.as_bytes();
    let parts = [&bytes[..CHECKSUM], &[0; 4], &bytes[CHECKSUM + 4..OFFSET], &[0; 4], &bytes[OFFSET + 4..]];
    parts.into_iter().fold(crc_from(SEED, &address.get().to_le_bytes()), crc_from)
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::layout::BLOCK_SIZE;
    use crate::layout::inode::{InlineFlags, SLOTS};

    const AT: Address = Address::new(9_000);

    fn inode() -> RawInode {
        let mut raw = RawInode::new_zeroed();
        raw.as_mut_bytes().iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7) as u8);
        raw.i_inline = InlineFlags::EXTRA_ATTR.bits();
        raw.extra_mut().i_extra_isize.set(EXTRA_SIZE_MAX as u16);
        raw.footer.flag.set(NodeFlags::FSYNC.bits());
        (raw.footer.ino, raw.footer.nid) = (7.into(), 7.into());
        raw
    }

    fn inside() -> Inside {
        Inside { first: FileBlock::new(913), pages: 914, data_crc: 0x1234_5678, undurable: Some(4_094) }
    }

    #[test]
    fn what_an_inode_says_is_read_back_and_of_a_torn_one_it_is_not() {
        let mut raw = inode();
        for said in [inside(), Inside::default(), Inside { undurable: Some(0), ..inside() }] {
            said.write(&mut raw, AT);
            assert!(Inside::is_set(&raw));
            assert_eq!(Inside::read(&raw, AT), Some(said));
            assert_eq!(Inside::of_block(raw.as_bytes(), AT), Some(said));
            for sector in 0..BLOCK_SIZE / 512 {
                let mut torn = raw;
                torn.as_mut_bytes()[512 * sector..][..512].fill(0);
                assert_eq!(Inside::read(&torn, AT), None, "sector {sector}");
            }
        }
        Inside::clear(&mut raw);
        assert!(!Inside::is_set(&raw) && Inside::read(&raw, AT).is_none());
    }

    /// The first word is made by hand: a CRC with what it does not cover as zero.
    #[test]
    fn it_lies_behind_the_creation_time() {
        let mut raw = inode();
        let before = raw;
        inside().write(&mut raw, AT);
        let bytes = raw.as_bytes();
        assert_eq!(bytes[388..396], [0x78, 0x56, 0x34, 0x12, 0x91, 0x4B, 0xEE, 0xFF], "913 + 914 * 2^10 + 4094 * 2^20");
        let mut covered = bytes.to_vec();
        covered[368..372].fill(0);
        covered[384..388].fill(0);
        let sum = crc_from(crc_from(u32::from_le_bytes(*b"BSEI"), &[0x28, 0x23, 0, 0]), &covered);
        assert_eq!(bytes[384..388], sum.to_le_bytes());
        let differs = |(at, (one, other)): (usize, (&u8, &u8))| (one != other).then_some(at);
        let changed: Vec<usize> = before.as_bytes().iter().zip(bytes).enumerate().filter_map(differs).collect();
        assert!(changed.iter().all(|at| (384..396).contains(at)), "{changed:?}");
    }

    /// Linux writes an inode elsewhere and changes its footer; a copy has neither address nor version of its own.
    #[test]
    fn a_copy_and_an_inode_that_changed_since_say_nothing() {
        let mut raw = inode();
        inside().write(&mut raw, AT);
        assert_eq!(Inside::read(&raw, AT + 1), None, "another address");
        let changed = |change: fn(&mut RawInode)| {
            let mut raw = raw;
            change(&mut raw);
            Inside::read(&raw, AT)
        };
        assert_eq!(changed(|raw| raw.footer.cp_ver.set(8)), None);
        assert_eq!(changed(|raw| raw.footer.next_blkaddr.set(8)), None);
        assert_eq!(changed(|raw| raw.i_size.set(8)), None);
        assert_eq!(changed(|raw| raw.extra_mut().i_compr_blocks.set(8)), None);
        assert_eq!(changed(|raw| raw.extra_mut().i_compress_flag.set(8)), None);
        assert_eq!(
            changed(|raw| raw.extra_mut().i_inode_checksum.set(8)),
            Some(inside()),
            "the checksum comes after it"
        );
    }

    #[test]
    fn many_blocks_in_front_of_it_are_not_told() {
        let mut raw = inode();
        for undurable in [Some(4_095), Some(70_000), None] {
            Inside { undurable, ..inside() }.write(&mut raw, AT);
            assert_eq!(Inside::read(&raw, AT), Some(Inside { undurable: None, ..inside() }));
        }
    }

    #[test]
    fn an_inode_without_room_says_nothing() {
        let mut raw = inode();
        inside().write(&mut raw, AT);
        raw.extra_mut().i_extra_isize.set(24);
        assert!(!Inside::has_room(&raw) && !Inside::is_set(&raw) && Inside::read(&raw, AT).is_none());
        let before = raw;
        Inside::clear(&mut raw);
        assert!(raw.as_bytes() == before.as_bytes(), "an address was cleared");
        raw.i_inline = 0;
        assert!(!Inside::has_room(&raw));
    }

    #[test]
    fn only_a_marked_inode_says_it() {
        let mut raw = inode();
        inside().write(&mut raw, AT);
        raw.footer.flag.set(NodeFlags::COLD.bits());
        assert!(marked_inode(raw.as_bytes()).is_none());
        raw.footer.flag.set(NodeFlags::FSYNC.bits());
        raw.footer.nid.set(8);
        assert!(marked_inode(raw.as_bytes()).is_none(), "a direct node");
        assert!(Inside::of_block(&[], AT).is_none());
    }

    #[test]
    fn its_pages_are_those_that_the_inode_points_to() {
        let mut raw = inode();
        (0..).zip(raw.addresses_mut(false)).for_each(|(page, slot)| slot.set(5_000 + page));
        let of = |first, pages| {
            let run = Inside { first: FileBlock::new(first), pages, ..Inside::default() };
            run.addresses(&raw, false).map(|all| all.iter().map(|at| at.get()).collect::<Vec<_>>())
        };
        assert_eq!(of(3, 2), Some(vec![5_003, 5_004]));
        assert_eq!(of(3, 0), Some(vec![]));
        let last = SLOTS - EXTRA_SIZE_MAX / 4 - 1;
        assert_eq!(of(last, 1), Some(vec![5_000 + last]));
        assert_eq!((of(last, 2), of(1_000, 1)), (None, None));
    }

    #[test]
    fn blocks_have_one_crc_in_their_order() {
        assert_ne!(data_crc([1, 2]), data_crc([2, 1]));
        assert_ne!(data_crc([0]), data_crc([]));
        assert_eq!(data_crc([]), SEED);
    }
}
