//! How often and when blocks were written, by the places where they lie.

use basalt_segments::{BLOCKS_PER_SEGMENT, MainBlock, Segment};

use crate::boxes::Boxes;
use crate::hotness::{Sums, Written};

const BLOCKS: usize = BLOCKS_PER_SEGMENT as usize;
/// Of the segments with a record for each block, one in so many loses them at a time where there is no room for more.
const GIVEN_UP: usize = 16;

/// Eight bytes for each block, and sums for each segment, which are kept as blocks come and go.
///
/// With a [limit](Self::limit), the coldest segments have no records of their blocks: each counts as the mean of the segment.
pub struct WrittenPlaces {
    segments: Vec<Held>,
    boxes: Boxes<Written>,
    /// Segments with a record for each block, at most.
    most: usize,
    /// Segments that hold something.
    used: u32,
}

/// A segment.
#[derive(Clone, Copy, Default)]
struct Held {
    sums: Sums,
    records: Records,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Records {
    /// Nothing was written there since it was freed.
    #[default]
    None,
    /// One for each block, in this box.
    Each(u32),
    /// The mean stands for all.
    Mean,
}

impl Default for WrittenPlaces {
    fn default() -> Self {
        WrittenPlaces { segments: Vec::new(), boxes: Boxes::default(), most: usize::MAX, used: 0 }
    }
}

impl WrittenPlaces {
    /// Records of blocks take no more than so many bytes from now on, but for those of one segment. What is there already stays.
    pub fn limit(&mut self, bytes: usize) {
        self.most = (bytes / Boxes::<Written>::BOX_BYTES).max(1);
    }

    /// What is known of the live block at a place; `None` of one that was there before the first that was told.
    pub fn find(&self, place: MainBlock) -> Option<Written> {
        let held = self.segments.get(place.segment().index())?;
        match held.records {
            Records::None => None,
            Records::Each(number) => Some(self.boxes.get(number_of(number, place))).filter(|one| one.count > 0),
            Records::Mean => held.sums.mean(),
        }
    }

    /// Reads what is known of blocks that are about to be replaced, all together: then each need not wait for memory on its own.
    pub fn look_at(&self, places: &[MainBlock]) {
        std::hint::black_box(places.iter().filter(|place| self.find(**place).is_some()).count());
    }

    /// A block is at this place now.
    pub fn set(&mut self, place: MainBlock, written: Written, now: u32) {
        self.begin(place.segment(), now);
        let held = &mut self.segments[place.segment().index()];
        held.sums.add(written);
        if let Records::Each(number) = held.records {
            self.boxes.set(number_of(number, place), written);
        }
    }

    /// What was at this place is dead.
    pub fn clear(&mut self, place: MainBlock) {
        let Some(written) = self.find(place) else { return };
        let held = &mut self.segments[place.segment().index()];
        held.sums.remove(written);
        if let Records::Each(number) = held.records {
            self.boxes.set(number_of(number, place), Written::default());
        }
    }

    /// A segment is written to the end, or left.
    pub fn seal(&mut self, segment: Segment) {
        self.make(segment);
        self.segments[segment.index()].sums.seal();
    }

    /// A segment is free.
    pub fn free(&mut self, segment: Segment) {
        let Some(held) = self.segments.get_mut(segment.index()) else { return };
        let before = std::mem::take(held);
        self.used -= u32::from(before.records != Records::None);
        if let Records::Each(number) = before.records {
            self.boxes.give_back(number);
        }
    }

    /// The sums of all segments, by number.
    pub fn sums(&self) -> impl Iterator<Item = &Sums> {
        self.segments.iter().map(|held| &held.sums)
    }

    /// The sums of these segments together.
    pub fn sums_of(&self, first: usize, count: usize) -> Sums {
        let mut all = Sums::default();
        self.segments.iter().skip(first).take(count).for_each(|held| all.join(&held.sums));
        all
    }

    /// The segments of which something is known, the hottest first.
    pub fn hottest_first(&self, now: u32) -> Vec<Segment> {
        let known = (0..).zip(&self.segments).filter_map(|(at, held)| Some((held.sums.hotness(now, 1)?, at)));
        let mut known: Vec<(f64, u32)> = known.collect();
        known.sort_by(|one, other| other.0.total_cmp(&one.0));
        known.into_iter().map(|(_, at)| Segment::new(at)).collect()
    }

    /// The records of a segment, one for each place, if it has any. Of those that hold no live block the count is 0.
    pub fn records(&self, segment: Segment) -> Option<&[Written; BLOCKS]> {
        match self.segments.get(segment.index())?.records {
            Records::Each(number) => Some(self.boxes.of_box(number)),
            Records::None | Records::Mean => None,
        }
    }

    /// The mean of a segment's live blocks.
    pub fn mean(&self, segment: Segment) -> Option<Written> {
        self.segments.get(segment.index())?.sums.mean()
    }

    /// Whether a segment is written to the end, or left.
    pub fn is_sealed(&self, segment: Segment) -> bool {
        self.segments.get(segment.index()).is_some_and(|held| held.sums.is_sealed())
    }

    /// What was known of the live blocks of a segment, by their offsets, from an earlier time. Where there is no room for records, the mean stands
    /// for all. Says whether it counts: it does not if something was written there since.
    pub fn recall(&mut self, segment: Segment, blocks: impl IntoIterator<Item = (u32, Written)>) -> bool {
        self.make(segment);
        if self.segments[segment.index()].records != Records::None {
            return false;
        }
        self.begin_at_once(segment);
        // The segment has begun, so nothing is given up for it.
        blocks.into_iter().for_each(|(at, written)| self.set(MainBlock::in_segment(segment, at), written, 0));
        true
    }

    /// Segments that there are: one behind the last that was named.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Blocks of the segments that were written to and not freed.
    pub fn space(&self) -> u64 {
        u64::from(self.used) * u64::from(BLOCKS_PER_SEGMENT)
    }

    /// All times are this much less, and none is below zero: sums are counted anew.
    pub fn subtract_from_times(&mut self, less: u32) {
        for held in &mut self.segments {
            match held.records {
                Records::None => {}
                Records::Each(number) => {
                    let records = self.boxes.of_box_mut(number);
                    held.sums.clear();
                    for written in records.iter_mut().filter(|written| written.count > 0) {
                        written.time = written.time.saturating_sub(less);
                        held.sums.add(*written);
                    }
                }
                Records::Mean => held.sums.subtract_from_times(less),
            }
        }
    }

    /// Makes sure that there is an entry for a segment.
    fn make(&mut self, segment: Segment) {
        if self.segments.len() <= segment.index() {
            self.segments.resize(segment.index() + 1, Held::default());
        }
    }

    /// Makes sure that a segment has records, of its own where there is room.
    fn begin(&mut self, segment: Segment, now: u32) {
        self.make(segment);
        if self.segments[segment.index()].records != Records::None {
            return;
        }
        if !self.begin_at_once(segment) {
            self.give_up(now);
            let number = self.boxes.take(segment, self.most);
            self.segments[segment.index()].records = number.map_or(Records::Mean, Records::Each);
        }
    }

    /// Begins a segment, and says whether there was room for records of its own.
    fn begin_at_once(&mut self, segment: Segment) -> bool {
        let number = self.boxes.take(segment, self.most);
        self.segments[segment.index()].records = number.map_or(Records::Mean, Records::Each);
        self.used += 1;
        number.is_some()
    }

    /// The coldest segments keep no records of their blocks.
    fn give_up(&mut self, now: u32) {
        let hotness = |segment: Segment| self.segments[segment.index()].sums.hotness(now, 1).unwrap_or(0.0);
        let mut owners: Vec<(f64, Segment)> = self.boxes.owners().map(|segment| (hotness(segment), segment)).collect();
        let count = owners.len().div_ceil(GIVEN_UP);
        if count < owners.len() {
            owners.select_nth_unstable_by(count, |one, other| one.0.total_cmp(&other.0));
        }
        for (_, segment) in owners.into_iter().take(count) {
            let records = &mut self.segments[segment.index()].records;
            if let Records::Each(number) = std::mem::replace(records, Records::Mean) {
                self.boxes.give_back(number);
            }
        }
    }
}

fn number_of(number: u32, place: MainBlock) -> usize {
    (number * BLOCKS_PER_SEGMENT + place.offset()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_random::Rng;

    fn place(segment: u32, offset: u32) -> MainBlock {
        MainBlock::in_segment(Segment::new(segment), offset)
    }

    fn written(count: u32, time: u32) -> Written {
        Written { count, time }
    }

    #[test]
    fn each_place_has_a_record_until_it_is_dead_or_free() {
        let mut places = WrittenPlaces::default();
        places.set(place(2, 7), written(3, 100), 100);
        places.set(place(2, 8), written(1, 40), 100);
        assert_eq!([7, 8, 9].map(|at| places.find(place(2, at))), [Some(written(3, 100)), Some(written(1, 40)), None]);
        assert_eq!((places.segments(), places.space()), (3, 512));
        // 4 writes, ages of 100 and 160 at 200.
        assert_eq!(places.sums_of(2, 1).hotness(200, 1), Some(4.0 / 260.0));
        for dead in [place(2, 7), place(2, 7), place(0, 1), place(9, 1)] {
            places.clear(dead);
        }
        assert_eq!(places.sums_of(0, 3).hotness(200, 1), Some(1.0 / 160.0));
        places.free(Segment::new(2));
        places.free(Segment::new(2));
        assert_eq!((places.space(), places.find(place(2, 8)), places.sums_of(0, 9).hotness(1, 1)), (0, None, None));
    }

    /// Of 16 segments the coldest gives its records up, and 4, 6 and 8 writes become three times 6.
    #[test]
    fn with_little_memory_the_coldest_segments_keep_their_means() {
        let mut places = WrittenPlaces::default();
        places.limit(16 * Boxes::<Written>::BOX_BYTES);
        for segment in 0..16 {
            for (offset, count) in (0..).zip([4, 6, 8]) {
                let time = if segment == 5 { 10 } else { 900 };
                places.set(place(segment, offset), written(count, time + offset), 1000);
            }
        }
        places.set(place(16, 0), written(1, 1000), 1000);
        assert_eq!([0, 1, 2].map(|at| places.find(place(5, at))), [Some(written(6, 11)); 3]);
        assert_eq!(places.find(place(4, 2)), Some(written(8, 902)), "the others keep theirs");
        assert_eq!(places.find(place(16, 0)), Some(written(1, 1000)));
        places.set(place(5, 3), written(2, 1011), 1011);
        // 20 writes and times of 1044 in all: what dies takes 5 and 261.
        places.clear(place(5, 0));
        assert_eq!(places.find(place(5, 1)), Some(written(5, 261)));
        (1..4).for_each(|at| places.clear(place(5, at)));
        assert_eq!((places.find(place(5, 1)), places.sums_of(5, 1).hotness(2000, 1)), (None, None));
        places.free(Segment::new(5));
        assert_eq!(places.find(place(5, 1)), None);
    }

    #[test]
    fn times_go_back_together() {
        let mut places = WrittenPlaces::default();
        places.limit(1);
        // The second has no room for records, until the first gives its up.
        places.set(place(0, 0), written(2, 500), 500);
        places.set(place(0, 1), written(2, 700), 700);
        places.set(place(1, 0), written(1, 300), 700);
        places.set(place(1, 1), written(1, 900), 900);
        places.subtract_from_times(400);
        assert_eq!(places.find(place(0, 0)), Some(written(2, 200)), "the mean of 500 and 700");
        assert_eq!([0, 1].map(|at| places.find(place(1, at))), [Some(written(1, 0)), Some(written(1, 500))]);
        assert_eq!(places.sums_of(1, 1).hotness(600, 1), Some(2.0 / 700.0));
    }

    /// With room for all records and with room for a few, sums are what a recount says, a million operations long.
    #[test]
    fn the_sums_equal_a_recount_after_a_million_operations() {
        for most in [usize::MAX, 7 * Boxes::<Written>::BOX_BYTES] {
            let mut places = WrittenPlaces::default();
            places.limit(most);
            let mut rng = Rng::new(18);
            let mut live = [[false; 512]; 20];
            for step in 0..1_000_000_u32 {
                let (segment, offset) = (rng.below(20) as u32, rng.below(512) as u32);
                let is_live = &mut live[segment as usize][offset as usize];
                if rng.below(5000) == 0 {
                    places.free(Segment::new(segment));
                    live[segment as usize] = [false; 512];
                } else if *is_live {
                    places.clear(place(segment, offset));
                    *is_live = false;
                } else {
                    places.set(place(segment, offset), written(1 + rng.below(9) as u32, step), step);
                    *is_live = true;
                }
            }
            for segment in 0..20 {
                let mut recount = Sums::default();
                for (offset, _) in (0..).zip(live[segment as usize]).filter(|(_, is_live)| *is_live) {
                    recount.add(places.find(place(segment, offset)).expect("a live block has a record"));
                }
                let sums = places.sums_of(segment as usize, 1);
                assert_eq!(sums.live, recount.live, "segment {segment}");
                if matches!(places.segments[segment as usize].records, Records::Each(_)) {
                    assert_eq!(sums, recount, "segment {segment}");
                }
            }
            let means = places.segments.iter().filter(|held| held.records == Records::Mean).count();
            assert_eq!(means > 5, most != usize::MAX, "{means}");
        }
    }

    /// With room for two segments, a hundred one after the other have records of their own.
    #[test]
    fn a_segment_that_is_free_leaves_its_room_to_others() {
        let mut places = WrittenPlaces::default();
        places.limit(2 * Boxes::<Written>::BOX_BYTES);
        for segment in 0..100 {
            (0..2).for_each(|at| places.set(place(segment, at), written(3 + 4 * at, segment), segment));
            assert_eq!([0, 1].map(|at| places.find(place(segment, at)).unwrap().count), [3, 7], "{segment}");
            places.free(Segment::new(segment));
        }
    }

    /// Looking for the coldest takes a look at all, so it is not done for each segment.
    #[test]
    fn one_segment_of_sixteen_gives_its_records_up_at_a_time() {
        let mut places = WrittenPlaces::default();
        places.limit(33 * Boxes::<Written>::BOX_BYTES);
        (0..34).for_each(|segment| places.set(place(segment, 0), written(1, segment), segment));
        let means: Vec<usize> = (0..34).filter(|&at| places.segments[at].records == Records::Mean).collect();
        assert_eq!(means, [0, 1, 2]);
    }

    #[test]
    fn what_is_sealed_stays_so_when_times_go_back() {
        let mut places = WrittenPlaces::default();
        places.limit(1);
        for segment in 0..2 {
            places.set(place(segment, 0), written(1, 500), 500);
            places.seal(Segment::new(segment));
        }
        places.subtract_from_times(400);
        assert!(places.sums().all(|sums| sums.is_sealed() && sums.hotness(101, 1) == Some(1.0)));
    }

    #[test]
    fn the_hottest_is_not_the_one_that_was_written_most_often() {
        let mut places = WrittenPlaces::default();
        places.set(place(0, 0), written(8, 10), 10);
        places.set(place(1, 0), written(1, 9_999), 10_000);
        assert_eq!(places.hottest_first(10_000), [Segment::new(1), Segment::new(0)]);
    }

    #[test]
    fn a_segment_that_has_begun_is_not_recalled() {
        let mut places = WrittenPlaces::default();
        places.set(place(3, 0), written(1, 10), 10);
        assert!(!places.recall(Segment::new(3), [(1, written(7, 5))]));
        assert_eq!(places.find(place(3, 1)), None);
    }
}
