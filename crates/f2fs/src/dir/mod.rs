//! Directories: name hashes, entries in blocks and inline, look-up and change.

pub mod hash;
