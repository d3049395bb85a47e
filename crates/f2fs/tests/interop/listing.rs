//! A manifest of what the file-system interface shows, with the same fields as one read from a mounted tree.

use std::collections::{BTreeMap, HashMap};

use basalt_testkit::Manifest;
use basalt_testkit::hash::Hasher;
use basalt_testkit::manifest::{Entry, Kind};
use basalt_vfs::{Attributes, FileKind, FileSystem, InodeNumber};

/// How much of a file is read at a time, deliberately no power of two.
const READ_SIZE: usize = 200_000;
/// How many names are listed at a time, so that cursors are used.
const LIST_SIZE: usize = 61;

/// One name in a directory.
pub struct Name {
    /// The inode number it says.
    pub ino: InodeNumber,
    /// The kind it says.
    pub kind: FileKind,
    /// The name.
    pub name: Vec<u8>,
}

/// Everything in a directory but `.` and `..`, which must be there.
pub fn names(fs: &impl FileSystem, directory: InodeNumber) -> Vec<Name> {
    let mut names = Vec::new();
    let mut dots = 0;
    let mut cursor = 0;
    loop {
        let mut batch = 0;
        let mut complete = true;
        fs.read_directory(directory, cursor, &mut |entry| {
            if batch == LIST_SIZE {
                complete = false;
                return false;
            }
            batch += 1;
            cursor = entry.next;
            match entry.name {
                b"." | b".." => dots += 1,
                name => names.push(Name { ino: entry.ino, kind: entry.kind, name: name.to_vec() }),
            }
            true
        })
        .unwrap();
        if complete {
            assert_eq!(dots, 2, "directory {directory}");
            return names;
        }
    }
}

/// Everything a user can see of the volume, as `Manifest::of` records it.
pub fn manifest(fs: &impl FileSystem) -> Manifest {
    let mut manifest = Manifest::default();
    let mut inodes: HashMap<InodeNumber, Vec<Vec<u8>>> = HashMap::new();
    let top = fs.attributes(fs.root()).unwrap();
    manifest.entries.insert(b".".to_vec(), entry(fs, &top));
    let mut pending = vec![(fs.root(), b".".to_vec())];
    while let Some((directory, path)) = pending.pop() {
        for name in names(fs, directory) {
            if directory == fs.root() && name.name == b"lost+found" {
                continue;
            }
            let own = [&path, b"/".as_slice(), &name.name].concat();
            let shown = String::from_utf8_lossy(&own).into_owned();
            let found = fs.lookup(directory, &name.name).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!((found.ino, found.kind), (name.ino, name.kind), "{shown}");
            if found.kind == FileKind::Directory {
                pending.push((found.ino, own.clone()));
            } else if found.links > 1 {
                inodes.entry(found.ino).or_default().push(own.clone());
            }
            let previous = manifest.entries.insert(own, entry(fs, &found));
            assert!(previous.is_none(), "{shown} is listed twice");
            fs.forget(found.ino, 1);
        }
    }
    for names in inodes.into_values().filter(|names| names.len() > 1) {
        let first = names.iter().min().cloned();
        for name in names {
            if let Some(entry) = manifest.entries.get_mut(&name) {
                entry.same_as.clone_from(&first);
            }
        }
    }
    manifest
}

fn entry(fs: &impl FileSystem, found: &Attributes) -> Entry {
    let mut entry = Entry::new(match found.kind {
        FileKind::Regular => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::BlockDevice => Kind::BlockDevice,
        FileKind::CharDevice => Kind::CharacterDevice,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
    });
    entry.mode = Some(found.permissions);
    entry.owner = Some((found.uid, found.gid));
    entry.links = Some(u64::from(found.links));
    entry.mtime = Some((found.mtime.seconds, found.mtime.nanoseconds));
    match found.kind {
        FileKind::Regular => {
            entry.size = Some(found.size);
            entry.content = Some(content(fs, found));
        }
        FileKind::Symlink => {
            entry.size = Some(found.size);
            entry.target = Some(fs.read_link(found.ino).unwrap());
        }
        FileKind::BlockDevice | FileKind::CharDevice => entry.device = Some(device(found.rdev)),
        _ => {}
    }
    entry.xattrs = Some(xattrs(fs, found.ino));
    entry
}

fn content(fs: &impl FileSystem, found: &Attributes) -> u64 {
    let mut buffer = vec![0; READ_SIZE];
    let mut hasher = Hasher::new();
    let mut offset = 0;
    loop {
        let length = fs.read(found.ino, offset, &mut buffer).unwrap();
        if length == 0 {
            assert_eq!(offset, found.size, "inode {} ends early", found.ino);
            return hasher.finish();
        }
        hasher.update(&buffer[..length]);
        offset += length as u64;
    }
}

fn xattrs(fs: &impl FileSystem, ino: InodeNumber) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let list = fs.list_xattrs(ino).unwrap();
    let names = list.split_inclusive(|byte| *byte == 0).map(|name| name.strip_suffix(&[0]).unwrap());
    names.map(|name| (name.to_vec(), fs.get_xattr(ino, name).unwrap())).collect()
}

/// Major and minor number of a device number in the kernel's 32-bit form.
fn device(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xfff00))
}

/// The kernel's 32-bit form of a device number.
pub fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)
}
