//! How sure it is that a node is the one in use, and how much of a table says so.

/// How sure it is that a node is in use, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Known not to be.
    Dead,
    /// Nothing is known.
    Unknown,
    /// Its block is live, but the NAT, which looks sound there, does not lead to it; or the checkpoint before had it there, and nothing
    /// newer was written.
    Disputed,
    /// It was written between the last two checkpoints, and nothing tells whether it was given up before the second.
    Written,
    /// Its block is live.
    Live,
    /// The NAT leads to it.
    Named,
    /// It was written by fsync after the checkpoint.
    Newer,
}

/// How much of a table could be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableState {
    /// All of it agrees with the checkpoint.
    Whole,
    /// Some blocks of it.
    Partial,
    /// Nothing.
    Gone,
}
