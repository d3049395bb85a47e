//! The segment table against a naive model, over random operations.

use basalt_segments::SegmentState::{Active, Dirty, Free, Full, Prefree};
use basalt_segments::{
    CostBenefit, Durable, Greedy, MainBlock, Section, SectionView, Segment, SegmentKind, SegmentState, SegmentTable,
    VictimPolicy,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECTIONS: u32 = 4;

/// One segment, in the plainest form.
#[derive(Clone)]
struct Entry {
    live: BTreeSet<u32>,
    kind: SegmentKind,
    modified: u64,
    state: SegmentState,
    dirty: bool,
}

struct Model {
    segments: Vec<Entry>,
    per_section: u32,
}

impl Model {
    fn new(per_section: u32) -> Self {
        let segment =
            Entry { live: BTreeSet::new(), kind: SegmentKind::HotData, modified: 0, state: Free, dirty: false };
        Model { segments: vec![segment; (SECTIONS * per_section) as usize], per_section }
    }

    fn touch(&mut self, at: usize, now: u64) {
        let segment = &mut self.segments[at];
        (segment.modified, segment.dirty) = (now, true);
        if segment.state != Active {
            self.close(at);
        }
    }

    fn close(&mut self, at: usize) {
        let segment = &mut self.segments[at];
        segment.state = match segment.live.len() {
            0 => Prefree,
            512 => Full,
            _ => Dirty,
        };
    }

    fn section(&self, section: u32) -> &[Entry] {
        &self.segments[(section * self.per_section) as usize..][..self.per_section as usize]
    }

    fn is_free_section(&self, section: u32) -> bool {
        self.section(section).iter().all(|segment| segment.state == Free)
    }

    fn is_prefree_section(&self, section: u32) -> bool {
        let unused = |segment: &Entry| matches!(segment.state, Free | Prefree);
        self.section(section).iter().all(unused) && !self.is_free_section(section)
    }

    fn next(&self, after: Option<Segment>) -> Option<Segment> {
        let total = self.segments.len() as u32;
        let start = after.map_or(0, |after| after.get() + 1);
        let is_free = |segment: u32| self.segments[segment as usize].state == Free;
        if !start.is_multiple_of(self.per_section) && is_free(start) {
            return Some(Segment::new(start));
        }
        let upward = || (start..total).chain(0..start);
        let begins_free_section = |&segment: &u32| {
            segment.is_multiple_of(self.per_section) && self.is_free_section(segment / self.per_section)
        };
        upward().find(begins_free_section).or_else(|| upward().find(|&segment| is_free(segment))).map(Segment::new)
    }

    fn views(&self) -> Vec<SectionView> {
        let capacity = self.per_section * 512;
        Section::all(SECTIONS)
            .map(|section| {
                let segments = self.section(section.get());
                let live: u32 = segments.iter().map(|segment| segment.live.len() as u32).sum();
                let weighted: u64 = segments.iter().map(|segment| segment.modified * segment.live.len() as u64).sum();
                SectionView { section, live, capacity, modified: weighted / u64::from(live.max(1)), rate: None }
            })
            .filter(|view| view.live > 0 && view.live < capacity)
            .collect()
    }

    fn victim(&self, policy: &dyn VictimPolicy, now: u64, skip: u8) -> Option<Section> {
        let views = self.views();
        let oldest = views.iter().map(|view| view.modified).min().unwrap_or(u64::MAX);
        let youngest = views.iter().map(|view| view.modified).max().unwrap_or(0);
        views
            .iter()
            .filter(|view| skip >> view.section.get() & 1 == 0)
            .filter(|view| self.section(view.section.get()).iter().all(|segment| segment.state != Active))
            .map(|view| (policy.cost(view, now, oldest, youngest), view.section))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
            .map(|(_, section)| section)
    }
}

#[derive(Clone, Debug)]
enum Operation {
    /// Entry, first offset, how many: whole runs, so that segments do fill and empty.
    SetLive(Segment, u32, u32),
    ClearLive(Segment, u32, u32),
    Open(SegmentKind, Option<Segment>),
    Close(Segment),
    SetActive(Segment),
    MarkDirty(Segment),
    ClearDirty,
    Freeze,
    Release,
    /// Writes every entry to "disk" and opens a new table from that.
    Reload,
    /// Keeps an index from now on, until the next reload.
    Index,
}

fn operation(segments: u32) -> impl Strategy<Value = Operation> {
    let segment = (0..segments).prop_map(Segment::new);
    let run = (segment.clone(), prop_oneof![Just((0u32, 512u32)), (0u32..512, 1u32..200)]);
    let kind = (0u8..6).prop_map(|value| SegmentKind::from_u8(value).expect("below six"));
    prop_oneof![
        6 => run.clone().prop_map(|(segment, (from, count))| Operation::SetLive(segment, from, count)),
        6 => run.prop_map(|(segment, (from, count))| Operation::ClearLive(segment, from, count)),
        4 => (kind, proptest::option::of(segment.clone())).prop_map(|(kind, after)| Operation::Open(kind, after)),
        3 => segment.clone().prop_map(Operation::Close),
        1 => segment.clone().prop_map(Operation::SetActive),
        1 => segment.prop_map(Operation::MarkDirty),
        1 => Just(Operation::ClearDirty),
        2 => Just(Operation::Freeze),
        2 => Just(Operation::Release),
        1 => Just(Operation::Reload),
        1 => Just(Operation::Index),
    ]
}

struct Pair {
    table: SegmentTable,
    model: Model,
    frozen: Vec<Segment>,
}

impl Pair {
    fn apply(&mut self, operation: &Operation, now: u64) {
        let Pair { table, model, frozen } = self;
        match *operation {
            Operation::SetLive(segment, from, count) if now % 2 == 1 => {
                let live = &mut model.segments[segment.index()].live;
                let count = count.min(512 - from);
                let done = (from..from + count).take_while(|&offset| live.insert(offset)).count() as u32;
                assert_eq!(table.set_live_run(MainBlock::in_segment(segment, from), count, now), done == count);
                if done > 0 {
                    model.touch(segment.index(), now);
                }
            }
            Operation::ClearLive(segment, from, count) if now % 2 == 1 => {
                let live = &mut model.segments[segment.index()].live;
                let offsets: Vec<u32> = (from..(from + count).min(512)).collect();
                let done = offsets.iter().take_while(|offset| live.remove(offset)).count();
                assert_eq!(table.clear_live_all(segment, &offsets, now), done == offsets.len());
                if done > 0 {
                    model.touch(segment.index(), now);
                }
            }
            Operation::SetLive(segment, from, count) => {
                for offset in from..(from + count).min(512) {
                    let added = model.segments[segment.index()].live.insert(offset);
                    assert_eq!(table.set_live(MainBlock::in_segment(segment, offset), now), added);
                    if added {
                        model.touch(segment.index(), now);
                    }
                }
            }
            Operation::ClearLive(segment, from, count) => {
                for offset in from..(from + count).min(512) {
                    let removed = model.segments[segment.index()].live.remove(&offset);
                    assert_eq!(table.clear_live(MainBlock::in_segment(segment, offset), now), removed);
                    if removed {
                        model.touch(segment.index(), now);
                    }
                }
            }
            Operation::Open(kind, after) => {
                let expected = model.next(after);
                assert_eq!(table.open_segment(kind, after), expected);
                if let Some(segment) = expected {
                    let segment = &mut model.segments[segment.index()];
                    (segment.state, segment.kind, segment.dirty) = (Active, kind, true);
                }
            }
            Operation::Close(segment) => {
                table.close_segment(segment);
                if model.segments[segment.index()].state == Active {
                    model.close(segment.index());
                }
            }
            Operation::SetActive(segment) => {
                table.set_active(segment);
                model.segments[segment.index()].state = Active;
            }
            Operation::MarkDirty(segment) => {
                table.mark_dirty(segment);
                model.segments[segment.index()].dirty = true;
            }
            Operation::ClearDirty => {
                table.clear_dirty();
                model.segments.iter_mut().for_each(|segment| segment.dirty = false);
            }
            Operation::Freeze => *frozen = table.prefree(),
            Operation::Release => {
                table.release(frozen, Durable::without_device());
                for &segment in frozen.iter() {
                    let segment = &mut model.segments[segment.index()];
                    if segment.state == Prefree {
                        segment.state = Free;
                    }
                }
            }
            Operation::Reload => self.reload(),
            Operation::Index => table.index_by_live(),
        }
    }

    fn reload(&mut self) {
        let mut table = SegmentTable::new(self.table.segments(), self.table.segments_per_section());
        for segment in Segment::all(table.segments()) {
            let old = &self.table;
            let live = table.load(segment, old.kind(segment), &old.bitmap(segment), old.modified(segment));
            assert_eq!(live, old.live(segment));
        }
        for (segment, entry) in Segment::all(table.segments()).zip(&mut self.model.segments) {
            entry.dirty = false;
            match entry.state {
                Active => table.set_active(segment),
                Prefree => entry.state = Free,
                _ => {}
            }
        }
        table.finish_load();
        self.table = table;
    }

    fn compare(&self, now: u64, skip: u8) {
        let Pair { table, model, .. } = self;
        for (number, segment) in Segment::all(table.segments()).zip(&model.segments) {
            assert_eq!(table.state(number), segment.state, "state of segment {number}");
            assert_eq!(usize::from(table.live(number)), segment.live.len());
            assert_eq!((table.kind(number), table.modified(number)), (segment.kind, segment.modified));
            assert!(table.live_blocks(number).eq(segment.live.iter().copied()));
            let bitmap = table.bitmap(number);
            for offset in 0..512 {
                let live = segment.live.contains(&offset);
                assert_eq!(table.is_live(MainBlock::in_segment(number, offset)), live);
                assert_eq!(bitmap[offset as usize / 8] << (offset % 8) & 0x80 != 0, live);
            }
        }
        let numbers = |wanted: &dyn Fn(&Entry) -> bool| -> Vec<Segment> {
            Segment::all(table.segments())
                .zip(&model.segments)
                .filter(|(_, segment)| wanted(segment))
                .map(|(number, _)| number)
                .collect()
        };
        let live = |node: bool| -> u64 {
            let of_class = model.segments.iter().filter(|segment| segment.kind.is_node() == node);
            of_class.map(|segment| segment.live.len() as u64).sum()
        };
        let prefree = numbers(&|segment| segment.state == Prefree);
        assert_eq!(table.free_segments() as usize, numbers(&|segment| segment.state == Free).len());
        assert_eq!(table.prefree_segments() as usize, prefree.len());
        assert_eq!(table.prefree(), prefree);
        for state in [Free, Active, Dirty, Full, Prefree] {
            let counted = numbers(&|segment| segment.state == state).len();
            assert_eq!(table.segments_in(state) as usize, counted, "segments that are {state:?}");
        }
        assert_eq!(table.dirty_entries(), numbers(&|segment| segment.dirty));
        assert_eq!(table.free_sections() as usize, (0..SECTIONS).filter(|&s| model.is_free_section(s)).count());
        assert_eq!(table.prefree_sections() as usize, (0..SECTIONS).filter(|&s| model.is_prefree_section(s)).count());
        assert_eq!((table.live_data_blocks(), table.live_node_blocks()), (live(false), live(true)));
        for policy in [&Greedy as &dyn VictimPolicy, &CostBenefit] {
            let found = table.select_victim(policy, now, &|section| skip >> section.get() & 1 != 0);
            assert_eq!(found, model.victim(policy, now, skip), "victim by {}", policy.name());
            let all = table.select_victims(policy, now, &|section| skip >> section.get() & 1 != 0, SECTIONS as usize);
            let mut skip = skip;
            for victim in &all {
                assert_eq!(Some(*victim), model.victim(policy, now, skip), "victims {all:?} by {}", policy.name());
                skip |= 1 << victim.get();
            }
            assert_eq!(model.victim(policy, now, skip), None, "victims {all:?} by {}", policy.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn behaves_as_the_model(
        (per_section, operations) in (1u32..=4).prop_flat_map(|per_section| {
            (Just(per_section), prop::collection::vec((operation(SECTIONS * per_section), 0u64..50, 0u8..16), 1..60))
        })
    ) {
        let table = SegmentTable::new(SECTIONS * per_section, per_section);
        let mut pair = Pair { table, model: Model::new(per_section), frozen: Vec::new() };
        let mut now = 0;
        for (operation, passed, skip) in operations {
            now += passed;
            pair.apply(&operation, now);
            pair.compare(now, skip);
        }
    }

    #[test]
    fn any_bitmap_survives_loading(
        bitmap in prop_oneof![
            prop::collection::vec(any::<u8>(), 64),
            (Just(vec![0xff_u8; 64]), 0usize..64, any::<u8>()).prop_map(|(mut all, at, byte)| { all[at] = byte; all }),
            (Just(vec![0_u8; 64]), 0usize..64, any::<u8>()).prop_map(|(mut none, at, byte)| { none[at] = byte; none }),
        ]
    ) {
        let bitmap: [u8; 64] = bitmap.try_into().expect("64 bytes");
        let mut table = SegmentTable::new(1, 1);
        let live = table.load(Segment::new(0), SegmentKind::ColdNode, &bitmap, 0);
        table.finish_load();
        prop_assert_eq!(u32::from(live), bitmap.iter().map(|byte| byte.count_ones()).sum::<u32>());
        prop_assert_eq!(table.bitmap(Segment::new(0)), bitmap);
        prop_assert_eq!(table.live_blocks(Segment::new(0)).count(), usize::from(live));
        prop_assert_eq!(table.live_node_blocks(), u64::from(live));
    }
}
