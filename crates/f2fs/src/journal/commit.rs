//! Committing what was cleaned by the journal.
//!
//! 1. Under the volume's lock: everything that waits goes to the device, and the moves into journal blocks behind those of before.
//! 2. One flush that begins after that. An fsync asks for it, or somebody else. Only a writer that is short of free sections or of slack waits
//!    for it.
//! 3. Under the lock: the old places are forgotten, and segments that nothing needs any more are free.
//!
//! Steps 1 and 3 happen in the turn of checkpoints: none is under way. One that is taken in between makes step 3 needless. The journal
//! blocks may reach the device before the copies they tell of; recovery looks at those of the last commit, so one flush is enough, and
//! nothing is reused in front of it.

use basalt_segments::{Durable, Quiet, Section, Segment};
use rustc_hash::FxHashMap;
use zerocopy::little_endian::{U16, U32, U64};

use basalt_segments::cleaning::{Commit, Prospect};

use super::guard;
use super::moves::Written;
use crate::error::Result;
use crate::flushes::Flushes;
use crate::layout::journal::{Move, RawJournalHeader, cut, encode};
use crate::layout::{BLOCK_SIZE, RawBlock};
use crate::lock::{F2fs, note_failure};
use crate::mutant::{self, Mutant};
use crate::options::Deltas;
use crate::statistics::CleaningCause;
use crate::volume::Volume;

impl F2fs {
    /// Frees emptied sections by the journal, if the volume has one and a checkpoint is not the better choice; whether it did, or will
    /// with the next flush. With `wait` they are free on return. In the turn of checkpoints.
    pub(crate) fn commit_by_journal(&self, cause: CleaningCause, wait: bool) -> Result<bool> {
        let is_under_way = self.with_volume(|volume| volume.journal.awaited_flush().is_some());
        if is_under_way && !wait || self.finish_commit()? {
            return Ok(true);
        }
        if self.volume.lock().journal_prospect().is_none() {
            return Ok(false);
        }
        self.set_guard()?;
        {
            let mut volume = self.volume.lock();
            let Some(prospect) = volume.journal_prospect() else { return Ok(false) };
            volume.journal.note_chosen(&prospect);
            let result = volume.write_journal(&self.flushes);
            note_failure(&mut volume, &result);
            volume.journal.await_flush(result?);
            volume.record.committed_by_journal(cause);
        }
        self.submit()?;
        if wait {
            self.finish_commit()?;
        }
        Ok(true)
    }

    /// Frees what the last commit emptied, if a flush has come by since. Called before every change.
    pub(crate) fn finish_flushed_commit(&self) -> Result<()> {
        let awaited = self.with_volume(|volume| volume.journal.awaited_flush());
        if !awaited.is_some_and(|flush| self.flushes.has_succeeded(flush)) {
            return Ok(());
        }
        // Whoever has the turn takes a checkpoint, or does the same.
        let Some(_turn) = self.try_turn() else { return Ok(()) };
        self.finish_commit().map(|_| ())
    }

    /// Waits for the flush of the last commit, and frees what it emptied; false if there is none under way. In the turn of checkpoints.
    fn finish_commit(&self) -> Result<bool> {
        let Some(flush) = self.with_volume(|volume| volume.journal.awaited_flush()) else {
            return Ok(false);
        };
        let durable = if mutant::active(Mutant::JournalNotFlushed) {
            Durable::without_device()
        } else {
            self.flushes.wait_for(flush, || self.flush_device())?
        };
        let freed = {
            let mut volume = self.volume.lock();
            let Some(written) = volume.journal.end_commit() else { return Ok(false) };
            volume.forget_moved(written)
        };
        let _reuse = self.reuse.write();
        let mut volume = self.volume.lock();
        volume.release_freed(&freed, durable);
        volume.note_freed(&freed);
        let result = volume.note_slack_committed(&Quiet::while_locked());
        note_failure(&mut volume, &result);
        result.map(|()| true)
    }

    /// Keeps every other F2FS off the volume, before the first journal block or delta is written. In the turn of checkpoints.
    pub(crate) fn set_guard(&self) -> Result<()> {
        let (geometry, mut area, has_deltas) = {
            let volume = self.volume.lock();
            let Some(area) = volume.journal.area() else { return Ok(()) };
            if volume.journal.is_guarded() && area.is_renewed() {
                return Ok(());
            }
            (volume.geometry.clone(), area, volume.options.delta != Deltas::Off)
        };
        self.tell_failure(
            area.renew(&*self.device, &geometry).and_then(|()| guard::set(&*self.device, &geometry, has_deltas)),
        )?;
        self.volume.lock().journal.note_guard_set(area);
        Ok(())
    }

    /// A checkpoint holds that needs no journal, and none will be written for now: other F2FSs may have the volume.
    pub(crate) fn clear_guard(&self) -> Result<()> {
        let geometry = {
            let volume = self.volume.lock();
            if !volume.journal.has_guard_to_clear() || !volume.is_writable() {
                return Ok(());
            }
            volume.geometry.clone()
        };
        self.tell_failure(guard::clear(&*self.device, &geometry))?;
        self.volume.lock().journal.note_guard_cleared();
        Ok(())
    }

    fn tell_failure(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.volume.lock().fail(&error.to_string());
        }
        result
    }
}

impl Volume {
    /// What a commit by the journal would bring; `None` where there is no journal, it is full, or a checkpoint is better.
    fn journal_prospect(&self) -> Option<Prospect> {
        let moves = self.journal.moves_to_commit().filter(|_| self.is_writable())?;
        // At most as many as a segment has.
        let mut leaving: FxHashMap<Segment, u16> = FxHashMap::default();
        moves.left().for_each(|left| *leaving.entry(self.geometry.segment_of(left)).or_default() += 1);
        let is_unneeded = |segment| self.table.is_unneeded(segment, leaving.get(&segment).copied().unwrap_or(0));
        let freed_by_journal = self.table.sections_freed_by(is_unneeded);
        let freed_by_checkpoint_alone = self.table.prefree_sections() - freed_by_journal;
        let free = self.table.free_segments() + freed_by_journal * self.geometry.segments_per_section;
        if free < self.recovery_segments(self.journal.notes()) {
            return None;
        }
        let blocks = |sections: u32| u64::from(sections) * u64::from(self.table.section_blocks());
        let prospect = Prospect {
            gained_by_journal: blocks(freed_by_journal) + self.slack_awaiting_commit(),
            gained_by_checkpoint_alone: blocks(freed_by_checkpoint_alone),
            pre_invalid: self.table.pre_invalid_blocks(),
            checkpoint_price: self.checkpoint_price(),
        };
        (self.journal.choose(&prospect) == Commit::Journal).then_some(prospect)
    }

    /// Hands everything that waits, and the journal blocks of all moves since the last commit, to the device.
    fn write_journal(&mut self, flushes: &Flushes) -> Result<Written> {
        self.writer.write_all(&*self.device)?;
        let moves = self.journal.begin_commit();
        let blocks = self.compose_journal(moves.list());
        if let Some(area) = self.journal.area() {
            let slices: Vec<&[u8]> = blocks.iter().map(|block| &block.0[..]).collect();
            let address = u64::from(area.first + self.journal.position().0) * BLOCK_SIZE as u64;
            self.device.write_vectored_at(address, &slices)?;
            self.record.wrote_journal(blocks.len() as u64);
            self.journal.note_blocks_written(blocks.len() as u32);
        }
        // What became prefree has no block that waits to be written: that is why this comes last, and before the flush.
        let (emptied, sections) = (self.table.prefree(), self.cleaner.emptied_sections());
        Ok(Written { moves, emptied, flush: flushes.next(), sections })
    }

    fn compose_journal(&self, moves: &[Move]) -> Vec<Box<RawBlock>> {
        // One without a move too: segments may be freed all the same, by blocks that died fresh, and logs may have been in them.
        let parts = cut(moves);
        let (next, commit) = self.journal.position();
        let block = |(index, part): (usize, &&[Move])| {
            let header = RawJournalHeader {
                magic: U32::new(0),
                crc: U32::new(0),
                checkpoint_version: U64::new(self.checkpoint.node_version()),
                sequence: U32::new(next + index as u32),
                commit: U32::new(commit),
                blocks_in_commit: U16::new(parts.len() as u16),
                index_in_commit: U16::new(index as u16),
                count: U32::new(0),
            };
            encode(header, part, self.geometry.checksum_seed)
        };
        parts.iter().enumerate().map(block).collect()
    }

    /// The moves are durable: nothing needs the old places. Returns the segments that are free by that.
    fn forget_moved(&mut self, written: Written) -> Vec<Segment> {
        for one in written.moves.list() {
            self.table.forget_pre_invalid(self.geometry.main_block(one.old));
        }
        let mut freed = written.emptied;
        freed.retain(|&segment| self.table.is_unneeded(segment, 0));
        freed
    }

    /// Makes segments free that nothing needs, without a checkpoint.
    fn release_freed(&mut self, freed: &[Segment], durable: Durable) {
        self.table.release(freed, durable);
        self.forget_blocks_of(freed);
        self.checkpoint.since_mut().forget_unsealed(|address| {
            let segment = self.geometry.segment_of(address);
            freed.binary_search(&segment).is_ok()
        });
        let mut sections: Vec<Section> = freed.iter().map(|&segment| self.table.section_of(segment)).collect();
        sections.dedup();
        self.cleaner.note_freed(&sections);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use basalt_segments::SegmentState;
    use basalt_vfs::FileSystem;
    use zerocopy::FromBytes;

    use super::*;
    use crate::check::{CheckOptions, check};
    use crate::layout::summary::RawSummaryBlock;
    use crate::options::OpenOptions;
    use crate::testing::{create, open, open_new, places, write};

    const CAUSE: CleaningCause = CleaningCause::Background;

    /// A volume with a commit on its way that frees segments, and a file of which no segment is moved. The commit waits for a flush.
    fn committing() -> F2fs {
        let (_, fs) =
            open_new(64, 64 << 10, OpenOptions { pre_invalid_bytes: Some(32 << 20), ..OpenOptions::default() });
        let ino = create(&fs, "file");
        write(&fs, ino, 0..2048, 1);
        fs.sync().unwrap();
        for run in (0..1536).step_by(4) {
            write(&fs, ino, run..run + 3, 2);
        }
        fs.sync().unwrap();
        assert!(fs.clean_on_request(2).unwrap().0 > 0, "nothing was emptied");
        let _turn = fs.take_turn();
        assert!(fs.commit_by_journal(CAUSE, false).unwrap());
        assert!(fs.with_volume(|volume| volume.journal.awaited_flush().is_some()), "nothing waits");
        drop(_turn);
        fs
    }

    /// What became needless after the commit was written may wait in memory still: it would be written over what a log puts there.
    #[test]
    fn a_commit_frees_what_was_emptied_when_it_was_written_and_no_more() {
        let fs = committing();
        let before = fs.with_volume(|volume| volume.table.prefree());
        let other = create(&fs, "other");
        write(&fs, other, 0..1024, 3);
        {
            let mut volume = fs.volume.lock();
            volume.write_back_all().unwrap();
        }
        fs.unlink(fs.root(), b"other").unwrap();
        fs.forget(other, 1);
        let later: Vec<Segment> = {
            let volume = fs.volume.lock();
            let is_later = |segment: &Segment| !before.contains(segment) && volume.table.is_unneeded(*segment, 0);
            volume.table.prefree().into_iter().filter(is_later).collect()
        };
        assert!(!later.is_empty(), "no segment has died wholly since");
        fs.flush().unwrap();
        fs.finish_flushed_commit().unwrap();
        let left = fs.with_volume(|volume| volume.table.prefree());
        assert!(before.iter().any(|segment| !left.contains(segment)), "the commit has freed nothing");
        assert!(later.iter().all(|segment| left.contains(segment)), "{later:?} of {left:?}");
    }

    /// Of a segment a part was moved, and the rest has died since: the checkpoint needs that rest where it is.
    #[test]
    fn a_commit_frees_no_segment_whose_rest_the_checkpoint_needs() {
        let (_, fs) =
            open_new(128, 64 << 10, OpenOptions { pre_invalid_bytes: Some(32 << 20), ..OpenOptions::default() });
        let ino = create(&fs, "file");
        write(&fs, ino, 0..4096 - 512, 1);
        fs.sync().unwrap();
        let before = places(&fs, ino, 0..4096 - 512);
        let is_whole = |at: &usize| (*at..at + 512).all(|index| before[index].segment() == before[*at].segment());
        let whole: Vec<usize> = (0..4096 - 1024).filter(is_whole).collect();
        let first = whole[0];
        let segment = before[first].segment();
        {
            let mut volume = fs.volume.lock();
            let section = volume.table.section_of(segment);
            assert_eq!(volume.clean_part(section, 0, 300, CAUSE).unwrap().moved, 300);
            // What makes a commit worth it.
            for other in &whole[1..3] {
                let section = volume.table.section_of(before[*other].segment());
                volume.clean_section(section, CAUSE).unwrap();
            }
        }
        write(&fs, ino, first as u64 + 300..first as u64 + 512, 2);
        fs.volume.lock().write_back_all().unwrap();
        let _turn = fs.take_turn();
        assert!(fs.commit_by_journal(CAUSE, true).unwrap());
        let volume = fs.volume.lock();
        assert_eq!((volume.table.state(segment), volume.table.pre_invalid(segment)), (SegmentState::Prefree, 212));
    }

    /// One owner in a summary is wrong, of a block that has died since the checkpoint, which needs it. Cleaning moves it, and only recovery can
    /// see that.
    #[test]
    fn a_wrong_owner_of_a_dead_block_keeps_nothing_from_being_recovered() {
        let options = || OpenOptions { pre_invalid_bytes: Some(32 << 20), ..OpenOptions::default() };
        let (device, fs) = open_new(64, 64 << 10, options());
        let [ino, other] = ["file", "other"].map(|name| create(&fs, name));
        write(&fs, ino, 0..2048, 1);
        write(&fs, other, 0..4, 1);
        fs.sync().unwrap();
        let before = places(&fs, ino, 0..2048);
        let is_whole = |at: &usize| (*at..at + 512).all(|index| before[index].segment() == before[*at].segment());
        let at = (0..1024).find(is_whole).unwrap();
        let (segment, offset) = (before[at].segment(), before[at].offset() as usize);
        {
            let mut volume = fs.volume.lock();
            let address = volume.geometry.summary_block(segment);
            let mut block = volume.read_block(address).unwrap();
            RawSummaryBlock::mut_from_bytes(&mut block.0).unwrap().entries[offset].nid = (other as u32).into();
            volume.write_metadata(address, &block.0).unwrap();
        }
        write(&fs, ino, at as u64..at as u64 + 300, 2);
        fs.volume.lock().write_back_all().unwrap();
        {
            let mut volume = fs.volume.lock();
            let section = volume.table.section_of(segment);
            volume.clean_section(section, CAUSE).unwrap();
        }
        {
            let _turn = fs.take_turn();
            assert!(fs.commit_by_journal(CAUSE, true).unwrap());
        }
        write(&fs, other, 0..4, 7);
        fs.sync_file(other, false).unwrap();
        let cut = Arc::new(device.snapshot());
        let fs = open(&cut, options());
        assert!(fs.is_writable(), "{:?}", fs.warnings());
        let mut bytes = [0; BLOCK_SIZE];
        for (ino, page, allowed) in [(other, 0, [7, 7]), (ino, at as u64, [1, 2]), (ino, at as u64 + 400, [1, 1])] {
            fs.read(ino, page * BLOCK_SIZE as u64, &mut bytes).unwrap();
            assert!(allowed.iter().any(|byte| bytes == [*byte; BLOCK_SIZE]), "inode {ino}, page {page}: {}", bytes[0]);
        }
        fs.close().unwrap();
        assert!(check(&*cut, &CheckOptions::default(), &mut |_| ()).unwrap().is_clean());
    }

    /// Logs may have been in segments that a commit frees, so recovery has to know of it, also where nothing was moved.
    #[test]
    fn a_commit_without_a_move_is_in_the_journal() {
        let (device, fs) =
            open_new(64, 64 << 10, OpenOptions { pre_invalid_bytes: Some(32 << 20), ..OpenOptions::default() });
        let ino = create(&fs, "file");
        fs.sync().unwrap();
        for byte in 1..4 {
            write(&fs, ino, 0..1024, byte);
            fs.volume.lock().write_back_all().unwrap();
        }
        let _turn = fs.take_turn();
        assert!(fs.commit_by_journal(CAUSE, true).unwrap());
        let volume = fs.volume.lock();
        assert_eq!(volume.journal.position(), (1, 1));
        let version = volume.checkpoint.node_version();
        let area = volume.journal.area().unwrap();
        let replay = area.read_moves(&*device, &volume.geometry, version).unwrap();
        assert_eq!((replay.commits, replay.moves.len()), (1, 0));
    }

    /// Somebody reads a block that cleaning has moved: its place must not be written until he has.
    #[test]
    fn a_commit_frees_nothing_while_somebody_reads() {
        let fs = committing();
        fs.flush().unwrap();
        thread::scope(|scope| {
            let reading = fs.reuse.read();
            let before = fs.with_volume(|volume| volume.table.free_segments());
            let commit = scope.spawn(|| fs.finish_flushed_commit());
            // Whoever is slow here may miss a mistake, and reports none.
            thread::sleep(Duration::from_millis(300));
            assert!(!commit.is_finished());
            assert_eq!(fs.with_volume(|volume| volume.table.free_segments()), before);
            drop(reading);
            commit.join().unwrap().unwrap();
            assert!(fs.with_volume(|volume| volume.table.free_segments()) > before);
        });
    }
}
