//! Opens a volume that is not mounted. Paths in it are those of [`basalt_vfs::path`].

pub mod flashlight;
pub mod open;

use basalt_vfs::FileSystem;

pub use open::{OpenVolume, open_to_read, open_to_write};

/// An inode of a volume in use.
pub type Reference<'a> = basalt_vfs::path::Reference<&'a dyn FileSystem>;
