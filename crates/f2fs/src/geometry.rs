//! A checked superblock: where everything is on the volume.
//!
//! Nothing else in the engine computes an address before [`Geometry::from_superblock`] has accepted the superblock,
//! because every later calculation divides by or adds up its fields.

use zerocopy::{FromBytes, IntoBytes};

use basalt_device::BlockDevice;
use basalt_segments::{MainBlock, Segment, Segments};

use crate::error::{Error, Result};
use crate::layout::superblock::{
    CHECKSUM_OFFSET, DELTA_GUARD, EXTENSION_MAX, Features, MAGIC, RESIZE_GUARD, RawSuperblock, SUPERBLOCK_OFFSET,
    SUPERBLOCK_SIZE, has_guard,
};
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino, Nid, SEGMENT_BITS, nat, sit};
use crate::probe::not_f2fs;

/// Fewest segments of a volume that Linux accepts.
const SEGMENTS_MIN: u32 = 9;
/// Most segments of a volume (16 TiB).
const SEGMENTS_MAX: u32 = 8_388_608;
/// Most segments of a section: its blocks have to fit 32 bits with room to spare.
const SECTION_MAX: u32 = SEGMENTS_MAX / 2;
/// `cp_payload` must leave room for summaries in a pack.
const PAYLOAD_MAX: u32 = 504;

/// Where the areas of a volume are. All addresses are in 4 KiB blocks from the start of the device.
#[derive(Debug, Clone)]
pub struct Geometry {
    /// The superblock as found.
    pub superblock: Box<RawSuperblock>,
    /// Features in use.
    pub features: Features,
    /// Blocks of the volume.
    pub block_count: u64,
    /// First block of segment 0.
    pub segment0: Address,
    /// First block of the first checkpoint pack.
    pub checkpoint: Address,
    /// Segments of checkpoint area.
    pub checkpoint_segments: u32,
    /// First block of the SIT.
    pub sit: Address,
    /// Blocks in one copy of the SIT.
    pub sit_blocks: u32,
    /// First block of the NAT.
    pub nat: Address,
    /// Blocks in one copy of the NAT.
    pub nat_blocks: u32,
    /// First block of the SSA.
    pub ssa: Address,
    /// Segments of the SSA.
    pub ssa_segments: u32,
    /// First block of the main area.
    pub main: Address,
    /// Segments of the main area.
    pub main_segments: u32,
    /// Segments in a section.
    pub segments_per_section: u32,
    /// Sections of the main area.
    pub main_sections: u32,
    /// Segments of the volume.
    pub segment_count: u32,
    /// Extra blocks in a checkpoint pack for bitmaps.
    pub payload: u32,
    /// Inode number of the root directory.
    pub root_ino: Ino,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Seed of inode checksums: the CRC of the UUID.
    pub checksum_seed: u32,
}

/// Shorthand: a superblock fault.
fn bad(copy: u64, found: impl Into<String>) -> Error {
    Error::damaged("superblock", format!("copy {} (block {copy})", copy + 1), found)
}

impl Geometry {
    /// Reads the superblock: the first copy that is sound. The second value says what was wrong with the first, if it was.
    pub fn read(device: &dyn BlockDevice) -> Result<(Geometry, Option<Error>)> {
        match Geometry::read_copy(device, 0) {
            Ok(geometry) => Ok((geometry, None)),
            Err(first) => match Geometry::read_copy(device, 1) {
                Ok(geometry) => Ok((geometry, Some(first))),
                // A volume that is guarded must be recovered first, whatever is wrong with the other copy.
                Err(second @ Error::Unsupported { .. }) => Err(second),
                Err(second) => Err(neither(device, first, second)),
            },
        }
    }

    /// Reads copy 0 or 1 of the superblock and checks it.
    pub fn read_copy(device: &dyn BlockDevice, copy: u64) -> Result<Geometry> {
        if device.size() < 2 * BLOCK_SIZE as u64 {
            return Err(not_f2fs(device));
        }
        let mut block = vec![0; BLOCK_SIZE];
        device.read_at(copy * BLOCK_SIZE as u64, &mut block)?;
        let bytes = &block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE];
        let superblock = RawSuperblock::read_from_bytes(bytes).map_err(|_| bad(copy, "shorter than a superblock"))?;
        Geometry::from_superblock(superblock, copy, device)
    }

    /// Checks a superblock against the format and the device's size. Source: f2fs-format section 4 and the kernel's
    /// `sanity_check_raw_super`.
    pub fn from_superblock(superblock: RawSuperblock, copy: u64, device: &dyn BlockDevice) -> Result<Geometry> {
        check_identity(&superblock, copy)?;
        check_stray(&superblock, copy, device)?;
        let geometry = Geometry::from_areas(superblock, copy, device)?;
        let end = geometry.end();
        let device_blocks = device.size() >> BLOCK_BITS;
        if end > device_blocks {
            // The rest is on the others.
            crate::features::expect_served(&geometry, device)?;
            let needed = end << BLOCK_BITS;
            return Err(Error::Truncated { device: device.name().into(), needed, size: device.size() });
        }
        Ok(geometry)
    }

    /// As [`from_superblock`](Self::from_superblock), but with any checksum and on a device of any size: the fields agree with each
    /// other, so that addresses can be computed with them. For rescue, where half a superblock is better than none.
    pub(crate) fn from_areas(superblock: RawSuperblock, copy: u64, device: &dyn BlockDevice) -> Result<Geometry> {
        check_units(&superblock, copy, device)?;
        check_areas(&superblock, copy)?;
        Ok(Geometry::describe(superblock))
    }

    /// The first block behind the main area.
    pub fn end(&self) -> u64 {
        u64::from(self.main) + (u64::from(self.main_segments) << SEGMENT_BITS)
    }

    /// Takes the fields of a superblock as they are: they must agree with each other.
    pub(crate) fn describe(sb: RawSuperblock) -> Geometry {
        let checksum_seed = crate::layout::crc::crc_from(!0, &sb.uuid);
        Geometry {
            features: sb.features(),
            block_count: sb.block_count.get(),
            segment0: sb.segment0_blkaddr.into(),
            checkpoint: sb.cp_blkaddr.into(),
            checkpoint_segments: sb.segment_count_ckpt.get(),
            sit: sb.sit_blkaddr.into(),
            sit_blocks: (sb.segment_count_sit.get() / 2) << SEGMENT_BITS,
            nat: sb.nat_blkaddr.into(),
            nat_blocks: (sb.segment_count_nat.get() / 2) << SEGMENT_BITS,
            ssa: sb.ssa_blkaddr.into(),
            ssa_segments: sb.segment_count_ssa.get(),
            main: sb.main_blkaddr.into(),
            main_segments: sb.segment_count_main.get(),
            segments_per_section: sb.segs_per_sec.get(),
            main_sections: sb.segment_count_main.get() / sb.segs_per_sec.get(),
            segment_count: sb.segment_count.get(),
            payload: sb.cp_payload.get(),
            root_ino: sb.root_ino.into(),
            uuid: sb.uuid,
            checksum_seed,
            superblock: Box::new(sb),
        }
    }

    /// Bytes of the SIT version bitmap in the checkpoint.
    pub fn sit_bitmap_size(&self) -> usize {
        self.sit_blocks as usize / 8
    }

    /// Bytes of the NAT version bitmap in the checkpoint.
    pub fn nat_bitmap_size(&self) -> usize {
        self.nat_blocks as usize / 8
    }

    /// Node ids that the NAT has room for; ids are below this.
    pub fn node_ids(&self) -> Nid {
        Nid::in_nat_block(self.nat_blocks, 0)
    }

    /// SIT blocks that hold entries.
    pub fn sit_blocks_used(&self) -> u32 {
        self.main_segments.div_ceil(sit::ENTRIES_PER_BLOCK)
    }

    /// Blocks of the main area.
    pub fn main_blocks(&self) -> u32 {
        self.main_segments << SEGMENT_BITS
    }

    /// Whether a block address lies in the main area.
    pub fn in_main(&self, address: Address) -> bool {
        address.blocks_behind(self.main).is_some_and(|block| block < self.main_blocks())
    }

    /// The index of a block within the main area. The address must lie there.
    pub fn main_block(&self, address: Address) -> MainBlock {
        MainBlock::new(address - self.main)
    }

    /// The address of a block of the main area.
    pub fn address_of(&self, block: MainBlock) -> Address {
        self.main + block.get()
    }

    /// The main segment that a block lies in. The address must lie in the main area.
    pub fn segment_of(&self, address: Address) -> Segment {
        self.main_block(address).segment()
    }

    /// How many blocks of its segment lie in front of a block. The address must lie in the main area.
    pub fn offset_in_segment(&self, address: Address) -> u32 {
        self.main_block(address).offset()
    }

    /// As [`in_segment`](Self::in_segment) for numbers that nobody has checked: `None` where no address is so large.
    pub fn checked_in_segment(&self, segment: Segment, offset: u32) -> Option<Address> {
        segment
            .get()
            .checked_mul(BLOCKS_PER_SEGMENT)?
            .checked_add(offset)
            .and_then(|block| self.main.checked_add(block))
    }

    /// The address of block `offset` of a main segment.
    pub fn in_segment(&self, segment: Segment, offset: u32) -> Address {
        self.address_of(MainBlock::in_segment(segment, offset))
    }

    /// Whether the main area has a segment with this number.
    pub fn has_segment(&self, segment: Segment) -> bool {
        segment.get() < self.main_segments
    }

    /// Every segment of the main area, rising.
    pub fn segments(&self) -> Segments {
        Segment::all(self.main_segments)
    }

    /// Where the SIT has a segment's entry: the index of its block, and the entry's index in there.
    pub fn sit_place(&self, segment: Segment) -> (u32, usize) {
        (segment.get() / sit::ENTRIES_PER_BLOCK, segment.index() % sit::ENTRIES_PER_BLOCK as usize)
    }

    /// The segments whose entries are in block `index` of the SIT.
    pub fn segments_of_sit_block(&self, index: u32) -> Segments {
        let first = index * sit::ENTRIES_PER_BLOCK;
        let end = (first + sit::ENTRIES_PER_BLOCK).min(self.main_segments);
        Segments::new(Segment::new(first), end.saturating_sub(first))
    }

    /// Whether inline xattr space is kept in each inode.
    pub fn flexible_inline_xattr(&self) -> bool {
        self.features.contains(Features::FLEXIBLE_INLINE_XATTR)
    }

    /// Address of block `index` of the SIT in the copy that `second` names.
    pub fn sit_block(&self, index: u32, second: bool) -> Address {
        self.sit + index + if second { self.sit_blocks } else { 0 }
    }

    /// Address of block `index` of the NAT in the copy that `second` names: the copies alternate by segment.
    pub fn nat_block(&self, index: u32, second: bool) -> Address {
        let segment = index >> SEGMENT_BITS;
        let within = index & (BLOCKS_PER_SEGMENT - 1);
        self.nat + (segment << (SEGMENT_BITS + 1)) + within + if second { BLOCKS_PER_SEGMENT } else { 0 }
    }

    /// Address of the summary block of a main segment.
    pub fn summary_block(&self, segment: Segment) -> Address {
        self.ssa + segment.get()
    }
}

/// Why neither copy can be used: where neither is one at all, what the device holds instead.
pub(crate) fn neither(device: &dyn BlockDevice, first: Error, second: Error) -> Error {
    let is_none = |copy: u64| {
        let mut magic = [0; 4];
        let read = device.read_at(copy * BLOCK_SIZE as u64 + SUPERBLOCK_OFFSET as u64, &mut magic);
        read.is_ok() && magic != MAGIC.to_le_bytes()
    };
    match (is_none(0), is_none(1)) {
        (true, true) => not_f2fs(device),
        // What is wrong with the one that is there says more.
        (true, false) => second,
        _ => first,
    }
}

pub(crate) fn check_identity(sb: &RawSuperblock, copy: u64) -> Result<()> {
    if sb.magic.get() != MAGIC {
        return Err(bad(copy, format!("magic {:#010x}, expected {MAGIC:#010x}", sb.magic.get())));
    }
    if sb.features().contains(Features::SB_CHECKSUM) {
        if sb.checksum_offset.get() != CHECKSUM_OFFSET {
            return Err(bad(copy, format!("checksum at {}, expected {CHECKSUM_OFFSET}", sb.checksum_offset)));
        }
        if sb.crc.get() != sb.expected_crc() {
            return Err(bad(copy, format!("checksum {:#010x}, expected {:#010x}", sb.crc.get(), sb.expected_crc())));
        }
    }
    Ok(())
}

/// A checksum that is not right, on a volume whose features say that it has none: the features are damaged, unless both copies say so.
fn check_stray(sb: &RawSuperblock, copy: u64, device: &dyn BlockDevice) -> Result<()> {
    let is_stray = !sb.features().contains(Features::SB_CHECKSUM) && ![0, sb.expected_crc()].contains(&sb.crc.get());
    if !is_stray {
        return Ok(());
    }
    let mut other = vec![0; SUPERBLOCK_SIZE];
    let read = device.read_at((1 - copy) * BLOCK_SIZE as u64 + SUPERBLOCK_OFFSET as u64, &mut other);
    // A guard of the journal or of a resize may be in one of them.
    let says_the_same = |other: RawSuperblock| other.feature == sb.feature && other.crc == sb.crc;
    if read.is_ok() && RawSuperblock::read_from_bytes(&other).is_ok_and(says_the_same) {
        return Ok(());
    }
    Err(bad(copy, format!("features {:#x} without checksum, but checksum {:#010x}", sb.features(), sb.crc)))
}

fn check_units(sb: &RawSuperblock, copy: u64, device: &dyn BlockDevice) -> Result<()> {
    let sectors = sb.log_sectors_per_block.get();
    if has_guard(sectors) {
        return Err(Error::Unsupported {
            device: device.name().into(),
            reason: if sectors & !0xFF == DELTA_GUARD {
                "holds a live cleaning journal, or fsyncs that only Basalt can read; a writable mount or `basalt fsck --repair` recovers it"
            } else {
                "holds a live cleaning journal; a writable mount or `basalt fsck --repair` recovers it"
            }
            .into(),
        });
    }
    if sectors & !0xFF == RESIZE_GUARD {
        return Err(Error::Unsupported {
            device: device.name().into(),
            reason: "a resize was interrupted; `basalt resize` or a writable mount finishes it".into(),
        });
    }
    if sb.log_blocksize.get() != BLOCK_BITS {
        return Err(Error::Unsupported {
            device: device.name().into(),
            reason: format!("block size 2^{} bytes; Basalt serves 4096", sb.log_blocksize),
        });
    }
    if sb.log_blocks_per_seg.get() != SEGMENT_BITS {
        return Err(bad(copy, format!("2^{} blocks per segment, expected 512", sb.log_blocks_per_seg)));
    }
    if !(9..=BLOCK_BITS).contains(&sb.log_sectorsize.get()) || sectors != BLOCK_BITS - sb.log_sectorsize.get() {
        return Err(bad(
            copy,
            format!("sector size 2^{} with 2^{sectors} sectors per block do not make 4096 bytes", sb.log_sectorsize),
        ));
    }
    if [sb.root_ino, sb.node_ino, sb.meta_ino].map(Ino::from) != [Ino::ROOT, Ino::NODE, Ino::META] {
        return Err(bad(copy, "root, node and meta inode numbers are not 3, 1 and 2"));
    }
    if sb.cp_payload.get() >= PAYLOAD_MAX {
        return Err(bad(copy, format!("cp_payload {}, expected less than {PAYLOAD_MAX}", sb.cp_payload)));
    }
    let extensions = sb.extension_count.get().saturating_add(u32::from(sb.hot_ext_count));
    if extensions > EXTENSION_MAX as u32 {
        return Err(bad(copy, format!("{extensions} extensions listed, at most {EXTENSION_MAX} fit")));
    }
    Ok(())
}

fn check_areas(sb: &RawSuperblock, copy: u64) -> Result<()> {
    let count = sb.segment_count.get();
    let per_section = sb.segs_per_sec.get();
    let main = sb.segment_count_main.get();
    if !(SEGMENTS_MIN..=SEGMENTS_MAX).contains(&count) || u64::from(count) > sb.block_count.get() >> SEGMENT_BITS {
        return Err(bad(copy, format!("{count} segments in {} blocks", sb.block_count)));
    }
    if per_section == 0 || per_section > count.min(SECTION_MAX) || main == 0 {
        return Err(bad(copy, format!("{per_section} segments per section, {main} main segments, of {count}")));
    }
    if u64::from(sb.section_count.get()) * u64::from(per_section) != u64::from(main) {
        return Err(bad(
            copy,
            format!("{} sections of {per_section} segments, but {main} main segments", sb.section_count),
        ));
    }
    if sb.secs_per_zone.get() == 0 || sb.secs_per_zone.get() > sb.section_count.get() {
        return Err(bad(copy, format!("{} sections per zone of {} sections", sb.secs_per_zone, sb.section_count)));
    }
    let mut at = u64::from(sb.segment0_blkaddr.get());
    let areas = [
        ("checkpoint", sb.cp_blkaddr.get(), sb.segment_count_ckpt.get(), 2),
        ("SIT", sb.sit_blkaddr.get(), sb.segment_count_sit.get(), 2),
        ("NAT", sb.nat_blkaddr.get(), sb.segment_count_nat.get(), 2),
        // A read-only volume has no summaries.
        ("SSA", sb.ssa_blkaddr.get(), sb.segment_count_ssa.get(), 0),
        ("main", sb.main_blkaddr.get(), main, 1),
    ];
    for (name, start, segments, least) in areas {
        if u64::from(start) != at {
            return Err(bad(copy, format!("{name} area starts at block {start}, expected {at}")));
        }
        if segments < least || segments > count {
            return Err(bad(copy, format!("{name} area has {segments} segments of {count}")));
        }
        at += u64::from(segments) << SEGMENT_BITS;
    }
    check_sizes(sb, copy, at)
}

/// The tables must have an entry for everything they describe.
fn check_sizes(sb: &RawSuperblock, copy: u64, main_end: u64) -> Result<()> {
    let (count, main) = (sb.segment_count.get(), sb.segment_count_main.get());
    let end = u64::from(sb.segment0_blkaddr.get()) + (u64::from(count) << SEGMENT_BITS);
    // Linux rewrites a larger segment_count silently; only one that is too small is a fault.
    if main_end > end || main_end > u64::from(u32::MAX) - 1 {
        return Err(bad(copy, format!("areas end at block {main_end}, volume ends at {end}")));
    }
    let sit_entries =
        u64::from(sb.segment_count_sit.get() / 2) * u64::from(BLOCKS_PER_SEGMENT * sit::ENTRIES_PER_BLOCK);
    if sit_entries < u64::from(main) {
        return Err(bad(copy, format!("SIT has room for {sit_entries} segments, main area has {main}")));
    }
    let node_ids = u64::from(sb.segment_count_nat.get() / 2) * u64::from(BLOCKS_PER_SEGMENT * nat::ENTRIES_PER_BLOCK);
    if node_ids > u64::from(u32::MAX) {
        return Err(bad(copy, format!("NAT has room for {node_ids} nodes, more than there are numbers")));
    }
    let summaries = u64::from(sb.segment_count_ssa.get()) << SEGMENT_BITS;
    if summaries < u64::from(main) && !sb.features().contains(Features::READ_ONLY) {
        return Err(bad(copy, format!("SSA has room for {summaries} segments, main area has {main}")));
    }
    Ok(())
}

/// The bytes of a superblock's block with `superblock` in it, the checksum brought up to date where the volume has one.
pub fn superblock_block(superblock: &RawSuperblock) -> Vec<u8> {
    let mut superblock = *superblock;
    if superblock.features().contains(Features::SB_CHECKSUM) {
        superblock.checksum_offset.set(CHECKSUM_OFFSET);
        let crc = superblock.expected_crc();
        superblock.crc.set(crc);
    }
    let mut block = vec![0; BLOCK_SIZE];
    block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE].copy_from_slice(superblock.as_bytes());
    block
}
