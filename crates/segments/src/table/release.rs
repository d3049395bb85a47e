//! Making segments free, which takes a proof, and keeping free ones from being taken for a while.

use super::{SegmentState, SegmentTable};
use crate::Segment;

/// Proof for [`SegmentTable::release`]: nothing that would be found after a power cut needs the segments.
///
/// It comes from a flush that succeeded after everything was written that makes them needless.
#[derive(Clone, Copy, Debug)]
pub struct Durable(());

impl Durable {
    /// Makes what was written so far durable by `flush`, the device's.
    ///
    /// # Errors
    /// Those of `flush`: then nothing is proven.
    pub fn by<E>(flush: impl FnOnce() -> Result<(), E>) -> Result<Durable, E> {
        flush().map(|()| Durable(()))
    }

    /// For a volume that is being opened: it is known from what is durable, and nothing in that needs the segments.
    #[must_use]
    pub const fn at_open() -> Durable {
        Durable(())
    }

    /// For what has no device that could lose anything: simulations and tests. Also for bugs that are planted.
    #[must_use]
    pub const fn without_device() -> Durable {
        Durable(())
    }
}

/// A free segment that nobody can take before it is given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the segment stays taken until it is given back"]
pub struct Held(Segment);

impl Held {
    /// Which one it is.
    #[must_use]
    pub const fn segment(&self) -> Segment {
        self.0
    }
}

impl SegmentTable {
    /// The prefree segments, rising: a checkpoint takes this when it freezes the SIT, and gives it to
    /// [`SegmentTable::release`] when it is durable. Segments that become prefree in between wait for the next one.
    #[must_use]
    pub fn prefree(&self) -> Vec<Segment> {
        self.prefree.to_vec().into_iter().map(Segment::new).collect()
    }

    /// What no longer needs these segments is durable: those that are prefree become free.
    pub fn release(&mut self, segments: &[Segment], _durable: Durable) {
        for &segment in segments {
            if self.state(segment) == SegmentState::Prefree {
                self.enter(segment, SegmentState::Free);
            }
        }
    }

    /// Keeps a free segment from being taken until a checkpoint has released it, as if it had just been emptied: recovery
    /// found blocks in it that it still needs. Does nothing to a segment that is not free.
    pub fn hold(&mut self, segment: Segment) {
        if self.state(segment) == SegmentState::Free {
            self.enter(segment, SegmentState::Prefree);
        }
    }

    /// Keeps a free segment from being taken until it is [given back](Self::give_back), as for a discard. `None` if it is not free.
    ///
    /// Meanwhile it counts as prefree: nobody may [release](Self::release) what is prefree.
    pub fn take_out(&mut self, segment: Segment) -> Option<Held> {
        let is_free = self.state(segment) == SegmentState::Free;
        is_free.then(|| {
            self.enter(segment, SegmentState::Prefree);
            Held(segment)
        })
    }

    /// The segment is free again, unless somebody has released it meanwhile all the same: then it is theirs.
    pub fn give_back(&mut self, held: Held) {
        if self.state(held.0) == SegmentState::Prefree {
            self.enter(held.0, SegmentState::Free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentKind;

    #[test]
    fn a_flush_that_fails_proves_nothing() {
        assert!(Durable::by(|| Err::<(), _>("the device is gone")).is_err());
        assert!(Durable::by(|| Ok::<_, ()>(())).is_ok());
    }

    #[test]
    fn what_is_taken_out_is_not_taken_by_a_log() {
        let mut table = SegmentTable::new(2, 1);
        let held = table.take_out(Segment::new(0)).unwrap();
        assert_eq!(table.take_out(Segment::new(0)), None, "it is not free");
        assert_eq!(table.free_segments(), 1);
        assert_eq!(table.open_segment(SegmentKind::HotData, None), Some(Segment::new(1)));
        assert_eq!(table.open_segment(SegmentKind::HotData, None), None);
        assert_eq!(held.segment(), Segment::new(0));
        table.give_back(held);
        assert_eq!(table.open_segment(SegmentKind::HotData, None), Some(Segment::new(0)));
    }
}
