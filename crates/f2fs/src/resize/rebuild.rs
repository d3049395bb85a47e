//! The metadata of a volume at another size, block by block: what differs from what is on the device goes to the log.

use zerocopy::{FromBytes, IntoBytes};

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};

use super::log::{Extent, LogWriter};
use super::target::Target;
use crate::blocks::read_blocks;
use crate::checkpoint::block::expected_checksum;
use crate::checkpoint::fields::{bitmap_places, log_position};
use crate::checkpoint::load::Loaded;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::checkpoint::{BITMAP_OFFSET, CheckpointFlags};
use crate::layout::sit::RawSitEntry;
use crate::layout::summary::{JOURNAL_SIZE, RawSitJournalEntry, RawSummaryBlock, TYPE_NODE, encode_journal};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, bit_msb};

/// Live blocks of every segment: kept in memory, two bytes each.
pub struct Segments {
    live: Vec<u16>,
}

/// Everything the new metadata is made from: a volume that was closed cleanly.
pub struct Source<'a> {
    /// The device.
    pub device: &'a dyn BlockDevice,
    /// The volume as it is.
    pub old: &'a Geometry,
    /// Its checkpoint.
    pub loaded: &'a Loaded,
    /// The volume as it will be.
    pub new: &'a Geometry,
    /// Its layout.
    pub target: &'a Target,
}

impl Source<'_> {
    /// Reads how full each segment is.
    ///
    /// # Errors
    /// When the device fails or the SIT is damaged.
    pub fn segments(&self) -> Result<Segments> {
        let mut live = Vec::with_capacity(self.old.main_segments as usize);
        let mut sit = OldSit::new(self);
        for segment in self.old.segments() {
            live.push(sit.entry(segment)?.live());
        }
        Ok(Segments { live })
    }

    /// Where the log may go: behind the old main area and the new metadata first, then free segments that stay in the main
    /// area or fall behind its end.
    pub fn free_places(&self, segments: &Segments) -> Vec<Extent> {
        let device_end = (self.device.size() / BLOCK_SIZE as u64).min(u64::from(u32::MAX));
        // Ends of areas and devices are below 2^32 blocks.
        let behind = self.old.end().max(u64::from(self.new.main)) as u32;
        let mut places = vec![(Address::new(behind), (device_end as u32).saturating_sub(behind))];
        let logs = SegmentKind::ALL.map(|kind| log_position(&self.loaded.pack, kind).0);
        for segment in self.old.segments().rev() {
            let start = self.old.in_segment(segment, 0);
            if segments.live[segment.index()] == 0 && start >= self.new.main && !logs.contains(&segment) {
                places.push((start, BLOCKS_PER_SEGMENT));
            }
        }
        places
    }

    /// Logs everything but the superblock. `progress` is told how many of how many steps are done.
    ///
    /// # Errors
    /// [`Error::Damaged`] if what must be empty is not, [`Error::Unsupported`] without room for the log, [`Error::Device`].
    pub fn log(&self, segments: &Segments, log: &mut LogWriter<'_>, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.expect_empty(segments)?;
        let (sit, nat, ssa) = (self.new.sit_blocks_used(), self.old.nat_blocks, self.kept_segments());
        let total = u64::from(sit) + u64::from(nat) + u64::from(ssa);
        let sit_bitmap = self.log_sit(log)?;
        progress(u64::from(sit), total);
        let nat_bitmap = self.log_nat(log)?;
        progress(u64::from(sit) + u64::from(nat), total);
        self.log_summaries(segments, log, &mut |done| progress(u64::from(sit + nat + done), total))?;
        self.log_checkpoints(segments, &sit_bitmap, &nat_bitmap, log)
    }

    /// Old segments that the new main area has too.
    fn kept_segments(&self) -> u32 {
        self.old.main_segments.saturating_sub(self.target.shift).min(self.new.main_segments)
    }

    fn expect_empty(&self, segments: &Segments) -> Result<()> {
        let kept = self.target.shift..self.target.shift + self.kept_segments();
        let outside = (0..).zip(&segments.live).find(|(segment, live)| !kept.contains(segment) && **live > 0);
        if let Some((segment, live)) = outside {
            let found = format!("{live} live blocks where the main area ends after the resize");
            return Err(Error::damaged("SIT", format!("segment {segment}"), found));
        }
        for kind in SegmentKind::ALL {
            let (segment, _, _) = log_position(&self.loaded.pack, kind);
            if !kept.contains(&segment.get()) {
                let found = format!("the {kind:?} log writes where the main area ends after the resize");
                return Err(Error::damaged("checkpoint", format!("segment {segment}"), found));
            }
        }
        Ok(())
    }

    /// Logs a block, unless it is there already.
    fn block(&self, target: Address, bytes: &[u8], log: &mut LogWriter<'_>) -> Result<()> {
        if read_blocks(self.device, target, 1)? == bytes { Ok(()) } else { log.block(target, bytes) }
    }

    /// Every SIT block in use; returns the version bitmap.
    fn log_sit(&self, log: &mut LogWriter<'_>) -> Result<Vec<u8>> {
        let same = self.new.sit_blocks == self.old.sit_blocks;
        let bitmap = if same { self.loaded.sit_bitmap.clone() } else { vec![0; self.new.sit_bitmap_size()] };
        let mut sit = OldSit::new(self);
        for index in 0..self.new.sit_blocks_used() {
            let mut block = Vec::with_capacity(BLOCK_SIZE);
            for segment in self.new.segments_of_sit_block(index).numbers() {
                let before = segment + self.target.shift;
                let entry = if before < self.old.main_segments {
                    sit.entry(Segment::new(before))?
                } else {
                    RawSitEntry::new(0, 0, [0; 64], 0)
                };
                block.extend_from_slice(entry.as_bytes());
            }
            block.resize(BLOCK_SIZE, 0);
            self.block(self.new.sit_block(index, bit_msb(&bitmap, index as usize)), &block, log)?;
        }
        Ok(bitmap)
    }

    /// The NAT: moved if the SIT grew, and zeros where it is longer; returns the version bitmap.
    fn log_nat(&self, log: &mut LogWriter<'_>) -> Result<Vec<u8>> {
        let moves = self.new.nat != self.old.nat;
        let mut bitmap = if moves { Vec::new() } else { self.loaded.nat_bitmap.clone() };
        bitmap.resize(self.new.nat_bitmap_size(), 0);
        if moves {
            for index in 0..self.old.nat_blocks {
                let second = bit_msb(&self.loaded.nat_bitmap, index as usize);
                let block = read_blocks(self.device, self.old.nat_block(index, second), 1)?;
                let target = self.new.nat_block(index, false);
                if block.iter().all(|byte| *byte == 0) {
                    log.zeros(target, 1)?;
                } else {
                    log.block(target, &block)?;
                }
            }
        }
        for index in (self.old.nat_blocks..self.new.nat_blocks).step_by(BLOCKS_PER_SEGMENT as usize) {
            log.zeros(self.new.nat_block(index, false), BLOCKS_PER_SEGMENT)?;
        }
        Ok(bitmap)
    }

    /// The summaries of all segments with live blocks.
    fn log_summaries(&self, segments: &Segments, log: &mut LogWriter<'_>, progress: &mut dyn FnMut(u32)) -> Result<()> {
        for segment in 0..self.kept_segments() {
            let before = segment + self.target.shift;
            let (from, to) =
                (self.old.summary_block(Segment::new(before)), self.new.summary_block(Segment::new(segment)));
            if segments.live[before as usize] > 0 && from != to {
                self.block(to, &read_blocks(self.device, from, 1)?, log)?;
            }
            if segment % BLOCKS_PER_SEGMENT == 0 {
                progress(segment);
            }
        }
        Ok(())
    }

    /// Both packs: the next version, and this one again, so that neither speaks of the old layout.
    fn log_checkpoints(
        &self,
        segments: &Segments,
        sit_bitmap: &[u8],
        nat_bitmap: &[u8],
        log: &mut LogWriter<'_>,
    ) -> Result<()> {
        let pack = &self.loaded.pack;
        let version = pack.raw.checkpoint_ver.get();
        for (index, version) in [(pack.index, version), (1 - pack.index, version.wrapping_add(1))] {
            let bytes = self.pack(segments, sit_bitmap, nat_bitmap, version);
            let start = self.new.checkpoint + index * BLOCKS_PER_SEGMENT;
            for (address, block) in start.onward().zip(bytes.chunks_exact(BLOCK_SIZE)) {
                log.block(address, block)?;
            }
        }
        Ok(())
    }

    /// A pack of a clean volume: head, payload, three data and three node summaries, tail.
    fn pack(&self, segments: &Segments, sit_bitmap: &[u8], nat_bitmap: &[u8], version: u64) -> Vec<u8> {
        let payload = self.new.payload;
        let mut raw = self.loaded.pack.raw;
        raw.checkpoint_ver.set(version);
        raw.user_block_count.set(self.target.user_blocks());
        raw.rsvd_segment_count.set(self.target.reserved);
        raw.overprov_segment_count.set(self.target.overprovision);
        raw.free_segment_count.set(self.free_segments(segments));
        for index in 0..3 {
            for segment in [&mut raw.cur_node_segno[index], &mut raw.cur_data_segno[index]] {
                segment.set(segment.get() - self.target.shift);
            }
        }
        let mut flags = raw.flags();
        flags.remove(CheckpointFlags::COMPACT_SUMMARY | CheckpointFlags::NAT_BITS | CheckpointFlags::TRIMMED);
        flags.remove(CheckpointFlags::ORPHAN | CheckpointFlags::FASTBOOT);
        raw.ckpt_flags.set(flags.bits());
        raw.cp_pack_start_sum.set(1 + payload);
        raw.cp_pack_total_block_count.set(1 + payload + 6 + 1);
        raw.sit_ver_bitmap_bytesize.set(sit_bitmap.len() as u32);
        raw.nat_ver_bitmap_bytesize.set(nat_bitmap.len() as u32);

        let mut head = vec![0; BLOCK_SIZE * (1 + payload as usize)];
        head[..BITMAP_OFFSET].copy_from_slice(raw.as_bytes());
        let (sit_at, nat_at) = bitmap_places(flags, self.new);
        head[sit_at..sit_at + sit_bitmap.len()].copy_from_slice(sit_bitmap);
        head[nat_at..nat_at + nat_bitmap.len()].copy_from_slice(nat_bitmap);
        let offset = raw.checksum_offset.get() as usize;
        let checksum = expected_checksum(&head[..BLOCK_SIZE], offset);
        head[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());

        let mut pack = head.clone();
        for (index, log) in self.loaded.logs.iter().enumerate() {
            let mut summary: RawSummaryBlock = *log.summary;
            summary.journal = match index {
                0 => encode_journal(&self.loaded.nat_journal),
                2 => encode_journal::<RawSitJournalEntry>(&[]),
                _ => [0; JOURNAL_SIZE],
            };
            if index >= 3 {
                summary.entry_type = TYPE_NODE;
            }
            pack.extend_from_slice(summary.as_bytes());
        }
        pack.extend_from_slice(&head[..BLOCK_SIZE]);
        pack
    }

    fn free_segments(&self, segments: &Segments) -> u32 {
        let logs = SegmentKind::ALL.map(|kind| log_position(&self.loaded.pack, kind).0);
        let first = self.target.shift;
        let used = (first..first + self.kept_segments())
            .filter(|&segment| segments.live[segment as usize] > 0 || logs.contains(&Segment::new(segment)))
            .count();
        self.new.main_segments - used as u32
    }
}

/// The SIT of the old volume, journal included, read in order.
struct OldSit<'a> {
    source: &'a Source<'a>,
    index: u32,
    block: Vec<u8>,
}

impl<'a> OldSit<'a> {
    fn new(source: &'a Source<'a>) -> OldSit<'a> {
        OldSit { source, index: u32::MAX, block: Vec::new() }
    }

    fn entry(&mut self, segment: Segment) -> Result<RawSitEntry> {
        let (geometry, loaded) = (self.source.old, self.source.loaded);
        if let Some(newer) = loaded.sit_journal.iter().find(|entry| entry.segno.get() == segment.get()) {
            return Ok(newer.entry);
        }
        let (index, entry) = geometry.sit_place(segment);
        if index != self.index {
            let second = bit_msb(&loaded.sit_bitmap, index as usize);
            self.block = read_blocks(self.source.device, geometry.sit_block(index, second), 1)?;
            self.index = index;
        }
        let at = entry * size_of::<RawSitEntry>();
        RawSitEntry::read_from_bytes(&self.block[at..at + size_of::<RawSitEntry>()])
            .map_err(|_| Error::damaged("SIT", format!("segment {segment}"), "short block"))
    }
}
