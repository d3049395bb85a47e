//! What cleaning moved since the last commit, of what something durable refers to.

use basalt_segments::Segment;
use rustc_hash::FxHashMap;

use crate::layout::journal::{Move, cut};
use crate::layout::{Address, Nid};

/// Who points to a block that is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The node that points to it; of a node, its own id.
    pub nid: Nid,
    /// Index of the pointer in the node; 0 of nodes.
    pub index: u32,
    /// [`KIND_DATA`](crate::layout::journal::KIND_DATA) or [`KIND_NODE`](crate::layout::journal::KIND_NODE).
    pub kind: u8,
}

/// The moves of the next commit, in the order they were made.
#[derive(Debug, Default)]
pub struct Moves {
    list: Vec<Move>,
    /// Which of them led to an address.
    to: FxHashMap<Address, Vec<usize>>,
    /// Which addresses were left.
    from: FxHashMap<Address, usize>,
}

impl Moves {
    /// Notes that the block of CRC `crc` went from `old` to `new`, when the roll-forward chain had `chained` blocks.
    ///
    /// A block that is moved again before the commit gets a second move, and its first one leads to the new place at once: the place in
    /// between may be reused as soon as the commit is durable.
    pub fn add(&mut self, old: Address, new: Address, owner: Owner, chained: u32, crc: u32) {
        let mut here = self.to.remove(&old).unwrap_or_default();
        here.iter().for_each(|&at| self.list[at].new = new);
        here.push(self.list.len());
        self.from.insert(old, self.list.len());
        self.to.insert(new, here);
        let Owner { nid, index, kind } = owner;
        self.list.push(Move { old, new, nid, ofs_in_node: index as u16, kind, chained, crc });
    }

    /// Where the block at this address went, if it was moved.
    pub fn place_of(&self, address: Address) -> Option<Address> {
        self.from.get(&address).map(|&at| self.list[at].new)
    }

    /// The moves, in the order they were made.
    pub fn list(&self) -> &[Move] {
        &self.list
    }

    /// Whether the block at this address was copied already.
    pub fn has_left(&self, address: Address) -> bool {
        self.from.contains_key(&address)
    }

    /// The addresses that were left, each once.
    pub fn left(&self) -> impl Iterator<Item = Address> + '_ {
        self.list.iter().map(|one| one.old)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Journal blocks that they take: at least one, which tells recovery that there was a commit.
    pub fn blocks(&self) -> u32 {
        cut(&self.list).len() as u32
    }

    /// Hands the moves out, and begins anew.
    pub fn take(&mut self) -> Moves {
        std::mem::take(self)
    }
}

/// A commit that is on its way.
#[derive(Debug)]
pub struct Written {
    pub(super) moves: Moves,
    /// Segments that nothing needs once the moves are durable.
    pub(super) emptied: Vec<Segment>,
    /// The flush that makes them so.
    pub(super) flush: u64,
    /// Sections that cleaning had emptied.
    pub(super) sections: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::journal::KIND_DATA;

    #[test]
    fn a_block_that_was_moved_twice_is_found_from_both_places() {
        let owner = Owner { nid: Nid::new(9), index: 3, kind: KIND_DATA };
        let mut moves = Moves::default();
        moves.add(Address::new(100), Address::new(200), owner, 1, 7);
        moves.add(Address::new(101), Address::new(201), owner, 1, 8);
        moves.add(Address::new(200), Address::new(300), owner, 5, 7);
        moves.add(Address::new(300), Address::new(400), owner, 6, 7);
        assert!(
            moves.has_left(Address::new(100))
                && moves.has_left(Address::new(200))
                && !moves.has_left(Address::new(400))
        );
        assert_eq!(moves.left().map(Address::get).collect::<Vec<_>>(), [100, 101, 200, 300]);
        assert_eq!(
            [100, 101, 200, 300, 400].map(|at| moves.place_of(Address::new(at))),
            [Some(400), Some(201), Some(400), Some(400), None].map(|at| at.map(Address::new))
        );
        let taken = moves.take();
        let list: Vec<(u32, u32, u32)> =
            taken.list().iter().map(|one| (one.old.get(), one.new.get(), one.chained)).collect();
        assert_eq!(list, [(100, 400, 1), (101, 201, 1), (200, 400, 5), (300, 400, 6)]);
        assert_eq!((moves.count(), moves.blocks()), (0, 1));
    }
}
