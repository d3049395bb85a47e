//! A segment for each active log that has none.

use basalt_segments::{Segment, SegmentKind};
use rustc_hash::FxHashSet;

use super::state::State;
use crate::checkpoint::load::LoadedLog;
use crate::error::Result;
use crate::layout::sit::RawSitEntry;
use crate::layout::summary::{RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::layout::{Address, Nid};
use crate::node::pointers::pointers;

/// Where a log stays that has no segment yet.
pub(super) const NOWHERE: Segment = Segment::new(u32::MAX);

impl State {
    /// Gives each log without a segment one that is empty: by the SIT, and where no such is left, because nothing leads there. What the log
    /// knew of its old one is lost with the place.
    pub(super) fn place_lost_logs(&mut self) -> Result<()> {
        let mut used = None;
        for kind in SegmentKind::ALL {
            if self.loaded.logs[kind.index()].segment != NOWHERE {
                continue;
            }
            let mut place = self.segment_where(|state, segment| Ok(is_empty(&state.sit(segment)?)))?;
            if place.is_none() {
                let used = match &used {
                    Some(used) => used,
                    None => &*used.insert(self.used_segments()?),
                };
                place = self.segment_where(|_, segment| Ok(!used.contains(&segment)))?;
            }
            let summary = RawSummaryBlock::empty(if kind.is_node() { TYPE_NODE } else { TYPE_DATA });
            let segment = place.unwrap_or_default();
            self.loaded.logs[kind.index()] = LoadedLog { segment, offset: 0, in_slack: false, summary };
        }
        Ok(())
    }

    /// The first segment that no log has and that is free.
    fn segment_where(&self, is_free: impl Fn(&State, Segment) -> Result<bool>) -> Result<Option<Segment>> {
        for segment in self.geometry.segments() {
            let is_taken = self.loaded.logs.iter().any(|log| log.segment == segment);
            if !is_taken && is_free(self, segment)? {
                return Ok(Some(segment));
            }
        }
        Ok(None)
    }

    /// The segments with a node that the NAT leads to, or with data that such a node points to.
    fn used_segments(&self) -> Result<FxHashSet<Segment>> {
        let geometry = &self.geometry;
        let mut used = FxHashSet::default();
        let mut note = |address: Address| {
            if geometry.in_main(address) {
                used.insert(geometry.segment_of(address));
            }
        };
        for nid in Nid::all(Nid::FIRST..geometry.node_ids()) {
            let address = self.nat(nid)?.address();
            if !geometry.in_main(address) {
                continue;
            }
            note(address);
            let Ok(block) = self.block(address) else { continue };
            pointers(&block, geometry).unwrap_or_default().iter().for_each(|slot| note(Address::from(*slot)));
        }
        Ok(used)
    }
}

/// Whether a SIT entry says that nothing is live, and says so in both of its ways.
fn is_empty(entry: &RawSitEntry) -> bool {
    entry.valid_map == [0; 64] && entry.live() == 0 && SegmentKind::from_u8(entry.kind()).is_some()
}
