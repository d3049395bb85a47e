//! The entries of a directory: reading them, changing one, and adding one.

use basalt_segments::SegmentKind;
use rustc_hash::FxHashMap;

use super::node::direct_node;
use super::state::State;
use crate::check::Survey;
use crate::check::blocks::Owner;
use crate::dir::entries;
use crate::dir::hash::hash;
use crate::dir::lookup::{bucket_blocks, bucket_start};
use crate::error::Result;
use crate::layout::dentry::{DentryShape, MAX_DEPTH, RawDentry, slots_for};
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::node::ADDRS_PER_NODE;
use crate::layout::{Address, BLOCK_SIZE, Ino};

/// An entry, and where it is: block of the directory (`None` for an inline one) and slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) block: Option<u64>,
    pub(super) slot: usize,
    pub(super) name: Vec<u8>,
    pub(super) raw: RawDentry,
}

impl State {
    /// The address of a block of a directory with this inode; `None` if it is a hole.
    fn directory_block(
        &mut self,
        survey: &Survey,
        directory: Ino,
        inode: &RawInode,
        block: u64,
    ) -> Result<Option<Address>> {
        let own = inode.addresses(self.geometry.flexible_inline_xattr());
        let address = match direct_node(block, own.len() as u32, ADDRS_PER_NODE) {
            None => own.get(block as usize).map_or(Address::NULL, |address| Address::from(*address)),
            Some((offset, slot)) => match self.node_at(survey, directory, offset) {
                Some(nid) => self.address(survey, nid, slot)?,
                None => Address::NULL,
            },
        };
        Ok(self.geometry.in_main(address).then_some(address))
    }

    /// The bytes of a directory's block, or of its inline entries.
    pub(super) fn entries_of(
        &mut self,
        survey: &Survey,
        directory: Ino,
        block: Option<u64>,
    ) -> Result<Option<(Vec<u8>, DentryShape)>> {
        let Some(inode) = self.inode(directory)? else { return Ok(None) };
        let inline = inode.is_inline(InlineFlags::DENTRY);
        match block {
            Some(block) if !inline => {
                let Some(address) = self.directory_block(survey, directory, &inode, block)? else { return Ok(None) };
                Ok(Some((self.block(address)?, DentryShape::BLOCK)))
            }
            None if inline => {
                use zerocopy::IntoBytes;
                let range = inode.inline_data_range(self.geometry.flexible_inline_xattr());
                let shape = DentryShape::inline(range.len());
                Ok(inode.as_bytes().get(range).map(|bytes| (bytes.to_vec(), shape)))
            }
            _ => Ok(None),
        }
    }

    /// Changes the bytes that [`entries_of`](Self::entries_of) reads.
    pub(super) fn edit_entries(
        &mut self,
        survey: &Survey,
        directory: Ino,
        block: Option<u64>,
        change: impl FnOnce(&mut [u8], &DentryShape),
    ) -> Result<bool> {
        let Some((mut content, shape)) = self.entries_of(survey, directory, block)? else { return Ok(false) };
        let before = content.clone();
        change(&mut content, &shape);
        match block {
            None => {
                use zerocopy::IntoBytes;
                let flexible = self.geometry.flexible_inline_xattr();
                self.edit_inode(directory, |inode: &mut RawInode| {
                    let range = inode.inline_data_range(flexible);
                    inode.as_mut_bytes()[range].copy_from_slice(&content);
                })?;
            }
            Some(block) => {
                let Some(inode) = self.inode(directory)? else { return Ok(false) };
                let Some(address) = self.directory_block(survey, directory, &inode, block)? else { return Ok(false) };
                self.put(address, &content)?;
            }
        }
        self.note_names(directory, block, &before, &content, &shape);
        Ok(true)
    }

    /// Puts another entry where one is; the name stays.
    pub(super) fn put_entry(&mut self, survey: &Survey, directory: Ino, found: &Found, raw: RawDentry) -> Result<bool> {
        self.edit_entries(survey, directory, found.block, |content, shape| {
            entries::put_entry(content, shape, found.slot, &raw);
        })
    }

    /// Points `.` of a directory to itself and `..` to `parent`.
    pub(super) fn set_dots(&mut self, survey: &Survey, ino: Ino, parent: Ino) -> Result<()> {
        for (name, target) in [(&b"."[..], ino), (b"..", parent)] {
            match self.find(survey, ino, name)? {
                Some(found) if found.raw.ino() == target => {}
                Some(found) => {
                    self.put_entry(survey, ino, &found, RawDentry { ino: target.into(), ..found.raw })?;
                }
                None => {
                    self.add_entry(survey, ino, name, target, entries::file_type(basalt_vfs::FileKind::Directory))?;
                }
            }
        }
        Ok(())
    }

    /// Adds an entry. False if the directory has no room for it, or takes only names that cannot be computed here.
    pub(super) fn add_entry(
        &mut self,
        survey: &Survey,
        directory: Ino,
        name: &[u8],
        ino: Ino,
        file_type: u8,
    ) -> Result<bool> {
        let Some(inode) = self.inode(directory)? else { return Ok(false) };
        let dot = name == b"." || name == b"..";
        if !inode.has_plain_names() && !dot {
            return Ok(false);
        }
        let (hash, count) = (hash(name), slots_for(name.len()));
        if inode.is_inline(InlineFlags::DENTRY) {
            let mut added = false;
            self.edit_entries(survey, directory, None, |content, shape| {
                if let Some(slot) = entries::find_room(content, shape, count) {
                    entries::insert(content, shape, slot, hash, name, ino, file_type);
                    added = true;
                }
            })?;
            return Ok(added);
        }
        for level in 0..MAX_DEPTH {
            let start = bucket_start(level, inode.i_dir_level.into(), hash);
            for block in start..start + bucket_blocks(level) {
                let Some(address) = self.block_for(survey, directory, &inode, block)? else { return Ok(false) };
                let mut content = self.block(address)?;
                let shape = DentryShape::BLOCK;
                let Some(slot) = entries::find_room(&content, &shape, count) else { continue };
                let before = content.clone();
                entries::insert(&mut content, &shape, slot, hash, name, ino, file_type);
                self.put(address, &content)?;
                self.note_names(directory, Some(block), &before, &content, &shape);
                return self.edit_inode(directory, |inode| {
                    let size = inode.i_size.get().max((block + 1) * BLOCK_SIZE as u64);
                    inode.i_size.set(size);
                    let depth = inode.i_current_depth.get().max(level + 1);
                    inode.i_current_depth.set(depth);
                });
            }
        }
        Ok(false)
    }

    /// The address of a block of a directory with this inode. A hole among the inode's own addresses is filled; `None` for any other.
    fn block_for(&mut self, survey: &Survey, directory: Ino, inode: &RawInode, block: u64) -> Result<Option<Address>> {
        if let Some(address) = self.directory_block(survey, directory, inode, block)? {
            return Ok(Some(address));
        }
        if block >= u64::from(inode.address_slots(self.geometry.flexible_inline_xattr())) {
            return Ok(None);
        }
        let slot = block as u32;
        let version = self.nat(directory.nid())?.version;
        let owner = Owner::Data { nid: directory.nid(), slot: slot as u16, version };
        let Some(address) = self.allocate(survey, SegmentKind::HotData, owner.summary())? else { return Ok(None) };
        self.put(address, &[0; BLOCK_SIZE])?;
        let flexible = self.geometry.flexible_inline_xattr();
        self.edit_inode(directory, |inode| {
            inode.addresses_mut(flexible)[slot as usize] = address.into();
            let blocks = inode.i_blocks.get() + 1;
            inode.i_blocks.set(blocks);
        })?;
        Ok(Some(address))
    }

    /// The inode without a name that remembers this one.
    pub(super) fn nameless(&mut self, survey: &Survey, directory: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.find_nameless(survey)?;
        Ok(self.nameless.as_mut().and_then(|map| map.remove(&(directory, name.to_vec()))))
    }

    /// Finds out which inodes have no name, and what they remember.
    pub(super) fn find_nameless(&mut self, survey: &Survey) -> Result<()> {
        if self.nameless.is_none() {
            let mut inodes: Vec<Ino> =
                survey.inodes.iter().filter(|(_, inode)| inode.names == 0).map(|(ino, _)| *ino).collect();
            inodes.sort_unstable();
            let mut map = FxHashMap::default();
            for ino in inodes.into_iter().filter(|&ino| ino != self.geometry.root_ino) {
                if let Some(inode) = self.inode(ino)?
                    && let Some(name) = inode.i_name.get(..inode.i_namelen.get() as usize)
                {
                    self.remembered.insert(inode.parent());
                    map.entry((inode.parent(), name.to_vec())).or_insert(ino);
                }
            }
            self.nameless = Some(map);
        }
        Ok(())
    }
}
