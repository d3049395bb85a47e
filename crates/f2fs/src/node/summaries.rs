//! Segments' summaries in recovery: who owns the blocks that it makes live, and what stands where a summary cannot be read.

use std::collections::btree_map::Entry;

use zerocopy::{FromBytes, IntoBytes};

use basalt_segments::{MainBlock, Segment};

use super::pointers::pointers;
use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::layout::node::RawNode;
use crate::layout::summary::{RawSummary, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, RawBlock};
use crate::log::active::{Owners, data_owner, node_owner};
use crate::volume::Volume;

impl Volume {
    /// Writes the summaries of segments that got live blocks: what they had for those may never have reached the device.
    pub(crate) fn write_owners(&mut self, owners: Owners) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        for (segment, summary) in owners.changed {
            let address = self.geometry.summary_block(segment);
            let mut block = RawBlock::zeroed();
            block.0.copy_from_slice(summary.as_bytes());
            self.write_metadata(address, &block.0)?;
        }
        Ok(())
    }

    /// Who owns a block, by its segment's summary.
    pub(crate) fn owner_of(&mut self, block: MainBlock, owners: &Owners) -> Result<RawSummary> {
        let (segment, offset) = (block.segment(), block.offset() as usize);
        if let Some(log) = self.log_in(segment) {
            return Ok(self.logs[log].summary.entries[offset]);
        }
        match owners.changed.get(&segment) {
            Some(summary) => Ok(summary.entries[offset]),
            None => Ok(self.load_summary(segment)?.entries[offset]),
        }
    }

    /// Records who owns a block that becomes live.
    pub(crate) fn set_owner(&mut self, block: MainBlock, owner: RawSummary, owners: &mut Owners) -> Result<()> {
        let (segment, offset) = (block.segment(), block.offset() as usize);
        if let Some(log) = self.log_in(segment) {
            // Written when the log moves on.
            let log = &mut self.logs[log];
            log.summary.entries[offset] = owner;
            log.is_summary_written = false;
            return Ok(());
        }
        let summary = match owners.changed.entry(segment) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if self.table.live(segment) == 0 => place.insert(RawSummaryBlock::empty(TYPE_DATA)),
            Entry::Vacant(place) => place.insert(self.load_summary(segment)?),
        };
        summary.entry_type = if self.table.kind(segment).is_node() { TYPE_NODE } else { TYPE_DATA };
        summary.entries[offset] = owner;
        Ok(())
    }

    /// A segment's summary, as it is on the device. One that cannot be read is made from the nodes, with a warning: a log that the
    /// checkpoint does not record writes its summary again at every checkpoint, and power can go while it does.
    pub(crate) fn load_summary(&mut self, segment: Segment) -> Result<Box<RawSummaryBlock>> {
        let address = self.geometry.summary_block(segment);
        let block = match self.read_block(address) {
            Err(error) if error.is_from_reading() => {
                let summary = self.summary_by_nodes(segment)?;
                self.warnings.push(format!("summary of segment {segment} made anew from the nodes: {error}"));
                return Ok(summary);
            }
            block => block?,
        };
        let mut summary = RawSummaryBlock::empty(TYPE_DATA);
        *summary = RawSummaryBlock::read_from_bytes(&block.0)
            .map_err(|_| Error::damaged("summary", format!("segment {segment}"), "short"))?;
        Ok(summary)
    }

    /// What a segment's summary has to say of its live blocks: which nodes they are, or which nodes point to them. It reads every node.
    fn summary_by_nodes(&mut self, segment: Segment) -> Result<Box<RawSummaryBlock>> {
        let is_of_nodes = self.table.kind(segment).is_node();
        let mut summary = RawSummaryBlock::empty(if is_of_nodes { TYPE_NODE } else { TYPE_DATA });
        if is_of_nodes {
            self.each_live_node(segment, &mut |block, nid, _| summary.entries[block as usize] = node_owner(nid))?;
            return Ok(summary);
        }
        let first = self.geometry.in_segment(segment, 0);
        let mut found = [None; BLOCKS_PER_SEGMENT as usize];
        for of_nodes in self.geometry.segments().filter(|other| self.table.kind(*other).is_node()) {
            self.each_live_node(of_nodes, &mut |_, nid, node| {
                for (index, address) in pointers(node, &self.geometry).into_iter().flatten().enumerate() {
                    let block = Address::from(*address).blocks_behind(first);
                    if let Some(place) = block.and_then(|block| found.get_mut(block as usize)) {
                        *place = Some((nid, index as u32));
                    }
                }
            })?;
        }
        for (entry, (nid, index)) in
            summary.entries.iter_mut().zip(found).filter_map(|(entry, found)| Some((entry, found?)))
        {
            *entry = data_owner(nid, self.nat_entry(nid)?.version, index);
        }
        Ok(summary)
    }

    /// Calls `each` with the live nodes of a segment: block of the segment, number, bytes.
    fn each_live_node(&self, segment: Segment, each: &mut dyn FnMut(u32, Nid, &[u8])) -> Result<()> {
        let first = self.geometry.in_segment(segment, 0);
        let is_on_device = !self.writer.holds(first..first + BLOCKS_PER_SEGMENT);
        // What no live block needs may be unreadable.
        let mut all = None;
        for (count, block) in self.table.live_blocks(segment).enumerate() {
            if count == 0 && is_on_device {
                all = read_blocks(&*self.device, first, BLOCKS_PER_SEGMENT as usize).ok();
            }
            let alone = if all.is_none() { Some(self.read_block(first + block)?) } else { None };
            let in_all = all.as_ref().map(|all| &all[block as usize * BLOCK_SIZE..][..BLOCK_SIZE]);
            let bytes = alone.as_ref().map(|block| &block.0[..]).or(in_all).unwrap_or_default();
            if let Ok(node) = RawNode::ref_from_bytes(bytes) {
                each(block, node.footer.nid(), bytes);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use basalt_device::MemoryDevice;
    use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::layout::Ino;
    use crate::lock::F2fs;
    use crate::options::OpenOptions;

    /// A volume whose logs have all filled segments: files with nodes of their own, and files without.
    fn used() -> F2fs {
        let device = Arc::new(MemoryDevice::new(96 << 20, 512));
        format(&*device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        for number in 0..600_u64 {
            let ino = fs.create(fs.root(), format!("{number}").as_bytes(), &file, &Caller::default()).unwrap().ino;
            let at = if number % 4 == 0 { 8 << 20 } else { 0 };
            fs.write(ino, at, &[number as u8; 3 * 4096], false).unwrap();
            if number % 3 == 0 {
                fs.fsync(Ino::new(ino as u32), false).unwrap();
                fs.write(ino, at + 4096, &[!number as u8; 4096], false).unwrap();
            }
        }
        fs.sync().unwrap();
        fs
    }

    #[test]
    fn nodes_say_what_summaries_say() {
        let fs = used();
        let mut volume = fs.volume.lock();
        let mut compared = [0, 0];
        for segment in volume.geometry.segments() {
            let live: Vec<u32> = volume.table.live_blocks(segment).collect();
            let by_log = volume.log_in(segment).map(|log| volume.logs[log].summary.clone());
            let known = by_log.map_or_else(|| volume.load_summary(segment), Ok).unwrap();
            let made = volume.summary_by_nodes(segment).unwrap();
            for block in live {
                let at = block as usize;
                assert_eq!(made.entries[at].nid(), known.entries[at].nid(), "segment {segment}, block {block}");
                assert_eq!(
                    made.entries[at].ofs_in_node, known.entries[at].ofs_in_node,
                    "segment {segment}, block {block}"
                );
                assert_eq!(made.entries[at].version, known.entries[at].version, "segment {segment}, block {block}");
                compared[usize::from(volume.table.kind(segment).is_node())] += 1;
            }
        }
        assert!(compared[0] > 1500 && compared[1] > 700, "{compared:?}");
    }
}
