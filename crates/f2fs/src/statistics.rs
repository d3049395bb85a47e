//! What was written, cleaned and committed since a volume was opened, and why.

use std::time::Duration;

/// Why sections are cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CleaningCause {
    /// Free sections run short while somebody writes.
    Foreground,
    /// The volume is idle.
    Background,
    /// The volume is being made smaller.
    Resize,
}

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

/// Cleaning for one cause since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct CleaningWork {
    /// Sections that were emptied.
    pub victims: u64,
    /// Blocks read from victims and from their summaries, dead ones between live ones included. Nodes that had to be read only
    /// because they point to a moved block are not counted.
    pub blocks_read: u64,
    /// Live blocks moved: data copied, and nodes to be written again.
    pub blocks_copied: u64,
    /// Those of `blocks_copied` that are data, and so were written as data blocks.
    pub data_blocks_copied: u64,
    /// Those of `blocks_copied` that were dead, but needed by the last checkpoint or by an fsync.
    pub pre_invalid_copied: u64,
    /// Checkpoints written to free victims.
    pub checkpoints: u64,
    /// Times the journal freed victims instead.
    pub journal_commits: u64,
    /// Time spent choosing victims.
    pub select: Duration,
    /// Time spent moving live blocks.
    pub copy: Duration,
    /// Time spent on the checkpoints and on the journal.
    pub commit: Duration,
}

/// Cleaning since the volume was opened, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct CleaningStatistics {
    /// [`CleaningCause::Foreground`].
    pub foreground: CleaningWork,
    /// [`CleaningCause::Background`].
    pub background: CleaningWork,
    /// [`CleaningCause::Resize`].
    pub resize: CleaningWork,
}

impl CleaningStatistics {
    pub(crate) fn of(&mut self, cause: CleaningCause) -> &mut CleaningWork {
        match cause {
            CleaningCause::Foreground => &mut self.foreground,
            CleaningCause::Background => &mut self.background,
            CleaningCause::Resize => &mut self.resize,
        }
    }
}

/// Checkpoints since the volume was opened, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Counters {
    /// File and directory blocks.
    pub data_blocks: u64,
    /// Node blocks.
    pub node_blocks: u64,
    /// NAT, SIT, SSA and checkpoint blocks.
    pub metadata_blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Sections cleaned.
    pub sections_cleaned: u64,
    /// Blocks copied by cleaning.
    pub blocks_moved: u64,
    /// Blocks of the cleaning journal.
    pub journal_blocks: u64,
}

impl Counters {
    /// Blocks of all kinds.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.data_blocks + self.node_blocks + self.metadata_blocks + self.journal_blocks
    }
}

/// What the engine did since the volume was opened: [`F2fs::statistics`](crate::F2fs::statistics).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Blocks written.
    pub written: Counters,
    /// Cleaning.
    pub cleaning: CleaningStatistics,
    /// Checkpoints.
    pub checkpoints: CheckpointStatistics,
}

impl CleaningStatistics {
    /// Cleaning for all causes together.
    #[must_use]
    pub fn total(&self) -> CleaningWork {
        self.foreground + self.background + self.resize
    }
}

impl Statistics {
    /// What was done since `earlier`, statistics of the same open volume.
    #[must_use]
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        *self - *earlier
    }

    /// Data blocks that were written because somebody changed something, and not because cleaning moved them.
    #[must_use]
    pub fn new_data_blocks(&self) -> u64 {
        self.written.data_blocks.saturating_sub(self.cleaning.total().data_blocks_copied)
    }

    /// All blocks written for each new data block; `None` before there is one.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let new = self.new_data_blocks();
        (new > 0).then(|| self.written.blocks() as f64 / new as f64)
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

impl Difference for Duration {
    fn difference(self, earlier: Duration) -> Duration {
        self.saturating_sub(earlier)
    }
}

sum_and_difference! {
    Statistics { written, cleaning, checkpoints }
    Counters { data_blocks, node_blocks, metadata_blocks, checkpoints, sections_cleaned, blocks_moved, journal_blocks }
    CleaningStatistics { foreground, background, resize }
    CleaningWork {
        victims, blocks_read, blocks_copied, data_blocks_copied, pre_invalid_copied, checkpoints, journal_commits, select, copy,
        commit
    }
    CheckpointStatistics { open, fsync, sync, interval, memory, cleaning, trim, resize, close }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_what_happened_between() {
        let work = CleaningWork { victims: 3, copy: Duration::from_millis(5), ..CleaningWork::default() };
        let mut before = Statistics::default();
        before.cleaning.foreground = work;
        before.checkpoints.sync = 2;
        let mut after = before;
        after.cleaning.foreground.victims = 7;
        after.cleaning.background = work;
        after.checkpoints.sync = 4;
        after.written.data_blocks = 100;
        let between = after.since(&before);
        assert_eq!(between.cleaning.foreground, CleaningWork { victims: 4, ..CleaningWork::default() });
        assert_eq!(between.cleaning.total(), CleaningWork { victims: 7, ..work });
        assert_eq!((between.checkpoints.total(), between.written.data_blocks), (2, 100));
        assert_eq!(before.since(&after).checkpoints.total(), 0);
    }

    #[test]
    fn copies_of_cleaning_are_no_new_data() {
        let mut statistics = Statistics::default();
        assert_eq!(statistics.write_amplification(), None);
        statistics.written = Counters { data_blocks: 30, node_blocks: 6, metadata_blocks: 4, ..statistics.written };
        statistics.cleaning.foreground.data_blocks_copied = 4;
        statistics.cleaning.background.data_blocks_copied = 6;
        assert_eq!((statistics.new_data_blocks(), statistics.write_amplification()), (20, Some(2.0)));
    }
}
