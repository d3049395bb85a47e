//! SFS's write path: dirty blocks wait in a pool in front of the logs, and only groups that fill a section are written.
//!
//! Source: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, sections 3.5 to 3.7. A segment of the
//! paper is a section here.

use basalt_segments::{BLOCKS_PER_SEGMENT, LogId, MainBlock, Segment};

use super::{NOWHERE, Volume, Why};
use crate::error::{Error, Result};
use crate::options::{Cleaning, Options, PoolOptions, WORKING_SECTIONS};

/// Free sections beyond those that the pool can fill: what recorded logs open ahead, and those that other logs may not open.
const SLACK: u32 = 4;

/// What waits of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dirty {
    Nothing,
    /// Cleaning read it.
    Read,
    /// A user changed it.
    Changed,
}

/// A block that waits, and where cleaning read it, if it did.
#[derive(Clone, Copy)]
struct Waiting {
    block: u32,
    from: MainBlock,
}

/// Dirty blocks.
pub(super) struct Pool {
    options: PoolOptions,
    dirty: Vec<Dirty>,
    waiting: Vec<Waiting>,
    /// Of those that wait, those that users changed since dirty blocks were written the last time.
    fresh: u32,
    /// Writes asked for.
    pub(super) writes: u64,
    /// Since the last checkpoint.
    blocks_written: u64,
    checkpoint_time: u64,
    /// What is written and read takes no time.
    pub(super) is_stopped: bool,
    /// Sections that all that may wait fills, and more to write it.
    sections: u32,
    /// Sections to be free, or free after a checkpoint: below, victims are read.
    mark: u32,
}

impl Pool {
    /// For a volume with so many logs.
    ///
    /// # Errors
    /// When there is no room for it, or it does not go with the rule of cleaning.
    pub(super) fn new(options: &Options, pool: PoolOptions, logs: u32) -> Result<Pool> {
        let wrong = |reason: String| Err(Error::Options(reason));
        let Cleaning::FreeSections { least, victims } = options.cleaning else {
            return wrong("a pool of dirty blocks: cleaning has to keep a number of sections free".into());
        };
        if pool.blocks == 0 || pool.checkpoint_sections == 0 {
            return wrong("a pool of no dirty blocks, or no section between checkpoints".into());
        }
        if options.file.is_some() {
            return wrong("a pool of dirty blocks and a file's page cache exclude each other".into());
        }
        let section_blocks = options.segments_per_section * BLOCKS_PER_SEGMENT;
        // Each log may leave all but a section waiting, and cleaning adds its victims.
        let sections = pool.blocks.div_ceil(section_blocks).saturating_add(logs).saturating_add(victims) + SLACK;
        let mark = least.max(sections);
        let kept = u64::from(mark) + u64::from(WORKING_SECTIONS);
        let usable = u64::from(options.sections()).saturating_sub(kept) * u64::from(section_blocks);
        if u64::from(options.blocks) > usable {
            return wrong(format!(
                "{} blocks in use of {} sections with {mark} kept free for {} dirty blocks and cleaning: at most {usable} fit",
                options.blocks,
                options.sections(),
                pool.blocks
            ));
        }
        Ok(Pool {
            options: pool,
            dirty: vec![Dirty::Nothing; options.blocks as usize],
            waiting: Vec::new(),
            fresh: 0,
            writes: 0,
            blocks_written: 0,
            checkpoint_time: 0,
            is_stopped: false,
            sections,
            mark,
        })
    }

    /// A user changes a block; what waited of it before.
    fn change(&mut self, block: u32) -> Dirty {
        self.writes += 1;
        let before = std::mem::replace(&mut self.dirty[block as usize], Dirty::Changed);
        if before == Dirty::Nothing {
            self.waiting.push(Waiting { block, from: NOWHERE });
        }
        self.fresh += u32::from(before != Dirty::Changed);
        before
    }

    /// Cleaning finds a live block; whether it has to read it.
    fn collect(&mut self, block: u32, from: MainBlock) -> bool {
        let is_read = self.dirty[block as usize] == Dirty::Nothing;
        if is_read {
            self.dirty[block as usize] = Dirty::Read;
            self.waiting.push(Waiting { block, from });
        }
        is_read
    }

    /// Bytes of memory used on the heap, about.
    pub(super) fn memory(&self) -> usize {
        self.dirty.capacity() * size_of::<Dirty>() + self.waiting.capacity() * size_of::<Waiting>()
    }
}

impl Volume {
    /// A user changes a block: it waits in the pool, and when enough do, all that wait are sorted.
    pub(super) fn change(&mut self, block: u32) -> Result<()> {
        let Some(pool) = &mut self.pool else { return Ok(()) };
        self.changed = true;
        match pool.change(block) {
            Dirty::Nothing => {}
            Dirty::Read => self.statistics.overtaken += 1,
            Dirty::Changed => self.statistics.absorbed += 1,
        }
        if pool.fresh >= pool.options.blocks { self.write_pool() } else { Ok(()) }
    }

    /// Writes groups that are full. Below the mark, some victims are read, and what is full then is written, until it is met.
    fn write_pool(&mut self) -> Result<()> {
        let mut rounds = self.table.sections();
        loop {
            self.write_waiting(false)?;
            if self.is_checkpoint_due() {
                self.checkpoint_pool()?;
            }
            if !self.is_below_mark() || rounds == 0 || !self.read_victims()? {
                return Ok(());
            }
            rounds -= 1;
        }
    }

    /// By the blocks written or the time since the last, or because sections that are free only after one are needed.
    fn is_checkpoint_due(&self) -> bool {
        let Some(pool) = &self.pool else { return false };
        let most = u64::from(pool.options.checkpoint_sections) * u64::from(self.table.section_blocks());
        let passed = self.clock - pool.checkpoint_time;
        pool.blocks_written >= most
            || u128::from(passed) >= pool.options.checkpoint_interval.as_nanos()
            || self.table.free_sections() < pool.sections
    }

    fn is_below_mark(&self) -> bool {
        let free = self.table.free_sections() + self.table.prefree_sections();
        self.pool.as_ref().is_some_and(|pool| free < pool.mark)
    }

    /// Reads the live blocks of the best victims into the pool; false if there are no victims. They are free after a checkpoint, which
    /// writes all that waits: no block is in the pool alone when its old place is written to. (The paper frees them at once, and writes
    /// what came from a segment before that is allocated again.)
    fn read_victims(&mut self) -> Result<bool> {
        let Cleaning::FreeSections { victims, .. } = self.options.cleaning else { return Ok(false) };
        self.choices.note_time(self.clock);
        let most = victims.min(self.table.free_sections().saturating_sub(SLACK)).max(1);
        let policy = self.choices.inform(self.options.policy);
        let best = self.table.select_victims(policy.policy(), self.clock, &|_| false, most as usize);
        if best.is_empty() {
            return Ok(false);
        }
        self.cleaner.plan(&self.table, best);
        while self.cleaner.current().is_some() {
            self.follow_plan(u32::MAX)?;
        }
        Ok(true)
    }

    /// Reads these live blocks of a segment into the pool. Those that users have changed since are there already.
    pub(super) fn collect(&mut self, segment: Segment, live: &[u32]) {
        let mut read = Vec::with_capacity(live.len());
        for &offset in live {
            let place = MainBlock::in_segment(segment, offset);
            let block = self.owners[place.get() as usize];
            if self.pool.as_mut().is_some_and(|pool| pool.collect(block, place)) {
                read.push(offset);
            }
            self.places[block as usize] = NOWHERE;
            self.invalidate(place);
        }
        let is_timed = self.pool.as_ref().filter(|pool| !pool.is_stopped);
        self.clock += read.len() as u64 * is_timed.map_or(0, |pool| pool.options.read_ns);
        if let Some(traffic) = &mut self.traffic {
            for run in read.chunk_by(|before, after| before + 1 == *after) {
                traffic.read(MainBlock::in_segment(segment, run[0]), run.len() as u32);
            }
        }
    }

    /// Sorts all that waits into groups, and writes those that fill sections, section by section; at a checkpoint the others as well, into
    /// one log.
    fn write_waiting(&mut self, all: bool) -> Result<()> {
        let Some(pool) = &mut self.pool else { return Ok(()) };
        pool.fresh = 0;
        let waiting = std::mem::take(&mut pool.waiting);
        self.choices.note_time(self.clock);
        self.choices.note_writing();
        let mut groups = vec![Vec::new(); self.logs.len()];
        for one in waiting {
            groups[self.choices.for_data(one.block, self.why(one)).index()].push(one);
        }
        let Some(pool) = &self.pool else { return Ok(()) };
        let (mixed, size) = (pool.options.mixed, self.table.section_blocks() as usize);
        let mut written = LogId::all(groups.len()).zip(&groups).try_for_each(|(log, group)| {
            group.chunks_exact(size).try_for_each(|section| self.write_together(section, log))
        });
        if all && written.is_ok() {
            written =
                groups.iter().try_for_each(|group| self.write_together(group.chunks_exact(size).remainder(), mixed));
        }
        if let Some(pool) = &mut self.pool {
            pool.waiting = groups.into_iter().flatten().collect();
            pool.waiting.retain(|one| pool.dirty[one.block as usize] != Dirty::Nothing);
        }
        written
    }

    /// Why a block that waits gets a place: cleaning read it, unless a user changed it since.
    fn why(&self, waiting: Waiting) -> Why {
        match self.pool.as_ref().map(|pool| pool.dirty[waiting.block as usize]) {
            Some(Dirty::Read) => Why::Moved { from: waiting.from },
            _ => self.written(waiting.block, 0),
        }
    }

    fn write_together(&mut self, blocks: &[Waiting], log: LogId) -> Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let Some(pool) = &self.pool else { return Ok(()) };
        let write_ns = if pool.is_stopped { 0 } else { pool.options.write_ns };
        self.choices.note_time(self.clock);
        for &one in blocks {
            let why = self.why(one);
            self.place(one.block, self.log_with_room(log), why)?;
            match why {
                Why::Moved { .. } => self.statistics.copies += 1,
                Why::Written { .. } => self.statistics.user_blocks += 1,
            }
            self.clock += write_ns;
            if let Some(pool) = &mut self.pool {
                pool.dirty[one.block as usize] = Dirty::Nothing;
                pool.blocks_written += 1;
            }
        }
        self.close_more_logs(|log| log.offset >= BLOCKS_PER_SEGMENT);
        Ok(())
    }

    /// Writes all that waits, and frees what is empty.
    pub(super) fn checkpoint_pool(&mut self) -> Result<()> {
        self.write_waiting(true)?;
        if let Some(pool) = &mut self.pool {
            (pool.blocks_written, pool.checkpoint_time) = (0, self.clock);
        }
        self.checkpoint()
    }
}
