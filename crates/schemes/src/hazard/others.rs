//! How soon blocks die that are in no group: nodes, and blocks of directories.

use basalt_segments::{MainBlock, Segment};

/// What is left of what was counted of a segment with each of its deaths: about the last 64 count.
const KEEPS: f32 = 63.0 / 64.0;

/// Segments of blocks in no group, and how often these died lately.
#[derive(Default)]
pub struct Others {
    segments: Vec<Counted>,
}

/// A segment.
#[derive(Clone, Copy, Default)]
struct Counted {
    /// Blocks that were written to it, less those that died.
    live: u32,
    /// Up to when `lived` is counted.
    counted: u32,
    /// Deaths, and how long blocks lived for them. Both fade.
    died: f32,
    lived: f32,
}

impl Counted {
    fn lived(&self, now: u32) -> f32 {
        self.lived + self.live as f32 * now.wrapping_sub(self.counted) as f32
    }

    fn count(&mut self, now: u32) {
        (self.lived, self.counted) = (self.lived(now), now);
    }
}

impl Others {
    /// A block of no group was written at this place.
    pub fn note_written(&mut self, place: MainBlock, now: u32) {
        let segment = place.segment().index();
        if self.segments.len() <= segment {
            self.segments.resize(segment + 1, Counted::default());
        }
        let counted = &mut self.segments[segment];
        counted.count(now);
        counted.live += 1;
    }

    /// What was at this place is dead.
    pub fn note_dead(&mut self, place: MainBlock, now: u32) {
        let counted = self.segments.get_mut(place.segment().index()).filter(|counted| counted.live > 0);
        let Some(counted) = counted else { return };
        counted.count(now);
        counted.live -= 1;
        counted.died = counted.died * KEEPS + 1.0;
        counted.lived *= KEEPS;
    }

    /// A segment is free.
    pub fn free(&mut self, segment: Segment) {
        if let Some(counted) = self.segments.get_mut(segment.index()) {
            *counted = Counted::default();
        }
    }

    /// How likely it is that one of these blocks dies with the next block that users write; `None` if these segments hold none.
    pub fn rate(&self, segments: std::ops::Range<u32>, now: u32) -> Option<f64> {
        let counted = segments.filter_map(|at| self.segments.get(at as usize)).filter(|counted| counted.live > 0);
        let (died, lived) = counted.fold((0.0, 0.0), |(died, lived), one| (died + one.died, lived + one.lived(now)));
        (lived > 0.0).then(|| f64::from(died.max(1.0) / lived))
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.segments.capacity() * size_of::<Counted>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_may_wrap() {
        let rate = |start: u32| {
            let mut others = Others::default();
            (0..8).for_each(|block| others.note_written(MainBlock::new(block), start));
            others.note_dead(MainBlock::new(0), start.wrapping_add(10));
            others.rate(0..1, start.wrapping_add(20)).unwrap()
        };
        assert_eq!(rate(u32::MAX - 12), rate(100));
    }
}
