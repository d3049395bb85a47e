//! Hotness as SFS has it: of blocks, of files, and of sections, whose sums are kept as blocks come and go.
//!
//! Source: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, section 3.3. A segment of the paper is
//! a section here. Two things are not in the paper: no age counts as less than a floor, and times are whole milliseconds.

use basalt_segments::{BlockTraits, MainBlock, Section, Segment};
use rustc_hash::FxHashMap;

use crate::blocks::Blocks;
use crate::segments::PerPlace;

/// How often something was written, and when it was the last time: W and T.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// W. It stays at the largest number.
    pub count: u32,
    /// T, in milliseconds. It stays at the largest number, after 49 days.
    pub time: u32,
}

impl Written {
    /// As it is after one more write.
    #[must_use]
    pub fn again(self, now: u32) -> Written {
        Written { count: self.count.saturating_add(1), time: now }
    }

    /// W / (now − T), in writes a millisecond. A time in the future counts as now.
    #[must_use]
    pub fn hotness(self, now: u32, floor: u32) -> f64 {
        f64::from(self.count) / f64::from(now.saturating_sub(self.time).max(floor.max(1)))
    }
}

/// What is known of the live blocks of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// N.
    pub live: u64,
    /// ΣW.
    pub counts: u64,
    /// ΣT, in milliseconds.
    pub times: u64,
    /// Segments of the section that are written to the end, or left.
    sealed: u32,
}

impl Sums {
    /// A block comes.
    pub fn add(&mut self, block: Written) {
        self.live += 1;
        self.counts += u64::from(block.count);
        self.times += u64::from(block.time);
    }

    /// A block goes.
    pub fn remove(&mut self, block: Written) {
        self.live -= 1;
        self.counts -= u64::from(block.count);
        self.times -= u64::from(block.time);
    }

    /// A segment of the section is written to the end, or left.
    pub fn seal(&mut self) {
        self.sealed += 1;
    }

    /// Whether a segment is written to the end, or left.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealed > 0
    }

    /// No block is there; what is sealed stays so.
    pub fn clear(&mut self) {
        *self = Sums { sealed: self.sealed, ..Sums::default() };
    }

    /// The blocks of another one are here too.
    pub fn join(&mut self, other: &Sums) {
        self.live += other.live;
        self.counts += other.counts;
        self.times += other.times;
        self.sealed += other.sealed;
    }

    /// All times are this much less; their sum is not below zero.
    pub fn subtract_from_times(&mut self, less: u32) {
        self.times = self.times.saturating_sub(self.live * u64::from(less));
    }

    /// What each block counts for if nobody knows which is which; `None` without live blocks. The least of the counts is one.
    #[must_use]
    pub fn mean(&self) -> Option<Written> {
        let mean = |sum: u64| sum.checked_div(self.live).map(|mean| u32::try_from(mean).unwrap_or(u32::MAX));
        Some(Written { count: mean(self.counts)?, time: mean(self.times)? })
    }

    /// ΣW / (N · now − ΣT), in writes a millisecond, where the mean age is at least `floor`; `None` without live blocks.
    #[must_use]
    pub fn hotness(&self, now: u32, floor: u32) -> Option<f64> {
        let live = (self.live > 0).then_some(self.live as f64)?;
        let age = (f64::from(now) - self.times as f64 / live).max(f64::from(floor.max(1)));
        Some(self.counts as f64 / (live * age))
    }
}

/// The hotness of all blocks, files and sections of a volume.
pub struct HotnessTable {
    segments_per_section: u32,
    /// Least age, in milliseconds.
    floor: u32,
    now: u32,
    blocks: Blocks<Written>,
    files: FxHashMap<u32, Written>,
    /// What was added to the section's sums for the block at each place.
    places: PerPlace<Written>,
    sections: Vec<Sums>,
}

impl HotnessTable {
    /// For a volume with so many segments in a section, where no age is less than `floor` milliseconds.
    #[must_use]
    pub fn new(segments_per_section: u32, floor: u32) -> HotnessTable {
        HotnessTable {
            segments_per_section: segments_per_section.max(1),
            floor,
            now: 0,
            blocks: Blocks::default(),
            files: FxHashMap::default(),
            places: PerPlace::default(),
            sections: Vec::new(),
        }
    }

    /// Sets the clock, in nanoseconds. It does not go back.
    pub fn set_now(&mut self, nanoseconds: u64) {
        let now = u32::try_from(nanoseconds / 1_000_000).unwrap_or(u32::MAX);
        self.now = self.now.max(now);
    }

    /// H_b: of a block as it was before it is written now; of one that was never written, its file's.
    #[must_use]
    pub fn of_block(&self, block: &BlockTraits) -> f64 {
        let written = self.blocks.get(block);
        let written = if written.count > 0 { written } else { self.file(block) };
        written.hotness(self.now, self.floor)
    }

    fn file(&self, block: &BlockTraits) -> Written {
        self.files.get(&block.file).copied().unwrap_or_default()
    }

    /// H_s: of a section; `None` if nothing in it is live.
    #[must_use]
    pub fn of_section(&self, section: Section) -> Option<f64> {
        self.sections.get(section.index())?.hotness(self.now, self.floor)
    }

    /// H_s of all sections that have live blocks and are written to the end.
    #[must_use]
    pub fn of_sealed_sections(&self) -> Vec<f64> {
        let sealed = self.sections.iter().filter(|sums| sums.sealed >= self.segments_per_section);
        sealed.filter_map(|sums| sums.hotness(self.now, self.floor)).collect()
    }

    /// A block got this place. Its W and T change if that `counts`, and if it is new.
    pub fn write(&mut self, block: &BlockTraits, place: MainBlock, counts: bool) {
        let now = self.now;
        let written = self.blocks.get_mut(block);
        if counts || written.count == 0 {
            *written = written.again(now);
            let file = self.files.entry(block.file).or_default();
            *file = file.again(now);
        }
        let written = *written;
        self.places.set(place, written);
        self.section_of(place.segment()).add(written);
    }

    /// What was at this place is gone.
    pub fn die(&mut self, place: MainBlock) {
        let written = self.places.take(place);
        if written.count > 0 {
            self.section_of(place.segment()).remove(written);
        }
    }

    /// A segment is written to the end, or left.
    pub fn seal(&mut self, segment: Segment) {
        self.section_of(segment).sealed += 1;
    }

    /// A segment is free.
    pub fn free(&mut self, segment: Segment) {
        let sums = self.section_of(segment);
        sums.sealed = sums.sealed.saturating_sub(1);
    }

    fn section_of(&mut self, segment: Segment) -> &mut Sums {
        let section = (segment.get() / self.segments_per_section) as usize;
        if self.sections.len() <= section {
            self.sections.resize(section + 1, Sums::default());
        }
        &mut self.sections[section]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_random::Rng;

    fn block(file: u32, index: u32) -> BlockTraits {
        BlockTraits { file, index, ..BlockTraits::default() }
    }

    fn at(table: &mut HotnessTable, seconds: u64) {
        table.set_now(seconds * 1_000_000_000);
    }

    /// Section 3.3, first formula: W / (T − T_b), per second.
    #[test]
    fn the_hotness_of_a_block_is_its_writes_over_its_age() {
        let mut table = HotnessTable::new(1, 0);
        for (second, place) in [(10, 0), (20, 1), (30, 2)] {
            at(&mut table, second);
            table.write(&block(1, 7), MainBlock::new(place), true);
        }
        // Three writes, the last at 30 s: at 60 s, 3 / 30 s.
        at(&mut table, 60);
        assert!((table.of_block(&block(1, 7)) * 1000.0 - 0.1).abs() < 1e-12);
        // A copy that does not count changes nothing; one that counts makes it 4 / 40 s at 100 s.
        table.write(&block(1, 7), MainBlock::new(3), false);
        assert!((table.of_block(&block(1, 7)) * 1000.0 - 0.1).abs() < 1e-12);
        table.write(&block(1, 7), MainBlock::new(4), true);
        at(&mut table, 100);
        assert!((table.of_block(&block(1, 7)) * 1000.0 - 0.1).abs() < 1e-12);
        // The clock does not go back.
        at(&mut table, 61);
        assert!((table.of_block(&block(1, 7)) * 1000.0 - 0.1).abs() < 1e-12);
    }

    /// A section is written to the end once all its segments are, and not any more once one is free again.
    #[test]
    fn sections_that_are_written_to_are_left_out() {
        let mut table = HotnessTable::new(2, 0);
        for (index, segment) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
            table.write(&block(1, index), MainBlock::in_segment(Segment::new(segment), 0), true);
        }
        at(&mut table, 10);
        let count = |table: &HotnessTable| table.of_sealed_sections().len();
        table.seal(Segment::new(0));
        table.seal(Segment::new(2));
        assert_eq!(count(&table), 0, "half of each");
        table.seal(Segment::new(1));
        assert_eq!(count(&table), 1);
        table.free(Segment::new(0));
        assert_eq!(count(&table), 0, "one of them is written anew");
        table.seal(Segment::new(0));
        table.seal(Segment::new(3));
        assert_eq!(count(&table), 2);
    }

    /// Section 3.3, second formula: a new block has the hotness of its file, W_f / (T − T_f).
    #[test]
    fn a_new_block_is_as_hot_as_its_file() {
        let mut table = HotnessTable::new(1, 0);
        for (second, index) in [(1, 0), (2, 1), (3, 2), (5, 0), (8, 1)] {
            at(&mut table, second);
            table.write(&block(9, index), MainBlock::new(second as u32), true);
        }
        // Five writes to the file, the last at 8 s: at 18 s, 5 / 10 s.
        at(&mut table, 18);
        assert!((table.of_block(&block(9, 3)) * 1000.0 - 0.5).abs() < 1e-12);
        assert_eq!(table.of_block(&block(8, 3)), 0.0, "a file that was never written");
    }

    /// Section 3.3, third formula: ΣW / (N · T − ΣT), and not the mean of the blocks' hotness.
    #[test]
    fn the_hotness_of_a_section_is_the_slope_through_its_live_blocks() {
        let mut table = HotnessTable::new(2, 0);
        // Written once at 10 s, twice until 40 s, three times until 70 s; they lie in both segments of section 1.
        let places = [(0, &[10][..], 1024), (1, &[20, 40], 1030), (2, &[50, 60, 70], 1536)];
        for (index, times, place) in places {
            for (nth, &time) in times.iter().enumerate() {
                let last = nth + 1 == times.len();
                let place = MainBlock::new(if last { place } else { nth as u32 });
                let mut one =
                    HotnessTable { now: time * 1000, ..std::mem::replace(&mut table, HotnessTable::new(2, 0)) };
                one.write(&block(1, index), place, true);
                if !last {
                    one.die(place);
                }
                table = one;
            }
        }
        table.now = 100_000;
        let section = |table: &HotnessTable| table.of_section(Section::new(1)).map(|hotness| hotness * 1000.0);
        // (1 + 2 + 3) / (3 · 100 − 10 − 40 − 70) = 6 / 180
        assert!((section(&table).unwrap() - 6.0 / 180.0).abs() < 1e-12);
        // The mean of 1/90, 2/60 and 3/30 would be 0.0481. Without the hottest: 3 / (2 · 100 − 50) = 3 / 150
        table.die(MainBlock::new(1536));
        assert!((section(&table).unwrap() - 0.02).abs() < 1e-12);
        table.die(MainBlock::new(1024));
        table.die(MainBlock::new(1030));
        assert_eq!((section(&table), table.of_section(Section::new(0))), (None, None), "nothing is live");
    }

    /// A mean age of 20 s with a floor of 30 s: 5 writes of 2 blocks are 5 / (2 · 30 s).
    #[test]
    fn no_age_is_less_than_the_floor() {
        let sums = Sums { live: 2, counts: 5, times: 10_000 + 30_000, sealed: 0 };
        assert!((sums.hotness(40_000, 30_000).unwrap() * 1000.0 - 5.0 / 60.0).abs() < 1e-12);
        assert!((sums.hotness(40_000, 0).unwrap() * 1000.0 - 5.0 / 40.0).abs() < 1e-12);
        let block = Written { count: 5, time: 10_000 };
        assert!((block.hotness(20_000, 30_000) * 1000.0 - 5.0 / 30.0).abs() < 1e-12);
        // Written right now, or even later, and without a floor: the age is a millisecond, not 0.
        assert_eq!((block.hotness(10_000, 0), block.hotness(9000, 0)), (5.0, 5.0));
        let new = Sums { live: 1, counts: 1, times: 10_000, sealed: 0 };
        assert_eq!(new.hotness(9000, 0), Some(1.0));
    }

    #[test]
    fn numbers_stay_at_their_largest() {
        let mut table = HotnessTable::new(1, 0);
        table.set_now(u64::MAX);
        assert_eq!(table.now, u32::MAX);
        assert_eq!(Written { count: u32::MAX, time: 0 }.again(7), Written { count: u32::MAX, time: 7 });
        let mut sums = Sums::default();
        (0..1 << 20).for_each(|_| sums.add(Written { count: u32::MAX, time: u32::MAX }));
        assert_eq!(sums.hotness(u32::MAX, 1), Some(f64::from(u32::MAX)));
    }

    /// Where the live blocks are: what each place holds.
    struct Model {
        table: HotnessTable,
        written: FxHashMap<(u32, u32), Written>,
        places: FxHashMap<(u32, u32), u32>,
        free: Vec<u32>,
    }

    impl Model {
        fn recount(&self) -> Vec<Sums> {
            let mut sections = self.table.sections.clone();
            sections.iter_mut().for_each(|sums| *sums = Sums { sealed: sums.sealed, ..Sums::default() });
            for (block, &place) in &self.places {
                let section = place / (3 * basalt_segments::BLOCKS_PER_SEGMENT);
                sections[section as usize].add(self.written[block]);
            }
            sections
        }

        /// One operation: a write to a place by chance, a copy, or a deletion.
        fn step(&mut self, rng: &mut Rng) {
            self.table.set_now(u64::from(self.table.now) * 1_000_000 + rng.below(3_000_000));
            let key = (rng.below(3) as u32, rng.below(3000) as u32);
            let old = self.places.get(&key).copied();
            if rng.chance(20) {
                if let Some(old) = self.places.remove(&key) {
                    self.table.die(MainBlock::new(old));
                    self.free.push(old);
                }
                return;
            }
            let at = rng.index(self.free.len());
            let place = self.free.swap_remove(at);
            let counts = rng.chance(60);
            self.table.write(&block(key.0, key.1), MainBlock::new(place), counts);
            // A block is told to be dead after the one that replaces it is written.
            if let Some(old) = old {
                self.table.die(MainBlock::new(old));
                self.free.push(old);
            }
            let written = self.written.entry(key).or_default();
            if counts || written.count == 0 {
                *written = Written { count: written.count + 1, time: self.table.now };
            }
            self.places.insert(key, place);
        }
    }

    #[test]
    fn the_sums_equal_a_recount_after_a_million_operations() {
        let mut rng = Rng::new(17);
        let mut model = Model {
            table: HotnessTable::new(3, 0),
            written: FxHashMap::default(),
            places: FxHashMap::default(),
            free: (0..20 * basalt_segments::BLOCKS_PER_SEGMENT).collect(),
        };
        for step in 1..=1_000_000 {
            model.step(&mut rng);
            if step % 100_000 == 0 {
                assert_eq!(model.table.sections, model.recount(), "after {step} operations");
            }
        }
        let live: u64 = model.table.sections.iter().map(|sums| sums.live).sum();
        assert!(live > 6000 && live == model.places.len() as u64, "{live}");
    }

    /// Written once, 100 s ago.
    #[test]
    fn what_does_not_count_makes_no_file_hotter() {
        let mut table = HotnessTable::new(1, 0);
        table.write(&block(1, 7), MainBlock::new(0), true);
        at(&mut table, 50);
        table.write(&block(1, 7), MainBlock::new(1), false);
        at(&mut table, 100);
        assert!((table.of_block(&block(1, 8)) * 1000.0 - 0.01).abs() < 1e-12);
    }
}
