//! What mounts, live counters and the lab ask an engine for: facts that cost so little that they can be asked for at any time.

use basalt_vfs::{Engine, Identity, Live, Named, SegmentStates, Usage, WrittenBlocks};

use crate::info;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::lock::F2fs;
use crate::log::tallies::LogTally;
use crate::statistics::Statistics;
use crate::volume::Volume;

/// How the warning begins that says why a volume cannot be changed.
const READ_ONLY: &str = "mounted read-only: ";

impl Engine for F2fs {
    fn identity(&self) -> Identity {
        self.with_volume(|volume| Identity {
            label: volume.geometry.superblock.label(),
            uuid: uuid::Uuid::from_bytes(volume.geometry.uuid).to_string(),
        })
    }

    fn is_writable(&self) -> bool {
        F2fs::is_writable(self)
    }

    fn warnings(&self) -> Vec<String> {
        F2fs::warnings(self)
    }

    /// Without those of each log, which only [`live`](Engine::live) tells: this is asked behind each operation of a simulation.
    fn counters(&self) -> basalt_vfs::Counters {
        counters(&self.statistics())
    }

    /// Takes constant time, whatever the volume's size.
    fn live(&self) -> Live {
        self.with_volume(describe)
    }
}

/// What every engine counts, and by name what only F2FS does.
fn counters(statistics: &Statistics) -> basalt_vfs::Counters {
    let Statistics { written, cleaning, checkpoints, hotness } = statistics;
    basalt_vfs::Counters {
        written: WrittenBlocks {
            data_blocks: written.data_blocks,
            node_blocks: written.node_blocks,
            metadata_blocks: written.metadata_blocks,
            journal_blocks: written.journal_blocks,
        },
        cleaning: *cleaning,
        named: [
            ("written/checkpoints", written.checkpoints),
            ("written/sections_cleaned", written.sections_cleaned),
            ("written/blocks_moved", written.blocks_moved),
            ("checkpoints/open", checkpoints.open),
            ("checkpoints/fsync", checkpoints.fsync),
            ("checkpoints/sync", checkpoints.sync),
            ("checkpoints/interval", checkpoints.interval),
            ("checkpoints/memory", checkpoints.memory),
            ("checkpoints/cleaning", checkpoints.cleaning),
            ("checkpoints/trim", checkpoints.trim),
            ("checkpoints/resize", checkpoints.resize),
            ("checkpoints/close", checkpoints.close),
            ("hotness/segments_recalled", hotness.segments_recalled),
            ("hotness/blocks", hotness.blocks),
            ("slack/blocks", written.slack_blocks),
            ("slack/islands_copied", written.islands_copied),
        ]
        .into(),
    }
}

/// As [`counters`], with those of each log of data.
fn counters_of_logs(volume: &Volume) -> basalt_vfs::Counters {
    let mut counters = counters(&volume.record.statistics());
    for tally in volume.tallies.of_data(volume.table.live_data_blocks()) {
        let LogTally { log, written_blocks, copied_blocks, dead_blocks, moved_blocks, .. } = tally;
        counters.named.set(format!("logs/{log}/written_blocks"), written_blocks);
        counters.named.set(format!("logs/{log}/copied_blocks"), copied_blocks);
        counters.named.set(format!("logs/{log}/dead_blocks"), dead_blocks);
        counters.named.set(format!("logs/{log}/moved_blocks"), moved_blocks);
    }
    counters
}

fn describe(volume: &Volume) -> Live {
    let (usage, states) = (info::usage(volume), info::states(volume));
    Live {
        block_size: BLOCK_SIZE as u32,
        counters: counters_of_logs(volume),
        usage: Usage { user_blocks: usage.user_blocks, used_blocks: usage.used_blocks, inodes: usage.inodes.into() },
        segments: SegmentStates {
            free: states.free.into(),
            active: states.active.into(),
            dirty: states.dirty.into(),
            full: states.full.into(),
        },
        live_data_blocks: volume.table.live_data_blocks(),
        live_node_blocks: volume.table.live_node_blocks(),
        dirty_data_blocks: volume.pages.dirty_pages() as u64,
        dirty_node_blocks: volume.nodes.dirty_count() as u64,
        read_only: !volume.is_writable(),
        read_only_reason: volume.warnings.iter().find_map(|warning| warning.strip_prefix(READ_ONLY)).map(str::to_owned),
        failed: volume.failed.clone(),
        named: named(volume, usage, states),
    }
}

/// Facts that only F2FS has.
fn named(volume: &Volume, usage: info::Usage, states: info::States) -> Named {
    let mut named = Named::from([
        ("usage/nodes", usage.nodes.into()),
        ("usage/reserved_segments", usage.reserved_segments.into()),
        ("usage/overprovision_segments", usage.overprovision_segments.into()),
        ("segments/prefree", states.prefree.into()),
        ("segments_per_section", volume.geometry.segments_per_section.into()),
        ("pre_invalid_blocks", volume.table.pre_invalid_blocks()),
    ]);
    for LogTally { log, live_blocks, segments, .. } in volume.tallies.of_data(volume.table.live_data_blocks()) {
        named.set(format!("logs/{log}/live_blocks"), live_blocks);
        named.set(format!("logs/{log}/blocks"), segments * u64::from(BLOCKS_PER_SEGMENT));
    }
    named
}
