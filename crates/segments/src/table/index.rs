//! Sections by their number of live blocks, kept up to date with every block: the search for the emptiest need not read the
//! whole table.

use crate::Section;
use crate::bitmap::Bitmap;

/// No section: the end of a list.
const NONE: u32 = u32::MAX;

/// A doubly linked list of sections for each number of live blocks.
pub(super) struct LiveIndex {
    /// Live blocks of each section.
    live: Vec<u32>,
    /// The first section of each list, by live blocks.
    first: Vec<u32>,
    before: Vec<u32>,
    after: Vec<u32>,
    /// Numbers of live blocks whose list is not empty.
    occupied: Bitmap,
}

impl LiveIndex {
    /// The index of sections with these numbers of live blocks, none above `capacity`.
    pub(super) fn new(capacity: u32, live: Vec<u32>) -> LiveIndex {
        let sections = live.len();
        let mut index = LiveIndex {
            first: vec![NONE; capacity as usize + 1],
            before: vec![NONE; sections],
            after: vec![NONE; sections],
            occupied: Bitmap::new(capacity + 1),
            live,
        };
        for section in 0..sections {
            index.link(section as u32);
        }
        index
    }

    /// This many blocks of the section became live, or died.
    pub(super) fn change(&mut self, section: Section, gained: bool, count: u32) {
        self.unlink(section.get());
        let live = &mut self.live[section.index()];
        *live = if gained { *live + count } else { *live - count };
        self.link(section.get());
    }

    /// The sections with the fewest live blocks, but at least one and fewer than all, that `may` be taken, up to `count`: the
    /// lowest-numbered of equals first.
    pub(super) fn emptiest(&self, may: impl Fn(Section) -> bool, count: usize) -> Vec<Section> {
        let mut found: Vec<Section> = Vec::new();
        let capacity = self.first.len() as u32 - 1;
        let mut next = self.occupied.next(1);
        while let Some(live) = next.filter(|&live| live < capacity && found.len() < count) {
            let equals = found.len();
            let mut section = self.first[live as usize];
            while section != NONE {
                if may(Section::new(section)) {
                    found.push(Section::new(section));
                }
                section = self.after[section as usize];
            }
            found[equals..].sort_unstable();
            next = self.occupied.next(live + 1);
        }
        found.truncate(count);
        found
    }

    /// Bytes of memory used on the heap.
    pub(super) fn memory(&self) -> usize {
        let lists = [&self.live, &self.first, &self.before, &self.after];
        lists.iter().map(|list| list.capacity() * size_of::<u32>()).sum::<usize>() + self.occupied.memory()
    }

    fn link(&mut self, section: u32) {
        let live = self.live[section as usize];
        let first = std::mem::replace(&mut self.first[live as usize], section);
        (self.before[section as usize], self.after[section as usize]) = (NONE, first);
        if first == NONE {
            self.occupied.insert(live);
        } else {
            self.before[first as usize] = section;
        }
    }

    fn unlink(&mut self, section: u32) {
        let (before, after) = (self.before[section as usize], self.after[section as usize]);
        if after != NONE {
            self.before[after as usize] = before;
        }
        if before != NONE {
            self.after[before as usize] = after;
            return;
        }
        let live = self.live[section as usize];
        self.first[live as usize] = after;
        if after == NONE {
            self.occupied.remove(live);
        }
    }
}
