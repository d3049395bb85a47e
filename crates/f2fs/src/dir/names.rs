//! Names: making, linking, removing and renaming.

use basalt_vfs::acl::Acl;
use basalt_vfs::{Caller, FileKind, NewNode, RenameFlags};

use super::lookup::{Found, check_name};
use crate::error::{Error, Result};
use crate::file::temperature;
use crate::file::write::Times;
use crate::layout::inode::{Advise, RawInodeFlags};
use crate::layout::{BLOCK_SIZE, FileBlock, Ino};
use crate::mutant::Mutant;
use crate::node::inode::{self, NewInode};
use crate::volume::Volume;

/// Flags a new inode takes from its directory. Source: the kernel's `F2FS_FL_INHERITED`.
const INHERITED: RawInodeFlags = RawInodeFlags::SYNC
    .union(RawInodeFlags::NODUMP)
    .union(RawInodeFlags::NOATIME)
    .union(RawInodeFlags::DIRSYNC)
    .union(RawInodeFlags::PROJINHERIT);
const SET_GID: u32 = 0o2000;

impl Volume {
    /// Finds a name. What is no directory answers to `.` as well, and knows the directory of its name as `..`: so whoever has only a
    /// number (a file handle) finds it again.
    pub(crate) fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Ino> {
        match name {
            b"." | b".." if !self.is_directory(dir)? => {
                let raw = self.inode(dir)?;
                let (links, parent) = (raw.i_links.get(), raw.parent());
                let length = raw.i_namelen.get() as usize;
                let own_name = raw.i_name.get(..length).unwrap_or_default().to_vec();
                if links == 0 {
                    return Err(basalt_vfs::Error::NotFound.into());
                }
                if name == b"." { Ok(dir) } else { self.directory_with(parent, &own_name, dir) }
            }
            _ => Ok(self.expect_entry(dir, name)?.ino),
        }
    }

    /// The directory `parent`, if it has `name` for `ino`: an inode does not know all its names.
    fn directory_with(&mut self, parent: Ino, name: &[u8], ino: Ino) -> Result<Ino> {
        let is_there = self.is_inode(parent)?
            && self.is_directory(parent)?
            && self.find_entry(parent, name)?.is_some_and(|found| found.ino == ino);
        if is_there { Ok(parent) } else { Err(basalt_vfs::Error::NotFound.into()) }
    }

    /// Makes an inode with a name in `dir`.
    pub(crate) fn create(&mut self, dir: Ino, name: &[u8], node: &NewNode<'_>, caller: &Caller) -> Result<Ino> {
        check_name(name)?;
        self.expect_open_directory(dir)?;
        if node.target.len() >= BLOCK_SIZE {
            return Err(basalt_vfs::Error::NameTooLong.into());
        }
        if self.find_entry(dir, name)?.is_some() {
            return Err(basalt_vfs::Error::Exists.into());
        }
        let ino = self.make_inode(dir, name, node, caller)?;
        let named = self.fill_new(dir, ino, node).and_then(|()| self.add_entry(dir, name, ino, node.kind));
        if let Err(error) = named {
            // Nothing refers to it yet; the error that led here says more than one on the way back.
            let _ = self.evict(ino);
            return Err(error);
        }
        if node.kind == FileKind::Directory {
            self.change_links(dir, 1)?;
        }
        Ok(ino)
    }

    /// Makes a regular file without a name: an orphan from the start.
    pub(crate) fn create_unnamed(&mut self, dir: Ino, permissions: u32, caller: &Caller) -> Result<Ino> {
        self.expect_open_directory(dir)?;
        self.reserve_orphan()?;
        let node = NewNode { kind: FileKind::Regular, permissions, rdev: 0, target: b"" };
        let ino = self.make_inode(dir, b"", &node, caller)?;
        self.inode_mut(ino)?.i_links.set(0);
        self.orphans.insert(ino);
        Ok(ino)
    }

    /// A directory that still has a name and may get entries.
    fn expect_open_directory(&mut self, dir: Ino) -> Result<()> {
        self.expect_directory(dir)?;
        self.expect_mutable(dir)?;
        if self.inode(dir)?.i_advise & Advise::ENCRYPT.bits() != 0 {
            return Err(basalt_vfs::Error::NotPermitted("encrypted directory, and there is no key").into());
        }
        if self.inode(dir)?.i_links.get() == 0 {
            return Err(basalt_vfs::Error::NotFound.into());
        }
        Ok(())
    }

    fn make_inode(&mut self, dir: Ino, name: &[u8], node: &NewNode<'_>, caller: &Caller) -> Result<Ino> {
        self.counts.expect_room(1)?;
        let parent = self.attributes(dir)?;
        let is_directory = node.kind == FileKind::Directory;
        let default = if node.kind == FileKind::Symlink { None } else { self.load_acl(dir, true)? };
        let inherited = default.map(|acl| Acl::inherit(&acl, node.permissions, is_directory));
        let mut permissions = match &inherited {
            Some(inherited) => inherited.mode & 0o7777,
            None if node.kind == FileKind::Symlink => 0o777,
            None => node.permissions & !caller.umask & 0o7777,
        };
        let mut gid = caller.gid;
        if parent.permissions & SET_GID != 0 {
            gid = parent.gid;
            permissions |= if is_directory { SET_GID } else { 0 };
        }
        let flags = RawInodeFlags::from_bits_retain(parent.flags.bits());
        let inherits_project = flags.contains(RawInodeFlags::PROJINHERIT);
        let mut flags = flags.intersection(INHERITED);
        // As the kernel's `f2fs_mask_flags`.
        match node.kind {
            FileKind::Directory => {}
            FileKind::Regular => flags.remove(RawInodeFlags::DIRSYNC | RawInodeFlags::PROJINHERIT),
            _ => flags = flags.intersection(RawInodeFlags::NODUMP | RawInodeFlags::NOATIME),
        }
        let advise = match node.kind {
            FileKind::Regular => temperature::advise_for(&self.geometry.superblock, name).bits(),
            _ => 0,
        };
        let generation = self.next_generation();
        let time = self.clock.now();
        let ino = self.new_node(None, 0, !is_directory)?.as_inode();
        self.checkpoint.since_mut().note_created(ino);
        self.counts.add_inode();
        let new = NewInode {
            kind: node.kind,
            permissions,
            uid: caller.uid,
            gid,
            rdev: node.rdev,
            parent: dir,
            name,
            generation,
            flags: flags.bits(),
            project_id: if inherits_project { parent.project_id } else { 0 },
            advise,
            time,
        };
        let geometry = self.geometry.clone();
        inode::initialise(self.node_mut(ino.nid())?.inode_mut(), &new, &geometry);
        self.pages.set_directory(ino, is_directory);
        if let Some(inherited) = inherited {
            let stored = self.store_inherited(ino, &inherited.access, &inherited.default);
            if let Err(error) = stored {
                let _ = self.evict(ino);
                return Err(error);
            }
        }
        Ok(ino)
    }

    fn store_inherited(&mut self, ino: Ino, access: &Option<Acl>, default: &Option<Acl>) -> Result<()> {
        if access.is_some() {
            self.store_acl(ino, access.as_ref(), false)?;
        }
        if default.is_some() {
            self.store_acl(ino, default.as_ref(), true)?;
        }
        Ok(())
    }

    /// What a new directory or symbolic link holds from the start.
    fn fill_new(&mut self, dir: Ino, ino: Ino, node: &NewNode<'_>) -> Result<()> {
        match node.kind {
            FileKind::Directory => self.make_empty_directory(ino, dir),
            FileKind::Symlink => match self.write_file(ino, 0, node.target.into(), Times::Renew)? {
                written if written < node.target.len() => Err(basalt_vfs::Error::NoSpace.into()),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Gives an inode one more name.
    pub(crate) fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.expect_open_directory(dir)?;
        let kind = self.kind(ino)?;
        if kind == FileKind::Directory {
            return Err(basalt_vfs::Error::NotPermitted("hard link to a directory").into());
        }
        self.expect_changeable(ino)?;
        self.expect_same_project(dir, ino)?;
        let links = self.inode(ino)?.i_links.get();
        // An unnamed file may get a name; one that lost its last may not come back.
        if links == 0 && !self.orphans.contains(&ino) {
            return Err(basalt_vfs::Error::NotFound.into());
        }
        if links == u32::MAX {
            return Err(basalt_vfs::Error::TooManyLinks.into());
        }
        if self.find_entry(dir, name)?.is_some() {
            return Err(basalt_vfs::Error::Exists.into());
        }
        self.add_entry(dir, name, ino, kind)?;
        self.checkpoint.since_mut().note_renamed(ino);
        self.orphans.remove(&ino);
        self.change_links(ino, 1)?;
        if links == 0 {
            // The name must lead to all of it.
            self.order_pages(ino, FileBlock::FIRST);
            inode::set_name(self.inode_mut(ino)?, dir, name);
        }
        self.touch_change(ino)
    }

    /// Removes a name of something that is no directory.
    pub(crate) fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        let found = self.expect_removable(dir, name)?;
        if self.is_directory(found.ino)? {
            return Err(basalt_vfs::Error::IsDirectory.into());
        }
        if self.inode(found.ino)?.i_links.get() > 1 {
            self.checkpoint.since_mut().note_left(dir, name);
        }
        self.remove_entry(dir, &found)?;
        self.take_link(found.ino)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(basalt_vfs::Error::Invalid("`.` cannot be removed").into()),
            b".." => return Err(basalt_vfs::Error::NotEmpty.into()),
            _ => {}
        }
        let found = self.expect_removable(dir, name)?;
        self.expect_directory(found.ino)?;
        if !self.is_empty_directory(found.ino)? {
            return Err(basalt_vfs::Error::NotEmpty.into());
        }
        self.checkpoint.since_mut().note_left(dir, name);
        self.remove_entry(dir, &found)?;
        self.take_directory(dir, found.ino)
    }

    fn expect_removable(&mut self, dir: Ino, name: &[u8]) -> Result<Found> {
        self.reserve_orphan()?;
        let found = self.expect_entry(dir, name)?;
        self.expect_changeable(dir)?;
        self.expect_changeable(found.ino)?;
        Ok(found)
    }

    /// Takes one link off an inode.
    pub(crate) fn take_link(&mut self, ino: Ino) -> Result<()> {
        self.touch_change(ino)?;
        if self.inode(ino)?.i_links.get() == 0 {
            return Err(Error::damaged("inode", format!("inode {ino}"), "has no links, but a name"));
        }
        if self.change_links(ino, -1)? == 0 {
            self.drop_unlinked(ino)?;
        }
        Ok(())
    }

    /// Takes away a directory that lost its name: both its links, and the one its `..` was to its parent.
    pub(crate) fn take_directory(&mut self, parent: Ino, ino: Ino) -> Result<()> {
        self.change_links(parent, -1)?;
        self.touch_change(ino)?;
        self.inode_mut(ino)?.i_links.set(0);
        self.inode_mut(ino)?.i_size.set(0);
        self.drop_unlinked(ino)
    }

    /// Renames.
    pub(crate) fn rename(
        &mut self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        let known = RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE | RenameFlags::WHITEOUT;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if !known.contains(flags) || exchange && flags != RenameFlags::EXCHANGE {
            return Err(basalt_vfs::Error::Invalid("rename flags").into());
        }
        check_name(new_name)?;
        for special in [name, new_name] {
            if special == b"." || special == b".." {
                return Err(basalt_vfs::Error::Busy.into());
            }
        }
        let old = self.expect_removable(dir, name)?;
        self.expect_open_directory(new_dir)?;
        let new = self.find_entry(new_dir, new_name)?;
        if let Some(new) = &new {
            self.expect_inode_of(new_dir, new)?;
        }
        self.expect_no_cycle(&old, new_dir)?;
        self.checkpoint.since_mut().note_left(dir, name);
        self.checkpoint.since_mut().note_left(new_dir, new_name);
        match new {
            Some(new) if exchange => {
                self.expect_changeable(new.ino)?;
                self.expect_changeable(new_dir)?;
                self.expect_no_cycle(&new, dir)?;
                self.expect_same_project(new_dir, old.ino)?;
                self.expect_same_project(dir, new.ino)?;
                self.exchange(dir, name, &old, new_dir, new_name, &new)
            }
            None if exchange => Err(basalt_vfs::Error::NotFound.into()),
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(basalt_vfs::Error::Exists.into()),
            // Two names of one inode: nothing happens.
            Some(new) if new.ino == old.ino => Ok(()),
            Some(new) => self.replace(dir, name, &old, new_dir, new_name, &new, flags, caller),
            None => self.move_name(dir, name, &old, new_dir, new_name, flags, caller),
        }
    }

    /// Fails if a directory would become its own ancestor.
    fn expect_no_cycle(&mut self, moved: &Found, new_dir: Ino) -> Result<()> {
        if moved.kind != FileKind::Directory {
            return Ok(());
        }
        let root = self.geometry.root_ino;
        let mut at = new_dir;
        // No path is longer than the number of inodes: a damaged volume may hold a circle.
        for _ in 0..self.counts.inodes().max(1) {
            if at == moved.ino {
                return Err(basalt_vfs::Error::Invalid("a directory cannot move into itself").into());
            }
            if at == root {
                return Ok(());
            }
            at = self.expect_entry(at, b"..")?.ino;
        }
        Err(Error::damaged("dentry", format!("directory {new_dir}"), "its `..` never leads to the root"))
    }

    /// Fails if the space of everything in `dir` counts for its project, and `ino` belongs to another. Source: the kernel's
    /// `f2fs_link` and `f2fs_rename`.
    fn expect_same_project(&mut self, dir: Ino, ino: Ino) -> Result<()> {
        if self.has_flag(dir, RawInodeFlags::PROJINHERIT)?
            && self.attributes(dir)?.project_id != self.attributes(ino)?.project_id
        {
            return Err(basalt_vfs::Error::OtherProject.into());
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // Two places, two names, and who asks: that is what a rename is.
    fn replace(
        &mut self,
        dir: Ino,
        name: &[u8],
        old: &Found,
        new_dir: Ino,
        new_name: &[u8],
        new: &Found,
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        self.expect_changeable(new.ino)?;
        self.expect_changeable(new_dir)?;
        let (moves_directory, replaces_directory) = (self.is_directory(old.ino)?, self.is_directory(new.ino)?);
        match (moves_directory, replaces_directory) {
            (true, false) => return Err(basalt_vfs::Error::NotDirectory.into()),
            (false, true) => return Err(basalt_vfs::Error::IsDirectory.into()),
            (true, true) if !self.is_empty_directory(new.ino)? => return Err(basalt_vfs::Error::NotEmpty.into()),
            _ => {}
        }
        self.expect_same_project(new_dir, old.ino)?;
        let whiteout = self.make_whiteout(dir, name, flags, caller)?;
        self.redirect_entry(new_dir, new, old.ino, old.kind)?;
        self.leave_old_name(dir, name, whiteout)?;
        if replaces_directory {
            self.take_directory(new_dir, new.ino)?;
        } else {
            self.take_link(new.ino)?;
        }
        self.arrive(old, dir, new_dir, new_name)
    }

    #[allow(clippy::too_many_arguments)] // As above.
    fn move_name(
        &mut self,
        dir: Ino,
        name: &[u8],
        old: &Found,
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        self.expect_same_project(new_dir, old.ino)?;
        let whiteout = self.make_whiteout(dir, name, flags, caller)?;
        if let Err(error) = self.add_entry(new_dir, new_name, old.ino, old.kind) {
            if let Some(ino) = whiteout {
                let _ = self.evict(ino);
            }
            return Err(error);
        }
        self.leave_old_name(dir, name, whiteout)?;
        self.arrive(old, dir, new_dir, new_name)
    }

    /// Makes the inode of a whiteout, if one is wanted.
    fn make_whiteout(&mut self, dir: Ino, name: &[u8], flags: RenameFlags, caller: &Caller) -> Result<Option<Ino>> {
        if !flags.contains(RenameFlags::WHITEOUT) {
            return Ok(None);
        }
        let node = NewNode { kind: FileKind::CharDevice, permissions: 0, rdev: 0, target: b"" };
        self.make_inode(dir, name, &node, caller).map(Some)
    }

    /// Removes the old name, or leaves the whiteout there. Looked up afresh: adding the new one may have moved it.
    fn leave_old_name(&mut self, dir: Ino, name: &[u8], whiteout: Option<Ino>) -> Result<()> {
        self.checkpoint_within(Mutant::RenameInTwoCheckpoints)?;
        let old = self.expect_entry(dir, name)?;
        match whiteout {
            Some(ino) => self.redirect_entry(dir, &old, ino, FileKind::CharDevice),
            None => self.remove_entry(dir, &old),
        }
    }

    /// Tells the moved inode where it is now.
    fn arrive(&mut self, moved: &Found, from: Ino, to: Ino, name: &[u8]) -> Result<()> {
        inode::set_name(self.inode_mut(moved.ino)?, to, name);
        self.checkpoint.since_mut().note_renamed(moved.ino);
        if self.is_directory(moved.ino)? {
            self.checkpoint.since_mut().close("a directory was renamed");
        } else {
            // The name must lead to all of it.
            self.order_pages(moved.ino, FileBlock::FIRST);
        }
        self.touch_change(moved.ino)?;
        if from != to && self.is_directory(moved.ino)? {
            self.change_parent(moved.ino, to)?;
            self.change_links(from, -1)?;
            self.change_links(to, 1)?;
        }
        Ok(())
    }

    fn change_parent(&mut self, dir: Ino, parent: Ino) -> Result<()> {
        let up = self.expect_entry(dir, b"..")?;
        let mtime = inode::time(self.inode(dir)?, inode::Stamp::Modify);
        self.redirect_entry(dir, &up, parent, FileKind::Directory)?;
        // Nothing changed in the directory that a user would call its content.
        inode::set_time(self.inode_mut(dir)?, inode::Stamp::Modify, mtime);
        Ok(())
    }

    fn exchange(
        &mut self,
        dir: Ino,
        name: &[u8],
        old: &Found,
        new_dir: Ino,
        new_name: &[u8],
        new: &Found,
    ) -> Result<()> {
        self.redirect_entry(dir, old, new.ino, new.kind)?;
        self.redirect_entry(new_dir, new, old.ino, old.kind)?;
        self.arrive(old, dir, new_dir, new_name)?;
        self.arrive(new, new_dir, dir, name)
    }
}
