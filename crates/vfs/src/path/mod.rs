//! Files by path, with the names and the semantics of [`std::fs`].
//!
//! [`FileSystem`] speaks of inode numbers, as a kernel does. [`Files`] puts paths on top of any file system, for programs that
//! use a volume without a mount:
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use basalt_vfs::FileSystem;
//! use basalt_vfs::path::{Files, PathError};
//!
//! fn keep_greeting(fs: &dyn FileSystem) -> Result<(), Box<dyn std::error::Error>> {
//!     let files = Files::new(fs);
//!     files.create_dir_all("/var/lib")?;
//!     files.write("/var/lib/greeting", "hello")?;
//!     let mut file = files.create("/var/lib/durable")?;
//!     file.write_all(b"hello")?;
//!     file.sync_all()?; // fsync: from here on, power may fail
//!     for entry in files.read_dir("/var/lib")? {
//!         println!("{}", entry?.path().display());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! | file | what |
//! |---|---|
//! | `files` | [`Files`]: the operations of `std::fs` |
//! | `canonical` | the path of a file without links |
//! | `file` | [`File`]: an open file with `Read`, `Write` and `Seek` |
//! | `options` | [`FileOptions`]: how a file is opened |
//! | `directory` | [`ReadDir`] and [`DirEntry`]; making and removing whole trees |
//! | `copy` | copying a file, and [`data_range`], the data between its holes |
//! | `resolve` | [`resolve`] and [`resolve_parent`]: from a path to an inode |
//! | `entries` | [`Entries`]: the entries of a directory |
//! | `reference` | [`Reference`]: an inode in use, given back when dropped |
//! | `error` | [`PathError`]: an error with its path |
//!
//! **Paths** begin at the volume's root, with or without a leading slash: there is no current directory. Symbolic links are
//! resolved inside the volume, absolute ones from its root, at most 40 on one path. `..` of the root is the root.
//!
//! **What there is.** Of `std::fs` and `std::os::unix::fs`: `canonicalize`, `chown`, `copy`, `create_dir`, `create_dir_all`, `exists`,
//! `hard_link`, `lchown`, `metadata`, `read`, `read_dir`, `read_link`, `read_to_string`, `remove_dir`, `remove_dir_all`, `remove_file`,
//! `rename`, `set_permissions`, `symlink`, `symlink_metadata`, `write`; opening with all options but `custom_flags`; of `File` all but
//! `try_clone`, locks and file descriptors. What else a file system can do (device nodes, extended attributes, `fallocate`) is in
//! [`FileSystem`], by the inode number of [`Files::lookup`] and [`File::ino`].
//!
//! **Differences to `std::fs`.** Permissions are numbers (`0o644`), metadata is [`Attributes`](crate::Attributes), and an
//! [`io::Error`](std::io::Error) has a kind and a message, but no number (`raw_os_error` is `None`). Permissions are not checked: a program
//! that has the volume may do anything with it. Devices, FIFOs and sockets cannot be opened. [`Files::copy`] refuses to copy a file onto itself.

mod canonical;
mod copy;
mod directory;
mod entries;
mod error;
mod file;
mod files;
mod options;
mod reference;
mod resolve;

use std::ops::Deref;

pub use copy::data_range;
pub use directory::{DirEntry, ReadDir};
pub use entries::{Entries, Entry};
pub use error::{PathError, Result};
pub use file::File;
pub use files::Files;
pub use options::FileOptions;
pub use reference::Reference;
pub use resolve::{resolve, resolve_parent, split};

use crate::fs::FileSystem;

/// A pointer to a file system that handles can keep: `&dyn FileSystem`, `&F2fs`, `Arc<F2fs>`. With an `Arc`, an open [`File`] is
/// `'static` and can go to another thread.
pub trait SharedFs: Deref<Target: FileSystem> + Clone {}

impl<F: Deref<Target: FileSystem> + Clone> SharedFs for F {}
