//! The names of a directory: where each is, and which are free. What is known of a directory is kept for a round and brought up to date
//! with every change. So a fault costs what its own entry costs, however many others there are.

use std::collections::BTreeSet;

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::entry::Found;
use super::known_names::{Names, Numbers, Spot, key, numbers_key};
use super::state::State;
use crate::check::Survey;
use crate::dir::entries;
use crate::error::Result;
use crate::layout::dentry::DentryShape;
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::node::{ADDRS_PER_NODE, RawNode};
use crate::layout::{Address, Ino, NAME_MAX, bit_lsb};
use crate::node::level::{Level, level};

/// Entries of one inode that are looked at for one that is the same as another: a hostile directory has any number.
const SAME_MAX: usize = 8;

impl State {
    /// Every entry of a directory that can be read.
    pub(super) fn list(&mut self, survey: &Survey, directory: Ino) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        self.read_directory(survey, directory, |block, content, shape| {
            all.extend(read_entries(content, shape).into_iter().map(|(slot, name, _)| Found {
                block,
                slot,
                name: name.to_vec(),
                raw: entries::entry(content, shape, slot),
            }));
        })?;
        Ok(all)
    }

    /// Finds a name.
    pub(super) fn find(&mut self, survey: &Survey, directory: Ino, name: &[u8]) -> Result<Option<Found>> {
        self.find_behind(survey, directory, name, (None, 0))
    }

    /// Whether two entries have a name.
    pub(super) fn is_twice(&mut self, survey: &Survey, directory: Ino, name: &[u8]) -> Result<bool> {
        let Some(first) = self.find(survey, directory, name)? else { return Ok(false) };
        Ok(self.find_behind(survey, directory, name, (first.block, first.slot + 1))?.is_some())
    }

    /// Whether an inode has an entry of this name at another spot, too, among the first few it has.
    pub(super) fn is_there_again(&mut self, survey: &Survey, directory: Ino, found: &Found) -> Result<bool> {
        let ino = found.raw.ino();
        let entries = self.names_in(survey, directory)?.by_inode.range((ino, (None, 0))..);
        let own = (found.block, found.slot);
        let others = entries.take_while(|entry| entry.0 == ino).map(|entry| entry.1).filter(|spot| *spot != own);
        let others: Vec<Spot> = others.take(SAME_MAX).collect();
        for spot in others {
            let other = self.entry_at(survey, directory, spot)?;
            if other.is_some_and(|other| other.raw.ino() == ino && other.name == found.name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The entries of an inode in a directory but for `.` and `..`.
    pub(super) fn names_of(&mut self, survey: &Survey, directory: Ino, ino: Ino) -> Result<Vec<Found>> {
        let entries = self.names_in(survey, directory)?.by_inode.range((ino, (None, 0))..);
        let spots: Vec<Spot> = entries.take_while(|entry| entry.0 == ino).map(|entry| entry.1).collect();
        let mut all = Vec::new();
        for spot in spots {
            all.extend(self.entry_at(survey, directory, spot)?.filter(|found| found.raw.ino() == ino));
        }
        Ok(all)
    }

    /// A name, or one like it, that the directory does not have.
    pub(super) fn free_name(&mut self, survey: &Survey, directory: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if self.find(survey, directory, name)?.is_none() {
            return Ok(name.to_vec());
        }
        let mut digits = 1;
        loop {
            if let Some(free) = self.free_number(survey, directory, name, digits)? {
                return Ok(free);
            }
            digits += 1;
        }
    }

    /// A name with the first number of so many digits behind it that is free; `None` if all are in use.
    fn free_number(&mut self, survey: &Survey, directory: Ino, name: &[u8], digits: u32) -> Result<Option<Vec<u8>>> {
        let first = 10u64.pow(digits - 1);
        let room = NAME_MAX - 1 - digits as usize;
        let stem = [&name[..name.len().min(room)], b"~"].concat();
        loop {
            let numbers = &mut self.names_in(survey, directory)?.numbers;
            let numbers = numbers.entry(numbers_key(&stem, digits as usize));
            let numbers = numbers.or_insert_with(|| Numbers { next: first, free: BTreeSet::new() });
            let number = numbers.free.first().copied().unwrap_or(numbers.next);
            if number == 10 * first {
                return Ok(None);
            }
            // Whoever asks next finds it taken, if it is.
            let new = [&stem, number.to_string().as_bytes()].concat();
            if self.find(survey, directory, &new)?.is_none() {
                return Ok(Some(new));
            }
            let numbers = &mut self.names_in(survey, directory)?.numbers;
            if let Some(numbers) = numbers.get_mut(&numbers_key(&stem, digits as usize))
                && !numbers.free.remove(&number)
            {
                numbers.next += 1;
            }
        }
    }

    /// Brings what is known of a directory up to date: a block of it, or its inline entries, has changed.
    pub(super) fn note_names(
        &mut self,
        directory: Ino,
        block: Option<u64>,
        before: &[u8],
        after: &[u8],
        shape: &DentryShape,
    ) {
        let Some(names) = self.names.get_mut(&directory) else { return };
        let (before, after) = (read_entries(before, shape), read_entries(after, shape));
        // Both are in order of their slots.
        for entry in before.iter().filter(|entry| after.binary_search(entry).is_err()) {
            names.remove(block, *entry);
        }
        for entry in after.iter().filter(|entry| before.binary_search(entry).is_err()) {
            names.add(block, *entry);
        }
    }

    /// What is known of a directory's names; it is read when that is first asked.
    fn names_in(&mut self, survey: &Survey, directory: Ino) -> Result<&mut Names> {
        if !self.names.contains_key(&directory) {
            let mut names = Names::default();
            self.read_directory(survey, directory, |block, content, shape| {
                read_entries(content, shape).into_iter().for_each(|entry| names.add(block, entry));
            })?;
            self.names.insert(directory, names);
        }
        Ok(self.names.entry(directory).or_default())
    }

    /// The first entry of a name at or behind a spot.
    fn find_behind(&mut self, survey: &Survey, directory: Ino, name: &[u8], from: Spot) -> Result<Option<Found>> {
        let (key, mut from) = (key(name), from);
        loop {
            let next = self.names_in(survey, directory)?.by_name.range((key, from)..).next();
            let Some(&(_, spot)) = next.filter(|entry| entry.0 == key) else { return Ok(None) };
            // Two names may have the same hash.
            if let Some(found) = self.entry_at(survey, directory, spot)?.filter(|found| found.name == name) {
                return Ok(Some(found));
            }
            from = (spot.0, spot.1 + 1);
        }
    }

    /// The entry at a spot, if one is there.
    fn entry_at(&mut self, survey: &Survey, directory: Ino, (block, slot): Spot) -> Result<Option<Found>> {
        let Some((content, shape)) = self.entries_of(survey, directory, block)? else { return Ok(None) };
        if slot >= shape.entries || !bit_lsb(&content, slot) {
            return Ok(None);
        }
        let raw = entries::entry(&content, &shape, slot);
        let name = entries::name(&content, &shape, slot, &raw);
        Ok(name.map(|name| Found { block, slot, name: name.to_vec(), raw }))
    }

    /// Shows a directory: each block that exists, or the inline entries.
    fn read_directory(
        &mut self,
        survey: &Survey,
        directory: Ino,
        mut visit: impl FnMut(Option<u64>, &[u8], &DentryShape),
    ) -> Result<()> {
        let Some(inode) = self.inode(directory)? else { return Ok(()) };
        if inode.is_inline(InlineFlags::DENTRY) {
            if let Some((content, shape)) = self.entries_of(survey, directory, None)? {
                visit(None, &content, &shape);
            }
            return Ok(());
        }
        for (block, address) in self.blocks_of(survey, directory, &inode)? {
            visit(Some(block), &self.block(address)?, &DentryShape::BLOCK);
        }
        Ok(())
    }

    /// The existing blocks of a directory, in order, with their addresses. The size in the inode may be wrong, and is not used.
    fn blocks_of(&mut self, survey: &Survey, directory: Ino, inode: &RawInode) -> Result<Vec<(u64, Address)>> {
        let own = inode.addresses(self.geometry.flexible_inline_xattr());
        let mut all = self.mapped(0, own);
        for (offset, nid) in self.nodes_below(survey, directory) {
            let Level::Direct { file_block } = level(offset, own.len() as u32, ADDRS_PER_NODE) else { continue };
            let Some(block) = self.node(nid)? else { continue };
            if let Ok(node) = RawNode::ref_from_bytes(&block) {
                all.append(&mut self.mapped(file_block, &node.slots));
            }
        }
        Ok(all)
    }

    /// The addresses that lead to the main area, with their blocks from `first` on.
    fn mapped(&self, first: u64, addresses: &[U32]) -> Vec<(u64, Address)> {
        let all = (first..).zip(addresses.iter().map(|address| Address::from(*address)));
        all.filter(|&(_, address)| self.geometry.in_main(address)).collect()
    }
}

/// The entries of a block or of an inline directory that can be read: slot, name and inode.
fn read_entries<'a>(content: &'a [u8], shape: &DentryShape) -> Vec<(usize, &'a [u8], Ino)> {
    let (mut all, mut slot) = (Vec::new(), 0);
    while let Some(used) = entries::next_used(content, shape, slot) {
        let raw = entries::entry(content, shape, used);
        let name = entries::name(content, shape, used, &raw);
        slot = entries::end(content, shape, used);
        all.extend(name.map(|name| (used, name, raw.ino())));
    }
    all
}
