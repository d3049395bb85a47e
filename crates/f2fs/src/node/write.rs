//! Making, freeing and writing nodes: each gets its place in a node log when it is written.

use basalt_segments::{BlockTraits, LogId, SegmentKind};
use zerocopy::little_endian::{U32, U64};

use super::cache::Node;
use super::{inode, nat};
use crate::error::Result;
use crate::layout::inside::Inside;
use crate::layout::nat::RawNatEntry;
use crate::layout::node::{NodeFlags, OFFSET_SHIFT, RawNodeFooter};
use crate::layout::superblock::Features;
use crate::layout::{Address, Ino, Nid, RawBlock};
use crate::log::active::node_owner;
use crate::volume::Volume;

impl Volume {
    /// Puts the block of an inode that had to be made anew into memory, dirty, and counts it.
    pub(crate) fn put_new_node(&mut self, nid: Nid, block: Box<RawBlock>) {
        self.put_node(nid, Node::of(block));
        self.nodes.forget_untold(nid);
    }

    fn put_node(&mut self, nid: Nid, node: Node) {
        self.nodes.insert(nid, node);
        self.nodes.mark_dirty(nid, true);
        self.checkpoint.note_change();
        self.counts.add_node();
    }

    /// Makes a node of `ino` at `offset` in its tree and returns its id. Counts it as a block and a node; the caller has
    /// made sure that there is room, and adds it to the inode's blocks.
    pub(crate) fn new_node(&mut self, ino: Option<Ino>, offset: u32, cold: bool) -> Result<Nid> {
        let nid = self.nat.take_free(&*self.device, &self.geometry)?;
        let ino = ino.unwrap_or(nid.as_inode());
        let old = self.nat_entry(nid)?;
        self.nat
            .set(nid, RawNatEntry { version: old.version, ino: U32::new(ino.get()), block_addr: Address::NEW.into() });
        let mut node = Node::of(RawBlock::zeroed());
        let footer = &mut node.raw_mut().footer;
        footer.nid.set(nid.get());
        footer.ino.set(ino.get());
        let cold = if cold { NodeFlags::COLD.bits() } else { 0 };
        footer.flag.set(offset << OFFSET_SHIFT | cold);
        self.put_node(nid, node);
        self.checkpoint.since_mut().note_reserved();
        Ok(nid)
    }

    /// Frees a node: its block, its id, its place in the counts. The caller takes it off the inode's blocks.
    pub(crate) fn free_node(&mut self, nid: Nid) -> Result<()> {
        let entry = self.nat_entry(nid)?;
        self.nodes.remove(nid);
        if nat::is_new(&entry) {
            self.nat.give_back(nid);
        } else {
            if entry.ino().nid() != nid {
                self.checkpoint.since_mut().note_reshaped(entry.ino());
            }
            self.invalidate(entry.address())?;
            let version = entry.version.wrapping_add(1);
            self.nat.set(nid, RawNatEntry { version, ino: U32::new(0), block_addr: Address::NULL.into() });
        }
        self.counts.remove_node()?;
        self.checkpoint.note_change();
        Ok(())
    }

    /// Writes every dirty node to its log.
    pub(crate) fn write_nodes(&mut self) -> Result<()> {
        self.write_some_nodes(usize::MAX)
    }

    /// Writes up to `most` dirty nodes, going on where the last call ended.
    pub(crate) fn write_some_nodes(&mut self, most: usize) -> Result<()> {
        self.nodes.next_to_write(most).into_iter().try_for_each(|nid| self.write_node(nid))?;
        let limit = self.node_limit();
        self.nodes.shrink(limit);
        Ok(())
    }

    /// Writes a node to its log if it is dirty, without marks: an fsync that covers it comes later, or never.
    pub(crate) fn write_node(&mut self, nid: Nid) -> Result<()> {
        let Some((log, address)) = self.place_node(nid, NodeFlags::empty(), None)? else { return Ok(()) };
        if log == LogId::of(SegmentKind::WarmNode) {
            let Some(bytes) = self.nodes.bytes(nid) else { return Ok(()) };
            self.checkpoint.since_mut().note_unsealed(address, bytes, None);
            self.keep_targets(nid);
        }
        let Some(node) = self.nodes.get(nid) else { return Ok(()) };
        // In whichever log: with two logs none is the chain's, and the node is as little durable.
        let (ino, block) = (node.footer().ino(), node_traits(node.footer()));
        self.checkpoint.since_mut().note_unmarked(ino);
        if block.direct_node && !block.of_directory && log != LogId::of(SegmentKind::WarmNode) {
            // It is clean now and in no chain: only a checkpoint makes it durable.
            self.checkpoint.since_mut().note_reshaped(ino);
        }
        self.writer.append(&*self.device, log.index(), address, node.bytes())
    }

    /// Gives a dirty node its next place, in this log or where the placement wants it, and its footer; the bytes are the caller's to
    /// write. `None` if it is clean, or was freed.
    pub(crate) fn place_node(
        &mut self,
        nid: Nid,
        marks: NodeFlags,
        log: Option<LogId>,
    ) -> Result<Option<(LogId, Address)>> {
        if !self.nodes.must_be_written(nid) {
            return Ok(None);
        }
        let entry = self.nat_entry(nid)?;
        let (log, address) = match log {
            Some(log) => (log, self.place_in(log, &self.node_traits(nid), node_owner(nid))?),
            None => self.place(&self.node_traits(nid), node_owner(nid))?,
        };
        if log == LogId::of(SegmentKind::WarmNode) {
            self.note_chained();
        }
        let next = self.next_address(log);
        let version = self.checkpoint.node_version();
        let with_checksum = self.geometry.features.contains(Features::INODE_CHECKSUM);
        let may_clear = !self.geometry.features.contains(Features::COMPRESSION);
        let seed = self.geometry.checksum_seed;
        let Some(node) = self.nodes.get_mut(nid) else { return Ok(None) };
        let footer = &mut node.raw_mut().footer;
        let unmarked = footer.flag.get() & !(NodeFlags::FSYNC | NodeFlags::DENTRY).bits();
        footer.flag = U32::new(unmarked | marks.bits());
        footer.cp_ver = U64::new(version);
        footer.next_blkaddr = next.into();
        if footer.ino == footer.nid {
            if may_clear {
                // Of another place, or as Linux copied it.
                Inside::clear(node.inode_mut());
            }
            if with_checksum {
                inode::set_checksum(node.inode_mut(), seed);
            }
        }
        self.nodes.mark_clean(nid);
        self.nat.set(nid, RawNatEntry { block_addr: address.into(), ..entry });
        self.record.wrote_node();
        if !nat::is_new(&entry) {
            self.invalidate(entry.address())?;
        }
        Ok(Some((log, address)))
    }

    /// Has an inode that just got this place vouch for itself and for what `inside` says.
    pub(crate) fn seal_inside(&mut self, ino: Ino, address: Address, inside: &Inside) {
        let with_checksum = self.geometry.features.contains(Features::INODE_CHECKSUM);
        let seed = self.geometry.checksum_seed;
        let Some(node) = self.nodes.get_mut(ino.nid()) else { return };
        inside.write(node.inode_mut(), address);
        if with_checksum {
            inode::set_checksum(node.inode_mut(), seed);
        }
    }

    /// What placement may know about a node.
    fn node_traits(&self, nid: Nid) -> BlockTraits {
        self.nodes.get(nid).map_or_else(BlockTraits::default, |node| node_traits(node.footer()))
    }
}

/// What placement may know about a node with this footer.
pub(crate) fn node_traits(footer: &RawNodeFooter) -> BlockTraits {
    BlockTraits {
        node: true,
        direct_node: super::path::is_direct(footer.offset()),
        of_directory: !footer.flags().contains(NodeFlags::COLD),
        file: footer.ino().get(),
        ..BlockTraits::default()
    }
}
