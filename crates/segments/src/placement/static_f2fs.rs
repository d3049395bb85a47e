//! F2FS's static placement by block type.

use super::{BlockTraits, Placement, Policy};
use crate::LogId;
use crate::SegmentKind::{self, ColdData, ColdNode, HotData, HotNode, WarmData, WarmNode};

/// [`StaticPlacement`] as options name it.
pub(super) const POLICY: Policy = Policy::new("static", "by the type of the block, as F2FS does", |options| {
    let placement = StaticPlacement::new(options.logs);
    Ok(Box::new(placement.ok_or_else(|| format!("needs 2, 4 or 6 logs, not logs={}", options.logs))?))
});

/// Placement by block type alone, as F2FS does with `active_logs=2`, `4` or `6`.
///
/// | logs | data | nodes |
/// |---|---|---|
/// | 6 | cold → `ColdData`; hot, directory → `HotData`; else `WarmData` | direct: of a directory → `HotNode`, else `WarmNode`; indirect → `ColdNode` |
/// | 4 | directory → `HotData`; else `ColdData` | direct, not of a directory → `WarmNode`; else `ColdNode` |
/// | 2 | `HotData` | `HotNode` |
///
/// Cold wins over hot: a hot block that cleaning had to move has proved to be cold. With 4 logs F2FS looks at neither.
///
/// Source: C. Lee et al., "F2FS: A New File System for Flash Storage", FAST 2015, section 2.4 and table 1, for 6 logs;
/// for 4 and 2, what Linux does, which puts a directory's direct nodes with the indirect ones when there are 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticPlacement {
    logs: Logs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logs {
    Two,
    Four,
    Six,
}

impl StaticPlacement {
    /// Placement over 2, 4 or 6 logs; `None` for any other number.
    #[must_use]
    pub fn new(logs: u8) -> Option<Self> {
        let logs = match logs {
            2 => Logs::Two,
            4 => Logs::Four,
            6 => Logs::Six,
            _ => return None,
        };
        Some(StaticPlacement { logs })
    }

    /// The logs that blocks are written to, in the order of [`SegmentKind::ALL`].
    #[must_use]
    pub fn kinds(&self) -> &'static [SegmentKind] {
        match self.logs {
            Logs::Two => &[HotData, HotNode],
            Logs::Four => &[HotData, ColdData, WarmNode, ColdNode],
            Logs::Six => &SegmentKind::ALL,
        }
    }
}

impl Default for StaticPlacement {
    /// Six logs, F2FS's default.
    fn default() -> Self {
        StaticPlacement { logs: Logs::Six }
    }
}

impl StaticPlacement {
    /// The kind of segments that this block goes to.
    #[must_use]
    pub fn kind(&self, block: &BlockTraits) -> SegmentKind {
        match (self.logs, block.node) {
            (Logs::Two, false) => HotData,
            (Logs::Two, true) => HotNode,
            (Logs::Four, false) if block.of_directory => HotData,
            (Logs::Four, false) => ColdData,
            (Logs::Four, true) if block.direct_node && !block.of_directory => WarmNode,
            (Logs::Four, true) => ColdNode,
            (Logs::Six, false) if block.cold => ColdData,
            (Logs::Six, false) if block.hot || block.of_directory => HotData,
            (Logs::Six, false) => WarmData,
            (Logs::Six, true) if !block.direct_node => ColdNode,
            (Logs::Six, true) if block.of_directory => HotNode,
            (Logs::Six, true) => WarmNode,
        }
    }
}

impl Placement for StaticPlacement {
    fn is_by_type_alone(&self) -> bool {
        true
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        LogId::of(self.kind(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Traits from letters: `n`ode, direct (`1`), `d`irectory, `c`old, `h`ot.
    fn traits(letters: &str) -> BlockTraits {
        BlockTraits {
            node: letters.contains('n'),
            direct_node: letters.contains('1'),
            of_directory: letters.contains('d'),
            cold: letters.contains('c'),
            hot: letters.contains('h'),
            ..BlockTraits::default()
        }
    }

    #[test]
    fn places_each_type_of_block() {
        // traits, then the log with 2, 4 and 6 logs
        let table = [
            ("", [HotData, ColdData, WarmData]),
            ("h", [HotData, ColdData, HotData]),
            ("c", [HotData, ColdData, ColdData]),
            ("ch", [HotData, ColdData, ColdData]),
            ("d", [HotData, HotData, HotData]),
            ("dc", [HotData, HotData, ColdData]),
            ("n1", [HotNode, WarmNode, WarmNode]),
            ("n1c", [HotNode, WarmNode, WarmNode]),
            ("n1d", [HotNode, ColdNode, HotNode]),
            ("n", [HotNode, ColdNode, ColdNode]),
            ("nd", [HotNode, ColdNode, ColdNode]),
        ];
        for (letters, expected) in table {
            for (logs, expected) in [2, 4, 6].into_iter().zip(expected) {
                let placement = StaticPlacement::new(logs).expect("a valid number of logs");
                assert_eq!(placement.kind(&traits(letters)), expected, "{letters:?} with {logs} logs");
            }
        }
    }

    #[test]
    fn every_block_goes_to_a_log_in_use_and_of_its_class() {
        for logs in [2u8, 4, 6] {
            let placement = StaticPlacement::new(logs).expect("a valid number of logs");
            assert_eq!(placement.kinds().len(), usize::from(logs));
            for bits in 0u8..32 {
                let block = BlockTraits {
                    node: bits & 1 != 0,
                    direct_node: bits & 2 != 0,
                    of_directory: bits & 4 != 0,
                    cold: bits & 8 != 0,
                    hot: bits & 16 != 0,
                    ..BlockTraits::default()
                };
                let log = placement.kind(&block);
                assert!(placement.kinds().contains(&log), "{block:?} to {log:?}");
                assert_eq!(log.is_node(), block.node, "{block:?} to {log:?}");
            }
        }
    }

    #[test]
    fn refuses_other_numbers_of_logs() {
        for logs in [0, 1, 3, 5, 7, 16, 255] {
            assert_eq!(StaticPlacement::new(logs), None);
        }
        assert_eq!(StaticPlacement::new(6), Some(StaticPlacement::default()));
    }
}
