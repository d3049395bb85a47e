//! The bytes of a write.

use std::ops::{Deref, Range};

use basalt_vfs::Bytes;

/// Bytes to be written: lent for the time of the call, or shared, so that whoever needs them longer need not copy them.
#[derive(Clone, Copy)]
pub(crate) struct Data<'a> {
    bytes: &'a [u8],
    /// Those, and maybe others around them.
    shared: Option<&'a Bytes>,
}

impl<'a> Data<'a> {
    /// Bytes that may be kept.
    pub(crate) fn shared(all: &'a Bytes) -> Data<'a> {
        Data { bytes: all, shared: Some(all) }
    }

    /// A part of them.
    pub(crate) fn part(self, range: Range<usize>) -> Data<'a> {
        Data { bytes: &self.bytes[range], shared: self.shared }
    }

    /// The bytes for whoever keeps them; `None` of lent ones.
    pub(crate) fn to_keep(self) -> Option<Bytes> {
        self.shared.map(|all| all.slice_ref(self.bytes))
    }
}

impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Data<'a> {
        Data { bytes, shared: None }
    }
}

impl Deref for Data<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}
