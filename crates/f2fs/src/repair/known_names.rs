//! What is known of the names of a directory: where each is, and which numbers behind a name are in use.

use crate::layout::Ino;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use rustc_hash::FxHashMap;

/// Where an entry is: block of the directory (`None` for an inline one) and slot.
pub(super) type Spot = (Option<u64>, usize);

/// Where the entries of a directory are. Names are kept as their hashes, to spare memory, and read where they are.
#[derive(Default)]
pub(super) struct Names {
    /// Every entry by the hash of its name.
    pub(super) by_name: BTreeSet<(u64, Spot)>,
    /// Every entry but `.` and `..` by its inode.
    pub(super) by_inode: BTreeSet<(Ino, Spot)>,
    /// Numbers behind names, by the hash of the name and of how many digits they have.
    pub(super) numbers: FxHashMap<u64, Numbers>,
}

/// Which numbers behind a name are in use; all have as many digits.
pub(super) struct Numbers {
    /// All before this one are in use, but for `free`.
    pub(super) next: u64,
    /// Those that may have come free since.
    pub(super) free: BTreeSet<u64>,
}

impl Names {
    pub(super) fn add(&mut self, block: Option<u64>, (slot, name, ino): (usize, &[u8], Ino)) {
        self.by_name.insert((key(name), (block, slot)));
        if !is_dot(name) {
            self.by_inode.insert((ino, (block, slot)));
        }
    }

    pub(super) fn remove(&mut self, block: Option<u64>, (slot, name, ino): (usize, &[u8], Ino)) {
        self.by_name.remove(&(key(name), (block, slot)));
        self.by_inode.remove(&(ino, (block, slot)));
        if let Some((key, number)) = number_behind(name)
            && let Some(numbers) = self.numbers.get_mut(&key)
            && number < numbers.next
        {
            numbers.free.insert(number);
        }
    }
}

pub(super) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// A hash for which names that share one are hard to find. With the hash of directories that is easy.
pub(super) fn key(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What the numbers of so many digits behind `stem`, which ends with `~`, are known by.
pub(super) fn numbers_key(stem: &[u8], digits: usize) -> u64 {
    key((stem, digits))
}

/// The number behind a name, and what the others like it are known by.
pub(super) fn number_behind(name: &[u8]) -> Option<(u64, u64)> {
    let at = name.iter().rposition(|&byte| byte == b'~')?;
    let (stem, digits) = name.split_at(at + 1);
    let is_number = digits.iter().all(u8::is_ascii_digit) && digits.first() != Some(&b'0');
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some((numbers_key(stem, digits.len()), number))
}
