//! An open file.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::{PathError, Result};
use super::{FileOptions, Reference, SharedFs};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::types::{Attributes, InodeNumber, SetAttributes, SetTime, Time};

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
    /// Where the next read or write begins, in bytes. Held while one runs: several threads may share the handle.
    position: Mutex<u64>,
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
        let file = File { inode, path: path.into(), position: Mutex::new(0), options, clear_suid_sgid };
        if options.truncate {
            file.resize(0)?;
        }
        Ok(file)
    }

    fn position(&self) -> MutexGuard<'_, u64> {
        // A number is as it was, also behind a panic.
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// [`Error::Invalid`] if it is not open to write, or `size` is over 2^63 - 1, [`Error::FileTooLarge`] for a size below that which
    /// no file can have, and those of [`FileSystem::set_attributes`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        if i64::try_from(size).is_err() {
            return Err(self.error(Error::Invalid("a size over 2^63 - 1 bytes")));
        }
        if !self.options.writes() {
            return Err(self.error(Error::Invalid("the file is not open to write")));
        }
        self.resize(size).map_err(|reason| self.error(reason))
    }

    /// Sets the permission bits (`0o7777`).
    ///
    /// # Errors
    /// Those of [`FileSystem::set_attributes`].
    pub fn set_permissions(&self, permissions: u32) -> Result<()> {
        self.change(&SetAttributes { permissions: Some(permissions & 0o7777), ..SetAttributes::default() })
    }

    /// Sets the times of the last read and the last change of the content; `None` leaves one alone. Takes a [`Time`], and a
    /// [`SystemTime`](std::time::SystemTime) by [`Into`].
    ///
    /// # Errors
    /// Those of [`FileSystem::set_attributes`].
    pub fn set_times(&self, accessed: Option<Time>, modified: Option<Time>) -> Result<()> {
        let (atime, mtime) = (accessed.map(SetTime::To), modified.map(SetTime::To));
        self.change(&SetAttributes { atime, mtime, ..SetAttributes::default() })
    }

    /// Sets the time of the last change of the content.
    ///
    /// # Errors
    /// Those of [`FileSystem::set_attributes`].
    pub fn set_modified(&self, time: impl Into<Time>) -> Result<()> {
        self.set_times(None, Some(time.into()))
    }

    fn change(&self, changes: &SetAttributes) -> Result<()> {
        self.fs().set_attributes(self.ino(), changes).map(|_| ()).map_err(|reason| self.error(reason))
    }

    /// Fills `buf` from byte `offset`, wherever the position is.
    ///
    /// # Errors
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the file ends before, and those of [`read_at`](Self::read_at).
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if !buf.is_empty() && self.read_at(buf, offset)? < buf.len() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file ends before the bytes that are asked for",
            ));
        }
        Ok(())
    }

    /// Writes all of `data` at byte `offset`, wherever the position is, or at the end of a file that is open to append.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at); a beginning may have been written then.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(&data[done..], offset + done as u64)?;
        }
        Ok(())
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
    pub(super) fn write_some(&self, data: &[u8]) -> Result<usize> {
        let mut position = self.position();
        let offset = if self.options.append { self.metadata()?.size } else { *position };
        let written = self.write_from(data, offset)?;
        if written > 0 {
            *position = offset + written as u64;
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

/// Threads that share a handle share its position, too.
impl<F: SharedFs> Read for &File<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position();
        let length = self.read_at(buf, *position)?;
        *position += length as u64;
        Ok(length)
    }
}

impl<F: SharedFs> Write for &File<F> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.write_some(data)?)
    }

    /// Does nothing, as that of [`std::fs::File`]: a flush makes nothing durable, [`File::sync_all`] does.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: SharedFs> Seek for &File<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position();
        let wanted = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.metadata()?.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => position.checked_add_signed(offset),
        };
        // As the kernel: a position is a positive `off_t`.
        let wanted = wanted.filter(|&wanted| i64::try_from(wanted).is_ok());
        *position =
            wanted.ok_or_else(|| self.error(Error::Invalid("a position before the start or behind any file")))?;
        Ok(*position)
    }
}

impl<F: SharedFs> Read for File<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl<F: SharedFs> Write for File<F> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    /// Does nothing, as that of [`std::fs::File`]: a flush makes nothing durable, [`File::sync_all`] does.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: SharedFs> Seek for File<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
