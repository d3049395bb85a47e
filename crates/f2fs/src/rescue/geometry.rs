//! Where everything is on a volume whose superblocks may be gone.
//!
//! In this order: a superblock that is right; one made of two damaged copies; one whose checksum is wrong but whose fields agree with each
//! other; a checkpoint, which says how large SIT and NAT are, and which the device's size and the nodes' own addresses complete; nothing at
//! all, which is enough to find nodes, because their addresses count from the start of the device.

use std::collections::BTreeSet;

use basalt_device::BlockDevice;
use zerocopy::{FromBytes, FromZeros};

use super::reader::Reader;
use crate::checkpoint::block::check_block;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, RawCheckpoint};
use crate::layout::nat::{self, RawNatEntry};
use crate::layout::node::RawNode;
use crate::layout::superblock::{Features, MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, has_guard};
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino, Nid, SEGMENT_BITS};
use crate::merged::merge;

/// A checkpoint is searched for in this many blocks from the start of the device: 256 MiB.
const SEARCHED_BLOCKS: u32 = 1 << 16;
/// Most segments of checkpoint area and of SSA that are tried.
const TRIED_SEGMENTS: u32 = 1 << 12;
/// Once a place of the main area was found, a better one is looked for in so many segments more: the longest sections, about.
const BETTER_SEGMENTS: u32 = 512;
/// Most places of the checkpoint area that are tried.
const PLACES_MAX: usize = 6;
/// The logs of nodes, in a checkpoint's lists of them.
const NODE_LOGS: std::ops::Range<usize> = 0..3;

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
    if let Some(geometry) = merge(device) {
        warnings.extend(first_error.map(|error| format!("{error}; what is whole in either copy is used")));
        return Ok(geometry);
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
    if has_guard(sectors) {
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
    if sit_segments + nat_segments >= reader.blocks >> SEGMENT_BITS {
        return None;
    }
    // Even versions are in the second pack, a segment behind the first.
    let behind = address.get().checked_sub(BLOCKS_PER_SEGMENT).filter(|&start| start > 0).map(Address::new);
    let mut starts: Vec<Address> = [Some(address), behind].into_iter().flatten().collect();
    if raw.checkpoint_ver.get().is_multiple_of(2) {
        starts.reverse();
    }
    // Only nodes tell which it is.
    let mut best: Option<(Agreement, Areas)> = None;
    for (start, segments) in find_places(reader, &starts, sit_segments) {
        let Some(ssa) = behind_segments(start, segments + sit_segments + nat_segments) else { continue };
        let nat = start + ((segments + sit_segments) << SEGMENT_BITS);
        let root = [nat, nat + BLOCKS_PER_SEGMENT].into_iter().filter_map(|at| root_node(reader, at)).max();
        let Some((agreement, main)) = find_main(reader, &raw, ssa, root) else { continue };
        if best.as_ref().is_none_or(|(before, _)| agreement > *before) {
            best = Some((agreement, Areas { start, segments, sit_segments, nat_segments, ssa, main }));
        }
        if agreement.logs == NODE_LOGS.filter(|&log| raw.cur_node_blkoff[log].get() > 0).count() {
            break;
        }
    }
    best.map(|(_, areas)| areas.geometry(reader.blocks, payload(sit_bytes, nat_bytes)))
}

/// The block so many segments behind another.
fn behind_segments(start: Address, segments: u32) -> Option<Address> {
    segments.checked_mul(BLOCKS_PER_SEGMENT).and_then(|blocks| start.checked_add(blocks))
}

/// Where the checkpoint area may start, and its segments, likeliest first: by where copies of the NAT begin behind the SIT. mkfs makes two
/// segments, so a copy that is alone is the second one of such an area sooner than the first one of a longer area.
fn find_places(reader: &mut Reader<'_>, starts: &[Address], sit_segments: u32) -> Vec<(Address, u32)> {
    let mut places = Vec::new();
    for (order, &start) in starts.iter().enumerate() {
        let mut holds_nat = |segments: u32| {
            let nat = behind_segments(start, segments + sit_segments).filter(|&nat| nat.get() < reader.blocks);
            nat.is_some_and(|nat| starts_nat(reader, nat))
        };
        let mut first = holds_nat(2);
        for segments in 2..TRIED_SEGMENTS {
            let second = holds_nat(segments + 1);
            let rank = match (first, second) {
                (true, true) => Some(0),
                (false, false) => None,
                _ if segments == 2 => Some(1),
                (true, false) => Some(2),
                (false, true) => Some(3),
            };
            places.extend(rank.map(|rank| (rank, order, segments, start)));
            first = second;
        }
        // Without a NAT, as mkfs makes them.
        places.push((4, order, 2, start));
    }
    places.sort_unstable();
    let mut seen = BTreeSet::new();
    let places = places.into_iter().map(|(_, _, segments, start)| (start, segments));
    places.filter(|place| seen.insert(*place)).take(PLACES_MAX).collect()
}

/// What can be said without superblock and checkpoint: the main area starts at `main`, or somewhere.
pub(super) fn from_nothing(blocks: u32, main: Option<u32>) -> Geometry {
    let main = main.unwrap_or(BLOCKS_PER_SEGMENT).min(blocks.saturating_sub(1));
    let main = Address::new(main);
    let segments = blocks >> SEGMENT_BITS;
    // Node ids are given out from below: there are never more of them than blocks.
    let nat_segments = segments.clamp(2, u32::MAX / nat::ENTRIES_PER_BLOCK / BLOCKS_PER_SEGMENT) * 2;
    Areas { start: Address::NULL, segments: 0, sit_segments: 2, nat_segments, ssa: main, main }.geometry(blocks, 0)
}

struct Areas {
    start: Address,
    segments: u32,
    sit_segments: u32,
    nat_segments: u32,
    ssa: Address,
    main: Address,
}

impl Areas {
    fn geometry(&self, blocks: u32, payload: u32) -> Geometry {
        let mut sb = RawSuperblock::new_zeroed();
        let main_segments = (blocks - self.main.get()).div_ceil(BLOCKS_PER_SEGMENT).max(1);
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
        sb.segment0_blkaddr = self.start.into();
        sb.cp_blkaddr = self.start.into();
        sb.sit_blkaddr = (self.start + (self.segments << SEGMENT_BITS)).into();
        sb.nat_blkaddr = (self.start + ((self.segments + self.sit_segments) << SEGMENT_BITS)).into();
        sb.ssa_blkaddr = self.ssa.into();
        sb.main_blkaddr = self.main.into();
        sb.root_ino = Ino::ROOT.into();
        sb.node_ino = Ino::NODE.into();
        sb.meta_ino = Ino::META.into();
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
fn find_checkpoint(reader: &mut Reader<'_>) -> Option<(Address, RawCheckpoint)> {
    let mut found: Vec<(Address, RawCheckpoint)> = Vec::new();
    reader.each(Address::new(1)..Address::new(SEARCHED_BLOCKS), &mut |address, block| {
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
    let alone = || found.iter().find(|(address, _)| address.get().is_multiple_of(BLOCKS_PER_SEGMENT / 2));
    head.or_else(alone).copied()
}

/// Whether a copy of the NAT begins at a block: the first entries are those of inodes that always exist.
fn starts_nat(reader: &mut Reader<'_>, address: Address) -> bool {
    let Some(block) = reader.block(address) else { return false };
    let Ok((entries, _)) = <[RawNatEntry]>::ref_from_prefix_with_elems(&block, 4) else { return false };
    let is_reserved = |nid: usize| entries[nid].address() == Address::new(1) && entries[nid].ino().get() == nid as u32;
    entries[0].address() == Address::NULL && is_reserved(1) && is_reserved(2) && entries[3].ino() == Ino::ROOT
}

/// Where a copy of the NAT that begins at a block has the root's inode.
fn root_node(reader: &mut Reader<'_>, address: Address) -> Option<Address> {
    if !starts_nat(reader, address) {
        return None;
    }
    let block = reader.block(address)?;
    let (entries, _) = <[RawNatEntry]>::ref_from_prefix_with_elems(&block, 4).ok()?;
    Some(entries[3].address()).filter(|&root| root > address && root.get() < reader.blocks)
}

/// The first block of the main area: where the checkpoint's node logs hold nodes that name their successors. `None` if no place agrees:
/// a wrong one would hide what nodes alone tell.
fn find_main(
    reader: &mut Reader<'_>,
    raw: &RawCheckpoint,
    ssa: Address,
    root: Option<Address>,
) -> Option<(Agreement, Address)> {
    let least = least_ssa(reader.blocks, ssa)?;
    let mut best: Option<(Agreement, Address)> = None;
    let mut left = TRIED_SEGMENTS;
    // A volume that was cut off has more summaries than its length says, and sections and zones make the SSA longer too.
    for segments in least.. {
        let main = behind_segments(ssa, segments).filter(|&main| main.get() < reader.blocks && left > 0);
        // The NAT has addresses from the start of the device: the root's inode is in the main area.
        let Some(main) = main.filter(|&main| root.is_none_or(|root| main <= root)) else { break };
        left -= 1;
        let agreement = agreement(reader, raw, main);
        if agreement.logs > 0 && best.is_none_or(|(before, _)| agreement > before) {
            // Other segments of nodes agree by chance, but with older nodes, or in fewer logs.
            left = left.min(BETTER_SEGMENTS);
            best = Some((agreement, main));
        }
    }
    best
}

/// How well the ends of a checkpoint's node logs are where a main area would have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Agreement {
    /// The newest version of such a node that is older than the checkpoint, lower half: none is newer than those at the ends.
    newest: u32,
    /// Logs that end with a node which names the next block.
    logs: usize,
}

fn agreement(reader: &mut Reader<'_>, raw: &RawCheckpoint, main: Address) -> Agreement {
    let mut agreement = Agreement { logs: 0, newest: 0 };
    for log in NODE_LOGS {
        let (segment, used) = (raw.cur_node_segno[log].get(), u32::from(raw.cur_node_blkoff[log].get()));
        let last = behind_segments(main, segment).zip(used.checked_sub(1)).and_then(|(at, used)| at.checked_add(used));
        let block = last.and_then(|last| reader.block(last).filter(|block| follows_itself(block, last)));
        let Some(version) = block.and_then(|block| node_version(&block)) else { continue };
        agreement.logs += 1;
        // What was written behind the checkpoint has its version or a newer one, and is where the logs went on.
        let age = (raw.checkpoint_ver.get() as u32).wrapping_sub(version);
        if age.cast_signed() > 0 {
            agreement.newest = agreement.newest.max(u32::MAX - age);
        }
    }
    agreement
}

/// The version of the checkpoint that a node was written behind, lower half.
fn node_version(block: &[u8]) -> Option<u32> {
    RawNode::ref_from_bytes(block).ok().map(|node| node.footer.cp_ver.get() as u32)
}

/// Segments of SSA that describe the rest of the device.
fn least_ssa(blocks: u32, ssa: Address) -> Option<u32> {
    let rest = blocks.checked_sub(ssa.get())? >> SEGMENT_BITS;
    (1..=rest).find(|segments| segments << SEGMENT_BITS >= rest - segments)
}

/// Whether a block is a node whose log went on behind it.
fn follows_itself(block: &[u8], address: Address) -> bool {
    RawNode::ref_from_bytes(block).is_ok_and(|node| {
        let footer = &node.footer;
        footer.nid() >= Nid::FIRST
            && footer.ino().nid() >= Nid::FIRST
            && Address::from(footer.next_blkaddr) == address + 1
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use basalt_device::MemoryDevice;
    use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

    use super::*;
    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::lock::F2fs;
    use crate::options::OpenOptions;

    const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

    fn volume(mib: u64, segments_per_section: u32, checkpoints: u32) -> MemoryDevice {
        let device = Arc::new(MemoryDevice::new(mib << 20, 512));
        let options = FormatOptions { discard_reads_zeros: true, segments_per_section, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
        let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        for number in 0..checkpoints {
            for file in 0..200 {
                let name = format!("file{number}.{file}");
                let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
                fs.write(ino, 0, &[number as u8; 5_000], false).unwrap();
            }
            fs.sync().unwrap();
        }
        fs.close().unwrap();
        drop(fs);
        device.snapshot()
    }

    /// Sections of several segments make the SSA longer, and so do lengths of which the summaries fill whole segments.
    #[test]
    fn a_lone_pack_tells_every_layout() {
        let volumes = [(64, 1, 4), (64, 1, 5), (256, 2, 4), (256, 4, 5), (512, 8, 4), (512, 8, 5), (1080, 1, 4)];
        for (mib, per_section, checkpoints) in volumes {
            let whole = volume(mib, per_section, checkpoints);
            let right = Geometry::read(&whole).unwrap().0;
            let pack = |index: u32| (right.checkpoint + index * BLOCKS_PER_SEGMENT, BLOCKS_PER_SEGMENT);
            let nat = |copy: u32| (right.nat + copy * BLOCKS_PER_SEGMENT, 1);
            for lost in [vec![], vec![nat(0)], vec![nat(1)]] {
                // Or neither.
                for index in 0..3 {
                    let device = whole.snapshot();
                    let gone = if index < 2 { pack(index) } else { (Address::NULL, 2) };
                    for &(first, count) in [(Address::NULL, 2), gone].iter().chain(&lost) {
                        device.write_at(u64::from(first) << BLOCK_BITS, &vec![0; count as usize * BLOCK_SIZE]).unwrap();
                    }
                    let found = from_checkpoint(&mut Reader::new(&device)).unwrap();
                    let areas = |of: &Geometry| [of.checkpoint, of.sit, of.nat, of.ssa, of.main];
                    let what = format!("{mib} MiB, {per_section} per section, without pack {index} and {lost:?}");
                    assert_eq!(areas(&found), areas(&right), "{what}");
                }
            }
        }
    }
}
