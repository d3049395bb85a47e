//! Directories made anew: those for what has no name, and those whose inode is gone. Of the latter, the blocks of names may still be there:
//! live, nobody's, and by the summaries of their segments this directory's.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use basalt_segments::SegmentKind;
use basalt_vfs::FileKind;
use rustc_hash::FxHashMap;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::state::State;
use crate::check::Survey;
use crate::check::blocks::Owner;
use crate::dir::entries;
use crate::dir::hash::hash;
use crate::error::Result;
use crate::layout::dentry::{DentryShape, slots_for};
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::summary::RawSummaryBlock;
use crate::layout::superblock::Features;
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino, bit_msb};

/// Addresses that any inode has room for, whatever else is in it.
const SLOTS_MAX: u32 = 800;

impl State {
    /// Makes a directory with the names that are left of it, or nothing but `.` and `..`; its own name is added by the caller. False if
    /// there is no room.
    pub(super) fn make_directory(
        &mut self,
        survey: &Survey,
        ino: Ino,
        parent: Ino,
        permissions: u16,
        name: &[u8],
    ) -> Result<bool> {
        let mut blocks = self.blocks_left(survey, ino)?;
        // Nothing may be put where they are.
        self.taken.extend(blocks.values().copied());
        if let Entry::Vacant(first) = blocks.entry(0) {
            let owner = Owner::Data { nid: ino.nid(), slot: 0, version: self.nat(ino.nid())?.version };
            let Some(data) = self.allocate(survey, SegmentKind::HotData, owner.summary())? else { return Ok(false) };
            self.put(data, &first_block(ino, parent))?;
            first.insert(data);
        }
        let Some(node) = self.allocate(survey, SegmentKind::HotNode, Owner::Node(ino.nid()).summary())? else {
            return Ok(false);
        };
        let inode = self.new_directory(ino, parent, permissions, name, &blocks)?;
        let mut block = inode.as_bytes().to_vec();
        self.seal(&mut block);
        self.put(node, &block)?;
        self.edit_nat(ino.nid(), |entry| {
            entry.ino.set(ino.get());
            entry.block_addr = node.into();
        })?;
        self.made.insert(ino);
        self.names.remove(&ino);
        Ok(true)
    }

    /// Blocks of names of a directory whose inode is gone, by their place in it.
    fn blocks_left(&mut self, survey: &Survey, ino: Ino) -> Result<BTreeMap<u32, Address>> {
        if self.left.is_none() {
            self.left = Some(self.find_left(survey)?);
        }
        let all = self.left.as_mut().and_then(|left| left.remove(&ino)).unwrap_or_default();
        let mut found = BTreeMap::new();
        for (slot, address) in all {
            if !self.taken.contains(&address) && has_names_of(&self.block(address)?, ino, slot) {
                found.insert(slot, address);
            }
        }
        Ok(found)
    }

    /// Live blocks of data without an owner whose summaries name a directory that inodes without a name remember.
    fn find_left(&mut self, survey: &Survey) -> Result<FxHashMap<Ino, Vec<(u32, Address)>>> {
        self.find_nameless(survey)?;
        let mut left: FxHashMap<Ino, Vec<(u32, Address)>> = FxHashMap::default();
        for segment in self.geometry.segments() {
            let entry = self.sit(segment)?;
            let owned = survey.ownership.map.found_in(segment).map_or([0; 64], |found| found.map);
            let is_data = SegmentKind::from_u8(entry.kind()).is_some_and(|kind| !kind.is_node());
            if !is_data || entry.valid_map == owned {
                continue;
            }
            let bytes = self.block(self.geometry.summary_block(segment))?;
            let log = self.loaded.logs.iter().find(|log| log.segment == segment);
            let stored = RawSummaryBlock::ref_from_bytes(&bytes).ok();
            let Some(summary) = log.map(|log| &*log.summary).or(stored) else { continue };
            for (block, owner) in (0..BLOCKS_PER_SEGMENT).zip(&summary.entries) {
                let (at, ino, slot) = (block as usize, owner.nid().as_inode(), u32::from(owner.ofs_in_node.get()));
                let is_lost = bit_msb(&entry.valid_map, at) && !bit_msb(&owned, at);
                if is_lost && slot < SLOTS_MAX && self.remembered.contains(&ino) {
                    let address = self.geometry.in_segment(segment, block);
                    left.entry(ino).or_default().push((slot, address));
                }
            }
        }
        Ok(left)
    }

    fn new_directory(
        &self,
        ino: Ino,
        parent: Ino,
        permissions: u16,
        name: &[u8],
        blocks: &BTreeMap<u32, Address>,
    ) -> Result<Box<RawInode>> {
        let mut inode = Box::new(RawInode::new_zeroed());
        let end = blocks.last_key_value().map_or(1, |(last, _)| u64::from(*last) + 1);
        inode.i_mode.set(FileKind::Directory.mode_bits() as u16 | permissions);
        inode.i_links.set(2);
        inode.i_size.set(end * BLOCK_SIZE as u64);
        inode.i_blocks.set(1 + blocks.len() as u64);
        inode.i_current_depth.set(1);
        inode.i_pino.set(parent.get());
        inode.i_namelen.set(name.len() as u32);
        inode.i_name[..name.len()].copy_from_slice(name);
        if let Some(root) = self.inode(self.geometry.root_ino)? {
            (inode.i_atime, inode.i_ctime, inode.i_mtime) = (root.i_atime, root.i_ctime, root.i_mtime);
        }
        let features = self.geometry.features;
        if features.contains(Features::EXTRA_ATTR) {
            inode.i_inline = InlineFlags::EXTRA_ATTR.bits();
            inode.extra_mut().i_extra_isize.set(crate::format::root::extra_size(features));
        }
        let first = inode.extra_size() as usize / 4;
        for (&slot, &address) in blocks {
            inode.slots[first + slot as usize] = address.into();
        }
        inode.footer.nid.set(ino.get());
        inode.footer.ino.set(ino.get());
        Ok(inode)
    }
}

/// A directory's first block, with nothing else in it.
fn first_block(ino: Ino, parent: Ino) -> Vec<u8> {
    let (mut block, shape) = (vec![0; BLOCK_SIZE], DentryShape::BLOCK);
    let directory = entries::file_type(FileKind::Directory);
    entries::insert(&mut block, &shape, 0, 0, b".", ino, directory);
    entries::insert(&mut block, &shape, 1, 0, b"..", parent, directory);
    block
}

/// Whether a block holds names, each with its hash, and if it is the first one of directory `ino`, a `.` that leads there.
fn has_names_of(block: &[u8], ino: Ino, slot: u32) -> bool {
    let shape = DentryShape::BLOCK;
    let (mut at, mut names, mut has_itself) = (0, 0, false);
    while let Some(used) = entries::next_used(block, &shape, at) {
        let raw = entries::entry(block, &shape, used);
        let Some(name) = entries::name(block, &shape, used, &raw) else { return false };
        let is_dot = matches!(name, b"." | b"..");
        if !is_dot && raw.hash_code.get() != hash(name) {
            return false;
        }
        has_itself |= name == b"." && raw.ino() == ino;
        names += 1;
        at = used + slots_for(name.len());
    }
    names > 0 && (slot != 0 || has_itself)
}
