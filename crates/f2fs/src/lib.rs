//! The F2FS engine: reads and writes real F2FS volumes.
//!
//! | module | what |
//! |---|---|
//! | [`layout`] | the bytes on disk |
//! | [`error`] | what can go wrong with a volume |
//! | [`geometry`] | a checked superblock: where everything is |

pub mod error;
pub mod geometry;
pub mod layout;

pub use error::{Error, Result};
pub use geometry::Geometry;
