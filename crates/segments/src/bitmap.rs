//! A set of small numbers as a bitmap with a running count, searched a word at a time.

/// A set of numbers below a fixed limit.
pub(crate) struct Bitmap {
    words: Vec<u64>,
    count: u32,
}

impl Bitmap {
    /// The empty set of numbers below `limit`.
    pub(crate) fn new(limit: u32) -> Self {
        Bitmap { words: vec![0; limit.div_ceil(u64::BITS) as usize], count: 0 }
    }

    /// How many numbers are in the set.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.words[word] & bit != 0
    }

    pub(crate) fn insert(&mut self, number: u32) {
        let (word, bit) = place(number);
        let word = &mut self.words[word];
        self.count += u32::from(*word & bit == 0);
        *word |= bit;
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let (word, bit) = place(number);
        let word = &mut self.words[word];
        self.count -= u32::from(*word & bit != 0);
        *word &= !bit;
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The lowest number of the set that is not below `start`; `start` may be the limit.
    pub(crate) fn next(&self, start: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let first = (start / u64::BITS) as usize;
        let mut mask = !0u64 << (start % u64::BITS);
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let found = word & mask;
            if found != 0 {
                // `index` came from a `u32` limit, so it fits.
                return Some(index as u32 * u64::BITS + found.trailing_zeros());
            }
            mask = !0;
        }
        None
    }

    /// As [`Bitmap::next`], but goes on from zero when there is none up to the limit.
    pub(crate) fn next_wrapping(&self, start: u32) -> Option<u32> {
        self.next(start).or_else(|| self.next(0))
    }

    /// The numbers of the set in rising order.
    pub(crate) fn to_vec(&self) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(self.count as usize);
        let mut from = 0;
        while let Some(number) = self.next(from) {
            numbers.push(number);
            from = number + 1;
        }
        numbers
    }

    /// Bytes of memory used on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

fn place(number: u32) -> (usize, u64) {
    ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_across_words_and_wraps() {
        let mut set = Bitmap::new(200);
        assert_eq!(set.next_wrapping(0), None);
        for number in [3, 64, 199] {
            set.insert(number);
            set.insert(number);
        }
        assert_eq!(set.count(), 3);
        assert_eq!(set.to_vec(), [3, 64, 199]);
        assert_eq!(set.next(4), Some(64));
        assert_eq!(set.next(65), Some(199));
        assert_eq!(set.next(200), None);
        assert_eq!(set.next_wrapping(200), Some(3));
        set.remove(3);
        set.remove(3);
        assert_eq!((set.count(), set.contains(3)), (2, false));
        set.clear();
        assert_eq!((set.count(), set.next(0)), (0, None));
    }

    #[test]
    fn a_limit_on_a_word_boundary_has_no_word_past_it() {
        let mut set = Bitmap::new(128);
        set.insert(127);
        assert_eq!(set.next(128), None);
        assert_eq!(set.next_wrapping(128), Some(127));
    }
}
