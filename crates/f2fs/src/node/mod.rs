//! Nodes: where they are (NAT), those in memory (cache, load), making and writing them (write), the way from a file offset to a node
//! (path, map), what of a node changed and is told by nothing (untold), what is below a node (level), from a block to its node (owner), and
//! what segments' summaries say of that in recovery (summaries).

pub mod cache;
pub mod inode;
pub(crate) mod level;
mod load;
mod map;
pub mod nat;
pub(crate) mod owner;
pub mod path;
pub(crate) mod pointers;
pub(crate) mod seen;
mod summaries;
mod untold;
pub(crate) mod write;
