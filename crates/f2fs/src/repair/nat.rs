//! Entries of the node address table, and footers: which node is where, and whose it is.

use basalt_segments::{Segment, SegmentKind};
use rustc_hash::FxHashMap;

use super::node::new_indirect;
use super::state::State;
use crate::check::{Fault, FaultKind, Place, Survey};
use crate::error::Result;
use crate::layout::inode::InlineFlags;
use crate::layout::nat::RawNatEntry;
use crate::layout::node::{NodeFlags, OFFSET_SHIFT, RawNode, XATTR_NODE_OFFSET};
use crate::layout::{Address, BLOCKS_PER_SEGMENT, Ino, Nid, bit_msb, xattr};
use crate::node::path::is_direct;
use crate::node::seen::recognise;
use zerocopy::{FromBytes, IntoBytes};

impl State {
    /// Repairs a fault of a NAT entry or a footer; says what was done.
    pub(super) fn repair_nat(&mut self, survey: &Survey, fault: &Fault) -> Result<Option<String>> {
        let Place::Node(nid) = fault.place else { return Ok(None) };
        let owner = self.place_of(survey, nid)?;
        match fault.kind {
            FaultKind::NatReserved => {
                let address = u32::from(nid != Nid::NONE);
                self.edit_nat(nid, |entry| {
                    *entry = RawNatEntry { version: 0, ino: nid.into(), block_addr: address.into() };
                })?;
                Ok(Some("entry of a reserved id restored".into()))
            }
            FaultKind::NatMissing => self.take_back(survey, nid, fault),
            FaultKind::NatAddress | FaultKind::NatDuplicateAddress => self.replace_node(survey, nid).map(Some),
            FaultKind::NodeFooterNid if survey.unreadable.contains(&nid) => {
                if self.mend_footer(nid, owner)? {
                    return Ok(Some(format!(
                        "footer now of node {nid} of inode {}, as its segment's summary says",
                        owner.0
                    )));
                }
                if self.empty_indirect(survey, nid, owner)? {
                    return Ok(Some("overwritten: now an empty node, to which those below it are put back".into()));
                }
                self.replace_node(survey, nid).map(Some)
            }
            FaultKind::NatIno => {
                self.edit_nat(nid, |entry| entry.ino.set(owner.0.get()))?;
                Ok(Some(format!("now of inode {}", owner.0)))
            }
            FaultKind::NodeFooterNid | FaultKind::NodeFooterIno | FaultKind::NodeFooterOffset => {
                let edited = self.edit_node(nid, |node| {
                    let footer = &mut node.footer;
                    footer.nid.set(nid.get());
                    footer.ino.set(owner.0.get());
                    let flags = footer.flag.get() & NodeFlags::all().bits();
                    footer.flag.set(flags | owner.1 << OFFSET_SHIFT);
                })?;
                Ok(edited.then(|| format!("footer now of node {nid} of inode {}, offset {}", owner.0, owner.1)))
            }
            _ => Ok(None),
        }
    }

    /// Leads a NAT entry to the live block that is its node.
    fn take_back(&mut self, survey: &Survey, nid: Nid, fault: &Fault) -> Result<Option<String>> {
        let Some(address) = fault.right.and_then(|right| u32::try_from(right).ok()).map(Address::new) else {
            return Ok(None);
        };
        let Some(footer) = State::footer(&self.block(address)?) else { return Ok(None) };
        let has_file = survey.inodes.contains_key(&footer.ino());
        let is_old = self.homeless.contains(&nid) && !has_file || self.outdated.contains(&address);
        if is_old || !self.taken.insert(address) {
            return Ok(None);
        }
        self.put_back.insert(address);
        self.edit_nat(nid, |entry| (entry.ino, entry.block_addr) = (footer.ino, address.into()))?;
        Ok(Some(format!("now at block {address}, of inode {}", footer.ino)))
    }

    /// A node whose footer is wrong in every respect, but which the segment's summary names and whose other bytes can be right: gets its
    /// footer back. False if the block is not this node.
    fn mend_footer(&mut self, nid: Nid, (ino, offset): (Ino, u32)) -> Result<bool> {
        let address = self.nat(nid)?.address();
        if !self.geometry.in_main(address) || self.summary(address)?.nid() != nid {
            return Ok(false);
        }
        let mut block = self.block(address)?;
        // Whatever its bytes are, they could be a part of an attribute's value.
        if offset == XATTR_NODE_OFFSET && !self.is_rest_of_xattrs(ino, &block)? {
            return Ok(false);
        }
        let known = recognise(&block, &self.geometry, true).is_some_and(|seen| seen.sound);
        let Ok(node) = RawNode::mut_from_bytes(&mut block) else { return Ok(false) };
        node.footer.nid.set(nid.get());
        node.footer.ino.set(ino.get());
        node.footer.flag.set(node.footer.flag.get() & NodeFlags::all().bits() | offset << OFFSET_SHIFT);
        // Where the log went on counts for nothing any more.
        node.footer.next_blkaddr = Address::NULL.into();
        // Zeros and ones can be addresses, and are what a device gives back that has lost a block.
        let is_uniform = node.slots.iter().all(|slot| *slot == node.slots[0]);
        if known || is_uniform || recognise(&block, &self.geometry, true).is_none() {
            return Ok(false);
        }
        self.seal(&mut block);
        self.put(address, &block)?;
        Ok(true)
    }

    /// Whether a node's bytes are the rest of an inode's list of extended attributes, or all of it.
    fn is_rest_of_xattrs(&mut self, ino: Ino, node: &[u8]) -> Result<bool> {
        let Some(inode) = self.inode(ino)? else { return Ok(false) };
        let range = inode.inline_xattr_range(self.geometry.flexible_inline_xattr());
        let inline = inode.is_inline(InlineFlags::XATTR).then(|| inode.as_bytes().get(range)).flatten();
        let list = [inline.unwrap_or_default(), node.get(..xattr::NODE_CAPACITY).unwrap_or_default()].concat();
        Ok(super::xattr::is_sound(&list))
    }

    /// A node of node ids that is gone is made anew, empty, in the block that it has: the nodes below it know where they belong.
    fn empty_indirect(&mut self, survey: &Survey, nid: Nid, (ino, offset): (Ino, u32)) -> Result<bool> {
        let address = self.nat(nid)?.address();
        let is_own = self.geometry.in_main(address) && self.summary(address)?.nid() == nid;
        if is_direct(offset) || !is_own || !survey.inodes.contains_key(&ino) {
            return Ok(false);
        }
        self.put(address, &new_indirect(nid, ino, offset))?;
        Ok(true)
    }

    /// A node that is not where the NAT says: found again where a live block without an owner says so, else its id is freed.
    pub(super) fn replace_node(&mut self, survey: &Survey, nid: Nid) -> Result<String> {
        let ino = self.nat(nid)?.ino();
        for address in self.strays(survey)?.get(&nid).cloned().unwrap_or_default() {
            let footer = State::footer(&self.block(address)?);
            if footer.is_some_and(|footer| footer.nid() == nid && footer.ino() == ino) && self.taken.insert(address) {
                self.edit_nat(nid, |entry| entry.block_addr.set(address.get()))?;
                return Ok(format!("found at block {address}"));
            }
        }
        self.free_node(nid)?;
        Ok("not found anywhere: node id freed".into())
    }

    /// Blocks of node segments that the SIT has as live though nobody owns them, by the node they are of.
    fn strays(&mut self, survey: &Survey) -> Result<&FxHashMap<Nid, Vec<Address>>> {
        if self.strays.is_none() {
            let mut strays: FxHashMap<Nid, Vec<Address>> = FxHashMap::default();
            for segment in self.geometry.segments() {
                let entry = self.sit(segment)?;
                let is_node = SegmentKind::from_u8(entry.kind()).is_some_and(SegmentKind::is_node);
                if is_node && entry.valid_map != [0; 64] {
                    self.strays_of(survey, segment, &entry.valid_map, &mut strays)?;
                }
            }
            self.strays = Some(strays);
        }
        Ok(self.strays.get_or_insert_default())
    }

    fn strays_of(
        &self,
        survey: &Survey,
        segment: Segment,
        live: &[u8; 64],
        strays: &mut FxHashMap<Nid, Vec<Address>>,
    ) -> Result<()> {
        let owned = survey.ownership.map.found_in(segment);
        let summaries = self.summaries(segment)?;
        for block in 0..BLOCKS_PER_SEGMENT {
            let at = block as usize;
            if bit_msb(live, at) && !owned.is_some_and(|found| bit_msb(&found.map, at)) {
                let address = self.geometry.in_segment(segment, block);
                strays.entry(summaries[at].nid()).or_default().push(address);
            }
        }
        Ok(())
    }
}
