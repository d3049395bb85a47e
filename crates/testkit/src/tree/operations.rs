//! The operations by which a tree is changed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, RenameFlags, fallocate, lremovexattr, mknodat, renameat_with};
use rustix::io::Errno;

use super::attributes::{self, Target};
use super::{MutateOptions, random};
use crate::error::{Context, Result};
use crate::rng::Rng;

/// One kind of change.
pub struct Operation {
    /// Its name, for reports.
    pub name: &'static str,
    /// How often it is chosen, relative to the others.
    pub weight: u64,
    /// Does it; `false` when the tree has nothing to do it to.
    pub apply: fn(&mut Forest<'_>, &mut Rng) -> Result<bool>,
}

/// All of them. Their order is part of what a seed means: add at the end only.
pub const OPERATIONS: &[Operation] = &[
    Operation { name: "create", weight: 14, apply: create },
    Operation { name: "make directory", weight: 5, apply: make_directory },
    Operation { name: "append", weight: 10, apply: append },
    Operation { name: "overwrite", weight: 14, apply: overwrite },
    Operation { name: "truncate", weight: 8, apply: truncate },
    Operation { name: "delete", weight: 10, apply: delete },
    Operation { name: "remove tree", weight: 1, apply: remove_tree },
    Operation { name: "rename", weight: 10, apply: rename },
    Operation { name: "rename directory", weight: 2, apply: rename_directory },
    Operation { name: "exchange", weight: 2, apply: exchange },
    Operation { name: "replace", weight: 4, apply: replace },
    Operation { name: "hard link", weight: 4, apply: hard_link },
    Operation { name: "symbolic link", weight: 3, apply: symbolic_link },
    Operation { name: "special file", weight: 1, apply: special_file },
    Operation { name: "change mode", weight: 4, apply: change_mode },
    Operation { name: "change owner", weight: 3, apply: change_owner },
    Operation { name: "set attribute", weight: 5, apply: set_attribute },
    Operation { name: "remove attribute", weight: 3, apply: remove_attribute },
    Operation { name: "set ACL", weight: 2, apply: set_acl },
    Operation { name: "allocate", weight: 5, apply: allocate },
    Operation { name: "fsync", weight: 3, apply: fsync },
];

/// How long a path inside the tree may become.
const MAX_PATH: usize = 3_000;

/// A tree under change: where things are, in an order that depends on nothing but the changes so far.
pub struct Forest<'a> {
    top: &'a Path,
    options: &'a MutateOptions,
    /// The top directory first.
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// Symbolic links and special files.
    others: Vec<PathBuf>,
}

impl<'a> Forest<'a> {
    /// Finds everything in a tree, `lost+found` at the top left out.
    pub fn scan(top: &'a Path, options: &'a MutateOptions) -> Result<Forest<'a>> {
        let mut forest =
            Forest { top, options, directories: vec![top.to_owned()], files: Vec::new(), others: Vec::new() };
        let mut next = 0;
        while let Some(directory) = forest.directories.get(next).cloned() {
            next += 1;
            for entry in std::fs::read_dir(&directory).doing("list", &directory)? {
                let entry = entry.doing("list", &directory)?;
                let kind = entry.file_type().doing("look at", &entry.path())?;
                if directory == top && entry.file_name() == "lost+found" {
                    continue;
                }
                let list = match kind {
                    _ if kind.is_dir() => &mut forest.directories,
                    _ if kind.is_file() => &mut forest.files,
                    _ => &mut forest.others,
                };
                list.push(entry.path());
            }
        }
        // The order of a directory is the file system's own business.
        forest.directories[1..].sort();
        forest.files.sort();
        forest.others.sort();
        Ok(forest)
    }

    fn rescan(&mut self) -> Result<()> {
        *self = Forest::scan(self.top, self.options)?;
        Ok(())
    }

    fn depth_left(&self, directory: &Path) -> usize {
        MAX_PATH.saturating_sub(directory.as_os_str().len() - self.top.as_os_str().len())
    }

    /// A path that does not exist yet, in any directory.
    fn fresh(&self, rng: &mut Rng) -> PathBuf {
        loop {
            let parent = &self.directories[rng.index(self.directories.len())];
            let path = parent.join(random::name(rng, true, self.depth_left(parent)));
            if path.symlink_metadata().is_err() {
                return path;
            }
        }
    }

    /// Any directory but the top.
    fn inner_directory(&self, rng: &mut Rng) -> Option<PathBuf> {
        rng.pick(&self.directories[1..]).cloned()
    }

    /// Anything at all that has attributes of its own.
    fn any(&self, rng: &mut Rng) -> Option<(PathBuf, Target)> {
        let (list, target) = match rng.below(10) {
            0..6 => (&self.files[..], Target::File),
            6..8 => (&self.directories[1..], Target::Directory),
            _ => (&self.others[..], Target::Other),
        };
        rng.pick(list).map(|path| (path.clone(), target))
    }

    /// Sets the times of a path and of the directory it is in, if they are to be pinned.
    fn stamp(&self, path: &Path, rng: &mut Rng) -> Result<()> {
        let (own, parent_time) = (random::time(rng), random::time(rng));
        if !self.options.pin_times {
            return Ok(());
        }
        if path.symlink_metadata().is_ok() {
            attributes::set_time(path, own)?;
        }
        match path.parent() {
            Some(parent) if parent.starts_with(self.top) => attributes::set_time(parent, parent_time),
            _ => Ok(()),
        }
    }

    fn content(&self, rng: &mut Rng) -> Vec<u8> {
        let length = random::size(rng, self.options.max_size);
        random::content(rng, length as usize)
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path).doing("open", path)
}

fn length(file: &File, path: &Path) -> Result<u64> {
    Ok(file.metadata().doing("look at", path)?.len())
}

fn create(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let path = forest.fresh(rng);
    let file = OpenOptions::new().write(true).create_new(true).open(&path).doing("create", &path)?;
    file.write_all_at(&forest.content(rng), 0).doing("write", &path)?;
    forest.stamp(&path, rng)?;
    forest.files.push(path);
    Ok(true)
}

fn make_directory(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let path = forest.fresh(rng);
    if forest.depth_left(&path) < 300 {
        return Ok(false);
    }
    std::fs::create_dir(&path).doing("create the directory", &path)?;
    forest.stamp(&path, rng)?;
    forest.directories.push(path);
    Ok(true)
}

fn append(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some(path) = rng.pick(&forest.files).cloned() else {
        return Ok(false);
    };
    let file = open(&path)?;
    let end = length(&file, &path)?;
    file.write_all_at(&forest.content(rng), end).doing("append to", &path)?;
    drop(file);
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn overwrite(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some(path) = rng.pick(&forest.files).cloned() else {
        return Ok(false);
    };
    let file = open(&path)?;
    let offset = rng.below(length(&file, &path)? + 1);
    file.write_all_at(&forest.content(rng), offset).doing("overwrite", &path)?;
    drop(file);
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn truncate(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some(path) = rng.pick(&forest.files).cloned() else {
        return Ok(false);
    };
    let file = open(&path)?;
    let old = length(&file, &path)?;
    let new = if rng.chance(70) { rng.below(old + 1) } else { old + rng.below(4 * forest.options.max_size) };
    file.set_len(new).doing("truncate", &path)?;
    drop(file);
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn delete(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let list = if rng.chance(85) { &mut forest.files } else { &mut forest.others };
    if list.is_empty() {
        return Ok(false);
    }
    let path = list.swap_remove(rng.index(list.len()));
    std::fs::remove_file(&path).doing("delete", &path)?;
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn remove_tree(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some(path) = forest.inner_directory(rng) else {
        return Ok(false);
    };
    let inside = forest.files.iter().filter(|file| file.starts_with(&path)).count();
    // Not so much at once that nothing interesting is left.
    if inside * 5 > forest.files.len() {
        return Ok(false);
    }
    std::fs::remove_dir_all(&path).doing("delete with everything in it", &path)?;
    forest.stamp(&path, rng)?;
    forest.rescan()?;
    Ok(true)
}

/// Half of the time to a new name, half of the time over an existing file.
fn rename(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    if forest.files.is_empty() {
        return Ok(false);
    }
    let index = rng.index(forest.files.len());
    let old = forest.files[index].clone();
    let new = if rng.chance(50) { forest.fresh(rng) } else { forest.files[rng.index(forest.files.len())].clone() };
    std::fs::rename(&old, &new).doing("rename", &old)?;
    // Two names of one file stay both: rename(2) does nothing then.
    if old.symlink_metadata().is_err() {
        forest.files.swap_remove(index);
    }
    if !forest.files.contains(&new) {
        forest.files.push(new.clone());
    }
    forest.stamp(&old, rng)?;
    forest.stamp(&new, rng)?;
    Ok(true)
}

fn rename_directory(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some(old) = forest.inner_directory(rng) else {
        return Ok(false);
    };
    let new = forest.fresh(rng);
    // What is inside must still have a path short enough.
    if new.starts_with(&old) || forest.depth_left(&new) < 1_500 {
        return Ok(false);
    }
    let deepest = forest.files.iter().filter(|file| file.starts_with(&old)).map(|file| file.as_os_str().len()).max();
    if deepest.is_some_and(|length| length - old.as_os_str().len() > 1_200) {
        return Ok(false);
    }
    std::fs::rename(&old, &new).doing("rename the directory", &old)?;
    forest.stamp(&old, rng)?;
    forest.stamp(&new, rng)?;
    forest.rescan()?;
    Ok(true)
}

/// Exchanges any two things, of which neither contains the other.
fn exchange(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let (Some((one, _)), Some((two, _))) = (forest.any(rng), forest.any(rng)) else {
        return Ok(false);
    };
    let too_deep = forest.depth_left(&one) < 1_500 || forest.depth_left(&two) < 1_500;
    if one.starts_with(&two) || two.starts_with(&one) || too_deep {
        return Ok(false);
    }
    renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE).doing("exchange", &one)?;
    forest.stamp(&one, rng)?;
    forest.stamp(&two, rng)?;
    forest.rescan()?;
    Ok(true)
}

/// As editors save: a new file beside the old one, fsync, rename over it.
fn replace(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some(old) = rng.pick(&forest.files).cloned() else {
        return Ok(false);
    };
    let new = forest.fresh(rng);
    let file = OpenOptions::new().write(true).create_new(true).open(&new).doing("create", &new)?;
    file.write_all_at(&forest.content(rng), 0).doing("write", &new)?;
    file.sync_all().doing("fsync", &new)?;
    drop(file);
    std::fs::rename(&new, &old).doing("rename", &new)?;
    forest.stamp(&new, rng)?;
    forest.stamp(&old, rng)?;
    Ok(true)
}

fn hard_link(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some(existing) = rng.pick(&forest.files).cloned() else {
        return Ok(false);
    };
    let path = forest.fresh(rng);
    std::fs::hard_link(&existing, &path).doing("create the hard link", &path)?;
    forest.stamp(&path, rng)?;
    forest.files.push(path);
    Ok(true)
}

fn symbolic_link(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let path = forest.fresh(rng);
    let target: String = (0..rng.between(1, 300)).map(|_| char::from(b'a' + rng.below(26) as u8)).collect();
    symlink(target, &path).doing("create the symbolic link", &path)?;
    forest.stamp(&path, rng)?;
    forest.others.push(path);
    Ok(true)
}

fn special_file(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let path = forest.fresh(rng);
    let kind = if rng.chance(50) { FileType::Fifo } else { FileType::Socket };
    mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), 0).doing("create the special file", &path)?;
    forest.stamp(&path, rng)?;
    forest.others.push(path);
    Ok(true)
}

fn change_mode(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some((path, target)) = forest.any(rng) else {
        return Ok(false);
    };
    // A symbolic link has no mode of its own, and the other special files are not worth telling apart here.
    if target == Target::Other {
        return Ok(false);
    }
    attributes::set_mode(&path, rng)?;
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn change_owner(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some((path, _)) = forest.any(rng) else {
        return Ok(false);
    };
    attributes::set_owner(&path, rng)?;
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn set_attribute(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some((path, target)) = forest.any(rng) else {
        return Ok(false);
    };
    if target == Target::File && rng.chance(10) {
        attributes::set_capability(&path, rng)?;
    } else {
        attributes::set_xattr(&path, target, rng)?;
    }
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn remove_attribute(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some((path, _)) = forest.any(rng) else {
        return Ok(false);
    };
    let mut names = vec![0; 65_536];
    let length = rustix::fs::llistxattr(&path, &mut names).doing("list the extended attributes of", &path)?;
    let mut names: Vec<&[u8]> = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let Some(name) = rng.pick(&names) else {
        return Ok(false);
    };
    lremovexattr(&path, *name).doing("remove an extended attribute of", &path)?;
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn set_acl(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some((path, target)) = forest.any(rng) else {
        return Ok(false);
    };
    attributes::set_acl(&path, target, rng)?;
    forest.stamp(&path, rng)?;
    Ok(true)
}

/// Preallocation, holes and zeroed ranges. A file system that cannot do one of them at all is allowed to say so.
fn allocate(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let Some(path) = rng.pick(&forest.files).cloned() else {
        return Ok(false);
    };
    let file = open(&path)?;
    let offset = rng.below(length(&file, &path)? + forest.options.max_size);
    let range = rng.between(1, forest.options.max_size.max(1));
    let kinds = [
        FallocateFlags::empty(),
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
    ];
    match fallocate(&file, kinds[rng.index(kinds.len())], offset, range) {
        Err(Errno::OPNOTSUPP) => return Ok(false),
        other => other.doing("allocate in", &path)?,
    }
    drop(file);
    forest.stamp(&path, rng)?;
    Ok(true)
}

fn fsync(forest: &mut Forest<'_>, rng: &mut Rng) -> Result<bool> {
    let list = if rng.chance(80) { &forest.files } else { &forest.directories };
    let Some(path) = rng.pick(list).cloned() else {
        return Ok(false);
    };
    File::open(&path).doing("open", &path)?.sync_all().doing("fsync", &path)?;
    Ok(true)
}
