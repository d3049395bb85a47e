//! Page-aligned memory, without `unsafe`.

use std::sync::Arc;

use basalt_vfs::Bytes;
use parking_lot::Mutex;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes of a [`Page`]; the alignment of every buffer here, whatever the host's page size.
pub(super) const PAGE: usize = 4096;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Bytes that start on a page boundary. Pages never touched take no memory.
pub(super) struct PageBuffer(Vec<Page>);

impl PageBuffer {
    /// At least `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        let pages = len.div_ceil(PAGE);
        // Fails only without memory, as `vec!` would, which aborts.
        PageBuffer(Page::new_vec_zeroed(pages).unwrap_or_else(|_| vec![Page([0; PAGE]); pages]))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

/// Buffers that requests are received in. One whose bytes were shared comes back when nobody has them any more.
pub(super) struct Inboxes {
    length: usize,
    free: Arc<Mutex<Vec<PageBuffer>>>,
}

/// Buffers that are kept for later.
const KEPT: usize = 16;

/// A buffer whose bytes are shared.
struct Shared {
    buffer: Option<PageBuffer>,
    free: Arc<Mutex<Vec<PageBuffer>>>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], PageBuffer::bytes)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut free = self.free.lock();
        if free.len() < KEPT {
            free.extend(self.buffer.take());
        }
    }
}

impl Inboxes {
    /// Of buffers of at least `length` bytes.
    pub(super) fn new(length: usize) -> Inboxes {
        Inboxes { length, free: Arc::default() }
    }

    /// A buffer; what is in it is arbitrary.
    pub(super) fn take(&self) -> PageBuffer {
        let kept = self.free.lock().pop();
        kept.unwrap_or_else(|| PageBuffer::new(self.length))
    }

    /// The bytes of a buffer, for as many as want them.
    pub(super) fn share(&self, buffer: PageBuffer) -> Bytes {
        Bytes::from_owner(Shared { buffer: Some(buffer), free: self.free.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_buffers_come_back_when_nobody_has_them() {
        let inboxes = Inboxes::new(3 * PAGE);
        let mut buffer = inboxes.take();
        buffer.bytes_mut()[PAGE..2 * PAGE].fill(7);
        let place = buffer.bytes().as_ptr();
        let all = inboxes.share(buffer);
        let part = all.slice_ref(&all[PAGE..2 * PAGE]);
        drop(all);
        let other = inboxes.take();
        assert_ne!(other.bytes().as_ptr(), place, "somebody has a part of it");
        assert_eq!(*part, [7; PAGE]);
        drop(part);
        assert_eq!(inboxes.take().bytes().as_ptr(), place);
    }
}
