//! What can be read of a volume: every path with its attributes, and which blocks of content.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Attributes, DirectoryEntry, FileKind, FileSystem, InodeNumber, Seek, Time};

const BLOCK: u64 = 4096;
/// Deepest directory that is looked into.
const DEPTH_MAX: usize = 40;
/// Most blocks that are read of a file that nothing is known of: a damaged size may be anything.
const BLOCKS_MAX: usize = 4096;

/// What is under one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    /// Its inode.
    pub ino: InodeNumber,
    /// Type, owner, permissions, size, times and extended attributes in one number; `None` if they cannot be read.
    pub attributes: Option<u64>,
    /// Its content by blocks (for a symbolic link, its target); those that cannot be read are left out.
    pub blocks: BTreeMap<u64, u64>,
}

/// All that can be read.
#[derive(Debug, Default)]
pub struct Reading {
    /// What is there, by path.
    pub paths: BTreeMap<Vec<u8>, Thing>,
    /// Paths of each inode.
    pub of_inode: BTreeMap<InodeNumber, Vec<Vec<u8>>>,
}

impl Reading {
    /// What a read-only mount shows; nothing if there can be none. Of inodes that `known` has, only the blocks that these have are read.
    pub fn of_mount(device: Arc<dyn BlockDevice>, known: Option<&Reading>) -> Reading {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let opened = F2fs::open(device, options, Arc::new(SystemClock));
        opened.map(|fs| Reading::of(&fs, known)).unwrap_or_default()
    }

    /// What rescue shows.
    pub fn of_rescue(device: Arc<dyn BlockDevice>, known: Option<&Reading>) -> Reading {
        let opened = Rescued::open(device, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ());
        opened.map(|fs| Reading::of(&fs, known)).unwrap_or_default()
    }

    /// What is known of an inode.
    pub fn inode(&self, ino: InodeNumber) -> Option<&Thing> {
        self.paths.get(self.of_inode.get(&ino)?.first()?)
    }

    fn of(fs: &dyn FileSystem, known: Option<&Reading>) -> Reading {
        let mut reading = Reading::default();
        let mut seen = BTreeSet::from([fs.root()]);
        let mut open = vec![(Vec::new(), fs.root(), 0)];
        reading.add(fs, Vec::new(), fs.root(), known);
        while let Some((path, directory, depth)) = open.pop() {
            for (name, ino, kind) in list(fs, directory) {
                let path = [&path[..], b"/", &name].concat();
                reading.add(fs, path.clone(), ino, known);
                if kind == FileKind::Directory && depth < DEPTH_MAX && seen.insert(ino) {
                    open.push((path, ino, depth + 1));
                }
            }
        }
        reading
    }

    fn add(&mut self, fs: &dyn FileSystem, path: Vec<u8>, ino: InodeNumber, known: Option<&Reading>) {
        let known = known.and_then(|known| known.inode(ino));
        let thing = match self.inode(ino) {
            Some(thing) => thing.clone(),
            None => thing(fs, ino, known),
        };
        self.of_inode.entry(ino).or_default().push(path.clone());
        self.paths.insert(path, thing);
    }
}

fn list(fs: &dyn FileSystem, directory: InodeNumber) -> Vec<(Vec<u8>, InodeNumber, FileKind)> {
    let mut found = Vec::new();
    // What comes before damage counts.
    let _ = fs.read_directory(directory, 0, &mut |entry: DirectoryEntry<'_>| {
        if entry.name != b"." && entry.name != b".." {
            found.push((entry.name.to_vec(), entry.ino, entry.kind));
        }
        true
    });
    found
}

fn thing(fs: &dyn FileSystem, ino: InodeNumber, known: Option<&Thing>) -> Thing {
    let Ok(attributes) = fs.attributes(ino) else {
        return Thing { ino, attributes: None, blocks: BTreeMap::new() };
    };
    let blocks = match attributes.kind {
        FileKind::Regular => match known {
            Some(known) => known.blocks.keys().filter_map(|&block| Some((block, read(fs, ino, block)?))).collect(),
            None => content(fs, ino, attributes.size),
        },
        FileKind::Symlink => fs.read_link(ino).map(|target| BTreeMap::from([(0, digest(&target))])).unwrap_or_default(),
        _ => BTreeMap::new(),
    };
    Thing { ino, attributes: describe(fs, &attributes), blocks }
}

fn digest(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn describe(fs: &dyn FileSystem, attributes: &Attributes) -> Option<u64> {
    // A directory that rescue made up, because it is gone.
    if attributes.kind == FileKind::Directory && attributes.mtime == Time::default() {
        return None;
    }
    let mut xattrs = Vec::new();
    for name in fs.list_xattrs(attributes.ino).ok()?.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        xattrs.push((name.to_vec(), fs.get_xattr(attributes.ino, name).ok()?));
    }
    let of = attributes;
    let is_directory = of.kind == FileKind::Directory;
    // What a repair may count anew: links; of directories size and times.
    let size = if is_directory { 0 } else { of.size };
    let mtime = if is_directory { 0 } else { of.mtime.seconds };
    Some(digest(&(of.mode(), of.uid, of.gid, of.rdev, size, mtime, of.generation, xattrs)))
}

fn read(fs: &dyn FileSystem, ino: InodeNumber, block: u64) -> Option<u64> {
    let mut bytes = vec![0; BLOCK as usize];
    let length = fs.read(ino, block * BLOCK, &mut bytes).ok()?;
    Some(digest(&bytes[..length]))
}

/// The blocks of a sound file that are no holes.
fn content(fs: &dyn FileSystem, ino: InodeNumber, size: u64) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while found.len() < BLOCKS_MAX {
        match fs.seek(ino, at, Seek::Data) {
            Ok(data) if data < size => at = data / BLOCK * BLOCK,
            _ => break,
        }
        found.extend(read(fs, ino, at / BLOCK).map(|bytes| (at / BLOCK, bytes)));
        at += BLOCK;
    }
    found
}
