//! The bytes of a write that waits.

use basalt_vfs::Bytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::layout::{BLOCK_SIZE, RawBlock};

/// A block that direct I/O can write as it is.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
pub(super) struct AlignedBlock([u8; BLOCK_SIZE]);

/// The blocks of a write, in order.
pub(super) enum Blocks {
    /// Copied from whoever keeps the original, in one piece.
    Copied(Vec<AlignedBlock>),
    /// Given away by whoever had them.
    Given(Vec<Box<RawBlock>>),
    /// In pieces of whole blocks that others may have too.
    Shared(Vec<Bytes>),
}

/// The bytes of a new write, whole blocks.
pub(super) enum Source<'a> {
    /// To be copied.
    Slices(&'a [&'a [u8]]),
    /// To be taken. Blocks that are free come instead.
    Blocks(&'a mut Vec<Box<RawBlock>>),
    /// To be kept as they are.
    Shared(Bytes),
}

impl Source<'_> {
    /// Bytes of it.
    pub(super) fn length(&self) -> usize {
        match self {
            Source::Slices(slices) => slices.iter().map(|slice| slice.len()).sum(),
            Source::Blocks(blocks) => blocks.len() * BLOCK_SIZE,
            Source::Shared(bytes) => bytes.len(),
        }
    }
}

impl Blocks {
    /// How many.
    pub(super) fn count(&self) -> usize {
        match self {
            Blocks::Copied(blocks) => blocks.len(),
            Blocks::Given(blocks) => blocks.len(),
            Blocks::Shared(pieces) => pieces.iter().map(Bytes::len).sum::<usize>() / BLOCK_SIZE,
        }
    }

    /// All bytes, as few slices as they are.
    pub(super) fn slices(&self) -> Vec<&[u8]> {
        match self {
            Blocks::Copied(blocks) => vec![blocks.as_bytes()],
            Blocks::Given(blocks) => blocks.iter().map(|block| &block.0[..]).collect(),
            Blocks::Shared(pieces) => pieces.iter().map(|piece| &piece[..]).collect(),
        }
    }

    /// Fills `buf` with what begins at byte `from`.
    pub(super) fn copy_to(&self, from: usize, buf: &mut [u8]) {
        let (mut skip, mut left) = (from, buf);
        for slice in self.slices() {
            let here = &slice[skip.min(slice.len())..];
            skip -= slice.len() - here.len();
            let (filled, behind) = left.split_at_mut(here.len().min(left.len()));
            filled.copy_from_slice(&here[..filled.len()]);
            left = behind;
        }
    }
}

/// Puts slices of `length` bytes, whole blocks together, behind the first `before` blocks, instead of what is there: no byte of a single
/// slice is cleared that is written anyway.
pub(super) fn put_behind(blocks: &mut Vec<AlignedBlock>, before: usize, slices: &[&[u8]], length: usize) {
    if let [only] = slices {
        blocks.truncate(before);
        blocks.extend(only.as_chunks::<BLOCK_SIZE>().0.iter().map(|bytes| AlignedBlock(*bytes)));
        return;
    }
    blocks.resize(before + length / BLOCK_SIZE, AlignedBlock::new_zeroed());
    let mut left = blocks[before..].as_mut_bytes();
    for slice in slices {
        let (here, behind) = left.split_at_mut(slice.len());
        here.copy_from_slice(slice);
        left = behind;
    }
}

/// Buffers that are kept for the next writes, and blocks in the largest of them.
const SPARE_BUFFERS: usize = 8;
const SPARE_BLOCKS: usize = 256;

/// What writes that are over leave for the next ones: warm in the processor's cache, and no work for the allocator.
#[derive(Default)]
pub(super) struct Spare {
    buffers: Vec<Vec<AlignedBlock>>,
    blocks: Vec<Box<RawBlock>>,
}

impl Spare {
    /// The blocks of a new write.
    pub(super) fn fill(&mut self, source: Source<'_>) -> Blocks {
        let length = source.length();
        match source {
            Source::Slices(slices) => {
                // One that is large enough need not grow.
                let fits = self.buffers.iter().position(|buffer| buffer.capacity() * BLOCK_SIZE >= length);
                let found = fits.map(|index| self.buffers.swap_remove(index)).or_else(|| self.buffers.pop());
                let mut buffer = found.unwrap_or_default();
                put_behind(&mut buffer, 0, slices, length);
                Blocks::Copied(buffer)
            }
            Source::Blocks(blocks) => Blocks::Given(std::mem::replace(blocks, std::mem::take(&mut self.blocks))),
            Source::Shared(bytes) => Blocks::Shared(vec![bytes]),
        }
    }

    /// Adds to the blocks of a write; hands back what cannot be added.
    pub(super) fn fill_up<'a>(&mut self, blocks: &mut Blocks, source: Source<'a>) -> Option<Source<'a>> {
        let length = source.length();
        match (blocks, source) {
            (Blocks::Copied(blocks), Source::Slices(slices)) => put_behind(blocks, blocks.len(), slices, length),
            (Blocks::Given(blocks), Source::Blocks(more)) => {
                blocks.append(more);
                more.append(&mut self.blocks);
            }
            (Blocks::Shared(pieces), Source::Shared(bytes)) => pieces.push(bytes),
            (_, source) => return Some(source),
        }
        None
    }

    /// Keeps what a write needs no longer; hands back what is too much, or another's.
    pub(super) fn keep(&mut self, blocks: Blocks) -> Option<Blocks> {
        match blocks {
            Blocks::Copied(buffer) if self.buffers.len() < SPARE_BUFFERS && buffer.capacity() <= SPARE_BLOCKS => {
                self.buffers.push(buffer);
                None
            }
            Blocks::Given(mut blocks) => {
                let room = SPARE_BLOCKS.saturating_sub(self.blocks.len());
                self.blocks.extend(blocks.drain(..room.min(blocks.len())));
                (!blocks.is_empty()).then_some(Blocks::Given(blocks))
            }
            unneeded => Some(unneeded),
        }
    }
}
