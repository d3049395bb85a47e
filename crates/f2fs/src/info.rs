//! What a volume is and how full: the facts behind `basalt info`.

use basalt_segments::{SegmentKind, SegmentState};

use crate::features;
use crate::journal::area::Area;
use crate::layout::{BLOCK_BITS, BLOCKS_PER_SEGMENT};
use crate::lock::F2fs;
use crate::statistics::Counters;
use crate::volume::Volume;

/// Bins of the utilization histogram.
pub const UTILIZATION_BINS: usize = 10;

/// A volume's facts. Sizes in the units that each name says.
#[derive(Debug, Clone, serde::Serialize)]
pub struct VolumeInfo {
    /// The device, as the user named it.
    pub device: String,
    /// Label.
    pub label: String,
    /// UUID.
    pub uuid: String,
    /// Features in use, as `mkfs.f2fs` spells them, separated by commas.
    pub features: String,
    /// What wrote the superblock.
    pub version: String,
    /// Size of the volume in blocks of 4096 bytes.
    pub blocks: u64,
    /// Segments of 512 blocks of the volume.
    pub segments: u32,
    /// Segments of the main area.
    pub main_segments: u32,
    /// Segments in a section.
    pub segments_per_section: u32,
    /// First block of each area: checkpoint, SIT, NAT, SSA, main.
    pub areas: Areas,
    /// The checkpoint in use.
    pub checkpoint: CheckpointInfo,
    /// Blocks, nodes and inodes in use.
    pub usage: Usage,
    /// Segments by state.
    pub states: States,
    /// Segments in use by kind.
    pub kinds: Vec<KindInfo>,
    /// Where each log writes next, in the order of `kinds`.
    pub logs: Vec<LogInfo>,
    /// Bytes of the cleaning journal; 0 if there is none.
    pub journal_bytes: u64,
    /// Whether the journal is live: it holds moves that the last checkpoint does not know.
    pub journal_live: bool,
    /// Written since the volume was opened.
    pub counters: Counters,
    /// Whether changes are possible, and if not, why.
    pub read_only: bool,
    /// What was unusual when the volume was opened.
    pub warnings: Vec<String>,
}

/// First block of each area.
#[derive(Debug, Clone, serde::Serialize)]
#[allow(missing_docs)]
pub struct Areas {
    pub checkpoint: u32,
    pub sit: u32,
    pub nat: u32,
    pub ssa: u32,
    pub main: u32,
}

/// The checkpoint in use.
#[derive(Debug, Clone, serde::Serialize)]
pub struct CheckpointInfo {
    /// Version.
    pub version: u64,
    /// Pack, 1 or 2.
    pub pack: u32,
    /// Flags, as bits.
    pub flags: u32,
    /// Whether the volume was unmounted cleanly.
    pub clean: bool,
    /// Unlinked inodes that were open.
    pub orphans: usize,
    /// Seconds the volume has been mounted in all.
    pub mounted_seconds: u64,
}

/// What is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Blocks that users may fill.
    pub user_blocks: u64,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Nodes in use.
    pub nodes: u32,
    /// Inodes in use.
    pub inodes: u32,
    /// Segments kept for cleaning.
    pub reserved_segments: u32,
    /// Over-provisioned segments, reserved ones included.
    pub overprovision_segments: u32,
}

/// Segments of the main area by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct States {
    /// Nothing live; may be written.
    pub free: u32,
    /// Being written by a log.
    pub active: u32,
    /// Some blocks live.
    pub dirty: u32,
    /// All blocks live.
    pub full: u32,
    /// Nothing live; free after the next checkpoint.
    pub prefree: u32,
}

/// Segments of one kind.
#[derive(Debug, Clone, serde::Serialize)]
pub struct KindInfo {
    /// Name of the kind.
    pub kind: String,
    /// Segments in use.
    pub segments: u32,
    /// Live blocks in them.
    pub live_blocks: u64,
    /// How many of them are up to 10 %, 20 % … 100 % live.
    pub utilization: [u32; UTILIZATION_BINS],
}

/// Where a log writes next.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct LogInfo {
    /// Segment of the main area.
    pub segment: u32,
    /// Block in the segment; 512 where it is full and no other was free.
    pub offset: u32,
}

impl F2fs {
    /// The volume's facts as of now.
    pub fn info(&self) -> VolumeInfo {
        self.with_volume(describe)
    }
}

fn describe(volume: &Volume) -> VolumeInfo {
    let geometry = &volume.geometry;
    let superblock = &geometry.superblock;
    let raw = volume.checkpoint.raw();
    let version: Vec<u8> = superblock.version.iter().copied().take_while(|&byte| byte != 0 && byte != b'\n').collect();
    VolumeInfo {
        device: volume.device.name().to_owned(),
        label: superblock.label(),
        uuid: uuid::Uuid::from_bytes(geometry.uuid).to_string(),
        features: features::names(geometry.features),
        version: String::from_utf8_lossy(&version).into_owned(),
        blocks: geometry.block_count,
        segments: geometry.segment_count,
        main_segments: geometry.main_segments,
        segments_per_section: geometry.segments_per_section,
        areas: Areas {
            checkpoint: geometry.checkpoint.get(),
            sit: geometry.sit.get(),
            nat: geometry.nat.get(),
            ssa: geometry.ssa.get(),
            main: geometry.main.get(),
        },
        checkpoint: CheckpointInfo {
            version: raw.checkpoint_ver.get(),
            pack: volume.checkpoint.pack() + 1,
            flags: raw.ckpt_flags.get(),
            clean: !volume.was_unclean(),
            orphans: volume.orphans.len(),
            mounted_seconds: volume.mounted_seconds(),
        },
        usage: usage(volume),
        states: states(volume),
        kinds: SegmentKind::ALL.iter().map(|kind| kind_info(volume, *kind)).collect(),
        logs: volume
            .logs
            .recorded()
            .iter()
            .map(|log| LogInfo { segment: log.segment.get(), offset: log.offset })
            .collect(),
        journal_bytes: journal_bytes(volume),
        journal_live: volume.journal.is_guarded(),
        counters: *volume.record.written(),
        read_only: !volume.is_writable(),
        warnings: volume.warnings.clone(),
    }
}

/// The journal's size. One that is not used, as on a volume that is only read, is looked up on the device.
fn journal_bytes(volume: &Volume) -> u64 {
    let look_up = || Area::find(&*volume.device, &volume.geometry).unwrap_or_default();
    volume.journal.area().or_else(look_up).map_or(0, |area| u64::from(area.blocks) << BLOCK_BITS)
}

/// In constant time.
pub(crate) fn usage(volume: &Volume) -> Usage {
    let raw = volume.checkpoint.raw();
    Usage {
        user_blocks: volume.counts.user_blocks(),
        used_blocks: volume.counts.blocks(),
        nodes: volume.counts.nodes(),
        inodes: volume.counts.inodes(),
        reserved_segments: raw.rsvd_segment_count.get(),
        overprovision_segments: raw.overprov_segment_count.get(),
    }
}

/// In constant time.
pub(crate) fn states(volume: &Volume) -> States {
    let count = |state| volume.table.segments_in(state);
    States {
        free: count(SegmentState::Free),
        active: count(SegmentState::Active),
        dirty: count(SegmentState::Dirty) + count(SegmentState::Reserved),
        full: count(SegmentState::Full),
        prefree: count(SegmentState::Prefree),
    }
}

fn kind_info(volume: &Volume, kind: SegmentKind) -> KindInfo {
    let mut info =
        KindInfo { kind: format!("{kind:?}"), segments: 0, live_blocks: 0, utilization: [0; UTILIZATION_BINS] };
    for segment in volume.geometry.segments() {
        let live = u32::from(volume.table.live(segment));
        if live == 0 || volume.table.kind(segment) != kind {
            continue;
        }
        info.segments += 1;
        info.live_blocks += u64::from(live);
        let bin = (live * UTILIZATION_BINS as u32).div_ceil(BLOCKS_PER_SEGMENT) as usize - 1;
        info.utilization[bin.min(UTILIZATION_BINS - 1)] += 1;
    }
    info
}
