//! The driver decides, step by step, how a volume makes room for a change. The engine and the volume simulator carry the steps out.
//!
//! Before a change: writing back where too much is dirty; then, by how urgent cleaning is, moving some live blocks, freeing what was
//! emptied, a checkpoint, or whole rounds of cleaning until there is room.

use super::{Cleaner, Load, Pressure};
use crate::SegmentTable;

/// Blocks that are written back in one go where too much is dirty: a request of 1 MiB.
pub const PIECE: usize = 256;
/// Rounds of cleaning that one change may be made to wait for.
const ROUNDS: u32 = 64;

/// What the driver has to know of a volume.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// What was written and what is dirty.
    pub load: Load,
    /// Blocks that the cache may hold.
    pub cache_blocks: usize,
    /// Whether changes are possible.
    pub is_writable: bool,
    /// What is kept in memory until a checkpoint is more than may be.
    pub is_memory_full: bool,
    /// After a power cut, recovery would hardly find room: only a checkpoint helps.
    pub is_recovery_cramped: bool,
    /// Sections' worth of dead blocks are free only after a checkpoint: where cleaning finds nothing to gain, that is what to do.
    pub is_held_by_checkpoint: bool,
    /// Sections of a commit that waits for its flush, if there is one.
    pub committing: Option<u32>,
    /// Most sections that share a commit, at least 1.
    pub sections_per_commit: u32,
}

impl Facts {
    /// Those of a writable volume that has no journal, and memory enough.
    #[must_use]
    pub fn without_journal(load: Load, cache_blocks: usize) -> Facts {
        Facts {
            load,
            cache_blocks,
            is_writable: true,
            is_memory_full: false,
            is_recovery_cramped: false,
            is_held_by_checkpoint: false,
            committing: None,
            sections_per_commit: u32::MAX,
        }
    }

    /// Dirty pages beyond the limit.
    fn pages_over(&self, table: &SegmentTable) -> usize {
        self.load.pages_over(table, self.cache_blocks)
    }

    /// Dirty nodes beyond the limit.
    fn nodes_over(&self, table: &SegmentTable) -> usize {
        self.load.nodes_over(table, self.cache_blocks)
    }
}

/// Why the driver wants a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// What is kept in memory is more than may be, unless another checkpoint has helped meanwhile.
    Memory,
    /// Cleaning could not go on, or recovery would run out of room.
    Room,
}

/// What following the plan did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Live blocks that were moved.
    pub blocks: u32,
    /// Whether the section at hand is done with.
    pub ends_section: bool,
}

/// A volume that is driven: it tells the facts, and carries out what is decided.
pub trait Driven {
    /// Why something could not be carried out.
    type Error;

    /// Asks a question of the volume as it is now, under whatever lock guards it.
    fn ask<T>(&mut self, question: impl FnOnce(&mut Cleaner, &SegmentTable, &Facts) -> T) -> T;

    /// Does work as the one who cleans: nobody else follows the plan meanwhile.
    fn as_cleaner<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T;

    /// Plans foreground cleaning unless a plan exists, by [`Cleaner::plan_when_needed`]; false if cleaning would gain nothing.
    fn plan(&mut self) -> bool;

    /// Goes on with the plan for up to `most` blocks, not beyond the section at hand; `None` if there is no plan.
    ///
    /// # Errors
    /// When a block cannot be moved.
    fn follow_plan(&mut self, most: u32) -> Result<Option<Moved>, Self::Error>;

    /// Writes what the commit of a round would have to write, while there is room.
    ///
    /// # Errors
    /// When it cannot be written.
    fn prepare_round(&mut self) -> Result<(), Self::Error>;

    /// Writes back so many dirty pages.
    ///
    /// # Errors
    /// When they cannot be written.
    fn write_pages(&mut self, count: usize) -> Result<(), Self::Error>;

    /// Writes so many dirty nodes.
    ///
    /// # Errors
    /// When they cannot be written.
    fn write_nodes(&mut self, count: usize) -> Result<(), Self::Error>;

    /// Frees emptied sections, if there are any; with `wait` they are free on return.
    ///
    /// # Errors
    /// When the commit fails.
    fn commit(&mut self, wait: bool) -> Result<(), Self::Error>;

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// When it fails.
    fn checkpoint(&mut self, want: Want) -> Result<(), Self::Error>;
}

/// What has to happen before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing more.
    Go,
    /// Writing back what is dirty beyond the limits.
    WriteBack,
    /// Moving so many live blocks.
    Move(u32),
    /// A commit, to free sections; whether they are needed at once.
    Commit { wait: bool },
    /// A checkpoint.
    Checkpoint(Want),
    /// Cleaning until there is room.
    Clean,
}

impl Cleaner {
    /// What has to happen before a change that writes about `weight` blocks; with `may_write_back`, that may be writing back.
    fn next(&mut self, table: &SegmentTable, facts: &Facts, weight: u32, may_write_back: bool) -> Next {
        if !facts.is_writable {
            return Next::Go;
        }
        if may_write_back && (facts.pages_over(table) > 0 || facts.nodes_over(table) > 0) {
            return Next::WriteBack;
        }
        if facts.is_memory_full {
            return Next::Checkpoint(Want::Memory);
        }
        if facts.is_recovery_cramped {
            return Next::Checkpoint(Want::Room);
        }
        match self.pressure(table, &facts.load) {
            Pressure::Low => Next::Clean,
            Pressure::None => {
                self.forgive(&facts.load);
                self.next_commit(table, facts, false)
            }
            pressure @ (Pressure::Paced(_) | Pressure::Hard) => Next::Move(self.due(&facts.load, weight, pressure)),
        }
    }

    /// What has to happen once live blocks were moved, or, unless that `gains`, could not be.
    fn next_after_step(&self, table: &SegmentTable, facts: &Facts, gains: bool) -> Next {
        if !gains && facts.is_held_by_checkpoint {
            Next::Checkpoint(Want::Room)
        } else {
            self.next_commit(table, facts, gains)
        }
    }

    /// Whether room has to be made again before a change, because others have taken what was made for it: the next change, or cleaning, might
    /// run into the end of the free sections, and cleaning can do something about it.
    #[must_use]
    pub fn is_room_taken(&self, table: &SegmentTable, facts: &Facts) -> bool {
        let is_low = || facts.load.is_low(table) && (!self.is_in_vain() || self.sections_to_be_freed(table) > 0);
        facts.is_writable && (facts.is_recovery_cramped || is_low())
    }

    /// Whether a step may move live blocks before sections have to be freed.
    fn may_step(&self, table: &SegmentTable, facts: &Facts) -> bool {
        facts.load.has_workspace(table) && !self.wants_sections_freed(table, &facts.load, false)
    }

    /// Whether sections have to be freed; `paced`: while cleaning goes on in small steps.
    fn next_commit(&self, table: &SegmentTable, facts: &Facts, paced: bool) -> Next {
        // Counted once: this is asked before and after every step.
        let waiting = self.sections_to_be_freed(table);
        let is_full = paced && self.is_commit_full(facts);
        let wait = waiting > 0 && facts.load.is_low(table) || is_full && facts.committing.is_some();
        // A commit that waits for its flush frees what it can.
        let is_worth_it = || paced && (is_full || self.is_batch(table, &facts.load, waiting));
        let is_due = wait || facts.committing.is_none() && is_worth_it();
        if is_due { Next::Commit { wait } } else { Next::Go }
    }

    /// Whether a commit is worth it while cleaning goes on, or has to free sections before the next change.
    #[must_use]
    pub fn wants_commit(&self, table: &SegmentTable, facts: &Facts) -> bool {
        self.is_commit_full(facts) || self.wants_sections_freed(table, &facts.load, true)
    }

    /// Whether as many sections as may share a commit were emptied since the last one.
    fn is_commit_full(&self, facts: &Facts) -> bool {
        self.emptied_sections().saturating_sub(facts.committing.unwrap_or_default()) >= facts.sections_per_commit
    }
}

/// Makes room before a change that writes about `weight` blocks.
///
/// # Errors
/// What the volume could not carry out.
pub fn make_room<V: Driven>(volume: &mut V, weight: u32) -> Result<(), V::Error> {
    let mut next = volume.ask(|cleaner, table, facts| cleaner.next(table, facts, weight, true));
    if next == Next::WriteBack {
        relieve_memory(volume)?;
        next = volume.ask(|cleaner, table, facts| cleaner.next(table, facts, weight, false));
    }
    if let Next::Move(due) = next {
        let gains = clean_step(volume, due)?;
        next = volume.ask(|cleaner, table, facts| cleaner.next_after_step(table, facts, gains));
    }
    match next {
        Next::Go | Next::WriteBack | Next::Move(_) => Ok(()),
        Next::Commit { wait } => volume.commit(wait),
        Next::Checkpoint(want) => volume.checkpoint(want),
        Next::Clean => clean(volume),
    }
}

/// Writes back what is dirty beyond the limits, in pieces large enough for large requests.
///
/// # Errors
/// When it cannot be written.
pub fn relieve_memory<V: Driven>(volume: &mut V) -> Result<(), V::Error> {
    let pages = volume.ask(|_, table, facts| facts.pages_over(table));
    if pages > 0 {
        volume.write_pages(pages.max(PIECE))?;
    }
    let nodes = volume.ask(|_, table, facts| facts.nodes_over(table));
    if nodes > 0 {
        volume.write_nodes(nodes.max(PIECE))?;
    }
    Ok(())
}

/// Moves up to `most` live blocks, while there is room for them: others may have taken some, and what is emptied is free only after a commit.
/// False if there is nothing to gain.
fn clean_step<V: Driven>(volume: &mut V, most: u32) -> Result<bool, V::Error> {
    volume.as_cleaner(|volume| {
        if !volume.plan() {
            return Ok(false);
        }
        let mut left = most;
        while left > 0
            && volume.ask(|cleaner, table, facts| cleaner.may_step(table, facts))
            && let Some(moved) = volume.follow_plan(left)?
        {
            left -= moved.blocks;
        }
        volume.ask(|cleaner, _, facts| cleaner.note_step(&facts.load));
        Ok(true)
    })
}

/// Cleans until enough sections are free, or nothing is to be gained.
fn clean<V: Driven>(volume: &mut V) -> Result<(), V::Error> {
    for _ in 0..ROUNDS {
        let Some(gains) = volume.as_cleaner(clean_when_low)? else { return Ok(()) };
        let (is_held, has_emptied, before) = volume
            .ask(|cleaner, table, facts| (facts.is_held_by_checkpoint, cleaner.has_emptied(), table.free_sections()));
        if !gains && !is_held {
            return Ok(());
        }
        if is_held && !has_emptied {
            volume.checkpoint(Want::Room)?;
            continue;
        }
        volume.commit(true)?;
        if volume.ask(|_, table, _| table.free_sections()) <= before {
            return Ok(());
        }
    }
    Ok(())
}

/// A round of cleaning if free sections run short, and whether it gains something; `None` if they do not, or not any more. Where emptied
/// sections have to be free first, it is left out: a round might lack the room. By the one who cleans.
fn clean_when_low<V: Driven>(volume: &mut V) -> Result<Option<bool>, V::Error> {
    let is_freed_first = volume.ask(|cleaner, table, facts| {
        let is_low = facts.is_writable && cleaner.pressure(table, &facts.load) == Pressure::Low;
        is_low.then(|| cleaner.wants_sections_freed(table, &facts.load, false))
    });
    match is_freed_first {
        None => Ok(None),
        Some(true) => Ok(Some(true)),
        Some(false) => clean_round(volume).map(Some),
    }
}

/// Empties victims until a section is gained, or a commit has to free those emptied so far; false if there are none, because moving live
/// blocks around would gain nothing. By the one who cleans.
fn clean_round<V: Driven>(volume: &mut V) -> Result<bool, V::Error> {
    if !volume.plan() {
        return Ok(false);
    }
    volume.prepare_round()?;
    let mut sections = 0;
    while sections == 0
        || volume.ask(|_, table, facts| sections < facts.sections_per_commit && facts.load.has_workspace(table))
    {
        if !empty_victim(volume)? {
            break;
        }
        sections += 1;
    }
    Ok(true)
}

/// Goes on with the plan to the end of the section at hand; false if there is none.
fn empty_victim<V: Driven>(volume: &mut V) -> Result<bool, V::Error> {
    let mut is_begun = false;
    while let Some(moved) = volume.follow_plan(u32::MAX)? {
        if moved.ends_section {
            return Ok(true);
        }
        is_begun = true;
    }
    Ok(is_begun)
}
