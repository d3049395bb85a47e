//! Writing a checkpoint.
//!
//! 1. Under the volume's lock: ordered pages of files, dirty directory blocks, then nodes, go to their logs; NAT and SIT changes to the journals or
//!    the other copies of their blocks; the pack to the place of the older one, all but its last block.
//! 2. Without the lock: flush, last block, flush. The checkpoint holds from here on.
//! 3. Without the lock: discard what the checkpoint freed.
//! 4. Under the lock: segments that only the previous checkpoint could reach are free.
//!
//! One checkpoint at a time. Changes made during step 2 and 3 belong to the next.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use basalt_segments::{Durable, LogId, Section, Segment, SegmentKind};

use super::block::expected_checksum;
use super::fields::bitmap_places;
use crate::error::Result;
use crate::layout::checkpoint::{
    BITMAP_OFFSET, CHECKSUM_OFFSET, CheckpointFlags, ORPHANS_PER_BLOCK, RawCheckpoint, RawOrphanBlock,
};
use crate::layout::summary::{
    COMPACT_FIRST, COMPACT_NEXT, FOOTER_SIZE, JOURNAL_SIZE, RawSummary, RawSummaryBlock, TYPE_NODE,
};
use crate::layout::superblock::Features;
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino};
use crate::log::active::ActiveLog;
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

/// A checkpoint that lacks only its last block.
pub struct Prepared {
    /// Address of the last block.
    pub tail_address: Address,
    /// Its bytes.
    pub tail: Vec<u8>,
    /// Segments that are free once the checkpoint holds.
    pub freed: Vec<Segment>,
}

impl Volume {
    /// Writes a whole checkpoint in the middle of an operation, if this bug is planted.
    pub(crate) fn checkpoint_within(&mut self, planted: Mutant) -> Result<()> {
        if mutant::active(planted) {
            let prepared = self.prepare_checkpoint(false)?;
            self.device.flush()?;
            self.device.write_at(u64::from(prepared.tail_address) * BLOCK_SIZE as u64, &prepared.tail)?;
            let durable = Durable::by(|| self.device.flush())?;
            self.finish_checkpoint(&prepared, durable);
        }
        Ok(())
    }

    /// Steps 1: everything but the last block. With `unmount`, the pack is that of a clean volume.
    pub(crate) fn prepare_checkpoint(&mut self, unmount: bool) -> Result<Prepared> {
        self.write_ordered(usize::MAX)?;
        if !mutant::active(Mutant::DirectoriesNotWritten) {
            self.write_back_directories()?;
        }
        self.write_nodes()?;
        self.prepare_logs()?;
        if !mutant::active(Mutant::PendingNotWritten) {
            self.writer.write_all(&*self.device)?;
        }
        let freed = self.table.prefree();
        let journals = (self.flush_nat()?, self.flush_sit()?);
        let (pack, start) = self.compose_pack(unmount, &journals.0, &journals.1);
        let (body, tail) = pack.split_at(pack.len() - BLOCK_SIZE);
        self.write_metadata(start, body)?;
        self.record.wrote_metadata(1);
        self.record.wrote_checkpoint();
        self.checkpoint.begin();
        self.table.begin_checkpoint();
        self.pin_chain();
        self.journal.begin_checkpoint();
        Ok(Prepared { tail_address: start + (body.len() / BLOCK_SIZE) as u32, tail: tail.to_vec(), freed })
    }

    /// Step 4: the checkpoint holds.
    pub(crate) fn finish_checkpoint(&mut self, prepared: &Prepared, durable: Durable) {
        self.table.end_checkpoint();
        self.journal.end_checkpoint();
        self.table.release(&prepared.freed, durable);
        self.forget_blocks_of(&prepared.freed);
        self.checkpoint.end();
        let sections: Vec<Section> = prepared.freed.iter().map(|&segment| self.table.section_of(segment)).collect();
        self.cleaner.note_checkpoint(&sections);
    }

    /// The bytes of the whole pack and where it goes; the state moves on to the new version.
    fn compose_pack(
        &mut self,
        unmount: bool,
        nat_journal: &[u8; JOURNAL_SIZE],
        sit_journal: &[u8; JOURNAL_SIZE],
    ) -> (Vec<u8>, Address) {
        let orphans = orphan_blocks(&self.orphans.iter().copied().collect::<Vec<_>>());
        let (summaries, compact) = self.data_summaries(nat_journal, sit_journal);
        let nodes = if unmount { self.node_summaries() } else { Vec::new() };
        let payload = self.geometry.payload as usize;
        let blocks = |bytes: &Vec<u8>| (bytes.len() / BLOCK_SIZE) as u32;
        let start_sum = 1 + payload as u32 + blocks(&orphans);
        let total = start_sum + blocks(&summaries) + blocks(&nodes) + 1;
        let mut raw = self.next_checkpoint(unmount, compact, !orphans.is_empty());
        raw.cp_pack_start_sum.set(start_sum);
        raw.cp_pack_total_block_count.set(total);
        let (head, checksum) = self.head_blocks(&raw);
        let mut pack = head.clone();
        pack.extend_from_slice(&orphans);
        pack.extend_from_slice(&summaries);
        pack.extend_from_slice(&nodes);
        pack.extend_from_slice(&head[..BLOCK_SIZE]);
        self.checkpoint.advance(raw, checksum, self.seconds_open());
        (pack, self.geometry.checkpoint + self.checkpoint.pack() * BLOCKS_PER_SEGMENT)
    }

    /// The fixed fields of the next checkpoint, counts of the pack's blocks left out.
    fn next_checkpoint(&self, unmount: bool, compact: bool, orphans: bool) -> RawCheckpoint {
        let mut raw = *self.checkpoint.raw();
        raw.checkpoint_ver = U64::new(self.checkpoint.next_version());
        raw.elapsed_time = U64::new(self.mounted_seconds());
        self.counts.put(&mut raw);
        raw.next_free_nid = U32::new(self.nat.next_free().get());
        raw.free_segment_count = U32::new(self.table.free_segments() + self.table.prefree_segments());
        for kind in SegmentKind::ALL {
            let (log, index) = (&self.logs[LogId::of(kind)], kind.index());
            let (segment, offset) = (U32::new(log.segment.get()), U16::new(log.offset as u16));
            if kind.is_node() {
                (raw.cur_node_segno[index - 3], raw.cur_node_blkoff[index - 3]) = (segment, offset);
            } else {
                (raw.cur_data_segno[index], raw.cur_data_blkoff[index]) = (segment, offset);
            }
            raw.alloc_type[index] = (log.slack.is_some() && !mutant::active(Mutant::SlackSaidAppended)).into();
        }
        let mut flags = raw.flags();
        flags.remove(
            CheckpointFlags::TRIMMED
                | CheckpointFlags::NAT_BITS
                | CheckpointFlags::FASTBOOT
                | CheckpointFlags::NO_CRC_RECOVERY
                | CheckpointFlags::DISABLED_QUICK,
        );
        flags.insert(CheckpointFlags::CRC_RECOVERY);
        flags.set(CheckpointFlags::UMOUNT, unmount);
        flags.set(CheckpointFlags::COMPACT_SUMMARY, compact);
        flags.set(CheckpointFlags::ORPHAN, orphans);
        // Quota files are not kept: Linux recounts them when it is told to.
        if self.geometry.features.intersects(Features::QUOTA_INO | Features::PROJECT_QUOTA) {
            flags.insert(CheckpointFlags::QUOTA_NEED_FSCK);
        }
        raw.ckpt_flags = U32::new(flags.bits());
        if !flags.contains(CheckpointFlags::LARGE_NAT_BITMAP) {
            raw.checksum_offset = U32::new(CHECKSUM_OFFSET as u32);
        }
        raw
    }

    /// The first block with bitmaps and checksum, and the payload blocks; and the checksum.
    fn head_blocks(&self, raw: &RawCheckpoint) -> (Vec<u8>, u32) {
        let mut head = vec![0; BLOCK_SIZE * (1 + self.geometry.payload as usize)];
        head[..BITMAP_OFFSET].copy_from_slice(raw.as_bytes());
        let (sit_at, nat_at) = bitmap_places(raw.flags(), &self.geometry);
        let sit_bitmap = self.checkpoint.sit_bitmap();
        head[sit_at..sit_at + sit_bitmap.len()].copy_from_slice(sit_bitmap);
        head[nat_at..nat_at + self.nat.bitmap.len()].copy_from_slice(&self.nat.bitmap);
        let offset = raw.checksum_offset.get() as usize;
        let checksum = expected_checksum(&head[..BLOCK_SIZE], offset);
        head[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());
        (head, checksum)
    }

    /// The summaries of the data logs with the journals, compact if they fit two blocks.
    fn data_summaries(&self, nat_journal: &[u8; JOURNAL_SIZE], sit_journal: &[u8; JOURNAL_SIZE]) -> (Vec<u8>, bool) {
        let logs = self.logs.of_data();
        let count: usize = logs.iter().map(ActiveLog::owners).sum();
        if count > COMPACT_FIRST + COMPACT_NEXT {
            let mut bytes = Vec::with_capacity(3 * BLOCK_SIZE);
            for (index, log) in logs.iter().enumerate() {
                let mut summary: RawSummaryBlock = *log.summary;
                match index {
                    0 => summary.journal = *nat_journal,
                    2 => summary.journal = *sit_journal,
                    _ => {}
                }
                bytes.extend_from_slice(summary.as_bytes());
            }
            return (bytes, false);
        }
        let mut bytes = Vec::with_capacity(2 * BLOCK_SIZE);
        bytes.extend_from_slice(nat_journal);
        bytes.extend_from_slice(sit_journal);
        for entry in logs.iter().flat_map(|log| &log.summary.entries[..log.owners()]) {
            if bytes.len() % BLOCK_SIZE + size_of::<RawSummary>() > BLOCK_SIZE - FOOTER_SIZE {
                bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
            }
            bytes.extend_from_slice(entry.as_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        (bytes, true)
    }

    fn node_summaries(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(3 * BLOCK_SIZE);
        for log in self.logs.of_nodes() {
            let mut summary: RawSummaryBlock = *log.summary;
            summary.entry_type = TYPE_NODE;
            bytes.extend_from_slice(summary.as_bytes());
        }
        bytes
    }
}

/// Orphan blocks, each with the number of the block and of all.
pub(crate) fn orphan_blocks(orphans: &[Ino]) -> Vec<u8> {
    let orphans = if mutant::active(Mutant::OrphanNotRecorded) { &[] } else { orphans };
    let count = orphans.len().div_ceil(ORPHANS_PER_BLOCK);
    let mut bytes = Vec::with_capacity(count * BLOCK_SIZE);
    for (index, chunk) in orphans.chunks(ORPHANS_PER_BLOCK).enumerate() {
        let mut block = RawOrphanBlock {
            ino: [U32::new(0); ORPHANS_PER_BLOCK],
            reserved: U32::new(0),
            blk_addr: U16::new(index as u16 + 1),
            blk_count: U16::new(count as u16),
            entry_count: U32::new(chunk.len() as u32),
            check_sum: U32::new(0),
        };
        for (slot, ino) in block.ino.iter_mut().zip(chunk) {
            slot.set((*ino).get());
        }
        bytes.extend_from_slice(block.as_bytes());
    }
    bytes
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use basalt_segments::SegmentState;
    use basalt_vfs::FileSystem;

    use super::*;
    use crate::options::OpenOptions;
    use crate::testing::{create, open_new, places, write};

    /// What dies while a checkpoint is on its way is in that checkpoint.
    #[test]
    fn a_checkpoint_frees_what_was_dead_when_it_was_taken_and_no_more() {
        for journal_bytes in [0, 64 << 10] {
            let (_, fs) = open_new(64, journal_bytes, OpenOptions::default());
            let ino = create(&fs, "file");
            write(&fs, ino, 0..2048, 1);
            fs.sync().unwrap();
            let segments = places(&fs, ino, 512..1536).into_iter().map(|place| place.segment());
            let mut segments: Vec<Segment> = segments.collect();
            segments.dedup();
            segments.retain(|segment| fs.with_volume(|volume| volume.table.live(*segment) == 512));
            assert!(!segments.is_empty());
            fs.volume.lock().checkpoint.since_mut().note_change();
            let prepared = fs.volume.lock().prepare_checkpoint(false).unwrap();
            fs.unlink(fs.root(), b"file").unwrap();
            fs.forget(ino, 1);
            let mut volume = fs.volume.lock();
            volume.finish_checkpoint(&prepared, Durable::without_device());
            for segment in segments {
                assert_eq!(volume.table.state(segment), SegmentState::Prefree, "{segment}");
            }
        }
    }
}
