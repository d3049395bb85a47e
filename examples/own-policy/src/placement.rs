//! The idea: blocks that are rewritten after about the same time belong together.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::Policy;
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Reason, SegmentKind, StaticPlacement};

/// How the lab gets it: a name, a sentence, and a function that makes one for each run.
pub static POLICY: Policy = Policy::new("intervals", "by the time since the block was written before", |options| {
    options.expect_six_logs()?;
    Ok(Box::new(Intervals::default()))
});

/// Groups beside F2FS's logs. What was never written before, and what becomes too cold for these, goes to F2FS's cold log.
const GROUPS: [SegmentKind; 4] =
    [SegmentKind::HotData, SegmentKind::WarmData, SegmentKind::WarmData, SegmentKind::WarmData];

/// Group 0 takes blocks that are rewritten within 1/16 of the blocks there are, group 1 within 1/4, group 2 within once as many, group 3
/// within four times. A copy goes to the group behind the one that the block was in: it lived longer than was thought.
#[derive(Default)]
struct Intervals(Mutex<Learned>);

#[derive(Default)]
struct Learned {
    /// Blocks that programs wrote so far: the clock.
    now: u64,
    /// By file and block: when it was written, and the group it is in.
    blocks: HashMap<(u32, u32), (u64, usize)>,
}

impl Learned {
    fn group(&self, block: &BlockTraits) -> usize {
        let Some(&(written, group)) = self.blocks.get(&(block.file, block.index)) else { return GROUPS.len() };
        if block.reason == Reason::Cleaning {
            return (group + 1).min(GROUPS.len());
        }
        let interval = 16 * (self.now - written);
        let edges = (0..GROUPS.len() as u32).map(|group| self.blocks.len() as u64 * 4u64.pow(group));
        edges.take_while(|&edge| interval >= edge).count()
    }
}

impl Intervals {
    fn learned(&self) -> MutexGuard<'_, Learned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Placement for Intervals {
    fn more_logs(&self) -> &[SegmentKind] {
        &GROUPS
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if block.node || block.of_directory {
            return StaticPlacement::default().log(block);
        }
        match self.learned().group(block) {
            group if group < GROUPS.len() => LogId::more(group as u8),
            _ => LogId::of(SegmentKind::ColdData),
        }
    }

    fn note_written(&self, block: &BlockTraits, _place: MainBlock) {
        if block.node || block.of_directory {
            return;
        }
        let learned = &mut *self.learned();
        let (group, now) = (learned.group(block), learned.now);
        let is_copy = block.reason == Reason::Cleaning;
        let known = learned.blocks.entry((block.file, block.index)).or_insert((now, group));
        *known = (if is_copy { known.0 } else { now }, group);
        learned.now += u64::from(!is_copy);
    }
}
