//! What an open volume is doing: facts that cost so little that they can be asked for at any time.

use crate::info::{self, States, Usage};
use crate::lock::F2fs;
use crate::statistics::Statistics;
use crate::volume::Volume;

/// How the warning begins that says why a volume cannot be changed.
const READ_ONLY: &str = "mounted read-only: ";

/// What an open volume did, what it holds, and whether it can be changed, all of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct LiveInfo {
    /// What was written, cleaned and committed since the volume was opened.
    pub statistics: Statistics,
    /// Blocks, nodes and inodes in use.
    pub usage: Usage,
    /// Segments of the main area by state.
    pub segments: States,
    /// Segments in a section, the unit of cleaning.
    pub segments_per_section: u32,
    /// Blocks on the device that hold data of files and directories.
    pub live_data_blocks: u64,
    /// Blocks on the device that hold nodes.
    pub live_node_blocks: u64,
    /// Pages of files and directories that wait in memory to be written.
    pub dirty_pages: u64,
    /// Nodes that wait in memory to be written.
    pub dirty_nodes: u64,
    /// Dead blocks that may not be written over, because the last checkpoint or an fsync needs them: counted where cleaning is
    /// committed by the journal.
    pub pre_invalid_blocks: u64,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Why not, where nobody asked for that: a feature that is not served, damage, a device that cannot be written.
    pub read_only_reason: Option<String>,
    /// The error after which the volume took no more changes: what counts is its last checkpoint.
    pub failed: Option<String>,
}

impl F2fs {
    /// What the volume did and holds as of now. Takes constant time, whatever the volume's size.
    #[must_use]
    pub fn live(&self) -> LiveInfo {
        self.with_volume(describe)
    }
}

fn describe(volume: &Volume) -> LiveInfo {
    LiveInfo {
        statistics: volume.statistics(),
        usage: info::usage(volume),
        segments: info::states(volume),
        segments_per_section: volume.geometry.segments_per_section,
        live_data_blocks: volume.table.live_data_blocks(),
        live_node_blocks: volume.table.live_node_blocks(),
        dirty_pages: (volume.dirty_file_pages + volume.dirty_directory_pages) as u64,
        dirty_nodes: volume.nodes.dirty_count() as u64,
        pre_invalid_blocks: volume.table.pre_invalid_blocks(),
        read_only: !volume.is_writable(),
        read_only_reason: volume.warnings.iter().find_map(|warning| warning.strip_prefix(READ_ONLY)).map(str::to_owned),
        failed: volume.failed.clone(),
    }
}
