//! What is known of each block, in eight bytes.

mod packed;

use super::buckets::{BUCKETS, Mean, bucket};

/// Intervals are counted up to this.
const COUNT_MAX: u16 = 15;
/// The least share of the newest interval in the mean is 1 / 8.
const REMEMBERED: u16 = 8;
/// Ages above this are taken for it: half of what the clock tells apart.
pub const AGE_MAX: u32 = 1 << 31;

/// Histories are told apart by past intervals (one, two to four, more), the bucket of their mean, and how much longer or shorter the last
/// one was. Blocks that were never overwritten are alike.
pub const CELLS: usize = 1 + 3 * BUCKETS * STEPS;
/// Steps between the last interval and the mean: an octave each, from 4 shorter to 4 longer.
const STEPS: usize = 9;
const STEP_MAX: i32 = 4;

/// The cell of blocks that were never overwritten.
pub const NEVER_OVERWRITTEN: usize = 0;

/// The bucket of the mean interval in this cell; `None` for [`NEVER_OVERWRITTEN`].
pub fn mean_bucket(cell: usize) -> Option<usize> {
    Some(cell.checked_sub(1)? / STEPS % BUCKETS)
}

/// A block: when it was written last, and how it was overwritten before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The clock at the last write by a user.
    written: u32,
    mean: Mean,
    /// Bucket of the last interval (6 bits), intervals (4), unused (3), overwritten (1), promoted (1), known (1).
    packed: u16,
}

impl Record {
    const COUNT: u16 = 6;
    const OVERWRITTEN: u16 = 1 << 13;
    const PROMOTED: u16 = 1 << 14;
    const KNOWN: u16 = 1 << 15;

    /// Of a block that is written for the first time.
    pub fn first(now: u32) -> Record {
        Record { written: now, mean: Mean::default(), packed: Self::KNOWN }
    }

    /// Of a block that a user overwrites of which nothing was known.
    pub fn second(now: u32) -> Record {
        Record { written: now, mean: Mean::default(), packed: Self::KNOWN | Self::OVERWRITTEN }
    }

    /// Whether a user has overwritten it since it was new. Its interval need not be known.
    pub fn is_overwritten(self) -> bool {
        self.packed & Self::OVERWRITTEN != 0
    }

    /// Whether the block was ever written.
    pub fn is_known(self) -> bool {
        self.packed & Self::KNOWN != 0
    }

    /// Blocks that users wrote since this one was.
    pub fn age(self, now: u32) -> u32 {
        now.wrapping_sub(self.written)
    }

    /// Keeps the age below what the clock tells apart; has to be called once in 2^31 writes.
    pub fn limit_age(&mut self, now: u32) {
        if self.age(now) > AGE_MAX {
            self.written = now.wrapping_sub(AGE_MAX);
        }
    }

    /// Past intervals, up to 15.
    pub fn count(self) -> u16 {
        self.packed >> Self::COUNT & COUNT_MAX
    }

    fn last_bucket(self) -> usize {
        usize::from(self.packed & 63)
    }

    /// Notes whether cleaning puts it into a hotter group than that of its segment.
    pub fn set_promoted(&mut self, is_promoted: bool) {
        self.packed = self.packed & !Self::PROMOTED | if is_promoted { Self::PROMOTED } else { 0 };
    }

    /// Whether cleaning put it into a hotter group.
    pub fn is_promoted(self) -> bool {
        self.packed & Self::PROMOTED != 0
    }

    /// As it is when a user overwrites it now.
    pub fn overwritten(self, now: u32) -> Record {
        let interval = self.age(now).max(1);
        let count = (self.count() + 1).min(COUNT_MAX);
        let mean = match count {
            1 => Mean::of(f64::from(interval)),
            _ => self.mean.moved(interval, 1.0 / f64::from(count.min(REMEMBERED))),
        };
        let kept = self.packed & !(COUNT_MAX << Self::COUNT | 63);
        // Buckets are below 64.
        Record { written: now, mean, packed: kept | Self::OVERWRITTEN | count << Self::COUNT | bucket(interval) as u16 }
    }

    /// Which history it has.
    pub fn cell(self) -> usize {
        let class = match self.count() {
            0 => return NEVER_OVERWRITTEN,
            1 => 0,
            2..=4 => 1,
            _ => 2,
        };
        let mean = self.mean.bucket();
        let step = ((self.last_bucket() as i32 - mean as i32) / 2).clamp(-STEP_MAX, STEP_MAX) + STEP_MAX;
        // From 0 to 8.
        1 + (class * BUCKETS + mean) * STEPS + step as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_eight_bytes_and_keeps_everything() {
        assert_eq!(size_of::<Record>(), 8);
        let mut record = Record::first(100);
        assert!(record.is_known() && !Record::default().is_known());
        assert_eq!((record.count(), record.cell()), (0, NEVER_OVERWRITTEN));
        record.set_promoted(true);
        assert_eq!((record.is_promoted(), record.is_known(), record.count()), (true, true, 0));
        assert!(!record.is_overwritten() && Record::second(5).is_overwritten());
        assert_eq!(
            (Record::second(5).count(), Record::second(5).cell()),
            (0, NEVER_OVERWRITTEN),
            "its interval is unknown"
        );
        let record = record.overwritten(400);
        assert!(record.is_overwritten());
        assert_eq!((record.count(), record.age(400), record.last_bucket()), (1, 0, bucket(300)));
        assert!(record.is_promoted(), "until it is put elsewhere");
        assert!((record.mean.get() - 300.0).abs() < 0.1);
        // 300 and 100: 200. Then 20 at a third: 140.
        let record = record.overwritten(500).overwritten(520);
        assert!((record.mean.get() - 140.0).abs() < 0.1, "{record:?}");
        let many = (0..40).fold(record, |record, _| record.overwritten(record.written + 140));
        assert_eq!(many.count(), 15);
        // Eight is what the mean remembers at most.
        let next = many.overwritten(many.written + 940);
        assert!((next.mean.get() - 240.0).abs() < 0.2, "{next:?}");
    }

    #[test]
    fn cells_tell_counts_means_and_last_intervals_apart() {
        let after = |intervals: &[u32]| {
            intervals
                .iter()
                .fold(Record::first(7), |record, interval| record.overwritten(record.written.wrapping_add(*interval)))
        };
        let cells: Vec<usize> = [&[64][..], &[64, 64], &[64; 4], &[64; 5], &[64; 9], &[128], &[90, 26], &[26, 90]]
            .map(|intervals| after(intervals).cell())
            .to_vec();
        let at = |class: usize, mean: u32, step: usize| 1 + (class * BUCKETS + bucket(mean)) * STEPS + step;
        // 26 is in the bucket of 24, 90 in that of 64, 58 in that of 48: two halves of an octave below, one above.
        let expected = [
            at(0, 64, 4),
            at(1, 64, 4),
            at(1, 64, 4),
            at(2, 64, 4),
            at(2, 64, 4),
            at(0, 128, 4),
            at(1, 58, 3),
            at(1, 58, 4),
        ];
        assert_eq!(cells, expected);
        let far = after(&[1 << 20, 1 << 20, 1]).cell();
        assert_eq!(mean_bucket(far), Some(bucket(699_000)));
        assert_eq!((far - 1) % STEPS, 0, "no more than four octaves below");
        assert!(after(&[u32::MAX; 2]).cell() < CELLS && mean_bucket(NEVER_OVERWRITTEN).is_none());
    }

    #[test]
    fn the_clock_may_wrap() {
        let record = Record::first(u32::MAX - 9);
        assert_eq!(record.age(10), 20);
        assert_eq!(record.overwritten(10).last_bucket(), bucket(20));
        let mut old = Record::first(5);
        old.limit_age(5u32.wrapping_add(AGE_MAX + 77));
        assert_eq!(old.age(5u32.wrapping_add(AGE_MAX + 77)), AGE_MAX);
    }
}
