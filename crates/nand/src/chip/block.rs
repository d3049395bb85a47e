//! What a chip knows of each block.

use super::store::Store;
use crate::{Geometry, is_erased};

/// Zero bits of 512 bytes of data, or of all spare bytes, up to which a page counts as erased: bits flip in erased pages, too. A programmed
/// page has more, for it has spare bytes with parity.
const FLIPPED: u32 = 4;

/// One block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    /// How often it was erased.
    pub(super) erases: u32,
    /// The first page of it that can be programmed.
    pub(super) next: u32,
    /// Marked bad.
    pub(super) bad: bool,
    /// It is worn out: programs and erases fail.
    pub(super) failed: bool,
    /// A program or an erase of it was cut since it was erased: nothing that is programmed in it stays.
    pub(super) unreliable: bool,
    /// Bits of its erased pages have flipped.
    pub(super) flipped: bool,
    /// Pages read since it was erased.
    pub(super) reads: u32,
    /// When its first page was programmed, in ns.
    pub(super) programmed: u64,
}

impl Block {
    /// A block in a file.
    pub(super) fn found(store: &mut Store, geometry: &Geometry, block: u32) -> std::io::Result<Block> {
        let first = geometry.first_page(block);
        let read = |store: &mut Store, page| store.read(page).map_err(std::io::Error::other);
        let (mut next, mut flipped) = (geometry.pages_per_block, false);
        while next > 0 {
            let page = read(store, first + next - 1)?;
            if !is_as_erased(&page, geometry.page_bytes as usize) {
                break;
            }
            flipped |= !is_erased(&page);
            next -= 1;
        }
        let bytes = read(store, first)?;
        let marker: u32 = bytes[geometry.page_bytes as usize..].iter().take(1).map(|byte| byte.count_zeros()).sum();
        // A flipped bit marks no block.
        Ok(Block { next, flipped, bad: marker > 4, ..Block::default() })
    }

    /// It was erased, and can be relied on again.
    pub(super) fn erased(&mut self) {
        *self = Block { erases: self.erases, failed: self.failed, ..Block::default() };
    }
}

/// Whether a page counts as erased: only a few of its bits are zero.
fn is_as_erased(bytes: &[u8], page_bytes: usize) -> bool {
    let (data, spare) = bytes.split_at(page_bytes);
    let zeros = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_zeros()).sum::<u32>();
    data.chunks(512).chain([spare]).all(|part| zeros(part) <= FLIPPED)
}
