//! The first block of a directory, where its inode leads to a block of somebody else: the right one says itself whose it is.

use basalt_segments::SegmentKind;
use rustc_hash::FxHashMap;

use super::report::{Log, Repair};
use super::state::State;
use crate::check::{CheckReport, FaultKind, Place, Survey};
use crate::dir::entries;
use crate::dir::hash::hash;
use crate::error::Result;
use crate::layout::dentry::DentryShape;
use crate::layout::inode::InlineFlags;
use crate::layout::summary::RawSummary;
use crate::layout::{Address, BLOCKS_PER_SEGMENT, Ino, bit_msb};

/// What the entries of a block say about whose it is; `.` and `..` are left out.
#[derive(Default)]
struct Content {
    /// Where its `.` leads.
    itself: Option<Ino>,
    /// Entries that lead to an inode in use.
    used: usize,
    /// Those whose inode remembers this directory and this name.
    own: usize,
    /// Those whose inode has more names than links, and remembers another one.
    borrowed: usize,
    /// Those whose inode remembers the directory where `.` leads.
    of_itself: usize,
}

/// The blocks that may be a directory's first: how many of its entries the best one has, where that is, and whether another one has as many.
struct Candidate {
    own: usize,
    address: Address,
    is_tied: bool,
}

impl State {
    /// Gives directories their own first block back, or a hole: rescue believes no entry of another block either. Whether anything was done.
    pub(super) fn take_back_first_blocks(
        &mut self,
        survey: &Survey,
        report: &CheckReport,
        log: &mut Log,
    ) -> Result<bool> {
        let mut foreign = Vec::new();
        let mut candidates = FxHashMap::default();
        for fault in report.faults.iter().filter(|fault| fault.kind == FaultKind::DentryDots) {
            let Place::Inode(directory) = fault.place else { continue };
            if self.has_foreign_block(survey, directory)? {
                foreign.push((fault, directory));
                candidates.insert(directory, None);
            }
        }
        if foreign.is_empty() {
            return Ok(false);
        }
        self.find_first_blocks(survey, &mut candidates)?;
        // Two may have changed places.
        for &(_, other) in &foreign {
            let address = self.address(survey, other.nid(), 0)?;
            let itself = self.content(survey, other, address)?.itself;
            if let Some((directory, best)) = itself.and_then(|ino| Some((ino, candidates.get_mut(&ino)?))) {
                self.consider(survey, directory, address, best)?;
            }
        }
        let mut done = false;
        for (fault, directory) in foreign {
            let found = candidates.get(&directory).and_then(Option::as_ref);
            let own = found.filter(|found| !found.is_tied).map(|found| found.address);
            if self.set_address(survey, directory.nid(), 0, own.unwrap_or(Address::NULL))? {
                let action = own.map_or("first block is of another file: now a hole".to_owned(), |address| {
                    format!("first block is of another file: found at block {address}")
                });
                log.add(Repair::of(fault, action));
                done = true;
            }
        }
        Ok(done)
    }

    /// Whether the first block of a directory is of another one: no `.` leads to itself, and no inode remembers an entry of it. Inodes
    /// remember entries in the directory where `.` leads, or most are names too many; or the summary names another node, and the block is
    /// not live.
    fn has_foreign_block(&self, survey: &Survey, directory: Ino) -> Result<bool> {
        let inode = self.inode(directory)?.filter(|_| survey.directories.contains_key(&directory));
        if inode.is_none_or(|inode| inode.is_inline(InlineFlags::DENTRY)) {
            return Ok(false);
        }
        let address = self.address(survey, directory.nid(), 0)?;
        if !self.geometry.in_main(address) {
            return Ok(false);
        }
        let content = self.content(survey, directory, address)?;
        if content.itself == Some(directory) || content.own > 0 {
            return Ok(false);
        }
        let (segment, block) = self.segment_of(address);
        let owner = self.summary(address)?.nid();
        let is_others = owner != directory.nid() && self.geometry.in_main(survey.nat.get(owner).address());
        let is_dead = !bit_msb(&self.sit(segment)?.valid_map, block);
        let is_of_other = content.of_itself > 0 || 2 * content.borrowed > content.used;
        Ok(is_of_other || is_others && is_dead)
    }

    fn content(&self, survey: &Survey, directory: Ino, address: Address) -> Result<Content> {
        let block = self.block(address)?;
        let mut content = Content::default();
        let mut slot = 0;
        while let Some(used) = entries::next_used(&block, &DentryShape::BLOCK, slot) {
            slot = used + 1;
            let raw = entries::entry(&block, &DentryShape::BLOCK, used);
            let ino = raw.ino();
            match entries::name(&block, &DentryShape::BLOCK, used, &raw) {
                Some(b".") => content.itself = Some(ino),
                Some(b"..") | None => {}
                Some(name) => {
                    let Some(known) = survey.inodes.get(&ino) else { continue };
                    let own = self.name_with_hash(survey, directory, ino, hash(name))?;
                    let is_own = own.is_some_and(|own| own == name);
                    content.used += 1;
                    content.own += usize::from(is_own);
                    content.borrowed += usize::from(!is_own && known.names > known.links.max(1));
                    let is_other = |itself: &Ino| *itself != directory && survey.directories.contains_key(itself);
                    let other = content.itself.filter(is_other);
                    content.of_itself += usize::from(match other {
                        Some(other) => self.name_with_hash(survey, other, ino, hash(name))?.is_some(),
                        None => false,
                    });
                }
            }
        }
        Ok(content)
    }

    /// Finds the live blocks without an owner that their segment's summary and their own `.` say are first blocks of these directories.
    fn find_first_blocks(&self, survey: &Survey, wanted: &mut FxHashMap<Ino, Option<Candidate>>) -> Result<()> {
        for segment in self.geometry.segments() {
            let entry = self.sit(segment)?;
            let is_data = SegmentKind::from_u8(entry.kind()).is_some_and(|kind| !kind.is_node());
            let owned = survey.ownership.map.found_in(segment);
            let is_stray = |block: usize| {
                bit_msb(&entry.valid_map, block) && !owned.is_some_and(|found| bit_msb(&found.map, block))
            };
            let strays: Vec<usize> = (0..BLOCKS_PER_SEGMENT as usize).filter(|&block| is_stray(block)).collect();
            if !is_data || strays.is_empty() {
                continue;
            }
            let summaries = self.summaries(segment)?;
            let first = self.geometry.in_segment(segment, 0);
            for block in strays {
                let RawSummary { ofs_in_node, .. } = summaries[block];
                let directory = summaries[block].nid().as_inode();
                if let Some(best) = wanted.get_mut(&directory).filter(|_| ofs_in_node.get() == 0) {
                    self.consider(survey, directory, first + block as u32, best)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps a block as a directory's first if more inodes remember its entries than those of the best one so far: others are older.
    fn consider(&self, survey: &Survey, directory: Ino, address: Address, best: &mut Option<Candidate>) -> Result<()> {
        let content = self.content(survey, directory, address)?;
        if content.itself != Some(directory) {
            return Ok(());
        }
        match best {
            Some(best) if best.own > content.own || best.address == address => {}
            Some(best) if best.own == content.own => best.is_tied = true,
            _ => *best = Some(Candidate { own: content.own, address, is_tied: false }),
        }
        Ok(())
    }
}
