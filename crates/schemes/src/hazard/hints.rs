//! What is known of a volume as hints, to be kept with it, and back.
//!
//! Records take three bytes instead of eight, and one for all of a segment where there is no room: for the coldest segments first. Of the
//! table and the edges everything is kept that counts. Logs and their segments are not: those begin anew.

mod segment;

use basalt_segments::placement::{Hints, Recalled};
use basalt_segments::{BLOCKS_PER_SEGMENT, MainBlock, Segment};

use super::edges::Edges;
use super::places::{Common, Content};
use super::promotion::Promotions;
use super::records::Record;
use super::state::{State, middle};
use super::table::Table;
use crate::hints::bytes::Reader;
use crate::hints::{Detail, PARTS, fit};
use segment::{About, COMMON_BYTES, Kept, keep, kept};

/// What the general bytes begin with. Others are of an earlier or later Basalt, and are not read.
const FORMAT: u8 = 1;

impl State {
    /// As [`Placement::hints`](basalt_segments::Placement::hints). `None` before anything was written, and where there is too little room.
    pub fn hints(&mut self, most: usize) -> Option<Hints> {
        if self.now == 0 {
            return None;
        }
        let general = self.general(most / PARTS);
        let all = self.places.hottest_first(self.now);
        fit(most, general, all, COMMON_BYTES, |segment, detail| match detail {
            Detail::Each => self.bytes_of(segment),
            Detail::Common => self.bytes_of_common(segment),
        })
    }

    /// As [`Placement::recall`](basalt_segments::Placement::recall). Does nothing where the bytes are of no state.
    pub fn recall(&mut self, general: &[u8], segments: &[Recalled<'_>]) {
        if self.recall_general(general).is_none() {
            return;
        }
        for recalled in segments {
            if let Some((about, kept)) = kept(recalled.bytes, self.now) {
                self.recall_segment(recalled, about, &kept);
            }
        }
        self.hand.visited_all(self.now, self.places.pool().len());
    }

    fn about(&self, segment: Segment) -> About {
        let (group, untouched) = self.places.about(segment, self.now);
        // Groups are few.
        About { group: group as u8, untouched }
    }

    fn bytes_of(&self, segment: Segment) -> Vec<u8> {
        keep(self.about(segment), &self.places.content(segment), self.now)
    }

    fn bytes_of_common(&mut self, segment: Segment) -> Vec<u8> {
        let record = match self.places.content(segment) {
            Content::Common(record, _) => record,
            Content::Each(records) => middle(&mut self.table, self.now, records),
        };
        keep(self.about(segment), &Content::Common(record, 0), self.now)
    }

    fn recall_segment(&mut self, recalled: &Recalled<'_>, about: About, kept: &Kept) {
        let segment = recalled.segment;
        let touched = self.now.wrapping_sub(about.untouched);
        let group = usize::from(about.group).min(self.streams.count() - 1);
        // Recovery may have written to it meanwhile.
        if self.places.group(MainBlock::in_segment(segment, 0)).is_some() {
            return;
        }
        let common = match kept {
            Kept::Common(record) => *record,
            Kept::Each(records) if !self.places.begin(segment, touched) => {
                middle(&mut self.table, self.now, &records[..])
            }
            Kept::Each(records) => {
                let live = records.iter().zip(0..).filter(|(record, at)| record.is_known() && recalled.is_live(*at));
                live.for_each(|(record, at)| self.places.set(MainBlock::in_segment(segment, at), *record, group));
                return;
            }
        };
        self.places.begin_common(segment, Common { record: common, counted: self.now }, touched);
        let live = (0..BLOCKS_PER_SEGMENT).filter(|&at| recalled.is_live(at));
        live.for_each(|at| self.places.set(MainBlock::in_segment(segment, at), common, group));
    }

    /// The clock, what is learned, and the groups.
    fn general(&self, most: usize) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.now.to_le_bytes());
        bytes.extend(self.oldest.packed(self.now));
        bytes.extend(self.promotions.keep());
        self.edges.keep(&mut bytes);
        let table = self.table.keep(most.saturating_sub(bytes.len()));
        bytes.extend(table);
        bytes
    }

    fn recall_general(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        reader.u8().filter(|format| *format == FORMAT)?;
        let now = reader.u32()?;
        let oldest = reader.bytes(3)?;
        let oldest = Record::unpacked([oldest[0], oldest[1], oldest[2]], now);
        let promotions = Promotions::kept(&mut reader)?;
        let edges = Edges::kept(self.streams.count(), &mut reader)?;
        let table = Table::kept(reader.0)?;
        (self.now, self.learned) = (now, now);
        if oldest.is_known() {
            self.oldest = oldest;
        }
        (self.promotions, self.edges, self.table) = (promotions, edges, table);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use basalt_segments::placement::SegmentHints;
    use basalt_segments::{BlockTraits, Placement, Reason};

    use super::*;
    use crate::Hazard;

    /// Half of the writes go round 64 blocks, the others round 8128. Each log has an open segment; segments are used once.
    struct Written {
        hazard: Hazard,
        places: Vec<Option<MainBlock>>,
        /// The next place of each log, and the segment behind all.
        logs: [Option<MainBlock>; 16],
        next: u32,
    }

    impl Written {
        fn new() -> Written {
            Written { hazard: Hazard::default(), places: vec![None; 8192], logs: [None; 16], next: 0 }
        }

        fn write(&mut self, index: u32) {
            let from = self.places[index as usize];
            let block = BlockTraits { index, from, ..BlockTraits::default() };
            let log = self.hazard.log(&block);
            let place = self.logs[log.index()].take().unwrap_or_else(|| {
                self.next += 1;
                MainBlock::in_segment(Segment::new(self.next - 1), 0)
            });
            self.hazard.note_written(&block, place);
            from.into_iter().for_each(|from| self.hazard.note_dead(from));
            self.places[index as usize] = Some(place);
            if place.offset() + 1 == BLOCKS_PER_SEGMENT {
                self.hazard.note_sealed(log, place.segment());
            } else {
                self.logs[log.index()] = Some(MainBlock::in_segment(place.segment(), place.offset() + 1));
            }
        }

        fn run(&mut self, writes: u32) {
            for step in 0..writes {
                self.write(if step % 2 == 0 { step / 2 % 64 } else { 64 + step / 2 % 8128 });
            }
        }

        fn live(&self) -> BTreeMap<Segment, [u8; 64]> {
            let mut live = BTreeMap::new();
            for place in self.places.iter().flatten() {
                let map = live.entry(place.segment()).or_insert([0_u8; 64]);
                map[place.offset() as usize / 8] |= 0x80 >> (place.offset() % 8);
            }
            live
        }

        /// The volume is closed, and opened again: with so many bytes for hints, and for records.
        fn reopen(&mut self, most: usize, memory: usize) -> usize {
            let hints = self.hazard.hints(most).unwrap();
            let bytes: usize = hints.segments.iter().map(|hints| hints.bytes.len() + SegmentHints::OVERHEAD).sum();
            assert!(bytes + hints.general.len() <= most, "{bytes}");
            assert!(hints.segments.iter().all(|hints| hints.bytes.len() <= SegmentHints::BYTES_MAX));
            let live = self.live();
            let recalled = recalled_with(&hints, &live);
            self.logs = [None; 16];
            self.hazard = Hazard::default();
            self.hazard.limit_memory(memory);
            self.hazard.recall(&hints.general, &recalled);
            recalled.len()
        }

        fn looks(&self) -> Vec<(f64, u32, u16)> {
            let look = |place: &Option<MainBlock>| self.hazard.state().look(place.unwrap()).unwrap_or((0.0, 0, 0));
            self.places.iter().map(look).collect()
        }
    }

    fn recalled_with<'a>(hints: &'a Hints, live: &'a BTreeMap<Segment, [u8; 64]>) -> Vec<Recalled<'a>> {
        let of =
            |one: &'a SegmentHints| Recalled { segment: one.segment, bytes: &one.bytes, live: &live[&one.segment] };
        hints.segments.iter().map(of).collect()
    }

    /// Ages are kept to 6 %, so what is left of a life is as far off as these.
    fn assert_near(before: &[(f64, u32, u16)], after: &[(f64, u32, u16)], tolerance: f64) {
        for (at, (was, is)) in before.iter().zip(after).enumerate() {
            let most = tolerance * was.0 + 0.1 * f64::from(was.1) + 16.0;
            assert!((is.0 - was.0).abs() < most, "block {at}: {was:?}, {is:?}");
        }
    }

    #[test]
    fn what_is_known_comes_back() {
        let mut written = Written::new();
        written.run(200_000);
        let (before, groups) = (written.looks(), written.places.clone());
        let groups = |written: &Written| -> Vec<_> {
            groups.iter().map(|place| written.hazard.state().places.group(place.unwrap())).collect()
        };
        let (group, live) = (groups(&written), written.hazard.state().live());
        let edges = |written: &Written| -> Vec<_> {
            (0..24).map(|at| written.hazard.state().edges.group(f64::from(1 << at))).collect()
        };
        let edges_before = edges(&written);
        written.reopen(1 << 20, usize::MAX);
        // The coldest are seen at ages that are kept to 6 %.
        assert_near(&before, &written.looks(), 0.25);
        assert_eq!((groups(&written), written.hazard.state().live()), (group, live));
        assert_eq!(edges(&written), edges_before, "the edges between the groups");
        // And it goes on as it would have.
        let mut unclosed = Written::new();
        unclosed.run(200_000);
        unclosed.run(50_000);
        written.run(50_000);
        assert_near(&unclosed.looks(), &written.looks(), 0.1);
    }

    #[test]
    fn with_little_room_the_coldest_share_a_record_or_are_left_out() {
        let mut written = Written::new();
        written.run(200_000);
        let before = written.looks();
        let all = written.hazard.hints(1 << 20).unwrap();
        let size = |hints: &Hints| hints.segments.iter().map(|one| one.bytes.len()).sum::<usize>();
        let room = all.general.len() + all.segments.len() * (SegmentHints::OVERHEAD + 9) + size(&all) / 2;
        assert_eq!(written.reopen(room, usize::MAX), all.segments.len());
        let hot = |looks: &[(f64, u32, u16)]| looks[..64].to_vec();
        assert_near(&hot(&before), &hot(&written.looks()), 0.25);
        assert!(written.looks().iter().all(|look| look.0 > 0.0), "all are known");
        let few = written.reopen(all.general.len() + 700, usize::MAX);
        assert!((1..all.segments.len()).contains(&few), "{few}");
        // Without the table, but with their records.
        assert!(hot(&written.looks()).iter().all(|look| look.0 < 1000.0), "{:?}", hot(&written.looks()));
        assert_eq!(written.hazard.hints(10), None, "there is no room at all");
    }

    #[test]
    fn what_is_recalled_keeps_to_the_memory() {
        let mut written = Written::new();
        written.run(200_000);
        let before = written.looks();
        written.reopen(1 << 20, 6 * 4200);
        let segments = written.live().len();
        assert!(written.hazard.memory() - Hazard::default().memory() < 6 * 4200 + 60 * written.next as usize);
        assert!(segments > 12);
        assert_near(&before[..64], &written.looks()[..64], 0.25);
        assert!(written.looks().iter().all(|look| look.0 > 0.0), "all are known");
    }

    /// What died meanwhile is known of no more, and blocks that nobody knows are not made up.
    #[test]
    fn only_live_blocks_come_back() {
        let mut written = Written::new();
        written.run(100_000);
        let live = written.hazard.state().live();
        for place in &mut written.places[1000..1100] {
            *place = None;
        }
        let hints = written.hazard.hints(1 << 20).unwrap();
        let left = written.live();
        let recalled = recalled_with(&hints, &left);
        let hazard = Hazard::default();
        hazard.recall(&hints.general, &recalled);
        assert_eq!(hazard.state().live(), live - 100);
        // Twice makes no difference: a segment is recalled once.
        hazard.recall(&hints.general, &recalled);
        assert_eq!(hazard.state().live(), live - 100);
    }

    #[test]
    fn bytes_of_no_state_change_nothing() {
        let mut written = Written::new();
        written.run(20_000);
        let hints = written.hazard.hints(1 << 20).unwrap();
        let live = [0xFF; 64];
        let mut random = 7_u32;
        for round in 0..3000_usize {
            let mut general = hints.general.clone();
            let mut bytes = hints.segments[round % hints.segments.len()].bytes.clone();
            for hurt in [&mut general, &mut bytes] {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = random as usize % hurt.len();
                if round % 3 == 0 { hurt.truncate(at) } else { hurt[at] ^= 1 << (random >> 29) }
            }
            let hazard = Hazard::default();
            let general = if round % 2 == 0 { &general } else { &hints.general };
            hazard.recall(general, &[Recalled { segment: Segment::new(3), bytes: &bytes, live: &live }]);
            let mut after = Written { hazard, places: written.places.clone(), logs: [None; 16], next: written.next };
            after.run(200);
            let copy =
                BlockTraits { from: Some(MainBlock::new(512 * 3)), reason: Reason::Cleaning, ..BlockTraits::default() };
            let _ = after.hazard.log(&copy);
        }
        assert_eq!(Hazard::default().hints(1 << 20), None, "nothing is known");
    }

    /// Of a later Basalt, or cut off in front of what the table has: not even the clock is taken over.
    #[test]
    fn general_bytes_that_are_no_state_are_not_taken_over_in_part() {
        let mut written = Written::new();
        written.run(20_000);
        let general = written.hazard.hints(1 << 20).unwrap().general;
        let is_refused = |general: &[u8]| {
            let hazard = Hazard::default();
            hazard.recall(general, &[]);
            hazard.hints(1 << 20).is_none()
        };
        assert!(!is_refused(&general));
        assert!(is_refused(&[&[FORMAT + 1], &general[1..]].concat()), "of another format");
        assert!((0..300).all(|end| is_refused(&general[..end])));
    }

    /// Full segments of group 3 that were touched one after the other, the one with the highest number first. No two of their records are
    /// alike.
    fn full(segments: u32) -> State {
        let mut state = State::new(7);
        state.now = 1 << 20;
        for segment in (0..segments).rev() {
            let touched = state.now - 100 * (segment + 1);
            state.places.begin(Segment::new(segment), touched);
            for at in 0..BLOCKS_PER_SEGMENT {
                let record = Record::first(touched - 1000 * (1 + at * 197 % 512));
                state.places.set(MainBlock::in_segment(Segment::new(segment), at), record, 3);
            }
        }
        state
    }

    fn recalled<'a>(hints: &'a Hints, live: &'a [u8; 64]) -> Vec<Recalled<'a>> {
        hints.segments.iter().map(|one| Recalled { segment: one.segment, bytes: &one.bytes, live }).collect()
    }

    #[test]
    fn the_hottest_segments_keep_their_records_and_the_others_have_one_each() {
        let mut state = full(200);
        let general = state.general(usize::MAX).len();
        let each = SegmentHints::OVERHEAD + 6 + 3 * 512;
        let common = SegmentHints::OVERHEAD + COMMON_BYTES;
        // Room for all of them, for three parts of four and the rest, and for a few only.
        for (room, own, all) in [(200 * each, 200, 200), (100 * each + 100 * common, 100, 200), (12 * each, 8, 45)] {
            let hints = state.hints(general + room).unwrap();
            let order: Vec<u32> = hints.segments.iter().map(|one| one.segment.get()).collect();
            assert!(order.iter().copied().eq(0..order.len() as u32), "those touched last come first: {order:?}");
            let with_own = hints.segments.iter().take_while(|one| one.bytes.len() > COMMON_BYTES).count();
            assert!(hints.segments[with_own..].iter().all(|one| one.bytes.len() == COMMON_BYTES));
            assert!((own..=own + own / 4).contains(&with_own), "room {room}: {with_own} with their own records");
            assert!((all..=200).contains(&order.len()), "room {room}: {}", order.len());
        }
    }

    /// One record for all: only of live blocks, with the segment's group, its time, and the age in the middle. What they lived through is
    /// counted already.
    #[test]
    fn segments_with_one_record_for_all_come_back() {
        let mut before = full(3);
        let general = before.general(usize::MAX).len();
        let hints = before.hints(general + 3 * (SegmentHints::OVERHEAD + COMMON_BYTES)).unwrap();
        assert!(hints.segments.len() == 3 && hints.segments.iter().all(|one| one.bytes.len() == COMMON_BYTES));
        let mut state = State::new(7);
        let live = [0xF0; 64];
        state.recall(&hints.general, &recalled(&hints, &live));
        assert_eq!(state.live(), 3 * 256);
        for segment in (0..3).map(Segment::new) {
            assert_eq!(state.places.about(segment, state.now), before.places.about(segment, before.now));
            let (_, age, _) = state.look(MainBlock::in_segment(segment, 0)).unwrap();
            assert!(age.abs_diff(250_000) < 40_000, "{segment:?}: {age}");
        }
        assert!(state.places.all_common().all(|(common, live)| (common.counted, live) == (1 << 20, 256)));
    }

    #[test]
    fn segments_with_a_record_for_each_block_come_back_with_their_time() {
        let mut before = full(3);
        let hints = before.hints(1 << 20).unwrap();
        let mut state = State::new(7);
        state.recall(&hints.general, &recalled(&hints, &[0xF0; 64]));
        for segment in (0..3).map(Segment::new) {
            assert_eq!(state.places.about(segment, state.now), before.places.about(segment, before.now));
        }
        let is_known = (0..8).map(|at| state.look(MainBlock::new(at)).is_some());
        assert!(is_known.eq((0..8).map(|at| at < 4)), "those that are live");
        assert_eq!(state.hand.counted(1535, state.now, 5000), 4999, "what they lived through is counted already");
    }

    #[test]
    fn blocks_that_nobody_knows_stay_old_and_promotions_that_did_not_pay_stay_rare() {
        let mut before = full(1);
        (0..100).for_each(|_| before.promotions.count_collected());
        let hints = before.hints(1 << 20).unwrap();
        let mut state = State::new(7);
        state.recall(&hints.general, &[]);
        let age = state.oldest.age(state.now);
        assert!(age.abs_diff(1 << 20) < 1 << 17, "as old as the clock: {age}");
        assert!(!state.promotions.allows());
    }
}
