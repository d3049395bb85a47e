//! The F2FS engine: reads and writes real F2FS volumes.
//!
//! | module | what |
//! |---|---|
//! | [`layout`] | the bytes on disk |
//! | [`error`] | what can go wrong with a volume |
//! | [`format`](mod@format) | mkfs: makes an empty volume; probes what a device holds |
//! | [`geometry`] | a checked superblock: where everything is |

pub mod dir;
pub mod error;
pub mod format;
pub mod geometry;
pub mod layout;

pub use error::{Error, Result};
pub use geometry::Geometry;
