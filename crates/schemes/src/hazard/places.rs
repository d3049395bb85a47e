//! What lies in a segment: its group, how many blocks are live, and the records of these.

use basalt_segments::{BLOCKS_PER_SEGMENT, MainBlock, Segment};

use super::records::{AGE_MAX, Record};
use crate::boxes::Boxes;

type Pool = Boxes<Record>;

/// Segments that hold blocks of groups, and what is known of these blocks.
///
/// With a [limit](Self::limit), not every segment has a record for each of its blocks: others have one for all.
pub struct Places {
    segments: Vec<Held>,
    pool: Pool,
    /// Segments that hold something, and the live blocks in them.
    used: u32,
    live: u32,
    /// Segments with a record for each block, at most.
    most: usize,
}

/// A segment.
#[derive(Clone, Copy, Default)]
struct Held {
    /// The group that was written to it last; `None`: nothing was since it was freed.
    group: Option<u8>,
    live: u16,
    records: Records,
    /// When a user overwrote or deleted one of its blocks last, or when it was begun.
    touched: u32,
}

#[derive(Clone, Copy, Default)]
enum Records {
    /// Nothing was written there since it was freed.
    #[default]
    None,
    /// One for each block, in this box of the pool.
    Each(u32),
    /// One for all.
    Common(Common),
}

/// What is known of all live blocks of a segment together.
#[derive(Clone, Copy)]
pub struct Common {
    pub record: Record,
    /// What they lived through is counted up to this time.
    pub counted: u32,
}

/// Where a record comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It has this number in the [pool](Places::pool).
    Own(usize),
    /// It is that of all blocks of the segment, whose lives are counted up to this time.
    Common(u32),
}

/// What is known of the live blocks of a segment.
pub enum Content<'a> {
    /// A record for each place; unknown ones where nothing is live.
    Each(&'a [Record]),
    /// One record for so many blocks.
    Common(Record, u32),
}

impl Default for Places {
    fn default() -> Places {
        Places { segments: Vec::new(), pool: Pool::default(), used: 0, live: 0, most: usize::MAX }
    }
}

impl Places {
    /// Records of blocks take no more than so many bytes from now on, but for those of one segment. What is there already stays.
    pub fn limit(&mut self, bytes: usize) {
        self.most = (bytes / Pool::BOX_BYTES).max(1);
    }

    fn held(&self, segment: Segment) -> Held {
        self.segments.get(segment.index()).copied().unwrap_or_default()
    }

    /// Makes sure that there is an entry for a segment.
    fn make(&mut self, segment: Segment) {
        if self.segments.len() <= segment.index() {
            self.segments.resize(segment.index() + 1, Held::default());
        }
    }

    /// Makes sure that a segment that is begun has records, if there is room: whether there is.
    pub fn begin(&mut self, segment: Segment, now: u32) -> bool {
        self.make(segment);
        let held = &mut self.segments[segment.index()];
        if let Records::None = held.records {
            let Some(number) = self.pool.take(segment, self.most) else { return false };
            held.records = Records::Each(number);
            held.touched = now;
        }
        true
    }

    /// As [`begin`](Self::begin), with one record for all blocks; a user overwrote one of them last at `touched`.
    pub fn begin_common(&mut self, segment: Segment, common: Common, touched: u32) {
        self.make(segment);
        let held = &mut self.segments[segment.index()];
        if let Records::None = held.records {
            (held.records, held.touched) = (Records::Common(common), touched);
        }
    }

    /// The segments that hold something, those of the hottest group first, and of several those in which users overwrote something last.
    pub fn hottest_first(&self, now: u32) -> Vec<Segment> {
        let mut all: Vec<_> =
            (0..).zip(&self.segments).filter(|(_, held)| held.group.is_some() && held.live > 0).collect();
        all.sort_by_key(|(_, held)| (held.group, now.wrapping_sub(held.touched)));
        all.into_iter().map(|(at, _)| Segment::new(at)).collect()
    }

    /// The group of a segment, and how long ago a user overwrote one of its blocks.
    pub fn about(&self, segment: Segment, now: u32) -> (usize, u32) {
        let held = self.held(segment);
        (held.group.map_or(0, usize::from), now.wrapping_sub(held.touched))
    }

    /// How long ago a block of a segment died, or, if none has, the segment was begun; `None` if it holds nothing.
    pub fn since_touched(&self, segment: Segment, now: u32) -> Option<u32> {
        let held = self.held(segment);
        held.group.map(|_| now.wrapping_sub(held.touched))
    }

    /// The segment of the coldest group that has records for each block; of several, the one in which users overwrote nothing for longest.
    pub fn coldest(&self, now: u32) -> Option<Segment> {
        self.pool.owners().max_by_key(|segment| {
            let held = self.held(*segment);
            (held.group, now.wrapping_sub(held.touched))
        })
    }

    /// Replaces the records of a segment's blocks by one for all.
    pub fn make_common(&mut self, segment: Segment, common: Common) {
        let Some(held) = self.segments.get_mut(segment.index()) else { return };
        if let Records::Each(number) = std::mem::replace(&mut held.records, Records::Common(common)) {
            self.pool.give_back(number);
        }
    }

    /// Nothing was touched longer ago than the clock can tell; has to be called as often as [`Record::limit_age`].
    pub fn limit_ages(&mut self, now: u32) {
        for held in &mut self.segments {
            if now.wrapping_sub(held.touched) > AGE_MAX {
                held.touched = now.wrapping_sub(AGE_MAX);
            }
        }
    }

    /// The records that stand for all blocks of a segment, and for how many.
    pub fn all_common(&mut self) -> impl Iterator<Item = (&mut Common, u32)> {
        self.segments.iter_mut().filter_map(|held| match &mut held.records {
            Records::Common(common) => Some((common, u32::from(held.live))),
            Records::None | Records::Each(_) => None,
        })
    }

    /// A block of a group is at this place of a [begun](Self::begin) segment now, with what is known of it.
    pub fn set(&mut self, place: MainBlock, record: Record, group: usize) {
        let Some(held) = self.segments.get_mut(place.segment().index()) else { return };
        // Groups are few.
        self.used += u32::from(held.group.replace(group as u8).is_none());
        held.live += 1;
        self.live += 1;
        if let Records::Each(number) = held.records {
            self.pool.set(record_number(number, place), record);
        }
    }

    /// What is known of the live block at a place.
    pub fn find(&self, place: MainBlock) -> Option<(Record, Source)> {
        match self.held(place.segment()).records {
            Records::None => None,
            Records::Each(number) => {
                let number = record_number(number, place);
                Some((self.pool.get(number), Source::Own(number))).filter(|(record, _)| record.is_known())
            }
            Records::Common(common) => Some((common.record, Source::Common(common.counted))),
        }
    }

    /// A user overwrites or deletes the block at this place.
    pub fn touch(&mut self, place: MainBlock, now: u32) {
        if let Some(held) = self.segments.get_mut(place.segment().index()) {
            held.touched = now;
        }
    }

    /// What was at this place is dead.
    pub fn clear(&mut self, place: MainBlock) {
        let held = self.segments.get_mut(place.segment().index()).filter(|held| held.live > 0);
        let Some(held) = held else { return };
        if let Records::Each(number) = held.records {
            let number = record_number(number, place);
            // It was there when the volume was opened, or is of no group.
            if !self.pool.get(number).is_known() {
                return;
            }
            self.pool.set(number, Record::default());
        }
        held.live -= 1;
        self.live -= 1;
    }

    /// A segment holds nothing any more.
    pub fn free(&mut self, segment: Segment) {
        let Some(held) = self.segments.get_mut(segment.index()) else { return };
        let before = std::mem::take(held);
        self.live -= u32::from(before.live);
        self.used -= u32::from(before.group.is_some());
        if let Records::Each(number) = before.records {
            self.pool.give_back(number);
        }
    }

    /// The group that was written last to the segment of this place; `None` if that is not known.
    pub fn group(&self, place: MainBlock) -> Option<usize> {
        self.held(place.segment()).group.map(usize::from)
    }

    /// What is known of the live blocks of a segment.
    pub fn content(&self, segment: Segment) -> Content<'_> {
        let held = self.held(segment);
        match held.records {
            Records::None => Content::Each(&[]),
            Records::Each(number) => Content::Each(self.pool.of_box(number)),
            Records::Common(common) => Content::Common(common.record, u32::from(held.live)),
        }
    }

    /// Places, with those where nothing is.
    pub fn len(&self) -> u32 {
        // Places are numbered by as many bits.
        self.segments.len() as u32 * BLOCKS_PER_SEGMENT
    }

    /// What is known of the block at the place of this number; it is unknown if none is there. Of a segment with a record for all, the first
    /// places count as those with blocks.
    pub fn sample(&self, number: u32) -> Record {
        let place = MainBlock::new(number);
        match self.content(place.segment()) {
            Content::Each(records) => records.get(place.offset() as usize).copied().unwrap_or_default(),
            Content::Common(record, blocks) if place.offset() < blocks => record,
            Content::Common(..) => Record::default(),
        }
    }

    /// The records of single blocks.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// As [`pool`](Self::pool).
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.pool.memory() + self.segments.capacity() * size_of::<Held>()
    }

    /// Blocks of the segments that were written to and not freed.
    pub fn space(&self) -> u64 {
        u64::from(self.used) * u64::from(BLOCKS_PER_SEGMENT)
    }

    /// Blocks of groups that are live.
    pub fn live(&self) -> u32 {
        self.live
    }
}

fn record_number(number: u32, place: MainBlock) -> usize {
    (number * BLOCKS_PER_SEGMENT + place.offset()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(segment: u32, offset: u32) -> MainBlock {
        MainBlock::in_segment(Segment::new(segment), offset)
    }

    fn write(places: &mut Places, place: MainBlock, written: u32, group: usize) -> bool {
        let has_room = places.begin(place.segment(), written);
        places.set(place, Record::first(written), group);
        has_room
    }

    fn written(places: &Places, place: MainBlock) -> Option<u32> {
        places.find(place).map(|(record, _)| record.age(0).wrapping_neg())
    }

    #[test]
    fn each_place_has_a_record_until_it_is_dead_or_free() {
        let mut places = Places::default();
        assert!((0..512).all(|offset| write(&mut places, place(3, offset), 1000 + offset, 5)));
        assert!(write(&mut places, place(1, 1), 7, 2));
        assert_eq!((places.space(), places.live(), places.len()), (1024, 513, 2048));
        assert_eq!(written(&places, place(3, 8)), Some(1008));
        for dead in [place(3, 8), place(3, 9), place(9, 8), place(0, 8)] {
            places.clear(dead);
        }
        assert_eq!((places.live(), written(&places, place(3, 8))), (511, None));
        assert_eq!([1, 2, 3, 9].map(|segment| places.group(place(segment, 0))), [Some(2), None, Some(5), None]);
        assert_eq!(places.sample(3 * 512 + 10), Record::first(1010));
        assert!([0, 2, 9].iter().all(|segment| !places.sample(segment * 512).is_known()));
        places.free(Segment::new(3));
        places.free(Segment::new(3));
        assert_eq!((places.group(place(3, 0)), written(&places, place(3, 10))), (None, None));
        assert_eq!((places.space(), places.live()), (512, 1));
    }

    /// The logs of the recorded kinds go on in segments that they have begun before.
    #[test]
    fn what_was_there_already_does_not_count() {
        let mut places = Places::default();
        assert!((256..512).all(|offset| write(&mut places, place(0, offset), offset, 1)));
        (0..256).for_each(|offset| places.clear(place(0, offset)));
        assert_eq!(places.live(), 256);
        (256..300).for_each(|offset| places.clear(place(0, offset)));
        (256..300).for_each(|offset| places.clear(place(0, offset)));
        assert_eq!(places.live(), 212);
    }

    /// The clock wraps: what was touched once must not look as if it were just now.
    #[test]
    fn nothing_was_touched_longer_ago_than_the_clock_tells() {
        let mut places = Places::default();
        write(&mut places, place(1, 0), 5, 0);
        let since = |places: &Places, now| places.since_touched(Segment::new(1), now);
        assert_eq!(since(&places, 105), Some(100));
        assert_eq!(places.since_touched(Segment::new(0), 105), None);
        let late = 5_u32.wrapping_add(AGE_MAX + 77);
        places.limit_ages(late);
        assert_eq!(since(&places, late), Some(AGE_MAX));
        let wrapped = late.wrapping_add(1 << 30);
        places.limit_ages(wrapped);
        assert_eq!(since(&places, wrapped), Some(AGE_MAX));
    }

    #[test]
    fn with_little_memory_the_coldest_segments_have_one_record_for_all() {
        let mut places = Places::default();
        places.limit(3 * Pool::BOX_BYTES);
        for (segment, group) in [(0, 1), (1, 4), (2, 4)] {
            assert!((0..4).all(|offset| write(&mut places, place(segment, offset), 10 * segment + offset, group)));
        }
        assert!(!places.begin(Segment::new(7), 30), "there is no room");
        assert_eq!(places.coldest(30), Some(Segment::new(1)), "the older one of the coldest group");
        places.touch(place(1, 3), 29);
        assert_eq!(places.coldest(30), Some(Segment::new(2)));
        places.make_common(Segment::new(2), Common { record: Record::first(5), counted: 28 });
        assert!(write(&mut places, place(7, 0), 30, 0));
        assert!(write(&mut places, place(2, 4), 31, 4), "the others of a segment are no different");
        assert_eq!(places.find(place(2, 4)), Some((Record::first(5), Source::Common(28))));
        let own = places.find(place(7, 0));
        assert!(matches!(own, Some((record, Source::Own(_))) if record == Record::first(30)), "{own:?}");
        assert_eq!(places.all_common().map(|(common, live)| (common.counted, live)).collect::<Vec<_>>(), [(28, 5)]);
        assert_eq!([2 * 512 + 4, 2 * 512 + 5].map(|at| places.sample(at).is_known()), [true, false]);
        places.clear(place(2, 0));
        assert!(matches!(places.content(Segment::new(2)), Content::Common(_, 4)));
        assert_eq!(places.live(), 13);
        assert!(places.pool().memory() <= 3 * Pool::BOX_BYTES);
        places.free(Segment::new(2));
        assert_eq!((places.live(), places.find(place(2, 1))), (9, None));
        assert!(!places.begin(Segment::new(2), 40), "the others keep theirs");
    }
}
