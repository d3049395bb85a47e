//! Names: making, finding, linking, removing, renaming.

use basalt_vfs::{Attributes, Caller, FileSystem, InodeNumber, NewNode, RenameFlags};

use super::{Outcome, PLENTY, World, failed};
use crate::operations::Which;

impl World {
    /// Makes a named inode; its number, if it was made.
    pub fn create(
        &mut self,
        dir: InodeNumber,
        name: &[u8],
        node: &NewNode<'_>,
        caller: &Caller,
    ) -> Outcome<Option<InodeNumber>> {
        let (free, now) = (self.free()?, self.now());
        let answer = self.fs.create(dir, name, node, caller);
        let made = answer.as_ref().ok().copied();
        let done = self.settle(answer, (free, 0), |model| model.create(dir, name, node, caller, made.as_ref(), now))?;
        self.same_if(done.map(|(made, ())| made))
    }

    /// Makes a file without a name.
    pub(super) fn create_unnamed(&mut self, dir: Which, permissions: u32, caller: &Caller) -> Outcome<()> {
        let dir = self.directory(dir);
        let (free, now) = (self.free()?, self.now());
        let answer = self.fs.create_unnamed(dir, permissions, caller);
        let made = answer.as_ref().ok().copied();
        let done =
            self.settle(answer, (free, 0), |model| model.create_unnamed(dir, permissions, caller, made.as_ref(), now))?;
        self.same_if(done.map(|(made, ())| made)).map(|_| ())
    }

    /// Gives something one more name.
    pub(super) fn link(&mut self, file: Which, dir: InodeNumber, name: &[u8]) -> Outcome<()> {
        // Unlinked files come back here too: which of them never had a name is for the kernel to know.
        let Some(ino) = self.pick(file, |_| true) else { return Ok(()) };
        let (free, now) = (self.free()?, self.now());
        let answer = self.fs.link(ino, dir, name);
        let done = self.settle(answer, (free, 0), |model| model.link(ino, dir, name, now))?;
        if done.is_some() {
            self.model.hold(ino);
        }
        self.same_if(done.map(|(attributes, ())| attributes)).map(|_| ())
    }

    /// Removes a name.
    pub fn unlink(&mut self, dir: InodeNumber, name: &[u8]) -> Outcome<()> {
        let now = self.now();
        let answer = self.fs.unlink(dir, name);
        self.settle(answer, (PLENTY, 0), |model| model.unlink(dir, name, now)).map(|_| ())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, dir: InodeNumber, name: &[u8]) -> Outcome<()> {
        let now = self.now();
        let answer = self.fs.remove_directory(dir, name);
        self.settle(answer, (PLENTY, 0), |model| model.remove_directory(dir, name, now)).map(|_| ())
    }

    /// Finds a name.
    pub fn lookup(&mut self, dir: InodeNumber, name: &[u8]) -> Outcome<()> {
        let answer = self.fs.lookup(dir, name);
        let done = self.settle(answer, (PLENTY, 0), |model| model.lookup(dir, name))?;
        let Some((found, expected)) = done else { return Ok(()) };
        self.model.hold(expected);
        if found.ino != expected {
            return Err(format!("leads to inode {}, expected {expected}", found.ino));
        }
        self.same_attributes(&found)
    }

    /// Gives one reference back, or all.
    pub(super) fn forget(&mut self, node: Which) -> Outcome<()> {
        if let Some(ino) = self.pick(node, |inode| inode.references > 0) {
            let all = self.model.inodes[&ino].references;
            let count = if node.is_multiple_of(2) { 1 } else { all };
            self.fs.forget(ino, count);
            self.model.forget(ino, count);
            if !self.model.inodes.contains_key(&ino) && self.fs.attributes(ino).is_ok() {
                return Err(format!("inode {ino} is still there"));
            }
        }
        Ok(())
    }

    /// Renames.
    pub fn rename(
        &mut self,
        (dir, name): (InodeNumber, &[u8]),
        (new_dir, new_name): (InodeNumber, &[u8]),
        flags: RenameFlags,
    ) -> Outcome<()> {
        let caller = Caller { uid: 1, gid: 2, umask: 0 };
        let (free, now) = (self.free()?, self.now());
        let moved = self.model.lookup(dir, name).ok();
        let answer = self.fs.rename(dir, name, new_dir, new_name, flags, &caller);
        let mut whiteout = None;
        if answer.is_ok() && flags.contains(RenameFlags::WHITEOUT) {
            let left = self.fs.lookup(dir, name).map_err(failed("no whiteout"))?;
            // Between two names of one inode, nothing happens.
            if Some(left.ino) == moved {
                self.fs.forget(left.ino, 1);
            } else {
                whiteout = Some(left);
            }
        }
        self.settle(answer, (free, 0), |model| {
            model.rename((dir, name), (new_dir, new_name), flags, &caller, whiteout.as_ref(), now)
        })?;
        self.same_if(whiteout).map(|_| ())
    }

    /// Compares attributes that an operation returned; passes the inode's number on.
    fn same_if(&mut self, attributes: Option<Attributes>) -> Outcome<Option<InodeNumber>> {
        attributes.map(|attributes| self.same_attributes(&attributes).map(|()| attributes.ino)).transpose()
    }
}
