//! The live blocks of one segment, at eight bytes when all or none of them are.

use super::FULL;

/// Which blocks of a segment are live. Only a partly live segment needs a bitmap; for the others the count, which the
/// caller keeps and hands to every method, says it all.
///
/// Block `i` is bit `63 - i % 64` of word `i / 64`, so that the words in big-endian order are the bytes of the SIT.
#[derive(Default)]
pub(super) struct LiveMap {
    /// Present exactly if the count is neither 0 nor [`FULL`].
    partly: Option<Box<[u64; 8]>>,
}

impl LiveMap {
    /// Takes over the SIT's bitmap; returns the count.
    pub(super) fn load(&mut self, bytes: &[u8; 64]) -> u16 {
        let (chunks, _) = bytes.as_chunks::<8>();
        let words: [u64; 8] = std::array::from_fn(|word| u64::from_be_bytes(chunks[word]));
        let live = words.iter().map(|word| word.count_ones()).sum::<u32>() as u16;
        self.partly = (live != 0 && live != FULL).then(|| Box::new(words));
        live
    }

    /// The bitmap as the SIT has it.
    pub(super) fn to_bytes(&self, live: u16) -> [u8; 64] {
        let words = self.words(live);
        std::array::from_fn(|byte| words[byte / 8].to_be_bytes()[byte % 8])
    }

    pub(super) fn contains(&self, live: u16, offset: u32) -> bool {
        match &self.partly {
            Some(words) => is_set(words, offset),
            None => live == FULL,
        }
    }

    /// False if the block was live; otherwise the caller's count goes up by one.
    pub(super) fn insert(&mut self, live: u16, offset: u32) -> bool {
        let (word, bit) = place(offset);
        match &mut self.partly {
            Some(words) if words[word] & bit != 0 => return false,
            Some(_) if live + 1 == FULL => self.partly = None,
            Some(words) => words[word] |= bit,
            None if live == FULL => return false,
            None => {
                let mut words = [0; 8];
                words[word] = bit;
                self.partly = Some(Box::new(words));
            }
        }
        true
    }

    /// False if the block was not live; otherwise the caller's count goes down by one.
    pub(super) fn remove(&mut self, live: u16, offset: u32) -> bool {
        let (word, bit) = place(offset);
        match &mut self.partly {
            Some(words) if words[word] & bit == 0 => return false,
            Some(_) if live == 1 => self.partly = None,
            Some(words) => words[word] &= !bit,
            None if live == 0 => return false,
            None => {
                let mut words = [!0; 8];
                words[word] &= !bit;
                self.partly = Some(Box::new(words));
            }
        }
        true
    }

    /// As [`insert`](LiveMap::insert) of `count` neighbours, at least one, none of which is live; how many became live before one that
    /// was.
    pub(super) fn insert_run(&mut self, live: u16, first: u32, count: u32) -> u32 {
        let mut words = self.words(live);
        let mut done = 0;
        while done < count {
            let (word, bit) = place(first + done);
            if words[word] & bit != 0 {
                break;
            }
            words[word] |= bit;
            done += 1;
        }
        self.keep(words, u32::from(live) + done);
        done
    }

    /// As [`remove`](LiveMap::remove) of these blocks; how many died before one that was not live.
    pub(super) fn remove_all(&mut self, live: u16, offsets: &[u32]) -> u32 {
        let mut words = self.words(live);
        let mut done = 0;
        for &offset in offsets {
            let (word, bit) = place(offset);
            if words[word] & bit == 0 {
                break;
            }
            words[word] &= !bit;
            done += 1;
        }
        self.keep(words, u32::from(live) - done);
        done
    }

    /// Keeps a bitmap of `live` blocks, if it says more than the number.
    fn keep(&mut self, words: [u64; 8], live: u32) {
        match &mut self.partly {
            _ if live == 0 || live == u32::from(FULL) => self.partly = None,
            Some(partly) => **partly = words,
            none => *none = Some(Box::new(words)),
        }
    }

    /// The offsets of the live blocks, rising.
    pub(super) fn offsets(&self, live: u16) -> impl Iterator<Item = u32> + use<> {
        self.offsets_from(live, 0)
    }

    /// The offsets of the live blocks from block `first` of the segment on, rising.
    pub(super) fn offsets_from(&self, live: u16, first: u32) -> impl Iterator<Item = u32> + use<> {
        let mut words = self.words(live);
        let mut at = (first / u64::BITS) as usize;
        words[at] &= u64::MAX >> (first % u64::BITS);
        std::iter::from_fn(move || {
            while at < words.len() {
                if words[at] != 0 {
                    let bit = words[at].leading_zeros();
                    words[at] &= !(1 << (63 - bit));
                    return Some(at as u32 * u64::BITS + bit);
                }
                at += 1;
            }
            None
        })
    }

    /// Bytes of memory used on the heap.
    pub(super) fn memory(&self) -> usize {
        self.partly.as_ref().map_or(0, |words| size_of_val(words.as_ref()))
    }

    /// A bit for each block, the most significant first.
    pub(super) fn words(&self, live: u16) -> [u64; 8] {
        match &self.partly {
            Some(words) => **words,
            None if live == FULL => [!0; 8],
            None => [0; 8],
        }
    }
}

/// Whether the bit of a block is set.
pub(crate) const fn is_set(words: &[u64; 8], offset: u32) -> bool {
    let (word, bit) = place(offset);
    words[word] & bit != 0
}

/// The word of a block, and its bit there: the most significant is that of the first block.
pub(super) const fn place(offset: u32) -> (usize, u64) {
    ((offset / u64::BITS) as usize, 1 << (63 - offset % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_bitmap_only_while_partly_live() {
        let mut map = LiveMap::default();
        for offset in 0..512u16 {
            assert!(map.insert(offset, u32::from(offset)));
            assert_eq!(map.memory() != 0, offset != 511, "after block {offset}");
        }
        assert!(!map.insert(FULL, 0));
        assert_eq!(map.to_bytes(FULL), [0xff; 64]);
        for offset in 0..512u16 {
            assert!(map.remove(512 - offset, u32::from(offset)));
            assert_eq!(map.memory() != 0, offset != 511, "after block {offset}");
        }
        assert!(!map.remove(0, 0));
        assert_eq!(map.to_bytes(0), [0; 64]);
        // So do many at once.
        assert_eq!((map.insert_run(0, 0, 500), map.memory() != 0), (500, true));
        assert_eq!((map.insert_run(500, 500, 12), map.memory()), (12, 0));
        let all: Vec<u32> = (0..512).collect();
        assert_eq!((map.remove_all(FULL, &all), map.memory()), (512, 0));
    }

    #[test]
    fn bits_are_most_significant_first() {
        let mut bytes = [0; 64];
        (bytes[0], bytes[9], bytes[63]) = (0b1000_0001, 0b0100_0000, 1);
        let mut map = LiveMap::default();
        let live = map.load(&bytes);
        assert_eq!(live, 4);
        assert_eq!(map.offsets(live).collect::<Vec<_>>(), [0, 7, 73, 511]);
        let from = |first| map.offsets_from(live, first).next();
        assert_eq!([1, 7, 8, 73, 74, 511].map(from), [7, 7, 73, 73, 511, 511].map(Some));
        assert!(map.contains(live, 73) && !map.contains(live, 74));
        assert_eq!(map.to_bytes(live), bytes);
    }
}
