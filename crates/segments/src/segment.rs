//! The numbers of segments and of sections.

use std::fmt;
use std::ops::Range;

/// Which segment of the main area, counted from its start.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Segment(u32);

/// Which section of the main area, counted from its start. Which segments it has is known to the
/// [table](crate::SegmentTable::segments_of).
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Section(u32);

macro_rules! number {
    ($name:ident, $what:literal) => {
        impl $name {
            #[doc = concat!("The ", $what, " with this number.")]
            #[must_use]
            pub const fn new(number: u32) -> Self {
                $name(number)
            }

            /// Its number.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }

            #[doc = concat!("Its number, as an index into an array of one element for each ", $what, ".")]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(Segment, "segment");
number!(Section, "section");

impl Segment {
    /// Every segment of a main area that has `count` of them.
    #[must_use]
    pub const fn all(count: u32) -> Segments {
        Segments(0..count)
    }
}

impl Section {
    /// Every section of a main area that has `count` of them, rising.
    pub fn all(count: u32) -> impl DoubleEndedIterator<Item = Section> + ExactSizeIterator + use<> {
        (0..count).map(Section)
    }
}

/// Neighbouring segments, from the lowest number to the highest.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Segments(Range<u32>);

impl Segments {
    /// From `first` on, `count` segments.
    #[must_use]
    pub const fn new(first: Segment, count: u32) -> Self {
        Segments(first.0..first.0 + count)
    }

    /// The numbers of those that are left.
    #[must_use]
    pub const fn numbers(&self) -> Range<u32> {
        self.0.start..self.0.end
    }

    /// The first that is left.
    #[must_use]
    pub const fn start(&self) -> Segment {
        Segment(self.0.start)
    }

    /// The one behind the last.
    #[must_use]
    pub const fn end(&self) -> Segment {
        Segment(self.0.end)
    }

    /// Whether it is among those that are left.
    #[must_use]
    pub fn contains(&self, segment: Segment) -> bool {
        self.0.contains(&segment.0)
    }
}

impl Iterator for Segments {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        self.0.next().map(Segment)
    }

    fn nth(&mut self, n: usize) -> Option<Segment> {
        self.0.nth(n).map(Segment)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Segments {
    fn next_back(&mut self) -> Option<Segment> {
        self.0.next_back().map(Segment)
    }
}

impl ExactSizeIterator for Segments {}
