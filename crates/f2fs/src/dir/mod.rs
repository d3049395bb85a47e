//! Directories: name hashes, entries in blocks and inline, look-up and change.

pub mod change;
pub mod entries;
pub mod hash;
pub mod list;
pub mod lookup;
pub mod names;
