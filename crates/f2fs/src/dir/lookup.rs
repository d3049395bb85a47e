//! Finding a name: inline, or level by level through the hash.

use basalt_vfs::FileKind;

use super::{entries, hash};
use crate::error::{Error, Result};
use crate::layout::dentry::{DentryShape, MAX_DEPTH};
use crate::layout::inode::InlineFlags;
use crate::layout::{FileBlock, Ino, NAME_MAX, blocks_for};
use crate::volume::Volume;

/// Where the bytes of some entries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the inode.
    Inline,
    /// In this block of the directory.
    Block(FileBlock),
}

/// A name that was found.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Which block.
    pub place: Place,
    /// Which slot in it.
    pub slot: usize,
    /// The inode it names.
    pub ino: Ino,
    /// What the entry says the inode is.
    pub kind: FileKind,
}

/// Blocks of one bucket at a level.
pub fn bucket_blocks(level: u32) -> u64 {
    if level < MAX_DEPTH / 2 { 2 } else { 4 }
}

/// Buckets at a level; the directory's own level shift is `dir_level`.
pub fn buckets(level: u32, dir_level: u32) -> u64 {
    let bits = level + dir_level;
    if bits < MAX_DEPTH / 2 { 1 << bits } else { 1 << (MAX_DEPTH / 2 - 1) }
}

/// First block of the bucket that a hash falls into at a level.
pub fn bucket_start(level: u32, dir_level: u32, hash: u32) -> u64 {
    let before: u64 = (0..level).map(|level| buckets(level, dir_level) * bucket_blocks(level)).sum();
    before + u64::from(hash) % buckets(level, dir_level) * bucket_blocks(level)
}

/// Fails for names that cannot be.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(basalt_vfs::Error::NameTooLong.into());
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(basalt_vfs::Error::Invalid("name").into());
    }
    Ok(())
}

impl Volume {
    /// Whether the directory lies in its inode.
    pub(crate) fn has_inline_directory(&mut self, dir: Ino) -> Result<bool> {
        Ok(self.inode(dir)?.is_inline(InlineFlags::DENTRY))
    }

    /// The bytes at a place in a directory; `None` for a block that is a hole.
    pub(crate) fn directory_bytes(&mut self, dir: Ino, place: Place) -> Result<Option<(&[u8], DentryShape)>> {
        match place {
            Place::Inline => {
                let flexible = self.geometry.flexible_inline_xattr();
                let node = self.node(dir.nid())?;
                let range = node.inode().inline_data_range(flexible);
                let shape = DentryShape::inline(range.len());
                Ok(Some((&node.bytes()[range], shape)))
            }
            Place::Block(index) => {
                let page = self.page(dir, index)?;
                Ok(page.map(|page| (&page.block.0[..], DentryShape::BLOCK)))
            }
        }
    }

    /// As [`directory_bytes`](Self::directory_bytes), to change; a hole gets a block.
    pub(crate) fn directory_bytes_mut(&mut self, dir: Ino, place: Place) -> Result<(&mut [u8], DentryShape)> {
        match place {
            Place::Inline => {
                let flexible = self.geometry.flexible_inline_xattr();
                let node = self.node_mut(dir.nid())?;
                let range = node.inode().inline_data_range(flexible);
                let shape = DentryShape::inline(range.len());
                Ok((&mut node.bytes_mut()[range], shape))
            }
            Place::Block(index) => {
                self.pages.set_directory(dir, true);
                let page = self.page_mut(dir, index)?;
                Ok((&mut page.block.0[..], DentryShape::BLOCK))
            }
        }
    }

    /// Depth and level shift of a directory's hash, checked.
    pub(crate) fn directory_shape(&mut self, dir: Ino) -> Result<(u32, u32)> {
        let raw = self.inode(dir)?;
        let (depth, level) = (raw.i_current_depth.get(), u32::from(raw.i_dir_level));
        if depth > MAX_DEPTH || level > MAX_DEPTH / 2 {
            return Err(Error::damaged(
                "inode",
                format!("directory {dir}"),
                format!("depth {depth}, level {level}, at most {MAX_DEPTH}"),
            ));
        }
        Ok((depth, level))
    }

    /// Finds a name in a directory.
    pub(crate) fn find_entry(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Found>> {
        let hash = hash::hash(name);
        if self.has_inline_directory(dir)? {
            return self.find_in(dir, Place::Inline, hash, name);
        }
        let (depth, dir_level) = self.directory_shape(dir)?;
        let blocks = blocks_for(self.inode(dir)?.i_size.get());
        for level in 0..depth {
            let start = bucket_start(level, dir_level, hash);
            if start >= blocks {
                break;
            }
            for block in start..(start + bucket_blocks(level)).min(blocks) {
                match self.find_in(dir, Place::Block(FileBlock::new(block as u32)), hash, name) {
                    Ok(Some(found)) => return Ok(Some(found)),
                    Err(error) if self.options.rescue => {
                        tracing::warn!("directory {dir} block {block}: {error}; the search goes on");
                    }
                    found => found.map(|_| ())?,
                }
            }
        }
        Ok(None)
    }

    fn find_in(&mut self, dir: Ino, place: Place, hash: u32, name: &[u8]) -> Result<Option<Found>> {
        let Some((bytes, shape)) = self.directory_bytes(dir, place)? else { return Ok(None) };
        let Some(slot) = entries::find(bytes, &shape, hash, name) else { return Ok(None) };
        let entry = entries::entry(bytes, &shape, slot);
        let ino = entry.ino();
        let kind = entries::kind_of(entry.file_type);
        let in_range = ino != Ino::NONE && ino.nid() < self.geometry.node_ids();
        match kind {
            Some(kind) if in_range => Ok(Some(Found { place, slot, ino, kind })),
            _ => Err(Error::damaged(
                "dentry",
                format!("directory {dir} {place:?} slot {slot}"),
                format!("inode {ino}, file type {}", entry.file_type),
            )),
        }
    }

    /// Finds a name, or fails with `NotFound`; a directory without links has none.
    pub(crate) fn expect_entry(&mut self, dir: Ino, name: &[u8]) -> Result<Found> {
        check_name(name)?;
        self.expect_directory(dir)?;
        if self.inode(dir)?.i_links.get() == 0 {
            // Removed while open: its `..` may be gone already.
            return Err(basalt_vfs::Error::NotFound.into());
        }
        let found = self.find_entry(dir, name)?.ok_or(basalt_vfs::Error::NotFound)?;
        self.expect_inode_of(dir, &found)?;
        Ok(found)
    }

    /// Fails if an entry leads nowhere.
    pub(crate) fn expect_inode_of(&mut self, dir: Ino, found: &Found) -> Result<()> {
        if self.is_inode(found.ino)? {
            return Ok(());
        }
        Err(Error::damaged(
            "dentry",
            format!("directory {dir} {:?} slot {}", found.place, found.slot),
            format!("leads to inode {}, which does not exist", found.ino),
        ))
    }
}
