//! Which log of a volume.

use std::fmt;

use crate::SegmentKind;

/// One of the logs of a volume, each of which fills a segment of its own.
///
/// The first six are F2FS's: one for each [`SegmentKind`], in that order, and the checkpoint records them. A placement may have
/// [more](crate::Placement::more_logs), whose segments are of the same six kinds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(u8);

impl LogId {
    /// Logs that the checkpoint records.
    pub const RECORDED: usize = SegmentKind::ALL.len();

    /// The recorded log of this kind of segments.
    #[must_use]
    pub const fn of(kind: SegmentKind) -> LogId {
        LogId(kind as u8)
    }

    /// Log `index` of those that the placement has beside the recorded ones: at most 249.
    ///
    /// # Panics
    /// If `index` is larger.
    #[must_use]
    pub const fn more(index: u8) -> LogId {
        assert!(index <= u8::MAX - Self::RECORDED as u8, "a placement has at most 250 logs of its own");
        LogId(index + Self::RECORDED as u8)
    }

    /// Its index among all logs of the volume.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether the checkpoint records it.
    #[must_use]
    pub const fn is_recorded(self) -> bool {
        self.index() < Self::RECORDED
    }

    /// All logs of a volume that has `count` of them.
    pub fn all(count: usize) -> impl Iterator<Item = LogId> + use<> {
        // A placement numbers its logs with a byte.
        (0..=u8::MAX).take(count).map(LogId)
    }
}

impl From<SegmentKind> for LogId {
    fn from(kind: SegmentKind) -> LogId {
        LogId::of(kind)
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_logs_come_first_in_the_order_of_kinds() {
        let all: Vec<LogId> = LogId::all(8).collect();
        let kinds = SegmentKind::ALL.map(LogId::of);
        assert_eq!(all[..6], kinds);
        assert_eq!(all[6..], [LogId::more(0), LogId::more(1)]);
        assert!(kinds.iter().all(|log| log.is_recorded()) && !LogId::more(0).is_recorded());
    }
}
