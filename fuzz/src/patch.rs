//! Damage to a base volume: which structure, which field, which value; then checksums that hide it.

use core::mem::offset_of;

use arbitrary::Arbitrary;
use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::checkpoint::block::expected_checksum;
use basalt_f2fs::geometry::superblock_block;
use basalt_f2fs::layout::checkpoint::{BITMAP_OFFSET, RawCheckpoint};
use basalt_f2fs::layout::inode::{InlineFlags, RawInode, SLOTS_OFFSET};
use basalt_f2fs::layout::node::FOOTER_OFFSET;
use basalt_f2fs::layout::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use basalt_f2fs::layout::{Address, BLOCK_SIZE, summary};
use zerocopy::{FromBytes, IntoBytes};

use super::base::{Base, block};

/// One piece of damage. Numbers choose among what the volume has, modulo how many there are.
#[derive(Debug, Clone, Arbitrary)]
pub enum Patch {
    /// A field of a superblock; of both copies, or of one.
    Superblock { copies: Copies, field: u8, value: Value },
    /// A field of a checkpoint, in its first and last block.
    Checkpoint { packs: Copies, field: u8, value: Value },
    /// Any place in a pack: bitmaps, orphans, summaries, journals.
    Pack { pack: bool, block: u8, at: u16, value: Value },
    /// Number of entries, or an entry, of a journal in the summaries.
    Journal { pack: bool, sit: bool, entry: u8, field: u8, value: Value },
    /// A field of a NAT entry.
    Nat { nid: u16, field: u8, value: Value },
    /// A field of a SIT entry.
    Sit { segment: u16, field: u8, value: Value },
    /// A field of a summary.
    Summary { segment: u16, entry: u16, field: u8, value: Value },
    /// A field of an inode.
    Inode { inode: u16, field: u8, value: Value },
    /// Any place in the part of an inode that holds addresses, inline data, entries or xattrs.
    InodeTail { inode: u16, at: u16, value: Value },
    /// A pointer or the footer of a node that is no inode.
    Node { node: u16, field: u16, value: Value },
    /// A field of a directory entry in a block.
    Dentry { block: u16, slot: u8, field: u8, value: Value },
    /// A field of an inline directory's entry.
    InlineDentry { inode: u16, slot: u8, field: u8, value: Value },
    /// A block of zeros.
    Zero { place: BlockPlace },
    /// Two blocks that change places.
    Swap { one: BlockPlace, other: BlockPlace },
    /// A bit anywhere.
    Flip { place: BlockPlace, bit: u16 },
}

/// Which of two copies.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Copies {
    Both,
    First,
    Second,
}

/// What a field becomes.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Value {
    Zero,
    One,
    Max,
    HalfMax,
    Add(i8),
    Small(u8),
    Bit(u8),
    Any(u64),
    /// A node id in use.
    NodeId(u16),
    /// The address of some structure.
    Address(BlockPlace),
    /// A segment of the main area.
    Segment(u16),
}

/// A block that means something.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum BlockPlace {
    Superblock(bool),
    Pack(bool, u8),
    Nat(u8),
    Sit(u8),
    Summary(u16),
    Inode(u16),
    Node(u16),
    Dentry(u16),
    Main(u16),
}

/// Where a field is in its structure, and its bytes.
type Field = (usize, usize);

macro_rules! fields {
    ($name:ident, $structure:ty, $($width:literal: $($field:ident)*;)*) => {
        const $name: &[Field] = &[$($((offset_of!($structure, $field), $width),)*)*];
    };
}

fields!(SUPERBLOCK, RawSuperblock,
    4: magic log_sectorsize log_sectors_per_block log_blocksize log_blocks_per_seg segs_per_sec secs_per_zone checksum_offset
       section_count segment_count segment_count_ckpt segment_count_sit segment_count_nat segment_count_ssa segment_count_main
       segment0_blkaddr cp_blkaddr sit_blkaddr nat_blkaddr ssa_blkaddr main_blkaddr root_ino node_ino meta_ino
       extension_count cp_payload feature crc qf_ino;
    8: block_count; 1: hot_ext_count uuid devs extension_list;
);
fields!(CHECKPOINT, RawCheckpoint,
    4: rsvd_segment_count overprov_segment_count free_segment_count cur_node_segno cur_data_segno ckpt_flags
       cp_pack_total_block_count cp_pack_start_sum valid_node_count valid_inode_count next_free_nid
       sit_ver_bitmap_bytesize nat_ver_bitmap_bytesize checksum_offset;
    8: checkpoint_ver user_block_count valid_block_count elapsed_time;
    2: cur_node_blkoff cur_data_blkoff; 1: alloc_type;
);
fields!(INODE, RawInode,
    2: i_mode; 1: i_advise i_inline i_dir_level i_name;
    4: i_uid i_links i_atime_nsec i_current_depth i_xattr_nid i_flags i_pino i_namelen i_ext i_generation slots i_nid;
    8: i_size i_blocks i_atime;
);
/// Further fields of an inode: extra attributes, the other node ids, the footer, the start of inline content.
const INODE_MORE: &[Field] = &[
    (SLOTS_OFFSET, 2),
    (SLOTS_OFFSET + 2, 2),
    (SLOTS_OFFSET + 4, 4),
    (SLOTS_OFFSET + 36, 4),
    (SLOTS_OFFSET + 40, 8),
    (4052, 4),
    (4056, 4),
    (4060, 4),
    (4064, 4),
    (4068, 4),
    (FOOTER_OFFSET, 4),
    (FOOTER_OFFSET + 4, 4),
    (FOOTER_OFFSET + 8, 4),
    // Where inline xattrs start unless the inode says otherwise: magic, then the first entry.
    (3852, 4),
    (3876, 1),
    (3877, 1),
    (3878, 2),
];
const FOOTER: &[Field] =
    &[(FOOTER_OFFSET, 4), (FOOTER_OFFSET + 4, 4), (FOOTER_OFFSET + 8, 4), (0, 4), (24, 1), (25, 1), (26, 2)];
const NAT_ENTRY: &[Field] = &[(0, 1), (1, 4), (5, 4)];
const SIT_ENTRY: &[Field] = &[(0, 2), (1, 1), (2, 8), (40, 8), (66, 8)];
const SUMMARY_ENTRY: &[Field] = &[(0, 4), (4, 1), (5, 2)];
const DENTRY: &[Field] = &[(0, 4), (4, 4), (8, 2), (10, 1)];

fn pick<T: Copy>(from: &[T], index: usize) -> Option<T> {
    if from.is_empty() { None } else { Some(from[index % from.len()]) }
}

/// A volume being damaged.
pub struct Damage<'a> {
    base: &'a Base,
    device: MemoryDevice,
    /// Blocks whose checksum no longer fits.
    touched: Vec<Address>,
}

/// The base volume with all this damage; checksums fit again unless `stale`.
pub fn damage(base: &Base, patches: &[Patch], stale: bool) -> MemoryDevice {
    let mut damage = Damage { base, device: base.device.snapshot(), touched: Vec::new() };
    patches.iter().for_each(|patch| damage.apply(patch));
    if !stale {
        damage.fix_checksums();
    }
    damage.device
}

impl Damage<'_> {
    fn apply(&mut self, patch: &Patch) {
        let base = self.base;
        match *patch {
            Patch::Superblock { copies, field, value } => {
                let Some((at, width)) = pick(SUPERBLOCK, field.into()) else { return };
                for copy in copies.each() {
                    self.set(Address::new(copy), SUPERBLOCK_OFFSET + at, width, value);
                }
            }
            Patch::Checkpoint { packs, field, value } => {
                let Some((at, width)) = pick(CHECKPOINT, field.into()) else { return };
                // Neighbours in an array are chosen by the number's upper bits.
                let at = if width == 4 && field >= 128 { at + 4 * usize::from(field >> 5 & 1) } else { at };
                for pack in packs.each() {
                    self.set(base.packs[pack as usize].0, at, width, value);
                }
            }
            Patch::Pack { pack, block, at, value } => {
                let (start, total) = base.packs[usize::from(pack)];
                self.set(start + u32::from(block) % total, usize::from(at) % (BLOCK_SIZE - 8), 8, value);
            }
            Patch::Journal { pack, sit, entry, field, value } => self.journal(pack, sit, entry, field, value),
            Patch::Nat { nid, field, value } => {
                let (Some(nid), Some((at, width))) = (pick(&base.nids, nid.into()), pick(NAT_ENTRY, field.into()))
                else {
                    return;
                };
                let Some(&address) = base.nat.get((nid / 455) as usize) else { return };
                self.set(address, (nid % 455) as usize * 9 + at, width, value);
            }
            Patch::Sit { segment, field, value } => {
                let (Some(segment), Some((at, width))) =
                    (pick(&base.segments, segment.into()), pick(SIT_ENTRY, field.into()))
                else {
                    return;
                };
                let Some(&address) = base.sit.get(segment.index() / 55) else { return };
                self.set(address, segment.index() % 55 * 74 + at, width, value);
            }
            Patch::Summary { segment, entry, field, value } => {
                let (Some(segment), Some((at, width))) =
                    (pick(&base.segments, segment.into()), pick(SUMMARY_ENTRY, field.into()))
                else {
                    return;
                };
                self.set(
                    base.geometry.summary_block(segment),
                    usize::from(entry) % summary::ENTRIES * 7 + at,
                    width,
                    value,
                );
            }
            Patch::Inode { inode, field, value } => {
                let all: Vec<Field> = INODE.iter().chain(INODE_MORE).copied().collect();
                let (Some(address), Some((at, width))) = (pick(&base.inodes, inode.into()), pick(&all, field.into()))
                else {
                    return;
                };
                self.set(address, at, width, value);
            }
            Patch::InodeTail { inode, at, value } => {
                let Some(address) = pick(&base.inodes, inode.into()) else { return };
                let at = SLOTS_OFFSET + usize::from(at) % (FOOTER_OFFSET - SLOTS_OFFSET - 8);
                self.set(address, at & !3, 4, value);
            }
            Patch::Node { node, field, value } => {
                let Some(address) = pick(&base.nodes, node.into()) else { return };
                let (at, width) = if field < 256 {
                    FOOTER[usize::from(field) % FOOTER.len()]
                } else {
                    (usize::from(field) % 1018 * 4, 4)
                };
                self.set(address, at, width, value);
            }
            Patch::Dentry { block, slot, field, value } => {
                let (Some(address), Some((at, width))) =
                    (pick(&base.dentries, block.into()), pick(DENTRY, field.into()))
                else {
                    return;
                };
                // One field in four: the bitmap instead.
                if field >= 192 {
                    self.set(address, usize::from(slot) % 27, 1, value);
                } else {
                    self.set(address, 30 + usize::from(slot) % 214 * 11 + at, width, value);
                }
            }
            Patch::InlineDentry { inode, slot, field, value } => {
                let (Some(address), Some((at, width))) =
                    (pick(&base.inline_directories, inode.into()), pick(DENTRY, field.into()))
                else {
                    return;
                };
                let bytes = block(&self.device, address);
                let Ok(inode) = RawInode::ref_from_bytes(&bytes) else { return };
                let range = inode.inline_data_range(base.geometry.flexible_inline_xattr());
                let shape = basalt_f2fs::layout::dentry::DentryShape::inline(range.len());
                let within = if field >= 192 {
                    usize::from(slot) % 23
                } else {
                    shape.dentries_at + usize::from(slot) % 24 * 11 + at
                };
                self.set(address, range.start + within, if field >= 192 { 1 } else { width }, value);
            }
            Patch::Zero { place } => {
                let address = self.address(place);
                self.put(address, &[0; BLOCK_SIZE]);
            }
            Patch::Swap { one, other } => {
                let (one, other) = (self.address(one), self.address(other));
                let (first, second) = (block(&self.device, one), block(&self.device, other));
                self.put(one, &second);
                self.put(other, &first);
            }
            Patch::Flip { place, bit } => {
                let address = self.address(place);
                self.set(address, usize::from(bit / 8) % BLOCK_SIZE, 1, Value::Bit((bit % 8) as u8));
            }
        }
    }

    /// Changes a journal where it is: in one compact block, or in the first and third of the data summaries.
    fn journal(&mut self, pack: bool, sit: bool, entry: u8, field: u8, value: Value) {
        let (start, total) = self.base.packs[usize::from(pack)];
        let head = block(&self.device, start);
        let Ok((raw, _)) = RawCheckpoint::read_from_prefix(&head) else { return };
        let first = raw.cp_pack_start_sum.get().min(total - 1);
        let compact = raw.ckpt_flags.get() & 4 != 0;
        let (address, at) = match (compact, sit) {
            (true, false) => (start + first, 0),
            (true, true) => (start + first, summary::JOURNAL_SIZE),
            (false, false) => (start + first, summary::ENTRIES_SIZE),
            (false, true) => (start + (first + 2).min(total - 1), summary::ENTRIES_SIZE),
        };
        let (size, fields) = if sit { (78, SIT_ENTRY) } else { (13, NAT_ENTRY) };
        let Some((within, width)) = pick(fields, field.into()) else { return };
        match field {
            0..64 => self.set(address, at, 2, value),
            // The number of the node or segment comes first.
            64..128 => self.set(address, at + 2 + usize::from(entry) % 6 * size, 4, value),
            _ => self.set(address, at + 2 + usize::from(entry) % 6 * size + 4 + within, width, value),
        }
    }

    fn address(&self, place: BlockPlace) -> Address {
        let base = self.base;
        let chosen = match place {
            BlockPlace::Superblock(second) => Some(Address::new(second.into())),
            BlockPlace::Pack(pack, block) => {
                let (start, total) = base.packs[usize::from(pack)];
                Some(start + u32::from(block) % total)
            }
            BlockPlace::Nat(index) => pick(&base.nat, index.into()),
            BlockPlace::Sit(index) => pick(&base.sit, index.into()),
            BlockPlace::Summary(index) => {
                pick(&base.segments, index.into()).map(|segment| base.geometry.summary_block(segment))
            }
            BlockPlace::Inode(index) => pick(&base.inodes, index.into()),
            BlockPlace::Node(index) => pick(&base.nodes, index.into()),
            BlockPlace::Dentry(index) => pick(&base.dentries, index.into()),
            BlockPlace::Main(index) => Some(base.geometry.main + u32::from(index) % base.geometry.main_blocks()),
        };
        chosen.unwrap_or(base.geometry.main)
    }

    fn put(&mut self, address: Address, bytes: &[u8]) {
        self.device.write_at(u64::from(address) * BLOCK_SIZE as u64, bytes).expect("inside the device");
        self.touched.push(address);
    }

    /// Sets a field of `width` bytes, little-endian.
    fn set(&mut self, address: Address, at: usize, width: usize, value: Value) {
        let mut bytes = block(&self.device, address);
        let field = &mut bytes[at..at + width];
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(field);
        let old = u64::from_le_bytes(wide);
        let max = u64::MAX >> (64 - 8 * width);
        let new = match value {
            Value::Zero => 0,
            Value::One => 1,
            Value::Max => max,
            Value::HalfMax => max / 2,
            Value::Add(by) => old.wrapping_add_signed(by.into()),
            Value::Small(value) => value.into(),
            Value::Bit(bit) => old ^ 1 << (usize::from(bit) % (8 * width)),
            Value::Any(value) => value,
            Value::NodeId(index) => pick(&self.base.nids, index.into()).unwrap_or(3).into(),
            Value::Address(place) => self.address(place).into(),
            Value::Segment(segment) => (u32::from(segment) % self.base.geometry.main_segments).into(),
        };
        field.copy_from_slice(&new.to_le_bytes()[..width]);
        self.put(address, &bytes);
    }

    fn fix_checksums(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        for copy in [0, 1].map(Address::new) {
            if touched.contains(&copy) {
                self.fix_superblock(copy);
            }
        }
        for (start, _) in self.base.packs {
            if touched.contains(&start) {
                self.fix_checkpoint(start);
            }
        }
        for address in touched {
            if self.base.inodes.contains(&address) {
                self.fix_inode(address);
            }
        }
    }

    fn fix_superblock(&mut self, copy: Address) {
        let bytes = block(&self.device, copy);
        let structure = &bytes[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE];
        if let Ok(superblock) = RawSuperblock::read_from_bytes(structure) {
            self.put(copy, &superblock_block(&superblock));
        }
    }

    /// Brings the first block's checksum up to date and makes the last the same.
    fn fix_checkpoint(&mut self, start: Address) {
        let mut head = block(&self.device, start);
        let Ok((raw, _)) = RawCheckpoint::read_from_prefix(&head) else { return };
        let offset = raw.checksum_offset.get() as usize;
        if (BITMAP_OFFSET..=BLOCK_SIZE - 4).contains(&offset) {
            let checksum = expected_checksum(&head, offset);
            head[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());
        }
        let total = raw.cp_pack_total_block_count.get().clamp(1, 512);
        self.put(start, &head);
        self.put(start + total - 1, &head);
    }

    fn fix_inode(&mut self, address: Address) {
        let bytes = block(&self.device, address);
        let Ok(mut inode) = RawInode::read_from_bytes(&bytes) else { return };
        if inode.is_inline(InlineFlags::EXTRA_ATTR) && inode.has_extra(12) {
            let checksum = inode.expected_checksum(self.base.geometry.checksum_seed);
            inode.extra_mut().i_inode_checksum.set(checksum);
            self.put(address, inode.as_bytes());
        }
    }
}

impl Copies {
    fn each(self) -> std::ops::Range<u32> {
        match self {
            Copies::Both => 0..2,
            Copies::First => 0..1,
            Copies::Second => 1..2,
        }
    }
}
