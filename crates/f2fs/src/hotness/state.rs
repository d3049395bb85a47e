//! What an open volume knows of its hotness records.

use super::area::Room;

/// Where they are, and what was written last.
#[derive(Debug, Default)]
pub(crate) struct HotnessRecords {
    /// `None` where they are not kept.
    pub room: Option<Room>,
    /// Of the last ones.
    pub sequence: u64,
    /// Blocks that the last ones took.
    pub blocks: u64,
    /// What users had written by then, in blocks.
    pub written: u64,
    /// Nothing was found in front of segment 0 that is not Basalt's.
    pub is_free: bool,
    /// Somebody writes new ones.
    pub is_busy: bool,
}
