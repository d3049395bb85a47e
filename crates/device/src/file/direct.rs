//! Buffers that direct I/O accepts.
//!
//! With `O_DIRECT` the memory, the offset and the length of a request must all be multiples of the device's sector
//! size. What is not goes through an aligned buffer here; a write that starts or ends within a sector reads that
//! sector first.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use parking_lot::Mutex;

/// Bytes of a bounce buffer, and so of the largest request made through one.
pub(super) const BOUNCE: usize = 1 << 20;

/// Alignment of bounce buffers: the largest page size of the machines Linux runs on, and at least any sector size.
const ALIGNMENT: usize = 64 << 10;

/// Buffers kept for the next request; more are made when more threads ask, and freed after.
const KEPT: usize = 8;

/// [`BOUNCE`] bytes, aligned for any device.
pub(super) struct AlignedBuffer {
    start: NonNull<u8>,
}

// SAFETY: the buffer owns its memory alone, like a Box<[u8]>.
#[allow(unsafe_code)]
unsafe impl Send for AlignedBuffer {}

impl AlignedBuffer {
    const LAYOUT: Layout = match Layout::from_size_align(BOUNCE, ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two, and far below isize::MAX"),
    };

    #[allow(unsafe_code)]
    fn new() -> Self {
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(Self::LAYOUT) };
        match NonNull::new(start) {
            Some(start) => AlignedBuffer { start },
            None => handle_alloc_error(Self::LAYOUT),
        }
    }

    /// The bytes.
    #[allow(unsafe_code)]
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `start` points to BOUNCE initialised bytes that this value owns; `&mut self` makes the borrow the
        // only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), BOUNCE) }
    }
}

impl Drop for AlignedBuffer {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), Self::LAYOUT) }
    }
}

/// Bounce buffers to borrow.
#[derive(Default)]
pub(super) struct Pool {
    free: Mutex<Vec<AlignedBuffer>>,
}

impl Pool {
    /// Runs `work` with a buffer, whose content is arbitrary.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let kept = self.free.lock().pop();
        let mut buffer = kept.unwrap_or_else(AlignedBuffer::new);
        let result = work(buffer.bytes());
        let mut free = self.free.lock();
        if free.len() < KEPT {
            free.push(buffer);
        }
        result
    }
}

/// Whether memory and length of `buf` are multiples of `alignment`, a power of two.
pub(super) fn is_aligned(buf: &[u8], alignment: u32) -> bool {
    let mask = alignment as usize - 1;
    (buf.as_ptr().addr() | buf.len()) & mask == 0
}

/// Part of a request that fits a bounce buffer: the sectors to transfer, and which of their bytes were asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// First byte of the first sector.
    pub(super) offset: u64,
    /// Bytes of all sectors; at most [`BOUNCE`].
    pub(super) length: usize,
    /// Bytes before the requested ones.
    pub(super) skip: usize,
    /// Requested bytes.
    pub(super) wanted: usize,
}

/// Cuts a request into pieces whose sectors fit a bounce buffer. `sector` is a power of two of at most [`BOUNCE`].
pub(super) fn pieces(offset: u64, length: u64, sector: u32) -> impl Iterator<Item = Piece> {
    let mask = u64::from(sector) - 1;
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let start = at & !mask;
        let stop = end.min(start + BOUNCE as u64);
        let last = (stop + mask) & !mask;
        // All within one buffer, so below usize::MAX.
        let piece = Piece {
            offset: start,
            length: (last - start) as usize,
            skip: (at - start) as usize,
            wanted: (stop - at) as usize,
        };
        at = stop;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = Pool::default();
        let first = pool.with(|buffer| {
            assert!(is_aligned(buffer, 4096));
            assert_eq!(buffer.len(), BOUNCE);
            buffer.as_ptr().addr()
        });
        let (second, other) = pool.with(|outer| (outer.as_ptr().addr(), pool.with(|inner| inner.as_ptr().addr())));
        assert_eq!(first, second);
        assert_ne!(second, other);
        assert!(!pool.with(|buffer| is_aligned(&buffer[..100], 512)));
        assert!(!pool.with(|buffer| is_aligned(&buffer[256..768], 512)));
        assert!(pool.with(|buffer| is_aligned(&buffer[512..1024], 512)));
    }

    #[test]
    fn pieces_cover_the_request_sector_by_sector() {
        let bounce = BOUNCE as u64;
        let lengths = [0, 1, 511, 512, 513, 4096, bounce - 1, bounce, bounce + 1, 3 * bounce + 5];
        for sector in [512_u32, 4096] {
            for offset in [0, 1, 511, 512, 4095, 4096, bounce - 1, bounce + 513] {
                for length in lengths {
                    let mut at = offset;
                    for piece in pieces(offset, length, sector) {
                        assert_eq!(piece.offset % u64::from(sector), 0);
                        assert_eq!(piece.length % sector as usize, 0);
                        assert!(piece.length <= BOUNCE && piece.skip + piece.wanted <= piece.length);
                        assert_eq!(piece.offset + piece.skip as u64, at);
                        assert!(
                            piece.skip < sector as usize && piece.length - piece.skip - piece.wanted < sector as usize
                        );
                        at += piece.wanted as u64;
                    }
                    assert_eq!(at, offset + length);
                }
            }
        }
    }
}
