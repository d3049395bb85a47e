//! Full blocks by their number of live pages: the emptiest is found without a search.

/// Doubly linked rings, one for each number of live pages, in two arrays: blocks first, then the heads of the rings.
pub(super) struct Victims {
    next: Vec<u32>,
    previous: Vec<u32>,
    /// Live pages of each block that is in a ring, else [`ABSENT`].
    live: Vec<u16>,
    blocks: u32,
    /// No ring below this one has a block.
    lowest: u32,
    pages_per_block: u32,
}

const ABSENT: u16 = u16::MAX;

impl Victims {
    pub fn new(blocks: u32, pages_per_block: u32) -> Victims {
        // Empty rings point at themselves.
        let links: Vec<u32> = (0..blocks + pages_per_block + 1).collect();
        Victims {
            next: links.clone(),
            previous: links,
            live: vec![ABSENT; blocks as usize],
            blocks,
            lowest: pages_per_block + 1,
            pages_per_block,
        }
    }

    pub fn memory(&self) -> u64 {
        self.next.len() as u64 * 8 + self.live.len() as u64 * 2
    }

    /// Adds a block at the end of its ring.
    pub fn insert(&mut self, block: u32, live: u16) {
        self.live[block as usize] = live;
        self.lowest = self.lowest.min(u32::from(live));
        let head = self.blocks + u32::from(live);
        let last = self.previous[head as usize];
        self.next[last as usize] = block;
        self.previous[block as usize] = last;
        self.next[block as usize] = head;
        self.previous[head as usize] = block;
    }

    fn unlink(&mut self, block: u32) {
        let (previous, next) = (self.previous[block as usize], self.next[block as usize]);
        self.next[previous as usize] = next;
        self.previous[next as usize] = previous;
    }

    /// Moves a block, if it is here, one ring down.
    #[inline]
    pub fn lost_a_page(&mut self, block: u32) {
        let live = self.live[block as usize];
        if live != ABSENT {
            self.unlink(block);
            self.insert(block, live - 1);
        }
    }

    /// Removes the block with the fewest live pages. None when every block here is full of live pages.
    pub fn take(&mut self) -> Option<u32> {
        while self.lowest < self.pages_per_block {
            let head = self.blocks + self.lowest;
            let block = self.next[head as usize];
            if block != head {
                self.unlink(block);
                self.live[block as usize] = ABSENT;
                return Some(block);
            }
            self.lowest += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_goes_first_and_of_equals_the_one_longest_so() {
        let mut victims = Victims::new(5, 4);
        for (block, live) in [(0, 4), (1, 2), (2, 2), (3, 3)] {
            victims.insert(block, live);
        }
        victims.lost_a_page(4);
        victims.lost_a_page(3);
        assert_eq!(victims.take(), Some(1));
        assert_eq!(victims.take(), Some(2));
        victims.lost_a_page(0);
        assert_eq!(victims.take(), Some(3));
        assert_eq!(victims.take(), Some(0));
        assert_eq!(victims.take(), None);
        victims.insert(4, 4);
        assert_eq!(victims.take(), None);
        victims.lost_a_page(4);
        assert_eq!(victims.take(), Some(4));
    }
}
