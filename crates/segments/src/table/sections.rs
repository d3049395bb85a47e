//! Segments and the sections that they make up.

use super::SegmentTable;
use crate::{BLOCKS_PER_SEGMENT, Section, Segment, Segments};

impl SegmentTable {
    /// The section a segment belongs to.
    #[must_use]
    pub fn section_of(&self, segment: Segment) -> Section {
        self.at(segment);
        Section::new(segment.get() / self.segments_per_section)
    }

    /// The segments of a section.
    #[must_use]
    pub fn segments_of(&self, section: Section) -> Segments {
        assert!(section.get() < self.sections, "section {section} of {}", self.sections);
        Segments::new(Segment::new(section.get() * self.segments_per_section), self.segments_per_section)
    }

    /// The sections that have any of these segments, rising.
    pub fn sections_with(&self, segments: &Segments) -> impl Iterator<Item = Section> + Clone + use<> {
        let numbers = segments.numbers();
        let size = self.segments_per_section;
        (numbers.start / size..numbers.end.div_ceil(size)).map(Section::new)
    }

    /// Where a section's segments are in the vectors.
    pub(super) fn indices_of(&self, section: Section) -> std::ops::Range<usize> {
        let segments = self.segments_of(section);
        segments.start().index()..segments.end().index()
    }

    /// How many blocks of its section lie in front of block `offset` of a segment.
    #[must_use]
    pub fn position_in_section(&self, segment: Segment, offset: u32) -> u32 {
        segment.get() % self.segments_per_section * BLOCKS_PER_SEGMENT + offset
    }

    /// Blocks in a section.
    #[must_use]
    pub fn section_blocks(&self) -> u32 {
        self.segments_per_section * BLOCKS_PER_SEGMENT
    }

    /// Live blocks in a section.
    #[must_use]
    pub fn live_in_section(&self, section: Section) -> u32 {
        self.segments_of(section).map(|segment| u32::from(self.live(segment))).sum()
    }

    /// Blocks of a section that have to be moved to empty it: live ones and, where they are [copied](Self::track_durability), pre-invalid ones.
    #[must_use]
    pub fn needed_in_section(&self, section: Section) -> u32 {
        let kept = |segment| u32::from(self.kept(segment));
        self.live_in_section(section) + self.segments_of(section).map(kept).sum::<u32>()
    }

    /// Whether all segments of a section are free.
    #[must_use]
    pub fn is_free_section(&self, section: Section) -> bool {
        self.free_sections.contains(section.get())
    }
}
