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
    pub(crate) fn owner_of(&mut self, block: MainBlock, owners: &mut Owners) -> Result<RawSummary> {
        let (segment, offset) = (block.segment(), block.offset() as usize);
        if let Some(log) = self.log_in(segment) {
            return Ok(self.logs[log].summary.entries[offset]);
        }
        // Kept: one that had to be made anew took its time.
        let summary = match owners.changed.entry(segment) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(self.load_summary(segment)?),
        };
        Ok(summary.entries[offset])
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

    use basalt_device::{BlockDevice, MemoryDevice};
    use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

    use super::*;
    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::layout::Ino;
    use crate::lock::F2fs;
    use crate::options::OpenOptions;

    /// A volume with files that have nodes of their own and files that have none, some removed and their node ids taken again.
    fn used() -> (Arc<MemoryDevice>, F2fs) {
        let device = Arc::new(MemoryDevice::new(96 << 20, 512));
        format(&*device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let name = |number: u64| format!("{number}").into_bytes();
        for number in 0..1500_u64 {
            let ino = fs.create(fs.root(), &name(number), &file, &Caller::default()).unwrap().ino;
            let at = if number % 4 == 0 { 8 << 20 } else { 0 };
            fs.write(ino, at, &[number as u8; 3 * 4096], false).unwrap();
            if number % 3 == 0 {
                fs.fsync(Ino::new(ino as u32), false).unwrap();
                fs.write(ino, at + 4096, &[!number as u8; 4096], false).unwrap();
            }
            if number % 5 == 4 {
                fs.unlink(fs.root(), &name(number - 2)).unwrap();
                fs.forget(ino, 1);
            }
            if number % 100 == 99 {
                fs.sync().unwrap();
            }
        }
        fs.sync().unwrap();
        (device, fs)
    }

    /// What stands for a summary that cannot be read is what it said of all that lives, with a warning each time.
    #[test]
    fn nodes_say_what_summaries_say() {
        let (device, fs) = used();
        let mut volume = fs.volume.lock();
        let mut compared = [0, 0];
        let is_closed = |one: &Segment| volume.log_in(*one).is_none() && volume.table.live(*one) > 0;
        let closed: Vec<Segment> = volume.geometry.segments().filter(is_closed).collect();
        for segment in closed {
            let known = volume.load_summary(segment).unwrap();
            let place = u64::from(volume.geometry.summary_block(segment)) * BLOCK_SIZE as u64;
            device.spoil(place, BLOCK_SIZE as u64).unwrap();
            let warned = volume.warnings.len();
            let made = volume.load_summary(segment).unwrap();
            assert_eq!(volume.warnings.len(), warned + 1);
            assert_eq!(made.entry_type, known.entry_type, "segment {segment}");
            for block in volume.table.live_blocks(segment) {
                let at = block as usize;
                assert_eq!(
                    made.entries[at].as_bytes(),
                    known.entries[at].as_bytes(),
                    "segment {segment}, block {block}"
                );
                compared[usize::from(volume.table.kind(segment).is_node())] += 1;
            }
            device.write_at(place, known.as_bytes()).unwrap();
        }
        assert!(compared[0] > 1500 && compared[1] > 500, "{compared:?}");
    }

    /// Blocks of a node segment that nobody needs may be unreadable, and those that are needed may not.
    #[test]
    fn only_live_nodes_are_read() {
        let (device, fs) = used();
        let mut volume = fs.volume.lock();
        let of = |volume: &Volume, wanted: bool| {
            volume.geometry.segments().find(|one| {
                volume.table.kind(*one).is_node() == wanted
                    && volume.log_in(*one).is_none()
                    && volume.table.live(*one) > 0
            })
        };
        let (nodes, data) = (of(&volume, true).unwrap(), of(&volume, false).unwrap());
        let live: Vec<u32> = volume.table.live_blocks(nodes).collect();
        let dead = (0..BLOCKS_PER_SEGMENT).find(|block| !live.contains(block)).unwrap();
        let spoil = |volume: &Volume, block: u32| {
            let place = u64::from(volume.geometry.in_segment(nodes, block)) * BLOCK_SIZE as u64;
            device.spoil(place, BLOCK_SIZE as u64).unwrap();
        };
        let whole = volume.summary_by_nodes(data).unwrap();
        spoil(&volume, dead);
        let made = volume.summary_by_nodes(data).unwrap();
        assert_eq!(made.as_bytes(), whole.as_bytes());
        spoil(&volume, live[0]);
        assert!(volume.summary_by_nodes(data).is_err());
    }
}
