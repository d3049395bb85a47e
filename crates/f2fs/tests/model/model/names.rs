//! Making, finding, linking, removing and renaming.

use basalt_vfs::acl::Acl;
use basalt_vfs::{Attributes, Caller, Error, FileKind, InodeFlags, InodeNumber, NewNode, RenameFlags, Result, Time};

use super::{Inode, Model};

const SET_GID: u32 = 0o2000;
const NAME_MAX: usize = 255;

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("name"));
    }
    Ok(())
}

fn is_special(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

impl Model {
    /// What a name leads to.
    pub fn lookup(&mut self, parent: InodeNumber, name: &[u8]) -> Result<InodeNumber> {
        check_name(name)?;
        let up = self.directory(parent)?.parent;
        match name {
            b"." => Ok(parent),
            b".." => Ok(up),
            _ => self.directory(parent)?.entries.get(name).copied().ok_or(Error::NotFound),
        }
    }

    /// A directory that may get entries.
    fn expect_open(&mut self, dir: InodeNumber) -> Result<()> {
        self.directory(dir)?;
        self.expect_mutable(dir)?;
        if self.get(dir)?.attributes.links == 0 { Err(Error::NotFound) } else { Ok(()) }
    }

    /// What a new inode in `dir` looks like, its number and generation aside.
    fn newborn(&mut self, dir: InodeNumber, node: &NewNode<'_>, caller: &Caller, now: Time) -> Result<Inode> {
        let (has_projects, records_creation) = (self.shape.has_projects(), self.shape.records_creation());
        let parent = self.get(dir)?;
        let is_directory = node.kind == FileKind::Directory;
        let is_symlink = node.kind == FileKind::Symlink;
        let default = parent.acls[1].clone().filter(|_| !is_symlink);
        let inherited = default.map(|acl| Acl::inherit(&acl, node.permissions, is_directory));
        let mut permissions = match &inherited {
            Some(inherited) => inherited.mode,
            None if is_symlink => 0o777,
            None => node.permissions & !caller.umask,
        } & 0o7777;
        let from = &parent.attributes;
        let group = from.permissions & SET_GID != 0;
        if group && is_directory {
            permissions |= SET_GID;
        }
        let quiet = InodeFlags::NODUMP | InodeFlags::NOATIME;
        let inheritable = match node.kind {
            FileKind::Directory => quiet | InodeFlags::SYNC | InodeFlags::DIRSYNC | InodeFlags::PROJECT_INHERIT,
            FileKind::Regular => quiet | InodeFlags::SYNC,
            _ => quiet,
        };
        let inherits_project = has_projects && from.flags.contains(InodeFlags::PROJECT_INHERIT);
        let is_device = matches!(node.kind, FileKind::BlockDevice | FileKind::CharDevice);
        let attributes = Attributes {
            ino: 0,
            generation: 0,
            kind: node.kind,
            permissions,
            links: if is_directory { 2 } else { 1 },
            uid: caller.uid,
            gid: if group { from.gid } else { caller.gid },
            rdev: if is_device { node.rdev } else { 0 },
            size: node.target.len() as u64,
            sectors: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: records_creation.then_some(now),
            flags: from.flags & inheritable,
            project_id: if inherits_project { from.project_id } else { 0 },
        };
        let mut inode = Inode::new(attributes, dir);
        inode.target = node.target.to_vec();
        if let Some(inherited) = inherited {
            inode.acls = [inherited.access, inherited.default];
        }
        Ok(inode)
    }

    /// Makes a named inode; `made` is what the engine says about it. Without it, only says whether it could be made.
    pub fn create(
        &mut self,
        dir: InodeNumber,
        name: &[u8],
        node: &NewNode<'_>,
        caller: &Caller,
        made: Option<&Attributes>,
        now: Time,
    ) -> Result<()> {
        check_name(name)?;
        self.expect_open(dir)?;
        if node.target.len() >= 4096 {
            return Err(Error::NameTooLong);
        }
        if is_special(name) || self.get(dir)?.entries.contains_key(name) {
            return Err(Error::Exists);
        }
        let Some(made) = made else { return Ok(()) };
        let inode = self.newborn(dir, node, caller, now)?;
        self.adopt(inode, made)?;
        let parent = self.get(dir)?;
        parent.entries.insert(name.to_vec(), made.ino);
        parent.attributes.links += u32::from(node.kind == FileKind::Directory);
        parent.touch(now);
        Ok(())
    }

    /// Makes an unnamed file.
    pub fn create_unnamed(
        &mut self,
        dir: InodeNumber,
        permissions: u32,
        caller: &Caller,
        made: Option<&Attributes>,
        now: Time,
    ) -> Result<()> {
        self.expect_open(dir)?;
        let Some(made) = made else { return Ok(()) };
        let node = NewNode { kind: FileKind::Regular, permissions, rdev: 0, target: b"" };
        let mut inode = self.newborn(dir, &node, caller, now)?;
        inode.attributes.links = 0;
        self.adopt(inode, made)
    }

    /// Gives a new inode the number that the engine chose, held once.
    fn adopt(&mut self, mut inode: Inode, made: &Attributes) -> Result<()> {
        inode.attributes.ino = made.ino;
        inode.attributes.generation = made.generation;
        // Flags that no user can set are the engine's business; they must not change later.
        inode.attributes.flags |= made.flags.intersection(InodeFlags::from_bits_retain(0x1000));
        inode.references = 1;
        let old = self.inodes.insert(made.ino, inode);
        assert!(old.is_none(), "inode number {} was given out twice", made.ino);
        Ok(())
    }

    /// Gives an inode one more name.
    pub fn link(&mut self, ino: InodeNumber, dir: InodeNumber, name: &[u8], now: Time) -> Result<()> {
        check_name(name)?;
        self.expect_open(dir)?;
        if self.get(ino)?.is_directory() {
            return Err(Error::NotPermitted("directory"));
        }
        self.expect_changeable(ino)?;
        self.expect_same_project(dir, ino)?;
        if is_special(name) || self.get(dir)?.entries.contains_key(name) {
            return Err(Error::Exists);
        }
        self.get(dir)?.entries.insert(name.to_vec(), ino);
        self.get(dir)?.touch(now);
        let inode = self.get(ino)?;
        inode.attributes.links += 1;
        inode.attributes.ctime = now;
        Ok(())
    }

    /// An entry that may be removed.
    fn expect_removable(&mut self, dir: InodeNumber, name: &[u8]) -> Result<InodeNumber> {
        let ino = self.lookup(dir, name)?;
        self.expect_changeable(dir)?;
        self.expect_changeable(ino)?;
        Ok(ino)
    }

    /// Removes a name of something that is no directory.
    pub fn unlink(&mut self, dir: InodeNumber, name: &[u8], now: Time) -> Result<()> {
        let ino = self.expect_removable(dir, name)?;
        if self.get(ino)?.is_directory() {
            return Err(Error::IsDirectory);
        }
        self.drop_entry(dir, name, now)?;
        self.drop_link(ino, now)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, dir: InodeNumber, name: &[u8], now: Time) -> Result<()> {
        match name {
            b"." => return Err(Error::Invalid("`.`")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        let ino = self.expect_removable(dir, name)?;
        if !self.directory(ino)?.entries.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.drop_entry(dir, name, now)?;
        self.drop_directory(dir, ino, now)
    }

    fn drop_entry(&mut self, dir: InodeNumber, name: &[u8], now: Time) -> Result<()> {
        let parent = self.get(dir)?;
        parent.entries.remove(name);
        parent.touch(now);
        Ok(())
    }

    fn drop_link(&mut self, ino: InodeNumber, now: Time) -> Result<()> {
        let attributes = &mut self.get(ino)?.attributes;
        attributes.links -= 1;
        attributes.ctime = now;
        self.reap(ino);
        Ok(())
    }

    fn drop_directory(&mut self, parent: InodeNumber, ino: InodeNumber, now: Time) -> Result<()> {
        self.get(parent)?.attributes.links -= 1;
        let attributes = &mut self.get(ino)?.attributes;
        attributes.links = 0;
        attributes.size = 0;
        attributes.ctime = now;
        self.reap(ino);
        Ok(())
    }

    /// Nothing comes from another project into a directory that passes its own on.
    fn expect_same_project(&mut self, dir: InodeNumber, ino: InodeNumber) -> Result<()> {
        let moved = self.get(ino)?.attributes.project_id;
        let to = self.get(dir)?;
        if to.has(InodeFlags::PROJECT_INHERIT) && to.attributes.project_id != moved {
            return Err(Error::OtherProject);
        }
        Ok(())
    }

    /// Whether `ino` is `dir` or one of the directories above it.
    fn is_above(&self, ino: InodeNumber, dir: InodeNumber) -> bool {
        let mut at = dir;
        while at != ino && at != self.root {
            at = self.inodes[&at].parent;
        }
        at == ino
    }

    fn expect_no_cycle(&mut self, moved: InodeNumber, into: InodeNumber) -> Result<()> {
        if self.get(moved)?.is_directory() && self.is_above(moved, into) {
            return Err(Error::Invalid("cycle"));
        }
        Ok(())
    }

    /// Renames. `whiteout` is what the engine left behind, where the flags ask for that.
    #[allow(clippy::too_many_arguments)] // As renameat2(2).
    pub fn rename(
        &mut self,
        (dir, name): (InodeNumber, &[u8]),
        (new_dir, new_name): (InodeNumber, &[u8]),
        flags: RenameFlags,
        caller: &Caller,
        whiteout: Option<&Attributes>,
        now: Time,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if !RenameFlags::all().contains(flags) || exchange && flags != RenameFlags::EXCHANGE {
            return Err(Error::Invalid("flags"));
        }
        check_name(new_name)?;
        if is_special(name) || is_special(new_name) {
            return Err(Error::Busy);
        }
        let moved = self.expect_removable(dir, name)?;
        self.expect_open(new_dir)?;
        let target = self.get(new_dir)?.entries.get(new_name).copied();
        self.expect_no_cycle(moved, new_dir)?;
        match target {
            Some(other) if exchange => {
                self.expect_changeable(other)?;
                self.expect_changeable(new_dir)?;
                self.expect_no_cycle(other, dir)?;
                self.expect_same_project(new_dir, moved)?;
                self.expect_same_project(dir, other)?;
                self.arrive(moved, dir, (new_dir, new_name), now)?;
                return self.arrive(other, new_dir, (dir, name), now);
            }
            None if exchange => return Err(Error::NotFound),
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(Error::Exists),
            Some(other) if other == moved => return Ok(()),
            Some(other) => self.replace(moved, new_dir, other, now)?,
            None => self.expect_same_project(new_dir, moved)?,
        }
        self.drop_entry(dir, name, now)?;
        if let Some(left) = whiteout {
            let node = NewNode { kind: FileKind::CharDevice, permissions: 0, rdev: 0, target: b"" };
            let inode = self.newborn(dir, &node, caller, now)?;
            self.adopt(inode, left)?;
            self.get(dir)?.entries.insert(name.to_vec(), left.ino);
        }
        self.arrive(moved, dir, (new_dir, new_name), now)
    }

    /// Takes away what a rename replaces.
    fn replace(&mut self, moved: InodeNumber, dir: InodeNumber, target: InodeNumber, now: Time) -> Result<()> {
        self.expect_changeable(target)?;
        self.expect_changeable(dir)?;
        let is_empty = self.get(target)?.entries.is_empty();
        match (self.get(moved)?.is_directory(), self.get(target)?.is_directory()) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) if !is_empty => Err(Error::NotEmpty),
            _ if self.expect_same_project(dir, moved).is_err() => Err(Error::OtherProject),
            (true, true) => self.drop_directory(dir, target, now),
            (false, false) => self.drop_link(target, now),
        }
    }

    /// A moved inode gets its new name.
    fn arrive(&mut self, moved: InodeNumber, from: InodeNumber, to: (InodeNumber, &[u8]), now: Time) -> Result<()> {
        let (to, name) = to;
        self.get(from)?.touch(now);
        self.get(to)?.touch(now);
        self.get(to)?.entries.insert(name.to_vec(), moved);
        self.get(moved)?.attributes.ctime = now;
        if from != to && self.get(moved)?.is_directory() {
            self.get(moved)?.parent = to;
            self.get(from)?.attributes.links -= 1;
            self.get(to)?.attributes.links += 1;
        }
        Ok(())
    }
}
