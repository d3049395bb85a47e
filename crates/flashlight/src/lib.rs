//! FlashLight: a file system for raw NAND flash (Kim, Shim, Park, Maeng, Kim, ACM TECS 11S(1), 2012), without the standard library and
//! without a heap.
//!
//! | module | what |
//! |---|---|
//! | `layout` | what the bytes of a volume mean |
//! | `volume`, `pages` | logs, and how pages come to the chip and back |
//! | `directories`, `files`, `places`, `table` | the index: entries by key, extents, where inodes are |
//! | `content`, `holes` | what files contain; where they have nothing |
//! | `checkpoint`, `roots`, `mount`, `recovery` | what outlasts a power cut |
//! | `cleaning`, `leveling` | blocks are emptied: for room, and where data lie that never change |
//! | `check` | everything is walked through |
//! | `mutant` | bugs planted on purpose, for tests only |
//! | `shape` | a volume in an image is told, and how the chip is cut into pages and blocks |
//! | `operations`, `names` | what a caller sees |
//! | [`inspect`] | what a page says of itself |
//!
//! A directory leads to a file's inode by its place on the chip, and to a directory's by its number (*hybrid indexing*, section 3.2 of the
//! paper). An inode fills a page, and what is left of it is a log of index entries (*intra-inode index logging*, 3.3).
//!
//! It is not finished: see the crate's README for what is missing.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

#[cfg(feature = "mutants")]
extern crate std;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod check;
mod checkpoint;
mod cleaning;
mod content;
mod directories;
mod error;
mod files;
mod holes;
pub mod inspect;
mod layout;
mod leveling;
mod memory;
mod mount;
#[doc(hidden)]
pub mod mutant;
mod names;
mod operations;
mod pages;
mod places;
mod recovery;
mod roots;
mod shape;
mod table;
mod volume;

pub use check::Checked;
pub use error::{Error, Result};
pub use layout::inode::Time;
pub use memory::{Bytes, memory_bytes};
pub use mount::FormatOptions;
pub use operations::{Attributes, Change, InodeNumber, Listed, NewInode, Usage};
pub use shape::{SHAPE_BYTES, find_shape};
pub use volume::{Counters, FlashLight, Identity};
