//! A sorted list of extents in a page: which pages of a file are where.
//!
//! Each takes 12 bytes: the first page of the file, the page of the chip that has it, and how many follow one another. No two overlap.
//! A place of [`NONE`] says that the file has no page there, whatever an extent map says.

use super::inode::EXTENT;
use super::{NONE, Numbers};

/// Extents that a list has room for beside those that it has, before one is inserted.
pub(crate) const SPARE: usize = 3;

/// Pages of a file that follow one another on the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first page of the file.
    pub(crate) offset: u32,
    /// The page of the chip that has it, or [`NONE`].
    pub(crate) page: u32,
    /// How many.
    pub(crate) length: u32,
}

impl Extent {
    pub(crate) fn end(&self) -> u32 {
        self.offset.saturating_add(self.length)
    }

    /// The part from `from` on and before `to`, which must be within.
    fn part(&self, from: u32, to: u32) -> Extent {
        Extent { offset: from, page: self.page_at(from), length: to - from }
    }

    /// Where a page of the file within the extent is.
    pub(crate) fn page_at(&self, offset: u32) -> u32 {
        if self.page == NONE { NONE } else { self.page.wrapping_add(offset.wrapping_sub(self.offset)) }
    }

    fn continues(&self, before: &Extent) -> bool {
        before.end() == self.offset && before.page_at(self.offset) == self.page
    }
}

/// The list that fills the beginning of `bytes`.
pub(crate) struct Extents<'a> {
    bytes: &'a mut [u8],
    count: usize,
}

impl<'a> Extents<'a> {
    pub(crate) fn new(bytes: &'a mut [u8], count: usize) -> Extents<'a> {
        Extents { bytes, count }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether any extent can be inserted: that may split one, and adds one; then there is room still for one that is split when a range is
    /// taken out.
    pub(crate) fn has_room(&self) -> bool {
        (self.count + SPARE) * EXTENT <= self.bytes.len()
    }

    fn set(&mut self, at: usize, extent: Extent) {
        let bytes = &mut self.bytes[at * EXTENT..][..EXTENT];
        bytes.set_u32(0, extent.offset);
        bytes.set_u32(4, extent.page);
        bytes.set_u32(8, extent.length);
    }

    fn add(&mut self, at: usize, extent: Extent) {
        self.bytes.copy_within(at * EXTENT..self.count * EXTENT, (at + 1) * EXTENT);
        self.count += 1;
        self.set(at, extent);
    }

    fn drop(&mut self, at: usize) {
        self.bytes.copy_within((at + 1) * EXTENT..self.count * EXTENT, at * EXTENT);
        self.count -= 1;
    }

    /// Takes a range out, and says which pages of the chip were there. One extent may become two: see [`has_room`](Extents::has_room).
    pub(crate) fn remove(&mut self, offset: u32, length: u32, mut removed: impl FnMut(u32, u32)) {
        let end = offset.saturating_add(length);
        let mut at = position(self.bytes, self.count, offset);
        while at < self.count {
            let found = get(self.bytes, at);
            if found.offset >= end {
                break;
            }
            let (from, to) = (found.offset.max(offset), found.end().min(end));
            // The list of a damaged page may be in any order.
            if from >= to {
                at += 1;
                continue;
            }
            if found.page != NONE {
                removed(found.page_at(from), to - from);
            }
            match (found.offset < from, to < found.end()) {
                (false, false) => {
                    self.drop(at);
                    continue;
                }
                (true, false) => self.set(at, found.part(found.offset, from)),
                (false, true) => self.set(at, found.part(to, found.end())),
                (true, true) => {
                    self.set(at, found.part(found.offset, from));
                    self.add(at + 1, found.part(to, found.end()));
                }
            }
            at += 1;
        }
    }

    /// Puts an extent in, in place of what was there. Needs [`has_room`](Extents::has_room).
    pub(crate) fn insert(&mut self, extent: Extent, removed: impl FnMut(u32, u32)) {
        self.remove(extent.offset, extent.length, removed);
        let at = position(self.bytes, self.count, extent.offset);
        let before = at.checked_sub(1).map(|before| get(self.bytes, before));
        let after = (at < self.count).then(|| get(self.bytes, at));
        let with_before = before.filter(|before| extent.continues(before));
        let with_after = after.filter(|after| after.continues(&extent));
        match (with_before, with_after) {
            (Some(before), Some(after)) => {
                self.set(at - 1, Extent { length: before.length + extent.length + after.length, ..before });
                self.drop(at);
            }
            (Some(before), None) => self.set(at - 1, Extent { length: before.length + extent.length, ..before }),
            (None, Some(after)) => self.set(at, Extent { length: extent.length + after.length, ..extent }),
            (None, None) => self.add(at, extent),
        }
    }
}

/// An extent of the list.
pub(crate) fn get(bytes: &[u8], at: usize) -> Extent {
    let bytes = &bytes[at * EXTENT..][..EXTENT];
    Extent { offset: bytes.u32_at(0), page: bytes.u32_at(4), length: bytes.u32_at(8) }
}

/// The number of the first extent that ends behind `offset`.
pub(crate) fn position(bytes: &[u8], count: usize, offset: u32) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high) / 2;
        if get(bytes, middle).end() <= offset {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The extent that a page of the file is in, or how many pages there are until the next one begins.
pub(crate) fn find(bytes: &[u8], count: usize, offset: u32) -> Result<Extent, u32> {
    let at = position(bytes, count, offset);
    if at == count {
        return Err(NONE);
    }
    let found = get(bytes, at);
    if found.offset <= offset { Ok(found) } else { Err(found.offset - offset) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_random::Rng;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    /// Against a map of single pages.
    #[test]
    fn lists_do_what_a_map_of_pages_does() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut bytes = [0; EXTENT * 60];
            let (mut count, mut model) = (0, BTreeMap::new());
            let mut next = 1000;
            for _ in 0..120 {
                let (offset, length) = (rng.below(60) as u32, rng.between(1, 9) as u32);
                let mut list = Extents::new(&mut bytes, count);
                if !list.has_room() {
                    break;
                }
                let (mut said, mut gone) = (Vec::new(), Vec::new());
                let mut note = |page, pages| said.extend(page..page + pages);
                let action = rng.below(4);
                let page = if action == 1 { NONE } else { next };
                if action == 0 {
                    list.remove(offset, length, &mut note);
                } else {
                    list.insert(Extent { offset, page, length }, &mut note);
                }
                count = list.count();
                for at in offset..offset + length {
                    gone.extend(model.remove(&at).filter(|&page| page != NONE));
                    if action > 0 {
                        model.insert(at, if page == NONE { NONE } else { page + (at - offset) });
                    }
                }
                said.sort_unstable();
                gone.sort_unstable();
                assert_eq!(said, gone, "seed {seed}");
                // Half of the time the next extent goes on where this one ends.
                next += if rng.chance(50) { length } else { 100 };
                for at in 0..80 {
                    let found = find(&bytes, count, at).ok().map(|found| found.page_at(at));
                    assert_eq!(found, model.get(&at).copied(), "seed {seed}: page {at}");
                }
                for at in 1..count {
                    let (before, after) = (get(&bytes, at - 1), get(&bytes, at));
                    assert!(before.end() <= after.offset && before.length > 0, "seed {seed}");
                }
            }
        }
    }
}
