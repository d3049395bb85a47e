//! How far a search has come.

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RescueStage {
    /// Looking for nodes; counts segments.
    Nodes,
    /// Reading inodes and directories; counts inodes.
    Names,
}

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RescueProgress {
    /// What is being done.
    pub stage: RescueStage,
    /// Items done of it.
    pub done: u64,
    /// Items there are.
    pub total: u64,
}
