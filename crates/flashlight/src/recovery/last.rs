//! The page that was written last, and what each block is used for since the checkpoint.

use basalt_nand::{NandDevice, NandError};

use super::{Since, Used};
use crate::error::{Error, Result};
use crate::layout::NONE;
use crate::layout::header::{Area, Header};
use crate::layout::leaf::{Head, LOGS, WINDOW};
use crate::memory::{Buffer, Bytes};
use crate::mutant::{self, Mutant};
use crate::volume::{FlashLight, KEPT};

/// No volume gets there: at a page in each microsecond it takes eight years.
const MOST_SEQUENCE: u64 = 0xF000_0000_0000;

/// What was written last, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    page: u32,
    newest: u64,
    /// The highest sequence number of all pages.
    highest: u64,
    /// That of a leaf behind the checkpoint, in a block of its own; and the highest of all that no checkpoint consists of.
    leaf: Option<u64>,
    other: u64,
    /// A block has more than one of these leaves.
    leaves_go_on: bool,
    /// There is something to recover.
    pub(super) any: bool,
}

impl Last {
    /// Whether more than a leaf was written with which a checkpoint goes on in another block, be it the next leaf: then there was a root that leads
    /// to it.
    pub(super) fn is_behind_newer_leaf(&self) -> bool {
        self.leaves_go_on || self.leaf.is_some_and(|leaf| self.other > leaf)
    }

    fn note(&mut self, page: u32, header: &Header, checkpoint: u64) {
        self.highest = self.highest.max(header.sequence);
        if header.area == Area::Leaf && header.sequence > checkpoint {
            self.leaf = self.leaf.max(Some(header.sequence));
        } else if !matches!(header.area, Area::Second | Area::Leaf | Area::Counts) {
            self.other = self.other.max(header.sequence);
            self.any |= header.sequence > checkpoint;
        }
        if header.sequence > self.newest {
            (self.page, self.newest) = (page, header.sequence);
        }
    }
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Finds the page that was written last, and what each block is used for. From here on sequence numbers go on behind all that are found.
    pub(super) fn find_last(&mut self, since: &mut Since) -> Result<Last> {
        let mut last = Last {
            page: NONE,
            newest: since.sequence,
            highest: self.sequence,
            leaf: None,
            other: since.sequence,
            leaves_go_on: false,
            any: false,
        };
        for log in 0..LOGS {
            let Head { block, next, .. } = since.heads[log];
            if block != NONE {
                since.open[log] = self.look_through(block, next, since.sequence, &mut last)?.1;
            }
        }
        let scanned = since.window.iter().filter(|&&block| block != NONE).count().saturating_sub(KEPT);
        for at in (0..WINDOW).filter(|&at| since.window[at] != NONE) {
            if at < scanned {
                let (area, pages) = self.look_through(since.window[at], 0, since.sequence, &mut last)?;
                since.used[at] = Used { area, pages: pages.min(u8::MAX.into()) as u8 };
            } else {
                // What an earlier attempt to recover has written counts for its numbers alone: none may come again.
                let mut others = last;
                self.look_through(since.window[at], 0, since.sequence, &mut others)?;
                (last.highest, last.leaf, last.other) = (others.highest, others.leaf, others.other);
                last.leaves_go_on = others.leaves_go_on;
            }
        }
        if !mutant::active(Mutant::NumbersReused) {
            self.sequence = last.highest;
        }
        since.saved.0 = last.page;
        Ok(last)
    }

    /// Reads the pages of a block from one on, to the end of what was written. Says what they are for, if they are newer than `sequence`, and
    /// behind which page nothing is.
    fn look_through(&mut self, block: u32, from: u32, sequence: u64, last: &mut Last) -> Result<(Option<Area>, u32)> {
        let (first, mut area, mut leaves) = (self.geometry.first_page(block), None, 0);
        for at in from..self.geometry.pages_per_block {
            match self.header_of(first + at)? {
                Some(header) => {
                    last.note(first + at, &header, sequence);
                    leaves += u32::from(header.area == Area::Leaf && header.sequence > sequence);
                    last.leaves_go_on |= leaves > 1;
                    if header.sequence > sequence || mutant::active(Mutant::OldPagesReplayed) {
                        area = Some(header.area);
                    } else if at == 0 {
                        // What is in it was written before it was free.
                        return Ok((None, 0));
                    }
                }
                // A block of data, or one that was not used since.
                None if at == 0 => return Ok((None, 0)),
                None if basalt_nand::is_erased(self.memory.page(Buffer::Work)) => return Ok((area, at)),
                None => {}
            }
        }
        Ok((area, self.geometry.pages_per_block))
    }

    /// The header of a page, if it is a whole metadata page; reads it into the work page.
    pub(super) fn header_of(&mut self, page: u32) -> Result<Option<Header>> {
        match self.read_with_tag(page) {
            // What a file contains may look like anything.
            Ok(Some(tag)) if tag.serial != NONE && !mutant::active(Mutant::DataTakenForMetadata) => Ok(None),
            Ok(_) => {
                let header = Header::of(self.memory.page(Buffer::Work), self.seed);
                let most = self.most_inodes();
                let header = header.filter(|header| header.owner < most && header.sequence < MOST_SEQUENCE);
                self.work = if header.is_some() { page } else { NONE };
                Ok(header)
            }
            Err(Error::Nand(NandError::Uncorrectable { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
