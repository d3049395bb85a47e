//! The tables' part of a checkpoint: NAT and SIT entries changed since the last go to the journals if they fit, else to
//! the copy of their block that is not current.

use basalt_segments::Segment;
use std::collections::BTreeMap;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::error::Result;
use crate::layout::nat::RawNatEntry;
use crate::layout::sit::RawSitEntry;
use crate::layout::summary::{
    JOURNAL_SIZE, NAT_JOURNAL_ENTRIES_WRITTEN, RawNatJournalEntry, RawSitJournalEntry, SIT_JOURNAL_ENTRIES,
    encode_journal,
};
use crate::layout::{BLOCK_SIZE, Nid, bit_msb, flip_bit_msb};
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

impl Volume {
    /// Writes the NAT's changes; returns the journal of the new checkpoint.
    pub(super) fn flush_nat(&mut self) -> Result<[u8; JOURNAL_SIZE]> {
        if self.nat.dirty.len() <= NAT_JOURNAL_ENTRIES_WRITTEN {
            let entries: Vec<RawNatJournalEntry> = self
                .nat
                .dirty
                .iter()
                .map(|(nid, entry)| RawNatJournalEntry { nid: U32::new((*nid).get()), entry: *entry })
                .collect();
            // They stay dirty: the NAT itself does not have them.
            return Ok(encode_journal(if mutant::active(Mutant::NatJournalLeftOut) { &[] } else { &entries }));
        }
        let dirty = std::mem::take(&mut self.nat.dirty);
        let mut by_block: BTreeMap<u32, Vec<(Nid, RawNatEntry)>> = BTreeMap::new();
        for (nid, entry) in dirty {
            by_block.entry(nid.nat_block()).or_default().push((nid, entry));
        }
        for (index, changes) in by_block {
            let block = self.nat.block(&*self.device, &self.geometry, index)?;
            for (nid, entry) in &changes {
                block[nid.nat_slot()] = *entry;
            }
            let mut bytes = vec![0; BLOCK_SIZE];
            let used = block.as_bytes();
            bytes[..used.len()].copy_from_slice(used);
            if !mutant::active(Mutant::TablesInPlace) {
                flip_bit_msb(&mut self.nat.bitmap, index as usize);
            }
            let address = self.geometry.nat_block(index, bit_msb(&self.nat.bitmap, index as usize));
            self.write_metadata(address, &bytes)?;
            self.nat.freed_since_checkpoint(changes.iter().map(|(nid, _)| *nid));
        }
        Ok(encode_journal::<RawNatJournalEntry>(&[]))
    }

    /// Writes the SIT's changes; returns the journal of the new checkpoint.
    pub(super) fn flush_sit(&mut self) -> Result<[u8; JOURNAL_SIZE]> {
        let mut changed = self.checkpoint.take_sit_journaled();
        changed.extend(self.table.dirty_entries());
        self.table.clear_dirty();
        if mutant::active(Mutant::SitChangeLost) {
            changed.pop_first();
        }
        if changed.len() <= SIT_JOURNAL_ENTRIES {
            let entries: Vec<RawSitJournalEntry> = changed
                .iter()
                .map(|&segment| RawSitJournalEntry { segno: U32::new(segment.get()), entry: self.sit_entry(segment) })
                .collect();
            self.checkpoint.keep_sit_journaled(changed);
            return Ok(encode_journal(&entries));
        }
        let mut blocks: Vec<u32> = changed.into_iter().map(|segment| self.geometry.sit_place(segment).0).collect();
        blocks.dedup();
        for index in blocks {
            let segments = self.geometry.segments_of_sit_block(index);
            let entries: Vec<RawSitEntry> = segments.map(|segment| self.sit_entry(segment)).collect();
            let mut bytes = vec![0; BLOCK_SIZE];
            let used = entries.as_bytes();
            bytes[..used.len()].copy_from_slice(used);
            let address = self.geometry.sit_block(index, self.checkpoint.flip_sit_block(index));
            self.write_metadata(address, &bytes)?;
        }
        Ok(encode_journal::<RawSitJournalEntry>(&[]))
    }

    fn sit_entry(&self, segment: Segment) -> RawSitEntry {
        RawSitEntry::new(
            self.table.kind(segment).index() as u8,
            self.table.live(segment),
            self.table.bitmap(segment),
            self.table.modified(segment),
        )
    }
}
