//! What a scheme knows of each block of a file.

use basalt_segments::{BlockTraits, Reason};
use rustc_hash::FxHashMap;

/// Blocks whose records lie together.
const TOGETHER: u32 = 16;

/// A record for each block that was written, found by file and place in the file. Blocks that were not have the default.
///
/// Records of neighbours in a file lie together, in a piece. With a [limit](Self::limit), a new piece takes the place of one in which no
/// user wrote again since the hand came by last (second chance): its blocks count as never written from then on.
pub struct Blocks<T> {
    /// Where each piece is. Asked by key alone: its order means nothing.
    places: FxHashMap<(u32, u32), u32>,
    pieces: Vec<Piece<T>>,
    /// Pieces at most.
    most: usize,
    /// The piece that is looked at next when one has to go.
    hand: usize,
}

struct Piece<T> {
    key: (u32, u32),
    /// A user wrote in it again since the hand came by.
    is_used: bool,
    records: Box<[T; TOGETHER as usize]>,
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Blocks { places: FxHashMap::default(), pieces: Vec::new(), most: u32::MAX as usize, hand: 0 }
    }
}

impl<T: Copy + Default> Blocks<T> {
    /// Bytes of a piece and its allocation, and of what leads to it: a table of places is between 7/16 and 7/8 full, with a byte for each
    /// place besides.
    const PIECE_BYTES: usize = size_of::<Piece<T>>()
        + TOGETHER as usize * size_of::<T>()
        + 2 * size_of::<usize>()
        + (size_of::<((u32, u32), u32)>() + 1) * 16 / 7;

    /// Takes no more than so many bytes from now on, but for one piece. What is there already stays.
    pub fn limit(&mut self, bytes: usize) {
        self.most = (bytes / Self::PIECE_BYTES).clamp(1, u32::MAX as usize).max(self.pieces.len());
        if self.most < u32::MAX as usize {
            // Twice as much while it grows would be more than the limit.
            self.pieces.reserve_exact(self.most.min(1 << 16).saturating_sub(self.pieces.len()));
        }
    }

    /// What is known of a block.
    pub fn get(&self, block: &BlockTraits) -> T {
        let place = self.places.get(&key(block)).map(|place| *place as usize);
        place.map_or_else(T::default, |place| self.pieces[place].records[offset(block)])
    }

    /// What is known of a block that is written now.
    pub fn get_mut(&mut self, block: &BlockTraits) -> &mut T {
        let Some(place) = self.places.get(&key(block)) else {
            let place = self.add(key(block));
            return &mut self.pieces[place].records[offset(block)];
        };
        let piece = &mut self.pieces[*place as usize];
        piece.is_used |= block.reason != Reason::Cleaning;
        &mut piece.records[offset(block)]
    }

    /// Makes room for a piece; its place.
    fn add(&mut self, key: (u32, u32)) -> usize {
        let records = Box::new([T::default(); TOGETHER as usize]);
        let piece = Piece { key, is_used: false, records };
        let place = if self.pieces.len() < self.most {
            self.pieces.push(piece);
            self.pieces.len() - 1
        } else {
            let place = self.least_used();
            let before = std::mem::replace(&mut self.pieces[place], piece);
            self.places.remove(&before.key);
            place
        };
        // Pieces are no more than `u32::MAX`.
        self.places.insert(key, place as u32);
        place
    }

    /// The place of the next piece that nobody used since the hand came by.
    fn least_used(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.pieces.len();
            if !std::mem::take(&mut self.pieces[place].is_used) {
                return place;
            }
        }
    }
}

fn key(block: &BlockTraits) -> (u32, u32) {
    (block.file, block.index / TOGETHER)
}

fn offset(block: &BlockTraits) -> usize {
    (block.index % TOGETHER) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(file: u32, index: u32, reason: Reason) -> BlockTraits {
        BlockTraits { file, index, reason, ..BlockTraits::default() }
    }

    #[test]
    fn each_block_has_a_record_of_its_own() {
        let mut blocks = Blocks::<u32>::default();
        for file in 0..40 {
            for index in (0..4000).step_by(37) {
                *blocks.get_mut(&block(file, index, Reason::Writeback)) = file * 10_000 + index + 1;
            }
        }
        for file in 0..40 {
            for index in 0..4000 {
                let expected = if index % 37 == 0 { file * 10_000 + index + 1 } else { 0 };
                assert_eq!(blocks.get(&block(file, index, Reason::Cleaning)), expected, "block {index} of {file}");
            }
        }
        assert_eq!(blocks.get(&block(41, 0, Reason::Writeback)), 0);
    }

    #[test]
    fn what_users_write_again_and_again_is_kept_and_the_rest_is_forgotten() {
        let mut blocks = Blocks::<u64>::default();
        let pieces = 100;
        blocks.limit(pieces * Blocks::<u64>::PIECE_BYTES);
        for round in 0..50 {
            for hot in 0..20 {
                *blocks.get_mut(&block(1, hot * TOGETHER, Reason::Fsync)) += 1;
            }
            for cold in 0..40 {
                *blocks.get_mut(&block(2, (round * 40 + cold) * TOGETHER, Reason::Writeback)) = 7;
            }
        }
        assert_eq!((blocks.pieces.len(), blocks.places.len()), (pieces, pieces));
        for hot in 0..20 {
            assert_eq!(blocks.get(&block(1, hot * TOGETHER, Reason::Fsync)), 50, "block {hot}");
        }
        let kept = (0..2000).filter(|cold| blocks.get(&block(2, cold * TOGETHER, Reason::Writeback)) == 7).count();
        assert_eq!(kept, pieces - 20);
    }

    /// Cleaning copies cold blocks: that makes nothing worth keeping.
    #[test]
    fn what_cleaning_copies_is_forgotten_first() {
        let mut blocks = Blocks::<u8>::default();
        blocks.limit(10 * Blocks::<u8>::PIECE_BYTES);
        (0..5).for_each(|index| *blocks.get_mut(&block(1, index * TOGETHER, Reason::Writeback)) = 1);
        for index in 0..500 {
            *blocks.get_mut(&block(2, index * TOGETHER, Reason::Cleaning)) = 2;
            *blocks.get_mut(&block(1, index % 5 * TOGETHER, Reason::Writeback)) += 1;
        }
        for index in 0..5 {
            assert_eq!(blocks.get(&block(1, index * TOGETHER, Reason::Writeback)), 101);
        }
    }

    #[test]
    fn a_limit_of_nothing_is_one_piece() {
        let mut blocks = Blocks::<u8>::default();
        blocks.limit(0);
        for index in 0..200 {
            *blocks.get_mut(&block(1, index, Reason::Writeback)) = 1;
        }
        assert_eq!(blocks.pieces.len(), 1);
        assert_eq!(blocks.get(&block(1, 199, Reason::Writeback)), 1);
    }
}
