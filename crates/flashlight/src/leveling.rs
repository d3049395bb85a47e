//! Wear levelling: data that never change come to blocks that have been erased often.
//!
//! Blocks are used in turn, so those that are freed wear alike. What lies on one for ever keeps it from being erased: now and then a block is
//! looked at, and if it was erased much less often than the others, it is emptied into the most worn of the free blocks.

use basalt_nand::NandDevice;

use crate::cleaning::TO_CHANGE;
use crate::error::Result;
use crate::layout::NONE;
use crate::layout::leaf::Head;
use crate::memory::Bytes;
use crate::volume::{FlashLight, KEPT, Log};

/// Blocks that are opened until one is looked at.
const EVERY: u32 = 16;
/// Erases less than the mean that a block may have.
const BEHIND: u64 = 16;
/// Free blocks of which the most worn takes what is moved.
const CHOICE: usize = 32;

/// Where levelling is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leveling {
    /// Blocks that were opened since one was looked at.
    pub(crate) opened: u32,
    /// The block that is looked at next.
    next: u32,
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Looks at a block, if it is time, and empties it if it was erased seldom.
    pub(crate) fn level(&mut self) -> Result<()> {
        if self.leveling.opened < EVERY || self.window_left() < KEPT + TO_CHANGE {
            return Ok(());
        }
        self.leveling.opened = 0;
        let block = self.leveling.next % self.geometry.blocks;
        self.leveling.next = block + 1;
        // What is left of a part-used block is no reason to keep it.
        for remnant in &mut self.state.remnants {
            if remnant.block == block {
                *remnant = Head::CLOSED;
            }
        }
        let live = self.memory.counts()[block as usize];
        if live == 0 || self.is_bad(block) || self.is_needed(block) || self.stuck.contains(&block) {
            return Ok(());
        }
        let mean = self.state.erases / u64::from(self.geometry.blocks);
        let Some(tag) = self.tag(self.geometry.first_page(block))? else { return Ok(()) };
        if u64::from(tag.erases) + BEHIND >= mean {
            return Ok(());
        }
        self.take_most_worn()?;
        // The log begins in that block.
        self.state.heads[Log::Moved as usize] = Head::CLOSED;
        self.counters.leveled += 1;
        self.empty(block)
    }

    /// Lets the most worn of the free blocks come next. The others keep their order: recovery reads their logs in that.
    fn take_most_worn(&mut self) -> Result<()> {
        let first = self.window_used;
        let last = (first + CHOICE).min(first + self.window_left() - KEPT);
        let mut most = (0, first);
        for at in first..last {
            let block = self.state.window[at];
            debug_assert!(block != NONE);
            let erases = self.tag(self.geometry.first_page(block))?.map_or(0, |tag| tag.erases);
            if erases > most.0 {
                most = (erases, at);
            }
        }
        self.state.window[first..=most.1].rotate_right(1);
        Ok(())
    }
}
