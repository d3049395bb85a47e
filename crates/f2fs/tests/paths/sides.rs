//! The same operations by `std::fs` on the host and by `Files` on a volume.

use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use basalt_vfs::path::{File, FileOptions, Files};
use basalt_vfs::{Attributes, FileKind, FileSystem};

use crate::counting::Counting;
use crate::operations::{OPEN, Operation};

/// What an operation gave.
#[derive(Debug, PartialEq)]
pub enum Answer {
    Done,
    /// Kind, permissions, size and links; size and links of a directory are the file system's own business.
    Found(FileKind, u32, u64, u64),
    Bytes(Vec<u8>),
    Number(u64),
    Truth(bool),
    /// Names and kinds, sorted.
    Names(Vec<(String, FileKind)>),
    Text(String),
    Owner(u32, u32),
    Time(SystemTime),
    Failed(io::ErrorKind),
    NotOpen,
}

/// What is written: different for each length.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + length) as u8).collect()
}

fn system_time(nanoseconds: i64) -> SystemTime {
    let away = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 { UNIX_EPOCH - away } else { UNIX_EPOCH + away }
}

/// A path from the directory that a side works in; above that the two have nothing in common.
fn below(path: &Path, base: &str) -> String {
    path.strip_prefix(base).map_or("above".to_owned(), |path| path.to_str().unwrap().to_owned())
}

fn answer(result: io::Result<Answer>) -> Answer {
    // Kinds without a stable name count as one.
    let stable = |kind: io::ErrorKind| match format!("{kind:?}").as_str() {
        "FilesystemLoop" | "Uncategorized" => io::ErrorKind::Other,
        _ => kind,
    };
    result.unwrap_or_else(|error| Answer::Failed(stable(error.kind())))
}

/// The host: a directory by `std::fs`.
pub struct Host {
    base: String,
    open: [Option<std::fs::File>; OPEN],
}

/// The volume: a directory by `Files`.
pub struct Volume {
    base: String,
    pub files: Files<Arc<Counting>>,
    open: [Option<File<Arc<Counting>>>; OPEN],
}

fn host_kind(kind: std::fs::FileType) -> FileKind {
    if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::Regular
    }
}

fn found(kind: FileKind, permissions: u32, size: u64, links: u64) -> Answer {
    match kind {
        FileKind::Directory => Answer::Found(kind, permissions, 0, 0),
        _ => Answer::Found(kind, permissions, size, links),
    }
}

fn host_found(metadata: &std::fs::Metadata) -> Answer {
    found(host_kind(metadata.file_type()), metadata.mode() & 0o7777, metadata.len(), metadata.nlink())
}

fn volume_found(attributes: &Attributes) -> Answer {
    found(attributes.kind, attributes.permissions, attributes.size, u64::from(attributes.links))
}

fn read_some(file: &mut impl Read, length: usize) -> io::Result<Answer> {
    let mut buf = vec![0; length];
    let read = file.read(&mut buf)?;
    buf.truncate(read);
    Ok(Answer::Bytes(buf))
}

impl Host {
    /// A directory of the host.
    pub fn new(base: &Path) -> Host {
        Host { base: std::fs::canonicalize(base).unwrap().to_str().unwrap().to_owned(), open: Default::default() }
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    /// Whether both paths name the same file.
    pub fn is_same(&self, a: &str, b: &str) -> bool {
        let identity = |path| std::fs::metadata(self.at(path)).ok().map(|found| (found.dev(), found.ino()));
        identity(a).is_some() && identity(a) == identity(b)
    }

    /// Whether symbolic links are followed on the way to the last name.
    pub fn leads_through_links(&self, path: &str) -> bool {
        let directory = PathBuf::from(self.at(path));
        let directory = directory.parent().unwrap();
        std::fs::canonicalize(directory).is_ok_and(|real| real != directory)
    }

    /// Whether a directory is open there.
    pub fn has_directory_open(&self, place: usize) -> bool {
        let metadata = self.open[place].as_ref().map(|file| file.metadata().unwrap());
        metadata.is_some_and(|metadata| metadata.is_dir())
    }

    pub fn run(&mut self, operation: &Operation) -> Answer {
        answer(self.do_it(operation))
    }

    fn do_it(&mut self, operation: &Operation) -> io::Result<Answer> {
        use Operation as Op;
        use std::fs;
        let done = |()| Answer::Done;
        match operation {
            Op::Read(path) => fs::read(self.at(path)).map(Answer::Bytes),
            Op::Write(path, length) => fs::write(self.at(path), content(*length)).map(done),
            Op::CreateDir(path) => fs::create_dir(self.at(path)).map(done),
            Op::CreateDirAll(path) => fs::create_dir_all(self.at(path)).map(done),
            Op::ReadDir(path) => {
                let mut names = Vec::new();
                for entry in fs::read_dir(self.at(path))? {
                    let entry = entry?;
                    names.push((entry.file_name().into_string().unwrap(), host_kind(entry.file_type()?)));
                }
                names.sort_by(|a, b| a.0.cmp(&b.0));
                Ok(Answer::Names(names))
            }
            Op::Metadata(path) => fs::metadata(self.at(path)).map(|found| host_found(&found)),
            Op::SymlinkMetadata(path) => fs::symlink_metadata(self.at(path)).map(|found| host_found(&found)),
            Op::Exists(path) => fs::exists(self.at(path)).map(Answer::Truth),
            Op::Rename(from, to) => fs::rename(self.at(from), self.at(to)).map(done),
            Op::RemoveFile(path) => fs::remove_file(self.at(path)).map(done),
            Op::RemoveDir(path) => fs::remove_dir(self.at(path)).map(done),
            Op::RemoveDirAll(path) => fs::remove_dir_all(self.at(path)).map(done),
            Op::HardLink(original, link) => fs::hard_link(self.at(original), self.at(link)).map(done),
            Op::Symlink(target, link) => std::os::unix::fs::symlink(target, self.at(link)).map(done),
            Op::ReadLink(path) => {
                fs::read_link(self.at(path)).map(|target| Answer::Text(target.to_str().unwrap().to_owned()))
            }
            Op::Copy(from, to) => fs::copy(self.at(from), self.at(to)).map(Answer::Number),
            Op::Canonicalize(path) => {
                fs::canonicalize(self.at(path)).map(|found| Answer::Text(below(&found, &self.base)))
            }
            Op::ReadToString(path) => fs::read_to_string(self.at(path)).map(Answer::Text),
            Op::Chown(path, uid, gid, is_link) => {
                use std::os::unix::fs::{chown, lchown};
                let path = self.at(path);
                if *is_link { lchown(&path, *uid, *gid) } else { chown(&path, *uid, *gid) }?;
                let found = fs::symlink_metadata(path)?;
                Ok(Answer::Owner(found.uid(), found.gid()))
            }
            Op::SetPermissions(path, mode) => {
                fs::set_permissions(self.at(path), fs::Permissions::from_mode(*mode)).map(done)
            }
            Op::Open(place, path, how) => {
                let mut options = fs::File::options();
                options.read(how.read).write(how.write).append(how.append).truncate(how.truncate);
                let file = options.create(how.create).create_new(how.create_new).open(self.at(path))?;
                self.open[*place] = Some(file);
                Ok(Answer::Done)
            }
            Op::Close(place) => {
                self.open[*place] = None;
                Ok(Answer::Done)
            }
            Op::ReadSome(place, _)
            | Op::WriteSome(place, _)
            | Op::Seek(place, _)
            | Op::SetLen(place, _)
            | Op::Sync(place)
            | Op::OpenMetadata(place)
            | Op::ReadExactAt(place, _, _)
            | Op::WriteAllAt(place, _, _)
            | Op::SetModified(place, _)
            | Op::SetOpenPermissions(place, _) => match &self.open[*place] {
                Some(file) => use_host_file(file, operation),
                None => Ok(Answer::NotOpen),
            },
        }
    }
}

fn use_host_file(mut file: &std::fs::File, operation: &Operation) -> io::Result<Answer> {
    match operation {
        Operation::ReadSome(_, length) => read_some(&mut file, *length),
        Operation::ReadExactAt(_, offset, length) => {
            let mut buf = vec![0; *length];
            file.read_exact_at(&mut buf, *offset).map(|()| Answer::Bytes(buf))
        }
        Operation::WriteAllAt(_, offset, length) => {
            file.write_all_at(&content(*length), *offset).map(|()| Answer::Done)
        }
        Operation::SetModified(_, time) => {
            file.set_modified(system_time(*time))?;
            Ok(Answer::Time(file.metadata()?.modified()?))
        }
        Operation::SetOpenPermissions(_, mode) => {
            file.set_permissions(std::fs::Permissions::from_mode(*mode)).map(|()| Answer::Done)
        }
        Operation::WriteSome(_, length) => file.write(&content(*length)).map(|length| Answer::Number(length as u64)),
        Operation::Seek(_, to) => file.seek(*to).map(Answer::Number),
        Operation::SetLen(_, size) => file.set_len(*size).map(|()| Answer::Done),
        Operation::Sync(_) => file.sync_all().map(|()| Answer::Done),
        _ => file.metadata().map(|found| host_found(&found)),
    }
}

impl Volume {
    /// A directory of a volume, which is made.
    pub fn new(base: &str, files: Files<Arc<Counting>>) -> Volume {
        files.create_dir_all(base).unwrap();
        Volume { base: base.to_owned(), files, open: Default::default() }
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    pub fn run(&mut self, operation: &Operation) -> Answer {
        answer(self.do_it(operation))
    }

    /// Closes all files; the volume, for a last look.
    pub fn close(self) -> Arc<Counting> {
        Arc::clone(self.files.file_system())
    }

    fn do_it(&mut self, operation: &Operation) -> io::Result<Answer> {
        use Operation as Op;
        let done = |()| Answer::Done;
        let fs = &self.files;
        let result = match operation {
            Op::Read(path) => fs.read(self.at(path)).map(Answer::Bytes),
            Op::Write(path, length) => fs.write(self.at(path), content(*length)).map(done),
            Op::CreateDir(path) => fs.create_dir(self.at(path)).map(done),
            Op::CreateDirAll(path) => fs.create_dir_all(self.at(path)).map(done),
            Op::ReadDir(path) => {
                let mut names = Vec::new();
                for entry in fs.read_dir(self.at(path))? {
                    let entry = entry?;
                    assert_eq!(entry.metadata()?.kind, entry.file_type());
                    names.push((entry.file_name().to_str().unwrap().to_owned(), entry.file_type()));
                }
                names.sort_by(|a, b| a.0.cmp(&b.0));
                Ok(Answer::Names(names))
            }
            Op::Metadata(path) => fs.metadata(self.at(path)).map(|found| volume_found(&found)),
            Op::SymlinkMetadata(path) => fs.symlink_metadata(self.at(path)).map(|found| volume_found(&found)),
            Op::Exists(path) => fs.exists(self.at(path)).map(Answer::Truth),
            Op::Rename(from, to) => fs.rename(self.at(from), self.at(to)).map(done),
            Op::RemoveFile(path) => fs.remove_file(self.at(path)).map(done),
            Op::RemoveDir(path) => fs.remove_dir(self.at(path)).map(done),
            Op::RemoveDirAll(path) => fs.remove_dir_all(self.at(path)).map(done),
            Op::HardLink(original, link) => fs.hard_link(self.at(original), self.at(link)).map(done),
            Op::Symlink(target, link) => fs.symlink(target, self.at(link)).map(done),
            Op::ReadLink(path) => {
                fs.read_link(self.at(path)).map(|target| Answer::Text(target.to_str().unwrap().to_owned()))
            }
            Op::Copy(from, to) => fs.copy(self.at(from), self.at(to)).map(Answer::Number),
            Op::Canonicalize(path) => {
                fs.canonicalize(self.at(path)).map(|found| Answer::Text(below(&found, &self.base)))
            }
            Op::ReadToString(path) => fs.read_to_string(self.at(path)).map(Answer::Text),
            Op::Chown(path, uid, gid, is_link) => {
                let path = self.at(path);
                if *is_link { fs.lchown(&path, *uid, *gid) } else { fs.chown(&path, *uid, *gid) }?;
                let found = fs.symlink_metadata(path)?;
                Ok(Answer::Owner(found.uid, found.gid))
            }
            Op::SetPermissions(path, mode) => fs.set_permissions(self.at(path), *mode).map(done),
            Op::Open(place, path, how) => {
                let options = FileOptions::new().read(how.read).write(how.write).append(how.append);
                let options = options.truncate(how.truncate).create(how.create).create_new(how.create_new);
                fs.open_with(self.at(path), &options).map(|file| {
                    self.open[*place] = Some(file);
                    Answer::Done
                })
            }
            Op::Close(place) => {
                self.open[*place] = None;
                Ok(Answer::Done)
            }
            Op::ReadSome(place, _)
            | Op::WriteSome(place, _)
            | Op::Seek(place, _)
            | Op::SetLen(place, _)
            | Op::Sync(place)
            | Op::OpenMetadata(place)
            | Op::ReadExactAt(place, _, _)
            | Op::WriteAllAt(place, _, _)
            | Op::SetModified(place, _)
            | Op::SetOpenPermissions(place, _) => match &self.open[*place] {
                Some(file) => return use_volume_file(file, operation),
                None => Ok(Answer::NotOpen),
            },
        };
        Ok(result?)
    }
}

fn use_volume_file(
    mut file: &File<impl std::ops::Deref<Target: FileSystem> + Clone>,
    operation: &Operation,
) -> io::Result<Answer> {
    Ok(match operation {
        Operation::ReadSome(_, length) => read_some(&mut file, *length)?,
        Operation::ReadExactAt(_, offset, length) => {
            let mut buf = vec![0; *length];
            file.read_exact_at(&mut buf, *offset).map(|()| Answer::Bytes(buf))?
        }
        Operation::WriteAllAt(_, offset, length) => {
            file.write_all_at(&content(*length), *offset).map(|()| Answer::Done)?
        }
        Operation::SetModified(_, time) => {
            file.set_modified(system_time(*time))?;
            Answer::Time(file.metadata()?.modified()?)
        }
        Operation::SetOpenPermissions(_, mode) => file.set_permissions(*mode).map(|()| Answer::Done)?,
        Operation::WriteSome(_, length) => Answer::Number(file.write(&content(*length))? as u64),
        Operation::Seek(_, to) => Answer::Number(file.seek(*to)?),
        Operation::SetLen(_, size) => file.set_len(*size).map(|()| Answer::Done)?,
        Operation::Sync(_) => file.sync_all().map(|()| Answer::Done)?,
        _ => volume_found(&file.metadata()?),
    })
}
