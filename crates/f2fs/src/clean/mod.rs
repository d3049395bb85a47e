//! Cleaning: moves the live blocks of a section away, so that the next checkpoint frees it.

mod round;

use zerocopy::FromBytes;

use basalt_segments::{BlockTraits, SegmentState};

use crate::error::{Error, Result};
use crate::layout::summary::{RawSummary, RawSummaryBlock};
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::node::path::{Slot, inode_slot};
use crate::volume::Volume;

/// Sections beyond what dirty data needs and the reserve that are kept free.
const MARGIN_SECTIONS: u32 = 2;

impl Volume {
    /// Whether writing what is dirty could use up the sections kept free for cleaning.
    pub(crate) fn is_short_of_sections(&self) -> bool {
        let per_section = u64::from(self.geometry.segments_per_section * BLOCKS_PER_SEGMENT);
        // Overwriting a block dirties the node that points to it: count it twice.
        let dirty = self.nodes.dirty_count() + 2 * self.dirty_file_pages + 2 * self.dirty_directory_pages;
        let needed = (dirty as u64).div_ceil(per_section) as u32;
        let reserved = self.checkpoint.raw.rsvd_segment_count.get() / self.geometry.segments_per_section;
        self.table.free_sections() < needed.saturating_add(reserved).saturating_add(MARGIN_SECTIONS)
    }

    /// Pages that may be dirty before writers have to wait for writeback.
    pub(crate) fn dirty_page_limit(&self) -> usize {
        let by_memory = self.options.cache_bytes / 2 / BLOCK_SIZE;
        let by_space = self.table.free_segments() as usize * BLOCKS_PER_SEGMENT as usize / 8;
        by_memory.min(by_space).max(64)
    }

    /// Moves every live block of a section to the logs.
    pub(crate) fn clean_section(&mut self, section: u32) -> Result<()> {
        for segment in self.table.segments_of(section) {
            if !matches!(self.table.state(segment), SegmentState::Dirty | SegmentState::Full) {
                continue;
            }
            if let Err(error) = self.clean_segment(segment) {
                if matches!(error, Error::Damaged { .. }) {
                    // What is wrong with one block must not stop the volume: this section is left alone.
                    tracing::warn!(segment, %error, "cleaning met damage; the section is left as it is");
                    self.unclean_sections.insert(section);
                    return Ok(());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn clean_segment(&mut self, segment: u32) -> Result<()> {
        let live: Vec<u32> = self.table.live_blocks(segment).collect();
        let (Some(&first), Some(&last)) = (live.first(), live.last()) else { return Ok(()) };
        let base = self.geometry.main + segment * BLOCKS_PER_SEGMENT;
        let summary = self.read_block(self.geometry.summary_block(segment))?;
        let summary = RawSummaryBlock::ref_from_bytes(&summary.0)
            .map_err(|_| Error::damaged("summary", format!("segment {segment}"), "short"))?;
        if self.table.kind(segment).is_node() {
            return live
                .iter()
                .try_for_each(|&offset| self.move_node(summary.entries[offset as usize].nid.get(), base + offset));
        }
        // Nothing of a sealed segment waits in the writer once its runs are out.
        self.writer.write_all(&*self.device)?;
        let bytes = crate::checkpoint::load::read_blocks(&*self.device, base + first, (last - first + 1) as usize)?;
        for offset in live {
            let at = (offset - first) as usize * BLOCK_SIZE;
            // A slice of one block's length.
            let block = <&[u8; BLOCK_SIZE]>::try_from(&bytes[at..at + BLOCK_SIZE])
                .map_err(|_| Error::damaged("summary", format!("segment {segment}"), "short read"))?;
            self.move_data(&summary.entries[offset as usize], base + offset, block)?;
        }
        Ok(())
    }

    fn move_node(&mut self, nid: u32, address: u32) -> Result<()> {
        if self.nat_entry(nid)?.block_addr.get() != address {
            return Err(not_owned("NAT", nid, address));
        }
        self.node_mut(nid)?;
        self.counters.blocks_moved += 1;
        Ok(())
    }

    fn move_data(&mut self, owner: &RawSummary, address: u32, block: &[u8; BLOCK_SIZE]) -> Result<()> {
        let (nid, index) = (owner.nid.get(), u32::from(owner.ofs_in_node.get()));
        if self.nat_entry(nid)?.block_addr.get() == 0 {
            return Err(not_owned("summary", nid, address));
        }
        let flexible = self.geometry.flexible_inline_xattr();
        let node = self.node(nid)?;
        let ino = node.footer().ino.get();
        let (byte, limit) = if ino == nid {
            (inode_slot(node.inode().extra_size(), index), node.inode().address_slots(flexible))
        } else {
            (4 * index as usize, crate::layout::node::ADDRS_PER_NODE)
        };
        if index >= limit || node.pointer(byte) != address {
            return Err(not_owned("summary", nid, address));
        }
        if !self.is_inode(ino)? {
            return Err(not_owned("node", nid, address));
        }
        let traits = BlockTraits { cold: true, ..self.data_traits(ino)? };
        let kind = self.placement.log(&traits);
        let slot = Slot { nid, byte, index, count: 1 };
        self.write_data_block(ino, index, slot, kind, block)?;
        self.counters.blocks_moved += 1;
        Ok(())
    }
}

fn not_owned(structure: &'static str, nid: u32, address: u32) -> Error {
    Error::damaged(structure, format!("block {address}"), format!("live, but node {nid} does not point there"))
}
