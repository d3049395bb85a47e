//! Where what was at an address went.

use rustc_hash::FxHashMap;

use crate::layout::Address;
use crate::layout::journal::Move;
use crate::mutant::{self, Mutant};

/// The last place of a block, as of one of its moves.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Blocks in the roll-forward chain when it was moved.
    chained: u32,
    /// Where it is now, after whatever further moves.
    last: Address,
}

/// All moves behind a checkpoint, for looking up addresses. An address may have been left several times, by other blocks each time.
#[derive(Debug, Default)]
pub struct Translation {
    left: FxHashMap<Address, Vec<Step>>,
}

impl Translation {
    /// From moves in the order they were made.
    pub fn new(moves: &[Move]) -> Translation {
        // Backwards: what is at an address in front of a move is known from what comes behind it.
        let mut last: FxHashMap<Address, Address> = FxHashMap::default();
        let mut left: FxHashMap<Address, Vec<Step>> = FxHashMap::default();
        for one in moves.iter().rev() {
            let (old, new) = (one.old, one.new);
            let merged = last.get(&new).copied().filter(|_| !mutant::active(Mutant::ChainMergedWrongly));
            let end = merged.unwrap_or(new);
            last.insert(old, end);
            left.entry(old).or_default().push(Step { chained: one.chained, last: end });
        }
        left.values_mut().for_each(|steps| steps.reverse());
        Translation { left }
    }

    /// Whether nothing was moved.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Where moved blocks are now, each once or more often.
    pub fn last_places(&self) -> impl Iterator<Item = Address> + '_ {
        self.left.values().flatten().map(|step| step.last)
    }

    /// Where the block is that the checkpoint had at this address; `None` if it was not moved.
    pub fn of_checkpoint(&self, address: Address) -> Option<Address> {
        self.left.get(&address)?.first().map(|step| step.last)
    }

    /// Where the block is that the node at position `at` of the roll-forward chain points to with this address: only moves made after
    /// the node was written count, what was at the address before is something else.
    pub fn of_chain(&self, address: Address, at: usize) -> Address {
        let Some(steps) = self.left.get(&address) else { return address };
        if mutant::active(Mutant::MoveAppliedToNewer) {
            return steps.first().map_or(address, |step| step.last);
        }
        steps.get(steps.partition_point(|step| step.chained as usize <= at)).map_or(address, |step| step.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Nid;
    use crate::layout::journal::KIND_DATA;

    fn moved(old: u32, new: u32, chained: u32) -> Move {
        Move {
            old: Address::new(old),
            new: Address::new(new),
            nid: Nid::new(1),
            kind: KIND_DATA,
            chained,
            ..Move::default()
        }
    }

    #[test]
    fn addresses_that_are_reused_mean_what_they_meant_at_their_time() {
        // 10 goes to 20 and on to 30. Then 20 gets another block, which goes to 40, and 10 a third, which goes to 50.
        let moves = [moved(10, 20, 1), moved(20, 30, 2), moved(20, 40, 6), moved(10, 50, 9)];
        let found = Translation::new(&moves);
        let of_checkpoint = |at| found.of_checkpoint(Address::new(at)).map(Address::get);
        let of_chain = |at, position| found.of_chain(Address::new(at), position).get();
        assert_eq!((of_checkpoint(10), of_checkpoint(20), of_checkpoint(30)), (Some(30), Some(30), None));
        assert_eq!(of_chain(10, 0), 30);
        assert_eq!((of_chain(10, 1), of_chain(10, 8), of_chain(10, 9)), (50, 50, 10));
        assert_eq!((of_chain(20, 1), of_chain(20, 2), of_chain(20, 6)), (30, 40, 20));
        assert_eq!(of_chain(99, 0), 99);
    }
}
