//! What requests that are made anyway tell of how long a device takes.
//!
//! Only such requests count as plans are made of: alone at the device, and where none of the last ended. Others wait for each other, or go on
//! with a stream, which a card takes faster.
//!
//! A write cache makes writes look fast, and flushes pay for them. So flushes after many blocks are held against those after few: where they
//! take longer by much of what the writes took, or where there were none, nothing is learned of writes.

use super::{DeviceTimes, Point};
use crate::BLOCKS_PER_SEGMENT;

/// From so many blocks on a request counts to the next length.
const LENGTHS: [u32; 8] = [1, 2, 4, 16, 64, 128, 256, 512];
/// So many of them tell what a request costs, however short.
const SHORT: usize = 2;
/// From here on they tell what each block costs.
const LONG: usize = 3;
/// Samples that are kept of each.
const KEPT: usize = 31;
/// So many short requests and so many long ones are needed, and so many flushes.
const ENOUGH: usize = 15;
/// So many are needed of a length, or it is left out; and to tell whether there is a write cache.
const SOME: usize = 7;
/// Places where requests ended last.
const PLACES: usize = 16;
/// A flush after so few blocks, at most, takes what flushes take at least.
const LITTLE: u64 = 16;
/// After so many, at least, it shows whether they were only in a cache.
const MUCH: u64 = 128;

/// A request that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TookTime {
    /// The first block.
    pub at: u64,
    /// How many.
    pub blocks: u32,
    /// How long it took.
    pub nanoseconds: u64,
    /// Whether no other request was under way meanwhile.
    pub was_alone: bool,
}

/// The times of a device as its own requests have shown them, bounded in memory.
#[derive(Clone, Default)]
pub struct LearnedTimes {
    writes: Direction,
    reads: Direction,
    since_flush: Window,
    /// Flushes after few blocks.
    little: Samples,
    /// Flushes after many blocks, and what those writes took.
    much: Samples,
    written: Samples,
}

impl LearnedTimes {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> LearnedTimes {
        LearnedTimes::default()
    }

    /// Learns from a write. All have to be told, also those that no plan is made for, as of metadata: flushes pay for them, too.
    pub fn note_write(&mut self, write: TookTime, is_planned_for: bool) {
        self.since_flush.blocks += u64::from(write.blocks);
        self.since_flush.nanoseconds = self.since_flush.nanoseconds.saturating_add(write.nanoseconds);
        self.since_flush.is_crowded |= !write.was_alone;
        self.writes.note(write, is_planned_for);
    }

    /// Learns from a read, wherever it is: where much is read at a time, single blocks are read of metadata only.
    pub fn note_read(&mut self, read: TookTime) {
        self.reads.note(read, true);
    }

    /// Learns from a flush.
    pub fn note_flush(&mut self, nanoseconds: u64, was_alone: bool) {
        let Window { blocks, nanoseconds: writes, is_crowded } = std::mem::take(&mut self.since_flush);
        if is_crowded || !was_alone {
            return;
        }
        if blocks >= MUCH {
            self.much.add(1, nanoseconds);
            self.written.add(1, writes);
        } else if (1..=LITTLE).contains(&blocks) {
            self.little.add(1, nanoseconds);
        }
    }

    /// The times; `None` as long as not enough is known. Reads and writes are learned together: what is worth a copy follows from both, and the
    /// writes of a card beside the reads of a disk make the wrong plans. The time of a flush is that of `class` until it is known.
    #[must_use]
    pub fn times(&self, class: &DeviceTimes) -> Option<DeviceTimes> {
        if !self.writes_are_real() {
            return None;
        }
        let flush = self.little.mean(ENOUGH).map_or(class.commit(), |(_, flush)| flush);
        let writes = self.writes.points(None)?;
        // Flash reads no slower than it writes. Plans that copy little read nothing long.
        let reads = self.reads.points(Some(slope(&writes)))?;
        Some(DeviceTimes::new(&writes, &reads, flush))
    }

    /// Whether flushes have shown that writes are over when the device says so.
    fn writes_are_real(&self) -> bool {
        let (Some((_, much)), Some((_, written))) = (self.much.mean(SOME), self.written.mean(SOME)) else {
            return false;
        };
        let least = self.little.mean(SOME).map_or(0, |(_, little)| little);
        much.saturating_sub(least) <= written / 4
    }
}

impl std::fmt::Debug for LearnedTimes {
    /// How much is known of each length, and what flushes took.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = |direction: &Direction| direction.lengths.each_ref().map(|samples| samples.last.len());
        let mean = |samples: &Samples| samples.mean(1).map(|(_, nanoseconds)| nanoseconds);
        f.debug_struct("LearnedTimes")
            .field("writes", &known(&self.writes))
            .field("reads", &known(&self.reads))
            .field("flushes of much and of little", &[self.much.last.len(), self.little.last.len()])
            .field("flush of little, ns", &mean(&self.little))
            .field("flush of much, ns", &mean(&self.much))
            .field("its writes, ns", &mean(&self.written))
            .finish()
    }
}

/// What was written since the last flush.
#[derive(Debug, Clone, Default)]
struct Window {
    blocks: u64,
    nanoseconds: u64,
    is_crowded: bool,
}

/// Reads or writes.
#[derive(Debug, Clone, Default)]
struct Direction {
    lengths: [Samples; LENGTHS.len()],
    /// One past the last block of the last requests, 0 for none.
    ends: [u64; PLACES],
    next: usize,
}

impl Direction {
    fn note(&mut self, request: TookTime, is_planned_for: bool) {
        let goes_on = self.goes_on(request.at, request.at + u64::from(request.blocks));
        if goes_on || !is_planned_for || !request.was_alone {
            return;
        }
        let Some(length) = LENGTHS.partition_point(|&length| length <= request.blocks).checked_sub(1) else { return };
        self.lengths[length].add(request.blocks, request.nanoseconds);
    }

    /// Whether a request begins where another ended.
    fn goes_on(&mut self, start: u64, end: u64) -> bool {
        let found = self.ends.iter().position(|&last| last == start && last > 0);
        let place = found.unwrap_or_else(|| {
            self.next = (self.next + 1) % PLACES;
            self.next
        });
        self.ends[place] = end;
        found.is_some()
    }

    /// What is known; `None` where it is not enough. Longer than what was seen, each block takes what it does up to there; where nothing long was
    /// seen, `each_block` nanoseconds.
    fn points(&self, each_block: Option<u64>) -> Option<Vec<Point>> {
        let seen = |lengths: &[Samples]| lengths.iter().map(|samples| samples.last.len()).sum::<usize>();
        let mut points: Vec<Point> = self.lengths.iter().filter_map(|samples| samples.mean(SOME)).collect();
        let (&(short, _), &(long, most)) = (points.first()?, points.last()?);
        if seen(&self.lengths[..SHORT]) < ENOUGH || short >= LENGTHS[SHORT] {
            return None;
        }
        let is_long_known = seen(&self.lengths[LONG..]) >= ENOUGH && long >= LENGTHS[LONG];
        let each_block = if is_long_known { slope(&points) } else { each_block? };
        if long < BLOCKS_PER_SEGMENT {
            let beyond = each_block.saturating_mul(u64::from(BLOCKS_PER_SEGMENT - long));
            points.push((BLOCKS_PER_SEGMENT, most.saturating_add(beyond)));
        }
        Some(points)
    }
}

/// Nanoseconds for each further block, from the first point to the last.
fn slope(points: &[Point]) -> u64 {
    let (Some(&(short, least)), Some(&(long, most))) = (points.first(), points.last()) else { return 0 };
    most.saturating_sub(least).checked_div(u64::from(long - short)).unwrap_or(0)
}

/// The last requests of about one length.
#[derive(Debug, Clone, Default)]
struct Samples {
    last: Vec<(u32, u64)>,
    next: usize,
}

impl Samples {
    fn add(&mut self, blocks: u32, nanoseconds: u64) {
        if self.last.len() < KEPT {
            self.last.push((blocks, nanoseconds));
        } else {
            self.last[self.next] = (blocks, nanoseconds);
        }
        self.next = (self.next + 1) % KEPT;
    }

    /// Mean length and time, without the tenth that took longest and the tenth that took least; `None` where there are fewer than so many. The
    /// mean and not the median: what some writes cost more, because others before them made the device work, is a cost of all.
    fn mean(&self, least: usize) -> Option<Point> {
        if self.last.len() < least {
            return None;
        }
        let mut sorted = self.last.clone();
        sorted.sort_unstable_by_key(|&(_, nanoseconds)| nanoseconds);
        let cut = sorted.len() / 10;
        let kept = &sorted[cut..sorted.len() - cut];
        let sum = |of: fn(&(u32, u64)) -> u64| kept.iter().map(|sample| u128::from(of(sample))).sum::<u128>();
        let count = kept.len() as u128;
        // Means of numbers that fit.
        Some((((sum(|sample| sample.0.into()) + count / 2) / count) as u32, (sum(|sample| sample.1) / count) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::super::DeviceClass;
    use super::*;

    /// A device as plans see it, with a write cache or without.
    struct Device {
        learned: LearnedTimes,
        state: u64,
        /// Nanoseconds of each write, and of each block.
        each: u64,
        block: u64,
        /// What the cache took of the last writes, for the flush to pay.
        owed: u64,
        has_cache: bool,
        has_reads: bool,
    }

    impl Device {
        fn new(each: u64, block: u64) -> Device {
            Device { learned: LearnedTimes::new(), state: 7, each, block, owed: 0, has_cache: false, has_reads: true }
        }

        /// Numbers that look random, always the same (xorshift).
        fn below(&mut self, end: u64) -> u64 {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.state % end
        }

        fn write(&mut self, at: u64, blocks: u32) {
            let mut nanoseconds = self.each + self.block * u64::from(blocks);
            if self.has_cache {
                self.owed += nanoseconds;
                nanoseconds /= 20;
            }
            // A tenth more or less; each twentieth waits for a processor.
            nanoseconds = nanoseconds * (90 + self.below(21)) / 100;
            if self.below(20) == 0 {
                nanoseconds += 50_000_000;
            }
            self.learned.note_write(TookTime { at, blocks, nanoseconds, was_alone: true }, true);
        }

        fn flush(&mut self) {
            self.learned.note_flush(1_000_000 + std::mem::take(&mut self.owed), true);
        }

        /// Writes of all lengths anywhere, few and many blocks between flushes.
        fn work(&mut self, rounds: u32) {
            for round in 0..rounds {
                for _ in 0..if round % 2 == 0 { 1 } else { 40 } {
                    let blocks = 1 << self.below(9);
                    let at = 1 + self.below(1 << 40);
                    self.write(at, if round % 2 == 0 { 1 } else { blocks as u32 });
                    let read =
                        TookTime { at, blocks: blocks as u32, nanoseconds: self.block * blocks, was_alone: true };
                    if self.has_reads {
                        self.learned.note_read(read);
                    }
                }
                self.flush();
            }
        }

        fn times(&self) -> Option<DeviceTimes> {
            self.learned.times(&DeviceClass::Ssd.device_times())
        }
    }

    /// The lengths that matter, in thousandths of what they really are.
    fn thousandths(times: &DeviceTimes, each: u64, block: u64) -> [u64; 4] {
        [1, 16, 256, 512].map(|n| 1000 * times.write(n) / (each + block * u64::from(n)))
    }

    #[test]
    fn times_come_out_as_they_are() {
        let mut card = Device::new(3_000_000, 300_000);
        assert_eq!(card.times(), None);
        card.work(2);
        assert_eq!(card.times(), None, "too little is known");
        card.work(100);
        let times = card.times().unwrap();
        let found = thousandths(&times, card.each, card.block);
        assert!(found.iter().all(|part| (900..1150).contains(part)), "{found:?}");
        assert_eq!(times.commit(), 1_000_000);
        assert_eq!((times.read(1), times.read(512)), (card.block, 512 * card.block));
        // It becomes slower.
        card.each *= 10;
        card.work(100);
        let found = thousandths(&card.times().unwrap(), card.each, card.block);
        assert!(found.iter().all(|part| (900..1150).contains(part)), "{found:?}");
    }

    #[test]
    fn a_cache_that_flushes_pay_for_is_not_believed() {
        let mut disk = Device::new(3_000_000, 300_000);
        disk.has_cache = true;
        disk.work(200);
        assert_eq!(disk.times(), None);
        // It is switched off.
        disk.has_cache = false;
        disk.work(200);
        assert!(disk.times().is_some());
    }

    #[test]
    fn writes_alone_are_not_enough() {
        let mut card = Device::new(3_000_000, 300_000);
        card.has_reads = false;
        card.work(200);
        assert_eq!(card.times(), None);
    }

    #[test]
    fn where_nothing_long_was_read_it_takes_what_writes_take() {
        let mut card = Device::new(3_000_000, 300_000);
        card.has_reads = false;
        card.work(200);
        for at in 1..100 {
            card.learned.note_read(TookTime { at: at * 10, blocks: 1, nanoseconds: 700_000, was_alone: true });
        }
        let times = card.times().unwrap();
        let each = (times.read(512) - times.read(1)) / 511;
        assert_eq!(times.read(1), 700_000);
        assert!((270_000..330_000).contains(&each), "{each} ns for each block");
    }

    #[test]
    fn without_flushes_of_much_nobody_knows() {
        let mut card = Device::new(3_000_000, 300_000);
        for at in 0..1000 {
            card.write(2 + 1000 * at, if at % 2 == 0 { 1 } else { 100 });
            if at % 2 == 0 {
                card.flush();
            }
            // What was written at a time with others says nothing of the cache.
            card.learned.since_flush.is_crowded |= at % 2 == 1;
        }
        assert_eq!(card.times(), None);
    }

    #[test]
    fn only_what_plans_are_made_of_counts() {
        let (mut learned, mut at) = (LearnedTimes::new(), 1);
        for (blocks, was_alone, is_planned_for) in [(1, false, true), (1, true, false), (200, false, true)] {
            for _ in 0..100 {
                at += 1000;
                let write = TookTime { at, blocks, nanoseconds: 5, was_alone };
                learned.note_write(write, is_planned_for);
                learned.note_read(TookTime { was_alone: was_alone && is_planned_for, ..write });
            }
        }
        // A stream.
        for _ in 0..100 {
            learned.note_write(TookTime { at, blocks: 1, nanoseconds: 5, was_alone: true }, true);
            at += 1;
        }
        let known = |direction: &Direction| direction.lengths.iter().map(|samples| samples.last.len()).sum::<usize>();
        assert_eq!((known(&learned.writes), known(&learned.reads)), (1, 0), "but for its first");
    }

    #[test]
    fn memory_is_bounded() {
        let mut card = Device::new(10, 10);
        card.work(1000);
        let samples = [&card.learned.little, &card.learned.much, &card.learned.written];
        assert!(samples.into_iter().chain(&card.learned.writes.lengths).all(|samples| samples.last.len() <= KEPT));
    }
}
