//! What a volume looks like at another size: pure arithmetic.

use crate::format::areas::{Areas, divide};
use crate::format::plan::reserve;
use crate::geometry::Geometry;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, CheckpointFlags, RawCheckpoint};
use crate::layout::superblock::RawSuperblock;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, SEGMENT_BITS, sit};

/// Most segments of a volume (16 TiB).
const SEGMENTS_MAX: u64 = 8_388_608;
/// Bytes of a version bitmap for each segment of SIT or NAT, both copies counted: a bit for each block of one copy.
const BITMAP_BYTES_PER_PAIR: u32 = BLOCKS_PER_SEGMENT / 8;
/// Bytes for version bitmaps in a checkpoint block whose checksum is at its end.
const BITMAP_BYTES: u32 = (CHECKSUM_OFFSET - BITMAP_OFFSET) as u32;

/// A volume's layout at another size.
#[derive(Debug, Clone)]
pub struct Target {
    /// The superblock, checksum left out.
    pub superblock: RawSuperblock,
    /// Segments by which the main area's start moves up. Block addresses stay, segment numbers sink.
    pub shift: u32,
    /// Segments that cleaning keeps free.
    pub reserved: u32,
    /// Segments kept back for cleaning, reserved ones included.
    pub overprovision: u32,
}

/// Why there is no layout for a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTarget {
    /// The live blocks, or the least main area, do not fit.
    TooSmall,
    /// The checkpoint has no room for the version bitmaps.
    Bitmaps,
}

/// What of a volume a layout depends on.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// `valid_block_count`: live and reserved blocks.
    pub valid_blocks: u64,
    /// The over-provisioning ratio to keep; `None` for the best one of each size.
    pub percent: Option<f64>,
    /// Whether the NAT bitmap comes first in the checkpoint, checksum before it.
    pub large_nat_bitmap: bool,
}

impl Usage {
    /// As the checkpoint says, with `valid_blocks` in use.
    pub fn new(geometry: &Geometry, raw: &RawCheckpoint, valid_blocks: u64) -> Usage {
        let (main, per_section) = (geometry.main_segments, geometry.segments_per_section);
        let (reserved, kept_back) = (raw.rsvd_segment_count.get(), raw.overprov_segment_count.get());
        let is_best = reserve(main, per_section, None)
            .is_some_and(|best| (best.reserved, best.overprovision) == (reserved, kept_back));
        let share = f64::from(kept_back.saturating_sub(reserved)) * 100.0 / f64::from(main.saturating_sub(reserved));
        let percent = (!is_best && (0.01..100.0).contains(&share)).then_some(share);
        let large_nat_bitmap = raw.flags().contains(CheckpointFlags::LARGE_NAT_BITMAP);
        Usage { valid_blocks, percent, large_nat_bitmap }
    }
}

impl Target {
    /// Blocks that files and their metadata can take.
    pub fn user_blocks(&self) -> u64 {
        u64::from(self.main_segments() - self.overprovision) << SEGMENT_BITS
    }

    /// Segments of the main area.
    pub fn main_segments(&self) -> u32 {
        self.superblock.segment_count_main.get()
    }

    /// First block behind the main area.
    pub fn end(&self) -> u64 {
        u64::from(self.superblock.main_blkaddr.get()) + (u64::from(self.main_segments()) << SEGMENT_BITS)
    }

    /// Whether the areas are those of `geometry`.
    pub fn is_same(&self, geometry: &Geometry) -> bool {
        self.main_segments() == geometry.main_segments && self.shift == 0
    }
}

/// Segments of main area that are dealt out together: a zone.
pub fn unit(geometry: &Geometry) -> u32 {
    geometry.segments_per_section * geometry.superblock.secs_per_zone.get()
}

/// The layout at `blocks` blocks.
///
/// A smaller volume keeps its metadata areas. A larger one keeps them too while they have room for all segments, and gets
/// those that mkfs would give it otherwise.
pub fn target(geometry: &Geometry, usage: &Usage, blocks: u64) -> Result<Target, NoTarget> {
    let old = areas(geometry);
    let unit = unit(geometry);
    // Addresses end below those that mean something else.
    let addressable = blocks.min(u64::from(u32::MAX) - 1);
    let behind_start = addressable.saturating_sub(u64::from(geometry.segment0)) >> SEGMENT_BITS;
    // At most SEGMENTS_MAX: fits.
    let available = behind_start.min(SEGMENTS_MAX) as u32;
    let keep = main_behind(available, old, geometry, unit);
    let areas = if keep <= old.main {
        Areas { main: keep, ..old }
    } else {
        let wanted = grown(old, divide(metadata(old, geometry) + keep, unit), geometry, unit);
        let main = main_behind(available, wanted, geometry, unit);
        if main > old.main {
            Areas { main, ..wanted }
        } else {
            // Too little is gained for larger areas: what the old ones have room for.
            let room = (old.ssa << SEGMENT_BITS).min(old.sit / 2 * BLOCKS_PER_SEGMENT * sit::ENTRIES_PER_BLOCK);
            Areas { main: keep.min(room / unit * unit).max(old.main), ..old }
        }
    };
    finish(geometry, usage, areas, blocks)
}

/// The least size in blocks at which the volume's content fits, its metadata areas unchanged.
pub fn minimum_blocks(geometry: &Geometry, usage: &Usage) -> u64 {
    let unit = unit(geometry);
    let metadata = metadata(areas(geometry), geometry);
    let size = |zones: u32| u64::from(geometry.segment0) + (u64::from(metadata + zones * unit) << SEGMENT_BITS);
    let most = geometry.main_segments / unit;
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if target(geometry, usage, size(middle)).is_ok() {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    size(high)
}

fn areas(geometry: &Geometry) -> Areas {
    let sb = &geometry.superblock;
    Areas {
        total: sb.segment_count.get(),
        sit: sb.segment_count_sit.get(),
        nat: sb.segment_count_nat.get(),
        ssa: sb.segment_count_ssa.get(),
        main: sb.segment_count_main.get(),
        payload: sb.cp_payload.get(),
    }
}

/// Segments in front of the main area.
fn metadata(areas: Areas, geometry: &Geometry) -> u32 {
    geometry.checkpoint_segments + areas.sit + areas.nat + areas.ssa
}

/// Segments of main area, in whole zones, that are left behind these areas.
fn main_behind(available: u32, areas: Areas, geometry: &Geometry, unit: u32) -> u32 {
    available.saturating_sub(metadata(areas, geometry)) / unit * unit
}

/// The areas at least as large as planned; the main area's start moves by whole zones.
fn grown(old: Areas, planned: Option<Areas>, geometry: &Geometry, unit: u32) -> Areas {
    let Some(planned) = planned else { return old };
    let mut new =
        Areas { sit: old.sit.max(planned.sit), nat: old.nat.max(planned.nat), ssa: old.ssa.max(planned.ssa), ..old };
    let moved = metadata(new, geometry) - metadata(old, geometry);
    new.ssa += moved.next_multiple_of(unit) - moved;
    new
}

fn finish(geometry: &Geometry, usage: &Usage, areas: Areas, blocks: u64) -> Result<Target, NoTarget> {
    let kept_back = reserve(areas.main, geometry.segments_per_section, usage.percent).ok_or(NoTarget::TooSmall)?;
    let payload = payload(areas, usage).ok_or(NoTarget::Bitmaps)?;
    let mut sb = *geometry.superblock;
    let metadata = metadata(areas, geometry);
    sb.block_count.set(blocks);
    sb.segment_count.set(metadata + areas.main);
    sb.section_count.set(areas.main / geometry.segments_per_section);
    sb.segment_count_sit.set(areas.sit);
    sb.segment_count_nat.set(areas.nat);
    sb.segment_count_ssa.set(areas.ssa);
    sb.segment_count_main.set(areas.main);
    sb.nat_blkaddr = (geometry.sit + (areas.sit << SEGMENT_BITS)).into();
    sb.ssa_blkaddr.set(sb.nat_blkaddr.get() + (areas.nat << SEGMENT_BITS));
    sb.main_blkaddr.set(sb.ssa_blkaddr.get() + (areas.ssa << SEGMENT_BITS));
    sb.cp_payload.set(payload);
    let target = Target {
        shift: geometry.segment_of(sb.main_blkaddr.into()).get(),
        superblock: sb,
        reserved: kept_back.reserved,
        overprovision: kept_back.overprovision,
    };
    // Linux wants fewer live blocks than that, at most.
    let fits = target.user_blocks() >= usage.valid_blocks.max(1) && target.end() < u64::from(u32::MAX);
    if fits { Ok(target) } else { Err(NoTarget::TooSmall) }
}

/// Blocks that the version bitmaps need behind the checkpoint block; `None` if they fit nowhere.
fn payload(areas: Areas, usage: &Usage) -> Option<u32> {
    let (sit, nat) = (areas.sit / 2 * BITMAP_BYTES_PER_PAIR, areas.nat / 2 * BITMAP_BYTES_PER_PAIR);
    let block = BLOCK_SIZE as u32;
    if usage.large_nat_bitmap {
        // Checksum, NAT bitmap and SIT bitmap follow one another, into the payload if need be.
        let end = BITMAP_OFFSET as u32 + 4 + nat + sit;
        let needed = end.div_ceil(block) - 1;
        return (nat <= block - BITMAP_OFFSET as u32 - 4).then_some(areas.payload.max(needed));
    }
    if areas.payload == 0 && sit + nat <= BITMAP_BYTES {
        return Some(0);
    }
    (nat <= BITMAP_BYTES).then_some(areas.payload.max(sit.div_ceil(block)))
}
