//! The victim policy of NILFS2.

use basalt_segments::{SectionView, VictimPolicy};

/// Cleans the oldest section, however many of its blocks are live.
///
/// NILFS2 goes by the time at which a segment was written. To have that, let sections age from their last write
/// (`age-from=written`); otherwise it is the section that was neither written nor overwritten for the longest time.
///
/// Source: the policy `timestamp` of `nilfs_cleanerd` (nilfs-utils, `nilfs_cleanerd.conf(5)`), which SFS began from: C. Min et al., "SFS:
/// Random Write Considered Harmful in Solid State Drives", FAST 2012, section 4.1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timestamp;

impl VictimPolicy for Timestamp {
    fn name(&self) -> &'static str {
        "timestamp"
    }

    fn about(&self) -> &'static str {
        "the oldest section (NILFS2)"
    }

    fn cost(&self, section: &SectionView, _now: u64, _oldest: u64, _youngest: u64) -> f64 {
        section.modified as f64
    }

    fn ranks_ages(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::{MainBlock, Section, Segment, SegmentKind, SegmentTable};

    #[test]
    fn the_oldest_is_cleaned_first_even_if_it_is_all_but_full() {
        let mut table = SegmentTable::new(4, 1);
        // Written in the order 2, 0, 1; the oldest has the most live blocks.
        for (number, segment, live) in [(1, 2, 511), (2, 0, 100), (3, 1, 1)] {
            table.set_active(Segment::new(segment));
            table.set_kind(Segment::new(segment), SegmentKind::WarmData);
            for offset in 0..live {
                assert!(table.set_live(MainBlock::in_segment(Segment::new(segment), offset), number));
            }
            table.close_segment(Segment::new(segment));
        }
        let order = table.select_victims(&Timestamp, 10, &|_| false, 3);
        assert_eq!(order, [2, 0, 1].map(Section::new));
    }
}
