//! Segments on their way: free, taken by a log, closed, prefree, and free again after a checkpoint.

use super::{FULL, SegmentState, SegmentTable};
use crate::{SegmentKind, SegmentNumber};

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
    /// `None` when nothing is free. The segment is then active, of `kind`, and its entry dirty. `after` itself is not
    /// closed by this; see [`SegmentTable::close_segment`].
    pub fn open_segment(&mut self, kind: SegmentKind, after: Option<SegmentNumber>) -> Option<SegmentNumber> {
        let next = match after {
            None => 0,
            Some(after) => self.at(after) as u32 + 1,
        };
        let segment = if !next.is_multiple_of(self.segments_per_section) && self.free.contains(next) {
            next
        } else if let Some(section) = self.free_sections.next_wrapping(next.div_ceil(self.segments_per_section)) {
            section * self.segments_per_section
        } else {
            self.free.next_wrapping(next)?
        };
        self.enter(segment, SegmentState::Active);
        self.kinds[segment as usize] = kind;
        self.dirty_entries.insert(segment);
        Some(segment)
    }

    /// A log leaves its segment, which becomes dirty, full or, without a live block, prefree. Does nothing to a segment
    /// that is not active.
    pub fn close_segment(&mut self, segment: SegmentNumber) {
        if self.state(segment) == SegmentState::Active {
            self.enter(segment, self.closed_state(segment));
        }
    }

    /// The prefree segments, rising: a checkpoint takes this when it freezes the SIT, and gives it to
    /// [`SegmentTable::release`] when it is durable. Segments that become prefree in between wait for the next one.
    #[must_use]
    pub fn prefree(&self) -> Vec<SegmentNumber> {
        self.prefree.to_vec()
    }

    /// The checkpoint that no longer needs these segments is durable: those that are prefree become free.
    pub fn release(&mut self, segments: &[SegmentNumber]) {
        for &segment in segments {
            if self.state(segment) == SegmentState::Prefree {
                self.enter(segment, SegmentState::Free);
            }
        }
    }

    /// The state that a segment with no log has by its live blocks. Recovery apart, a free one never gets here.
    pub(super) fn closed_state(&self, segment: SegmentNumber) -> SegmentState {
        match self.live[segment as usize] {
            0 => SegmentState::Prefree,
            FULL => SegmentState::Full,
            _ => SegmentState::Dirty,
        }
    }

    /// Changes a segment's state, and every count that depends on it.
    pub(super) fn enter(&mut self, segment: SegmentNumber, state: SegmentState) {
        let at = self.at(segment);
        let old = std::mem::replace(&mut self.states[at], state);
        let unused = |state| matches!(state, SegmentState::Free | SegmentState::Prefree);
        if old == state || !(unused(old) || unused(state)) {
            return;
        }
        let section = segment / self.segments_per_section;
        let was_prefree = self.is_prefree_section(section);
        let counts = &mut self.section_counts[section as usize];
        match old {
            SegmentState::Free => {
                counts.free -= 1;
                self.free.remove(segment);
                self.free_sections.remove(section);
            }
            SegmentState::Prefree => {
                counts.prefree -= 1;
                self.prefree.remove(segment);
            }
            _ => {}
        }
        match state {
            SegmentState::Free => {
                counts.free += 1;
                self.free.insert(segment);
                if counts.free == self.segments_per_section {
                    self.free_sections.insert(section);
                }
            }
            SegmentState::Prefree => {
                counts.prefree += 1;
                self.prefree.insert(segment);
            }
            _ => {}
        }
        self.prefree_sections -= u32::from(was_prefree);
        self.prefree_sections += u32::from(self.is_prefree_section(section));
    }

    fn is_prefree_section(&self, section: u32) -> bool {
        let counts = self.section_counts[section as usize];
        counts.prefree > 0 && counts.free + counts.prefree == self.segments_per_section
    }
}
