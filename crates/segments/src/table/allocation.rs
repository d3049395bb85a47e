//! Segments on their way: free, taken by a log, closed, prefree. How they get free again is in `release`.

use std::ops::Range;

use super::{FULL, SegmentState, SegmentTable};
use crate::bitmap::Bitmap;
use crate::{Section, Segment, SegmentKind, Segments};

impl SegmentTable {
    /// Free segments.
    #[must_use]
    pub fn free_segments(&self) -> u32 {
        self.free.count()
    }

    /// Sections all of whose segments are free.
    #[must_use]
    pub fn free_sections(&self) -> u32 {
        self.free_sections.count()
    }

    /// Prefree segments. What a checkpoint records as its free segments is these and the free ones.
    #[must_use]
    pub fn prefree_segments(&self) -> u32 {
        self.prefree.count()
    }

    /// Sections that are not free but would be if the prefree segments were released: what a checkpoint would gain.
    #[must_use]
    pub fn prefree_sections(&self) -> u32 {
        self.prefree_sections
    }

    /// Takes a free segment for a log of `kind` that has filled `after` (`None`: a log that begins). In this order:
    ///
    /// 1. the segment right after `after`, if it is free and in the same section;
    /// 2. the first segment of a free section, the next one upward from `after`, wrapping at the end;
    /// 3. any free segment, the next one upward, wrapping.
    ///
    /// Segments to [avoid](SegmentTable::avoid) are left out, unless no other is free.
    ///
    /// `None` when nothing is free. The segment is then active, of `kind`, and its entry dirty. `after` itself is not
    /// closed by this; see [`SegmentTable::close_segment`].
    pub fn open_segment(&mut self, kind: SegmentKind, after: Option<Segment>) -> Option<Segment> {
        let next = match after {
            None => 0,
            Some(after) => self.at(after) as u32 + 1,
        };
        let avoided = self.avoided.numbers();
        let segment = self.choose_free(next, &avoided).or_else(|| self.choose_free(next, &(0..0))).map(Segment::new)?;
        self.enter(segment, SegmentState::Active);
        self.kinds[segment.index()] = kind;
        self.dirty_entries.insert(segment.get());
        Some(segment)
    }

    /// From now on, logs take these segments only when no other is free, and none of their slack: they are being emptied. Ends of the range inside a
    /// section count for the whole section.
    pub fn avoid(&mut self, segments: Segments) {
        let size = self.segments_per_section;
        let Range { start, end } = segments.numbers();
        let start = start / size * size;
        let end = end.next_multiple_of(size).min(self.segments());
        self.avoided = Segments::new(Segment::new(start), end.saturating_sub(start));
        self.void_promises(&self.avoided.clone());
    }

    /// Free sections that are not to be avoided.
    #[must_use]
    pub fn preferred_free_sections(&self) -> u32 {
        let avoided = self.avoided_sections().filter(|&section| self.free_sections.contains(section)).count();
        // At most as many as are in the set.
        self.free_sections.count() - avoided as u32
    }

    fn avoided_sections(&self) -> Range<u32> {
        self.avoided.numbers().start / self.segments_per_section..self.avoided.numbers().end / self.segments_per_section
    }

    fn choose_free(&self, next: u32, avoided: &Range<u32>) -> Option<u32> {
        let size = self.segments_per_section;
        if !next.is_multiple_of(size) && self.free.contains(next) && !avoided.contains(&next) {
            return Some(next);
        }
        let sections = avoided.start / size..avoided.end / size;
        match next_outside(&self.free_sections, next.div_ceil(size), &sections) {
            Some(section) => Some(section * size),
            None => next_outside(&self.free, next, avoided),
        }
    }

    /// A log leaves its segment, which becomes dirty, full or, without a live block, prefree. Does nothing to a segment
    /// that is not active.
    pub fn close_segment(&mut self, segment: Segment) {
        if self.state(segment) == SegmentState::Active {
            self.enter(segment, self.closed_state(segment));
        }
    }

    /// The state that a segment with no log has by its live blocks. Recovery apart, a free one never gets here.
    pub(super) fn closed_state(&self, segment: Segment) -> SegmentState {
        match self.live[segment.index()] {
            0 => SegmentState::Prefree,
            FULL => SegmentState::Full,
            _ => SegmentState::Dirty,
        }
    }

    /// Changes a segment's state, and every count that depends on it.
    pub(super) fn enter(&mut self, segment: Segment, state: SegmentState) {
        let at = self.at(segment);
        let old = std::mem::replace(&mut self.states[at], state);
        self.state_counts[old as usize] -= 1;
        self.state_counts[state as usize] += 1;
        let unused = |state| matches!(state, SegmentState::Free | SegmentState::Prefree);
        if old == state || !(unused(old) || unused(state)) {
            return;
        }
        let section = self.section_of(segment);
        let was_prefree = self.is_prefree_section(section);
        let counts = &mut self.section_counts[section.index()];
        match old {
            SegmentState::Free => {
                counts.free -= 1;
                self.free.remove(segment.get());
                self.free_sections.remove(section.get());
            }
            SegmentState::Prefree => {
                counts.prefree -= 1;
                self.prefree.remove(segment.get());
            }
            _ => {}
        }
        match state {
            SegmentState::Free => {
                counts.free += 1;
                self.free.insert(segment.get());
                if counts.free == self.segments_per_section {
                    self.free_sections.insert(section.get());
                }
            }
            SegmentState::Prefree => {
                counts.prefree += 1;
                self.prefree.insert(segment.get());
            }
            _ => {}
        }
        self.prefree_sections -= u32::from(was_prefree);
        self.prefree_sections += u32::from(self.is_prefree_section(section));
    }

    fn is_prefree_section(&self, section: Section) -> bool {
        let counts = self.section_counts[section.index()];
        counts.prefree > 0 && counts.free + counts.prefree == self.segments_per_section
    }
}

/// The next member upward from `start` that is not in `avoided`, wrapping.
fn next_outside(set: &Bitmap, start: u32, avoided: &Range<u32>) -> Option<u32> {
    let outside = |found: &u32| !avoided.contains(found);
    let first = set.next_wrapping(start)?;
    // From the range's end on, one inside comes only after all others.
    if outside(&first) { Some(first) } else { set.next_wrapping(avoided.end).filter(outside) }
}
