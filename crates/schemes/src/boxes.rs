//! Records of blocks by the segment that they lie in.

use basalt_segments::{BLOCKS_PER_SEGMENT, Segment};

/// Records by the segment: a box of them for each segment that has any, so that a block's record moves as it does. Boxes that nobody needs
/// are kept for the next segment.
///
/// A record's *number* is that of its box and its place in that: small numbers, so that all can be visited.
#[derive(Default)]
pub struct Boxes<T> {
    boxes: Vec<RecordBox<T>>,
    unused: Vec<u32>,
}

struct RecordBox<T> {
    owner: Option<Segment>,
    records: Box<[T; BLOCKS]>,
}

const BLOCKS: usize = BLOCKS_PER_SEGMENT as usize;

impl<T: Copy + Default> Boxes<T> {
    /// Bytes of a box and its allocation, and of what leads to it.
    pub const BOX_BYTES: usize =
        size_of::<[T; BLOCKS]>() + size_of::<RecordBox<T>>() + size_of::<u32>() + 2 * size_of::<usize>();

    /// An empty box for a segment; `None` where `most` are in use, or there are as many as can be numbered.
    pub fn take(&mut self, owner: Segment, most: usize) -> Option<u32> {
        if let Some(unused) = self.unused.pop() {
            self.boxes[unused as usize].owner = Some(owner);
            return Some(unused);
        }
        if self.boxes.len() >= most.min(u32::MAX as usize / BLOCKS) {
            return None;
        }
        if self.boxes.len() == self.boxes.capacity() {
            // An eighth more, not twice as much.
            let more = (self.boxes.len() / 8 + 1).min(most - self.boxes.len());
            self.boxes.reserve_exact(more);
            self.unused.reserve_exact(self.boxes.len() + more);
        }
        self.boxes.push(RecordBox { owner: Some(owner), records: Box::new([T::default(); BLOCKS]) });
        // There are no more, see above.
        Some(self.boxes.len() as u32 - 1)
    }

    /// Gives a box back, and forgets what is in it.
    pub fn give_back(&mut self, number: u32) {
        let one = &mut self.boxes[number as usize];
        one.owner = None;
        one.records.fill(T::default());
        self.unused.push(number);
    }

    /// The segments that have boxes.
    pub fn owners(&self) -> impl Iterator<Item = Segment> {
        self.boxes.iter().filter_map(|one| one.owner)
    }

    /// The records of a segment.
    pub fn of_box(&self, number: u32) -> &[T; BLOCKS] {
        &self.boxes[number as usize].records
    }

    /// As [`of_box`](Self::of_box), to change them.
    pub fn of_box_mut(&mut self, number: u32) -> &mut [T; BLOCKS] {
        &mut self.boxes[number as usize].records
    }

    pub fn get(&self, number: usize) -> T {
        self.boxes[number / BLOCKS].records[number % BLOCKS]
    }

    /// Replaces a record.
    pub fn set(&mut self, number: usize, record: T) {
        self.boxes[number / BLOCKS].records[number % BLOCKS] = record;
    }

    /// Records, with empty ones.
    pub fn len(&self) -> u32 {
        // Boxes are no more than that.
        (self.boxes.len() * BLOCKS) as u32
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.boxes.capacity() * size_of::<RecordBox<T>>()
            + self.boxes.len() * size_of::<[T; BLOCKS]>()
            + self.unused.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_used_again_and_hold_nothing_then() {
        let mut pool = Boxes::<u64>::default();
        let take = |pool: &mut Boxes<u64>, segment, most| pool.take(Segment::new(segment), most);
        assert_eq!([5, 3, 9].map(|segment| take(&mut pool, segment, 2)), [Some(0), Some(1), None]);
        pool.set(512 + 6, 1);
        pool.set(512 + 6, 3);
        assert_eq!((pool.get(518), pool.get(6), pool.len()), (3, 0, 1024));
        assert_eq!(pool.of_box(1)[6], 3);
        pool.give_back(1);
        assert_eq!(pool.owners().collect::<Vec<_>>(), [Segment::new(5)]);
        assert_eq!((take(&mut pool, 4, 2), take(&mut pool, 8, 3), pool.get(518)), (Some(1), Some(2), 0));
        assert_eq!(pool.owners().collect::<Vec<_>>(), [5, 4, 8].map(Segment::new));
        assert!(pool.memory() <= 3 * Boxes::<u64>::BOX_BYTES, "{}", pool.memory());
    }
}
