//! One file a command: its arguments, and what it does.

pub mod cat;
pub mod clean;
pub mod completions;
pub mod defrag;
mod entry;
pub mod fsck;
pub mod get;
pub mod info;
pub mod lab;
pub mod ls;
pub mod man;
pub mod mkfs;
pub mod mount;
pub mod put;
pub mod rescue;
pub mod resize;
pub mod stat;
pub mod stats;
pub mod sync;
mod transfer;
pub mod tune;
pub mod umount;
