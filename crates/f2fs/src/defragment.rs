//! Defragmentation on request: blocks of a file that lie scattered are written again, in sequence.
//!
//! Such a block is written as any other that changes: its old place is needed until a commit, and what is fsynced later tells of the new one.
//! Only times and size stay. What somebody else writes, cuts off or moves meanwhile is left to them.

use std::sync::atomic::Ordering::Relaxed;

use basalt_device::BlockDevice;
use basalt_segments::cleaning::{PIECE, Pressure};
use basalt_segments::{BLOCKS_PER_SEGMENT, BlockTraits, Reason};
use basalt_vfs::{Defragmented, Extents, FileKind};

use crate::error::Result;
use crate::file::extents::{Count, Placed, are_neighbours};
use crate::file::write::SIZE_MAX;
use crate::layout::inode::{InlineFlags, RawInodeFlags};
use crate::layout::{BLOCK_SIZE, FileBlock, Ino};
use crate::lock::F2fs;
use crate::node::inode;
use crate::statistics::{CheckpointCause, CleaningCause};
use crate::volume::Volume;

/// Blocks of a file that are looked at in one go.
const LOOKED_AT: u32 = 4096;
/// An extent of so many blocks is long enough: a log goes on in another segment after as many.
const LONG: u32 = BLOCKS_PER_SEGMENT;
/// How often room is made for a piece that others take first.
const ATTEMPTS: usize = 4;

/// What of a file is to be written again.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// Blocks that are to lie in sequence, each list for itself.
    groups: Vec<Vec<Placed>>,
    /// The file block to go on from.
    next: FileBlock,
}

impl F2fs {
    /// How a file lies on the device: what of it is there.
    pub(crate) fn extents_of_file(&self, ino: Ino) -> Result<Extents> {
        let (mut count, mut next) = (Count::default(), FileBlock::FIRST);
        loop {
            let mut volume = self.volume.lock();
            volume.expect_regular(ino)?;
            if next >= volume.end_of_blocks(ino)? {
                return Ok(count.total());
            }
            let stretch = volume.blocks_on_device(ino, next, FileBlock::END, LOOKED_AT)?;
            count.add(&stretch.blocks);
            next = stretch.next;
        }
    }

    /// Puts blocks of a range of a file in sequence, a bounded part of the range: see
    /// [`defragment`](basalt_vfs::FileSystem::defragment).
    pub(crate) fn defragment_some(&self, ino: Ino, offset: u64, length: u64) -> Result<Defragmented> {
        let end = offset.checked_add(length).filter(|end| *end <= SIZE_MAX.next_multiple_of(BLOCK_SIZE as u64));
        let is_whole = |bytes: u64| bytes.is_multiple_of(BLOCK_SIZE as u64);
        let end = end.filter(|_| is_whole(offset) && is_whole(length));
        let end = end.ok_or(basalt_vfs::Error::Invalid("a range that is not of whole blocks"))?;
        let dirty = {
            let mut volume = self.volume.lock();
            volume.expect_writable()?;
            volume.expect_movable(ino)?;
            volume.pages.dirty_pages_of(ino)
        };
        self.make_room()?;
        // What is dirty gets its place in file order anyway.
        self.write_recoverably(dirty, |volume, most| {
            volume.write_back_from(ino, FileBlock::FIRST, most, Reason::Writeback).map(drop)
        })?;
        let plan = self.volume.lock().plan_defragmentation(ino, FileBlock::of_byte(offset), FileBlock::of_byte(end))?;
        self.follow_defragmentation(ino, &plan, end)
    }

    /// Writes again what is planned up to byte `end`. Where it cannot go on it says how far it came, and only if it did nothing, why.
    fn follow_defragmentation(&self, ino: Ino, plan: &Plan, end: u64) -> Result<Defragmented> {
        let (mut moved, mut unreadable) = (0, None);
        let done =
            |next: FileBlock, moved| Defragmented { next: next.byte().min(end), moved: moved * BLOCK_SIZE as u64 };
        for piece in plan.groups.iter().flat_map(|group| group.chunks(PIECE)) {
            match self.rewrite_with_room(ino, piece) {
                Ok(written) => moved += written,
                Err(error) if error.is_from_reading() => {
                    tracing::warn!(%ino, %error, "a part of a file stays where it is: a block of it cannot be read");
                    unreadable.get_or_insert(error);
                }
                Err(error) => return piece.first().filter(|_| moved > 0).map(|(at, _)| done(*at, moved)).ok_or(error),
            }
        }
        unreadable.filter(|_| moved == 0).map_or(Ok(done(plan.next, moved)), Err)
    }

    /// Writes these blocks again, as others write: it makes room. Returns how many it were.
    fn rewrite_with_room(&self, ino: Ino, blocks: &[Placed]) -> Result<u64> {
        for _ in 0..ATTEMPTS {
            self.make_room_for(blocks.len() as u32)?;
            if let Some(written) = self.rewrite(ino, blocks)? {
                self.keep_recoverable()?;
                return Ok(written);
            }
            // What a commit makes free may be enough.
            if self.with_volume(|volume| volume.table.prefree_sections() > 0) {
                self.checkpoint_if(true, CheckpointCause::Cleaning(CleaningCause::Background))?;
            }
        }
        Err(basalt_vfs::Error::NoSpace.into())
    }

    /// Writes these blocks again, unless too little is free: those that still lie where they did. Reads them without the volume's lock.
    fn rewrite(&self, ino: Ino, blocks: &[Placed]) -> Result<Option<u64>> {
        // What lies at a place now lies there until this is dropped: a block that has not moved has not changed.
        let mut reuse = Some(self.reuse.read());
        let mut bytes = vec![0; blocks.len() * BLOCK_SIZE];
        let mut found = Vec::with_capacity(blocks.len());
        {
            let mut volume = self.volume.lock();
            if !volume.has_room_to_defragment() {
                return Ok(None);
            }
            for &placed in blocks {
                if volume.slot_still_at(ino, placed)?.is_some() {
                    found.push(placed);
                }
            }
            let copies = found.iter().zip(bytes.chunks_exact_mut(BLOCK_SIZE));
            let mut is_waiting = Vec::with_capacity(found.len());
            for ((_, address), copy) in copies {
                let waiting = volume.writer.pending(*address);
                is_waiting.push(waiting.is_some());
                waiting.into_iter().for_each(|block| copy.copy_from_slice(block));
            }
            drop(volume);
            self.read_blocks_of(&found, &is_waiting, &mut bytes)?;
        }
        self.attempt(|volume| {
            volume.last_used = volume.clock.rough_uptime();
            volume.expect_writable()?;
            if !volume.has_room_to_defragment() {
                return Ok(None);
            }
            self.changes.fetch_add(1, Relaxed);
            let written = volume.rewrite_unchanged(ino, &found, &bytes);
            // Readers need not wait until the device has taken it.
            drop(reuse.take());
            written.map(Some)
        })
    }

    /// Reads blocks from the device, but for those that are `known` already.
    fn read_blocks_of(&self, blocks: &[Placed], known: &[bool], bytes: &mut [u8]) -> Result<()> {
        let mut first = 0;
        while first < blocks.len() {
            let belongs =
                |&last: &usize| !known[last] && (last == first || are_neighbours(&blocks[last - 1], &blocks[last]));
            let end = (first..blocks.len()).take_while(belongs).last().map_or(first, |last| last + 1);
            if first < end {
                let offset = u64::from(blocks[first].1) * BLOCK_SIZE as u64;
                self.device.read_at(offset, &mut bytes[first * BLOCK_SIZE..end * BLOCK_SIZE])?;
            }
            first = end.max(first + 1);
        }
        Ok(())
    }
}

impl Volume {
    fn expect_regular(&mut self, ino: Ino) -> Result<()> {
        match inode::kind(self.inode(ino)?) {
            FileKind::Regular => Ok(()),
            _ => Err(basalt_vfs::Error::Invalid("not a regular file").into()),
        }
    }

    /// Fails unless the inode is a file whose blocks may move. Whether its content may change does not matter.
    fn expect_movable(&mut self, ino: Ino) -> Result<()> {
        self.expect_regular(ino)?;
        let is_pinned = self.inode(ino)?.is_inline(InlineFlags::PIN_FILE);
        if is_pinned || self.has_flag(ino, RawInodeFlags::DEVICE_ALIAS)? {
            return Err(basalt_vfs::Error::Invalid("a pinned file: its blocks may not move").into());
        }
        Ok(())
    }

    /// Whether more is free than others need soon: what is written again takes room until a commit. Logs in slack would scatter it.
    fn has_room_to_defragment(&self) -> bool {
        let is_scarce = matches!(self.pressure(), Pressure::Hard | Pressure::Low) || self.load().is_low(&self.table);
        !is_scarce && (self.slack.prefers_cleaning() || !self.wants_slack())
    }

    /// Which blocks from `from` to `to` (exclusive) are better written again: neighbouring extents in which none is long, where that leaves
    /// at most three quarters of them.
    fn plan_defragmentation(&mut self, ino: Ino, from: FileBlock, to: FileBlock) -> Result<Plan> {
        let to = to.min(self.end_of_blocks(ino)?);
        if from >= to {
            return Ok(Plan { groups: Vec::new(), next: FileBlock::END });
        }
        // With what lies around them: an extent may be long because of it.
        let start = FileBlock::new(from.get().saturating_sub(LONG));
        let stretch = self.blocks_on_device(ino, start, to.saturating_add(LONG), LOOKED_AT + 2 * LONG)?;
        let extents: Vec<&[Placed]> = stretch.blocks.chunk_by(are_neighbours).collect();
        let mut next = if stretch.next >= to { to } else { FileBlock::new(stretch.next.get().saturating_sub(LONG)) };
        // An extent that the next part begins with, or all of it, is the next part's.
        if next < to
            && let Some(cut) = extents.iter().find(|extent| extent.last().is_some_and(|&(last, _)| last >= next))
            && is_short(cut)
            && let Some(&(first, _)) = cut.first()
            && first > from
        {
            next = first.min(next);
        }
        let room = self.room_in_segment(ino)?;
        let groups = extents
            .chunk_by(|before, after| is_short(before) && is_short(after))
            .map(|group| group.concat().into_iter().filter(|(index, _)| (from..next).contains(index)).collect())
            .filter(|group: &Vec<Placed>| is_worth_it(group, room))
            .collect();
        Ok(Plan { groups, next: if next >= to { FileBlock::END } else { next } })
    }

    /// Blocks that the log has room for in its segment that a file's blocks go to when they are written again.
    fn room_in_segment(&mut self, ino: Ino) -> Result<u32> {
        let traits = self.moving_traits(ino)?;
        let log = &self.logs[self.choose_log(&traits)];
        Ok(if log.slack.is_some() { 0 } else { BLOCKS_PER_SEGMENT.saturating_sub(log.offset) })
    }

    /// As those that cleaning moves: a program did not change them.
    fn moving_traits(&mut self, ino: Ino) -> Result<BlockTraits> {
        Ok(BlockTraits { cold: true, ..self.data_traits(ino)? })
    }

    /// Writes blocks again whose bytes these are: those that still lie where they did. Returns how many it were.
    fn rewrite_unchanged(&mut self, ino: Ino, blocks: &[Placed], bytes: &[u8]) -> Result<u64> {
        let traits = BlockTraits { run: blocks.len() as u32, ..self.moving_traits(ino)? };
        let log = self.choose_log(&traits);
        if self.logs[log].slack.is_some() {
            self.leave_segment(log);
        }
        let mut written = 0;
        for (&placed, block) in blocks.iter().zip(bytes.as_chunks::<BLOCK_SIZE>().0) {
            let Some(slot) = self.slot_still_at(ino, placed)? else { continue };
            let traits = BlockTraits { index: placed.0.get(), ..traits };
            self.write_data_block(ino, placed.0, slot, &traits, block)?;
            written += 1;
        }
        Ok(written)
    }
}

fn is_short(extent: &[Placed]) -> bool {
    extent.len() < LONG as usize
}

/// Whether these blocks lie in so many extents that writing them again pays, where the log has room for so many in its segment.
fn is_worth_it(blocks: &[Placed], room: u32) -> bool {
    let extents = blocks.chunk_by(are_neighbours).count();
    let (room, segment) = (room as usize, BLOCKS_PER_SEGMENT as usize);
    let after = usize::from(room > 0) + blocks.len().saturating_sub(room).div_ceil(segment);
    4 * after <= 3 * extents
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use basalt_device::MemoryDevice;
    use basalt_vfs::{Caller, FileSystem, NewNode, Time};
    use parking_lot::Mutex;

    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::format::{FormatOptions, format};
    use crate::layout::Address;
    use crate::options::OpenOptions;

    /// So many extents of so many blocks.
    fn extents(count: u32, blocks: u32) -> Vec<Placed> {
        let block = |index: u32| (FileBlock::new(index), Address::new(1000 + index + index / blocks));
        (0..count * blocks).map(block).collect()
    }

    #[test]
    fn what_gains_little_is_left_as_it_is() {
        assert!(!is_worth_it(&extents(1, 9), 512));
        assert!(is_worth_it(&extents(2, 9), 512) && is_worth_it(&extents(2, 9), 18) && is_worth_it(&extents(2, 9), 0));
        assert!(!is_worth_it(&extents(2, 9), 17), "it would be two again");
        assert!(is_worth_it(&extents(3, 9), 17));
        assert!(!is_worth_it(&extents(8, 511), 512) && is_worth_it(&extents(8, 200), 512));
    }

    /// Counts how often it is asked for the time while no place may be reused.
    #[derive(Default)]
    struct Looking {
        fs: Mutex<Weak<F2fs>>,
        held: AtomicUsize,
    }

    impl Clock for Looking {
        fn now(&self) -> Time {
            SystemClock.now()
        }

        fn rough_uptime(&self) -> Duration {
            let is_held = self.fs.lock().upgrade().is_some_and(|fs| fs.reuse.try_write().is_none());
            self.held.fetch_add(usize::from(is_held), Relaxed);
            self.uptime()
        }
    }

    #[test]
    fn no_place_is_reused_between_reading_and_writing() {
        const RUN: usize = 16;
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        let how = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
        format(&*device, &how, &mut |_, _| ()).unwrap();
        let (clock, options) = (Arc::new(Looking::default()), OpenOptions::default());
        let options = OpenOptions { background_cleaning: false, ..options };
        let fs = Arc::new(F2fs::open(device, options, clock.clone()).unwrap());
        let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let create = |name: &[u8]| fs.create(fs.root(), name, &file, &Caller::default()).unwrap().ino;
        let (one, other) = (create(b"one"), create(b"other"));
        for (at, ino) in (0..8).flat_map(|at| [(at, one), (at, other)]) {
            fs.write(ino, at * (RUN * BLOCK_SIZE) as u64, &[1; RUN * BLOCK_SIZE], false).unwrap();
        }
        fs.sync().unwrap();
        let length = (8 * RUN * BLOCK_SIZE) as u64;
        *clock.fs.lock() = Arc::downgrade(&fs);
        assert_eq!(fs.defragment(one, 0, length).unwrap().moved, length);
        *clock.fs.lock() = Weak::new();
        assert_eq!(clock.held.load(Relaxed), 1, "for each piece, when what was read is about to be written");
    }
}
