//! What an engine counts: the numbers that every flash file system has, and those of one engine by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Blocks written since the volume was opened, by kind, in blocks of [`Live::block_size`](crate::Live::block_size) bytes. 0 where an engine has no
/// such kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WrittenBlocks {
    /// Content of files and directories.
    pub data_blocks: u64,
    /// What maps files to their blocks: nodes, index nodes, object headers.
    pub node_blocks: u64,
    /// Tables of the whole volume, and checkpoints.
    pub metadata_blocks: u64,
    /// Journals.
    pub journal_blocks: u64,
}

impl WrittenBlocks {
    /// Blocks of all kinds.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.data_blocks + self.node_blocks + self.metadata_blocks + self.journal_blocks
    }
}

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

/// Cleaning for one cause since the volume was opened. A section is the engine's unit of cleaning: some segments, or one erase block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleaningStatistics {
    /// [`CleaningCause::Foreground`].
    pub foreground: CleaningWork,
    /// [`CleaningCause::Background`].
    pub background: CleaningWork,
    /// [`CleaningCause::Resize`].
    pub resize: CleaningWork,
}

impl CleaningStatistics {
    /// What was done for one cause, to be counted up.
    pub fn of(&mut self, cause: CleaningCause) -> &mut CleaningWork {
        match cause {
            CleaningCause::Foreground => &mut self.foreground,
            CleaningCause::Background => &mut self.background,
            CleaningCause::Resize => &mut self.resize,
        }
    }

    /// Cleaning for all causes together.
    #[must_use]
    pub fn total(&self) -> CleaningWork {
        self.foreground + self.background + self.resize
    }
}

/// Numbers that one engine has and others need not. A name is a path of lower-case words, such as `checkpoints/fsync`; what is before the
/// last `/` is its group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named(BTreeMap<Cow<'static, str>, u64>);

impl Named {
    /// Sets the number of this name.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: u64) {
        self.0.insert(name.into(), value);
    }

    /// The number of this name; `None` where the engine has none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// The sum of a group; `None` where the engine has nothing in it.
    #[must_use]
    pub fn sum(&self, group: &str) -> Option<u64> {
        let is_inside = |name: &str| name.rsplit_once('/').is_some_and(|(found, _)| found == group);
        self.iter().filter(|(name, _)| is_inside(name)).map(|(_, value)| value).reduce(u64::saturating_add)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// By how much each has risen since `earlier`; 0 where it has not.
    #[must_use]
    pub fn since(&self, earlier: &Named) -> Named {
        let risen = |name: &str, value: u64| value.saturating_sub(earlier.get(name).unwrap_or(0));
        Named(self.0.iter().map(|(name, value)| (name.clone(), risen(name, *value))).collect())
    }
}

impl<const N: usize> From<[(&'static str, u64); N]> for Named {
    fn from(numbers: [(&'static str, u64); N]) -> Self {
        Named(numbers.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

/// What an engine did since its volume was opened. Everything begins at zero and only rises.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks written.
    pub written: WrittenBlocks,
    /// Cleaning.
    pub cleaning: CleaningStatistics,
    /// What only this engine counts.
    pub named: Named,
}

impl Counters {
    /// What was done since `earlier`, counters of the same open volume.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            written: self.written - earlier.written,
            cleaning: self.cleaning - earlier.cleaning,
            named: self.named.since(&earlier.named),
        }
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

/// Sums and differences, field by field.
macro_rules! sum_and_difference {
    ($($structure:ident { $($field:ident),+ })+) => {$(
        impl Add for $structure {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field),+ }
            }
        }

        /// Differences that would be negative are zero.
        impl Sub for $structure {
            type Output = Self;

            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field.difference(earlier.$field)),+ }
            }
        }

        impl Difference for $structure {
            fn difference(self, earlier: Self) -> Self {
                self - earlier
            }
        }
    )+};
}

sum_and_difference! {
    WrittenBlocks { data_blocks, node_blocks, metadata_blocks, journal_blocks }
    CleaningStatistics { foreground, background, resize }
    CleaningWork {
        victims, blocks_read, blocks_copied, data_blocks_copied, pre_invalid_copied, checkpoints, journal_commits, select, copy,
        commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_what_happened_between() {
        let work = CleaningWork { victims: 3, copy: Duration::from_millis(5), ..CleaningWork::default() };
        let mut before = Counters { named: [("checkpoints/sync", 2)].into(), ..Counters::default() };
        before.cleaning.foreground = work;
        let mut after = before.clone();
        after.cleaning.foreground.victims = 7;
        after.cleaning.background = work;
        after.named = [("checkpoints/sync", 4), ("checkpoints/trim", 1), ("syncs", 9)].into();
        after.written.data_blocks = 100;
        let between = after.since(&before);
        assert_eq!(between.cleaning.foreground, CleaningWork { victims: 4, ..CleaningWork::default() });
        assert_eq!(between.cleaning.total(), CleaningWork { victims: 7, ..work });
        assert_eq!((between.named.sum("checkpoints"), between.written.data_blocks), (Some(3), 100));
        assert_eq!((between.named.get("syncs"), between.named.get("fsyncs")), (Some(9), None));
        assert_eq!((between.named.sum("journal"), before.since(&after).named.sum("checkpoints")), (None, Some(0)));
    }

    #[test]
    fn a_group_has_what_is_directly_in_it() {
        let numbers =
            [("erases", 1), ("erases/wear", 2), ("erases/wear/hot", 4), ("erases_failed/wear", 8), ("x/erases", 16)];
        let named = Named::from(numbers);
        assert_eq!((named.sum("erases"), named.sum("erases/wear"), named.sum("x")), (Some(2), Some(4), Some(16)));
        assert_eq!((named.sum("erase"), named.sum("wear"), named.sum("")), (None, None, None));
    }

    #[test]
    fn copies_of_cleaning_are_no_new_data() {
        let mut counters = Counters::default();
        assert_eq!(counters.write_amplification(), None);
        counters.written = WrittenBlocks { data_blocks: 30, node_blocks: 6, metadata_blocks: 4, journal_blocks: 0 };
        counters.cleaning.of(CleaningCause::Foreground).data_blocks_copied = 4;
        counters.cleaning.of(CleaningCause::Background).data_blocks_copied = 6;
        assert_eq!((counters.new_data_blocks(), counters.write_amplification()), (20, Some(2.0)));
    }
}
