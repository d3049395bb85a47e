//! Roots: the only pages that are at fixed places.
//!
//! A root is written twice, so that one page that cannot be read any more costs nothing. The highest generation counts of which a page can
//! be read. That page may be the one that a power cut was in: it may read well now, and fail later. So before a session programs anything
//! else it writes the root that counts once more, in a block that neither this root nor the one before it needs. Then it erases the
//! blocks in which it found no root: there may be one that reads well later.

use basalt_nand::{NandDevice, NandError, is_erased};

use crate::error::{Error, Result};
use crate::layout::header::{Area, Header};
use crate::layout::leaf::{MAGIC, MAGIC_AT, ROOT_BLOCKS, ROOT_GENERATION, ROOT_SECOND, SHAPE_AT, VERSION};
use crate::layout::tag::Tag;
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mutant::{self, Mutant};
use crate::volume::{FlashLight, Identity};

/// A root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Root {
    generation: u32,
    /// The block of the second level.
    second: u32,
    /// The blocks with its pages, those first that were written first: only the last one that was written may be torn.
    blocks: [u32; 2],
}

impl Root {
    const NONE: Root = Root { generation: 0, second: NONE, blocks: [NONE; 2] };
}

/// The roots of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roots {
    newest: Root,
    /// It counts if the newest cannot be read any more.
    before: Root,
    /// The newest was written in this session, to the end.
    kept: bool,
    /// Blocks in which no root was found, a bit each; and those of them that are not erased.
    without: u8,
    unreadable: u8,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { newest: Root::NONE, before: Root::NONE, kept: true, without: 0, unreadable: 0 }
    }
}

impl Roots {
    /// The block of the second level.
    pub(crate) fn second(&self) -> u32 {
        self.newest.second
    }

    /// Whether there may have been a newer root, of which no page can be read. Power cuts make one page unreadable at most: the next root is
    /// written in its place.
    pub(crate) fn newer_may_be_lost(&self) -> bool {
        self.unreadable.count_ones() >= 2 && !mutant::active(Mutant::OlderRootTaken)
    }
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Writes a root that leads to the second level.
    pub(crate) fn write_root(&mut self) -> Result<()> {
        let mut new = Root { generation: self.roots.newest.generation + 1, second: self.second.block, ..Root::NONE };
        for at in 0..new.blocks.len() {
            if at == 0 || !mutant::active(Mutant::RootWrittenOnce) {
                new.blocks[at] = self.program_root(new, &new.blocks)?;
            }
        }
        self.roots.before = self.roots.newest;
        self.roots.newest = new;
        Ok(())
    }

    /// Makes sure that the root that counts goes on to do so. Nothing else of a session may be programmed before.
    pub(crate) fn keep_root(&mut self) -> Result<()> {
        if self.roots.kept || mutant::active(Mutant::RootNotKept) {
            return Ok(());
        }
        let (newest, before) = (self.roots.newest, self.roots.before.blocks);
        let block = match self.program_root(newest, &before) {
            // Of two pages the first is whole, and the generation before is not needed.
            Err(Error::Unsupported(_)) if newest.blocks[1] != NONE => self.program_root(newest, &[])?,
            block => block?,
        };
        self.roots.newest.blocks = [block, newest.blocks[0]];
        self.roots.before = Root::NONE;
        let without = self.roots.without;
        for other in (0..ROOT_BLOCKS).filter(|&other| other != block && without & 1 << other != 0) {
            if !self.is_bad(other) && !self.device.is_bad(other)? {
                self.erase_root(other)?;
            }
        }
        (self.roots.kept, self.roots.without, self.roots.unreadable) = (true, 0, 0);
        Ok(())
    }

    /// Programs a root in a block that the newest does not need, nor any of `others`: first where a page is unreadable. Says in which.
    fn program_root(&mut self, root: Root, others: &[u32]) -> Result<u32> {
        let mut spare = [0xFF; 512];
        let (identity, geometry) = (self.identity, self.geometry);
        let work = self.work_mut();
        work.fill(0);
        work[MAGIC_AT..MAGIC_AT + MAGIC.len()].copy_from_slice(MAGIC);
        work.set_u32(28, VERSION);
        work.set_u32(SHAPE_AT, geometry.page_bytes);
        work.set_u32(SHAPE_AT + 4, geometry.pages_per_block);
        work.set_u32(SHAPE_AT + 8, geometry.blocks);
        work[44..60].copy_from_slice(&identity.uuid);
        work[60..124].copy_from_slice(&identity.label);
        work.set_u32(ROOT_SECOND, root.second);
        work.set_u32(ROOT_GENERATION, root.generation);
        let unreadable = self.roots.unreadable;
        let is_unreadable = |&block: &u32| unreadable & 1 << block != 0;
        let blocks =
            (0..ROOT_BLOCKS).filter(is_unreadable).chain((0..ROOT_BLOCKS).filter(|block| !is_unreadable(block)));
        for block in blocks {
            let needed = self.roots.newest.blocks.contains(&block) || others.contains(&block);
            let needed = needed && !mutant::active(Mutant::RootInPlace);
            if needed || self.is_bad(block) || self.device.is_bad(block)? {
                continue;
            }
            let page = self.geometry.first_page(block);
            let erases = self.tag(page)?.map_or(0, |tag| tag.erases);
            if !self.erase_root(block)? {
                continue;
            }
            self.sequence += 1;
            let header = Header { area: Area::Root, flags: 0, sequence: self.sequence, owner: 0, which: 0 };
            header.seal(self.memory.page_mut(Buffer::Work), 0);
            let bytes = Tag::metadata(erases + 1).bytes();
            spare[..bytes.len()].copy_from_slice(&bytes);
            let spare = &spare[..self.geometry.spare_bytes as usize];
            match self.device.program(page, self.memory.page(Buffer::Work), spare) {
                Ok(()) => return Ok(block),
                Err(NandError::ProgramFailed { .. }) => self.condemn(block)?,
                Err(error) => return Err(self.stop(error)),
            }
        }
        Err(Error::Unsupported("too many of the blocks for roots have failed"))
    }

    /// Erases a block for roots, or marks it bad; whether it is erased.
    pub(crate) fn erase_root(&mut self, block: u32) -> Result<bool> {
        match self.device.erase(block) {
            Ok(()) => Ok(true),
            Err(NandError::EraseFailed { .. }) => self.condemn(block).map(|()| false),
            Err(error) => Err(self.stop(error)),
        }
    }
}

/// What is found on a chip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) roots: Roots,
    pub(crate) identity: Identity,
    /// The highest sequence number of all roots.
    pub(crate) sequence: u64,
}

/// Finds the roots of a chip. Those in bad blocks do not count: nobody can erase them.
pub(crate) fn find<D: NandDevice>(device: &mut D, work: &mut [u8]) -> Result<Found> {
    let geometry = device.geometry();
    let identity = Identity { uuid: [0; 16], label: [0; 64] };
    let mut found = Found { roots: Roots { kept: false, ..Roots::default() }, identity, sequence: 0 };
    // Sequence numbers of the pages of the newest, and of the one before.
    let mut sequences = [[u64::MAX; 2]; 2];
    for block in 0..ROOT_BLOCKS.min(geometry.blocks) {
        if device.is_bad(block)? {
            continue;
        }
        let Some(header) = root_at(device, geometry.first_page(block), work)? else {
            found.roots.without |= 1 << block;
            found.roots.unreadable |= u8::from(!is_erased(work)) << block;
            continue;
        };
        if work.u32_at(28) != VERSION {
            return Err(Error::Unsupported("the volume is of a later version of the format"));
        }
        let shape = [0, 4, 8].map(|at| work.u32_at(SHAPE_AT + at));
        if shape != [geometry.page_bytes, geometry.pages_per_block, geometry.blocks] {
            return Err(Error::Unsupported("the volume was made on a chip of another shape"));
        }
        found.sequence = found.sequence.max(header.sequence);
        let (generation, second) = (work.u32_at(ROOT_GENERATION), work.u32_at(ROOT_SECOND));
        let Roots { newest, before, .. } = &mut found.roots;
        let new = Root { generation, second, ..Root::NONE };
        if generation > newest.generation {
            (*before, *newest) = (*newest, new);
            sequences = [[u64::MAX; 2], sequences[0]];
            found.identity.uuid.copy_from_slice(&work[44..60]);
            found.identity.label.copy_from_slice(&work[60..124]);
        } else if generation < newest.generation && generation > before.generation {
            *before = new;
            sequences[1] = [u64::MAX; 2];
        }
        for (root, sequences) in [newest, before].into_iter().zip(&mut sequences) {
            if root.generation == generation {
                note_page(root, sequences, block, header.sequence);
            }
        }
    }
    if found.roots.newest.generation == 0 { Err(Error::NotFlashLight) } else { Ok(found) }
}

/// Notes one more page of a root: the two that were written first are kept.
fn note_page(root: &mut Root, sequences: &mut [u64; 2], block: u32, sequence: u64) {
    if sequence < sequences[0] {
        (sequences[1], root.blocks[1]) = (sequences[0], root.blocks[0]);
        (sequences[0], root.blocks[0]) = (sequence, block);
    } else if sequence < sequences[1] {
        (sequences[1], root.blocks[1]) = (sequence, block);
    }
}

/// The header of a root, if a page is one.
fn root_at<D: NandDevice>(device: &mut D, page: u32, work: &mut [u8]) -> Result<Option<Header>> {
    match device.read(page, work, &mut []) {
        Ok(_) => {}
        Err(NandError::Uncorrectable { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let header = Header::of(work, 0).filter(|header| header.area == Area::Root);
    // No volume gets to the last generation: such a page is forged.
    let is_root = |_: &Header| &work[MAGIC_AT..][..MAGIC.len()] == MAGIC && work.u32_at(ROOT_GENERATION) != u32::MAX;
    Ok(header.filter(is_root))
}
