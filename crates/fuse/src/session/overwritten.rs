//! Direct writes to files that are also read through the kernel's page cache.
//!
//! Before a direct write the kernel drops the pages in its way. Somebody may read them again before the write is done, and then has what
//! was there before; so after it the kernel drops them once more, but not where the write was submitted asynchronously (libaio, io_uring):
//! such pages would show old bytes for ever. Without `ASYNC_DIO` there are no asynchronous writes, nor reads. So the server has the kernel
//! drop what was read meanwhile before it says that the write is done.
//!
//! Only reads of files that were written to directly are noted, and only what was read is dropped: who does all directly pays once.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use basalt_vfs::InodeNumber;
use parking_lot::Mutex;

/// Reads are noted in pieces of so many bytes.
const PIECE: u64 = 256 << 10;
/// A file of which more pieces were read counts as read whole.
const MOST_PIECES: usize = 1024;

/// What the kernel may have in its page cache of files that were written to directly.
#[derive(Default)]
pub(super) struct Overwritten {
    /// Whether there are such files: spares the lock where there are none.
    any: AtomicBool,
    files: Mutex<HashMap<InodeNumber, Cached>>,
}

/// What may be cached of one file.
#[derive(Debug, Default, PartialEq, Eq)]
enum Cached {
    /// Everything: what was read before its first direct write is not known.
    #[default]
    All,
    /// These pieces.
    Pieces(BTreeSet<u64>),
}

impl Overwritten {
    /// Before `length` bytes are read for the page cache.
    pub(super) fn note_read(&self, ino: InodeNumber, offset: u64, length: u64) {
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        let mut files = self.files.lock();
        let Some(cached) = files.get_mut(&ino) else { return };
        if let Cached::Pieces(pieces) = cached {
            pieces.extend(pieces_of(offset, length));
            if pieces.len() > MOST_PIECES {
                *cached = Cached::All;
            }
        }
    }

    /// Before a direct write.
    pub(super) fn begin_write(&self, ino: InodeNumber) {
        self.any.store(true, Ordering::SeqCst);
        self.files.lock().entry(ino).or_default();
    }

    /// After it: which bytes the kernel has to drop, offset and length, 0 for all behind the offset.
    pub(super) fn end_write(&self, ino: InodeNumber, offset: u64, length: u64) -> Option<(u64, u64)> {
        let mut files = self.files.lock();
        // Forgotten meanwhile, and known again: as if it were the first.
        let cached = files.entry(ino).or_default();
        match cached {
            Cached::All => {
                *cached = Cached::Pieces(BTreeSet::new());
                Some((0, 0))
            }
            Cached::Pieces(pieces) => {
                let hit: Vec<u64> = pieces.range(pieces_of(offset, length)).copied().collect();
                hit.iter().for_each(|piece| {
                    pieces.remove(piece);
                });
                let (first, last) = (hit.first()?, hit.last()?);
                Some((first * PIECE, (last - first + 1) * PIECE))
            }
        }
    }

    /// The kernel knows the file no more.
    pub(super) fn forget(&self, ino: InodeNumber) {
        if self.any.load(Ordering::SeqCst) {
            self.files.lock().remove(&ino);
        }
    }
}

fn pieces_of(offset: u64, length: u64) -> std::ops::RangeInclusive<u64> {
    offset / PIECE..=offset.saturating_add(length.saturating_sub(1)) / PIECE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_read_is_dropped_and_only_once() {
        let files = Overwritten::default();
        files.note_read(7, 0, PIECE);
        files.begin_write(7);
        assert_eq!(files.end_write(7, 0, 4096), Some((0, 0)), "the first write does not know what was read");
        files.begin_write(7);
        assert_eq!(files.end_write(7, 0, 4096), None);
        files.note_read(7, PIECE - 1, 2);
        files.note_read(7, 5 * PIECE, 1);
        assert_eq!(files.end_write(7, 2 * PIECE, PIECE), None);
        assert_eq!(files.end_write(7, 100, 4 * PIECE), Some((0, 2 * PIECE)));
        assert_eq!(files.end_write(7, 0, u64::MAX), Some((5 * PIECE, PIECE)));
        assert_eq!(files.end_write(7, 0, u64::MAX), None);
        files.note_read(7, 0, PIECE * (MOST_PIECES as u64 + 1));
        assert_eq!(files.end_write(7, 9 * PIECE, 1), Some((0, 0)));
        files.forget(7);
        assert_eq!(files.end_write(7, 0, 1), Some((0, 0)));
    }
}
