//! The end of an inode: unlinked, orphaned while in use, freed with its last reference.

use crate::error::Result;
use crate::layout::checkpoint::ORPHANS_PER_BLOCK;
use crate::layout::{BLOCKS_PER_SEGMENT, FileBlock, Ino, Nid};
use crate::node::pointers::has_pointers;
use crate::volume::Volume;

/// Blocks of a checkpoint pack that orphans never get: first and last, and the six summaries.
const OTHER_BLOCKS: usize = 8;

/// Orphans that a pack with `payload` extra blocks has room for.
fn orphans_max(payload: u32) -> usize {
    (BLOCKS_PER_SEGMENT as usize).saturating_sub(OTHER_BLOCKS + payload as usize) * ORPHANS_PER_BLOCK
}

impl Volume {
    /// Fails with `NoSpace` unless one more inode may lose its last name while it is open: a pack that grew past its segment
    /// would run into what lies behind.
    pub(crate) fn reserve_orphan(&self) -> Result<()> {
        if self.orphans.len() >= orphans_max(self.geometry.payload) {
            return Err(basalt_vfs::Error::NoSpace.into());
        }
        Ok(())
    }

    /// Takes note that an inode lost its last link: freed now if nobody uses it, an orphan until then.
    pub(crate) fn drop_unlinked(&mut self, ino: Ino) -> Result<()> {
        self.checkpoint.note_change();
        if self.pages.is_held(ino) {
            self.orphans.insert(ino);
            return Ok(());
        }
        self.evict(ino)
    }

    /// Gives back references; an orphan goes with its last.
    pub(crate) fn forget(&mut self, ino: Ino, count: u64) -> Result<()> {
        if self.pages.let_go(ino, count) != Some(0) {
            return Ok(());
        }
        if self.orphans.contains(&ino) && self.is_writable() {
            return self.evict(ino);
        }
        self.pages.forget_unused(ino);
        Ok(())
    }

    /// Whether an inode has blocks below it, and not only content of its own.
    fn has_blocks(&mut self, ino: Ino) -> Result<bool> {
        Ok(has_pointers(self.inode(ino)?))
    }

    /// Fails where [`evict`](Self::evict) would fail half-way: damage, or a node that cannot be read. Frees nothing.
    pub(crate) fn expect_evictable(&mut self, ino: Ino) -> Result<()> {
        self.check_xattr_node(ino)?;
        if self.has_blocks(ino)? { self.expect_freeable(ino) } else { Ok(()) }
    }

    /// Frees an inode with everything it holds.
    pub(crate) fn evict(&mut self, ino: Ino) -> Result<()> {
        if self.pages.forget_inode(ino) {
            self.checkpoint.note_change();
        }
        self.check_xattr_node(ino)?;
        let xattr = self.inode(ino)?.xattr_nid();
        self.forget_in_lists(ino, FileBlock::FIRST, FileBlock::END);
        if self.has_blocks(ino)? {
            self.free_blocks_from(ino, FileBlock::FIRST)?;
        }
        if xattr != Nid::NONE {
            self.free_node(xattr)?;
        }
        self.free_node(ino.nid())?;
        self.counts.remove_inode()?;
        self.orphans.remove(&ino);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use basalt_device::MemoryDevice;
    use basalt_segments::{List, placement};
    use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

    use super::orphans_max;
    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::layout::{FileBlock, Ino};
    use crate::lock::F2fs;
    use crate::options::OpenOptions;

    /// Another file may get the number.
    #[test]
    fn pages_of_a_file_that_is_removed_are_on_no_list() {
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        format(&*device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let placement = placement::by_name("page-cache").unwrap();
        let fs =
            F2fs::open(device, OpenOptions { placement, ..OpenOptions::default() }, Arc::new(SystemClock)).unwrap();
        let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(fs.root(), b"file", &file, &Caller::default()).unwrap().ino;
        (0..2).for_each(|_| _ = fs.write(ino, 0, &[1; 40_000], false).unwrap());
        let lists = || {
            let volume = fs.volume.lock();
            let lists = volume.page_lists.as_ref().unwrap();
            [0, 9].map(|page| lists.list(Ino::new(ino as u32), FileBlock::new(page)))
        };
        assert_eq!(lists(), [Some(List::Active); 2]);
        fs.unlink(fs.root(), b"file").unwrap();
        assert_eq!(lists(), [Some(List::Active); 2], "it is still open");
        fs.forget(ino, 1);
        assert_eq!(lists(), [None; 2]);
    }

    #[test]
    fn orphans_fit_a_pack() {
        assert_eq!(orphans_max(0), 504 * 1020);
        assert_eq!(orphans_max(503), 1020);
        assert_eq!(orphans_max(600), 0);
    }
}
