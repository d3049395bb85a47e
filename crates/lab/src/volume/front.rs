//! What stands between a stream and the volume: dirty blocks, the lists of their pages, and runs of neighbours.

use std::sync::Arc;

use basalt_segments::PageTemperatures;
use basalt_simulator::{Error, PageList, Volume};
use parking_lot::Mutex;

use super::{Around, PageCache, Placing};

/// Neighbouring blocks that count as one run at most: 1 MiB, the largest request of FUSE.
pub(super) const LONGEST_RUN: u32 = 256;

/// In front of a volume.
pub(super) struct Front {
    cache: Option<PageCache>,
    /// Of the placement that asks for them.
    lists: Option<Arc<Mutex<PageTemperatures<u32>>>>,
    /// Of the placement that asks for it: the first and the number of blocks that wait until their run has come to its end.
    run: Option<(u32, u32)>,
}

impl Front {
    /// What this placement needs.
    pub(super) fn new(around: &Around, placing: Placing, blocks: u32) -> Front {
        let lists = around.page_cache_blocks.filter(|_| matches!(placing, Placing::ByPageCache(_)));
        Front {
            cache: around.page_cache(blocks),
            lists: lists.map(|most| Arc::new(Mutex::new(PageTemperatures::new(most, around.touches)))),
            run: matches!(placing, Placing::RunLength(_)).then_some((0, 0)),
        }
    }

    /// Says on which list the page of a block is.
    pub(super) fn lists(&self) -> Option<PageList> {
        let lists = Arc::clone(self.lists.as_ref()?);
        Some(Box::new(move |block| lists.lock().list(block)))
    }

    /// Writes that the cache absorbed so far.
    pub(super) fn absorbed(&self) -> u64 {
        self.cache.as_ref().map_or(0, PageCache::absorbed)
    }

    /// Somebody writes a block.
    pub(super) fn write(&mut self, volume: &mut Volume, block: u32) -> Result<(), Error> {
        if let Some(lists) = &self.lists {
            lists.lock().note_write(block);
        }
        match &mut self.cache {
            Some(cache) => {
                let blocks = cache.write(block);
                blocks.into_iter().flatten().try_for_each(|block| self.pass_on(volume, block))
            }
            None => self.pass_on(volume, block),
        }
    }

    fn pass_on(&mut self, volume: &mut Volume, block: u32) -> Result<(), Error> {
        let Some((first, count)) = self.run else { return volume.write(block) };
        if count > 0 && count < LONGEST_RUN && block == first + count {
            self.run = Some((first, count + 1));
            return Ok(());
        }
        self.end_run(volume)?;
        self.run = Some((block, 1));
        Ok(())
    }

    /// Writes the blocks that wait for more neighbours.
    pub(super) fn end_run(&mut self, volume: &mut Volume) -> Result<(), Error> {
        let Some((first, count)) = self.run else { return Ok(()) };
        self.run = Some((0, 0));
        (first..first + count).try_for_each(|block| volume.write_in_run(block, count))
    }
}
