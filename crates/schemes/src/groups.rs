//! Groups of data and the logs that write them.

use basalt_segments::{BlockTraits, LogId, SegmentKind};

/// Groups that a scheme can have.
pub const GROUPS_MAX: usize = 64;

/// The logs of a scheme's groups of data, the hottest first. F2FS's three logs of data are among them, so no log stands idle: its hot log is
/// that of the first group, its cold log that of the last. Others are logs of warm data beside the recorded ones.
pub struct Groups {
    logs: Vec<LogId>,
    more: Vec<SegmentKind>,
}

impl Groups {
    /// So many, from 1 to [`GROUPS_MAX`]; others count as the nearest of these. One group is the warm log alone.
    #[must_use]
    pub fn new(count: usize) -> Groups {
        let count = count.clamp(1, GROUPS_MAX);
        let (first, last): (&[SegmentKind], &[SegmentKind]) = match count {
            1 => (&[SegmentKind::WarmData], &[]),
            2 => (&[SegmentKind::WarmData], &[SegmentKind::ColdData]),
            _ => (&[SegmentKind::HotData, SegmentKind::WarmData], &[SegmentKind::ColdData]),
        };
        let others = count - first.len() - last.len();
        let own = (0..others as u8).map(LogId::more);
        let recorded = |kinds: &[SegmentKind]| kinds.iter().copied().map(LogId::of).collect::<Vec<_>>();
        let logs = recorded(first).into_iter().chain(own).chain(recorded(last)).collect();
        Groups { logs, more: vec![SegmentKind::WarmData; others] }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.logs.len()
    }

    /// The log of a group; of one that is not there, the last group's.
    #[must_use]
    pub fn log(&self, group: usize) -> LogId {
        self.logs[group.min(self.logs.len() - 1)]
    }

    /// The group that a log writes; `None` for logs of nodes, and for logs of data where there are fewer groups.
    #[must_use]
    pub fn of_log(&self, log: LogId) -> Option<usize> {
        self.logs.iter().position(|&one| one == log)
    }

    /// What [`Placement::more_logs`](basalt_segments::Placement::more_logs) answers.
    #[must_use]
    pub fn more_logs(&self) -> &[SegmentKind] {
        &self.more
    }
}

/// Whether a scheme decides on a block: on data of files.
pub fn is_grouped(block: &BlockTraits) -> bool {
    !block.node && !block.of_directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_a_log_of_its_own() {
        for count in [1, 2, 3, 4, 6, 12, GROUPS_MAX] {
            let groups = Groups::new(count);
            assert_eq!((groups.count(), groups.more_logs().len()), (count, count.saturating_sub(3)));
            for group in 0..count {
                assert_eq!(groups.of_log(groups.log(group)), Some(group));
            }
        }
        assert_eq!(Groups::new(0).count(), 1);
        assert_eq!(Groups::new(6).of_log(LogId::of(SegmentKind::WarmNode)), None);
    }
}
