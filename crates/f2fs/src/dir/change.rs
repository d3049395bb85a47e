//! Adding, removing and redirecting entries.

use basalt_vfs::FileKind;

use super::list::Lost;
use super::lookup::{Found, Place, bucket_blocks, bucket_start};
use super::{entries, hash};
use crate::error::{Error, Result};
use crate::layout::dentry::{DentryShape, MAX_DEPTH, slots_for};
use crate::layout::inode::InlineFlags;
use crate::layout::{BLOCK_SIZE, FileBlock, Ino, RawBlock};
use crate::volume::Volume;

/// Directory entries are split among this many blocks at the most by one insertion: bounds the search for room.
const LEVELS: u32 = MAX_DEPTH;

impl Volume {
    /// Makes the two entries of a new, empty directory inline.
    pub(crate) fn make_empty_directory(&mut self, dir: Ino, parent: Ino) -> Result<()> {
        let (bytes, shape) = self.directory_bytes_mut(dir, Place::Inline)?;
        let kind = entries::file_type(FileKind::Directory);
        entries::insert(bytes, &shape, 0, 0, b".", dir, kind);
        entries::insert(bytes, &shape, 1, 0, b"..", parent, kind);
        let size = shape.size as u64;
        self.inode_mut(dir)?.i_size.set(size);
        Ok(())
    }

    /// Adds a name that the directory does not have.
    pub(crate) fn add_entry(&mut self, dir: Ino, name: &[u8], ino: Ino, kind: FileKind) -> Result<()> {
        let (hash, count, file_type) = (hash::hash(name), slots_for(name.len()), entries::file_type(kind));
        let place = self.find_place(dir, hash, count)?;
        let (bytes, shape) = self.directory_bytes_mut(dir, place)?;
        // find_place has just seen the room.
        let slot = entries::find_room(bytes, &shape, count).ok_or(basalt_vfs::Error::NoSpace)?;
        entries::insert(bytes, &shape, slot, hash, name, ino, file_type);
        if let Place::Block(index) = place {
            let end = index.byte() + BLOCK_SIZE as u64;
            let raw = self.inode_mut(dir)?;
            if raw.i_size.get() < end {
                raw.i_size.set(end);
            }
        }
        self.touch(dir)
    }

    /// A place with room for an entry: converts an inline directory that is full, deepens the hash as needed.
    fn find_place(&mut self, dir: Ino, hash: u32, count: usize) -> Result<Place> {
        if self.has_inline_directory(dir)? {
            if self.has_room(dir, Place::Inline, count)? {
                return Ok(Place::Inline);
            }
            self.convert_inline_directory(dir)?;
        }
        let (depth, dir_level) = self.directory_shape(dir)?;
        for level in 0..LEVELS {
            let start = bucket_start(level, dir_level, hash);
            for block in start..start + bucket_blocks(level) {
                let place =
                    Place::Block(u32::try_from(block).map(FileBlock::new).map_err(|_| basalt_vfs::Error::NoSpace)?);
                if !self.has_room(dir, place, count)? {
                    continue;
                }
                // Room for the block itself before anything changes.
                self.reserve_directory_block(dir, place)?;
                if level >= depth {
                    self.inode_mut(dir)?.i_current_depth.set(level + 1);
                }
                return Ok(place);
            }
        }
        Err(basalt_vfs::Error::NoSpace.into())
    }

    fn reserve_directory_block(&mut self, dir: Ino, place: Place) -> Result<()> {
        self.directory_bytes_mut(dir, place).map(|_| ())
    }

    fn has_room(&mut self, dir: Ino, place: Place, count: usize) -> Result<bool> {
        // A hole is a block to be made: all room.
        Ok(self
            .directory_bytes(dir, place)?
            .is_none_or(|(bytes, shape)| entries::find_room(bytes, &shape, count).is_some()))
    }

    /// Moves an inline directory to block 0 (or, with a level shift, through the hash).
    fn convert_inline_directory(&mut self, dir: Ino) -> Result<()> {
        // The block, and for a level shift of up to 31 the nodes above some blocks.
        self.counts.expect_room(2)?;
        let Some((bytes, shape)) = self.directory_bytes(dir, Place::Inline)? else { return Ok(()) };
        let old = bytes.to_vec();
        let (_, dir_level) = self.directory_shape(dir)?;
        let flexible = self.geometry.flexible_inline_xattr();
        let node = self.node_mut(dir.nid())?;
        let range = node.inode().inline_data_range(flexible);
        let start = range.start - 4;
        let inline = node.bytes()[start..range.end].to_vec();
        let before = (node.inode().i_current_depth, node.inode().i_size);
        node.bytes_mut()[start..range.end].fill(0);
        node.inode_mut().i_inline &= !InlineFlags::DENTRY.bits();
        if dir_level == 0 {
            let block = block_from_inline(&old, &shape);
            self.pages.set_directory(dir, true);
            self.reserve_block(dir, FileBlock::FIRST)?;
            self.put_page(dir, FileBlock::FIRST, &block.0);
            let raw = self.inode_mut(dir)?;
            raw.i_current_depth.set(1);
            raw.i_size.set(BLOCK_SIZE as u64);
            return Ok(());
        }
        let raw = self.inode_mut(dir)?;
        raw.i_current_depth.set(0);
        raw.i_size.set(0);
        let result = self.rehash_inline(dir, &old, &shape);
        if matches!(result, Err(Error::Refused(_))) {
            // The volume filled up on the way: the directory goes back to what it was, with all its names.
            self.drop_pages(dir, FileBlock::FIRST, FileBlock::END);
            self.free_blocks_from(dir, FileBlock::FIRST)?;
            let node = self.node_mut(dir.nid())?;
            node.bytes_mut()[start..range.end].copy_from_slice(&inline);
            let raw = node.inode_mut();
            raw.i_inline |= InlineFlags::DENTRY.bits();
            (raw.i_current_depth, raw.i_size) = before;
        }
        result
    }

    /// Adds every entry of what was an inline directory through the hash.
    fn rehash_inline(&mut self, dir: Ino, old: &[u8], shape: &DentryShape) -> Result<()> {
        let mut slot = 0;
        while let Some(used) = entries::next_used(old, shape, slot) {
            let entry = entries::entry(old, shape, used);
            slot = used + 1;
            if let (Some(name), Some(kind)) =
                (entries::name(old, shape, used, &entry), entries::kind_of(entry.file_type))
            {
                slot = used + slots_for(name.len());
                self.add_entry(dir, name, entry.ino(), kind)?;
            }
        }
        Ok(())
    }

    /// Removes an entry; a block that loses its last goes back to being a hole.
    pub(crate) fn remove_entry(&mut self, dir: Ino, found: &Found) -> Result<()> {
        let (bytes, shape) = self.directory_bytes_mut(dir, found.place)?;
        entries::remove(bytes, &shape, found.slot);
        let vacant = entries::is_vacant(bytes, &shape);
        if let Place::Block(index) = found.place
            && vacant
        {
            self.free_range(dir, index, index + 1)?;
        }
        self.touch(dir)
    }

    /// Points an entry to another inode.
    pub(crate) fn redirect_entry(&mut self, dir: Ino, found: &Found, ino: Ino, kind: FileKind) -> Result<()> {
        let (bytes, shape) = self.directory_bytes_mut(dir, found.place)?;
        entries::redirect(bytes, &shape, found.slot, ino, entries::file_type(kind));
        self.touch(dir)
    }

    /// Whether a directory has no entries but its own two.
    pub(crate) fn is_empty_directory(&mut self, dir: Ino) -> Result<bool> {
        if self.has_inline_directory(dir)? {
            let inline = self.directory_bytes(dir, Place::Inline)?;
            return Ok(inline.is_none_or(|(bytes, shape)| entries::is_empty(bytes, &shape)));
        }
        let blocks = FileBlock::behind(self.inode(dir)?.i_size.get());
        let (mut index, mut lost) = (FileBlock::FIRST, Lost::NOTHING);
        while let Some(block) = self.next_directory_block(dir, index, blocks, &mut lost)? {
            if let Some((bytes, shape)) = self.directory_bytes(dir, Place::Block(block))?
                && !entries::is_empty(bytes, &shape)
            {
                return Ok(false);
            }
            index = block + 1;
        }
        Ok(true)
    }
}

/// The same entries in the shape of a block.
fn block_from_inline(old: &[u8], shape: &DentryShape) -> Box<RawBlock> {
    let mut block = RawBlock::zeroed();
    let to = DentryShape::BLOCK;
    let dentry = size_of::<crate::layout::dentry::RawDentry>();
    block.0[..shape.bitmap_len()].copy_from_slice(&old[..shape.bitmap_len()]);
    let (from, length) = (shape.dentries_at, shape.entries * dentry);
    block.0[to.dentries_at..to.dentries_at + length].copy_from_slice(&old[from..from + length]);
    let (from, length) = (shape.names_at, shape.entries * crate::layout::dentry::SLOT_LEN);
    block.0[to.names_at..to.names_at + length].copy_from_slice(&old[from..from + length]);
    block
}
