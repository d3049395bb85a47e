//! What can go wrong.

/// Why a volume cannot be simulated, or a write cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// A block past the end.
    #[error("block {block} of a volume with {blocks} blocks")]
    Block {
        /// The block.
        block: u32,
        /// Blocks that may be written.
        blocks: u32,
    },
    /// No free segment is left, and cleaning gained none.
    #[error("no free segment is left after {writes} writes: lower the utilization, or keep more sections free")]
    Full {
        /// Writes before this one.
        writes: u64,
    },
}

/// Result of the simulator.
pub type Result<T> = std::result::Result<T, Error>;
