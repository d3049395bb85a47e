//! What a scheme knows of each segment.

use basalt_segments::{MainBlock, Segment};

/// A record for each segment; grows as segments are named.
#[derive(Default)]
pub struct PerSegment<T>(Vec<T>);

impl<T: Clone + Default> PerSegment<T> {
    pub fn get(&self, segment: Segment) -> T {
        self.0.get(segment.index()).cloned().unwrap_or_default()
    }

    pub fn get_mut(&mut self, segment: Segment) -> &mut T {
        if self.0.len() <= segment.index() {
            self.0.resize(segment.index() + 1, T::default());
        }
        &mut self.0[segment.index()]
    }
}

/// A record for each place; grows as places are named.
#[derive(Default)]
pub struct PerPlace<T>(Vec<T>);

impl<T: Copy + Default> PerPlace<T> {
    /// What it has, which is the default from now on.
    pub fn take(&mut self, place: MainBlock) -> T {
        self.0.get_mut(place.get() as usize).map_or_else(T::default, std::mem::take)
    }

    pub fn set(&mut self, place: MainBlock, record: T) {
        let at = place.get() as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, T::default());
        }
        self.0[at] = record;
    }
}
