//! Files of a directory of a mounted file system.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Entry, Files, Handle, Open, Space};
use crate::error::{Error, Result};

/// An open file.
#[derive(Debug)]
struct File {
    descriptor: OwnedFd,
    path: Box<str>,
}

/// Files below a directory, by system calls. Whatever file system it lies on is the target.
#[derive(Debug)]
pub struct DirectoryFiles {
    root: OwnedFd,
    name: PathBuf,
    open: Open<File>,
}

impl DirectoryFiles {
    /// The files below an existing directory.
    ///
    /// # Errors
    /// When it cannot be opened, or is no directory.
    pub fn new(directory: &Path) -> Result<DirectoryFiles> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, flags, Mode::empty())
            .map_err(|errno| failed("open", &directory.display().to_string(), errno))?;
        Ok(DirectoryFiles { root, name: directory.to_owned(), open: Open::new() })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.name
    }

    fn file(&self, operation: &'static str, file: Handle) -> Result<&File> {
        self.open.get(file).ok_or_else(|| failed(operation, "a closed file", Errno::BADF))
    }

    fn open_with(&mut self, operation: &'static str, path: &str, flags: OFlags) -> Result<Handle> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = rustix::fs::openat(&self.root, path, flags, Mode::from_raw_mode(0o644))
            .map_err(|errno| failed(operation, path, errno))?;
        Ok(self.open.insert(File { descriptor, path: path.into() }))
    }
}

impl Files for DirectoryFiles {
    fn make_directory(&mut self, path: &str) -> Result<()> {
        rustix::fs::mkdirat(&self.root, path, Mode::from_raw_mode(0o755)).map_err(|errno| failed("mkdir", path, errno))
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.root, path, AtFlags::REMOVEDIR).map_err(|errno| failed("rmdir", path, errno))
    }

    fn create(&mut self, path: &str) -> Result<Handle> {
        self.open_with("create", path, OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&mut self, path: &str) -> Result<Handle> {
        self.open_with("open", path, OFlags::empty())
    }

    fn close(&mut self, file: Handle) {
        // Closing reports nothing that a later fsync would not; workloads that care call fsync.
        self.open.remove(file);
    }

    fn read(&mut self, file: Handle, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.file("read", file)?;
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&file.descriptor, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("read", &file.path, errno)),
            }
        }
        Ok(done)
    }

    fn write(&mut self, file: Handle, offset: u64, data: &[u8]) -> Result<()> {
        let file = self.file("write", file)?;
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(&file.descriptor, &data[done..], offset + done as u64) {
                Ok(0) => return Err(failed("write", &file.path, Errno::IO)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("write", &file.path, errno)),
            }
        }
        Ok(())
    }

    fn truncate(&mut self, file: Handle, size: u64) -> Result<()> {
        let file = self.file("truncate", file)?;
        rustix::fs::ftruncate(&file.descriptor, size).map_err(|errno| failed("truncate", &file.path, errno))
    }

    fn sync(&mut self, file: Handle, data_only: bool) -> Result<()> {
        if data_only {
            let file = self.file("fdatasync", file)?;
            rustix::fs::fdatasync(&file.descriptor).map_err(|errno| failed("fdatasync", &file.path, errno))
        } else {
            let file = self.file("fsync", file)?;
            rustix::fs::fsync(&file.descriptor).map_err(|errno| failed("fsync", &file.path, errno))
        }
    }

    fn size(&mut self, file: Handle) -> Result<u64> {
        let file = self.file("stat", file)?;
        let stat = rustix::fs::fstat(&file.descriptor).map_err(|errno| failed("stat", &file.path, errno))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn stat(&mut self, path: &str) -> Result<u64> {
        let stat = rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| failed("stat", path, errno))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn unlink(&mut self, path: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.root, path, AtFlags::empty()).map_err(|errno| failed("unlink", path, errno))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.root, from, &self.root, to).map_err(|errno| failed("rename", from, errno))
    }

    fn list(&mut self, path: &str) -> Result<Vec<Entry>> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let place = if path.is_empty() { "." } else { path };
        let directory = rustix::fs::openat(&self.root, place, flags, Mode::empty())
            .map_err(|errno| failed("list", place, errno))?;
        let mut entries = Vec::new();
        for entry in Dir::new(directory).map_err(|errno| failed("list", place, errno))? {
            let entry = entry.map_err(|errno| failed("list", place, errno))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                entries.push(Entry { name, directory: entry.file_type() == FileType::Directory });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn sync_all(&mut self) -> Result<()> {
        rustix::fs::syncfs(&self.root).map_err(|errno| failed("sync", "the file system", errno))
    }

    fn space(&mut self) -> Result<Space> {
        let stat = rustix::fs::fstatvfs(&self.root).map_err(|errno| failed("statfs", "the file system", errno))?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        let total = (used + stat.f_bavail).saturating_mul(stat.f_frsize);
        Ok(Space { total, free: stat.f_bavail.saturating_mul(stat.f_frsize) })
    }
}

fn failed(operation: &'static str, path: &str, errno: Errno) -> Error {
    let is_full = errno == Errno::NOSPC || errno == Errno::DQUOT;
    let reason = std::io::Error::from(errno).to_string();
    Error::Target { operation, path: path.to_owned(), is_full, reason }
}
