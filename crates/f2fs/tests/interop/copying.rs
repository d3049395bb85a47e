//! Copying a tree of the host's into a volume, everything kept.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use basalt_testkit::manifest::{Entry, Manifest};
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode, SetAttributes, SetTime, Time, XattrFlags};

use crate::listing::device_number;

const PIECE: usize = 100_000;

/// Copies everything in `top` into the root directory, the root's own attributes included.
pub fn copy_tree(fs: &impl FileSystem, top: &Path) {
    let attributes = Manifest::of(top).unwrap();
    let mut copier = Copier { fs, attributes: &attributes, links: HashMap::new() };
    copier.fill(top, b".", fs.root());
}

struct Copier<'a, F> {
    fs: &'a F,
    /// What is to be set, by relative path.
    attributes: &'a Manifest,
    /// Inodes that have been copied under another name, by the host's inode number.
    links: HashMap<u64, InodeNumber>,
}

impl<F: FileSystem> Copier<'_, F> {
    /// A directory's attributes come last: what is made inside changes its times and inherits its default ACL.
    fn fill(&mut self, path: &Path, relative: &[u8], directory: InodeNumber) {
        for found in std::fs::read_dir(path).unwrap() {
            let found = found.unwrap().path();
            let name = found.file_name().unwrap().as_bytes();
            let own = [relative, b"/", name].concat();
            let metadata = found.symlink_metadata().unwrap();
            if let Some(&ino) = self.links.get(&metadata.ino()) {
                self.fs.link(ino, directory, name).unwrap();
                self.fs.forget(ino, 1);
                continue;
            }
            let ino = self.add(&found, &own, &metadata, directory, name);
            if metadata.nlink() > 1 && !metadata.is_dir() {
                self.links.insert(metadata.ino(), ino);
            }
        }
        self.set_attributes(directory, &self.attributes.entries[relative]);
    }

    fn add(
        &mut self,
        path: &Path,
        relative: &[u8],
        metadata: &Metadata,
        directory: InodeNumber,
        name: &[u8],
    ) -> InodeNumber {
        let entry = &self.attributes.entries[relative];
        let kind = kind_of(metadata);
        let rdev = entry.device.map_or(0, |(major, minor)| device_number(major, minor));
        let target = entry.target.as_deref().unwrap_or_default();
        let node = NewNode { kind, permissions: 0o600, rdev, target };
        let ino = self.fs.create(directory, name, &node, &Caller::default()).unwrap().ino;
        match kind {
            FileKind::Directory => self.fill(path, relative, ino),
            FileKind::Regular => {
                copy_content(self.fs, path, ino);
                self.set_attributes(ino, entry);
            }
            _ => self.set_attributes(ino, entry),
        }
        self.fs.forget(ino, 1);
        ino
    }

    fn set_attributes(&self, ino: InodeNumber, entry: &Entry) {
        let owner = entry.owner.unwrap();
        let owner = SetAttributes { uid: Some(owner.0), gid: Some(owner.1), ..Default::default() };
        self.fs.set_attributes(ino, &owner).unwrap();
        if entry.target.is_none() {
            let mode = SetAttributes { permissions: entry.mode, ..Default::default() };
            self.fs.set_attributes(ino, &mode).unwrap();
        }
        for (name, value) in entry.xattrs.iter().flatten() {
            self.fs.set_xattr(ino, name, value, XattrFlags::CREATE).unwrap();
        }
        let (seconds, nanoseconds) = entry.mtime.unwrap();
        let time = SetTime::To(Time { seconds, nanoseconds });
        let times = SetAttributes { mtime: Some(time), atime: Some(time), ..Default::default() };
        self.fs.set_attributes(ino, &times).unwrap();
    }
}

fn kind_of(metadata: &Metadata) -> FileKind {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () => FileKind::Regular,
    }
}

/// Pieces of zeros become holes.
fn copy_content(fs: &impl FileSystem, path: &Path, ino: InodeNumber) {
    let content = std::fs::read(path).unwrap();
    for (number, piece) in content.chunks(PIECE).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            fs.write(ino, (number * PIECE) as u64, piece, false).unwrap();
        }
    }
    let size = SetAttributes { size: Some(content.len() as u64), ..Default::default() };
    fs.set_attributes(ino, &size).unwrap();
}
