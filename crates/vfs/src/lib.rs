//! The file-system interface that every Basalt engine serves, and that the mount, the command line and the tests drive.
//!
//! | module | what |
//! |---|---|
//! | [`fs`] | the [`FileSystem`] trait: one method an operation |
//! | [`engine`] | the [`Engine`] trait: what mounts, live counters and the lab ask for beside files |
//! | [`counters`] | [`Counters`]: what an engine did, in numbers that all have and in numbers by name |
//! | [`types`] | attributes, names, times, flags |
//! | [`error`] | [`Error`] and its kinds |
//! | [`path`] | files by path, with the names and the semantics of [`std::fs`] |
//! | [`acl`] | POSIX ACLs: parsing, inheritance, chmod |
//!
//! Sizes and offsets are in bytes, times in seconds and nanoseconds since the epoch. File names are bytes.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod acl;
pub mod counters;
pub mod engine;
pub mod error;
pub mod fs;
pub mod path;
pub mod types;

pub use bytes::Bytes;
pub use counters::{CleaningCause, CleaningStatistics, CleaningWork, Counters, Named, WrittenBlocks};
pub use engine::{Engine, Identity, Live, SegmentStates, Usage};
pub use error::{Error, ErrorKind, Result};
pub use fs::{Background, Defragmented, Emptied, Extents, FileSystem};
pub use types::{
    Attributes, Caller, DirectoryEntry, FallocateMode, FileKind, InodeFlags, InodeNumber, NewNode, OpenFlags,
    RenameFlags, Seek, SetAttributes, SetTime, StatFs, Time, XattrFlags,
};
