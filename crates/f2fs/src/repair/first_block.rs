//! The first block of a directory, where its inode leads to a block of somebody else: the right one says itself whose it is.

use basalt_segments::SegmentKind;

use super::state::State;
use super::{Log, Repair};
use crate::check::blocks::Owner;
use crate::check::{CheckReport, FaultKind, Place, Survey};
use crate::dir::entries;
use crate::dir::hash::hash;
use crate::error::Result;
use crate::layout::dentry::DentryShape;
use crate::layout::inode::InlineFlags;
use crate::layout::summary::RawSummary;
use crate::layout::{BLOCKS_PER_SEGMENT, NULL_ADDR, SEGMENT_BITS, bit_msb};

impl State {
    /// Gives directories their own first block back, or a hole: rescue believes no entry of another block either. Whether anything was done.
    pub(super) fn take_back_first_blocks(
        &mut self,
        survey: &Survey,
        report: &CheckReport,
        log: &mut Log,
    ) -> Result<bool> {
        let mut done = false;
        for fault in report.faults.iter().filter(|fault| fault.kind == FaultKind::DentryDots) {
            let Place::Inode(directory) = fault.place else { continue };
            if !self.has_foreign_block(survey, directory)? {
                continue;
            }
            let own = self.find_first_block(survey, directory)?;
            if self.set_address(survey, directory, 0, own.unwrap_or(NULL_ADDR))? {
                let action = own.map_or("first block is of another file: now a hole".to_owned(), |address| {
                    format!("first block is of another file: found at block {address}")
                });
                log.add(Repair::of(fault, action));
                done = true;
            }
        }
        Ok(done)
    }

    /// Whether the first block of a directory shows nothing of what a first block has, and its segment's summary names another owner.
    fn has_foreign_block(&self, survey: &Survey, directory: u32) -> Result<bool> {
        let inode = self.inode(directory)?.filter(|_| survey.directories.contains_key(&directory));
        if inode.is_none_or(|inode| inode.is_inline(InlineFlags::DENTRY)) {
            return Ok(false);
        }
        let address = self.address(survey, directory, 0)?;
        if !self.geometry.in_main(address) {
            return Ok(false);
        }
        let block = self.block(address)?;
        let has = |name: &[u8]| entries::find(&block, &DentryShape::BLOCK, hash(name), name).is_some();
        Ok(!has(b".") && !has(b"..") && self.summary(address)? != self.first_summary(directory)?)
    }

    /// The summary entry of a directory's first block.
    fn first_summary(&self, directory: u32) -> Result<RawSummary> {
        Ok(Owner::Data { nid: directory, slot: 0, version: self.nat(directory)?.version }.summary())
    }

    /// The live block without an owner that its segment's summary and its own `.` say is a directory's first.
    fn find_first_block(&self, survey: &Survey, directory: u32) -> Result<Option<u32>> {
        let wanted = self.first_summary(directory)?;
        for segment in 0..self.geometry.main_segments {
            let entry = self.sit(segment)?;
            let is_data = SegmentKind::from_u8(entry.kind()).is_some_and(|kind| !kind.is_node());
            if !is_data || entry.valid_map == [0; 64] {
                continue;
            }
            let owned = survey.ownership.map.segment(segment);
            for block in 0..BLOCKS_PER_SEGMENT {
                let at = block as usize;
                if !bit_msb(&entry.valid_map, at) || owned.is_some_and(|found| bit_msb(&found.map, at)) {
                    continue;
                }
                let address = self.geometry.main + (segment << SEGMENT_BITS) + block;
                if self.summary(address)? == wanted && self.is_first_block(address, directory)? {
                    return Ok(Some(address));
                }
            }
        }
        Ok(None)
    }

    fn is_first_block(&self, address: u32, directory: u32) -> Result<bool> {
        let block = self.block(address)?;
        let itself = entries::find(&block, &DentryShape::BLOCK, hash(b"."), b".");
        Ok(itself.is_some_and(|slot| entries::entry(&block, &DentryShape::BLOCK, slot).ino.get() == directory))
    }
}
