//! Moves as bytes: what a move has in common with the one before it is left out.
//!
//! Cleaning reads a victim from front to back and appends to one log, so the next move mostly has the next old address, the next new one,
//! and the next pointer of the same node: 5 bytes, of which 4 are the CRC. A move is
//!
//! 1. a byte of flags: [`NODE`], what of the following is there, and in its upper three bits how much the old address is above the last
//!    one, 1 to 7, or 0 where that is written out;
//! 2. numbers, each as the difference from what was expected, in 7 bits a byte with the sign in the lowest bit: the old address, the new
//!    one, the node, the index in it, the blocks of the roll-forward chain;
//! 3. the CRC of the block, 4 bytes.
//!
//! Expected are: the new address behind the last one, the same node, and of data the next index; all three of the last move of that kind,
//! data or node. Each block begins anew, with zeros.

use super::{KIND_DATA, KIND_NODE};
use crate::layout::{Address, Nid};

/// The move is one of a node.
const NODE: u8 = 1;
/// The new address is not the one behind the last.
const NEW: u8 = 1 << 1;
/// The node is another one.
const NID: u8 = 1 << 2;
/// The index is not the expected one.
const INDEX: u8 = 1 << 3;
/// The roll-forward chain is longer than at the last move.
const CHAINED: u8 = 1 << 4;
/// Where the three bits of the old address begin.
const GAP: u32 = 5;
/// The most that they say.
const GAP_MAX: i64 = 7;
/// Most bytes of a move: the flags, five numbers of 33 bits, the CRC.
const MOVE_BYTES_MAX: usize = 1 + 5 * 5 + 4;

/// A block that was moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Move {
    /// The address it had.
    pub old: Address,
    /// The address it has.
    pub new: Address,
    /// The node that points to it; of a node, its own id.
    pub nid: Nid,
    /// Index of the pointer in the node; 0 of nodes.
    pub ofs_in_node: u16,
    /// [`KIND_DATA`] or [`KIND_NODE`].
    pub kind: u8,
    /// Blocks in the roll-forward chain when it was moved: only nodes in front of this position may still have the old address.
    pub chained: u32,
    /// CRC of the block.
    pub crc: u32,
}

/// The last moves, which the next one is held against.
#[derive(Default)]
struct Last {
    /// Of data, and of nodes.
    moves: [Move; 2],
    chained: u32,
}

impl Last {
    fn is(&mut self, one: Move) {
        self.moves[usize::from(one.kind & NODE)] = one;
        self.chained = one.chained;
    }

    /// What is expected of the next move of a kind, but for its old address, which is the last one's, and its CRC.
    fn expected(&self, kind: u8) -> Move {
        let last = self.moves[usize::from(kind & NODE)];
        let ofs_in_node = if kind == KIND_DATA { last.ofs_in_node.wrapping_add(1) } else { 0 };
        let new = Address::new(last.new.get().wrapping_add(1));
        Move { new, ofs_in_node, kind, chained: self.chained, ..last }
    }
}

/// Appends moves to `block` until the next one does not fit into `room` bytes; how many it appended.
pub(super) fn put(moves: &[Move], room: usize, block: &mut Vec<u8>) -> usize {
    let mut last = Last::default();
    let mut bytes = Vec::with_capacity(MOVE_BYTES_MAX);
    for (at, &one) in moves.iter().enumerate() {
        bytes.clear();
        put_one(&last.expected(one.kind), one, &mut bytes);
        if block.len() + bytes.len() > room {
            return at;
        }
        block.extend_from_slice(&bytes);
        last.is(one);
    }
    moves.len()
}

fn put_one(expected: &Move, one: Move, bytes: &mut Vec<u8>) {
    let above = |new: u32, old: u32| i64::from(new) - i64::from(old);
    let gap = above(one.old.get(), expected.old.get());
    let is_near = (1..=GAP_MAX).contains(&gap);
    bytes.push(if is_near { one.kind & NODE | (gap as u8) << GAP } else { one.kind & NODE });
    if !is_near {
        put_number(gap, bytes);
    }
    let rest = [
        (NEW, above(one.new.get(), expected.new.get())),
        (NID, above(one.nid.get(), expected.nid.get())),
        (INDEX, above(one.ofs_in_node.into(), expected.ofs_in_node.into())),
        (CHAINED, above(one.chained, expected.chained)),
    ];
    for (flag, difference) in rest.into_iter().filter(|(_, difference)| *difference != 0) {
        bytes[0] |= flag;
        put_number(difference, bytes);
    }
    bytes.extend_from_slice(&one.crc.to_le_bytes());
}

/// Reads so many moves; `None` where they are none.
pub(super) fn take(mut bytes: &[u8], count: usize) -> Option<Vec<Move>> {
    let mut last = Last::default();
    let mut moves = Vec::with_capacity(count.min(bytes.len()));
    for _ in 0..count {
        let one = take_one(&last, &mut bytes)?;
        last.is(one);
        moves.push(one);
    }
    Some(moves)
}

fn take_one(last: &Last, bytes: &mut &[u8]) -> Option<Move> {
    let flags = *bytes.split_off_first()?;
    let mut one = last.expected(if flags & NODE == 0 { KIND_DATA } else { KIND_NODE });
    let gap = match i64::from(flags >> GAP) {
        0 => take_number(bytes)?,
        near => near,
    };
    one.old = Address::new(moved_by(one.old.get(), gap)?);
    let mut difference = |flag| if flags & flag == 0 { Some(0) } else { take_number(bytes) };
    one.new = Address::new(moved_by(one.new.get(), difference(NEW)?)?);
    one.nid = Nid::new(moved_by(one.nid.get(), difference(NID)?)?);
    one.ofs_in_node = u16::try_from(i64::from(one.ofs_in_node) + difference(INDEX)?).ok()?;
    one.chained = moved_by(one.chained, difference(CHAINED)?)?;
    one.crc = u32::from_le_bytes(*bytes.split_off(..4)?.as_array()?);
    Some(one)
}

fn moved_by(number: u32, difference: i64) -> Option<u32> {
    u32::try_from(i64::from(number) + difference).ok()
}

fn put_number(number: i64, bytes: &mut Vec<u8>) {
    let mut rest = (number << 1 ^ number >> 63) as u64;
    while rest > 0x7F {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// A number of at most five bytes, as many as a difference of two `u32` has.
fn take_number(bytes: &mut &[u8]) -> Option<i64> {
    let mut found = 0_u64;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.split_off_first()?;
        found |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some((found >> 1) as i64 ^ -((found & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(moves: &[Move]) -> usize {
        let mut bytes = Vec::new();
        assert_eq!(put(moves, usize::MAX, &mut bytes), moves.len());
        assert_eq!(take(&bytes, moves.len()).unwrap(), moves);
        // Every byte counts, and no move is made of those that are missing.
        assert_eq!(take(&bytes[..bytes.len() - 1], moves.len()), None);
        bytes.len()
    }

    fn data(old: u32, new: u32, nid: u32, index: u16) -> Move {
        let (old, new, nid) = (Address::new(old), Address::new(new), Nid::new(nid));
        Move {
            old,
            new,
            nid,
            ofs_in_node: index,
            kind: KIND_DATA,
            chained: 0,
            crc: old.get().wrapping_mul(0x9E37_79B9),
        }
    }

    #[test]
    fn neighbours_take_five_bytes() {
        let run: Vec<Move> = (0..100).map(|n| data(5000 + n, 90_000 + n, 70, n as u16)).collect();
        let first = read_back(&run[..1]);
        assert_eq!(read_back(&run), first + 99 * 5);
        // Holes of up to six blocks take nothing, and larger ones a byte or two.
        let holes: Vec<Move> = (0..100).map(|n| data(5000 + 7 * n, 90_000 + n, 70, n as u16)).collect();
        assert_eq!(read_back(&holes), first + 99 * 5);
        let wide: Vec<Move> = (0..100).map(|n| data(5000 + 8 * n, 90_000 + n, 70, n as u16)).collect();
        assert_eq!(read_back(&wide), first + 99 * 6);
    }

    #[test]
    fn data_and_nodes_in_turns_are_held_against_their_own_kind() {
        let node = |n: u32| Move { kind: KIND_NODE, ofs_in_node: 0, ..data(100 + n, 3000 + n, 7, 0) };
        let turns: Vec<Move> = (0..50).flat_map(|n| [data(5000 + n, 90_000 + n, 70, n as u16), node(n)]).collect();
        let first = read_back(&turns[..2]);
        assert_eq!(read_back(&turns), first + 98 * 5);
    }

    #[test]
    fn whatever_there_can_be_is_read_back() {
        let ends = [0, 1, 2, 0x7FFF_FFFF, 0x8000_0000, u32::MAX - 1, u32::MAX];
        let mut moves = Vec::new();
        for a in ends {
            for b in ends {
                for (kind, ofs_in_node) in [(KIND_DATA, a as u16), (KIND_NODE, b as u16)] {
                    let (old, new, nid) = (Address::new(a), Address::new(b), Nid::new(a ^ b));
                    moves.push(Move { old, new, nid, ofs_in_node, kind, chained: b, crc: a });
                }
            }
        }
        assert!(read_back(&moves) <= moves.len() * MOVE_BYTES_MAX);
    }

    #[test]
    fn any_bytes_are_moves_or_none() {
        let mut state = 1_u64;
        for length in (0..2000).map(|round| round % 40) {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            for count in 0..4 {
                if let Some(moves) = take(&bytes, count) {
                    assert_eq!(moves.len(), count);
                }
            }
        }
        assert_eq!(take(&[0xFF; 8], 1), None, "a number without an end");
    }
}
