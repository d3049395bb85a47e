//! What became of the blocks of data that each log has written since the volume was opened.

use basalt_segments::{BlockTraits, LogId, MainBlock, Reason, Segment, SegmentKind};

use super::logs::Logs;

/// A log of data: what it wrote since the volume was opened, in blocks, and what is left of it.
#[derive(Debug, Clone, Default)]
pub struct LogTally {
    /// `hot_data`, `warm_data` or `cold_data` for the three logs of data that F2FS has, `more_1`, `more_2` … for those of the placement, and
    /// `before` for what lies in segments that were begun before the volume was opened.
    pub log: String,
    /// Blocks that users changed, written there.
    pub written_blocks: u64,
    /// Live blocks that cleaning copied there; dead ones that recovery may need are not counted.
    pub copied_blocks: u64,
    /// Blocks of its segments that users have overwritten or deleted.
    pub dead_blocks: u64,
    /// Blocks of its segments that cleaning has copied from there.
    pub moved_blocks: u64,
    /// Blocks of its segments that are live. Of all logs together, with those before, what was written and copied is dead, moved or live.
    pub live_blocks: u64,
    /// Its segments: those that it has begun since, and that are not free.
    pub segments: u64,
}

/// Segments that no log has begun since the volume was opened, or since they were freed.
const NO_LOG: u16 = u16::MAX;

/// Tallies of all logs of data. Two bytes for each segment say which log began it.
pub(crate) struct Tallies {
    /// By the log's index: those of nodes are there, and stay empty.
    logs: Vec<LogTally>,
    of_segment: Vec<u16>,
    /// Of segments that no log has begun since.
    before: LogTally,
    /// Where the block lay that cleaning has copied last: what is dead there next has not died.
    copied_from: Option<MainBlock>,
}

impl Tallies {
    /// Of these logs; segments in which nothing is written yet are theirs.
    pub(crate) fn new(all: &Logs) -> Tallies {
        let logs = LogId::all(all.count()).map(|log| LogTally { log: name(log), ..LogTally::default() }).collect();
        let before = LogTally { log: "before".into(), ..LogTally::default() };
        let mut tallies = Tallies { logs, before, of_segment: Vec::new(), copied_from: None };
        for (log, active) in LogId::all(all.count()).zip(all.of_data()).filter(|(_, active)| active.offset == 0) {
            tallies.begin(log, active.segment);
        }
        tallies
    }

    /// Those of the logs of data, and of what was there before: of so many live blocks of data.
    pub(crate) fn of_data(&self, live_blocks: u64) -> Vec<LogTally> {
        let is_of_data = |index: usize| SegmentKind::ALL.get(index).is_none_or(|kind| !kind.is_node());
        let of_data = self.logs.iter().enumerate().filter(|(index, _)| is_of_data(*index));
        let mut tallies: Vec<LogTally> = of_data.map(|(_, tally)| tally.clone()).collect();
        let live: u64 = tallies.iter().map(|tally| tally.live_blocks).sum();
        tallies.push(LogTally { live_blocks: live_blocks.saturating_sub(live), ..self.before.clone() });
        tallies
    }

    /// A block of data got its place in a log.
    pub(crate) fn note_placed(&mut self, log: LogId, block: &BlockTraits, place: MainBlock) {
        self.copied_from = block.from.filter(|_| block.reason == Reason::Cleaning);
        if block.node {
            return;
        }
        let tally = &mut self.logs[log.index()];
        *match block.reason {
            Reason::Cleaning => &mut tally.copied_blocks,
            Reason::Writeback | Reason::Fsync => &mut tally.written_blocks,
        } += 1;
        if let Some(tally) = self.tally_at(place) {
            tally.live_blocks += 1;
        }
    }

    /// What was at this place, in a segment of this kind, is overwritten, moved or deleted.
    pub(crate) fn note_dead(&mut self, place: MainBlock, kind: SegmentKind) {
        let is_copied = self.copied_from.take() == Some(place);
        if kind.is_node() {
            return;
        }
        let log = self.of_segment.get(place.segment().index()).map(|log| usize::from(*log));
        let tally = log.and_then(|log| self.logs.get_mut(log)).unwrap_or(&mut self.before);
        tally.live_blocks = tally.live_blocks.saturating_sub(1);
        *(if is_copied { &mut tally.moved_blocks } else { &mut tally.dead_blocks }) += 1;
    }

    /// A segment is free.
    pub(crate) fn note_free(&mut self, segment: Segment) {
        if let Some(tally) = self.tally_of(segment) {
            tally.segments = tally.segments.saturating_sub(1);
            self.of_segment[segment.index()] = NO_LOG;
        }
    }

    /// A log of data goes on in this segment, which was free.
    pub(crate) fn begin(&mut self, log: LogId, segment: Segment) {
        if self.of_segment.len() <= segment.index() {
            self.of_segment.resize(segment.index() + 1, NO_LOG);
        }
        // Logs are numbered with a byte.
        self.of_segment[segment.index()] = log.index() as u16;
        self.logs[log.index()].segments += 1;
    }

    fn tally_of(&mut self, segment: Segment) -> Option<&mut LogTally> {
        let log = *self.of_segment.get(segment.index())?;
        self.logs.get_mut(usize::from(log))
    }

    fn tally_at(&mut self, place: MainBlock) -> Option<&mut LogTally> {
        self.tally_of(place.segment())
    }
}

/// What reports call a log.
fn name(log: LogId) -> String {
    match SegmentKind::ALL.get(log.index()) {
        Some(SegmentKind::HotData) => "hot_data".into(),
        Some(SegmentKind::WarmData) => "warm_data".into(),
        Some(SegmentKind::ColdData) => "cold_data".into(),
        Some(_) => String::new(),
        None => format!("more_{}", log.index() + 1 - LogId::RECORDED),
    }
}
