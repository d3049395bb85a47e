//! Where everything is on a volume whose superblocks may be gone.
//!
//! In this order: a superblock that is right; one whose checksum is wrong but whose fields agree with each other; a checkpoint, which
//! says how large SIT and NAT are, and which the device's size and the nodes' own addresses complete; nothing at all, which is enough to
//! find nodes, because their addresses count from the start of the device.

use basalt_device::BlockDevice;
use zerocopy::{FromBytes, FromZeros};

use super::reader::Reader;
use crate::checkpoint::load::check_block;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, RawCheckpoint};
use crate::layout::nat::{self, RawNatEntry};
use crate::layout::node::RawNode;
use crate::layout::superblock::{Features, JOURNAL_GUARD, MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::layout::{BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, SEGMENT_BITS};

/// A checkpoint is searched for in this many blocks from the start of the device: 256 MiB.
const SEARCHED_BLOCKS: u32 = 1 << 16;
/// Most segments of checkpoint area and of SSA that are tried.
const TRIED_SEGMENTS: u32 = 1 << 12;

/// How the geometry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GeometrySource {
    /// A superblock.
    Superblock,
    /// A checkpoint, and what lies around it.
    Checkpoint,
    /// The caller, or nothing: only addresses in the nodes count.
    Nodes,
}

/// A superblock that can be used, with a warning where it is not quite right.
pub(super) fn from_superblocks(device: &dyn BlockDevice, warnings: &mut Vec<String>) -> Result<Geometry> {
    let (mut first_error, mut usable) = (None, None);
    for copy in 0..2 {
        match Geometry::read_copy(device, copy) {
            Ok(geometry) => {
                warnings.extend(first_error.map(|error: Error| format!("{error}; the second copy is used")));
                return Ok(geometry);
            }
            Err(error) => {
                if usable.is_none() {
                    usable = unchecked(device, copy).map(|geometry| (geometry, error.to_string()));
                }
                first_error = first_error.or(Some(error));
            }
        }
    }
    match (usable, first_error) {
        (Some((geometry, error)), _) => {
            warnings.push(format!("{error}; used all the same"));
            Ok(geometry)
        }
        (None, Some(error)) => Err(error),
        (None, None) => Err(Error::damaged("superblock", "both copies", "unreadable")),
    }
}

/// A superblock whose checksum, size or guard may be wrong, but whose fields agree.
fn unchecked(device: &dyn BlockDevice, copy: u64) -> Option<Geometry> {
    let mut block = vec![0; BLOCK_SIZE];
    device.read_at(copy * BLOCK_SIZE as u64, &mut block).ok()?;
    let bytes = &block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE];
    let mut superblock = RawSuperblock::read_from_bytes(bytes).ok()?;
    let sectors = superblock.log_sectors_per_block.get();
    if sectors & !0xFF == JOURNAL_GUARD {
        superblock.log_sectors_per_block.set(sectors & 0xFF);
    }
    let known = superblock.magic.get() == MAGIC;
    known.then(|| Geometry::from_areas(superblock, copy, device).ok()).flatten()
}

/// Builds the geometry from a checkpoint; `None` if none is found.
pub(super) fn from_checkpoint(reader: &mut Reader<'_>) -> Option<Geometry> {
    let (address, raw) = find_checkpoint(reader)?;
    let (sit_bytes, nat_bytes) = (raw.sit_ver_bitmap_bytesize.get(), raw.nat_ver_bitmap_bytesize.get());
    let unit = BLOCKS_PER_SEGMENT / 8;
    let fits = |bytes: u32| bytes != 0 && bytes.is_multiple_of(unit) && bytes / unit < reader.blocks >> SEGMENT_BITS;
    if !fits(sit_bytes) || !fits(nat_bytes) {
        return None;
    }
    // One bit of a bitmap for each block of a copy; there are two copies.
    let (sit_segments, nat_segments) = (sit_bytes / unit * 2, nat_bytes / unit * 2);
    // Even versions are in the second pack, a segment behind the first.
    let behind = address.checked_sub(BLOCKS_PER_SEGMENT).filter(|&start| start > 0);
    let mut starts: Vec<u32> = [Some(address), behind].into_iter().flatten().collect();
    if raw.checkpoint_ver.get().is_multiple_of(2) {
        starts.reverse();
    }
    // Where a NAT begins, or would if its first copy is gone; without one, as mkfs makes them.
    let mut places = Vec::new();
    for is_second_copy in [false, true] {
        for &start in &starts {
            let segments = (2..TRIED_SEGMENTS).find(|segments| {
                let copy = segments + sit_segments + u32::from(is_second_copy);
                let nat = start.checked_add(copy << SEGMENT_BITS).filter(|&nat| nat < reader.blocks);
                nat.is_some_and(|nat| starts_nat(reader, nat))
            });
            places.extend(segments.map(|segments| (start, segments)));
        }
    }
    places.extend(starts.iter().map(|&start| (start, 2)));
    // Only nodes tell which it is.
    places.into_iter().find_map(|(start, segments)| {
        let ssa = start.checked_add((segments + sit_segments + nat_segments) << SEGMENT_BITS)?;
        let main = find_main(reader, &raw, ssa)?;
        let areas = Areas { start, segments, sit_segments, nat_segments, ssa, main };
        Some(areas.geometry(reader.blocks, payload(sit_bytes, nat_bytes)))
    })
}

/// What can be said without superblock and checkpoint: the main area starts at `main`, or somewhere.
pub(super) fn from_nothing(blocks: u32, main: Option<u32>) -> Geometry {
    let main = main.unwrap_or(BLOCKS_PER_SEGMENT).min(blocks.saturating_sub(1));
    let segments = blocks >> SEGMENT_BITS;
    // Node ids are given out from below: there are never more of them than blocks.
    let nat_segments = segments.clamp(2, u32::MAX / nat::ENTRIES_PER_BLOCK / BLOCKS_PER_SEGMENT) * 2;
    Areas { start: 0, segments: 0, sit_segments: 2, nat_segments, ssa: main, main }.geometry(blocks, 0)
}

struct Areas {
    start: u32,
    segments: u32,
    sit_segments: u32,
    nat_segments: u32,
    ssa: u32,
    main: u32,
}

impl Areas {
    fn geometry(&self, blocks: u32, payload: u32) -> Geometry {
        let mut sb = RawSuperblock::new_zeroed();
        let main_segments = (blocks - self.main).div_ceil(BLOCKS_PER_SEGMENT).max(1);
        sb.magic.set(MAGIC);
        sb.log_blocksize.set(BLOCK_BITS);
        sb.log_blocks_per_seg.set(SEGMENT_BITS);
        sb.segs_per_sec.set(1);
        sb.secs_per_zone.set(1);
        sb.block_count.set(blocks.into());
        sb.section_count.set(main_segments);
        sb.segment_count.set(blocks >> SEGMENT_BITS);
        sb.segment_count_ckpt.set(self.segments);
        sb.segment_count_sit.set(self.sit_segments);
        sb.segment_count_nat.set(self.nat_segments);
        sb.segment_count_ssa.set((self.main - self.ssa) >> SEGMENT_BITS);
        sb.segment_count_main.set(main_segments);
        sb.segment0_blkaddr.set(self.start);
        sb.cp_blkaddr.set(self.start);
        sb.sit_blkaddr.set(self.start + (self.segments << SEGMENT_BITS));
        sb.nat_blkaddr.set(self.start + ((self.segments + self.sit_segments) << SEGMENT_BITS));
        sb.ssa_blkaddr.set(self.ssa);
        sb.main_blkaddr.set(self.main);
        sb.root_ino.set(3);
        sb.node_ino.set(1);
        sb.meta_ino.set(2);
        sb.cp_payload.set(payload);
        // Inodes say themselves whether they have extra attributes; a checksum needs the UUID, which is gone.
        sb.feature.set(Features::EXTRA_ATTR.bits());
        Geometry::describe(sb)
    }
}

/// Blocks of payload in a pack whose bitmaps have this many bytes.
fn payload(sit_bytes: u32, nat_bytes: u32) -> u32 {
    let room = (CHECKSUM_OFFSET - BITMAP_OFFSET) as u32;
    if sit_bytes + nat_bytes > room { sit_bytes.div_ceil(BLOCK_SIZE as u32) } else { 0 }
}

/// The first block of a checkpoint pack; one whose other end agrees is preferred.
fn find_checkpoint(reader: &mut Reader<'_>) -> Option<(u32, RawCheckpoint)> {
    let mut found: Vec<(u32, RawCheckpoint)> = Vec::new();
    reader.each(1..SEARCHED_BLOCKS, &mut |address, block| {
        // Both packs have two such blocks each; what is in files comes later.
        if found.len() < 8
            && block[..8] != [0; 8]
            && let Ok((raw, _)) = check_block(0, "block", block)
        {
            found.push((address, raw));
        }
    });
    let head = found.iter().find(|(address, raw)| {
        let tail = address.checked_add(raw.cp_pack_total_block_count.get().saturating_sub(1));
        found
            .iter()
            .any(|(other, same)| Some(*other) == tail && other != address && same.checkpoint_ver == raw.checkpoint_ver)
    });
    // A block alone is the first of its pack if packs are where mkfs puts them, at a multiple of a segment.
    let alone = || found.iter().find(|(address, _)| address.is_multiple_of(BLOCKS_PER_SEGMENT / 2));
    head.or_else(alone).copied()
}

/// Whether a copy of the NAT begins at a block: the first entries are those of inodes that always exist.
fn starts_nat(reader: &mut Reader<'_>, address: u32) -> bool {
    let Some(block) = reader.block(address) else { return false };
    let Ok((entries, _)) = <[RawNatEntry]>::ref_from_prefix_with_elems(&block, 4) else { return false };
    let is_reserved = |nid: usize| entries[nid].block_addr.get() == 1 && entries[nid].ino.get() == nid as u32;
    entries[0].block_addr.get() == 0 && is_reserved(1) && is_reserved(2) && entries[3].ino.get() == 3
}

/// The first block of the main area: where the checkpoint's node logs hold nodes that name their successors. `None` if no place agrees:
/// a wrong one would hide what nodes alone tell.
fn find_main(reader: &mut Reader<'_>, raw: &RawCheckpoint, ssa: u32) -> Option<u32> {
    let least = least_ssa(reader.blocks, ssa)?;
    let agrees = |reader: &mut Reader<'_>, main: u32| {
        (0..3).any(|log| {
            let (segment, used) = (raw.cur_node_segno[log].get(), u32::from(raw.cur_node_blkoff[log].get()));
            let last = segment.checked_mul(BLOCKS_PER_SEGMENT).and_then(|at| at.checked_add(main));
            let last = last.zip(used.checked_sub(1)).and_then(|(at, used)| at.checked_add(used));
            last.is_some_and(|last| reader.block(last).is_some_and(|block| follows_itself(&block, last)))
        })
    };
    // A volume that was cut off has more summaries than its length says, and zones make the SSA longer too.
    let at = |segments: u32| ssa.checked_add(segments << SEGMENT_BITS).filter(|&main| main < reader.blocks);
    let tried: Vec<u32> = (least..TRIED_SEGMENTS).map_while(at).collect();
    tried.into_iter().find(|&main| agrees(reader, main))
}

/// Segments of SSA that describe the rest of the device.
fn least_ssa(blocks: u32, ssa: u32) -> Option<u32> {
    let rest = blocks.checked_sub(ssa)? >> SEGMENT_BITS;
    (1..=rest).find(|segments| segments << SEGMENT_BITS >= rest - segments)
}

/// Whether a block is a node whose log went on behind it.
fn follows_itself(block: &[u8], address: u32) -> bool {
    RawNode::ref_from_bytes(block).is_ok_and(|node| {
        let footer = &node.footer;
        footer.nid.get() >= 3 && footer.ino.get() >= 3 && footer.next_blkaddr.get() == address + 1
    })
}
