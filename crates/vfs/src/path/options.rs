//! How a file is opened.

use crate::error::{Error, Result};
use crate::types::OpenFlags;

/// How [`Files::open_with`](super::Files::open_with) opens a file: the switches of [`std::fs::OpenOptions`], all off at first.
///
/// ```
/// use basalt_vfs::path::FileOptions;
///
/// let log = FileOptions::new().append(true).create(true).mode(0o600);
/// # let _ = log;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOptions {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) append: bool,
    pub(super) truncate: bool,
    pub(super) create: bool,
    pub(super) create_new: bool,
    pub(super) mode: u32,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions::new()
    }
}

impl FileOptions {
    /// Nothing is asked for yet; the mode of new files is 0o666.
    pub const fn new() -> FileOptions {
        FileOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }

    /// The file can be read.
    #[must_use]
    pub const fn read(mut self, read: bool) -> FileOptions {
        self.read = read;
        self
    }

    /// The file can be written.
    #[must_use]
    pub const fn write(mut self, write: bool) -> FileOptions {
        self.write = write;
        self
    }

    /// Each write goes to the end of the file. Handles that append to one file at the same time can overwrite each other's bytes.
    #[must_use]
    pub const fn append(mut self, append: bool) -> FileOptions {
        self.append = append;
        self
    }

    /// The file is emptied when it is opened.
    #[must_use]
    pub const fn truncate(mut self, truncate: bool) -> FileOptions {
        self.truncate = truncate;
        self
    }

    /// The file is made if it does not exist, also where a symbolic link leads to nothing.
    #[must_use]
    pub const fn create(mut self, create: bool) -> FileOptions {
        self.create = create;
        self
    }

    /// The file is made, and must not exist; a symbolic link at the end of the path is not followed.
    #[must_use]
    pub const fn create_new(mut self, create_new: bool) -> FileOptions {
        self.create_new = create_new;
        self
    }

    /// Permission bits (`0o7777`) of a file that is made, before the umask.
    #[must_use]
    pub const fn mode(mut self, mode: u32) -> FileOptions {
        self.mode = mode;
        self
    }

    pub(super) const fn creates(&self) -> bool {
        self.create || self.create_new
    }

    pub(super) const fn writes(&self) -> bool {
        self.write || self.append
    }

    /// The combinations that `std` refuses.
    pub(super) const fn check(&self) -> Result<()> {
        if !self.read && !self.writes() {
            return Err(Error::Invalid("a file is opened to read, to write or to append"));
        }
        if !self.writes() && (self.truncate || self.creates()) {
            return Err(Error::Invalid("only a file that is opened to write can be made or emptied"));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(Error::Invalid("a file is emptied or appended to, not both"));
        }
        Ok(())
    }

    pub(super) fn flags(&self) -> OpenFlags {
        let mut flags = OpenFlags::empty();
        flags.set(OpenFlags::WRITE, self.writes());
        flags.set(OpenFlags::APPEND, self.append);
        flags.set(OpenFlags::TRUNCATE, self.truncate);
        flags
    }
}
