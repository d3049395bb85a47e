//! Full blocks by their number of live pages: the emptiest is found without a search.

/// Doubly linked rings, one for each number of live pages, in one array: blocks first, then the heads of the rings.
pub(super) struct Victims {
    links: Vec<Link>,
    blocks: u32,
    /// No ring below this one has a block.
    lowest: u32,
    pages_per_block: u32,
}

/// A block or the head of a ring: together, since they are wanted together.
#[derive(Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
    /// Live pages of a block that is in a ring, else [`ABSENT`].
    live: u32,
}

const ABSENT: u32 = u32::MAX;

impl Victims {
    pub fn new(blocks: u32, pages_per_block: u32) -> Victims {
        // Empty rings point at themselves.
        let link = |number| Link { next: number, previous: number, live: ABSENT };
        let links = (0..blocks + pages_per_block + 1).map(link).collect();
        Victims { links, blocks, lowest: pages_per_block + 1, pages_per_block }
    }

    pub fn memory(&self) -> u64 {
        (self.links.len() * size_of::<Link>()) as u64
    }

    /// Adds a block at the end of its ring.
    pub fn insert(&mut self, block: u32, live: u16) {
        self.put(block, u32::from(live));
    }

    #[inline(always)]
    fn put(&mut self, block: u32, live: u32) {
        self.lowest = self.lowest.min(live);
        let head = self.blocks + live;
        let last = std::mem::replace(&mut self.links[head as usize].previous, block);
        self.links[last as usize].next = block;
        self.links[block as usize] = Link { next: head, previous: last, live };
    }

    #[inline(always)]
    fn unlink(&mut self, block: u32) {
        let Link { next, previous, .. } = self.links[block as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }

    /// Moves a block, if it is here, one ring down.
    #[inline(always)]
    pub fn lost_a_page(&mut self, block: u32) {
        let live = self.links[block as usize].live;
        if live != ABSENT {
            self.unlink(block);
            self.put(block, live - 1);
        }
    }

    /// Removes the block with the fewest live pages. None when every block here is full of live pages.
    pub fn take(&mut self) -> Option<u32> {
        while self.lowest < self.pages_per_block {
            let head = self.blocks + self.lowest;
            let block = self.links[head as usize].next;
            if block != head {
                self.unlink(block);
                self.links[block as usize].live = ABSENT;
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
