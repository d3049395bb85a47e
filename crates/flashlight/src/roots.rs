//! Roots: the only pages that are at fixed places.
//!
//! A page that a power cut was in may read well, and fail later; the next cut may be in the page that replaces it, and so on. So a root
//! counts only where it was written twice: the second one shows that the first was ended. And before a session replaces it, it shows that
//! once more, in a block that neither this root nor the one before it needs; only then the one before it may go.

use basalt_nand::{NandDevice, NandError};

use crate::error::{Error, Result};
use crate::layout::header::{Area, Header};
use crate::layout::leaf::{MAGIC, MAGIC_AT, ROOT_BLOCKS, ROOT_GENERATION, ROOT_SECOND, SHAPE_AT, VERSION};
use crate::layout::tag::Tag;
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::volume::{FlashLight, Identity};

/// A root that was found twice, or written twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) generation: u32,
    /// The block with the one that is whole, and the block with the one that shows it.
    pub(crate) blocks: [u32; 2],
}

impl Root {
    const NONE: Root = Root { generation: 0, blocks: [NONE; 2] };
}

/// The roots of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roots {
    newest: Root,
    /// It counts if the newest cannot be shown to be whole any more.
    before: Root,
    /// What shows that the newest is whole was written in this session, to its end.
    shown: bool,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { newest: Root::NONE, before: Root::NONE, shown: true }
    }
}

impl Roots {
    pub(crate) fn new(newest: Root, before: Option<Root>) -> Roots {
        Roots { newest, before: before.unwrap_or(Root::NONE), shown: false }
    }
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Writes a root that leads to the second level.
    pub(crate) fn write_root(&mut self) -> Result<()> {
        if !self.roots.shown {
            self.show_newest()?;
        }
        let generation = self.roots.newest.generation + 1;
        let (second, identity, geometry) = (self.second.block, self.identity, self.geometry);
        let work = self.work_mut();
        work.fill(0);
        work[MAGIC_AT..MAGIC_AT + MAGIC.len()].copy_from_slice(MAGIC);
        work.set_u32(28, VERSION);
        work.set_u32(SHAPE_AT, geometry.page_bytes);
        work.set_u32(SHAPE_AT + 4, geometry.pages_per_block);
        work.set_u32(SHAPE_AT + 8, geometry.blocks);
        work[44..60].copy_from_slice(&identity.uuid);
        work[60..124].copy_from_slice(&identity.label);
        work.set_u32(ROOT_SECOND, second);
        work.set_u32(ROOT_GENERATION, generation);
        let first = self.program_root(&[])?;
        let other = self.program_root(&[first])?;
        self.roots.before = self.roots.newest;
        self.roots.newest = Root { generation, blocks: [first, other] };
        Ok(())
    }

    /// Writes the newest root once more: the page that showed that it is whole may be the one that a power cut was in.
    fn show_newest(&mut self) -> Result<()> {
        let [first, _] = self.roots.newest.blocks;
        self.work = NONE;
        self.read_page(self.geometry.first_page(first), Buffer::Work)?;
        let before = self.roots.before.blocks;
        let other = self.program_root(&before)?;
        self.roots.newest.blocks = [first, other];
        self.roots.before = Root::NONE;
        self.roots.shown = true;
        Ok(())
    }

    /// Programs the root in the work page in a block that the newest does not need, nor any of `others`. Says in which.
    fn program_root(&mut self, others: &[u32]) -> Result<u32> {
        let mut spare = [0xFF; 512];
        for block in 0..ROOT_BLOCKS {
            let needed = self.roots.newest.blocks.contains(&block) || others.contains(&block);
            if needed || self.is_bad(block) || self.device.is_bad(block)? {
                continue;
            }
            let page = self.geometry.first_page(block);
            let tag = self.tag(page)?.map_or(0, |tag| tag.erases);
            match self.device.erase(block) {
                Ok(()) => {}
                Err(NandError::EraseFailed { .. }) => {
                    self.condemn(block)?;
                    continue;
                }
                Err(error) => return Err(self.stop(error)),
            }
            self.sequence += 1;
            let header = Header { area: Area::Root, flags: 0, sequence: self.sequence, owner: 0, which: 0 };
            header.seal(self.memory.page_mut(Buffer::Work), 0);
            let bytes = Tag::metadata(tag + 1).bytes();
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
}

/// What a root says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) root: Root,
    pub(crate) identity: Identity,
    pub(crate) second: u32,
    /// The highest sequence number of all roots.
    pub(crate) sequence: u64,
}

/// The newest roots of a chip that are known to be whole, the newest first.
pub(crate) fn find<D: NandDevice>(device: &mut D, work: &mut [u8]) -> Result<[Option<Said>; 2]> {
    let geometry = device.geometry();
    // Of each block: sequence, generation.
    let mut found = [(NONE.into(), 0); ROOT_BLOCKS as usize];
    let (mut any, mut highest) = (false, 0);
    for block in 0..ROOT_BLOCKS.min(geometry.blocks) {
        if let Some(header) = root_at(device, geometry.first_page(block), work)? {
            (any, highest) = (true, header.sequence.max(highest));
            if work.u32_at(28) != VERSION {
                return Err(Error::Unsupported("the volume is of a later version of the format"));
            }
            let shape = [0, 4, 8].map(|at| work.u32_at(SHAPE_AT + at));
            if shape != [geometry.page_bytes, geometry.pages_per_block, geometry.blocks] {
                return Err(Error::Unsupported("the volume was made on a chip of another shape"));
            }
            found[block as usize] = (header.sequence, work.u32_at(ROOT_GENERATION));
        }
    }
    let mut whole = [None; 2];
    for (block, &(sequence, generation)) in found.iter().enumerate() {
        // The one that shows it: the oldest, which no later attempt to show it has touched.
        let later =
            (0..).zip(&found).filter(|(_, other)| generation > 0 && other.1 == generation && other.0 > sequence);
        let shown = later.min_by_key(|(_, other)| other.0).map(|(shown, _)| shown);
        let first = !found.iter().any(|other| other.1 == generation && other.0 < sequence);
        if let Some(shown) = shown.filter(|_| first) {
            let root = Root { generation, blocks: [block as u32, shown] };
            if whole[0].is_none_or(|newest: Root| newest.generation < generation) {
                whole = [Some(root), whole[0]];
            } else if whole[1].is_none_or(|before: Root| before.generation < generation) {
                whole[1] = Some(root);
            }
        }
    }
    let mut said = [None; 2];
    for (said, root) in said.iter_mut().zip(whole) {
        let Some(root) = root else { continue };
        if root_at(device, geometry.first_page(root.blocks[0]), work)?.is_some() {
            let mut identity = Identity { uuid: [0; 16], label: [0; 64] };
            identity.uuid.copy_from_slice(&work[44..60]);
            identity.label.copy_from_slice(&work[60..124]);
            *said = Some(Said { root, identity, second: work.u32_at(ROOT_SECOND), sequence: highest });
        }
    }
    match (said, any) {
        ([None, None], false) => Err(Error::NotFlashLight),
        ([None, None], true) => Err(Error::Damaged { page: 0, what: "no root is known to be whole" }),
        ([None, older], true | false) => Ok([older, None]),
        (said, _) => Ok(said),
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
    Ok(header.filter(|_| &work[MAGIC_AT..MAGIC_AT + MAGIC.len()] == MAGIC))
}
