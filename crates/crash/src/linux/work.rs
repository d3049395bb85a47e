//! Inside the machine: doing steps with Linux's own system calls, and telling where in the order of requests each has returned.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
    chownat, fallocate, makedev, mknodat, removexattr, renameat_with, setxattr, utimensat,
};

use super::dump;
use super::look::look;
use crate::script::{Special, Step};
use crate::tree::{Page, Tree, bytes, symlink_target, xattr_name};

/// Bytes of the reads that mark where a step has returned: F2FS reads blocks of 4096.
pub const MARK_BYTES: u64 = 512;

/// Where the read lies that marks the return of a step, from 1; mounting is marked as 0.
pub const fn mark_offset(step: u64) -> u64 {
    (step + 8) * MARK_BYTES
}

/// Does the steps of a file below `directory`, marks on `disk` where each has returned, and writes down the tree after each: that after
/// mounting comes first. Beside `out`, a file `.answers` has a line for each step: `done` or why not.
///
/// # Errors
/// When the tree cannot be looked at, or anything cannot be written down.
pub fn work(directory: &Path, steps: &Path, disk: &Path, out: &Path) -> io::Result<()> {
    let steps = std::fs::read_to_string(steps)?;
    let disk = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(disk)?;
    let (mut trees, mut answers, mut known) = (Vec::new(), String::new(), HashSet::new());
    mark(&disk, 0)?;
    trees.push(shared(look(directory)?, &mut known));
    for (number, line) in (1..).zip(steps.lines()) {
        let step: Step = line.parse().map_err(io::Error::other)?;
        let answer = Worker { directory }.perform(&step);
        mark(&disk, number)?;
        trees.push(shared(look(directory)?, &mut known));
        answers.push_str(&answer.map_or_else(|error| format!("{error}\n"), |()| "done\n".to_owned()));
    }
    dump::save(&trees, out)?;
    std::fs::write(out.with_extension("answers"), answers)
}

/// A read that nobody else would do. It lies between the requests of this step and those of the next.
fn mark(disk: &File, step: u64) -> io::Result<()> {
    #[repr(align(4096))]
    struct Aligned([u8; MARK_BYTES as usize]);
    disk.read_exact_at(&mut Aligned([0; MARK_BYTES as usize]).0, mark_offset(step))
}

/// The tree with pages that were there before shared: memory is scarce in the machine.
fn shared(mut tree: Tree, known: &mut HashSet<Page>) -> Tree {
    let ids: Vec<_> = tree.iter().map(|(id, _)| id).collect();
    for id in ids {
        let Some(node) = tree.change(id) else { continue };
        for page in node.pages.values_mut() {
            match known.get(page) {
                Some(same) => page.clone_from(same),
                None => drop(known.insert(page.clone())),
            }
        }
    }
    tree
}

struct Worker<'a> {
    directory: &'a Path,
}

impl Worker<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    fn open(&self, path: &str) -> io::Result<File> {
        let path = self.at(path);
        File::options().read(true).write(true).open(&path).or_else(|error| match error.kind() {
            io::ErrorKind::IsADirectory => File::open(&path),
            _ => Err(error),
        })
    }

    fn fallocate(&self, path: &str, mode: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
        Ok(fallocate(self.open(path)?, mode, offset, length)?)
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> io::Result<()> {
        Ok(renameat_with(CWD, self.at(from), CWD, self.at(to), flags)?)
    }

    fn make(&self, path: &str, kind: FileType, permissions: u32, rdev: u32) -> io::Result<()> {
        Ok(mknodat(CWD, self.at(path), kind, Mode::from(permissions), makedev(rdev >> 8, rdev & 255))?)
    }

    /// Does a step; those of the simulator's own are refused.
    fn perform(&self, step: &Step) -> io::Result<()> {
        let keep = FallocateFlags::KEEP_SIZE;
        match step {
            Step::Create(path) => File::create_new(self.at(path)).map(drop),
            Step::Mkdir(path) => std::fs::create_dir(self.at(path)),
            Step::Symlink(path, length) => {
                let target = String::from_utf8(symlink_target(path, *length)).map_err(io::Error::other)?;
                std::os::unix::fs::symlink(target, self.at(path))
            }
            Step::Special(path, kind, rdev) => match kind {
                Special::Fifo => self.make(path, FileType::Fifo, 0o640, 0),
                Special::Socket => self.make(path, FileType::Socket, 0o640, 0),
                Special::Char => self.make(path, FileType::CharacterDevice, 0o640, *rdev & 0xffff),
                Special::Block => self.make(path, FileType::BlockDevice, 0o640, *rdev & 0xffff),
            },
            Step::Link(from, to) => std::fs::hard_link(self.at(from), self.at(to)),
            Step::Unlink(path) => std::fs::remove_file(self.at(path)),
            Step::Rmdir(path) => std::fs::remove_dir(self.at(path)),
            Step::Rename(from, to) => self.rename(from, to, RenameFlags::empty()),
            Step::RenameNew(from, to) => self.rename(from, to, RenameFlags::NOREPLACE),
            Step::Whiteout(from, to) => self.rename(from, to, RenameFlags::WHITEOUT),
            Step::Exchange(from, to) => self.rename(from, to, RenameFlags::EXCHANGE),
            Step::Write(path, offset, length, seed) | Step::WriteBack(path, offset, length, seed) => {
                self.open(path)?.write_all_at(&bytes(*seed, *length), *offset)
            }
            Step::Truncate(path, size) => self.open(path)?.set_len(*size),
            Step::Allocate(path, offset, length) => self.fallocate(path, FallocateFlags::empty(), *offset, *length),
            Step::Reserve(path, offset, length) => self.fallocate(path, keep, *offset, *length),
            Step::Punch(path, offset, length) => {
                self.fallocate(path, keep | FallocateFlags::PUNCH_HOLE, *offset, *length)
            }
            Step::Zero(path, offset, length) => self.fallocate(path, FallocateFlags::ZERO_RANGE, *offset, *length),
            Step::ZeroKeep(path, offset, length) => {
                self.fallocate(path, keep | FallocateFlags::ZERO_RANGE, *offset, *length)
            }
            _ => self.set_or_sync(step),
        }
    }

    /// As [`perform`](Self::perform), of attributes and durability.
    fn set_or_sync(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::SetXattr(path, name, length, seed) => {
                Ok(setxattr(self.at(path), xattr_name(*name), &bytes(*seed, *length), XattrFlags::empty())?)
            }
            Step::RemoveXattr(path, name) => Ok(removexattr(self.at(path), xattr_name(*name))?),
            Step::Chmod(path, permissions) => {
                std::fs::set_permissions(self.at(path), std::os::unix::fs::PermissionsExt::from_mode(*permissions))
            }
            Step::Chown(path, uid, gid) => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                Ok(chownat(CWD, self.at(path), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Step::Utimes(path, seconds, nanoseconds) => {
                let time = Timespec { tv_sec: *seconds, tv_nsec: i64::from(*nanoseconds % 1_000_000_000) };
                let times = Timestamps { last_access: time, last_modification: time };
                Ok(utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Step::Fsync(path) => self.open(path)?.sync_all(),
            Step::Fdatasync(path) => self.open(path)?.sync_data(),
            Step::Sync => Ok(rustix::fs::syncfs(File::open(self.directory)?)?),
            _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }
}
