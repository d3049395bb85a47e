//! Moving blocks so that a journal can commit it: what something durable refers to is noted, and dead blocks that the last checkpoint or
//! an fsync needs are copied too. Nodes move at once, as they are on the device: that they are to be written with the next checkpoint
//! is not enough.

use basalt_segments::{BlockTraits, LogId, Reason, SegmentKind};

use super::CleaningCause;
use crate::error::Result;
use crate::journal::moves::Owner;
use crate::layout::BLOCK_SIZE;
use crate::layout::crc::crc;
use crate::layout::journal::{KIND_DATA, KIND_NODE};
use crate::layout::nat::RawNatEntry;
use crate::layout::node::RawNode;
use crate::layout::summary::RawSummary;
use crate::layout::{Address, Nid};
use crate::log::active::node_owner;
use crate::node::owner::not_owned;
use crate::node::write::node_traits;
use crate::volume::Volume;
use zerocopy::FromBytes;

impl Volume {
    /// Notes that a block went from `old` to `new`, if recovery has to know: unless it was fresh.
    pub(super) fn note_move(&mut self, old: Address, new: Address, owner: Owner, bytes: &[u8; BLOCK_SIZE]) {
        self.table.make_durable(self.geometry.main_block(new));
        self.journal.note_move(old, new, owner, self.checkpoint.since().chained(), crc(bytes));
    }

    /// Copies a dead data block that something durable refers to; `owner` is who pointed to it.
    pub(super) fn copy_pre_invalid_data(
        &mut self,
        owner: RawSummary,
        address: Address,
        bytes: &[u8; BLOCK_SIZE],
        cause: CleaningCause,
    ) -> Result<()> {
        let entry = Owner { nid: owner.nid(), index: u32::from(owner.ofs_in_node.get()), kind: KIND_DATA };
        self.copy_pre_invalid(LogId::of(SegmentKind::ColdData), owner, entry, address, bytes, cause)?;
        self.record.wrote_data();
        self.record.copied_data(cause);
        Ok(())
    }

    fn copy_pre_invalid(
        &mut self,
        log: LogId,
        summary: RawSummary,
        owner: Owner,
        address: Address,
        bytes: &[u8; BLOCK_SIZE],
        cause: CleaningCause,
    ) -> Result<()> {
        let new = self.allocate(log, summary)?;
        self.writer.append(&*self.device, log.index(), new, bytes)?;
        self.invalidate_unplaced(new)?;
        self.table.set_pre_invalid(self.geometry.main_block(new));
        self.note_move(address, new, owner, bytes);
        self.record.copied_block(cause);
        self.record.copied_pre_invalid(cause);
        Ok(())
    }

    /// Moves a node as it is on the device, dead or alive: whatever its copy in memory has become.
    pub(super) fn move_node_as_it_is(
        &mut self,
        nid: Nid,
        address: Address,
        bytes: &[u8; BLOCK_SIZE],
        cause: CleaningCause,
    ) -> Result<()> {
        let owner = Owner { nid, index: 0, kind: KIND_NODE };
        let node = RawNode::ref_from_bytes(bytes).ok().filter(|node| node.footer.nid() == nid);
        let Some(node) = node else { return Err(not_owned("summary", nid, address)) };
        let block = BlockTraits { reason: Reason::Cleaning, ..node_traits(&node.footer) };
        let log = LogId::of(SegmentKind::ColdNode);
        if self.table.is_pre_invalid(self.geometry.main_block(address)) {
            self.copy_pre_invalid(log, node_owner(nid), owner, address, bytes, cause)?;
            self.record.wrote_node();
            return Ok(());
        }
        let entry = self.nat_entry(nid)?;
        if entry.address() != address {
            return Err(not_owned("NAT", nid, address));
        }
        let was_fresh = self.table.is_fresh(self.geometry.main_block(address));
        let new = self.place_in(log, &block, node_owner(nid))?;
        self.writer.append(&*self.device, log.index(), new, bytes)?;
        self.nat.set(nid, RawNatEntry { block_addr: new.into(), ..entry });
        self.invalidate(address)?;
        self.record.wrote_node();
        if !was_fresh {
            self.note_move(address, new, owner, bytes);
        }
        self.record.copied_block(cause);
        Ok(())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use basalt_vfs::FileSystem;

    use super::*;
    use crate::options::OpenOptions;
    use crate::testing::{create, open_new, places, write};

    /// What a checkpoint refers to is needed until the next, wherever it is moved to, alive or dead.
    #[test]
    fn what_is_moved_is_needed_as_it_was() {
        let (_, fs) = open_new(64, 64 << 10, OpenOptions::default());
        let ino = create(&fs, "file");
        write(&fs, ino, 0..1024, 1);
        fs.sync().unwrap();
        let before = places(&fs, ino, 0..1024);
        for run in (0..1024).step_by(4) {
            write(&fs, ino, run..run + 2, 2);
        }
        fs.volume.lock().write_back_all().unwrap();
        let mut volume = fs.volume.lock();
        let full = |segment| before.iter().filter(|place| place.segment() == segment).count() == 512;
        let segment = before.iter().map(|place| place.segment()).find(|segment| full(*segment)).unwrap();
        let section = volume.table.section_of(segment);
        volume.clean_section(section, CleaningCause::Background).unwrap();
        let (mut live, mut dead) = (0, 0);
        for place in before.iter().filter(|place| place.segment() == segment) {
            let old = volume.geometry.address_of(*place);
            let new = volume.journal.place_of(old);
            assert_ne!(new, old, "it stayed where it was");
            let new = volume.geometry.main_block(new);
            if volume.table.is_live(new) {
                live += 1;
                assert!(!volume.table.is_fresh(new), "it would be forgotten once it dies");
            } else {
                dead += 1;
                assert!(volume.table.is_pre_invalid(new), "its place would be written");
            }
        }
        assert_eq!((live, dead), (256, 256));
    }
}
