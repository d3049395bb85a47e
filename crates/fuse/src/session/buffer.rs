//! Page-aligned memory, without `unsafe`.

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
