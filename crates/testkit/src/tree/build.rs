//! Building a random tree.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, fallocate, linkat, makedev, mknodat};

use super::attributes::{self, Target};
use super::{TreeOptions, random};
use crate::error::{Context, Error, Result};
use crate::rng::Rng;
use crate::skip::is_root;

/// How much is written at a time.
const WRITE_SIZE: usize = 128 * 1024;
/// How long a path inside the tree may become: the kernel's limit is 4,096, and the tree's own place needs room.
const MAX_PATH: usize = 3_000;

/// Builds a random tree in an existing directory, which should be empty.
///
/// # Errors
/// When the file system refuses something: the message says what.
pub fn build_random_tree(directory: &Path, seed: u64, options: &TreeOptions) -> Result<()> {
    if !directory.is_dir() {
        return Err(Error::Invalid(format!("{} is not a directory", directory.display())));
    }
    let mut builder = Builder {
        options,
        top: directory,
        rng: Rng::new(seed),
        directories: vec![directory.to_owned()],
        files: Vec::new(),
    };
    for _ in 0..options.directories {
        builder.add_directory()?;
    }
    for _ in 0..options.files {
        let parent = builder.any_directory();
        builder.add_name(&parent)?;
    }
    builder.crowd()?;
    builder.finish_directories()
}

struct Builder<'a> {
    options: &'a TreeOptions,
    top: &'a Path,
    rng: Rng,
    directories: Vec<PathBuf>,
    /// Regular files, for hard links.
    files: Vec<PathBuf>,
}

impl Builder<'_> {
    fn any_directory(&mut self) -> PathBuf {
        // The top is always there.
        self.directories[self.rng.index(self.directories.len())].clone()
    }

    /// A path that does not exist yet.
    fn fresh(&mut self, parent: &Path) -> PathBuf {
        let room = MAX_PATH.saturating_sub(parent.as_os_str().len() - self.top.as_os_str().len());
        loop {
            let path = parent.join(random::name(&mut self.rng, self.options.long_names, room));
            if path.symlink_metadata().is_err() {
                return path;
            }
        }
    }

    fn add_directory(&mut self) -> Result<()> {
        let parent = self.any_directory();
        if parent.as_os_str().len() - self.top.as_os_str().len() > MAX_PATH - 300 {
            return Ok(());
        }
        let path = self.fresh(&parent);
        std::fs::create_dir(&path).doing("create the directory", &path)?;
        // Before there is anything inside, so that it is inherited.
        if self.options.acls && self.rng.chance(20) {
            attributes::set_acl(&path, Target::Directory, &mut self.rng)?;
        }
        self.directories.push(path);
        Ok(())
    }

    fn add_name(&mut self, parent: &Path) -> Result<()> {
        let path = self.fresh(parent);
        match self.rng.below(100) {
            0..8 if self.options.hard_links => self.add_hard_link(&path),
            8..18 if self.options.symlinks => self.add_symlink(&path),
            18..24 if self.options.devices => self.add_special(&path),
            24..34 if self.options.sparse => self.add_sparse(&path),
            _ => self.add_file(&path),
        }
    }

    fn add_hard_link(&mut self, path: &Path) -> Result<()> {
        let Some(existing) = self.rng.pick(&self.files).cloned() else {
            return self.add_file(path);
        };
        linkat(CWD, &existing, CWD, path, rustix::fs::AtFlags::empty()).doing("create the hard link", path)
    }

    fn add_symlink(&mut self, path: &Path) -> Result<()> {
        let length = if self.rng.chance(10) { self.rng.between(3_000, 4_000) } else { self.rng.between(1, 200) };
        let target: String = (0..length).map(|_| char::from(b'a' + self.rng.below(26) as u8)).collect();
        symlink(target, path).doing("create the symbolic link", path)?;
        self.finish(path, Target::Other, false)
    }

    fn add_special(&mut self, path: &Path) -> Result<()> {
        let kinds = if is_root() { 4 } else { 2 };
        let mode = Mode::from_raw_mode(0o644);
        let device = makedev(self.rng.between(1, 4_000) as u32, self.rng.below(1 << 18) as u32);
        let made = match self.rng.below(kinds) {
            0 => mknodat(CWD, path, FileType::Fifo, mode, 0),
            1 => mknodat(CWD, path, FileType::Socket, mode, 0),
            2 => mknodat(CWD, path, FileType::CharacterDevice, mode, device),
            _ => mknodat(CWD, path, FileType::BlockDevice, mode, device),
        };
        made.doing("create the special file", path)?;
        self.finish(path, Target::Other, true)
    }

    fn add_file(&mut self, path: &Path) -> Result<()> {
        let file = create(path)?;
        let size = random::size(&mut self.rng, self.options.max_size);
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(WRITE_SIZE as u64);
            let bytes = random::content(&mut self.rng, length as usize);
            file.write_all_at(&bytes, offset).doing("write", path)?;
            offset += length;
        }
        drop(file);
        self.files.push(path.to_owned());
        self.finish(path, Target::File, true)
    }

    /// A few pieces of data far apart, or preallocated room, then any size.
    fn add_sparse(&mut self, path: &Path) -> Result<()> {
        let file = create(path)?;
        let span = self.options.max_size.saturating_mul(16).max(1);
        for _ in 0..self.rng.below(5) {
            let offset = self.rng.below(span);
            let length = self.rng.size(16 << 10).min(self.options.max_size) as usize;
            let bytes = random::content(&mut self.rng, length);
            file.write_all_at(&bytes, offset).doing("write", path)?;
        }
        if self.rng.chance(30) {
            let offset = self.rng.below(span);
            let length = self.rng.between(1, self.options.max_size.max(1));
            let flags = if self.rng.chance(50) { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
            fallocate(&file, flags, offset, length).doing("preallocate", path)?;
        }
        if self.rng.chance(70) {
            file.set_len(self.rng.below(span)).doing("set the size of", path)?;
        }
        drop(file);
        self.files.push(path.to_owned());
        self.finish(path, Target::File, true)
    }

    /// Many names in one directory: mostly empty files and links, since the names are the point.
    fn crowd(&mut self) -> Result<()> {
        if self.options.crowded == 0 {
            return Ok(());
        }
        let parent = self.fresh(self.top);
        std::fs::create_dir(&parent).doing("create the directory", &parent)?;
        self.directories.push(parent.clone());
        for _ in 0..self.options.crowded {
            let path = self.fresh(&parent);
            match self.files.last().cloned() {
                Some(existing) if self.options.hard_links && self.rng.chance(10) => {
                    std::fs::hard_link(&existing, &path).doing("create the hard link", &path)?;
                }
                _ => {
                    drop(create(&path)?);
                    attributes::set_time(&path, random::time(&mut self.rng))?;
                }
            }
        }
        Ok(())
    }

    /// Owner first, since changing it takes set-uid bits and capabilities away; times last.
    fn finish(&mut self, path: &Path, target: Target, has_mode: bool) -> Result<()> {
        if self.rng.chance(30) {
            attributes::set_owner(path, &mut self.rng)?;
        }
        if has_mode && self.rng.chance(50) {
            attributes::set_mode(path, &mut self.rng)?;
        }
        if self.options.xattrs {
            for _ in 0..self.rng.below(4) {
                attributes::set_xattr(path, target, &mut self.rng)?;
            }
            if target == Target::File && self.rng.chance(5) {
                attributes::set_capability(path, &mut self.rng)?;
            }
        }
        if self.options.acls && self.rng.chance(15) {
            attributes::set_acl(path, target, &mut self.rng)?;
        }
        attributes::set_time(path, random::time(&mut self.rng))
    }

    /// Directories last, since what is created inside changes their times.
    fn finish_directories(&mut self) -> Result<()> {
        let directories = std::mem::take(&mut self.directories);
        for path in directories.iter().rev() {
            self.finish(path, Target::Directory, path != self.top)?;
        }
        Ok(())
    }
}

fn create(path: &Path) -> Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path).doing("create", path)
}
