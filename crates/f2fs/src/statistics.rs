//! What was written, cleaned and committed since a volume was opened, and why.

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks written.
    pub written: Counters,
    /// Cleaning.
    pub cleaning: CleaningStatistics,
    /// Checkpoints.
    pub checkpoints: CheckpointStatistics,
}

impl Statistics {
    /// What was done since `earlier`, statistics of the same open volume.
    #[must_use]
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        *self - *earlier
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
    Statistics { written, cleaning, checkpoints }
    Counters { data_blocks, node_blocks, metadata_blocks, checkpoints, sections_cleaned, blocks_moved, journal_blocks }
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
