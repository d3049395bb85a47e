//! What POSIX and Linux say a file system does, in memory.

mod attributes;
mod content;
mod names;

pub use attributes::ACL_NAMES;
pub use content::SIZE_MAX;

use std::collections::BTreeMap;

use basalt_f2fs::Atime;
use basalt_vfs::acl::Acl;
use basalt_vfs::{Attributes, DirectoryEntry, Error, FileKind, FileSystem, InodeFlags, InodeNumber, Result, Time};

use crate::content::Content;
use crate::shape::Shape;

/// Seconds after which relatime renews an access time.
const DAY: i64 = 24 * 60 * 60;

/// Bytes of a node that hold extended attributes, and of an inode.
const XATTR_NODE: usize = 4072;
const XATTR_INLINE: usize = 200;

/// One inode.
#[derive(Debug, Clone)]
pub struct Inode {
    /// What stat should show; `sectors` is not modelled.
    pub attributes: Attributes,
    /// References that were given out.
    pub references: u64,
    /// Content of a regular file.
    pub content: Content,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Entries of a directory, without `.` and `..`.
    pub entries: BTreeMap<Vec<u8>, InodeNumber>,
    /// The directory that a directory is in.
    pub parent: InodeNumber,
    /// Extended attributes, ACLs excepted.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes that they and the ACLs may take.
    pub xattr_room: usize,
    /// Access and default ACL.
    pub acls: [Option<Acl>; 2],
}

impl Inode {
    fn new(attributes: Attributes, parent: InodeNumber) -> Inode {
        Inode {
            attributes,
            references: 0,
            content: Content::default(),
            target: Vec::new(),
            entries: BTreeMap::new(),
            parent,
            xattrs: BTreeMap::new(),
            xattr_room: XATTR_NODE + XATTR_INLINE,
            acls: [None, None],
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }

    /// Whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.attributes.kind == FileKind::Regular
    }

    fn has(&self, flags: InodeFlags) -> bool {
        self.attributes.flags.intersects(flags)
    }

    /// Content and attributes changed.
    fn touch(&mut self, now: Time) {
        self.attributes.mtime = now;
        self.attributes.ctime = now;
    }
}

/// The whole file system.
#[derive(Debug, Clone)]
pub struct Model {
    /// All inodes that exist, unlinked ones in use included.
    pub inodes: BTreeMap<InodeNumber, Inode>,
    /// The root.
    pub root: InodeNumber,
    /// The volume behind it.
    pub shape: Shape,
}

impl Model {
    /// The model of a fresh volume: its root, and `lost+found` if it has one.
    pub fn of_fresh(fs: &dyn FileSystem, shape: Shape) -> Result<Model> {
        let root = fs.root();
        let mut model = Model { inodes: BTreeMap::new(), root, shape };
        // The inodes of a fresh volume keep no room for attributes.
        let made = |attributes| Inode { xattr_room: XATTR_NODE, ..Inode::new(attributes, root) };
        model.inodes.insert(root, made(fs.attributes(root)?));
        let mut names = Vec::new();
        fs.read_directory(root, 0, &mut |entry: DirectoryEntry<'_>| {
            names.push((entry.name.to_vec(), entry.ino));
            true
        })?;
        model.read_access(root, fs.attributes(root)?.atime)?;
        for (name, ino) in names {
            if name == b"." || name == b".." {
                continue;
            }
            model.inodes.insert(ino, made(fs.attributes(ino)?));
            model.get(root)?.entries.insert(name, ino);
        }
        // Listing may have renewed it.
        model.get(root)?.attributes = fs.attributes(root)?;
        Ok(model)
    }

    /// An inode, to look at or change.
    pub fn get(&mut self, ino: InodeNumber) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Error::Stale)
    }

    fn directory(&mut self, ino: InodeNumber) -> Result<&mut Inode> {
        let inode = self.get(ino)?;
        if inode.is_directory() { Ok(inode) } else { Err(Error::NotDirectory) }
    }

    fn regular(&mut self, ino: InodeNumber) -> Result<&mut Inode> {
        let inode = self.get(ino)?;
        match inode.attributes.kind {
            FileKind::Regular => Ok(inode),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Fails for immutable and append-only inodes.
    fn expect_changeable(&mut self, ino: InodeNumber) -> Result<()> {
        if self.get(ino)?.has(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Error::NotPermitted("flags"));
        }
        Ok(())
    }

    /// Fails for immutable inodes.
    fn expect_mutable(&mut self, ino: InodeNumber) -> Result<()> {
        if self.get(ino)?.has(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted("flags"));
        }
        Ok(())
    }

    /// Content was read: renews the access time as the mount wants it.
    pub fn read_access(&mut self, ino: InodeNumber, now: Time) -> Result<()> {
        let policy = self.shape.atime;
        let inode = self.get(ino)?;
        let attributes = &mut inode.attributes;
        let quiet = attributes.flags.intersects(InodeFlags::NOATIME | InodeFlags::IMMUTABLE);
        let old = attributes.atime;
        let stale = old <= attributes.mtime || old <= attributes.ctime || now.seconds - old.seconds >= DAY;
        if !quiet && (policy == Atime::Strict || policy == Atime::Relatime && stale) {
            attributes.atime = now;
        }
        Ok(())
    }

    /// One more reference was given out.
    pub fn hold(&mut self, ino: InodeNumber) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.references += 1;
        }
    }

    /// References come back; an inode without links goes with the last.
    pub fn forget(&mut self, ino: InodeNumber, count: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.references = inode.references.saturating_sub(count);
        }
        self.reap(ino);
    }

    /// The volume is closed: all references end.
    pub fn end_references(&mut self) {
        self.inodes.values_mut().for_each(|inode| inode.references = 0);
        self.inodes.retain(|_, inode| inode.attributes.links > 0);
    }

    fn reap(&mut self, ino: InodeNumber) {
        if self.inodes.get(&ino).is_some_and(|inode| inode.attributes.links == 0 && inode.references == 0) {
            self.inodes.remove(&ino);
        }
    }

    /// All inodes for which `wanted` holds, in order of their numbers.
    pub fn select(&self, wanted: impl Fn(&Inode) -> bool) -> Vec<InodeNumber> {
        self.inodes.iter().filter(|(_, inode)| wanted(inode)).map(|(ino, _)| *ino).collect()
    }
}
