//! The slack that is reserved for the logs, and the segments that are made ready for them.

use basalt_segments::slack::SlackBatch;
use basalt_segments::{Segment, SegmentTable, Slack};

/// Segments of data that are reserved at a time, and of nodes: more would be no victims.
const RESERVED: [usize; 2] = [12, 2];
/// So many segments of data, and logs find some until more is ready: one request that writes back can fill a third of what there should be.
pub(super) const ENOUGH: usize = RESERVED[0] / 3 + 1;
/// Blocks written until the next search, which goes through the whole table.
const NEXT_SEARCH: u64 = 64;
/// The same where there was not enough: more may have died by then.
const NEXT_IN_VAIN: u64 = 1024;

/// Slack that is reserved, and that no log has taken yet.
#[derive(Default)]
pub(crate) struct SlackStock {
    /// Of segments of data, and of nodes; what is taken next is the last.
    stock: [Vec<Slack>; 2],
    /// Blocks that have to be written before the next search, of each.
    next: [u64; 2],
    /// Segments that are made ready.
    pub(super) batch: Option<SlackBatch>,
    /// What the last search has shown.
    outlook: Outlook,
}

/// What logs can hope for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Outlook {
    /// Slack.
    #[default]
    Slack,
    /// None now.
    None,
    /// None, because emptying segments is better than filling their slack.
    Cleaning,
}

impl SlackStock {
    /// Of a volume where emptying segments may be better than filling their slack: as long as nothing was searched for, it is.
    pub(crate) fn preferring_cleaning(prefers_cleaning: bool) -> SlackStock {
        let outlook = if prefers_cleaning { Outlook::Cleaning } else { Outlook::Slack };
        SlackStock { outlook, ..SlackStock::default() }
    }

    /// Takes the slack of a segment of nodes, or of data.
    pub(super) fn take(&mut self, of_nodes: bool) -> Option<Slack> {
        self.stock[usize::from(of_nodes)].pop()
    }

    /// The segments that are made ready.
    pub(crate) fn batch(&self) -> Option<&SlackBatch> {
        self.batch.as_ref()
    }

    /// Whether cleaning is not to count on slack: emptying segments is better, or there is none.
    pub(crate) fn prefers_cleaning(&self) -> bool {
        self.outlook != Outlook::Slack
    }

    /// Whether slack would be used if there were more.
    pub(super) fn may_be_had(&self) -> bool {
        self.outlook != Outlook::Cleaning
    }

    /// There is none of data, and a checkpoint would bring none.
    pub(super) fn note_none(&mut self) {
        self.outlook = Outlook::None;
    }

    /// Whether emptying segments is better than filling their slack, as it was found now that so much was written. If so, that is asked again only when
    /// much more was.
    pub(super) fn note_preference(&mut self, for_cleaning: bool, written: u64) {
        self.outlook = if for_cleaning { Outlook::Cleaning } else { Outlook::Slack };
        if for_cleaning {
            self.next = [written + NEXT_IN_VAIN; 2];
        }
    }

    /// These blocks of a segment that is made ready were copied, which led to this demand.
    pub(crate) fn note_copied(&mut self, segment: Segment, blocks: &[u32], demand: u64) {
        if let Some(batch) = &mut self.batch {
            batch.note_copied(segment, blocks, demand);
        }
    }

    /// A segment is not made ready any more.
    pub(crate) fn leave_out(&mut self, segment: Segment, table: &mut SegmentTable) {
        if let Some(batch) = &mut self.batch {
            batch.leave_out(segment, table);
        }
    }

    /// Whether logs that write data may find none before more is ready.
    pub(super) fn runs_short(&self, holds: impl Fn(&Slack) -> bool) -> bool {
        self.stock[0].iter().filter(|slack| holds(slack)).count() < ENOUGH
    }

    /// Takes all.
    pub(super) fn take_all(&mut self) -> Vec<Slack> {
        self.stock.iter_mut().flat_map(std::mem::take).collect()
    }

    /// Adds some, the best first. What is there already was the best when it was found, and is taken before.
    pub(super) fn add(&mut self, of_nodes: bool, found: Vec<Slack>) {
        self.stock[usize::from(of_nodes)].splice(0..0, found.into_iter().rev());
    }

    /// Keeps only promises that hold.
    pub(super) fn retain(&mut self, holds: impl Fn(&Slack) -> bool) {
        self.stock.iter_mut().for_each(|stock| stock.retain(&holds));
    }

    /// Segments of nodes, or of data, that are to be searched for: none where more than half are there, the last search was just now, or some are
    /// being made ready.
    pub(super) fn missing(&self, of_nodes: bool, written: u64) -> usize {
        let at = usize::from(of_nodes);
        let (there, full) = (self.stock[at].len(), RESERVED[at]);
        let is_enough = there * 2 > full || self.batch.is_some();
        if is_enough || written < self.next[at] { 0 } else { full - there }
    }

    /// So many of those that were missing were found, now that so much was written.
    pub(super) fn note_search(&mut self, of_nodes: bool, is_enough: bool, written: u64) {
        let pause = if is_enough { NEXT_SEARCH } else { NEXT_IN_VAIN };
        self.next[usize::from(of_nodes)] = written + pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::{MainBlock, Quiet, SegmentKind};

    /// Slack of so many segments.
    fn slack(count: u32) -> Vec<Slack> {
        let mut table = SegmentTable::new(count, 1);
        let mut reserve = |_| {
            let segment = table.open_segment(SegmentKind::WarmData, None)?;
            assert!(table.set_live(MainBlock::in_segment(segment, 0), 1));
            table.close_segment(segment);
            table.reserve_slack(segment, &Quiet::while_locked())
        };
        (0..count).filter_map(&mut reserve).collect()
    }

    #[test]
    fn what_was_found_first_is_taken_first_and_of_that_the_best() {
        let mut stock = SlackStock::default();
        let mut found = slack(4);
        let later = found.split_off(2);
        stock.add(false, found);
        stock.add(false, later);
        let taken: Vec<Segment> = std::iter::from_fn(|| stock.take(false)).map(|slack| slack.segment()).collect();
        assert_eq!(taken, [0, 1, 2, 3].map(Segment::new));
        assert!(stock.take(true).is_none());
    }

    #[test]
    fn more_is_searched_for_where_half_is_gone_and_seldom_where_there_is_none() {
        let mut stock = SlackStock::default();
        assert_eq!([false, true].map(|of_nodes| stock.missing(of_nodes, 0)), [12, 2]);
        stock.add(false, slack(7));
        stock.note_search(false, true, 10);
        stock.note_search(true, false, 10);
        assert_eq!(stock.missing(false, 1000), 0, "seven of twelve are more than half");
        assert!(stock.take(false).is_some());
        assert_eq!([73, 74].map(|blocks| stock.missing(false, blocks)), [0, 6]);
        assert_eq!([1033, 1034].map(|blocks| stock.missing(true, blocks)), [0, 2]);
        assert!(!stock.runs_short(|_| true) && stock.runs_short(|slack| slack.segment() < Segment::new(4)));
        stock.retain(|slack| slack.segment() == Segment::new(2));
        assert_eq!((stock.missing(false, 1000), stock.runs_short(|_| true)), (11, true));
        assert_eq!(stock.take_all().len(), 1);
    }

    #[test]
    fn where_cleaning_is_better_that_is_asked_again_later() {
        let mut stock = SlackStock::preferring_cleaning(true);
        assert!(stock.prefers_cleaning(), "as long as nothing was searched for");
        stock.note_preference(false, 50);
        assert!(!stock.prefers_cleaning());
        stock.note_preference(true, 100);
        assert!(stock.prefers_cleaning());
        assert_eq!([1123, 1124].map(|written| stock.missing(false, written)), [0, 12]);
        stock.note_preference(false, 1124);
        assert!(!stock.prefers_cleaning());
    }
}
