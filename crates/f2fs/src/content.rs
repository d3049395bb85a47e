//! What a device holds that is no F2FS volume, in words.

use std::fmt;

/// What a device holds that has no usable F2FS superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing: all of it is zeros.
    Empty,
    /// Zeros wherever it was looked, which is not everywhere.
    Zeros,
    /// Something else, and perhaps what is left of an F2FS volume as well.
    Other {
        /// Its name, as [`probe`](crate::probe::probe) has it.
        name: &'static str,
        /// Whether parts of an F2FS volume were found, too.
        was_f2fs: bool,
    },
    /// An F2FS volume without its superblocks.
    Headless,
    /// Part of an F2FS volume that begins before this device: one of several devices, or a piece of an image.
    Part {
        /// Blocks of the volume in front of it.
        blocks_before: u32,
    },
    /// An F2FS volume that does not begin where the device begins.
    Shifted {
        /// Bytes in front of the volume.
        offset: u64,
    },
    /// Too short for a volume.
    Short {
        /// Its length in bytes.
        bytes: u64,
    },
    /// Something, but nothing that is known.
    Unknown,
    /// It cannot be read.
    Unreadable,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Content::Empty => f.write_str("it holds only zeros"),
            Content::Zeros => f.write_str("it holds zeros wherever it was looked"),
            Content::Other { name, was_f2fs: false } => write!(f, "it holds {name}"),
            Content::Other { name, was_f2fs: true } => {
                write!(f, "it holds {name}, and what is left of an F2FS volume that was there before")
            }
            Content::Headless => f.write_str("both superblocks are gone, but the rest of an F2FS volume is there"),
            Content::Part { blocks_before } => write!(
                f,
                "it holds part of an F2FS volume whose first {blocks_before} blocks are not there: one of several devices, or of an image"
            ),
            Content::Shifted { offset } => write!(f, "an F2FS volume seems to begin at byte {offset} of it"),
            Content::Short { bytes } => write!(f, "it is only {bytes} bytes long"),
            Content::Unknown => f.write_str("it holds nothing that is known"),
            Content::Unreadable => f.write_str("it cannot be read"),
        }
    }
}
