//! What lies in a segment: its group, and a sample of its blocks, one place in eight.

use basalt_segments::{BLOCKS_PER_SEGMENT, MainBlock, Segment};

/// One place in so many is known.
const SAMPLE: u32 = 8;
/// Places that are known in a segment.
const KNOWN: usize = (BLOCKS_PER_SEGMENT / SAMPLE) as usize;
/// Nothing live is there.
const NONE: u32 = u32::MAX;

/// The blocks at one place in eight, and the groups of the segments that hold any.
#[derive(Default)]
pub struct Places {
    /// Of each segment, the numbers of the records of the blocks at its known places.
    blocks: Vec<[u32; KNOWN]>,
    /// The group that was written to it last; `None`: nothing was since it was freed.
    groups: Vec<Option<u8>>,
    used: u32,
}

impl Places {
    /// A block of a group is at this place now.
    pub fn set(&mut self, place: MainBlock, number: usize, group: usize) {
        let at = place.segment().index();
        if self.blocks.len() <= at {
            self.blocks.resize(at + 1, [NONE; KNOWN]);
            self.groups.resize(at + 1, None);
        }
        // Groups are few.
        let before = self.groups[at].replace(group as u8);
        self.used += u32::from(before.is_none());
        if place.offset().is_multiple_of(SAMPLE) {
            // Records are fewer than 2^32.
            self.blocks[at][(place.offset() / SAMPLE) as usize] = number as u32;
        }
    }

    /// What was at this place is dead.
    pub fn clear(&mut self, place: MainBlock) {
        if place.offset().is_multiple_of(SAMPLE)
            && let Some(blocks) = self.blocks.get_mut(place.segment().index())
        {
            blocks[(place.offset() / SAMPLE) as usize] = NONE;
        }
    }

    /// A segment holds nothing any more.
    pub fn free(&mut self, segment: Segment) {
        if self.groups.get_mut(segment.index()).is_some_and(|group| group.take().is_some()) {
            self.used -= 1;
            self.blocks[segment.index()] = [NONE; KNOWN];
        }
    }

    /// The group that was written last to the segment of this place; `None` if that is not known.
    pub fn group(&self, place: MainBlock) -> Option<usize> {
        self.groups.get(place.segment().index()).copied().flatten().map(usize::from)
    }

    /// The numbers of the records of live blocks at the known places of a segment.
    pub fn blocks(&self, segment: Segment) -> impl Iterator<Item = usize> + use<> {
        let blocks = self.blocks.get(segment.index()).copied().unwrap_or([NONE; KNOWN]);
        blocks.into_iter().filter(|block| *block != NONE).map(|block| block as usize)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.blocks.capacity() * size_of::<[u32; KNOWN]>() + self.groups.capacity() * size_of::<Option<u8>>()
    }

    /// Blocks of the segments that were written to and not freed.
    pub fn space(&self) -> u64 {
        u64::from(self.used) * u64::from(BLOCKS_PER_SEGMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_in_eight_is_known() {
        let mut places = Places::default();
        let place = |segment, offset| MainBlock::in_segment(Segment::new(segment), offset);
        (0..512).for_each(|offset| places.set(place(3, offset), 1000 + offset as usize, 5));
        places.set(place(1, 1), 7, 2);
        assert_eq!(places.space(), 1024);
        places.clear(place(3, 8));
        places.clear(place(3, 9));
        places.clear(place(9, 8));
        let blocks: Vec<usize> = places.blocks(Segment::new(3)).collect();
        assert_eq!((blocks.len(), &blocks[..3]), (63, &[1000, 1016, 1024][..]));
        assert_eq!([1, 2, 3, 9].map(|segment| places.group(place(segment, 0))), [Some(2), None, Some(5), None]);
        places.free(Segment::new(3));
        places.free(Segment::new(3));
        assert_eq!(places.group(place(3, 0)), None);
        assert_eq!((places.space(), places.blocks(Segment::new(3)).count()), (512, 0));
        assert_eq!(places.blocks(Segment::new(99)).count(), 0);
    }
}
