//! Which log writes which group: logs of idle groups are taken over before new segments are opened.

use basalt_segments::{BLOCKS_PER_SEGMENT, LogId, MainBlock, Segment, SegmentKind};

/// Groups that the policy can have.
pub const GROUPS: std::ops::RangeInclusive<usize> = 2..=12;

/// A log, and how far its segment is filled, as far as that can be told from places.
#[derive(Clone, Copy, Debug)]
struct Stream {
    log: LogId,
    /// `None` before anything was written to it.
    segment: Option<Segment>,
    filled: u32,
}

impl Stream {
    /// It has an open segment with something in it.
    fn is_begun(&self) -> bool {
        self.segment.is_some() && self.filled < BLOCKS_PER_SEGMENT
    }

    /// It has an open segment: recorded logs go on in another as soon as one is full.
    fn is_open(&self) -> bool {
        self.is_begun() || self.segment.is_some() && self.log.is_recorded()
    }
}

/// A group writes to one log at a time.
pub struct Streams {
    streams: Vec<Stream>,
    /// Which stream each group has.
    of_group: Vec<usize>,
    /// When each group was written to last.
    written: Vec<u32>,
    more: Vec<SegmentKind>,
}

impl Streams {
    /// For so many groups; other numbers than [`GROUPS`] count as the nearest of these.
    ///
    /// That of the hottest is F2FS's log of warm data; the others are logs beside the recorded ones. F2FS's logs of hot and of cold data stay
    /// as they are: a recorded log has an open segment at all times, which a group without blocks would keep from use. They take the
    /// blocks of the other groups, hotter and colder ones, where free sections run short.
    pub fn new(groups: usize) -> Streams {
        let groups = groups.clamp(*GROUPS.start(), *GROUPS.end());
        let kind = |group: usize| if 2 * group <= groups { SegmentKind::HotData } else { SegmentKind::ColdData };
        let own = (0..groups as u8 - 1).map(LogId::more);
        let logs = std::iter::once(LogId::of(SegmentKind::WarmData)).chain(own);
        Streams {
            streams: logs.map(|log| Stream { log, segment: None, filled: 0 }).collect(),
            of_group: (0..groups).collect(),
            written: vec![0; groups],
            more: (1..groups).map(kind).collect(),
        }
    }

    /// Groups.
    pub fn count(&self) -> usize {
        self.of_group.len()
    }

    /// What [`Placement::more_logs`](basalt_segments::Placement::more_logs) answers.
    pub fn more_logs(&self) -> &[SegmentKind] {
        &self.more
    }

    /// The log that writes a group. A group that needs a segment takes over the open one of the group that was idle for the longest, if
    /// that was longer than `patience` block writes; that one gets its log instead.
    pub fn log(&mut self, group: usize, now: u32, patience: u32) -> LogId {
        let own = self.streams[self.of_group[group]];
        if !own.is_begun() {
            let idle = |other: usize| now.wrapping_sub(self.written[other]);
            let others = (0..self.count()).filter(|&other| other != group && idle(other) > patience);
            let stream = |other: usize| self.streams[self.of_group[other]];
            let open = others.filter(|&other| stream(other).is_begun() || !own.is_open() && stream(other).is_open());
            if let Some(other) = open.max_by_key(|&other| idle(other)) {
                self.of_group.swap(group, other);
            }
        }
        self.streams[self.of_group[group]].log
    }

    /// A block of a group got this place.
    pub fn note_written(&mut self, group: usize, now: u32, place: MainBlock) {
        self.written[group] = now;
        let segment = place.segment();
        let known = self.streams.iter().position(|stream| stream.segment == Some(segment));
        let stream = &mut self.streams[known.unwrap_or(self.of_group[group])];
        stream.segment = Some(segment);
        stream.filled = place.offset() + 1;
    }

    /// A log has filled this segment, or left it.
    pub fn note_sealed(&mut self, segment: Segment) {
        for stream in self.streams.iter_mut().filter(|stream| stream.segment == Some(segment)) {
            stream.filled = BLOCKS_PER_SEGMENT;
        }
    }
}

#[cfg(test)]
impl Streams {
    pub fn are_idle(&self) -> bool {
        self.streams.iter().all(|stream| !stream.is_begun())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(segment: u32, offset: u32) -> MainBlock {
        MainBlock::in_segment(Segment::new(segment), offset)
    }

    #[test]
    fn an_idle_group_gives_its_open_segment_away() {
        let mut streams = Streams::new(3);
        let logs: Vec<LogId> = (0..3).map(|group| streams.log(group, 0, 100)).collect();
        assert_eq!(logs, [LogId::of(SegmentKind::WarmData), LogId::more(0), LogId::more(1)]);
        assert_eq!(streams.more_logs(), [SegmentKind::HotData, SegmentKind::ColdData]);
        streams.note_written(1, 10, place(4, 0));
        streams.note_written(2, 20, place(5, 510));
        assert_eq!(streams.log(2, 200, 100), logs[2], "it has room");
        streams.note_written(2, 200, place(5, 511));
        assert_eq!(streams.log(2, 110, 100), logs[2], "group 1 is idle for 100 writes, no more");
        assert_eq!(streams.log(2, 201, 100), logs[1], "group 0 has no segment");
        assert_eq!(streams.log(1, 201, 100), logs[2]);
        streams.note_written(2, 201, place(4, 1));
        assert_eq!(streams.log(2, 202, 100), logs[1]);
    }

    #[test]
    fn sealed_segments_are_not_open() {
        let mut streams = Streams::new(2);
        streams.note_written(0, 0, place(3, 7));
        assert_eq!(streams.log(1, 500, 100), LogId::of(SegmentKind::WarmData));
        let mut streams = Streams::new(3);
        streams.note_written(1, 0, place(3, 7));
        streams.note_sealed(Segment::new(3));
        assert_eq!(streams.log(2, 500, 100), LogId::more(1));
        // A recorded log has the next segment at once.
        streams.note_written(0, 0, place(5, 511));
        streams.note_sealed(Segment::new(5));
        assert_eq!(streams.log(2, 500, 100), LogId::of(SegmentKind::WarmData));
        assert_eq!((Streams::new(0).count(), Streams::new(99).count()), (2, 12));
    }

    /// Group 1 was idle for 190 writes, group 2 for 150.
    #[test]
    fn the_group_that_was_idle_the_longest_gives_its_log() {
        let mut streams = Streams::new(4);
        let logs: Vec<LogId> = (0..4).map(|group| streams.log(group, 0, 100)).collect();
        streams.note_written(1, 10, place(4, 0));
        streams.note_written(2, 50, place(5, 0));
        assert_eq!(streams.log(3, 200, 100), logs[1]);
    }
}
