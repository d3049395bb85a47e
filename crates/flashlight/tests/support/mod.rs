//! A model of a volume, and what tests share.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod full;
mod holes;
pub mod modes;
pub mod power;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hasher;

use basalt_flashlight::{
    Bytes, Change, Error, FlashLight, FormatOptions, Identity, InodeNumber, NewInode, Time, memory_bytes,
};
use basalt_nand::{Chip, ChipOptions, Ecc, Geometry, NandDevice, NandError, ReadStatus};
use basalt_random::Rng;
pub use holes::{expect_holes, hole, zero};
use siphasher::sip::SipHasher13;

pub type Device = Ecc<Chip, 4>;

pub fn chip(geometry: Geometry, seed: u64) -> Device {
    Ecc::new(Chip::new(ChipOptions { seed, ..ChipOptions::new(geometry) })).unwrap()
}

pub fn memory(geometry: &Geometry) -> Vec<u8> {
    vec![0; memory_bytes(geometry)]
}

pub fn format(device: &mut Device, memory: &mut [u8], seed: u64) {
    format_any(device, memory, seed);
}

pub fn format_any(device: &mut impl NandDevice, memory: &mut [u8], seed: u64) {
    let mut identity = Identity { uuid: [7; 16], label: [0; 64] };
    identity.uuid[..8].copy_from_slice(&seed.to_le_bytes());
    let options = FormatOptions { identity, now: Time::default() };
    FlashLight::format(device, memory, &options).unwrap().unmount().map_err(|(error, _)| error).unwrap();
}

pub fn volume_of<'m, 'd>(device: &'d mut Device, memory: &'m mut [u8]) -> FlashLight<&'m mut [u8], &'d mut Device> {
    FlashLight::mount(device, memory).unwrap()
}

pub fn new_file(mode: u32) -> NewInode {
    NewInode { mode: 0o100_000 | mode, uid: 1, gid: 2, rdev: 0, now: Time { seconds: 5, nanoseconds: 6 } }
}

pub const NOW: Time = Time { seconds: 1_700_000_000, nanoseconds: 17 };
const PUNCHED: Time = Time { seconds: 1_800_000_000, nanoseconds: 18 };

/// Names that have the same hash, in pairs: found by chance among many.
pub fn names_alike(uuid: &[u8; 16]) -> Vec<String> {
    let mut seen = HashMap::new();
    let mut alike = Vec::new();
    for name in (0..200_000).map(|at| format!("a{at}")) {
        if let Some(other) = seen.insert(name_hash(&name, uuid) & !7, name.clone()) {
            alike.extend([other, name]);
        }
    }
    alike
}

/// The hash of a name: but for its last three bits it is the key in a directory.
pub fn name_hash(name: &str, uuid: &[u8; 16]) -> u32 {
    let mut hasher = SipHasher13::new_with_key(uuid);
    hasher.write(name.as_bytes());
    hasher.finish() as u32
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File(Vec<u8>),
    Directory,
    Link(Vec<u8>),
}

/// The same tree in memory.
#[derive(Clone, Debug)]
pub struct Model {
    pub tree: BTreeMap<String, Node>,
    pub rng: Rng,
    most: usize,
    pub log: Vec<String>,
}

/// Looks a path up.
pub fn walk<M: Bytes, D: NandDevice>(volume: &mut FlashLight<M, D>, path: &str) -> Result<InodeNumber, Error> {
    let mut at = volume.root();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = volume.lookup(at, name.as_bytes())?;
    }
    Ok(at)
}

pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap()
}

impl Model {
    pub fn new(seed: u64, most: usize) -> Model {
        Model { tree: BTreeMap::new(), rng: Rng::new(seed), most, log: Vec::new() }
    }

    fn bytes(&self) -> usize {
        self.tree.values().map(|node| if let Node::File(content) = node { content.len() + 2048 } else { 4096 }).sum()
    }

    fn directory(&mut self) -> String {
        let all: Vec<&String> =
            self.tree.iter().filter(|(_, node)| **node == Node::Directory).map(|(path, _)| path).collect();
        if all.is_empty() || self.rng.chance(30) { String::new() } else { all[self.rng.index(all.len())].clone() }
    }

    fn name(&mut self) -> String {
        match self.rng.below(20) {
            0 => format!("{}{}", "long-name-".repeat(24), self.rng.below(4)),
            _ => format!("n{}", self.rng.below(40)),
        }
    }

    fn any(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<String> {
        let all: Vec<String> =
            self.tree.iter().filter(|(_, node)| wanted(node)).map(|(path, _)| path.clone()).collect();
        self.rng.pick(&all).cloned()
    }

    fn is_empty(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.tree.keys().any(|other| other.starts_with(&below))
    }

    /// One random operation on both.
    pub fn step<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        match self.rng.below(100) {
            0..20 => self.create(volume),
            20..26 => self.make_directory(volume),
            26..29 => self.link(volume),
            29..60 => self.write(volume),
            60..64 => self.truncate(volume),
            64..68 => self.punch(volume),
            68..80 => self.unlink(volume),
            80..84 => self.remove_directory(volume),
            84..93 => self.rename(volume),
            93..96 => self.sync_file(volume),
            96 => {
                self.log.push("sync".into());
                volume.sync().unwrap();
            }
            97 => {
                self.log.push("clean".into());
                volume.clean(2).unwrap();
            }
            _ => self.change(volume),
        }
    }

    fn create<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        if self.bytes() > self.most {
            return self.unlink(volume);
        }
        let path = format!("{}/{}", self.directory(), self.name());
        self.log.push(format!("create {path}"));
        let (directory, name) = split(&path);
        let parent = walk(volume, directory).unwrap();
        let made = volume.create(parent, name.as_bytes(), &new_file(0o644));
        self.made(path, made, Node::File(Vec::new()));
    }

    /// What is there already cannot be made.
    fn made(&mut self, path: String, made: Result<InodeNumber, Error>, node: Node) {
        match self.tree.entry(path) {
            Entry::Occupied(there) => assert_eq!(made, Err(Error::Exists), "{}", there.key()),
            Entry::Vacant(free) => {
                made.unwrap();
                free.insert(node);
            }
        }
    }

    fn make_directory<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let path = format!("{}/{}", self.directory(), self.name());
        if self.bytes() > self.most || path.matches('/').count() > 5 {
            return;
        }
        self.log.push(format!("mkdir {path}"));
        let (directory, name) = split(&path);
        let parent = walk(volume, directory).unwrap();
        let made = volume.make_directory(parent, name.as_bytes(), &new_file(0o755));
        self.made(path, made, Node::Directory);
    }

    fn link<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let path = format!("{}/{}", self.directory(), self.name());
        if self.tree.contains_key(&path) {
            return;
        }
        let target = "target/".repeat(self.rng.between(1, 220) as usize).into_bytes();
        self.log.push(format!("symlink {path} of {}", target.len()));
        let (directory, name) = split(&path);
        let parent = walk(volume, directory).unwrap();
        volume.link(parent, name.as_bytes(), &target, &new_file(0o777)).unwrap();
        self.tree.insert(path, Node::Link(target));
    }

    fn write<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let Some(path) = self.any(|node| matches!(node, Node::File(_))) else { return self.create(volume) };
        if self.bytes() > self.most {
            return self.unlink(volume);
        }
        let Some(Node::File(content)) = self.tree.get_mut(&path) else { unreachable!() };
        let length = match self.rng.below(4) {
            0 => self.rng.between(1, 3000),
            1 => self.rng.between(1, 200),
            2 => 2048 * self.rng.between(1, 4),
            _ => self.rng.between(1, 90_000),
        } as usize;
        let offset = match self.rng.below(4) {
            0 => content.len() as u64,
            1 => self.rng.below(60) * 2048,
            2 => self.rng.below(content.len() as u64 + 5000),
            _ => 0,
        };
        self.log.push(format!("write {path} {offset} {length}"));
        let mut bytes = vec![0; length];
        self.rng.fill(&mut bytes);
        let end = offset as usize + length;
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(&bytes);
        let number = walk(volume, &path).unwrap();
        volume.write(number, offset, &bytes, NOW).unwrap();
    }

    fn truncate<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let Some(path) = self.any(|node| matches!(node, Node::File(_))) else { return };
        let Some(Node::File(content)) = self.tree.get_mut(&path) else { unreachable!() };
        let length = self.rng.below(content.len() as u64 * 3 / 2 + 3000);
        self.log.push(format!("truncate {path} {length}"));
        content.resize(length as usize, 0);
        let number = walk(volume, &path).unwrap();
        volume.set_length(number, length, NOW).unwrap();
    }

    fn punch<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let Some(path) = self.any(|node| matches!(node, Node::File(_))) else { return };
        let Some(Node::File(content)) = self.tree.get_mut(&path) else { unreachable!() };
        let (offset, length) = hole(&mut self.rng, content.len());
        self.log.push(format!("punch {path} {offset} {length}"));
        zero(content, offset, length);
        let number = walk(volume, &path).unwrap();
        let before = volume.attributes(number).unwrap();
        volume.punch(number, offset, length, PUNCHED).unwrap();
        let after = volume.attributes(number).unwrap();
        assert_eq!((after.size, after.modified, after.changed), (before.size, PUNCHED, PUNCHED), "{path}");
        expect_holes(volume, number, content, (offset, length)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    fn unlink<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let Some(path) = self.any(|node| *node != Node::Directory) else { return };
        let open = self.rng.chance(25);
        self.log.push(format!("unlink {path} {open}"));
        let (directory, name) = split(&path);
        let parent = walk(volume, directory).unwrap();
        let number = walk(volume, &path).unwrap();
        volume.unlink(parent, name.as_bytes(), open, NOW).unwrap();
        let node = self.tree.remove(&path).unwrap();
        if open {
            let mut content = vec![0; 100_000];
            let length = volume.read(number, 0, &mut content).unwrap();
            if let Node::File(wanted) = node {
                assert!(content[..length] == wanted[..length.min(wanted.len())], "{path}");
            }
            assert_eq!(volume.attributes(number).unwrap().links, 0);
            volume.forget(number).unwrap();
        }
        assert_eq!(volume.attributes(number), Err(Error::NotFound), "{path}");
        assert_eq!(walk(volume, &path), Err(Error::NotFound), "{path}");
    }

    fn remove_directory<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let Some(path) = self.any(|node| *node == Node::Directory) else { return };
        self.log.push(format!("rmdir {path}"));
        let (directory, name) = split(&path);
        let parent = walk(volume, directory).unwrap();
        let done = volume.remove_directory(parent, name.as_bytes(), NOW);
        if self.is_empty(&path) {
            done.unwrap();
            self.tree.remove(&path);
        } else {
            assert_eq!(done, Err(Error::NotEmpty));
        }
    }

    fn rename<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let Some(from) = self.any(|_| true) else { return };
        let to = match self.any(|_| true) {
            Some(to) if self.rng.chance(50) => to,
            _ => format!("{}/{}", self.directory(), self.name()),
        };
        let open = self.rng.chance(20);
        self.log.push(format!("rename {from} {to} {open}"));
        let moved = self.tree[&from].clone();
        let replaced = self.tree.get(&to).cloned();
        let number = walk(volume, &from).unwrap();
        let old = walk(volume, &to).ok();
        let ends = |volume: &mut FlashLight<M, D>, path: &str| walk(volume, split(path).0).unwrap();
        let (from_parent, to_parent) = (ends(volume, &from), ends(volume, &to));
        let names = (split(&from).1.to_owned(), split(&to).1.to_owned());
        let done = volume.rename((from_parent, names.0.as_bytes()), (to_parent, names.1.as_bytes()), open, NOW);
        let directory = moved == Node::Directory;
        let below = directory && to.starts_with(&format!("{from}/"));
        let wanted = match &replaced {
            _ if from == to => Ok(()),
            Some(Node::Directory) if !directory => Err(Error::IsADirectory),
            Some(Node::File(_) | Node::Link(_)) if directory => Err(Error::NotADirectory),
            Some(Node::Directory) if !self.is_empty(&to) => Err(Error::NotEmpty),
            _ if below => Err(Error::Invalid),
            _ => Ok(()),
        };
        if matches!(moved, Node::Link(_)) && done == Err(Error::NameTooLong) {
            return;
        }
        assert_eq!(done, wanted, "{from} to {to}");
        if wanted.is_err() || from == to {
            return;
        }
        if let (Some(old), true) = (old, open && replaced.is_some() && !directory) {
            volume.forget(old).unwrap();
        }
        assert_eq!(walk(volume, &to), Ok(number), "the number stays");
        let start = format!("{from}/");
        let inside: Vec<String> = self.tree.keys().filter(|path| path.starts_with(&start)).cloned().collect();
        self.tree.remove(&from);
        self.tree.insert(to.clone(), moved);
        for path in inside {
            let node = self.tree.remove(&path).unwrap();
            self.tree.insert(format!("{to}/{}", &path[start.len()..]), node);
        }
    }

    fn sync_file<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let Some(path) = self.any(|_| true) else { return };
        self.log.push(format!("fsync {path}"));
        let number = walk(volume, &path).unwrap();
        volume.sync_file(number).unwrap();
    }

    fn change<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let Some(path) = self.any(|_| true) else { return };
        let number = walk(volume, &path).unwrap();
        let (permissions, uid) = (self.rng.below(0o1000) as u32, self.rng.below(5) as u32);
        let change = Change { permissions: Some(permissions), uid: Some(uid), ..Change::default() };
        volume.change(number, &change, NOW).unwrap();
        let found = volume.attributes(number).unwrap();
        assert_eq!((found.mode & 0o7777, found.uid, found.changed), (permissions, uid, NOW));
    }

    /// Data and holes of each file are where they may be; cut off, a file has nothing but its inode.
    pub fn check_holes<M: Bytes, D: NandDevice>(&mut self, volume: &mut FlashLight<M, D>) {
        let page = u64::from(volume.geometry().page_bytes);
        let paths: Vec<String> = self.tree.keys().cloned().collect();
        for path in paths {
            let Node::File(content) = &self.tree[&path] else { continue };
            let number = walk(volume, &path).unwrap();
            let said = expect_holes(volume, number, content, (0, 0));
            said.unwrap_or_else(|error| panic!("{path}: {error}: {:#?}", self.log));
            if self.rng.chance(20) {
                self.log.push(format!("empty {path}"));
                volume.set_length(number, 0, NOW).unwrap();
                assert_eq!(volume.attributes(number).unwrap().stored, page, "{path}: {:#?}", self.log);
                self.tree.insert(path, Node::File(Vec::new()));
            }
        }
    }

    /// Everything is there, and nothing else.
    pub fn check<M: Bytes, D: NandDevice>(&self, volume: &mut FlashLight<M, D>) {
        let found = tree(volume);
        for (path, node) in &self.tree {
            assert!(found.contains_key(path), "{path} is missing: {:#?}", self.log);
            if found[path] != *node {
                panic!("{path} differs: {} {:#?}", differ(&found[path], node), self.log);
            }
        }
        for path in found.keys() {
            assert!(self.tree.contains_key(path), "{path} should not be there: {:#?}", self.log);
        }
        assert_eq!(volume.usage().inodes as usize, found.len() + 1);
        let checked = volume.check().unwrap();
        assert!(checked.is_sound(), "{checked:?}: {:#?}", self.log);
    }
}

fn differ(found: &Node, wanted: &Node) -> String {
    match (found, wanted) {
        (Node::File(found), Node::File(wanted)) => {
            let at = found.iter().zip(wanted).position(|(one, other)| one != other);
            format!("{} and {} bytes, first difference {at:?}", found.len(), wanted.len())
        }
        _ => format!("{found:?} {wanted:?}"),
    }
}

/// All that a volume has.
pub fn tree<M: Bytes, D: NandDevice>(volume: &mut FlashLight<M, D>) -> BTreeMap<String, Node> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(volume.root(), String::new())];
    while let Some((directory, path)) = waiting.pop() {
        let mut from = Some(0);
        let mut entries = 0;
        while let Some(cookie) = from {
            let mut name = [0; 255];
            let Some(listed) = volume.list(directory, cookie, &mut name).unwrap() else { break };
            from = listed.next;
            entries += 1;
            let name = std::str::from_utf8(&name[..listed.name_length]).unwrap();
            let below = format!("{path}/{name}");
            assert_eq!(volume.lookup(directory, name.as_bytes()), Ok(listed.number), "{below}");
            let attributes = volume.attributes(listed.number).unwrap();
            assert_eq!(attributes.mode, listed.mode);
            let node = if attributes.is_directory() {
                waiting.push((listed.number, below.clone()));
                Node::Directory
            } else {
                let mut content = vec![0; attributes.size as usize];
                assert_eq!(volume.read(listed.number, 0, &mut content).unwrap(), content.len());
                if attributes.mode & 0o170_000 == 0o120_000 { Node::Link(content) } else { Node::File(content) }
            };
            assert!(found.insert(below, node).is_none(), "listed twice");
        }
        assert_eq!(volume.attributes(directory).unwrap().size, entries, "{path}");
    }
    found
}

/// A chip of which some pages cannot be read, until their block is erased.
pub struct Lossy<D> {
    pub device: D,
    pub lost: BTreeSet<u32>,
}

impl<D: NandDevice> NandDevice for Lossy<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, NandError> {
        let status = self.device.read(page, data, spare)?;
        if self.lost.contains(&page) {
            data.iter_mut().for_each(|byte| *byte = byte.rotate_left(3) ^ 0x5A);
            return Err(NandError::Uncorrectable { page });
        }
        Ok(status)
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<(), NandError> {
        self.device.program(page, data, spare)
    }

    fn erase(&mut self, block: u32) -> Result<(), NandError> {
        let geometry = self.geometry();
        self.lost.retain(|&page| geometry.block_of(page) != block);
        self.device.erase(block)
    }

    fn is_bad(&mut self, block: u32) -> Result<bool, NandError> {
        self.device.is_bad(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), NandError> {
        self.device.mark_bad(block)
    }
}

/// A chip whose power goes in the middle of a program of a root.
pub struct CutsRoots {
    pub device: Device,
    /// So many of them are still done.
    pub left: Option<u64>,
}

impl NandDevice for CutsRoots {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, NandError> {
        self.device.read(page, data, spare)
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<(), NandError> {
        if self.geometry().block_of(page) < 8 {
            if self.left == Some(0) {
                self.device.device().cut_power_at(0);
            }
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        self.device.program(page, data, spare)
    }

    fn erase(&mut self, block: u32) -> Result<(), NandError> {
        self.device.erase(block)
    }

    fn is_bad(&mut self, block: u32) -> Result<bool, NandError> {
        self.device.is_bad(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), NandError> {
        self.device.mark_bad(block)
    }
}
