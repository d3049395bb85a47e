//! The page cache in front of a simulated volume: it absorbs writes to blocks that are dirty already.
//!
//! Dirty blocks alone, and not the lists of [`basalt_workloads::PageCache`]: those decide which clean page a new one replaces, for reads.
//! A stream of writes has none, and a write does not touch a page (Linux since 4.7).

/// Dirty blocks of a file, written back all together when there are as many as the cache holds, in the order in which they became dirty.
///
/// Source: the SFS paper replays its traces as fast as possible, so that what ends a collection of dirty blocks is memory, not
/// the timer (section 4.1). How much memory is not said; see the experiment.
#[derive(Debug)]
pub struct PageCache {
    is_dirty: Vec<bool>,
    /// In the order in which they were dirtied.
    dirty: Vec<u32>,
    most: usize,
    absorbed: u64,
}

impl PageCache {
    /// A cache of at most `most` dirty blocks, one at least, of a file of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u32, most: usize) -> PageCache {
        PageCache { is_dirty: vec![false; blocks as usize], dirty: Vec::new(), most: most.max(1), absorbed: 0 }
    }

    /// Writes a block; the blocks to be written to the device now, if the cache is full. One that the file does not have is written at once.
    pub fn write(&mut self, block: u32) -> Option<Vec<u32>> {
        let Some(is_dirty) = self.is_dirty.get_mut(block as usize) else { return Some(vec![block]) };
        if std::mem::replace(is_dirty, true) {
            self.absorbed += 1;
            return None;
        }
        self.dirty.push(block);
        (self.dirty.len() >= self.most).then(|| self.take())
    }

    /// Writes absorbed so far.
    #[must_use]
    pub fn absorbed(&self) -> u64 {
        self.absorbed
    }

    fn take(&mut self) -> Vec<u32> {
        for &block in &self.dirty {
            self.is_dirty[block as usize] = false;
        }
        std::mem::take(&mut self.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_blocks_absorb_writes_until_all_are_written() {
        let mut cache = PageCache::new(10, 3);
        let written: Vec<_> = [1, 1, 2, 1, 5, 1].into_iter().map(|block| cache.write(block)).collect();
        assert_eq!(written, [None, None, None, None, Some(vec![1, 2, 5]), None]);
        assert_eq!(cache.absorbed(), 2);
    }
}
