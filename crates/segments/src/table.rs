//! The segment table: which blocks are live, what each segment is, and which are free.

mod allocation;
mod cleaning;
mod durability;
mod index;
mod live;
mod release;
mod sections;
mod slack;

use crate::bitmap::Bitmap;
use crate::slack::FlashPage;
use crate::{BLOCKS_PER_SEGMENT, MainBlock, Section, Segment, SegmentKind, Segments};
use durability::Durability;
use index::LiveIndex;
use live::LiveMap;
pub(crate) use live::is_set;

pub use release::{Durable, Held};
pub use slack::{Promise, Quiet, Slack, SlackPlaces};

/// The most segments a table takes: all whose blocks a [`MainBlock`] can number. Also F2FS's own limit (16 TiB).
pub const MAX_SEGMENTS: u32 = 1 << 23;

/// Live blocks of a full segment.
const FULL: u16 = BLOCKS_PER_SEGMENT as u16;

/// What may be done with a segment.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentState {
    /// Holds nothing, also by the last durable checkpoint: may be written from its start.
    Free,
    /// A log writes to it.
    Active,
    /// Closed, some blocks live.
    Dirty,
    /// Closed, all blocks live.
    Full,
    /// Closed, no live block, but the last durable checkpoint may still need its blocks: free after the next one.
    Prefree,
    /// Closed, some blocks live; its slack is promised to a log.
    Reserved,
}

impl SegmentState {
    /// How many states there are.
    const COUNT: usize = 6;
}

/// The segments of a volume's main area: live blocks, kind, state and time of modification of each.
///
/// Takes about 28 bytes a segment, and 64 more for each that is partly live: 14 MiB for the 524,288 segments of an
/// empty or full volume of 1 TiB. Marking a block takes constant time.
///
/// ```
/// use basalt_segments::{BLOCKS_PER_SEGMENT, Durable, Greedy, MainBlock, SegmentKind, SegmentState, SegmentTable};
///
/// let mut table = SegmentTable::new(8, 1);
/// // A log fills its first segment, at time 1, and goes on to the next one.
/// let first = table.open_segment(SegmentKind::WarmData, None).expect("a free segment");
/// table.set_live_run(MainBlock::in_segment(first, 0), BLOCKS_PER_SEGMENT, 1);
/// table.open_segment(SegmentKind::WarmData, Some(first)).expect("a free segment");
/// table.close_segment(first);
///
/// // Some of its blocks die. It can be cleaned now.
/// (0..100).for_each(|offset| drop(table.clear_live(MainBlock::in_segment(first, offset), 2)));
/// assert_eq!(table.select_victim(&Greedy, 3, &|_section| false), Some(table.section_of(first)));
///
/// // All are moved away. The segment is free once a checkpoint that no longer needs it is durable.
/// (100..BLOCKS_PER_SEGMENT).for_each(|offset| drop(table.clear_live(MainBlock::in_segment(first, offset), 3)));
/// let prefree = table.prefree();
/// assert_eq!((table.state(first), prefree.as_slice()), (SegmentState::Prefree, &[first][..]));
/// // Here the flush of a device is all that it takes.
/// let durable = Durable::by(|| -> Result<(), std::io::Error> { Ok(()) })?;
/// table.release(&prefree, durable);
/// assert_eq!(table.state(first), SegmentState::Free);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
///
/// Segment, section and block numbers are the caller's to check; every method that takes one panics when it is out of
/// range.
pub struct SegmentTable {
    segments_per_section: u32,
    sections: u32,
    live: Vec<u16>,
    kinds: Vec<SegmentKind>,
    states: Vec<SegmentState>,
    /// Segments by state, in the order of [`SegmentState`].
    state_counts: [u32; SegmentState::COUNT],
    modified: Vec<u64>,
    maps: Vec<LiveMap>,
    /// Live blocks of data segments, and of node segments.
    live_totals: [u64; 2],
    free: Bitmap,
    prefree: Bitmap,
    /// Segments whose SIT entry changed since the last [`SegmentTable::clear_dirty`].
    dirty_entries: Bitmap,
    /// Sections all of whose segments are free.
    free_sections: Bitmap,
    section_counts: Vec<SectionCounts>,
    /// Sections that are not free but have only free and prefree segments.
    prefree_sections: u32,
    /// Segments that are taken only when no other is free.
    avoided: Segments,
    /// Sections by live blocks, if somebody wants it.
    by_live: Option<LiveIndex>,
    /// What else is known of blocks, if somebody wants it.
    durability: Option<Box<Durability>>,
    /// Of reserved segments.
    promises: slack::Promises,
    /// What slack is aligned to.
    flash_page: FlashPage,
}

impl std::fmt::Debug for SegmentTable {
    /// A summary: the table itself is too long for any log line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentTable")
            .field("segments", &self.segments())
            .field("segments_per_section", &self.segments_per_section)
            .field("free_segments", &self.free_segments())
            .field("prefree_segments", &self.prefree_segments())
            .field("live_data_blocks", &self.live_data_blocks())
            .field("live_node_blocks", &self.live_node_blocks())
            .finish_non_exhaustive()
    }
}

/// Segments of a section by state, as far as whole sections are judged by them.
#[derive(Clone, Copy, Default)]
struct SectionCounts {
    free: u32,
    prefree: u32,
}

impl SegmentTable {
    /// A table of free segments.
    ///
    /// # Panics
    ///
    /// If `segments` is above [`MAX_SEGMENTS`] or no multiple of `segments_per_section`, or that is zero or above half of
    /// [`MAX_SEGMENTS`].
    #[must_use]
    pub fn new(segments: u32, segments_per_section: u32) -> Self {
        assert!(segments <= MAX_SEGMENTS, "{segments} segments are more than {MAX_SEGMENTS}");
        // A section's capacity in blocks has to fit a `u32`.
        assert!(
            (1..=MAX_SEGMENTS / 2).contains(&segments_per_section),
            "{segments_per_section} segments do not make a section"
        );
        assert!(
            segments.is_multiple_of(segments_per_section),
            "{segments} segments are not whole sections of {segments_per_section}"
        );
        let sections = segments / segments_per_section;
        let count = segments as usize;
        let mut table = SegmentTable {
            segments_per_section,
            sections,
            live: vec![0; count],
            kinds: vec![SegmentKind::HotData; count],
            states: vec![SegmentState::Free; count],
            state_counts: [segments, 0, 0, 0, 0, 0],
            modified: vec![0; count],
            maps: std::iter::repeat_with(LiveMap::default).take(count).collect(),
            live_totals: [0; 2],
            free: Bitmap::new(segments),
            prefree: Bitmap::new(segments),
            dirty_entries: Bitmap::new(segments),
            free_sections: Bitmap::new(sections),
            section_counts: vec![SectionCounts::default(); sections as usize],
            prefree_sections: 0,
            avoided: Segments::default(),
            by_live: None,
            durability: None,
            promises: slack::Promises::default(),
            flash_page: FlashPage::BLOCK,
        };
        table.finish_load();
        table
    }

    /// At open: a segment as its SIT entry has it. `bitmap` is as on disk, most significant bit first: block `i` is bit
    /// `7 - i % 8` of byte `i / 8`. Returns the live blocks in it, for the caller to compare with the entry's count.
    ///
    /// May be repeated for a segment (the journal overrides the SIT); the last call counts. The counts and states of
    /// the table are right only after [`SegmentTable::finish_load`].
    pub fn load(&mut self, segment: Segment, kind: SegmentKind, bitmap: &[u8; 64], modified: u64) -> u16 {
        let at = self.at(segment);
        let live = self.maps[at].load(bitmap);
        self.live[at] = live;
        self.kinds[at] = kind;
        self.modified[at] = modified;
        live
    }

    /// At open, after all loads: a log writes to this segment.
    pub fn set_active(&mut self, segment: Segment) {
        self.enter(segment, SegmentState::Active);
    }

    /// At open, after all loads: derives states and counts from what was loaded. Segments without live blocks become
    /// free, because what was loaded is what is durable; those set active stay so. Leaves the dirty entries as they are.
    pub fn finish_load(&mut self) {
        self.live_totals = [0; 2];
        self.state_counts = [0; SegmentState::COUNT];
        self.free.clear();
        self.prefree.clear();
        self.free_sections.clear();
        self.section_counts.fill(SectionCounts::default());
        self.prefree_sections = 0;
        for segment in Segment::all(self.segments()) {
            let at = segment.index();
            self.live_totals[usize::from(self.kinds[at].is_node())] += u64::from(self.live[at]);
            if self.states[at] != SegmentState::Active {
                self.states[at] = match self.live[at] {
                    0 => SegmentState::Free,
                    FULL => SegmentState::Full,
                    _ => SegmentState::Dirty,
                };
            }
            self.state_counts[self.states[at] as usize] += 1;
            if self.states[at] == SegmentState::Free {
                self.free.insert(segment.get());
                self.section_counts[at / self.segments_per_section as usize].free += 1;
            }
        }
        for (section, counts) in (0..).zip(&self.section_counts) {
            if counts.free == self.segments_per_section {
                self.free_sections.insert(section);
            }
        }
        if self.by_live.is_some() {
            self.index_by_live();
        }
    }

    /// From now on keeps an index of the sections by live blocks, at 12 bytes a section: policies that look at nothing else find
    /// their victim at once, whatever the size of the table. Worth it where victims are chosen one by one and often; what is
    /// chosen stays the same.
    pub fn index_by_live(&mut self) {
        let live = Section::all(self.sections).map(|section| self.live_in_section(section)).collect();
        self.by_live = Some(LiveIndex::new(self.section_blocks(), live));
    }

    /// Segments in the table.
    #[must_use]
    pub fn segments(&self) -> u32 {
        // The constructor took this very number as a `u32`.
        self.live.len() as u32
    }

    /// Sections in the table.
    #[must_use]
    pub fn sections(&self) -> u32 {
        self.sections
    }

    /// Segments in this state. Takes constant time.
    #[must_use]
    pub fn segments_in(&self, state: SegmentState) -> u32 {
        self.state_counts[state as usize]
    }

    /// Segments in each section.
    #[must_use]
    pub fn segments_per_section(&self) -> u32 {
        self.segments_per_section
    }

    /// What the segment holds. Of a free segment: what it held last.
    #[must_use]
    pub fn kind(&self, segment: Segment) -> SegmentKind {
        self.kinds[self.at(segment)]
    }

    /// Makes a segment without live blocks one of another kind, for recovery that follows a log into a segment the
    /// checkpoint knew as free.
    ///
    /// # Panics
    ///
    /// If a block of the segment is live: its data would turn into nodes or the other way round.
    pub fn set_kind(&mut self, segment: Segment, kind: SegmentKind) {
        let at = self.at(segment);
        assert_eq!(self.live[at], 0, "segment {segment} has live blocks");
        self.kinds[at] = kind;
        self.dirty_entries.insert(segment.get());
    }

    /// Live blocks in the segment, 0 to [`BLOCKS_PER_SEGMENT`].
    #[must_use]
    pub fn live(&self, segment: Segment) -> u16 {
        self.live[self.at(segment)]
    }

    /// When a block of the segment last became live or dead, in the unit of time of [`SegmentTable::set_live`].
    #[must_use]
    pub fn modified(&self, segment: Segment) -> u64 {
        self.modified[self.at(segment)]
    }

    /// The live blocks as the SIT has them on disk; see [`SegmentTable::load`].
    #[must_use]
    pub fn bitmap(&self, segment: Segment) -> [u8; 64] {
        let at = self.at(segment);
        self.maps[at].to_bytes(self.live[at])
    }

    /// The segment's state.
    #[must_use]
    pub fn state(&self, segment: Segment) -> SegmentState {
        self.states[self.at(segment)]
    }

    /// Whether the block is live.
    #[must_use]
    pub fn is_live(&self, block: MainBlock) -> bool {
        let (segment, offset) = split(block);
        let at = self.at(segment);
        self.maps[at].contains(self.live[at], offset)
    }

    /// The offsets in the segment of its live blocks, rising.
    pub fn live_blocks(&self, segment: Segment) -> impl Iterator<Item = u32> + use<> {
        let at = self.at(segment);
        self.maps[at].offsets(self.live[at])
    }

    /// A block was written and is in use. `now` is in the engine's unit of time (F2FS: seconds of mounted time).
    ///
    /// Returns false, with nothing changed, if it was live already: the caller's structures contradict each other.
    /// In a free or prefree segment (recovery alone writes there) this makes the segment dirty.
    #[must_use = "false is a corruption to report"]
    pub fn set_live(&mut self, block: MainBlock, now: u64) -> bool {
        let (segment, offset) = split(block);
        let at = self.at(segment);
        if !self.maps[at].insert(self.live[at], offset) {
            return false;
        }
        self.note_live(block, 1);
        self.gained(segment, 1, now);
        true
    }

    /// A block is no longer in use. A segment that is not active and has no live block left becomes prefree.
    ///
    /// Returns false, with nothing changed, if it was not live: the caller's structures contradict each other.
    #[must_use = "false is a corruption to report"]
    pub fn clear_live(&mut self, block: MainBlock, now: u64) -> bool {
        let (segment, offset) = split(block);
        let at = self.at(segment);
        if !self.maps[at].remove(self.live[at], offset) {
            return false;
        }
        self.note_dead(segment, &[offset]);
        self.lost(segment, 1, now);
        true
    }

    /// As [`SegmentTable::set_live`] for `count` neighbouring blocks of one segment, which is faster than one by one. False if one of
    /// them was live already; those in front of it are live then.
    #[must_use = "false is a corruption to report"]
    pub fn set_live_run(&mut self, first: MainBlock, count: u32, now: u64) -> bool {
        let (segment, offset) = split(first);
        let at = self.at(segment);
        assert!(offset + count <= BLOCKS_PER_SEGMENT, "{count} blocks from {offset} on leave their segment");
        let done = self.maps[at].insert_run(self.live[at], offset, count);
        if done > 0 {
            self.note_live(first, done);
            self.gained(segment, done, now);
        }
        done == count
    }

    /// As [`SegmentTable::clear_live`] for blocks of one segment, by their offsets, which is faster than one by one. False if one of
    /// them was not live; those in front of it are dead then.
    #[must_use = "false is a corruption to report"]
    pub fn clear_live_all(&mut self, segment: Segment, offsets: &[u32], now: u64) -> bool {
        let at = self.at(segment);
        assert!(offsets.iter().all(|&offset| offset < BLOCKS_PER_SEGMENT), "an offset is outside its segment");
        let done = self.maps[at].remove_all(self.live[at], offsets);
        if done > 0 {
            self.note_dead(segment, &offsets[..done as usize]);
            self.lost(segment, done, now);
        }
        done as usize == offsets.len()
    }

    /// Live blocks in data segments.
    #[must_use]
    pub fn live_data_blocks(&self) -> u64 {
        self.live_totals[0]
    }

    /// Live blocks in node segments.
    #[must_use]
    pub fn live_node_blocks(&self) -> u64 {
        self.live_totals[1]
    }

    /// The segments whose SIT entry changed since [`SegmentTable::clear_dirty`], rising.
    #[must_use]
    pub fn dirty_entries(&self) -> Vec<Segment> {
        self.dirty_entries.to_vec().into_iter().map(Segment::new).collect()
    }

    /// How many segments [`SegmentTable::dirty_entries`] would name.
    #[must_use]
    pub fn dirty_entry_count(&self) -> u32 {
        self.dirty_entries.count()
    }

    /// Every changed SIT entry is on its way to the disk.
    pub fn clear_dirty(&mut self) {
        self.dirty_entries.clear();
    }

    /// Has the segment's SIT entry written again, changed or not.
    pub fn mark_dirty(&mut self, segment: Segment) {
        self.at(segment);
        self.dirty_entries.insert(segment.get());
    }

    /// Bytes of memory the table uses on the heap.
    #[must_use]
    pub fn memory(&self) -> usize {
        let per_segment = size_of::<u16>()
            + size_of::<SegmentKind>()
            + size_of::<SegmentState>()
            + size_of::<u64>()
            + size_of::<LiveMap>();
        self.live.len() * per_segment
            + self.maps.iter().map(LiveMap::memory).sum::<usize>()
            + self.section_counts.len() * size_of::<SectionCounts>()
            + self.by_live.as_ref().map_or(0, LiveIndex::memory)
            + self.durability.as_ref().map_or(0, |known| known.memory())
            + [&self.free, &self.prefree, &self.dirty_entries, &self.free_sections]
                .map(Bitmap::memory)
                .iter()
                .sum::<usize>()
    }

    /// The segment's index in the vectors, checked.
    fn at(&self, segment: Segment) -> usize {
        assert!(segment.index() < self.live.len(), "segment {segment} of {}", self.live.len());
        segment.index()
    }

    /// Counts blocks of a segment that became live; at most as many as it has, so they fit.
    fn gained(&mut self, segment: Segment, count: u32, now: u64) {
        let at = segment.index();
        self.live[at] += count as u16;
        self.live_totals[usize::from(self.kinds[at].is_node())] += u64::from(count);
        if let Some(index) = &mut self.by_live {
            index.change(Section::new(segment.get() / self.segments_per_section), true, count);
        }
        self.touch(segment, now);
    }

    /// Counts blocks of a segment that died.
    fn lost(&mut self, segment: Segment, count: u32, now: u64) {
        let at = segment.index();
        self.live[at] -= count as u16;
        self.live_totals[usize::from(self.kinds[at].is_node())] -= u64::from(count);
        if let Some(index) = &mut self.by_live {
            index.change(Section::new(segment.get() / self.segments_per_section), false, count);
        }
        self.touch(segment, now);
    }

    /// After a change of a segment's live blocks: its entry is dirty, and closed segments change state with the count.
    fn touch(&mut self, segment: Segment, now: u64) {
        let at = segment.index();
        self.modified[at] = now;
        self.dirty_entries.insert(segment.get());
        match self.states[at] {
            SegmentState::Active => {}
            SegmentState::Reserved if (1..FULL).contains(&self.live[at]) => {}
            state => {
                if state == SegmentState::Reserved {
                    self.promises.forget(segment);
                }
                self.enter(segment, self.closed_state(segment));
            }
        }
    }
}

/// A block's segment and its offset in there.
fn split(block: MainBlock) -> (Segment, u32) {
    (block.segment(), block.offset())
}
