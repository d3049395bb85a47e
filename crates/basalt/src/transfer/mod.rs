//! Copying trees into a volume and out of it, with everything a file system keeps of a file.
//!
//! | file | what |
//! |---|---|
//! | `put` | from the host into a volume |
//! | `get` | from a volume to the host |
//! | `host` | the host's files, by directory descriptors |
//! | `make` | making files on the host, where nothing is in the way |
//! | `keep` | what copies on the host keep of owners, permissions, attributes and times |
//! | `replace` | temporary names for what replaces a file, on either side |
//! | `beneath` | opening names, safe from users who may change a directory |
//! | `sparse` | the data in a file of the host, holes left out |
//! | `xattrs` | extended attributes of the host's files |
//! | `report` | what was copied and what was left out; the observer of a copy |
//!
//! Both walk with one open directory a level, so that no path is too long and nobody can lead them astray with a symbolic link while
//! they work. What was made is changed through its descriptor only. Hard links stay links, holes stay holes, times keep their nanoseconds.

mod beneath;
mod get;
mod host;
mod keep;
mod make;
mod put;
mod replace;
mod report;
mod sparse;
mod trail;
mod xattrs;

pub use get::{Get, GetOptions, Salvage};
pub use put::{Put, PutOptions};
pub use report::{Error, Observer, Report, Silent};
pub(crate) use trail::Trail;

/// Directories nested deeper than this are refused: no path could name what is in them.
pub(crate) const MAX_DEPTH: usize = 2048;
