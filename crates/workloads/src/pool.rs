//! A database's buffer pool: which pages are in memory, and which of them are dirty.

use rustc_hash::FxHashMap;

/// A page in memory.
#[derive(Debug, Clone, Copy)]
struct Frame {
    page: u32,
    used: bool,
    dirty: bool,
}

/// Pages in memory, replaced in the order of a clock.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    capacity: usize,
    frames: Vec<Frame>,
    places: FxHashMap<u32, usize>,
    hand: usize,
    dirty: usize,
}

/// What had to happen for a page to be in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing.
    Hit,
    /// It has to be read.
    Miss,
    /// Every page in memory is dirty or just used: some must be written first; ask again then.
    Full,
}

impl Pool {
    pub(crate) fn new(capacity: usize) -> Pool {
        Pool { capacity: capacity.max(1), frames: Vec::new(), places: FxHashMap::default(), hand: 0, dirty: 0 }
    }

    /// Dirty pages.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty
    }

    /// Uses a page, and makes it dirty if it is updated.
    pub(crate) fn access(&mut self, page: u32, update: bool) -> Access {
        let (place, access) = match self.places.get(&page) {
            Some(place) => (*place, Access::Hit),
            None => match self.replace(page) {
                Some(place) => (place, Access::Miss),
                None => return Access::Full,
            },
        };
        let frame = &mut self.frames[place];
        frame.used = true;
        if update && !frame.dirty {
            frame.dirty = true;
            self.dirty += 1;
        }
        access
    }

    /// A place for a page that is not in memory; `None` if all of them are dirty.
    fn replace(&mut self, page: u32) -> Option<usize> {
        let frame = Frame { page, used: false, dirty: false };
        if self.frames.len() < self.capacity {
            self.frames.push(frame);
            self.places.insert(page, self.frames.len() - 1);
            return Some(self.frames.len() - 1);
        }
        // In the second round every clean page has lost its mark.
        for _ in 0..self.capacity * 2 {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.capacity;
            let old = &mut self.frames[place];
            if old.used {
                old.used = false;
            } else if !old.dirty {
                self.places.remove(&old.page);
                *old = frame;
                self.places.insert(page, place);
                return Some(place);
            }
        }
        None
    }

    /// Takes up to `count` dirty pages to be written, the clock's next first; they are clean then.
    pub(crate) fn clean(&mut self, count: usize) -> Vec<u32> {
        let mut pages = Vec::new();
        let length = self.frames.len();
        for step in 0..length {
            if pages.len() >= count || self.dirty == 0 {
                break;
            }
            let frame = &mut self.frames[(self.hand + step) % length];
            if std::mem::take(&mut frame.dirty) {
                self.dirty -= 1;
                pages.push(frame.page);
            }
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_pages_stay_until_they_are_written() {
        let mut pool = Pool::new(2);
        assert_eq!(pool.access(1, true), Access::Miss);
        assert_eq!(pool.access(2, false), Access::Miss);
        assert_eq!(pool.access(1, false), Access::Hit);
        // Page 2 goes, page 1 is dirty.
        assert_eq!(pool.access(3, true), Access::Miss);
        assert_eq!(pool.access(2, false), Access::Full);
        let mut written = pool.clean(8);
        written.sort_unstable();
        assert_eq!((written, pool.dirty()), (vec![1, 3], 0));
        assert_eq!(pool.access(2, false), Access::Miss);
    }
}
