//! Hot and cold by the page cache: by the list that a page is on when its block gets a place.

use super::{BlockTraits, Placement, Policy, StaticPlacement};
use crate::SegmentKind::{self, ColdData, HotData, WarmData};
use crate::{List, LogId, Reason, Touches};

/// Neighbouring blocks written together from which on [`RunLength`] takes them for cold: 64 KiB.
pub const LONG_RUN: u32 = 16;

/// [`RunLength`] as options name it.
pub(super) const RUN_LENGTH: Policy = Policy::new(RunLength::NAME, RunLength::ABOUT, |options| {
    Ok(Box::new(RunLength(Split::new(options.logs, Moved::Cold)?)))
});

/// [`ByPageCache`] as options name it.
pub(super) const PAGE_CACHE: Policy = Policy::new(ByPageCache::NAME, ByPageCache::ABOUT, |options| {
    let touches = options.touches.unwrap_or_default();
    Ok(Box::new(ByPageCache { split: Split::new(options.logs, Moved::Cold)?, touches }))
})
.with_lists();

/// Where cleaning copies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Moved {
    /// To the log for cold data: what had to be moved has proved to be cold.
    #[default]
    Cold,
    /// By the rule for what users write.
    ByList,
}

impl Moved {
    /// The names of all, the default first.
    pub const NAMES: &[&str] = &["cold", "list"];

    /// The one of this name; `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Moved> {
        match name {
            "cold" => Some(Moved::Cold),
            "list" => Some(Moved::ByList),
            _ => None,
        }
    }
}

/// Hot and cold data apart, whatever says which is which.
///
/// | logs | hot, of a directory | other | moved by cleaning | nodes |
/// |---|---|---|---|---|
/// | 6 | `HotData` | `WarmData` | `ColdData` | as F2FS |
/// | 4 | `HotData` | `ColdData` | `ColdData`, or by the same rule | as F2FS |
///
/// A file that is marked hot or cold is what its mark says.
#[derive(Clone, Copy, Debug)]
struct Split {
    nodes: StaticPlacement,
    other: SegmentKind,
    moved: Moved,
}

impl Split {
    /// Of 4 or 6 logs.
    ///
    /// # Errors
    /// The reason why it cannot be, behind "placement `NAME` ".
    fn new(logs: u8, moved: Moved) -> Result<Split, String> {
        let other = match (logs, moved) {
            (4, _) => ColdData,
            (6, Moved::Cold) => WarmData,
            (6, Moved::ByList) => {
                return Err("has a log of its own for what is moved with 6 logs: moved=list needs 4".into());
            }
            (2, _) => return Err("needs a hot and a cold log: with 2 logs, there is one data log".into()),
            _ => return Err(format!("needs 4 or 6 logs, not {logs}")),
        };
        StaticPlacement::new(logs).map(|nodes| Split { nodes, other, moved }).ok_or_else(|| "needs 4 or 6 logs".into())
    }

    fn log(&self, block: &BlockTraits, is_hot: bool) -> LogId {
        let is_moved = block.reason == Reason::Cleaning;
        let kind = if block.node {
            self.nodes.kind(block)
        } else if is_moved && self.moved == Moved::Cold {
            ColdData
        } else if block.of_directory || block.hot {
            HotData
        } else if block.cold && !is_moved {
            ColdData
        } else if is_hot {
            HotData
        } else {
            self.other
        };
        LogId::of(kind)
    }
}

/// A page on the active list when its block gets a place is hot; one that is not is cold. Directories are hot.
///
/// The paper does not say whether blocks that cleaning moves obey the lists; hence [`Moved`]. With 6 logs they are kept apart, as F2FS
/// does. It needs [`BlockTraits::list`]: the engine keeps [lists](crate::PageTemperatures) of what reads and writes it meets. Behind a kernel's
/// page cache that is less than what programs do.
///
/// Source: D. H. Kang and Y. I. Eom, "Dynamic Hot-Cold Separation Scheme on the Log-structured File System for CE Devices", section III.
#[derive(Clone, Copy, Debug)]
pub struct ByPageCache {
    split: Split,
    touches: Touches,
}

impl ByPageCache {
    /// The name in options.
    pub const NAME: &str = "page-cache";
    /// What it does, for help texts.
    pub const ABOUT: &str = "by the list of the page cache that a page is on: active is hot (Kang and Eom)";

    /// Over 4 or 6 logs.
    ///
    /// # Errors
    /// In words, when there is no log for cold data, or `moved` means nothing with as many.
    pub fn new(logs: u8, moved: Moved) -> Result<ByPageCache, String> {
        let split = Split::new(logs, moved).map_err(|reason| format!("placement `{}` {reason}", Self::NAME))?;
        Ok(ByPageCache { split, touches: Touches::default() })
    }
}

impl Placement for ByPageCache {
    fn touches(&self) -> Option<Touches> {
        Some(self.touches)
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        self.split.log(block, block.list == Some(List::Active))
    }
}

/// What is written in runs of at least [`LONG_RUN`] neighbouring blocks is cold, what is written in shorter ones hot: what large files are
/// made of is rarely written again, small records often. It needs no page cache, only [`BlockTraits::run`]: where nobody knows, a block is
/// neither.
///
/// Ours: it tells small appends from large files, as the page cache's lists do where writes count.
#[derive(Clone, Copy, Debug)]
pub struct RunLength(Split);

impl RunLength {
    /// The name in options.
    pub const NAME: &str = "run-length";
    /// What it does, for help texts.
    pub const ABOUT: &str = "what is written in runs of 16 neighbouring blocks and more is cold";

    /// Over 4 or 6 logs.
    ///
    /// # Errors
    /// As [`ByPageCache::new`].
    pub fn new(logs: u8, moved: Moved) -> Result<RunLength, String> {
        Split::new(logs, moved).map(RunLength).map_err(|reason| format!("placement `{}` {reason}", Self::NAME))
    }
}

impl Placement for RunLength {
    fn log(&self, block: &BlockTraits) -> LogId {
        self.0.log(block, (1..LONG_RUN).contains(&block.run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentKind::{ColdNode, HotNode, WarmNode};

    /// Traits from letters: on the `a`ctive or the `i`nactive list, in a `s`hort or a `l`ong run, `m`oved by cleaning, `d`irectory, marked
    /// `h`ot or `c`old, `n`ode, direct (`1`).
    fn traits(letters: &str) -> BlockTraits {
        let has = |letter| letters.contains(letter);
        BlockTraits {
            node: has('n'),
            direct_node: has('1'),
            of_directory: has('d'),
            cold: has('c') || has('m'),
            hot: has('h'),
            reason: if has('m') { Reason::Cleaning } else { Reason::Writeback },
            list: has('a').then_some(List::Active).or(has('i').then_some(List::Inactive)),
            run: if has('l') { LONG_RUN } else { u32::from(has('s')) * (LONG_RUN - 1) },
            ..BlockTraits::default()
        }
    }

    #[test]
    fn blocks_go_to_the_logs_of_the_specification() {
        // Letters, then the log with 6 logs, with 4, and with 4 where cleaning asks the lists too.
        let table = [
            ("a", [HotData, HotData, HotData]),
            ("i", [WarmData, ColdData, ColdData]),
            ("", [WarmData, ColdData, ColdData]),
            ("am", [ColdData, ColdData, HotData]),
            ("im", [ColdData, ColdData, ColdData]),
            ("m", [ColdData, ColdData, ColdData]),
            ("di", [HotData, HotData, HotData]),
            ("dim", [ColdData, ColdData, HotData]),
            ("hi", [HotData, HotData, HotData]),
            ("ca", [ColdData, ColdData, ColdData]),
            ("n1", [WarmNode, WarmNode, WarmNode]),
            ("n1d", [HotNode, ColdNode, ColdNode]),
            ("n", [ColdNode, ColdNode, ColdNode]),
        ];
        let runs = |letters: &str| letters.replace('a', "s").replace('i', "l");
        for (letters, expected) in table {
            for ((logs, moved), expected) in
                [(6, Moved::Cold), (4, Moved::Cold), (4, Moved::ByList)].into_iter().zip(expected)
            {
                let by_list = ByPageCache::new(logs, moved).unwrap();
                assert_eq!(by_list.log(&traits(letters)), LogId::of(expected), "{letters:?} with {logs} logs");
                let by_run = RunLength::new(logs, moved).unwrap();
                assert_eq!(by_run.log(&traits(&runs(letters))), LogId::of(expected), "{letters:?} with {logs} logs");
            }
        }
    }

    #[test]
    fn one_data_log_is_refused_with_the_reason() {
        for moved in [Moved::Cold, Moved::ByList] {
            let reason = ByPageCache::new(2, moved).unwrap_err();
            assert_eq!(reason, "placement `page-cache` needs a hot and a cold log: with 2 logs, there is one data log");
            assert!(RunLength::new(2, moved).unwrap_err().starts_with("placement `run-length` needs a hot"));
        }
        assert!(ByPageCache::new(6, Moved::ByList).unwrap_err().contains("moved=list needs 4"));
        assert!([0, 3, 5, 7].iter().all(|&logs| RunLength::new(logs, Moved::Cold).is_err()));
        assert!(Moved::NAMES.iter().all(|name| Moved::by_name(name).is_some()) && Moved::by_name("hot").is_none());
    }
}
