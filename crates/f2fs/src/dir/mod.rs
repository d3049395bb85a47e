//! Directories: name hashes, entries in blocks and inline, look-up and change.

pub(crate) mod change;
pub mod entries;
pub mod hash;
pub(crate) mod list;
pub(crate) mod lookup;
pub(crate) mod names;
