//! The simulated volume: where every block is, what its place held before, and who owns what lies in a segment.

mod cleaning;
mod file;
mod logs;
mod pool;

use basalt_segments::cleaning::{Cleaner, Victim};
use basalt_segments::{
    BLOCKS_PER_SEGMENT, Durable, LogId, MainBlock, Placement, Section, Segment, SegmentKind, SegmentTable,
};

use crate::error::{Error, Result};
use crate::options::{Age, Cleaning, FileModel, Options};
use crate::statistics::{Memory, Statistics};
use crate::traffic::Traffic;
use file::File;
pub use logs::PageList;
use logs::{Logs, Why};
use pool::Pool;

/// A block that was never written; no volume has as many places.
const NOWHERE: MainBlock = MainBlock::new(u32::MAX);
/// The owner of live blocks that were there from the start and are not the simulator's.
const STRANGER: u32 = u32::MAX;

/// Free sections that only recorded logs may take where no reserve is kept for cleaning: one to copy to, one to write to.
const KEPT_FOR_RECORDED: u32 = 2;

/// A log: the segment that it fills from front to back.
#[derive(Clone, Copy, Default)]
struct Log {
    /// `None` until something is written to it.
    segment: Option<Segment>,
    offset: u32,
    /// Without a segment: where the search for the next begins.
    after: Option<Segment>,
}

/// A volume under simulation.
pub struct Volume {
    options: Options,
    table: SegmentTable,
    logs: Vec<Log>,
    choices: Logs,
    /// Where each block is.
    places: Vec<MainBlock>,
    /// Of each place: the block there, or the node.
    owners: Vec<u32>,
    file: Option<File>,
    pool: Option<Pool>,
    cleaner: Cleaner,
    /// The clock of the segment table: writes asked for; with a pool, nanoseconds of the device.
    clock: u64,
    /// Data and node blocks written.
    written: u64,
    /// Blocks that cleaning moved: nodes count when it makes them dirty, and again as written when they are.
    moved: u64,
    /// Something differs from the last checkpoint.
    changed: bool,
    statistics: Statistics,
    traffic: Option<Box<dyn Traffic>>,
}

impl Volume {
    /// A volume on which nothing is written.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn new(options: Options) -> Result<Volume> {
        options.check_volume()?;
        let placement = options.make_placement()?;
        Volume::with_placement(options, placement)
    }

    /// As [`new`](Volume::new), with a placement of the caller's instead of the one that the options name: one that no name can make,
    /// because it needs more than the number of logs.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn with_placement(options: Options, placement: Box<dyn Placement>) -> Result<Volume> {
        options.check_volume()?;
        let mut table = SegmentTable::new(options.segments, options.segments_per_section);
        if options.policy.is_by_live_alone() {
            table.index_by_live();
        }
        let choices = Logs::new(placement);
        let pool = match options.pool {
            Some(pool) => Some(Pool::new(&options, pool, choices.count_of_data(pool.mixed)?)?),
            None => None,
        };
        let mut volume = Volume {
            logs: vec![Log::default(); choices.count()],
            choices,
            places: vec![NOWHERE; options.blocks as usize],
            owners: vec![STRANGER; (options.segments * BLOCKS_PER_SEGMENT) as usize],
            file: None,
            pool,
            cleaner: Cleaner::default(),
            clock: 0,
            written: 0,
            moved: 0,
            changed: false,
            statistics: Statistics::default(),
            traffic: None,
            table,
            options,
        };
        if let Some(model) = volume.options.file.clone() {
            volume.start_logs(&model);
        }
        Ok(volume)
    }

    /// Puts the logs where the model has them, with the blocks that are there already.
    fn start_logs(&mut self, model: &FileModel) {
        let mut file = File::new(model);
        for (kind, start) in SegmentKind::ALL.into_iter().zip(&model.logs) {
            self.logs[kind.index()] =
                Log { segment: Some(Segment::new(start.segment)), offset: start.offset, after: None };
            self.table.set_active(Segment::new(start.segment));
            self.table.set_kind(Segment::new(start.segment), kind);
            // Of directories, the root was written last, and its number is the lowest.
            let mut offsets: Vec<u32> = (start.offset - start.live..start.offset).collect();
            if kind == SegmentKind::HotNode {
                offsets.reverse();
            }
            for offset in offsets {
                let place = MainBlock::in_segment(Segment::new(start.segment), offset);
                // The segments are distinct and were empty.
                let _ = self.table.set_live(place, 0);
                if kind.is_node() {
                    self.owners[place.get() as usize] = file.add_written(place, kind);
                }
            }
            if kind == SegmentKind::WarmNode {
                file.name_inode();
            }
        }
        for log in LogId::all(self.logs.len()).skip(LogId::RECORDED) {
            // As in the engine: near the segment of the recorded log of its kind.
            self.logs[log.index()].after = self.logs[self.choices.kind(log).index()].segment;
        }
        self.table.finish_load();
        self.file = Some(file);
    }

    /// Writes a block.
    ///
    /// # Errors
    /// When there is no such block, or no free segment.
    #[inline]
    pub fn write(&mut self, block: u32) -> Result<()> {
        self.write_in_run(block, 0)
    }

    /// As [`write`](Volume::write) of one of `run` neighbouring blocks that are written one after the other: placements are told, as
    /// [`BlockTraits::run`](basalt_segments::BlockTraits::run). Blocks of a [`FileModel`] wait in its cache, where that is lost.
    ///
    /// # Errors
    /// When there is no such block, or no free segment.
    #[inline]
    pub fn write_in_run(&mut self, block: u32, run: u32) -> Result<()> {
        if block >= self.options.blocks {
            return Err(Error::Block { block, blocks: self.options.blocks });
        }
        self.statistics.user_writes += 1;
        if self.pool.is_some() {
            return self.change(block);
        }
        self.make_room()?;
        self.clock += 1;
        if self.file.is_some() {
            self.put_page(block);
            return Ok(());
        }
        self.write_out(block, run)
    }

    /// What was written to a block is gone, because its file was removed; nothing happens to one that was never written.
    ///
    /// # Errors
    /// When there is no such block, or blocks are those of a [`FileModel`], which has no holes.
    pub fn remove(&mut self, block: u32) -> Result<()> {
        if self.file.is_some() {
            return Err(Error::Options("blocks of a file that is modelled cannot be removed".into()));
        }
        let blocks = self.options.blocks;
        let place = self.places.get_mut(block as usize).ok_or(Error::Block { block, blocks })?;
        let old = std::mem::replace(place, NOWHERE);
        if old != NOWHERE {
            self.invalidate(old);
        }
        Ok(())
    }

    /// Writes what is dirty, and a checkpoint if anything changed since the last one: what `sync(2)` does.
    ///
    /// # Errors
    /// When there is no free segment.
    pub fn sync(&mut self) -> Result<()> {
        if self.pool.is_some() {
            return if self.changed { self.checkpoint_pool() } else { Ok(()) };
        }
        self.make_room()?;
        self.write_back_all()?;
        if self.changed { self.checkpoint() } else { Ok(()) }
    }

    /// Writes a block to the log of users' data.
    #[inline]
    fn write_out(&mut self, block: u32, run: u32) -> Result<()> {
        self.statistics.user_blocks += 1;
        let why = self.written(block, run);
        let log = self.log_with_room(self.choices.for_data(block, why));
        self.place(block, log, why)
    }

    /// Why a block gets a place that a user writes in a run.
    #[inline]
    fn written(&self, block: u32, run: u32) -> Why {
        Why::Written { run, from: Some(self.places[block as usize]).filter(|place| *place != NOWHERE) }
    }

    /// As in the engine: a log that the checkpoint does not record opens no segment where they run short.
    #[inline]
    fn log_with_room(&self, log: LogId) -> LogId {
        if log.is_recorded() {
            return log;
        }
        let state = self.logs[log.index()];
        let needs_segment = state.segment.is_none() || state.offset >= BLOCKS_PER_SEGMENT;
        if !needs_segment || self.has_spare_sections() { log } else { LogId::of(self.choices.kind(log)) }
    }

    /// Whether there are free sections that neither what is dirty nor cleaning needs.
    fn has_spare_sections(&self) -> bool {
        match self.options.cleaning {
            Cleaning::Paced { .. } => self.cleaner.has_sections_for_more_logs(&self.table, &self.facts().load),
            Cleaning::FreeSections { .. } | Cleaning::GarbageShare { .. } => {
                self.table.free_sections() > KEPT_FOR_RECORDED
            }
        }
    }

    /// Whether what logs of the placement's own have left of their segments is needed. With a reserve, that is as in the engine.
    fn is_short(&self) -> bool {
        match self.options.cleaning {
            Cleaning::Paced { .. } => !self.has_spare_sections(),
            Cleaning::FreeSections { .. } | Cleaning::GarbageShare { .. } => self.table.free_sections() < 2,
        }
    }

    /// Gives a block its next place, in this log.
    #[inline]
    fn place(&mut self, block: u32, log: LogId, why: Why) -> Result<()> {
        // Read first: this takes a trip to memory, and what comes next can go on meanwhile.
        let old = self.places[block as usize];
        let place = self.allocate(log, block)?;
        self.choices.note_data(block, why, place);
        self.roll_when_full(log);
        self.written += 1;
        self.places[block as usize] = place;
        if let Some(file) = &mut self.file {
            file.mark_dirty(file.node_of(block));
        }
        if old != NOWHERE {
            self.invalidate(old);
        }
        Ok(())
    }

    /// Takes the next place of a log; [`roll_when_full`](Self::roll_when_full) comes next.
    #[inline]
    fn allocate(&mut self, id: LogId, owner: u32) -> Result<MainBlock> {
        let log = self.logs[id.index()];
        let segment = match log.segment {
            Some(segment) if log.offset < BLOCKS_PER_SEGMENT => segment,
            _ => self.roll(id)?,
        };
        let log = &mut self.logs[id.index()];
        let place = MainBlock::in_segment(segment, log.offset);
        let was_dead = self.table.set_live(place, self.clock);
        debug_assert!(was_dead, "block {place} is live ahead of the log");
        self.owners[place.get() as usize] = owner;
        log.offset += 1;
        if let Some(traffic) = &mut self.traffic {
            traffic.write(place, 1);
        }
        Ok(place)
    }

    /// Comes after each [`allocate`](Self::allocate): recorded logs go on at once.
    #[inline]
    fn roll_when_full(&mut self, log: LogId) {
        if self.logs[log.index()].offset == BLOCKS_PER_SEGMENT && log.is_recorded() {
            // As in the engine: that no segment is free shows when the next place is wanted.
            let _ = self.roll(log);
        }
    }

    /// As [`allocate`](Self::allocate) of several places, at most `most`: the first and how many. Their owners are the caller's to note.
    fn allocate_run(&mut self, id: LogId, most: u32) -> Result<(MainBlock, u32)> {
        let log = self.logs[id.index()];
        let segment = match log.segment {
            Some(segment) if log.offset < BLOCKS_PER_SEGMENT => segment,
            _ => self.roll(id)?,
        };
        let log = &mut self.logs[id.index()];
        let count = most.min(BLOCKS_PER_SEGMENT - log.offset);
        let first = MainBlock::in_segment(segment, log.offset);
        let were_dead = self.table.set_live_run(first, count, self.clock);
        debug_assert!(were_dead, "a block behind {first} is live ahead of the log");
        log.offset += count;
        if let Some(traffic) = &mut self.traffic {
            traffic.write(first, count);
        }
        Ok((first, count))
    }

    /// Goes on in a free segment.
    fn roll(&mut self, log: LogId) -> Result<Segment> {
        if log.is_recorded() && self.logs.len() > LogId::RECORDED && self.is_short() {
            // As in the engine: cleaning needs what is left of their segments.
            self.close_more_logs(|_| true);
        }
        let Log { segment: old, after, .. } = self.logs[log.index()];
        let kind = self.choices.kind(log);
        let next = self.table.open_segment(kind, old.or(after)).ok_or_else(|| self.is_full())?;
        if let Some(old) = old {
            self.table.close_segment(old);
            self.choices.note_sealed(log, old);
        }
        self.logs[log.index()] = Log { segment: Some(next), offset: 0, after: None };
        Ok(next)
    }

    fn is_full(&self) -> Error {
        Error::Full { writes: self.pool.as_ref().map_or(self.clock, |pool| pool.writes) }
    }

    /// Closes the segments of these logs of the placement's own. Each opens the next one when it is needed.
    fn close_more_logs(&mut self, closes: impl Fn(Log) -> bool) {
        for log in LogId::all(self.logs.len()).skip(LogId::RECORDED) {
            let state = self.logs[log.index()];
            if let Some(segment) = state.segment.filter(|_| closes(state)) {
                self.table.close_segment(segment);
                self.choices.note_sealed(log, segment);
                self.logs[log.index()] = Log { segment: None, offset: 0, after: Some(segment) };
            }
        }
    }

    #[inline]
    fn invalidate(&mut self, place: MainBlock) {
        let was_live = self.table.clear_live(place, self.death_time(place.segment()));
        debug_assert!(was_live, "block {place} is dead, but something is there");
        self.choices.note_dead(place);
        self.changed = true;
    }

    /// What a segment's time of modification becomes when a block of it dies.
    fn death_time(&self, segment: Segment) -> u64 {
        match self.options.age {
            Age::Modified => self.clock,
            Age::Written => self.table.modified(segment),
        }
    }

    /// Writes the dirty nodes, and frees what was emptied.
    fn checkpoint(&mut self) -> Result<()> {
        self.write_nodes(usize::MAX)?;
        for log in SegmentKind::ALL.map(LogId::of) {
            if self.logs[log.index()].offset >= BLOCKS_PER_SEGMENT {
                self.roll(log)?;
            }
        }
        self.close_more_logs(|log| log.offset >= BLOCKS_PER_SEGMENT);
        if let Some(traffic) = &mut self.traffic {
            traffic.checkpoint();
        }
        let freed = self.table.prefree();
        self.table.release(&freed, Durable::without_device());
        self.choices.note_free(&freed);
        self.table.clear_dirty();
        let sections: Vec<Section> = freed.iter().map(|&segment| self.table.section_of(segment)).collect();
        self.cleaner.note_checkpoint(&sections);
        self.changed = false;
        self.statistics.checkpoints += 1;
        Ok(())
    }

    /// Lets the clock of a pool stand still, or go on: what is written meanwhile is as old as the clock. Without a pool, nothing happens.
    pub fn stop_clock(&mut self, is_stopped: bool) {
        if let Some(pool) = &mut self.pool {
            pool.is_stopped = is_stopped;
        }
    }

    /// Tells `traffic` from now on of every block that is written or read.
    pub fn set_traffic(&mut self, traffic: Box<dyn Traffic>) {
        self.traffic = Some(traffic);
    }

    /// Asks `lists` from now on, for each block that gets a place, which list of a page cache its page is on: placements are told, as
    /// [`BlockTraits::list`](basalt_segments::BlockTraits::list).
    pub fn set_lists(&mut self, lists: PageList) {
        self.choices.set_lists(lists);
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The blocks that are live in a segment, in the order of their places.
    pub fn blocks_in(&self, segment: Segment) -> impl Iterator<Item = u32> {
        let live = self.table.live_blocks(segment);
        live.map(move |offset| self.owners[MainBlock::in_segment(segment, offset).get() as usize])
    }

    /// The segment table, to look at.
    #[must_use]
    pub fn table(&self) -> &SegmentTable {
        &self.table
    }

    /// What was written and cleaned.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// As [`statistics`](Volume::statistics), and begins to count anew: what comes now is measured, what was before aged the volume.
    pub fn take_statistics(&mut self) -> Statistics {
        std::mem::take(&mut self.statistics)
    }

    /// The sections emptied last, oldest first, at most 1024; their numbers tell whether some were missed.
    #[must_use]
    pub fn recent_victims(&self) -> Vec<Victim> {
        self.cleaner.recent().iter().copied().collect()
    }

    /// Where a block is, counted from the start of the main area; `None` if it was never written out, or if cleaning has read it and it
    /// waits in a pool.
    #[must_use]
    pub fn place_of(&self, block: u32) -> Option<MainBlock> {
        self.places.get(block as usize).copied().filter(|&place| place != NOWHERE)
    }

    /// Memory that the volume takes now. It grows with the segments that are partly live, up to 64 bytes each.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let lists = (self.places.capacity() + self.owners.capacity()) * size_of::<u32>();
        let bytes = (lists + self.table.memory() + self.file.as_ref().map_or(0, File::memory)) as u64
            + self.pool.as_ref().map_or(0, Pool::memory) as u64;
        Memory { bytes, per_block: bytes as f64 / self.owners.len().max(1) as f64 }
    }
}
