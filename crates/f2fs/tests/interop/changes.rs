//! Random changes to a tree through the file-system interface: the same seed on the same tree does the same.

use std::collections::HashMap;

use basalt_testkit::rng::Rng;
use basalt_vfs::{
    Attributes, Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags, SetAttributes, SetTime,
    Time, XattrFlags,
};

use crate::listing::names;

const CALLER: Caller = Caller { uid: 1000, gid: 1000, umask: 0o022 };
const PLAIN: NewNode<'static> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Applies `operations` random changes; pieces written are at most `max_size` bytes.
pub fn change(fs: &impl FileSystem, seed: u64, operations: u32, max_size: u64) {
    let mut forest = Forest { fs, rng: Rng::new(seed), max_size, top: fs.root(), ..Forest::scan(fs) };
    for _ in 0..operations {
        forest.step();
    }
}

/// A name somewhere.
#[derive(Clone, PartialEq)]
struct Place {
    directory: InodeNumber,
    name: Vec<u8>,
}

struct Forest<'a, F> {
    fs: &'a F,
    rng: Rng,
    max_size: u64,
    top: InodeNumber,
    /// Every directory but the top, with its place.
    directories: Vec<(InodeNumber, Place)>,
    files: Vec<Place>,
    /// Symbolic links and special files.
    others: Vec<Place>,
}

impl<'a, F: FileSystem> Forest<'a, F> {
    fn scan(fs: &'a F) -> Forest<'a, F> {
        let mut forest = Forest {
            fs,
            rng: Rng::new(0),
            max_size: 0,
            top: fs.root(),
            directories: Vec::new(),
            files: Vec::new(),
            others: Vec::new(),
        };
        let mut pending = vec![fs.root()];
        while let Some(directory) = pending.pop() {
            let mut inside = names(fs, directory);
            inside.sort_by(|one, two| one.name.cmp(&two.name));
            for found in inside {
                let place = Place { directory, name: found.name };
                match found.kind {
                    FileKind::Directory if directory == fs.root() && place.name == b"lost+found" => {}
                    FileKind::Directory => {
                        pending.push(found.ino);
                        forest.directories.push((found.ino, place));
                    }
                    FileKind::Regular => forest.files.push(place),
                    _ => forest.others.push(place),
                }
            }
        }
        forest
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..14 => self.create(),
            14..19 => self.make_directory(),
            19..29 => self.append(),
            29..43 => self.overwrite(),
            43..51 => self.truncate(),
            51..61 => self.delete(),
            61..63 => self.remove_directory(),
            63..71 => self.rename(),
            71..73 => self.rename_directory(),
            73..75 => self.exchange(),
            75..79 => self.link(),
            79..82 => self.symlink(),
            82..83 => self.special(),
            83..86 => self.set_mode_and_owner(),
            86..90 => self.set_xattr(),
            90..92 => self.remove_xattr(),
            92..96 => self.allocate(),
            96..98 => self.sync_file(),
            98..99 => self.unnamed(),
            _ => self.fs.sync().unwrap(),
        }
    }

    fn directory(&mut self) -> InodeNumber {
        let number = self.rng.index(self.directories.len() + 1);
        self.directories.get(number).map_or(self.top, |(ino, _)| *ino)
    }

    fn fresh(&mut self) -> Place {
        let directory = self.directory();
        loop {
            let length = if self.rng.chance(80) { self.rng.between(4, 20) } else { self.rng.between(1, 255) };
            let name = (0..length).map(|_| match self.rng.between(1, 255) as u8 {
                b'/' | b'.' => b'_',
                byte => byte,
            });
            let place = Place { directory, name: name.collect() };
            match self.fs.lookup(directory, &place.name) {
                Ok(found) => self.fs.forget(found.ino, 1),
                Err(basalt_vfs::Error::NotFound) => return place,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn file(&mut self) -> Option<Attributes> {
        let place = self.rng.pick(&self.files).cloned()?;
        Some(self.find(&place))
    }

    /// Any file or directory, or `None`.
    fn any(&mut self) -> Option<Attributes> {
        if self.rng.chance(70) {
            return self.file();
        }
        let (_, place) = self.rng.pick(&self.directories).cloned()?;
        Some(self.find(&place))
    }

    /// What is at a place. It has a name, so it lives on without a reference.
    fn find(&self, place: &Place) -> Attributes {
        let found = self.fs.lookup(place.directory, &place.name).unwrap();
        self.fs.forget(found.ino, 1);
        found
    }

    fn content(&mut self) -> Vec<u8> {
        let mut content = vec![0; self.rng.size(self.max_size) as usize];
        if self.rng.chance(85) {
            self.rng.fill(&mut content);
        }
        content
    }

    fn make(&mut self, node: &NewNode<'_>) -> (InodeNumber, Place) {
        let place = self.fresh();
        let made = self.fs.create(place.directory, &place.name, node, &CALLER).unwrap();
        self.fs.forget(made.ino, 1);
        (made.ino, place)
    }

    fn create(&mut self) {
        let (ino, place) = self.make(&PLAIN);
        let content = self.content();
        self.fs.write(ino, 0, &content, false).unwrap();
        self.stamp(ino);
        self.files.push(place);
    }

    fn make_directory(&mut self) {
        let node = NewNode { kind: FileKind::Directory, permissions: 0o755, ..PLAIN };
        let made = self.make(&node);
        self.directories.push(made);
    }

    fn symlink(&mut self) {
        let length = if self.rng.chance(20) { self.rng.between(3_000, 4_000) } else { self.rng.between(1, 100) };
        let target: Vec<u8> = (0..length).map(|_| b'a' + self.rng.below(26) as u8).collect();
        let node = NewNode { kind: FileKind::Symlink, permissions: 0o777, target: &target, ..PLAIN };
        let (_, place) = self.make(&node);
        self.others.push(place);
    }

    fn special(&mut self) {
        let kinds = [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];
        let kind = kinds[self.rng.index(kinds.len())];
        let rdev = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => self.rng.next_u64() as u32,
            _ => 0,
        };
        let (_, place) = self.make(&NewNode { kind, rdev, ..PLAIN });
        self.others.push(place);
    }

    /// A file that gets its name only when it is complete, or never.
    fn unnamed(&mut self) {
        let directory = self.directory();
        let made = self.fs.create_unnamed(directory, 0o600, &CALLER).unwrap();
        let content = self.content();
        self.fs.write(made.ino, 0, &content, false).unwrap();
        if self.rng.chance(70) {
            let place = self.fresh();
            self.fs.link(made.ino, place.directory, &place.name).unwrap();
            self.fs.forget(made.ino, 1);
            self.files.push(place);
        }
        self.fs.forget(made.ino, 1);
    }

    fn append(&mut self) {
        let Some(file) = self.file() else { return };
        let content = self.content();
        self.fs.write(file.ino, file.size, &content, true).unwrap();
    }

    fn overwrite(&mut self) {
        let Some(file) = self.file() else { return };
        let offset = self.rng.below(file.size + 1);
        let content = self.content();
        self.fs.write(file.ino, offset, &content, true).unwrap();
        self.stamp(file.ino);
    }

    fn truncate(&mut self) {
        let Some(file) = self.file() else { return };
        let grow = self.rng.below(4 * self.max_size);
        let size = if self.rng.chance(70) { self.rng.below(file.size + 1) } else { file.size + grow };
        let change = SetAttributes { size: Some(size), ..Default::default() };
        self.fs.set_attributes(file.ino, &change).unwrap();
    }

    fn delete(&mut self) {
        let list = if self.rng.chance(85) { &mut self.files } else { &mut self.others };
        if list.is_empty() {
            return;
        }
        let place = list.swap_remove(self.rng.index(list.len()));
        self.fs.unlink(place.directory, &place.name).unwrap();
    }

    fn remove_directory(&mut self) {
        if self.directories.is_empty() {
            return;
        }
        let index = self.rng.index(self.directories.len());
        let (ino, place) = self.directories[index].clone();
        let empty = names(self.fs, ino).is_empty();
        match self.fs.remove_directory(place.directory, &place.name) {
            Ok(()) => {
                assert!(empty);
                self.directories.swap_remove(index);
            }
            Err(basalt_vfs::Error::NotEmpty) => assert!(!empty),
            Err(error) => panic!("{error}"),
        }
    }

    fn rename(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let index = self.rng.index(self.files.len());
        let old = self.files[index].clone();
        let new = if self.rng.chance(50) { self.fresh() } else { self.files[self.rng.index(self.files.len())].clone() };
        let same = self.files.contains(&new) && self.find(&new).ino == self.find(&old).ino;
        let flags = if self.rng.chance(5) { RenameFlags::WHITEOUT } else { RenameFlags::empty() };
        self.fs.rename(old.directory, &old.name, new.directory, &new.name, flags, &CALLER).unwrap();
        if same {
            return;
        }
        self.files.swap_remove(index);
        if flags == RenameFlags::WHITEOUT {
            self.others.push(old);
        }
        if !self.files.contains(&new) {
            self.files.push(new);
        }
    }

    /// Whether the directory `inner` is `outer`, or somewhere in it.
    fn is_inside(&self, inner: InodeNumber, outer: InodeNumber) -> bool {
        let parents: HashMap<InodeNumber, InodeNumber> =
            self.directories.iter().map(|(ino, place)| (*ino, place.directory)).collect();
        let mut up = Some(inner);
        while let Some(ino) = up {
            if ino == outer {
                return true;
            }
            up = parents.get(&ino).copied();
        }
        false
    }

    fn rename_directory(&mut self) {
        if self.directories.is_empty() {
            return;
        }
        let index = self.rng.index(self.directories.len());
        let (ino, old) = self.directories[index].clone();
        let new = self.fresh();
        if self.is_inside(new.directory, ino) {
            return;
        }
        self.fs.rename(old.directory, &old.name, new.directory, &new.name, RenameFlags::NO_REPLACE, &CALLER).unwrap();
        self.directories[index].1 = new;
    }

    /// A file with a file, or with a directory that it is not in.
    fn exchange(&mut self) {
        let (Some(one), Some(two)) = (self.rng.pick(&self.files).cloned(), self.rng.pick(&self.files).cloned()) else {
            return;
        };
        if self.rng.chance(50) || self.directories.is_empty() {
            self.fs.rename(one.directory, &one.name, two.directory, &two.name, RenameFlags::EXCHANGE, &CALLER).unwrap();
            return;
        }
        let index = self.rng.index(self.directories.len());
        let (ino, place) = self.directories[index].clone();
        if self.is_inside(one.directory, ino) {
            return;
        }
        self.fs.rename(one.directory, &one.name, place.directory, &place.name, RenameFlags::EXCHANGE, &CALLER).unwrap();
        self.directories[index].1 = one.clone();
        self.files.retain(|file| *file != one);
        self.files.push(place);
    }

    fn link(&mut self) {
        let Some(file) = self.file() else { return };
        let place = self.fresh();
        self.fs.link(file.ino, place.directory, &place.name).unwrap();
        self.fs.forget(file.ino, 1);
        self.files.push(place);
    }

    fn set_mode_and_owner(&mut self) {
        let Some(found) = self.any() else { return };
        let (permissions, uid) = (self.rng.below(0o10000) as u32, self.rng.below(100_000) as u32);
        let change = SetAttributes { permissions: Some(permissions), uid: Some(uid), ..Default::default() };
        self.fs.set_attributes(found.ino, &change).unwrap();
    }

    fn set_xattr(&mut self) {
        let Some(found) = self.any() else { return };
        let space = if self.rng.chance(70) { "user" } else { "trusted" };
        let name = format!("{space}.basalt{}", self.rng.below(3));
        let mut value = vec![0; self.rng.size(400) as usize];
        self.rng.fill(&mut value);
        self.fs.set_xattr(found.ino, name.as_bytes(), &value, XattrFlags::empty()).unwrap();
    }

    fn remove_xattr(&mut self) {
        let Some(found) = self.any() else { return };
        let list = self.fs.list_xattrs(found.ino).unwrap();
        let names: Vec<&[u8]> = list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        if let Some(name) = self.rng.pick(&names) {
            self.fs.remove_xattr(found.ino, name).unwrap();
        }
    }

    fn allocate(&mut self) {
        let Some(file) = self.file() else { return };
        let modes = [
            FallocateMode::empty(),
            FallocateMode::KEEP_SIZE,
            FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
            FallocateMode::ZERO_RANGE,
            FallocateMode::ZERO_RANGE | FallocateMode::KEEP_SIZE,
        ];
        let mode = modes[self.rng.index(modes.len())];
        let offset = self.rng.below(file.size + self.max_size);
        let length = self.rng.between(1, self.max_size);
        self.fs.fallocate(file.ino, mode, offset, length).unwrap();
    }

    fn sync_file(&mut self) {
        let Some(file) = self.file() else { return };
        let data_only = self.rng.chance(50);
        self.fs.sync_file(file.ino, data_only).unwrap();
    }

    fn stamp(&mut self, ino: InodeNumber) {
        let seconds = self.rng.below(4_000_000_000) as i64 - 1_000_000_000;
        let time = SetTime::To(Time { seconds, nanoseconds: self.rng.below(1_000_000_000) as u32 });
        let times = SetAttributes { mtime: Some(time), atime: Some(time), ..Default::default() };
        self.fs.set_attributes(ino, &times).unwrap();
    }
}
