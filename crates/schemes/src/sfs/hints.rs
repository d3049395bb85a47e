//! What is known of a volume as hints, to be kept with it, and back.
//!
//! Records take three bytes instead of eight, and one for all of a segment where there is no room: for the coldest segments first. Source: SFS
//! (FAST 2012, section 3.3) keeps its centres with the volume; how the others are kept is ours.

use basalt_segments::placement::{Hints, Recalled};
use basalt_segments::{BLOCKS_PER_SEGMENT, Segment};

use super::centres::Centres;
use super::{CLOCK_MAX, State};
use crate::hints::bytes::{Reader, half};
use crate::hints::packed::{Packed, Triple};
use crate::hints::{Detail, PARTS, fit};
use crate::hotness::Written;

/// What the general bytes begin with. Others are of an earlier or later Basalt, and are not read.
const FORMAT: u8 = 1;
/// What a segment's bytes begin with: whether it is written to the end.
const SEALED: u8 = 1;
/// Bytes of a segment with one record for all blocks.
const COMMON_BYTES: usize = 1 + Packed::COMMON_BYTES;
/// Writes are told apart up to this many, and to an eighth from there on.
const EXACT: u32 = 16;

/// What is known of a block or a file at this time, in three bytes; all zeros where the count is 0. The age is kept to 0.4 %.
pub fn pack(written: Written, now: u32) -> Triple {
    if written.count == 0 {
        return Triple::default();
    }
    let [low, high] = half(now.saturating_sub(written.time) as f32);
    [pack_count(written.count), low, high]
}

/// What was packed, at this time.
pub fn unpack([count, low, high]: Triple, now: u32) -> Written {
    // Ages of 2^32 and more do not occur; what was made up is as old as can be.
    let age = Reader(&[low, high]).half().map_or(u32::MAX, |age| age as u32);
    Written { count: unpack_count(count), time: now.saturating_sub(age) }
}

/// The highest four bits of a number, and how many there are behind them.
fn pack_count(count: u32) -> u8 {
    let behind = count.max(EXACT / 2).ilog2() - 3;
    // 239 at most: 28 bits behind.
    (behind * 8 + (count >> behind)) as u8
}

/// The middle of all numbers with this code.
fn unpack_count(code: u8) -> u32 {
    let behind = (u32::from(code) / 8).saturating_sub(1).min(28);
    let highest = u32::from(code) - behind * 8;
    // Codes above 239 are made up.
    highest.min(15) << behind | (1 << behind >> 1)
}

impl State {
    /// As [`Placement::hints`](basalt_segments::Placement::hints). `None` before anything was written, and where there is too little room.
    pub fn hints(&self, most: usize) -> Option<Hints> {
        if self.now == 0 {
            return None;
        }
        let general = self.general(most / PARTS);
        let all = self.places.hottest_first(self.now);
        fit(most, general, all, COMMON_BYTES, |segment, detail| self.bytes_of(segment, detail))
    }

    /// As [`Placement::recall`](basalt_segments::Placement::recall). Does nothing where the bytes are of no state.
    pub fn recall(&mut self, general: &[u8], segments: &[Recalled<'_>]) {
        if self.recall_general(general).is_none() {
            return;
        }
        for recalled in segments {
            let _ = self.recall_segment(recalled);
        }
    }

    fn bytes_of(&self, segment: Segment, detail: Detail) -> Vec<u8> {
        let mut bytes = vec![if self.places.is_sealed(segment) { SEALED } else { 0 }];
        let of = |written: Written| pack(written, self.now);
        let packed = match self.places.records(segment) {
            Some(records) if detail == Detail::Each => Packed::each(|at| of(records[at])),
            _ => Packed::Common(of(self.places.mean(segment).unwrap_or_default())),
        };
        packed.write(&mut bytes);
        bytes
    }

    /// Nothing is recalled of a segment whose bytes are of none.
    fn recall_segment(&mut self, recalled: &Recalled<'_>) -> Option<()> {
        let mut reader = Reader(recalled.bytes);
        let is_sealed = reader.u8()? == SEALED;
        let packed = Packed::read(&mut reader)?;
        let triple = |at: u32| match &packed {
            Packed::Common(triple) => *triple,
            Packed::Each(triples) => triples[at as usize],
        };
        let live = (0..BLOCKS_PER_SEGMENT).filter(|&at| recalled.is_live(at));
        let known = live.map(|at| (at, unpack(triple(at), self.now))).filter(|(_, written)| written.count > 0);
        if self.places.recall(recalled.segment, known) && is_sealed {
            self.places.seal(recalled.segment);
        }
        Some(())
    }

    /// The clock, the centres, and files.
    fn general(&self, most: usize) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.now.to_le_bytes());
        self.centres.keep(&mut bytes);
        let files = self.files.keep(self.now, most.saturating_sub(bytes.len()));
        bytes.extend(files);
        bytes
    }

    fn recall_general(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        reader.u8().filter(|format| *format == FORMAT)?;
        let now = reader.u32().filter(|now| *now < CLOCK_MAX)?;
        let centres = Centres::kept(&mut reader)?;
        let files = self.files.kept(&mut reader, now)?;
        self.centres.take_over(centres);
        (self.now, self.files) = (now, files);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use basalt_random::Rng;
    use basalt_segments::placement::SegmentHints;
    use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Reason, SegmentKind};

    use super::super::{Scale, Sfs};
    use super::*;

    const SCALES: [Scale; 3] = [Scale::Linear, Scale::Logarithmic, Scale::Paper];
    const LIVE: [u8; 64] = [0xFF; 64];

    /// Segments 0 to 7 are full of blocks of files 0 to 7, of which number n was written 4^n times, one segment after the other. They are sealed,
    /// and the centres lie among them.
    fn eight(scale: Scale) -> Sfs {
        let sfs = Sfs::new(4, scale);
        for file in (0..8).rev() {
            for index in 0..BLOCKS_PER_SEGMENT {
                let place = MainBlock::in_segment(Segment::new(file), index);
                let block = BlockTraits { file, index, ..BlockTraits::default() };
                sfs.note_written(&block, place);
                let state = &mut *sfs.state();
                let now = state.now;
                state.places.clear(place);
                state.places.set(place, Written { count: 1 << (2 * file), time: now - 1 - index % 7 }, now);
            }
            sfs.note_sealed(LogId::of(SegmentKind::WarmData), Segment::new(file));
        }
        sfs.note_free(Segment::new(8));
        sfs.log(&BlockTraits::default());
        sfs
    }

    fn recalled<'a>(hints: &'a Hints, live: &'a [u8; 64]) -> Vec<Recalled<'a>> {
        hints.segments.iter().map(|one| Recalled { segment: one.segment, bytes: &one.bytes, live }).collect()
    }

    fn reopened(scale: Scale, hints: &Hints, live: &[u8; 64]) -> Sfs {
        let sfs = Sfs::new(4, scale);
        sfs.recall(&hints.general, &recalled(hints, live));
        sfs
    }

    fn known(sfs: &Sfs, segment: u32, offset: u32) -> Option<Written> {
        sfs.state().places.find(MainBlock::in_segment(Segment::new(segment), offset))
    }

    /// The logs of copies of the first blocks, and of new blocks of the files.
    fn logs(sfs: &Sfs) -> Vec<LogId> {
        let copy = |segment: u32| BlockTraits {
            from: Some(MainBlock::in_segment(Segment::new(segment), 0)),
            reason: Reason::Cleaning,
            ..BlockTraits::default()
        };
        let new = |file: u32| BlockTraits { file, index: 9999, ..BlockTraits::default() };
        (0..8).map(copy).chain((0..8).map(new)).map(|block| sfs.log(&block)).collect()
    }

    #[test]
    fn what_is_known_comes_back() {
        for scale in SCALES {
            let before = eight(scale);
            let hints = before.hints(1 << 20).unwrap();
            assert_eq!(hints.segments.len(), 8);
            let after = reopened(scale, &hints, &LIVE);
            assert_eq!(after.state().now, before.state().now, "{scale:?}");
            for (segment, offset) in (0..8).flat_map(|segment| (0..512).map(move |offset| (segment, offset))) {
                let (was, is) = (known(&before, segment, offset).unwrap(), known(&after, segment, offset).unwrap());
                assert!(is.count.abs_diff(was.count) * 16 <= was.count, "{was:?} {is:?}");
                let age = before.state().now - was.time;
                assert!((after.state().now - is.time).abs_diff(age) * 250 <= age, "{was:?} {is:?} {age}");
            }
            let sealed = |sfs: &Sfs| sfs.state().places.sums().filter(|sums| sums.is_sealed()).count();
            assert_eq!((sealed(&before), sealed(&after)), (8, 8));
            assert_eq!(logs(&after), logs(&before), "{scale:?}");
            let groups = logs(&after)[..8].iter().collect::<BTreeSet<_>>().len();
            assert!(groups > 2, "{scale:?}: the centres tell apart {groups} groups of blocks");
            // The centres are those of before, not new ones: without segments, nothing else says where a block belongs.
            let general = Sfs::new(4, scale);
            general.recall(&hints.general, &[]);
            let hotness = [0.0, 0.001, 0.1, 1.0, 10.0, 100.0];
            let groups = |sfs: &Sfs| hotness.map(|one| sfs.state().centres.group(one));
            assert_eq!(groups(&general), groups(&before), "{scale:?}");
        }
    }

    #[test]
    fn only_live_blocks_of_segments_that_nothing_was_written_to_come_back() {
        let before = eight(Scale::Paper);
        before.note_dead(MainBlock::in_segment(Segment::new(3), 0));
        let hints = before.hints(1 << 20).unwrap();
        let after = Sfs::new(4, Scale::Paper);
        after.note_written(&BlockTraits::default(), MainBlock::in_segment(Segment::new(5), 7));
        after.recall(&hints.general, &recalled(&hints, &[0xF0; 64]));
        let is_known = |segment, offset| known(&after, segment, offset).is_some();
        // Dead before, live, dead by now, and in a segment of after.
        let expected = [(3, 0, false), (3, 1, true), (3, 4, false), (5, 0, false), (5, 7, true), (2, 0, true)];
        for (segment, offset, is_there) in expected {
            assert_eq!(is_known(segment, offset), is_there, "{segment} {offset}");
        }
        assert_eq!(after.state().places.sums_of(2, 1).live, 256);
        // Twice makes no difference.
        after.recall(&hints.general, &recalled(&hints, &LIVE));
        assert_eq!(after.state().places.sums_of(2, 1).live, 256);
        assert_eq!(after.state().places.space(), 8 * 512);
    }

    /// An open segment's log goes on elsewhere: it has no part in the centres, as before.
    #[test]
    fn a_segment_that_was_open_stays_so() {
        let before = eight(Scale::Linear);
        before.note_written(&BlockTraits::default(), MainBlock::in_segment(Segment::new(9), 0));
        let after = reopened(Scale::Linear, &before.hints(1 << 20).unwrap(), &LIVE);
        let state = after.state();
        assert!(state.places.sums_of(9, 1).live == 1 && !state.places.is_sealed(Segment::new(9)));
    }

    #[test]
    fn with_little_room_the_coldest_share_a_record_or_are_left_out() {
        let before = eight(Scale::Logarithmic);
        let all = before.hints(1 << 20).unwrap();
        let sizes: Vec<usize> = all.segments.iter().map(|one| one.bytes.len()).collect();
        let general = all.general.len();
        let room = |own: usize| {
            general + sizes[..own].iter().sum::<usize>() + (8 - own) * COMMON_BYTES + 8 * SegmentHints::OVERHEAD
        };
        let hints = before.hints(room(3) * 4 / 3).unwrap();
        let order: Vec<u32> = hints.segments.iter().map(|one| one.segment.get()).collect();
        assert_eq!(order, [7, 6, 5, 4, 3, 2, 1, 0], "the hottest first");
        let own = hints.segments.iter().take_while(|one| one.bytes.len() > COMMON_BYTES).count();
        assert!((3..8).contains(&own), "{own}");
        let after = reopened(Scale::Logarithmic, &hints, &LIVE);
        assert_ne!(known(&after, 7, 0), known(&after, 7, 511), "each has its own");
        assert_eq!(known(&after, 0, 0), known(&after, 0, 511), "one for all");
        let mean = before.state().places.mean(Segment::new(0)).unwrap();
        assert!(known(&after, 0, 0).unwrap().time.abs_diff(mean.time) <= 20);
        assert_eq!(logs(&after)[..8], logs(&before)[..8]);
        let few = before.hints(general + 200).unwrap().segments.len();
        assert!((1..8).contains(&few), "{few}");
        assert_eq!(before.hints(10), None, "there is no room at all");
        assert_eq!(Sfs::new(4, Scale::Paper).hints(1 << 20), None, "nothing is known");
    }

    /// With memory for three segments' records, those are the hottest, and the others count as their means.
    #[test]
    fn what_is_recalled_keeps_to_the_memory() {
        let before = eight(Scale::Linear);
        let hints = before.hints(1 << 20).unwrap();
        let after = Sfs::new(4, Scale::Linear);
        after.limit_memory(3 * crate::boxes::Boxes::<Written>::BOX_BYTES);
        after.recall(&hints.general, &recalled(&hints, &LIVE));
        let state = after.state();
        let own: Vec<u32> = (0..8).filter(|&at| state.places.records(Segment::new(at)).is_some()).collect();
        assert_eq!(own, [5, 6, 7]);
        assert!((0..8).all(|at| state.places.find(MainBlock::in_segment(Segment::new(at), 0)).is_some()));
    }

    #[test]
    fn files_come_back_the_last_written_first() {
        let sfs = Sfs::new(4, Scale::Paper);
        let write = |file| sfs.note_written(&BlockTraits { file, ..BlockTraits::default() }, MainBlock::new(file));
        (0..500).for_each(write);
        (0..8).for_each(write);
        // Four parts of 40 bytes and 10 files.
        let hints = sfs.hints(4 * (6 + 4 * 8 + 4 + 10 * 7)).unwrap();
        let after = reopened(Scale::Paper, &hints, &LIVE);
        let (before, state) = (sfs.state(), after.state());
        let kept: BTreeMap<u32, Written> = (0..500).filter_map(|file| Some((file, state.files.get(file)?))).collect();
        assert!(kept.keys().copied().eq((0..8).chain(498..500)), "{kept:?}");
        assert!(kept.iter().all(|(file, written)| before.files.get(*file) == Some(*written)), "{kept:?}");
        let mut little = crate::sfs::files::WrittenFiles::default();
        little.limit(1);
        let general = &hints.general[6 + 4 * 8..];
        let little = little.kept(&mut Reader(general), state.now).unwrap();
        assert_eq!((0..500).filter(|file| little.get(*file).is_some()).collect::<Vec<_>>(), [6, 7]);
    }

    #[test]
    fn centres_of_another_number_of_groups_are_left_out() {
        for scale in SCALES {
            let hints = eight(scale).hints(1 << 20).unwrap();
            let after = Sfs::new(5, scale);
            after.recall(&hints.general, &recalled(&hints, &LIVE));
            assert!(known(&after, 3, 3).is_some());
            let fresh = Sfs::new(5, scale);
            let groups = |sfs: &Sfs| [1e-9, 1.0, 1e9].map(|one| sfs.state().centres.group(one));
            assert_eq!(groups(&after), groups(&fresh), "{scale:?}");
        }
    }

    /// No block is as hot as all centres but one: moved to where segments are, they would stay there for ever, in the records, too.
    #[test]
    fn centres_that_are_nowhere_near_begin_anew() {
        for scale in SCALES {
            let mut hints = eight(scale).hints(1 << 20).unwrap();
            for centre in 0..3 {
                hints.general[6 + 8 * centre..][..8].copy_from_slice(&1e6_f64.to_le_bytes());
            }
            let after = reopened(scale, &hints, &LIVE);
            let groups = |sfs: &Sfs| logs(sfs)[..8].iter().collect::<BTreeSet<_>>().len();
            assert_eq!(groups(&after), 1, "{scale:?}: all that is there is in the coldest");
            after.note_free(Segment::new(8));
            assert!(groups(&after) > 1, "{scale:?}");
            let centres = |sfs: &Sfs| {
                let mut bytes = Vec::new();
                sfs.state().centres.keep(&mut bytes);
                Centres::kept(&mut Reader(&bytes)).unwrap()
            };
            assert!(centres(&after)[0] < 1e6, "{scale:?}: {:?}", centres(&after));
        }
    }

    /// Of a later Basalt, cut off, of a clock that cannot be, with centres that are none: nothing is taken over in part.
    #[test]
    fn general_bytes_that_are_no_state_change_nothing() {
        let hints = eight(Scale::Logarithmic).hints(1 << 20).unwrap();
        let is_refused = |general: &[u8]| {
            let sfs = Sfs::new(4, Scale::Logarithmic);
            sfs.recall(general, &recalled(&hints, &LIVE));
            let state = sfs.state();
            let is_new = state.now == 0 && state.places.segments() == 0 && state.centres.group(1e9) == 3;
            assert!(is_new || state.now > 0);
            is_new
        };
        let with = |at: usize, bytes: &[u8]| {
            let mut general = hints.general.clone();
            general[at..at + bytes.len()].copy_from_slice(bytes);
            general
        };
        assert!(!is_refused(&hints.general));
        assert!(is_refused(&with(0, &[FORMAT + 1])) && is_refused(&with(1, &CLOCK_MAX.to_le_bytes())));
        assert!((0..hints.general.len()).all(|end| is_refused(&hints.general[..end])));
        for centre in [f64::NAN, f64::INFINITY, 1e300] {
            assert!(is_refused(&with(6 + 8, &centre.to_le_bytes())), "{centre} behind a smaller one");
        }
        assert!(is_refused(&with(6 + 4 * 8, &u32::MAX.to_le_bytes())), "more files than there are bytes");
        let many = [&hints.general[..6 + 4 * 8], &65_537_u32.to_le_bytes(), &[1; 7 * 65_537]].concat();
        assert!(is_refused(&many), "more files than are ever kept");
    }

    #[test]
    fn bytes_of_no_state_do_no_harm() {
        for scale in SCALES {
            let hints = eight(scale).hints(1 << 20).unwrap();
            let mut rng = Rng::new(5);
            for round in 0..2000_usize {
                let mut general = hints.general.clone();
                let mut bytes = hints.segments[round % 8].bytes.clone();
                let hurt = if round % 2 == 0 { &mut general } else { &mut bytes };
                let at = rng.index(hurt.len());
                if round % 3 == 0 {
                    hurt.truncate(at)
                } else {
                    hurt[at] ^= 1 << rng.below(8)
                }
                let sfs = Sfs::new(4, scale);
                let segment = Segment::new(3);
                sfs.recall(&general, &[Recalled { segment, bytes: &bytes, live: &LIVE }]);
                for step in 0..64 {
                    let from = Some(MainBlock::in_segment(segment, step));
                    let block = BlockTraits { index: step, from, ..BlockTraits::default() };
                    let _ = sfs.log(&block);
                    sfs.note_written(&block, MainBlock::in_segment(Segment::new(20), step));
                    from.into_iter().for_each(|from| sfs.note_dead(from));
                }
                sfs.note_free(segment);
            }
        }
    }

    #[test]
    fn counts_are_exact_to_sixteen_and_near_from_there() {
        for count in (1..70).chain((4..32).flat_map(|bits| [(1 << bits) - 1, 1 << bits, 3 << (bits - 1)])) {
            let read = unpack_count(pack_count(count));
            assert!(if count < EXACT { read == count } else { read.abs_diff(count) <= count / 16 }, "{count}: {read}");
            assert_eq!(pack_count(read), pack_count(count), "again and again it stays the same");
        }
        assert!((240..=255).all(|code| unpack_count(code) > 0), "codes that are made up");
        assert_eq!(unpack_count(pack_count(u32::MAX)) >> 28, 15);
        assert_eq!(pack(Written::default(), 77), [0; 3]);
        assert_eq!(unpack([0; 3], 77).count, 0);
        assert_eq!(unpack([1, 0xFF, 0xFF], 77), Written { count: 1, time: 0 }, "no age at all: as old as can be");
    }
}
