//! The end of an inode: unlinked, orphaned while in use, freed with its last reference.

use crate::error::Result;
use crate::volume::{Volume, counted};

impl Volume {
    /// Takes note that an inode lost its last link: freed now if nobody uses it, an orphan until then.
    pub(crate) fn drop_unlinked(&mut self, ino: u32) -> Result<()> {
        self.changed = true;
        if self.inodes.get(&ino).is_some_and(|state| state.lookups > 0) {
            self.orphans.insert(ino);
            return Ok(());
        }
        self.evict(ino)
    }

    /// Gives back references; an orphan goes with its last.
    pub(crate) fn forget(&mut self, ino: u32, count: u64) -> Result<()> {
        let Some(state) = self.inodes.get_mut(&ino) else { return Ok(()) };
        state.lookups = state.lookups.saturating_sub(count);
        if state.lookups > 0 {
            return Ok(());
        }
        if self.orphans.contains(&ino) && self.is_writable() {
            return self.evict(ino);
        }
        if self.inodes.get(&ino).is_some_and(|state| state.pages.is_empty()) {
            self.inodes.remove(&ino);
        }
        Ok(())
    }

    /// Frees an inode with everything it holds.
    pub(crate) fn evict(&mut self, ino: u32) -> Result<()> {
        self.drop_pages(ino, 0, u32::MAX);
        self.inodes.remove(&ino);
        self.check_xattr_node(ino)?;
        let raw = self.inode(ino)?;
        let xattr = raw.i_xattr_nid.get();
        let has_blocks = !raw
            .inline_flags()
            .intersects(crate::layout::inode::InlineFlags::DATA | crate::layout::inode::InlineFlags::DENTRY)
            && matches!(
                basalt_vfs::FileKind::from_mode(u32::from(raw.i_mode.get())),
                Some(basalt_vfs::FileKind::Regular | basalt_vfs::FileKind::Directory | basalt_vfs::FileKind::Symlink)
            );
        if has_blocks {
            self.free_blocks_from(ino, 0)?;
        }
        if xattr != 0 {
            self.free_node(xattr)?;
        }
        self.free_node(ino)?;
        self.valid_inodes = counted(self.valid_inodes.checked_sub(1), "inodes")?;
        self.orphans.remove(&ino);
        Ok(())
    }
}
