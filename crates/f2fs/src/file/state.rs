//! What is in memory of an inode in use: its cached blocks.

use std::collections::{BTreeMap, VecDeque};

use crate::layout::{FileBlock, Ino, RawBlock};

/// One cached block.
pub struct Page {
    /// Its bytes.
    pub block: Box<RawBlock>,
    /// Whether it must still be written.
    pub dirty: bool,
}

/// What is known about an inode in use, beyond its node.
#[derive(Default)]
pub struct InodeState {
    /// References given out and not yet given back.
    pub lookups: u64,
    /// Cached blocks, by block of the file.
    pub pages: BTreeMap<FileBlock, Page>,
    /// How many of them are dirty.
    pub dirty: usize,
    /// Dirty pages count as directory pages.
    pub directory: bool,
}

/// Clean directory pages, oldest first.
#[derive(Default)]
pub struct CleanPages {
    order: VecDeque<(Ino, FileBlock)>,
}

impl CleanPages {
    /// Notes a page that has become clean.
    pub fn note(&mut self, ino: Ino, index: FileBlock) {
        self.order.push_back((ino, index));
    }

    /// Takes the oldest away if there are more than `limit`: its inode and block.
    pub fn take_beyond(&mut self, limit: usize) -> Option<(Ino, FileBlock)> {
        if self.order.len() > limit { self.order.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_clean_page_goes_first() {
        let mut pages = CleanPages::default();
        [1, 2, 3].into_iter().for_each(|index| pages.note(Ino::new(9), FileBlock::new(index)));
        assert_eq!(pages.take_beyond(2), Some((Ino::new(9), FileBlock::new(1))));
        assert_eq!(pages.take_beyond(2), None);
    }
}
