//! An open file.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::{PathError, Result};
use super::{FileOptions, Reference, SharedFs};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::types::{Attributes, InodeNumber, SetAttributes};

/// An open file, as [`std::fs::File`]. It keeps its inode: the content can be used also when its last name has gone, and its space is free
/// once the handle is dropped.
///
/// Writes may stay in memory until [`sync_all`](Self::sync_all), [`FileSystem::sync`] or the file system's own background work.
///
/// ```
/// use std::io::{Read, Seek, SeekFrom, Write};
///
/// use basalt_vfs::FileSystem;
/// use basalt_vfs::path::{FileOptions, Files};
///
/// fn bump(fs: &dyn FileSystem) -> std::io::Result<u64> {
///     let options = FileOptions::new().read(true).write(true).create(true);
///     let mut file = Files::new(fs).open_with("/counter", &options)?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     let count = text.trim().parse().unwrap_or(0) + 1;
///     file.seek(SeekFrom::Start(0))?;
///     writeln!(file, "{count}")?;
///     file.sync_all()?;
///     Ok(count)
/// }
/// ```
#[derive(Debug)]
pub struct File<F: SharedFs> {
    inode: Reference<F>,
    path: PathBuf,
    /// Where the next read or write begins, in bytes.
    position: u64,
    options: FileOptions,
    /// Whether writes clear set-uid and set-gid bits, as those of unprivileged users do.
    clear_suid_sgid: bool,
}

impl<F: SharedFs> File<F> {
    pub(super) fn new(
        inode: Reference<F>,
        path: &Path,
        options: FileOptions,
        clear_suid_sgid: bool,
    ) -> crate::Result<File<F>> {
        inode.fs().open(inode.ino(), options.flags())?;
        let file = File { inode, path: path.into(), position: 0, options, clear_suid_sgid };
        if options.truncate {
            file.resize(0)?;
        }
        Ok(file)
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its inode number.
    pub fn ino(&self) -> InodeNumber {
        self.inode.ino()
    }

    /// Its attributes now.
    ///
    /// # Errors
    /// Those of [`FileSystem::attributes`].
    pub fn metadata(&self) -> Result<Attributes> {
        self.fs().attributes(self.ino()).map_err(|reason| self.error(reason))
    }

    /// Makes content and attributes durable, as fsync(2).
    ///
    /// # Errors
    /// Those of [`FileSystem::sync_file`].
    pub fn sync_all(&self) -> Result<()> {
        self.fs().sync_file(self.ino(), false).map_err(|reason| self.error(reason))
    }

    /// Makes the content durable, as fdatasync(2).
    ///
    /// # Errors
    /// Those of [`FileSystem::sync_file`].
    pub fn sync_data(&self) -> Result<()> {
        self.fs().sync_file(self.ino(), true).map_err(|reason| self.error(reason))
    }

    /// Truncates or extends the file to `size` bytes; new bytes are a hole, and read as zeros.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not open to write, and those of [`FileSystem::set_attributes`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.options.writes() {
            return Err(self.error(Error::Invalid("the file is not open to write")));
        }
        self.resize(size).map_err(|reason| self.error(reason))
    }

    /// Reads from byte `offset`, wherever the position is; returns how many bytes, fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Error::NotOpen`] if it is not open to read, and those of [`FileSystem::read`].
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if !self.options.read {
            return Err(self.error(Error::NotOpen("read")));
        }
        self.fs().read(self.ino(), offset, buf).map_err(|reason| self.error(reason))
    }

    /// Writes at byte `offset`, wherever the position is, or at the end of a file that is open to append; returns how many bytes,
    /// fewer only where space ran out behind them.
    ///
    /// # Errors
    /// [`Error::NotOpen`] if it is not open to write, and those of [`FileSystem::write`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        let offset = if self.options.append { self.metadata()?.size } else { offset };
        self.write_from(data, offset)
    }

    /// Appends or writes at the position, and moves it.
    pub(super) fn write_some(&mut self, data: &[u8]) -> Result<usize> {
        let offset = if self.options.append { self.metadata()?.size } else { self.position };
        let written = self.write_from(data, offset)?;
        if written > 0 {
            self.position = offset + written as u64;
        }
        Ok(written)
    }

    fn write_from(&self, data: &[u8], offset: u64) -> Result<usize> {
        if !self.options.writes() {
            return Err(self.error(Error::NotOpen("write")));
        }
        if data.is_empty() {
            return Ok(0);
        }
        let written = self.fs().write(self.ino(), offset, data, self.clear_suid_sgid);
        written.map_err(|reason| self.error(reason))
    }

    fn resize(&self, size: u64) -> crate::Result<()> {
        let changes =
            SetAttributes { size: Some(size), clear_suid_sgid: self.clear_suid_sgid, ..SetAttributes::default() };
        self.fs().set_attributes(self.ino(), &changes).map(|_| ())
    }

    pub(super) fn fs(&self) -> &F {
        self.inode.fs()
    }

    pub(super) fn error(&self, reason: Error) -> PathError {
        PathError { path: self.path.clone(), reason }
    }
}

impl<F: SharedFs> Read for File<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let length = self.read_at(buf, self.position)?;
        self.position += length as u64;
        Ok(length)
    }
}

impl<F: SharedFs> Write for File<F> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.write_some(data)?)
    }

    /// Does nothing, as that of [`std::fs::File`]: a flush makes nothing durable, [`File::sync_all`] does.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: SharedFs> Seek for File<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.metadata()?.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        // As the kernel: a position is a positive `off_t`.
        let position = position.filter(|&position| i64::try_from(position).is_ok());
        self.position =
            position.ok_or_else(|| self.error(Error::Invalid("a position before the start or behind any file")))?;
        Ok(self.position)
    }
}
