//! The active and the inactive list that a page cache would have pages of files on, for placements that look at them.

use basalt_segments::{List, PageTemperatures, Touches};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::layout::{BLOCK_SIZE, FileBlock, Ino};

/// Lists of pages without their bytes, apart from [`Pages`](super::cache::Pages): they know of writes that pass the cache by, and of reads.
///
/// Of as many pages as the cache has room for; each takes about 120 bytes, those besides that left the lists last included, and up to 80 more
/// where files have a page each.
pub struct PageLists {
    pages: PageTemperatures<(Ino, FileBlock)>,
    /// Of files with pages that are known: the block behind the last of them that ever was.
    ends: FxHashMap<Ino, FileBlock>,
    most: usize,
}

/// Looking for a page by its key takes as long as looking at so many in a row.
const LOOKUP: usize = 8;

impl PageLists {
    /// For a cache of so many bytes.
    pub fn new(cache_bytes: usize, touches: Touches) -> PageLists {
        let most = cache_bytes / BLOCK_SIZE;
        PageLists { pages: PageTemperatures::new(most, touches), ends: FxHashMap::default(), most }
    }

    /// Somebody writes these bytes of a file.
    pub fn note_write(&mut self, ino: Ino, offset: u64, length: u64) {
        self.note_end(ino, offset, length);
        pages(offset, length).for_each(|page| self.pages.note_write((ino, page)));
    }

    /// Somebody reads these bytes of a file.
    pub fn note_read(&mut self, ino: Ino, offset: u64, length: u64) {
        self.note_end(ino, offset, length);
        pages(offset, length).for_each(|page| self.pages.note_read((ino, page)));
    }

    /// These pages of a file will be known.
    fn note_end(&mut self, ino: Ino, offset: u64, length: u64) {
        let Some(last) = pages(offset, length).last() else { return };
        // At most twice as many pages as the lists have are known, so half of these files have none, and the next time is as far away.
        if self.ends.len() > 4 * self.most && !self.ends.contains_key(&ino) {
            let mut with_pages = FxHashSet::default();
            self.pages.all_known().for_each(|(ino, _)| _ = with_pages.insert(*ino));
            self.ends.retain(|ino, _| with_pages.contains(ino));
        }
        let end = self.ends.entry(ino).or_default();
        *end = last.saturating_add(1).max(*end);
    }

    /// The blocks of a file from `from` to `to` (exclusive) are gone. Takes time in proportion to the pages that are known of all files at the
    /// most, and none where none of this one is.
    pub fn forget(&mut self, ino: Ino, from: FileBlock, to: FileBlock) {
        let Some(end) = self.ends.get(&ino) else { return };
        let (from, to) = (from.get(), to.min(*end).get());
        if (to.saturating_sub(from) as usize).saturating_mul(LOOKUP) <= self.pages.pages_known() {
            (from..to).for_each(|page| self.pages.forget((ino, FileBlock::new(page))));
        } else {
            self.pages.forget_where(|(of, page)| *of == ino && (from..to).contains(&page.get()));
        }
        if from == 0 && to == end.get() {
            self.ends.remove(&ino);
        }
    }

    /// The list that a page is on; `None` if it is on none.
    pub fn list(&self, ino: Ino, page: FileBlock) -> Option<List> {
        self.pages.list((ino, page))
    }
}

/// The pages with bytes from `offset` on.
fn pages(offset: u64, length: u64) -> impl Iterator<Item = FileBlock> {
    let end = if length == 0 { FileBlock::of_byte(offset) } else { FileBlock::behind(offset + length) };
    (FileBlock::of_byte(offset).get()..end.get()).map(FileBlock::new)
}

#[cfg(test)]
mod tests {
    use super::List::{Active, Inactive};
    use super::*;

    /// The lists of the first pages of a file.
    fn lists(lists: &PageLists, ino: Ino) -> [Option<List>; 5] {
        [0, 1, 2, 3, 4].map(|page| lists.list(ino, FileBlock::new(page)))
    }

    #[test]
    fn each_page_with_bytes_of_a_call_is_touched() {
        let mut known = PageLists::new(1 << 20, Touches::Each);
        let (one, other) = (Ino::new(7), Ino::new(8));
        known.note_write(one, 4096, 8192);
        known.note_write(one, 8191, 1);
        known.note_read(one, 12_287, 2);
        known.note_write(one, 16_384, 0);
        assert_eq!(lists(&known, one), [None, Some(Active), Some(Active), Some(Inactive), None]);
        assert_eq!(lists(&known, other), [None; 5]);
    }

    #[test]
    fn what_is_gone_is_on_no_list_whatever_the_length() {
        for end in [3, u32::MAX] {
            let mut known = PageLists::new(1 << 20, Touches::Each);
            let (one, other) = (Ino::new(7), Ino::new(8));
            for ino in [one, other, one, other] {
                known.note_write(ino, 0, 3 * 4096);
            }
            known.forget(one, FileBlock::new(1), FileBlock::new(end));
            assert_eq!(lists(&known, one), [Some(Active), None, None, None, None]);
            assert_eq!(lists(&known, other)[..3], [Some(Active); 3]);
            // A new page of that number begins anew.
            known.note_write(one, 4096, 1);
            assert_eq!(lists(&known, one)[1], Some(Inactive));
            known.forget(one, FileBlock::new(3), FileBlock::FIRST);
        }
    }

    /// Pages that were replaced are remembered too: one of a removed file must not come back as active.
    #[test]
    fn what_left_the_lists_is_forgotten_too() {
        for end in [4, u32::MAX] {
            let mut known = PageLists::new(4 * 4096, Touches::Each);
            let (one, other) = (Ino::new(7), Ino::new(8));
            known.note_read(one, 0, 4 * 4096);
            known.note_read(one, 0, 2 * 4096);
            known.note_read(other, 0, 4096);
            assert_eq!(lists(&known, one)[..4], [Some(Active), Some(Active), None, Some(Inactive)]);
            known.forget(one, FileBlock::new(2), FileBlock::new(end));
            known.note_read(one, 2 * 4096, 1);
            assert_eq!(lists(&known, one)[2], Some(Inactive));
        }
    }
}
