//! Nodes by their id, and inodes by their number: from memory, or loaded and checked.

use basalt_vfs::FileKind;

use super::cache::Node;
use super::{inode, nat};
use crate::error::{Error, Result};
use crate::layout::inode::RawInode;
use crate::layout::nat::RawNatEntry;
use crate::layout::{BLOCK_SIZE, Ino, Nid, RawBlock};
use crate::volume::Volume;

impl Volume {
    /// The NAT entry of a node id.
    pub(crate) fn nat_entry(&mut self, nid: Nid) -> Result<RawNatEntry> {
        self.nat.get(&*self.device, &self.geometry, nid)
    }

    /// A node, from memory or from the volume.
    pub(crate) fn node(&mut self, nid: Nid) -> Result<&mut Node> {
        if !self.nodes.contains(nid) {
            self.load_node(nid)?;
        }
        self.nodes.touch(nid).ok_or_else(|| not_in_memory(nid))
    }

    /// A node to change: it will be written by the next checkpoint at the latest.
    pub(crate) fn node_mut(&mut self, nid: Nid) -> Result<&mut Node> {
        if !self.nodes.contains(nid) {
            self.load_node(nid)?;
        }
        self.change_loaded(nid, true)
    }

    /// A node in memory to change; unless `essential`, only times are to change.
    fn change_loaded(&mut self, nid: Nid, essential: bool) -> Result<&mut Node> {
        self.checkpoint.note_change();
        self.nodes.mark_dirty(nid, essential).ok_or_else(|| not_in_memory(nid))
    }

    /// An inode of which only times are to change: fdatasync does not write it for them.
    pub(crate) fn inode_times_mut(&mut self, ino: Ino) -> Result<&mut RawInode> {
        self.load_inode(ino)?;
        Ok(self.change_loaded(ino.nid(), false)?.inode_mut())
    }

    fn load_node(&mut self, nid: Nid) -> Result<()> {
        let entry = self.nat_entry(nid)?;
        let address = entry.address();
        if !nat::in_use(&entry) || nid == Nid::NONE {
            return Err(Error::damaged("NAT", format!("node {nid}"), "not in use, but something refers to it"));
        }
        if !self.geometry.in_main(address) {
            return Err(Error::damaged(
                "NAT",
                format!("node {nid}"),
                format!("address {address} outside the main area"),
            ));
        }
        let block = self.read_block(address)?;
        self.keep_node(nid, &entry, block)?;
        if let (Some(behind), Some(node)) = (&self.behind, self.nodes.get_mut(nid)) {
            behind.lead_pointers(node, address, &self.geometry);
        }
        Ok(())
    }

    /// Puts a node that was read from where its NAT entry says into memory, if it is that node.
    pub(crate) fn keep_node(&mut self, nid: Nid, entry: &RawNatEntry, block: Box<RawBlock>) -> Result<()> {
        let address = entry.address();
        let node = Node::of(block);
        let footer = *node.footer();
        if footer.nid() != nid || footer.ino != entry.ino {
            return Err(Error::damaged(
                "node",
                format!("block {address}"),
                format!(
                    "footer says node {} of inode {}, expected node {nid} of inode {}",
                    footer.nid, footer.ino, entry.ino
                ),
            ));
        }
        let Some(is_inode) = footer.is_inode() else {
            // Taken for one another, an inode and the nodes below it would be written over.
            return Err(Error::damaged(
                "node",
                format!("block {address}"),
                format!("node {nid} of inode {} has offset {}", footer.ino, footer.offset()),
            ));
        };
        if is_inode {
            inode::validate_fields(node.inode(), nid.as_inode(), &self.geometry)?;
            match inode::validate_checksum(node.inode(), nid.as_inode(), &self.geometry) {
                // What can be read of a damaged volume is better than nothing.
                Err(error) if self.options.rescue => tracing::warn!("{error}; used all the same"),
                checked => checked?,
            }
        }
        let limit = self.node_limit();
        self.nodes.shrink(limit.saturating_sub(1));
        self.nodes.insert(nid, node);
        Ok(())
    }

    /// Nodes that the cache budget allows in memory.
    pub(super) fn node_limit(&self) -> usize {
        (self.options.cache_bytes / 2 / BLOCK_SIZE).max(64)
    }

    /// The inode `ino`: its node, checked to be one. Stale if there is none.
    pub(crate) fn inode(&mut self, ino: Ino) -> Result<&RawInode> {
        self.load_inode(ino)?;
        let node = self.nodes.touch(ino.nid());
        Ok(node.ok_or_else(|| not_in_memory(ino.nid()))?.inode())
    }

    /// As [`inode`](Self::inode), to change.
    pub(crate) fn inode_mut(&mut self, ino: Ino) -> Result<&mut RawInode> {
        self.load_inode(ino)?;
        Ok(self.change_loaded(ino.nid(), true)?.inode_mut())
    }

    /// Has the inode `ino` in memory.
    fn load_inode(&mut self, ino: Ino) -> Result<()> {
        if self.find_inode(ino)? { Ok(()) } else { self.load_node(ino.nid()) }
    }

    /// What kind of file an inode is.
    pub(crate) fn kind(&mut self, ino: Ino) -> Result<FileKind> {
        Ok(inode::kind(self.inode(ino)?))
    }

    /// Whether an inode is a directory.
    pub(crate) fn is_directory(&mut self, ino: Ino) -> Result<bool> {
        Ok(self.kind(ino)? == FileKind::Directory)
    }

    /// Adds to an inode's count of blocks, or takes from it.
    pub(crate) fn add_blocks(&mut self, ino: Ino, by: i64) -> Result<()> {
        let raw = self.inode_mut(ino)?;
        let blocks = raw.i_blocks.get().saturating_add_signed(by);
        raw.i_blocks.set(blocks);
        Ok(())
    }

    /// Whether there is an inode of this number.
    pub(crate) fn is_inode(&mut self, ino: Ino) -> Result<bool> {
        match self.find_inode(ino) {
            Ok(_) => Ok(true),
            Err(Error::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the inode `ino` is in memory; if not, it is on the volume. Stale if there is none.
    fn find_inode(&mut self, ino: Ino) -> Result<bool> {
        if let Some(footer) = self.nodes.footer(ino.nid()) {
            return if footer.ino() == ino { Ok(true) } else { Err(basalt_vfs::Error::Stale.into()) };
        }
        if ino == Ino::NONE || ino.nid() >= self.geometry.node_ids() {
            return Err(basalt_vfs::Error::Stale.into());
        }
        let entry = self.nat_entry(ino.nid())?;
        if !nat::in_use(&entry) || entry.ino() != ino {
            return Err(basalt_vfs::Error::Stale.into());
        }
        Ok(false)
    }
}

fn not_in_memory(nid: Nid) -> Error {
    Error::damaged("node", format!("node {nid}"), "not in memory")
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use basalt_device::MemoryDevice;
    use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, SetAttributes, SetTime, Time};

    use super::*;
    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::lock::F2fs;
    use crate::options::OpenOptions;

    fn volume() -> (Arc<MemoryDevice>, u64) {
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        format(&*device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let fs = open(&device);
        let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(fs.root(), b"file", &file, &Caller::default()).unwrap().ino;
        // Behind what the inode itself points to.
        fs.write(ino, 8 << 20, &[1; 4096], false).unwrap();
        fs.close().unwrap();
        (device, ino)
    }

    fn open(device: &Arc<MemoryDevice>) -> F2fs {
        F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap()
    }

    #[test]
    fn a_node_that_is_no_inode_is_stale_whether_it_is_in_memory_or_not() {
        let (device, ino) = volume();
        let fs = open(&device);
        let nodes = |fs: &F2fs| {
            let mut volume = fs.volume.lock();
            let used = |nid: &u32| nat::in_use(&volume.nat_entry(Nid::new(*nid)).unwrap());
            (0..100).filter(used).filter(|nid| u64::from(*nid) > ino).collect::<Vec<_>>()
        };
        let others = nodes(&fs);
        assert!(!others.is_empty());
        for in_memory in [false, true] {
            for &nid in &others {
                let found = fs.attributes(u64::from(nid));
                assert!(matches!(found, Err(basalt_vfs::Error::Stale)), "{nid}: {found:?}");
                assert!(!fs.volume.lock().is_inode(Ino::new(nid)).unwrap());
                assert_eq!(fs.volume.lock().nodes.contains(Nid::new(nid)), in_memory);
            }
            fs.read(ino, 8 << 20, &mut [0; 4096]).unwrap();
        }
        assert!(fs.volume.lock().is_inode(Ino::new(ino as u32)).unwrap());
    }

    #[test]
    fn a_change_of_an_inode_alone_is_a_change() {
        let (device, ino) = volume();
        let fs = open(&device);
        fs.attributes(ino).unwrap();
        assert!(!fs.volume.lock().checkpoint.has_changes());
        fs.set_attributes(ino, &SetAttributes { permissions: Some(0o640), ..SetAttributes::default() }).unwrap();
        assert!(fs.volume.lock().checkpoint.has_changes());
        fs.sync().unwrap();
        // Not closed.
        drop(fs);
        assert_eq!(open(&device).attributes(ino).unwrap().permissions, 0o640);
    }

    #[test]
    fn times_alone_are_not_essential() {
        let (device, ino) = volume();
        let fs = open(&device);
        let is_dirty = |essential| fs.volume.lock().nodes.is_dirty(Ino::new(ino as u32), essential);
        let time = SetTime::To(Time { seconds: 1, nanoseconds: 0 });
        fs.set_attributes(ino, &SetAttributes { mtime: Some(time), ..SetAttributes::default() }).unwrap();
        assert_eq!((is_dirty(false), is_dirty(true)), (true, false));
        fs.set_attributes(ino, &SetAttributes { permissions: Some(0o644), ..SetAttributes::default() }).unwrap();
        assert_eq!((is_dirty(false), is_dirty(true)), (true, true));
    }
}
