//! Ranges that were read ahead and not used yet.

/// Ranges kept at most: what is announced beyond that was announced far too early, and is read again.
const MOST: usize = 256;

/// Byte ranges, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Prefetched {
    ranges: Vec<(u64, u64)>,
}

impl Prefetched {
    /// Remembers a range that has been read.
    pub fn add(&mut self, offset: u64, length: u64) {
        if self.ranges.len() == MOST {
            self.ranges.remove(0);
        }
        self.ranges.push((offset, offset.saturating_add(length)));
    }

    /// Whether a read lies in one of the ranges; it is used up then.
    pub fn take(&mut self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length);
        let found = self.ranges.iter().any(|&(first, last)| first <= offset && end <= last);
        if found {
            self.forget(offset, length);
        }
        found
    }

    /// Cuts a range out of all that are remembered.
    pub fn forget(&mut self, offset: u64, length: u64) {
        if self.ranges.is_empty() {
            return;
        }
        let end = offset.saturating_add(length);
        let parts = |&(first, last): &(u64, u64)| [(first, last.min(offset)), (first.max(end), last)];
        self.ranges = self.ranges.iter().flat_map(parts).filter(|(first, last)| first < last).collect();
        // Cuts can only add one range each; the oldest give way.
        let excess = self.ranges.len().saturating_sub(MOST);
        self.ranges.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_ahead_is_free_once() {
        let mut prefetched = Prefetched::default();
        prefetched.add(100, 100);
        assert!(!prefetched.take(90, 20));
        assert!(prefetched.take(120, 10));
        assert!(!prefetched.take(125, 1));
        assert!(prefetched.take(100, 20));
        prefetched.forget(150, 10);
        assert!(!prefetched.take(140, 30));
        assert!(prefetched.take(130, 20) && prefetched.take(160, 40));
        assert!(prefetched.ranges.is_empty());
        for offset in 0..1000 {
            prefetched.add(offset * 10, 5);
        }
        assert!(prefetched.ranges.len() == MOST && prefetched.take(9990, 5) && !prefetched.take(0, 5));
    }
}
