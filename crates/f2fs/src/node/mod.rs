//! Nodes: where they are (NAT), those in memory (cache), and the way from a file offset to a node (path).

pub mod cache;
pub mod nat;
pub mod path;
