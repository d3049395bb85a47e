//! How rescue searches.

/// How to search.
#[derive(Debug, Clone, Default)]
pub struct RescueOptions {
    /// Show deleted files too, below `lost+found/deleted`, as far as their nodes have not been written over.
    pub deleted: bool,
    /// Believe no superblock, checkpoint or table: take the newest version of every node.
    pub nodes_only: bool,
    /// First block of the main area, for a volume without superblock and checkpoint whose layout is known.
    pub main_block: Option<u32>,
}
