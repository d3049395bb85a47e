//! What was found, as a file system that can only be read.

use std::ops::Range;

use basalt_vfs::{
    Attributes, Background, Caller, DirectoryEntry, Error, FallocateMode, FileKind, FileSystem, InodeFlags,
    InodeNumber, NewNode, RenameFlags, Result, Seek, SetAttributes, StatFs, Time, XattrFlags,
};

use super::Rescued;
use super::tree::Child;
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, FileBlock, Ino, NAME_MAX};
use crate::node::path::{Found, Mapped};
use crate::volume::Volume;

/// How long nothing happens in the background.
const NEVER: std::time::Duration = std::time::Duration::from_secs(3600);

impl Rescued {
    fn look<T>(&self, ino: InodeNumber, work: impl FnOnce(&mut Volume, Ino) -> crate::error::Result<T>) -> Result<T> {
        let ino = u32::try_from(ino).map(Ino::new).map_err(|_| Error::Stale)?;
        Ok(work(&mut self.volume.lock(), ino)?)
    }

    fn is_made_up(&self, ino: InodeNumber) -> bool {
        self.tree.made_up.contains(&ino)
    }

    fn children(&self, ino: InodeNumber) -> Result<&[Child]> {
        self.tree.children.get(&ino).map(Vec::as_slice).ok_or(Error::NotDirectory)
    }

    /// Where the part of a file ends that begins at `offset` and whose block addresses are lost; `None` if the address of the block at
    /// `offset` is known.
    pub fn missing_until(&self, ino: InodeNumber, offset: u64) -> Option<u64> {
        let found = self.look(ino, |volume, ino| {
            if volume.has_inline_data(ino)? {
                return Ok(None);
            }
            let size = volume.inode(ino)?.i_size.get();
            Ok(match volume.map_damaged(ino, FileBlock::of_byte(offset))? {
                Found::Missing(next) => Some(next.byte().min(size)),
                Found::Mapped(_) => None,
            })
        });
        found.ok().flatten()
    }
}

impl Rescued {
    /// The parts of a file, in bytes, that cannot be had as far as that is known without reading it: their addresses are lost, past the
    /// end of the device, or in a range that could not be read while searching.
    pub fn lost_ranges(&self, ino: InodeNumber) -> Result<Vec<Range<u64>>> {
        let end = Address::new((self.device.size() >> BLOCK_BITS).min(u32::MAX.into()) as u32);
        let is_bad = |address: Address| {
            let at = self.bad.partition_point(|range| range.end <= address);
            address >= end || self.bad.get(at).is_some_and(|range| range.contains(&address))
        };
        self.look(ino, |volume, ino| {
            let mut lost = Vec::new();
            let size = volume.inode(ino)?.i_size.get();
            if volume.has_inline_data(ino)? {
                return Ok(lost);
            }
            let (mut index, blocks) = (FileBlock::FIRST, FileBlock::behind(size));
            while index < blocks {
                index = match volume.map_damaged(ino, index)? {
                    Found::Mapped(Mapped::Hole(next)) => next,
                    Found::Missing(next) => {
                        add_range(&mut lost, index..next, size);
                        next
                    }
                    Found::Mapped(Mapped::Slot(slot)) => {
                        for step in 0..slot.count.min(blocks - index) {
                            let address = volume.node(slot.nid)?.address(slot.byte + 4 * step as usize);
                            let is_data = address.is_block();
                            if is_data && (!volume.geometry.in_main(address) || is_bad(address)) {
                                add_range(&mut lost, index + step..index + step + 1, size);
                            }
                        }
                        index + slot.count
                    }
                };
            }
            Ok(lost)
        })
    }
}

/// Adds blocks of a file as bytes, joined with the range before where they touch.
fn add_range(ranges: &mut Vec<Range<u64>>, blocks: Range<FileBlock>, size: u64) {
    let bytes = |block: FileBlock| block.byte().min(size);
    let (start, end) = (bytes(blocks.start), bytes(blocks.end));
    match ranges.last_mut() {
        Some(last) if last.end == start => last.end = end,
        _ if start < end => ranges.push(start..end),
        _ => {}
    }
}

/// A directory that is made up.
fn made_up(ino: InodeNumber, children: usize) -> Attributes {
    let time = Time::default();
    Attributes {
        ino,
        generation: 0,
        kind: FileKind::Directory,
        permissions: 0o755,
        links: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: children as u64,
        sectors: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: None,
        flags: InodeFlags::empty(),
        project_id: 0,
    }
}

impl FileSystem for Rescued {
    fn root(&self) -> InodeNumber {
        u64::from(self.volume.lock().geometry.root_ino)
    }

    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        match name {
            b"." => return self.attributes(parent),
            b".." => return self.attributes(self.tree.parents.get(&parent).copied().unwrap_or(parent)),
            _ => {}
        }
        let children = self.children(parent)?;
        let at = children.binary_search_by(|child| (*child.name).cmp(name)).map_err(|_| Error::NotFound)?;
        self.attributes(children[at].ino)
    }

    fn forget(&self, _ino: InodeNumber, _count: u64) {}

    fn attributes(&self, ino: InodeNumber) -> Result<Attributes> {
        if self.is_made_up(ino) {
            return Ok(made_up(ino, self.children(ino)?.len()));
        }
        self.look(ino, Volume::attributes)
    }

    fn set_attributes(&self, _: InodeNumber, _: &SetAttributes) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }

    fn read_link(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        self.look(ino, |volume, ino| {
            if volume.kind(ino)? != FileKind::Symlink {
                return Err(Error::Invalid("not a symbolic link").into());
            }
            volume.read_whole(ino, BLOCK_SIZE)
        })
    }

    fn create(&self, _: InodeNumber, _: &[u8], _: &NewNode<'_>, _: &Caller) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }

    fn create_unnamed(&self, _: InodeNumber, _: u32, _: &Caller) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }

    fn link(&self, _: InodeNumber, _: InodeNumber, _: &[u8]) -> Result<Attributes> {
        Err(Error::ReadOnly)
    }

    fn unlink(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_directory(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn rename(&self, _: InodeNumber, _: &[u8], _: InodeNumber, _: &[u8], _: RenameFlags, _: &Caller) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn read(&self, ino: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (length, extents) = self.look(ino, |volume, ino| {
            volume.expect_file(ino, false)?;
            volume.plan_read(ino, offset, buf)
        })?;
        for extent in extents {
            let target = &mut buf[extent.buffer_offset..extent.buffer_offset + extent.length];
            self.device.read_at(extent.device_offset, target).map_err(crate::error::Error::from)?;
        }
        Ok(length)
    }

    fn write(&self, _: InodeNumber, _: u64, _: &[u8], _: bool) -> Result<usize> {
        Err(Error::ReadOnly)
    }

    fn fallocate(&self, _: InodeNumber, _: FallocateMode, _: u64, _: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn seek(&self, ino: InodeNumber, offset: u64, whence: Seek) -> Result<u64> {
        self.look(ino, |volume, ino| volume.seek(ino, offset, whence))
    }

    fn read_directory(
        &self,
        ino: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let children = self.children(ino)?;
        let parent = self.tree.parents.get(&ino).copied().unwrap_or(ino);
        let dots = [(b".".as_slice(), ino), (b"..", parent)];
        let dots = dots.into_iter().map(|(name, ino)| (name, ino, FileKind::Directory));
        let all = dots.chain(children.iter().map(|child| (&*child.name, child.ino, child.kind)));
        for (next, (name, ino, kind)) in (1..).zip(all).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            if !emit(DirectoryEntry { ino, kind, name, next }) {
                break;
            }
        }
        Ok(())
    }

    fn sync_file(&self, _: InodeNumber, _: bool) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn stat_fs(&self) -> Result<StatFs> {
        let blocks = self.volume.lock().geometry.block_count;
        let files = self.report.inodes;
        Ok(StatFs { block_size: BLOCK_SIZE as u32, blocks, files, name_max: NAME_MAX as u32, ..StatFs::default() })
    }

    fn get_xattr(&self, ino: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        if self.is_made_up(ino) {
            return Err(Error::NoAttribute);
        }
        self.look(ino, |volume, ino| volume.get_xattr(ino, name))
    }

    fn set_xattr(&self, _: InodeNumber, _: &[u8], _: &[u8], _: XattrFlags) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn list_xattrs(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        if self.is_made_up(ino) {
            return Ok(Vec::new());
        }
        self.look(ino, Volume::list_xattrs)
    }

    fn remove_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn set_flags(&self, _: InodeNumber, _: InodeFlags) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn set_project_id(&self, _: InodeNumber, _: u32) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn trim(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        Err(Error::ReadOnly)
    }

    fn tick(&self, _: Time) -> Background {
        Background { next: NEVER }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
