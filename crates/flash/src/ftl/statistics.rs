//! What a translation layer did.

use serde::Serialize;

/// Counters of a translation layer since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FtlStatistics {
    /// Logical pages that the host wrote.
    pub pages_written: u64,
    /// Logical pages that the host read.
    pub pages_read: u64,
    /// Logical pages that the host trimmed while they held something.
    pub pages_trimmed: u64,
    /// Requests to trim.
    pub trims: u64,
    /// Requests to flush.
    pub flushes: u64,
    /// Physical pages programmed, for the host and for copies.
    pub pages_programmed: u64,
    /// Physical pages read and programmed elsewhere by garbage collection and merges; part of `pages_programmed`.
    pub pages_copied: u64,
    /// Physical blocks erased.
    pub erases: u64,
    /// Victims of garbage collection (page-level) or random log blocks reclaimed (FAST).
    pub collections: u64,
    /// Log blocks that became data blocks as they were (FAST).
    pub switch_merges: u64,
    /// Log blocks that became data blocks after their missing pages were copied to them (FAST).
    pub partial_merges: u64,
    /// Logical blocks put together from wherever their pages were into a new block (FAST).
    pub full_merges: u64,
}

impl FtlStatistics {
    /// Physical pages programmed for each logical page written; 1 when nothing was written.
    pub fn write_amplification(&self) -> f64 {
        if self.pages_written == 0 { 1.0 } else { self.pages_programmed as f64 / self.pages_written as f64 }
    }

    /// What happened after `earlier`, an older value of the same layer.
    #[must_use]
    pub fn since(&self, earlier: &FtlStatistics) -> FtlStatistics {
        let FtlStatistics {
            pages_written,
            pages_read,
            pages_trimmed,
            trims,
            flushes,
            pages_programmed,
            pages_copied,
            erases,
            collections,
            switch_merges,
            partial_merges,
            full_merges,
        } = *self;
        FtlStatistics {
            pages_written: pages_written.saturating_sub(earlier.pages_written),
            pages_read: pages_read.saturating_sub(earlier.pages_read),
            pages_trimmed: pages_trimmed.saturating_sub(earlier.pages_trimmed),
            trims: trims.saturating_sub(earlier.trims),
            flushes: flushes.saturating_sub(earlier.flushes),
            pages_programmed: pages_programmed.saturating_sub(earlier.pages_programmed),
            pages_copied: pages_copied.saturating_sub(earlier.pages_copied),
            erases: erases.saturating_sub(earlier.erases),
            collections: collections.saturating_sub(earlier.collections),
            switch_merges: switch_merges.saturating_sub(earlier.switch_merges),
            partial_merges: partial_merges.saturating_sub(earlier.partial_merges),
            full_merges: full_merges.saturating_sub(earlier.full_merges),
        }
    }
}

/// How evenly the blocks were erased.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Wear {
    /// Erases of the block erased least.
    pub min: u32,
    /// Erases of a block on average.
    pub mean: f64,
    /// Erases of the block erased most.
    pub max: u32,
    /// Standard deviation over all blocks.
    pub standard_deviation: f64,
}

impl Wear {
    /// The wear of blocks with these erase counts; all 0 without blocks.
    pub fn of(erase_counts: &[u32]) -> Wear {
        let (Some(&min), Some(&max)) = (erase_counts.iter().min(), erase_counts.iter().max()) else {
            return Wear::default();
        };
        let blocks = erase_counts.len() as f64;
        let mean = erase_counts.iter().map(|&count| f64::from(count)).sum::<f64>() / blocks;
        let squares = erase_counts.iter().map(|&count| (f64::from(count) - mean).powi(2)).sum::<f64>();
        Wear { min, mean, max, standard_deviation: (squares / blocks).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_is_that_of_the_textbook() {
        let wear = Wear::of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!(wear, Wear { min: 2, mean: 5.0, max: 9, standard_deviation: 2.0 });
        assert_eq!(Wear::of(&[]), Wear::default());
    }

    #[test]
    fn differences_are_of_every_counter() {
        let earlier = FtlStatistics { pages_written: 1, erases: 2, full_merges: 3, ..FtlStatistics::default() };
        let later = FtlStatistics { pages_written: 11, erases: 22, full_merges: 33, trims: 4, ..earlier };
        let since = later.since(&earlier);
        assert_eq!((since.pages_written, since.erases, since.full_merges, since.trims), (10, 20, 30, 4));
        assert_eq!(later.since(&FtlStatistics::default()), later);
    }
}
