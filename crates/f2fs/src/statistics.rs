//! What was written, cleaned and committed since a volume was opened, and why.

use std::time::Duration;

pub use basalt_vfs::{CleaningCause, CleaningStatistics, CleaningWork};

/// Why a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckpointCause {
    /// The volume was opened after an unclean end, or held orphans.
    Open,
    /// Somebody asked for one file to be durable.
    Fsync,
    /// Somebody asked for everything to be durable.
    Sync,
    /// A change was left alone for as long as the options allow.
    Interval,
    /// What only a checkpoint lets go of takes too much memory.
    Memory,
    /// Cleaned sections are needed.
    Cleaning(CleaningCause),
    /// Free space is about to be discarded.
    Trim,
    /// The volume is being made smaller or larger.
    Resize,
    /// The volume is being closed.
    Close,
}

/// Checkpoints since the volume was opened, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointStatistics {
    /// [`CheckpointCause::Open`].
    pub open: u64,
    /// [`CheckpointCause::Fsync`].
    pub fsync: u64,
    /// [`CheckpointCause::Sync`].
    pub sync: u64,
    /// [`CheckpointCause::Interval`].
    pub interval: u64,
    /// [`CheckpointCause::Memory`].
    pub memory: u64,
    /// [`CheckpointCause::Cleaning`] of any cause.
    pub cleaning: u64,
    /// [`CheckpointCause::Trim`].
    pub trim: u64,
    /// [`CheckpointCause::Resize`].
    pub resize: u64,
    /// [`CheckpointCause::Close`].
    pub close: u64,
}

impl CheckpointStatistics {
    /// Checkpoints of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { open, fsync, sync, interval, memory, cleaning, trim, resize, close } = *self;
        open + fsync + sync + interval + memory + cleaning + trim + resize + close
    }

    pub(crate) fn count(&mut self, cause: CheckpointCause) {
        *match cause {
            CheckpointCause::Open => &mut self.open,
            CheckpointCause::Fsync => &mut self.fsync,
            CheckpointCause::Sync => &mut self.sync,
            CheckpointCause::Interval => &mut self.interval,
            CheckpointCause::Memory => &mut self.memory,
            CheckpointCause::Cleaning(_) => &mut self.cleaning,
            CheckpointCause::Trim => &mut self.trim,
            CheckpointCause::Resize => &mut self.resize,
            CheckpointCause::Close => &mut self.close,
        } += 1;
    }
}

/// What was written since the volume was opened, in blocks, and how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// File and directory blocks.
    pub data_blocks: u64,
    /// Node blocks.
    pub node_blocks: u64,
    /// NAT, SIT, SSA and checkpoint blocks, and those of hotness records.
    pub metadata_blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Sections cleaned.
    pub sections_cleaned: u64,
    /// Blocks copied by cleaning.
    pub blocks_moved: u64,
    /// Blocks of the cleaning journal.
    pub journal_blocks: u64,
    /// Of the data and node blocks, those that went to slack.
    pub slack_blocks: u64,
    /// Of the blocks copied by cleaning, those that split the slack of a segment.
    pub islands_copied: u64,
}

impl Counters {
    /// Blocks of all kinds.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.data_blocks + self.node_blocks + self.metadata_blocks + self.journal_blocks
    }
}

/// What a placement that learns took over from the mount before, and what it leaves to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotnessStatistics {
    /// Segments of whose blocks the last mount knew something, and to which nothing was written since.
    pub segments_recalled: u64,
    /// Blocks of records that were written. They count as metadata blocks, too.
    pub blocks: u64,
}

/// What the engine did since the volume was opened: [`F2fs::statistics`](crate::F2fs::statistics).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks written.
    pub written: Counters,
    /// Cleaning.
    pub cleaning: CleaningStatistics,
    /// Checkpoints.
    pub checkpoints: CheckpointStatistics,
    /// Hotness records.
    pub hotness: HotnessStatistics,
}

impl Statistics {
    /// What was done since `earlier`, statistics of the same open volume.
    #[must_use]
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        *self - *earlier
    }
}

/// Counts what an open volume does. The only one that changes its [`Statistics`].
#[derive(Debug, Default)]
pub(crate) struct Record(Statistics);

impl Record {
    /// What was counted so far.
    pub(crate) fn statistics(&self) -> Statistics {
        self.0
    }

    /// What was written so far.
    pub(crate) fn written(&self) -> &Counters {
        &self.0.written
    }

    /// A block of a file or directory was written.
    pub(crate) fn wrote_data(&mut self) {
        self.0.written.data_blocks += 1;
    }

    /// A node was written.
    pub(crate) fn wrote_node(&mut self) {
        self.0.written.node_blocks += 1;
    }

    /// So many blocks of NAT, SIT, SSA or checkpoint were written.
    pub(crate) fn wrote_metadata(&mut self, blocks: u64) {
        self.0.written.metadata_blocks += blocks;
    }

    /// So many segments have their hotness records back.
    pub(crate) fn recalled_hotness(&mut self, segments: u64) {
        self.0.hotness.segments_recalled += segments;
    }

    /// So many blocks of hotness records were written.
    pub(crate) fn kept_hotness(&mut self, blocks: u64) {
        self.wrote_metadata(blocks);
        self.0.hotness.blocks += blocks;
    }

    /// So many blocks of the cleaning journal were written.
    pub(crate) fn wrote_journal(&mut self, blocks: u64) {
        self.0.written.journal_blocks += blocks;
    }

    /// A block got its place in slack.
    pub(crate) fn filled_slack(&mut self) {
        self.0.written.slack_blocks += 1;
    }

    /// So many blocks were copied out of the way, so that slack is in longer runs.
    pub(crate) fn copied_islands(&mut self, blocks: u64) {
        self.0.written.islands_copied += blocks;
    }

    /// A checkpoint is written for this cause.
    pub(crate) fn began_checkpoint(&mut self, cause: CheckpointCause) {
        self.0.checkpoints.count(cause);
    }

    /// The pack of a checkpoint is complete but for its last block.
    pub(crate) fn wrote_checkpoint(&mut self) {
        self.0.written.checkpoints += 1;
    }

    /// Cleaning chose a victim, and took so long.
    pub(crate) fn chose_victim(&mut self, cause: CleaningCause, took: Duration) {
        self.0.cleaning.of(cause).select += took;
    }

    /// Cleaning read so many blocks.
    pub(crate) fn read_victim(&mut self, cause: CleaningCause, blocks: u64) {
        self.0.cleaning.of(cause).blocks_read += blocks;
    }

    /// Cleaning copied a block.
    pub(crate) fn copied_block(&mut self, cause: CleaningCause) {
        self.0.written.blocks_moved += 1;
        self.0.cleaning.of(cause).blocks_copied += 1;
    }

    /// The block that cleaning copied is one of data.
    pub(crate) fn copied_data(&mut self, cause: CleaningCause) {
        self.0.cleaning.of(cause).data_blocks_copied += 1;
    }

    /// The block that cleaning copied is dead, and a durable pointer still refers to it.
    pub(crate) fn copied_pre_invalid(&mut self, cause: CleaningCause) {
        self.0.cleaning.of(cause).pre_invalid_copied += 1;
    }

    /// Copying took so long.
    pub(crate) fn spent_copying(&mut self, cause: CleaningCause, took: Duration) {
        self.0.cleaning.of(cause).copy += took;
    }

    /// A section is clean.
    pub(crate) fn cleaned_section(&mut self, cause: CleaningCause) {
        self.0.cleaning.of(cause).victims += 1;
        self.0.written.sections_cleaned += 1;
    }

    /// The journal committed what cleaning moved.
    pub(crate) fn committed_by_journal(&mut self, cause: CleaningCause) {
        self.0.cleaning.of(cause).journal_commits += 1;
    }

    /// A commit of cleaning took so long; `checkpoint` says whether by a checkpoint of its own.
    pub(crate) fn spent_committing(&mut self, cause: CleaningCause, took: Duration, checkpoint: bool) {
        let work = self.0.cleaning.of(cause);
        work.commit += took;
        work.checkpoints += u64::from(checkpoint);
    }
}

/// Sums and differences of counters, field by field. Differences that would be negative are zero.
macro_rules! sum_and_difference {
    ($($structure:path { $($field:ident),+ })+) => {$(
        impl std::ops::Add for $structure {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field),+ }
            }
        }

        impl std::ops::Sub for $structure {
            type Output = Self;

            fn sub(self, earlier: Self) -> Self {
                $(let $field = self.$field.difference(earlier.$field);)+
                Self { $($field),+ }
            }
        }

        impl Difference for $structure {
            fn difference(self, earlier: Self) -> Self {
                self - earlier
            }
        }
    )+};
}

/// A difference that stops at zero.
trait Difference {
    fn difference(self, earlier: Self) -> Self;
}

impl Difference for u64 {
    fn difference(self, earlier: u64) -> u64 {
        self.saturating_sub(earlier)
    }
}

impl Difference for CleaningStatistics {
    fn difference(self, earlier: CleaningStatistics) -> CleaningStatistics {
        self - earlier
    }
}

sum_and_difference! {
    Statistics { written, cleaning, checkpoints, hotness }
    HotnessStatistics { segments_recalled, blocks }
    Counters { data_blocks, node_blocks, metadata_blocks, checkpoints, sections_cleaned, blocks_moved, journal_blocks, slack_blocks, islands_copied }
    CheckpointStatistics { open, fsync, sync, interval, memory, cleaning, trim, resize, close }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_what_happened_between() {
        let mut before = Statistics::default();
        before.cleaning.foreground.victims = 3;
        before.checkpoints.sync = 2;
        let mut after = before;
        after.cleaning.foreground.victims = 7;
        after.checkpoints.sync = 4;
        after.written.data_blocks = 100;
        let between = after.since(&before);
        assert_eq!(between.cleaning.total().victims, 4);
        assert_eq!((between.checkpoints.total(), between.written.data_blocks), (2, 100));
        assert_eq!(before.since(&after).checkpoints.total(), 0);
    }
}
