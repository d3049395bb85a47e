//! Nodes: where they are (NAT), those in memory (cache), the way from a file offset to a node (path), and from a block to its
//! node (owner).

pub mod cache;
pub mod inode;
pub mod nat;
pub(crate) mod owner;
pub mod path;
pub(crate) mod pointers;
pub(crate) mod seen;
