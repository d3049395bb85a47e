//! What became of the blocks of data that each log has written since the volume was opened.

use basalt_segments::{BlockTraits, LogId, MainBlock, Reason, Segment, SegmentKind};

/// A log of data: what it wrote since the volume was opened, in blocks, and what is left of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct LogTally {
    /// `hot_data`, `warm_data` or `cold_data` for the three logs of data that F2FS has, `more_1`, `more_2` … for those of the placement.
    pub log: String,
    /// Blocks that users changed, written there.
    pub written_blocks: u64,
    /// Blocks that cleaning copied there.
    pub copied_blocks: u64,
    /// Of both, blocks in segments that it began since then, which users have overwritten or deleted.
    pub dead_blocks: u64,
    /// Of both, blocks in such segments that are live. The others are dead, or cleaning has copied them from there.
    pub live_blocks: u64,
    /// Such segments, but those that are free again.
    pub segments: u64,
}

/// Segments that no log has begun since the volume was opened, or since they were freed.
const NO_LOG: u16 = u16::MAX;

/// Tallies of all logs of data. Two bytes for each segment say which log began it.
pub(crate) struct Tallies {
    /// By the log's index: those of nodes are there, and stay empty.
    logs: Vec<LogTally>,
    of_segment: Vec<u16>,
    /// Where the block lay that cleaning has copied last: what is dead there next has not died.
    copied_from: Option<MainBlock>,
}

impl Tallies {
    /// Of so many logs.
    pub(crate) fn new(logs: usize) -> Tallies {
        let logs = LogId::all(logs).map(|log| LogTally { log: name(log), ..LogTally::default() }).collect();
        Tallies { logs, of_segment: Vec::new(), copied_from: None }
    }

    /// Those of the logs of data.
    pub(crate) fn of_data(&self) -> impl Iterator<Item = &LogTally> {
        let is_of_data = |index: &usize| SegmentKind::ALL.get(*index).is_none_or(|kind| !kind.is_node());
        self.logs.iter().enumerate().filter(move |(index, _)| is_of_data(index)).map(|(_, tally)| tally)
    }

    /// A block of data got its place in a log.
    pub(crate) fn note_placed(&mut self, log: LogId, block: &BlockTraits, place: MainBlock) {
        self.copied_from = block.from.filter(|_| block.reason == Reason::Cleaning);
        if block.node {
            return;
        }
        if place.offset() == 0 {
            self.begin(log, place.segment());
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

    /// What was at this place is overwritten, moved or deleted.
    pub(crate) fn note_dead(&mut self, place: MainBlock) {
        let is_copied = self.copied_from.take() == Some(place);
        if let Some(tally) = self.tally_at(place) {
            tally.live_blocks = tally.live_blocks.saturating_sub(1);
            tally.dead_blocks += u64::from(!is_copied);
        }
    }

    /// A segment is free.
    pub(crate) fn note_free(&mut self, segment: Segment) {
        if let Some(tally) = self.tally_of(segment) {
            tally.segments = tally.segments.saturating_sub(1);
            self.of_segment[segment.index()] = NO_LOG;
        }
    }

    /// A log writes to the first place of a segment.
    fn begin(&mut self, log: LogId, segment: Segment) {
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
