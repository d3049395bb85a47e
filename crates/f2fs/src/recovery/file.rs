//! One file: attributes, inline data, block addresses and xattrs as its nodes in the chain have them.

use zerocopy::little_endian::U32;

use super::forward::{PER_NODE, Traces, as_inode, as_node};
use super::scan::Chain;
use crate::error::{Error, Result};
use crate::layout::inode::{Advise, InlineFlags, NIDS, RawInode};
use crate::layout::node::{ADDRS_PER_NODE, XATTR_NODE_OFFSET};
use crate::layout::xattr::NODE_CAPACITY;
use crate::layout::{Address, BLOCK_BITS, FileBlock, Ino, Nid, RawBlock};
use crate::log::active::{Owners, data_owner};
use crate::mutant::{self, Mutant};
use crate::node::level::first_block;
use crate::node::path::{Mapped, inode_slot};
use crate::volume::Volume;

impl Volume {
    /// Brings an inode to the state of its last fsync.
    pub(super) fn recover_file(
        &mut self,
        ino: Ino,
        file: &Traces,
        chain: &Chain<'_>,
        owners: &mut Owners,
    ) -> Result<()> {
        let mut has_xattrs = None;
        if let Some(at) = file.inode {
            let image = self.chain_inode(ino, chain, at)?;
            has_xattrs = Some(as_inode(&image).xattr_nid() != Nid::NONE);
            self.recover_inode(ino, &image, owners)?;
        }
        for (&offset, &at) in &file.nodes {
            let image = self.chain_node(ino, offset, chain, at)?;
            if offset == XATTR_NODE_OFFSET {
                if has_xattrs != Some(false) {
                    self.recover_xattr_node(ino, &image)?;
                }
                continue;
            }
            if self.has_inline_data(ino)? {
                continue; // Of before the data moved into the inode, which is newer.
            }
            let end = self.recover_direct_node(ino, offset, &image, owners)?;
            // Fsynced without the inode, whose size is older then.
            let keeps_size = self.inode(ino)?.i_advise & Advise::KEEP_SIZE.bits() != 0;
            // One that ends within its last block has that size already: Linux writes an inode in front of its nodes.
            let is_short = self.inode(ino)?.i_size.get().next_multiple_of(1 << BLOCK_BITS) < end;
            if file.inode.is_none_or(|inode| inode < at) && !keeps_size && is_short {
                self.inode_mut(ino)?.i_size.set(end);
            }
        }
        self.recover_told(ino, file, chain, owners)?;
        let raw = self.inode(ino)?;
        if has_xattrs == Some(true) && raw.xattr_nid() == Nid::NONE {
            return Err(Error::damaged("inode", format!("inode {ino}"), "fsynced without its xattr node"));
        }
        Ok(())
    }

    fn recover_inode(&mut self, ino: Ino, image: &RawBlock, owners: &mut Owners) -> Result<()> {
        let flexible = self.geometry.flexible_inline_xattr();
        let new = as_inode(image);
        let old = self.inode(ino)?;
        let (extra, own) = (new.extra_size(), new.address_slots(flexible));
        if (extra, own) != (old.extra_size(), old.address_slots(flexible)) {
            return Err(Error::damaged("inode", format!("inode {ino}"), "fsynced with another shape"));
        }
        let (old_trees, old_size) = (old.i_nid, old.i_size.get());
        let (was_inline, is_inline) = (old.is_inline(InlineFlags::DATA), new.is_inline(InlineFlags::DATA));
        if !was_inline {
            if is_inline {
                self.free_blocks_from(ino, FileBlock::FIRST)?;
            } else if new.i_size.get() < old_size {
                self.free_blocks_from(ino, FileBlock::behind(new.i_size.get()))?;
            }
            for which in (0..NIDS).filter(|&which| new.i_nid[which].get() == 0 && old_trees[which].get() != 0) {
                self.free_tree(ino, which)?;
            }
        }
        if new.xattr_nid() == Nid::NONE {
            self.drop_xattr_node(ino)?;
        }
        self.merge_inode(ino, image, was_inline)?;
        if !is_inline {
            let slots = (inode_slot(extra, 0), 0);
            self.recover_addresses(ino, ino.nid(), slots, new.addresses(flexible), owners)?;
        }
        Ok(())
    }

    /// Takes over what an fsynced inode says, except what counts and links the rest of the volume.
    fn merge_inode(&mut self, ino: Ino, image: &RawBlock, was_inline: bool) -> Result<()> {
        let flexible = self.geometry.flexible_inline_xattr();
        let node = self.node_mut(ino.nid())?;
        let old: RawInode = *node.inode();
        node.bytes_mut().copy_from_slice(&image.0);
        let raw = node.inode_mut();
        raw.i_links = old.i_links;
        raw.i_blocks = old.i_blocks;
        raw.i_xattr_nid = old.i_xattr_nid;
        raw.i_size = if mutant::active(Mutant::SizeNotRecovered) { old.i_size } else { raw.i_size };
        raw.i_pino = old.i_pino;
        raw.i_namelen = old.i_namelen;
        raw.i_name = old.i_name;
        raw.i_ext.len.set(0);
        raw.i_nid = old.i_nid;
        raw.footer = old.footer;
        if !raw.is_inline(InlineFlags::DATA) {
            let slots = raw.addresses_mut(flexible);
            if was_inline {
                slots.fill(Address::NULL.into());
            } else {
                slots.copy_from_slice(old.addresses(flexible));
            }
        }
        Ok(())
    }

    fn drop_xattr_node(&mut self, ino: Ino) -> Result<()> {
        let nid = self.inode(ino)?.xattr_nid();
        if nid == Nid::NONE {
            return Ok(());
        }
        self.check_xattr_node(ino)?;
        self.free_node(nid)?;
        self.inode_mut(ino)?.i_xattr_nid.set(0);
        self.add_blocks(ino, -1)
    }

    fn recover_xattr_node(&mut self, ino: Ino, image: &RawBlock) -> Result<()> {
        let mut nid = self.inode(ino)?.xattr_nid();
        if nid == Nid::NONE {
            self.counts.expect_room(1)?;
            nid = self.new_node(Some(ino), XATTR_NODE_OFFSET, true)?;
            self.inode_mut(ino)?.i_xattr_nid.set(nid.get());
            self.add_blocks(ino, 1)?;
        }
        self.check_xattr_node(ino)?;
        self.node_mut(nid)?.bytes_mut()[..NODE_CAPACITY].copy_from_slice(&image.0[..NODE_CAPACITY]);
        Ok(())
    }

    /// Recovers the addresses of a direct node; returns the end in bytes of the last block that is there.
    fn recover_direct_node(&mut self, ino: Ino, offset: u32, image: &RawBlock, owners: &mut Owners) -> Result<u64> {
        let flexible = self.geometry.flexible_inline_xattr();
        let own = self.inode(ino)?.address_slots(flexible);
        let first = first_block(own, offset);
        let first =
            first.ok_or_else(|| Error::damaged("node", format!("inode {ino}"), format!("node offset {offset}")))?;
        let addresses = &as_node(image).slots[..PER_NODE];
        let Some(last) = addresses.iter().rposition(|address| Address::from(*address) != Address::NULL) else {
            if let Mapped::Slot(slot) = self.map(ino, first, false)? {
                self.recover_addresses(ino, slot.nid, (slot.byte, 0), addresses, owners)?;
            }
            return Ok(0);
        };
        let slot = self.slot(ino, first)?;
        if slot.index != 0 || slot.count != ADDRS_PER_NODE {
            return Err(Error::damaged(
                "node",
                format!("inode {ino}"),
                format!("node offset {offset} begins elsewhere"),
            ));
        }
        self.recover_addresses(ino, slot.nid, (slot.byte, 0), addresses, owners)?;
        Ok((first + last as u32 + 1).byte())
    }

    /// Gives the addresses from `at` (byte and index) of a node on the values they had in the chain.
    pub(super) fn recover_addresses(
        &mut self,
        ino: Ino,
        nid: Nid,
        at: (usize, u32),
        addresses: &[U32],
        owners: &mut Owners,
    ) -> Result<()> {
        let (mut added, mut changed) = (0_i64, false);
        for (step, new) in addresses.iter().map(|address| Address::from(*address)).enumerate() {
            let byte = at.0 + 4 * step;
            let old = self.node(nid)?.address(byte);
            if new == old {
                continue;
            }
            changed = true;
            if old == Address::NULL {
                self.counts.expect_room(1)?;
                self.counts.add_block();
                added += 1;
            } else if old != Address::NEW {
                self.invalidate(old)?;
            }
            match new {
                Address::NULL => {
                    self.counts.remove_blocks(1)?;
                    added -= 1;
                }
                Address::NEW => {}
                address => self.claim(address, nid, at.1 + step as u32, owners)?,
            }
            self.node_mut(nid)?.set_address(byte, new);
        }
        if changed {
            self.forget_extent(ino)?;
            self.add_blocks(ino, added)?;
        }
        Ok(())
    }

    /// Makes a block live for its owner of the chain.
    fn claim(&mut self, address: Address, nid: Nid, index: u32, owners: &mut Owners) -> Result<()> {
        let block = self.geometry.main_block(address);
        let segment = block.segment();
        if self.table.is_live(block) {
            self.take_from_owner(address, owners)?;
        }
        let version = self.nat_entry(nid)?.version;
        // First: the summary says which kind of segment it is.
        if self.table.live(segment) == 0 && self.table.kind(segment).is_node() {
            self.table.set_kind(segment, basalt_segments::SegmentKind::WarmData);
        }
        self.set_owner(block, data_owner(nid, version, index), owners)?;
        let now = self.mounted_seconds();
        if !self.table.set_live(block, now) {
            return Err(Error::damaged("SIT", format!("block {address}"), "fsynced, and live for another owner"));
        }
        self.checkpoint.note_change();
        Ok(())
    }

    /// A block moved from one place of a file to another (Linux's collapse, insert and exchange of ranges): the old place
    /// loses it.
    fn take_from_owner(&mut self, address: Address, owners: &mut Owners) -> Result<()> {
        let owner = self.owner_of(self.geometry.main_block(address), owners)?;
        let nid = owner.nid();
        let (byte, ino) = self.pointer_of(nid, owner.ofs_in_node.get().into(), address)?;
        self.node_mut(nid)?.set_address(byte, Address::NULL);
        self.invalidate(address)?;
        self.forget_extent(ino)?;
        self.counts.remove_blocks(1)?;
        self.add_blocks(ino, -1)
    }
}
