//! What an engine offers beside its files: what mounts, live counters and the lab ask it for.

use crate::counters::{Counters, Named};
use crate::fs::FileSystem;

/// An engine with a volume open. All methods may be called from several threads at once, and cost so little that they can be called at any
/// time. Background work is [`FileSystem::tick`].
pub trait Engine: FileSystem {
    /// How the volume is told from others.
    fn identity(&self) -> Identity;

    /// Whether the volume can be changed.
    fn is_writable(&self) -> bool;

    /// What was unusual when the volume was opened, one line each.
    fn warnings(&self) -> Vec<String>;

    /// What was written and cleaned since the volume was opened.
    fn counters(&self) -> Counters;

    /// What the volume did and holds, all of one moment.
    fn live(&self) -> Live;
}

/// How a volume is told from others. Empty where the format has no such thing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Label.
    pub label: String,
    /// UUID, as people write it.
    pub uuid: String,
}

/// What an open volume did, what it holds, and whether it can be changed, all of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Bytes of a block: the unit of everything here that counts blocks.
    pub block_size: u32,
    /// What was done since the volume was opened.
    pub counters: Counters,
    /// Blocks and inodes in use.
    pub usage: Usage,
    /// Segments by state.
    pub segments: SegmentStates,
    /// Blocks on the device that hold data of files and directories.
    pub live_data_blocks: u64,
    /// Blocks on the device that hold nodes.
    pub live_node_blocks: u64,
    /// Blocks of files and directories that wait in memory to be written.
    pub dirty_data_blocks: u64,
    /// Nodes that wait in memory to be written.
    pub dirty_node_blocks: u64,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Why not, where nobody asked for that: a feature that is not served, damage, a device that cannot be written.
    pub read_only_reason: Option<String>,
    /// The error after which the volume took no more changes: what counts is what was durable before.
    pub failed: Option<String>,
    /// Facts that only this engine has. They may fall as well as rise.
    pub named: Named,
}

impl Default for Live {
    /// Nothing, in blocks of 4096 bytes.
    fn default() -> Self {
        Live {
            block_size: 4096,
            counters: Counters::default(),
            usage: Usage::default(),
            segments: SegmentStates::default(),
            live_data_blocks: 0,
            live_node_blocks: 0,
            dirty_data_blocks: 0,
            dirty_node_blocks: 0,
            read_only: false,
            read_only_reason: None,
            failed: None,
            named: Named::default(),
        }
    }
}

/// What is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks that users may fill.
    pub user_blocks: u64,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Inodes in use.
    pub inodes: u64,
}

/// Segments by state; of raw flash, erase blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentStates {
    /// Nothing live; may be written.
    pub free: u64,
    /// Being written by a log.
    pub active: u64,
    /// Some blocks live.
    pub dirty: u64,
    /// All blocks live.
    pub full: u64,
}
