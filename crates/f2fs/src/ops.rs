//! The only door in: the file-system interface on a volume. The locks are in [`lock`](crate::lock).

use basalt_device::BlockDevice;
use basalt_vfs::{
    Attributes, Background, Bytes, Caller, Defragmented, DirectoryEntry, Emptied, Extents, FallocateMode, FileKind,
    FileSystem, InodeFlags, InodeNumber, NewNode, OpenFlags, RenameFlags, Seek, SetAttributes, StatFs, Time,
    XattrFlags,
};

use crate::error::{Error, Result};
use crate::file::data::Data;
use crate::file::write::Times;
use crate::layout::{BLOCK_SIZE, Ino};
use crate::lock::F2fs;
use crate::mutant::{self, Mutant};
use crate::statistics::CheckpointCause;
use crate::submission::Submission;
use crate::volume::Volume;

/// Bytes that one write puts into the volume before it has to make room again.
const PIECE: usize = 1 << 20;
/// Node ids that exist from the start: null, node inode, meta inode.
const RESERVED_NODES: u64 = 3;

impl F2fs {
    /// Runs an operation that only looks (it may still load caches and renew access times).
    fn look<T>(&self, work: impl FnOnce(&mut Volume) -> Result<T>) -> basalt_vfs::Result<T> {
        let mut volume = self.volume.lock();
        volume.last_used = volume.clock.rough_uptime();
        Ok(work(&mut volume)?)
    }

    /// Before an operation that may renew an access time: that is a change, and needs room like one. Looking goes on where making room
    /// failed, which has been noted, and on a volume that is closed.
    fn make_room_to_look(&self, ino: Ino) {
        let is_due = {
            let mut volume = self.volume.lock();
            let now = volume.clock.now();
            volume.is_access_due(ino, now)
        };
        // What is wrong with the inode, looking meets again.
        if is_due.unwrap_or_default()
            && let Ok(_open) = self.keep_open()
        {
            let _ = self.make_room();
        }
    }

    /// Runs an operation that changes the volume: first makes room, then checks and runs it.
    fn change<T>(&self, work: impl FnOnce(&mut Volume) -> Result<T>) -> basalt_vfs::Result<T> {
        self.change_much(1, work)
    }

    /// As [`change`](Self::change), for an operation that writes about `weight` blocks.
    fn change_much<T>(&self, weight: u32, work: impl FnOnce(&mut Volume) -> Result<T>) -> basalt_vfs::Result<T> {
        let _open = self.keep_open()?;
        Ok(self.change_with_room(weight, |volume| {
            volume.last_used = volume.clock.rough_uptime();
            volume.expect_writable()?;
            volume.attempt(work)
        })?)
    }

    /// Writes in pieces that end at multiples of [`PIECE`], and makes room before each. Returns how many bytes were written, and what
    /// kept the rest from being.
    fn write_pieces(
        &self,
        offset: u64,
        data: Data<'_>,
        write: impl Fn(&mut Volume, u64, Data<'_>) -> Result<usize>,
    ) -> (usize, basalt_vfs::Result<()>) {
        let end = offset.checked_add(data.len() as u64);
        let is_too_large = end.is_none_or(|end| end > crate::file::write::SIZE_MAX);
        let mut done = 0;
        loop {
            let at = offset.saturating_add(done as u64);
            let left = data.len() - done;
            // What is refused is refused whole.
            let length = if is_too_large { left } else { left.min(PIECE - (at % PIECE as u64) as usize) };
            let piece = data.part(done..done + length);
            match self.change_much(length.div_ceil(BLOCK_SIZE) as u32, |volume| write(volume, at, piece)) {
                Ok(written) if written < length => return (done + written, Err(basalt_vfs::Error::NoSpace)),
                Ok(written) => done += written,
                Err(error) => return (done, Err(error)),
            }
            if done == data.len() {
                return (done, Ok(()));
            }
        }
    }

    fn write_data(
        &self,
        ino: InodeNumber,
        offset: u64,
        data: Data<'_>,
        clear_suid_sgid: bool,
    ) -> basalt_vfs::Result<usize> {
        let ino = Self::inode_number(ino)?;
        let (written, result) = self.write_pieces(offset, data, |volume, offset, piece| {
            volume.expect_file(ino, true)?;
            volume.expect_mutable(ino)?;
            let written = volume.write_file(ino, offset, piece, Times::Renew)?;
            if clear_suid_sgid {
                volume.clear_set_ids(ino)?;
            }
            Ok(written)
        });
        // What stopped it behind the beginning is for the next call to meet.
        if written > 0 { Ok(written) } else { result.map(|()| 0) }
    }

    fn write_data_back(&self, ino: InodeNumber, offset: u64, data: Data<'_>) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        // Also what has become immutable since: it was written before.
        let write = |volume: &mut Volume, offset, piece: Data<'_>| {
            volume.expect_file(ino, true)?;
            volume.write_file(ino, offset, piece, Times::Keep)
        };
        self.write_pieces(offset, data, write).1
    }

    fn inode_number(ino: InodeNumber) -> basalt_vfs::Result<Ino> {
        u32::try_from(ino).map(Ino::new).map_err(|_| basalt_vfs::Error::Stale)
    }
}

impl FileSystem for F2fs {
    fn root(&self) -> InodeNumber {
        u64::from(self.root)
    }

    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> basalt_vfs::Result<Attributes> {
        let parent = Self::inode_number(parent)?;
        self.look(|volume| {
            let ino = volume.lookup(parent, name)?;
            hold(volume, ino)
        })
    }

    fn forget(&self, ino: InodeNumber, count: u64) {
        let Ok(ino) = Self::inode_number(ino) else { return };
        // Closing frees what is unlinked.
        let Ok(_open) = self.keep_open() else { return };
        if let Err(error) = self.locked(|volume| volume.attempt(|volume| volume.forget(ino, count))) {
            // An orphan that is still one goes at the next mount.
            tracing::warn!(ino = ino.get(), %error, "an unlinked inode could not be freed");
        }
    }

    fn attributes(&self, ino: InodeNumber) -> basalt_vfs::Result<Attributes> {
        let ino = Self::inode_number(ino)?;
        self.look(|volume| volume.attributes(ino))
    }

    fn set_attributes(&self, ino: InodeNumber, changes: &SetAttributes) -> basalt_vfs::Result<Attributes> {
        let ino = Self::inode_number(ino)?;
        self.change(|volume| {
            volume.set_attributes(ino, changes)?;
            volume.attributes(ino)
        })
    }

    fn read_link(&self, ino: InodeNumber) -> basalt_vfs::Result<Vec<u8>> {
        let ino = Self::inode_number(ino)?;
        self.make_room_to_look(ino);
        self.look(|volume| {
            if volume.kind(ino)? != FileKind::Symlink {
                return Err(basalt_vfs::Error::Invalid("not a symbolic link").into());
            }
            volume.touch_access(ino)?;
            volume.read_whole(ino, BLOCK_SIZE)
        })
    }

    fn create(
        &self,
        parent: InodeNumber,
        name: &[u8],
        node: &NewNode<'_>,
        caller: &Caller,
    ) -> basalt_vfs::Result<Attributes> {
        let parent = Self::inode_number(parent)?;
        self.change(|volume| {
            let ino = volume.create(parent, name, node, caller)?;
            hold(volume, ino)
        })
    }

    fn create_unnamed(&self, parent: InodeNumber, permissions: u32, caller: &Caller) -> basalt_vfs::Result<Attributes> {
        let parent = Self::inode_number(parent)?;
        self.change(|volume| {
            let ino = volume.create_unnamed(parent, permissions, caller)?;
            hold(volume, ino)
        })
    }

    fn link(&self, ino: InodeNumber, parent: InodeNumber, name: &[u8]) -> basalt_vfs::Result<Attributes> {
        let (ino, parent) = (Self::inode_number(ino)?, Self::inode_number(parent)?);
        self.change(|volume| {
            volume.link(ino, parent, name)?;
            hold(volume, ino)
        })
    }

    fn unlink(&self, parent: InodeNumber, name: &[u8]) -> basalt_vfs::Result<()> {
        let parent = Self::inode_number(parent)?;
        self.change(|volume| volume.unlink(parent, name))
    }

    fn remove_directory(&self, parent: InodeNumber, name: &[u8]) -> basalt_vfs::Result<()> {
        let parent = Self::inode_number(parent)?;
        self.change(|volume| volume.remove_directory(parent, name))
    }

    fn rename(
        &self,
        parent: InodeNumber,
        name: &[u8],
        new_parent: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
        caller: &Caller,
    ) -> basalt_vfs::Result<()> {
        let (parent, new_parent) = (Self::inode_number(parent)?, Self::inode_number(new_parent)?);
        self.change(|volume| volume.rename(parent, name, new_parent, new_name, flags, caller))
    }

    fn open(&self, ino: InodeNumber, how: OpenFlags) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        self.look(|volume| volume.check_open(ino, how))
    }

    fn leave_times_to_caller(&self) {
        self.volume.lock().times_are_set = true;
    }

    fn read(&self, ino: InodeNumber, offset: u64, buf: &mut [u8]) -> basalt_vfs::Result<usize> {
        let ino = Self::inode_number(ino)?;
        self.make_room_to_look(ino);
        // Blocks in the plan may be freed meanwhile, but not reused.
        let _reuse = (!mutant::active(Mutant::ReusedWhileRead)).then(|| self.reuse.read());
        let (length, extents) = self.look(|volume| {
            volume.expect_file(ino, false)?;
            volume.touch_access(ino)?;
            volume.plan_read(ino, offset, buf)
        })?;
        for extent in extents {
            let target = &mut buf[extent.buffer_offset..extent.buffer_offset + extent.length];
            self.device.read_at(extent.device_offset, target).map_err(Error::from)?;
        }
        Ok(length)
    }

    fn write(&self, ino: InodeNumber, offset: u64, data: &[u8], clear_suid_sgid: bool) -> basalt_vfs::Result<usize> {
        self.write_data(ino, offset, data.into(), clear_suid_sgid)
    }

    fn write_back(&self, ino: InodeNumber, offset: u64, data: &[u8]) -> basalt_vfs::Result<()> {
        self.write_data_back(ino, offset, data.into())
    }

    fn write_shared(
        &self,
        ino: InodeNumber,
        offset: u64,
        data: Bytes,
        clear_suid_sgid: bool,
    ) -> basalt_vfs::Result<usize> {
        self.write_data(ino, offset, Data::shared(&data), clear_suid_sgid)
    }

    fn write_back_shared(&self, ino: InodeNumber, offset: u64, data: Bytes) -> basalt_vfs::Result<()> {
        self.write_data_back(ino, offset, Data::shared(&data))
    }

    fn fallocate(&self, ino: InodeNumber, mode: FallocateMode, offset: u64, length: u64) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        self.change(|volume| volume.fallocate(ino, mode, offset, length))
    }

    fn room_for(&self, ino: InodeNumber, offset: u64, length: u64) -> basalt_vfs::Result<u64> {
        let ino = Self::inode_number(ino)?;
        self.look(|volume| volume.room_for(ino, offset, length))
    }

    fn seek(&self, ino: InodeNumber, offset: u64, whence: Seek) -> basalt_vfs::Result<u64> {
        let ino = Self::inode_number(ino)?;
        self.look(|volume| volume.seek(ino, offset, whence))
    }

    fn read_directory(
        &self,
        ino: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        self.make_room_to_look(ino);
        self.look(|volume| volume.list_directory(ino, from, emit))
    }

    fn sync_file(&self, ino: InodeNumber, data_only: bool) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        self.durable_by(|| self.fsync(ino, data_only))
    }

    fn sync(&self) -> basalt_vfs::Result<()> {
        self.durable_by(|| self.sync_all(CheckpointCause::Sync))
    }

    fn stat_fs(&self) -> basalt_vfs::Result<StatFs> {
        self.look(|volume| Ok(stat_fs(volume)))
    }

    fn get_xattr(&self, ino: InodeNumber, name: &[u8]) -> basalt_vfs::Result<Vec<u8>> {
        let ino = Self::inode_number(ino)?;
        self.look(|volume| volume.get_xattr(ino, name))
    }

    fn set_xattr(&self, ino: InodeNumber, name: &[u8], value: &[u8], flags: XattrFlags) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        self.change(|volume| volume.set_xattr(ino, name, value, flags))
    }

    fn list_xattrs(&self, ino: InodeNumber) -> basalt_vfs::Result<Vec<u8>> {
        let ino = Self::inode_number(ino)?;
        self.look(|volume| volume.list_xattrs(ino))
    }

    fn remove_xattr(&self, ino: InodeNumber, name: &[u8]) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        self.change(|volume| volume.remove_xattr(ino, name))
    }

    fn set_flags(&self, ino: InodeNumber, flags: InodeFlags) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        self.change(|volume| volume.set_flags(ino, flags))
    }

    fn set_project_id(&self, ino: InodeNumber, project_id: u32) -> basalt_vfs::Result<()> {
        let ino = Self::inode_number(ino)?;
        self.change(|volume| volume.set_project_id(ino, project_id))
    }

    fn trim(&self, offset: u64, length: u64, minimum: u64) -> basalt_vfs::Result<u64> {
        let _open = self.keep_open()?;
        Ok(self.trim_free(offset, length, minimum)?)
    }

    fn empty_sections(&self, most: u32) -> basalt_vfs::Result<Emptied> {
        let _open = self.keep_open()?;
        Ok(self.clean_and_free(most)?)
    }

    fn count_extents(&self, ino: InodeNumber) -> basalt_vfs::Result<Extents> {
        Ok(self.extents_of_file(Self::inode_number(ino)?)?)
    }

    fn defragment(&self, ino: InodeNumber, offset: u64, length: u64) -> basalt_vfs::Result<Defragmented> {
        let ino = Self::inode_number(ino)?;
        let _open = self.keep_open()?;
        Ok(self.defragment_some(ino, offset, length)?)
    }

    fn tick(&self, now: Time) -> Background {
        self.do_background(now)
    }

    fn write_behind(&self) {
        if self.is_writable() {
            // A failure was noted: it turned the volume read-only.
            let _ = self.noting_failure(Submission::write_behind);
        }
    }

    fn end_write_behind(&self) {
        self.device.end_behind();
    }

    fn close(&self) -> basalt_vfs::Result<()> {
        Ok(self.close_once()?)
    }
}

/// Takes one reference on an inode and returns its attributes.
fn hold(volume: &mut Volume, ino: Ino) -> Result<Attributes> {
    let attributes = volume.attributes(ino)?;
    volume.pages.hold(ino, attributes.kind == FileKind::Directory);
    Ok(attributes)
}

/// As Linux's F2FS computes it. Source: the kernel's `f2fs_statfs`.
fn stat_fs(volume: &Volume) -> StatFs {
    let geometry = &volume.geometry;
    let (user, free) = (volume.counts.user_blocks(), volume.counts.free_blocks());
    let nodes = u64::from(geometry.node_ids()).saturating_sub(RESERVED_NODES);
    let (files, files_free) = if nodes > user {
        (user, free)
    } else {
        (nodes, nodes.saturating_sub(u64::from(volume.counts.nodes())).min(free))
    };
    StatFs {
        block_size: BLOCK_SIZE as u32,
        blocks: geometry.block_count.saturating_sub(u64::from(geometry.segment0)),
        free,
        available: free,
        files,
        files_free,
        name_max: crate::layout::NAME_MAX as u32,
        id: u64::from_le_bytes(geometry.uuid[..8].try_into().unwrap_or_default()),
    }
}
