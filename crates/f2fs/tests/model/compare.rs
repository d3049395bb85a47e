//! Compares what the engine shows with the model.

use std::collections::BTreeMap;

use basalt_vfs::{Attributes, DirectoryEntry, Error, FileKind, FileSystem, InodeNumber, Seek};

use crate::model::Inode;
use crate::run::{Outcome, World, failed};

/// Bytes read at once.
const STEP: u64 = 64 << 10;
/// Bytes read at both ends of a hole.
const EDGE: u64 = 5000;

impl World {
    /// Compares attributes that the engine returned. The size of a directory and the space taken are the engine's affair.
    pub fn same_attributes(&mut self, found: &Attributes) -> Outcome<()> {
        let mut expected = self.model.get(found.ino).map_err(failed("model"))?.attributes;
        expected.sectors = found.sectors;
        if expected.kind == FileKind::Directory {
            expected.size = found.size;
        }
        if expected == *found { Ok(()) } else { Err(format!("{found:?}\nexpected {expected:?}")) }
    }

    /// Compares everything.
    pub fn same_tree(&mut self) -> Outcome<()> {
        for ino in self.model.select(|_| true) {
            self.same_inode(ino)?;
        }
        Ok(())
    }

    /// Compares one inode: attributes, extended attributes, content.
    pub fn same_inode(&mut self, ino: InodeNumber) -> Outcome<()> {
        let attributes = self.fs.attributes(ino).map_err(|error| format!("inode {ino}: {error}"))?;
        self.same_attributes(&attributes)?;
        self.same_xattrs(ino)?;
        match attributes.kind {
            FileKind::Directory => self.same_listing(ino, 1000),
            FileKind::Symlink => self.same_target(ino),
            FileKind::Regular => self.same_content(ino, attributes.size),
            _ => Ok(()),
        }
    }

    fn same_xattrs(&mut self, ino: InodeNumber) -> Outcome<()> {
        let listed = self.fs.list_xattrs(ino).map_err(failed("listxattr"))?;
        let mut found: Vec<Vec<u8>> =
            listed.split_inclusive(|&byte| byte == 0).map(|name| name[..name.len() - 1].to_vec()).collect();
        found.sort();
        let expected = self.model.list_xattrs(ino).map_err(failed("model"))?;
        if found != expected {
            return Err(format!("inode {ino} has attributes {found:?}, expected {expected:?}"));
        }
        for name in expected {
            let value = self.fs.get_xattr(ino, &name).map_err(failed("getxattr"))?;
            if value != self.model.get_xattr(ino, &name).map_err(failed("model"))? {
                return Err(format!("inode {ino}: wrong value of {:?}", String::from_utf8_lossy(&name)));
            }
        }
        match self.fs.get_xattr(ino, b"user.never set") {
            Err(Error::NoAttribute) => Ok(()),
            other => Err(format!("an attribute that was never set: {other:?}")),
        }
    }

    fn same_target(&mut self, ino: InodeNumber) -> Outcome<()> {
        let now = basalt_f2fs::Clock::now(&*self.clock);
        let target = self.fs.read_link(ino).map_err(failed("readlink"))?;
        self.model.read_access(ino, now).map_err(failed("model"))?;
        let expected = &self.model.inodes[&ino].target;
        if target == *expected {
            Ok(())
        } else {
            Err(format!("inode {ino} leads to {} bytes, not {}", target.len(), expected.len()))
        }
    }

    /// Compares all data and the edges of all holes.
    fn same_content(&mut self, ino: InodeNumber, size: u64) -> Outcome<()> {
        let mut at = 0;
        while at < size {
            self.seek(ino, at, Seek::Data)?;
            let data = match self.fs.seek(ino, at, Seek::Data) {
                Ok(data) => data,
                Err(Error::NoData) => size,
                Err(error) => return Err(format!("seek: {error}")),
            };
            if data > at {
                self.read(ino, at, (data - at).min(EDGE) as usize)?;
                self.read(ino, data - (data - at).min(EDGE), EDGE as usize)?;
            }
            let hole = if data < size { self.fs.seek(ino, data, Seek::Hole).map_err(failed("seek"))? } else { size };
            at = data;
            while at < hole {
                self.read(ino, at, (hole - at).min(STEP) as usize)?;
                at = (at + STEP).min(hole);
            }
        }
        // Nothing comes behind the end.
        self.read(ino, size, 10)
    }

    /// Lists a directory in batches and compares; each batch goes on where the last one stopped.
    pub fn same_listing(&mut self, dir: InodeNumber, batch: usize) -> Outcome<()> {
        let now = basalt_f2fs::Clock::now(&*self.clock);
        let mut found = BTreeMap::new();
        let mut twice = None;
        let mut cursor = 0;
        loop {
            let mut left = batch;
            let from = cursor;
            let mut add = |entry: DirectoryEntry<'_>| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                cursor = entry.next;
                if found.insert(entry.name.to_vec(), (entry.ino, entry.kind)).is_some() {
                    twice = Some(entry.name.to_vec());
                }
                true
            };
            self.fs.read_directory(dir, from, &mut add).map_err(failed("readdir"))?;
            self.model.read_access(dir, now).map_err(failed("model"))?;
            if left == batch || twice.is_some() {
                break;
            }
        }
        if let Some(name) = twice {
            return Err(format!("directory {dir} lists {:?} twice", String::from_utf8_lossy(&name)));
        }
        self.same_entries(dir, &found)
    }

    fn same_entries(&mut self, dir: InodeNumber, found: &BTreeMap<Vec<u8>, (InodeNumber, FileKind)>) -> Outcome<()> {
        let inode: &Inode = &self.model.inodes[&dir];
        if inode.attributes.links == 0 {
            let stray = found.keys().find(|name| *name != b"." && *name != b"..");
            return stray.map_or(Ok(()), |name| Err(format!("removed directory {dir} has {name:?}")));
        }
        let mut expected: BTreeMap<Vec<u8>, (InodeNumber, FileKind)> = inode
            .entries
            .iter()
            .map(|(name, ino)| (name.clone(), (*ino, self.model.inodes[ino].attributes.kind)))
            .collect();
        expected.insert(b".".to_vec(), (dir, FileKind::Directory));
        expected.insert(b"..".to_vec(), (inode.parent, FileKind::Directory));
        for (name, entry) in &expected {
            if found.get(name) != Some(entry) {
                return Err(format!(
                    "directory {dir}: {:?} is {:?}, expected {entry:?}",
                    String::from_utf8_lossy(name),
                    found.get(name)
                ));
            }
        }
        let stray = found.keys().find(|name| !expected.contains_key(*name));
        stray.map_or(Ok(()), |name| Err(format!("directory {dir} has {:?}", String::from_utf8_lossy(name))))
    }
}
