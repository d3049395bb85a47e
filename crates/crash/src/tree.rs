//! What a volume should hold: the state after each step, cheap to keep for every one of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use basalt_testkit::rng::Rng;
use basalt_vfs::{FileKind, InodeNumber};

use crate::meta::Meta;
use crate::script::Step;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// An inode in the course of a run, whatever its number: numbers are used again.
pub type Id = u32;

/// The root's.
pub const ROOT: Id = 0;

/// The content of one page.
pub type Page = Arc<[u8; PAGE as usize]>;

/// One inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The file system's number for it.
    pub ino: InodeNumber,
    /// What it is.
    pub kind: FileKind,
    /// Attributes and times.
    pub meta: Meta,
    /// Bytes of a regular file.
    pub size: u64,
    /// Pages that are not all zero, by index.
    pub pages: BTreeMap<u64, Page>,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Names in a directory.
    pub entries: BTreeMap<String, Id>,
    /// Extended attributes by name, ACLs among them.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

impl Node {
    /// One without anything in it.
    pub fn new(ino: InodeNumber, kind: FileKind, meta: Meta) -> Node {
        Node {
            ino,
            kind,
            meta,
            size: 0,
            pages: BTreeMap::new(),
            target: Vec::new(),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let length = (PAGE as usize - within).min(data.len() - done);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[within..within + length].copy_from_slice(&data[done..done + length]);
            done += length;
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    fn zero(&mut self, from: u64, to: u64) {
        let touched: Vec<u64> = self.pages.range(from / PAGE..to.div_ceil(PAGE)).map(|(index, _)| *index).collect();
        for index in touched {
            let (first, last) = (from.max(index * PAGE), to.min((index + 1) * PAGE));
            if last - first == PAGE {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                Arc::make_mut(page)[(first % PAGE) as usize..][..(last - first) as usize].fill(0);
            }
        }
    }

    /// Sets the size of a regular file.
    fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size.next_multiple_of(PAGE));
        }
        self.size = size;
    }
}

/// All inodes that have a name or a handle.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: BTreeMap<Id, Arc<Node>>,
    /// Files that were made without a name and are still open, by handle.
    handles: BTreeMap<String, Id>,
    next: Id,
}

/// Where a step leads: directory and name.
type Place = (Id, String);

impl Tree {
    /// A tree of a root only.
    pub fn new(root: InodeNumber) -> Tree {
        let root = Node::new(root, FileKind::Directory, Meta::default());
        Tree { nodes: BTreeMap::from([(ROOT, Arc::new(root))]), handles: BTreeMap::new(), next: ROOT + 1 }
    }

    /// An inode that has a name or a handle.
    pub fn get(&self, id: Id) -> Option<&Arc<Node>> {
        self.nodes.get(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &Arc<Node>)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// Puts an inode in that was found on a volume; names are given with [`Tree::name`].
    pub fn adopt(&mut self, node: Node) -> Id {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Arc::new(node));
        id
    }

    /// Puts an inode in, or in place of the one that was there.
    pub fn insert(&mut self, id: Id, node: Node) {
        self.nodes.insert(id, Arc::new(node));
    }

    /// Changes an inode.
    pub fn change(&mut self, id: Id) -> Option<&mut Node> {
        self.nodes.get_mut(&id).map(Arc::make_mut)
    }

    /// Gives an inode a name.
    pub fn name(&mut self, directory: Id, name: &str, id: Id) {
        if let Some(node) = self.change(directory) {
            node.entries.insert(name.to_owned(), id);
        }
    }

    /// The inode at a path, or that a handle stands for.
    pub fn find(&self, path: &str) -> Option<Id> {
        if path.starts_with('@') {
            return self.handles.get(path).copied();
        }
        path.split('/').filter(|part| !part.is_empty()).try_fold(ROOT, |at, part| {
            let node = self.nodes.get(&at)?;
            node.entries.get(part).copied()
        })
    }

    /// The directory a path is in, and its last part.
    pub fn place(&self, path: &str) -> Option<Place> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Some((self.find(parent)?, name.to_owned()))
    }

    /// The paths of all directories and files, directories before what is in them.
    pub fn paths(&self) -> Vec<(String, Id)> {
        let mut paths = vec![(String::new(), ROOT)];
        let mut next = 0;
        while let Some((path, id)) = paths.get(next).cloned() {
            let slash = if path.is_empty() { "" } else { "/" };
            let entries = self.get(id).map(|node| &node.entries).into_iter().flatten();
            paths.extend(entries.map(|(name, child)| (format!("{path}{slash}{name}"), *child)));
            next += 1;
        }
        paths.remove(0);
        paths
    }

    /// The names of an inode.
    pub fn names_of(&self, id: Id) -> Vec<Place> {
        let named = |(dir, node): (Id, &Arc<Node>)| {
            let names = node.entries.iter().filter(|(_, entry)| **entry == id);
            names.map(|(name, _)| (dir, name.clone())).collect::<Vec<_>>()
        };
        self.iter().flat_map(named).collect()
    }

    /// Takes a name away, and the inode if it was its last.
    pub fn unname(&mut self, directory: Id, name: &str) {
        if let Some(id) = self.change(directory).and_then(|node| node.entries.remove(name)) {
            self.drop_if_unused(id);
        }
    }

    fn drop_if_unused(&mut self, id: Id) {
        if !self.handles.values().any(|held| *held == id) && self.names_of(id).is_empty() {
            self.nodes.remove(&id);
        }
    }

    /// Gives all handles back.
    fn release(&mut self) {
        for id in std::mem::take(&mut self.handles).into_values() {
            self.drop_if_unused(id);
        }
    }

    /// Whether this is the same as `other`, as far as can be said at no cost.
    pub fn is_same(&self, other: &Tree) -> bool {
        self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1))
    }

    /// What a step that succeeded does; `made` is the number of the inode it made. `None` if it could not have succeeded.
    pub fn apply(&mut self, step: &Step, made: InodeNumber) -> Option<()> {
        match step {
            Step::Create(path) => self.make(path, Node::new(made, FileKind::Regular, permissions(0o644))),
            Step::Mkdir(path) => self.make(path, Node::new(made, FileKind::Directory, permissions(0o755))),
            Step::Symlink(path, length) => {
                let target = symlink_target(path, *length);
                self.make(path, Node { target, ..Node::new(made, FileKind::Symlink, permissions(0o777)) })
            }
            Step::Special(path, kind, _) => self.make(path, Node::new(made, kind.kind(), Meta::default())),
            Step::Unnamed(handle) => {
                let id = self.adopt(Node::new(made, FileKind::Regular, Meta::default()));
                if let Some(before) = self.handles.insert(handle.clone(), id) {
                    self.drop_if_unused(before);
                }
                Some(())
            }
            Step::Link(from, to) => {
                let (id, (dir, name)) = (self.find(from)?, self.place(to)?);
                self.name(dir, &name, id);
                Some(())
            }
            Step::Unlink(path) | Step::Rmdir(path) => {
                self.find(path)?;
                let (dir, name) = self.place(path)?;
                self.unname(dir, &name);
                Some(())
            }
            Step::Rename(from, to) | Step::RenameNew(from, to) => self.rename(from, to),
            Step::Whiteout(from, to) => {
                let is_same = self.find(to) == Some(self.find(from)?);
                self.rename(from, to)?;
                if is_same { Some(()) } else { self.make(from, Node::new(made, FileKind::CharDevice, Meta::default())) }
            }
            Step::Exchange(from, to) => {
                let (one, other) = (self.find(from)?, self.find(to)?);
                let (one_place, other_place) = (self.place(from)?, self.place(to)?);
                self.name(one_place.0, &one_place.1, other);
                self.name(other_place.0, &other_place.1, one);
                Some(())
            }
            Step::Write(path, offset, length, seed) | Step::WriteBack(path, offset, length, seed) => {
                self.edit(path)?.write(*offset, &bytes(*seed, *length));
                Some(())
            }
            Step::Truncate(path, size) => {
                self.edit(path)?.resize(*size);
                Some(())
            }
            Step::Allocate(path, offset, length) => {
                let node = self.edit(path)?;
                node.size = node.size.max(offset + length);
                Some(())
            }
            Step::Punch(path, offset, length) | Step::ZeroKeep(path, offset, length) => {
                self.edit(path)?.zero(*offset, offset + length);
                Some(())
            }
            Step::Zero(path, offset, length) => {
                let node = self.edit(path)?;
                node.zero(*offset, offset + length);
                node.size = node.size.max(offset + length);
                Some(())
            }
            Step::SetXattr(path, name, length, seed) => {
                self.edit(path)?.xattrs.insert(xattr_name(*name), bytes(*seed, *length));
                Some(())
            }
            Step::RemoveXattr(path, name) => self.edit(path)?.xattrs.remove(&xattr_name(*name)).map(drop),
            Step::Release | Step::Remount => {
                self.release();
                Some(())
            }
            Step::Chmod(path, bits) => {
                self.edit(path)?.meta.permissions = *bits;
                Some(())
            }
            // What these set is taken over from the file system, and held against what was asked for.
            Step::Chown(..) | Step::Utimes(..) | Step::Flags(..) | Step::SetAcl(..) => Some(()),
            Step::Reserve(..) | Step::Hold(_) | Step::Fsync(_) | Step::Fdatasync(_) => Some(()),
            Step::Sync | Step::Tick(_) | Step::Statfs | Step::Trim | Step::Walk | Step::Defragment(_) => Some(()),
        }
    }

    fn edit(&mut self, path: &str) -> Option<&mut Node> {
        let id = self.find(path)?;
        self.change(id)
    }

    fn make(&mut self, path: &str, node: Node) -> Option<()> {
        let (dir, name) = self.place(path)?;
        let id = self.adopt(node);
        self.name(dir, &name, id);
        Some(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Option<()> {
        let id = self.find(from)?;
        let ((dir, name), (new_dir, new_name)) = (self.place(from)?, self.place(to)?);
        if self.find(to) == Some(id) {
            // Two names of one inode: nothing happens.
            return Some(());
        }
        self.change(dir)?.entries.remove(&name);
        self.unname(new_dir, &new_name);
        self.name(new_dir, &new_name, id);
        Some(())
    }
}

/// What a new inode says of itself: the file system decides about the rest.
fn permissions(permissions: u32) -> Meta {
    Meta { permissions, ..Meta::default() }
}

/// The target of a symbolic link at a path, of this length.
pub fn symlink_target(path: &str, length: u32) -> Vec<u8> {
    let first = path.bytes().map(usize::from).sum::<usize>();
    (0..length as usize).map(|at| b'a' + ((first + at + at / 26) % 26) as u8).collect()
}

/// The attribute of this number.
pub fn xattr_name(number: u8) -> String {
    format!("user.a{number}")
}

/// The bytes of a seed; never a whole page of zeros.
pub fn bytes(seed: u64, length: u32) -> Vec<u8> {
    let mut data = vec![0; length as usize];
    Rng::new(seed ^ 0xB17E).fill(&mut data);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(script: &str) -> Tree {
        let mut tree = Tree::new(3);
        for (number, line) in (100..).zip(script.lines()) {
            tree.apply(&line.parse().unwrap(), number).unwrap();
        }
        tree
    }

    #[test]
    fn names_lead_to_what_they_should() {
        let tree = tree("mkdir d\ncreate a\nlink a d/b\nrename a c\ncreate e\nrename e d/b\nexchange c d/b");
        let (c, b) = (tree.find("c").unwrap(), tree.find("d/b").unwrap());
        assert_eq!((tree.get(c).unwrap().ino, tree.get(b).unwrap().ino), (104, 101));
        assert_eq!(tree.names_of(b).len(), 1);
        assert_eq!(tree.find("a"), None);
        assert_eq!(tree.iter().count(), 4);
    }

    #[test]
    fn the_last_name_takes_the_inode_along() {
        let tree = tree("create a\nlink a b\nunlink a\ncreate c\nrename b c");
        assert_eq!(tree.iter().count(), 2);
        assert_eq!(tree.names_of(tree.find("c").unwrap()), [(ROOT, "c".to_owned())]);
    }

    #[test]
    fn content_follows_writes_holes_and_sizes() {
        let tree = tree("create a\nwrite a 4000 5000 1\npunch a 4096 4096\ntruncate a 8300\ntruncate a 9000");
        let node = tree.get(tree.find("a").unwrap()).unwrap();
        let data = bytes(1, 5000);
        assert_eq!(node.size, 9000);
        assert_eq!(node.pages.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(node.pages[&0][4000..], data[..96]);
        assert_eq!(node.pages[&2][..108], data[4192..4300]);
        assert_eq!(node.pages[&2][108..], [0; 4096 - 108]);
    }
}
