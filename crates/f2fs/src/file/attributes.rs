//! Attributes: what stat shows, and changing them.

use basalt_vfs::acl::Acl;
use basalt_vfs::{Attributes, FileKind, InodeFlags, SetAttributes, SetTime, Time};

use crate::error::Result;
use crate::layout::Ino;
use crate::layout::inode::{InlineFlags, RawInode, RawInodeFlags};
use crate::layout::superblock::Features;
use crate::node::inode::{self, CRTIME_END, PROJECT_END, SECTORS_PER_BLOCK, Stamp};
use crate::volume::Volume;

/// The unit of what stat shows, in bytes.
const SECTOR_LEN: u64 = 512;
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// `chattr(1)` flags that a user may change. Source: the kernel's `F2FS_SETTABLE_FS_FL`, less what Basalt does not serve.
const SETTABLE: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJECT_INHERIT);

/// The space that stat shows, in sectors: the blocks besides the inode's own, and what lies in the inode. The latter because
/// a file with bytes but no sectors is all hole to `tar --sparse`, which does not even read it. Source: the kernel's `f2fs_getattr`.
fn sectors(raw: &RawInode, kind: FileKind) -> u64 {
    let blocks = raw.i_blocks.get().saturating_sub(1).saturating_mul(SECTORS_PER_BLOCK);
    let has_data_inside = kind == FileKind::Regular && raw.is_inline(InlineFlags::DATA);
    let inside = if has_data_inside || raw.is_inline(InlineFlags::DENTRY) { raw.i_size.get() } else { 0 };
    blocks.saturating_add(inside.div_ceil(SECTOR_LEN))
}

impl Volume {
    /// The attributes of an inode.
    pub(crate) fn attributes(&mut self, ino: Ino) -> Result<Attributes> {
        let features = self.geometry.features;
        let raw = self.inode(ino)?;
        let mode = u32::from(raw.i_mode.get());
        // Checked when the inode was read.
        let kind = FileKind::from_mode(mode).unwrap_or(FileKind::Regular);
        let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
        let has_crtime = features.contains(Features::INODE_CRTIME) && raw.has_extra(CRTIME_END);
        let has_project = features.contains(Features::PROJECT_QUOTA) && raw.has_extra(PROJECT_END);
        Ok(Attributes {
            ino: u64::from(ino),
            generation: raw.i_generation.get(),
            kind,
            permissions: mode & 0o7777,
            links: raw.i_links.get(),
            uid: raw.i_uid.get(),
            gid: raw.i_gid.get(),
            rdev: if is_device { inode::device_number(raw) } else { 0 },
            size: raw.i_size.get(),
            sectors: sectors(raw, kind),
            atime: inode::time(raw, Stamp::Access),
            mtime: inode::time(raw, Stamp::Modify),
            ctime: inode::time(raw, Stamp::Change),
            crtime: has_crtime.then(|| Time {
                seconds: raw.extra().i_crtime.get() as i64,
                nanoseconds: raw.extra().i_crtime_nsec.get().min(999_999_999),
            }),
            flags: InodeFlags::from_bits_retain(raw.i_flags.get()),
            project_id: if has_project { raw.extra().i_projid.get() } else { 0 },
        })
    }

    /// Changes attributes, size included.
    pub(crate) fn set_attributes(&mut self, ino: Ino, changes: &SetAttributes) -> Result<()> {
        self.expect_attributes_changeable(ino, changes)?;
        if let Some(size) = changes.size {
            self.set_size(ino, size)?;
        }
        if let Some(permissions) = changes.permissions {
            self.change_mode(ino, permissions & 0o7777)?;
        }
        let now = self.clock.now();
        let is_directory = self.kind(ino)? == FileKind::Directory;
        let SetAttributes { atime, mtime, ctime, is_due, .. } = *changes;
        let times = SetAttributes { atime, mtime, ctime, is_due, ..Default::default() };
        let leaves_ctime = self.times_are_set && changes.size.is_some();
        let raw = if *changes == times { self.inode_times_mut(ino)? } else { self.inode_mut(ino)? };
        if let Some(uid) = changes.uid {
            raw.i_uid.set(uid);
        }
        if let Some(gid) = changes.gid {
            raw.i_gid.set(gid);
        }
        if changes.clear_suid_sgid && !is_directory {
            let mode = u32::from(raw.i_mode.get());
            raw.i_mode.set(without_set_ids(mode) as u16);
        }
        let to = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        if let Some(time) = changes.atime {
            inode::set_time(raw, Stamp::Access, to(time));
        }
        if let Some(time) = changes.mtime {
            inode::set_time(raw, Stamp::Modify, to(time));
        }
        if changes.ctime.is_some() || !leaves_ctime {
            inode::set_time(raw, Stamp::Change, changes.ctime.map_or(now, to));
        }
        Ok(())
    }

    /// Fails if the inode's flags forbid this change of its attributes. An append-only file may be marked as read or written now.
    fn expect_attributes_changeable(&mut self, ino: Ino, changes: &SetAttributes) -> Result<()> {
        if changes.is_due || !self.has_flag(ino, RawInodeFlags::IMMUTABLE | RawInodeFlags::APPEND)? {
            return Ok(());
        }
        let SetAttributes { atime, mtime, ctime, .. } = *changes;
        let has_only_times = *changes == SetAttributes { atime, mtime, ctime, ..Default::default() };
        // Whoever keeps times writes a new ctime back long after the change that it belongs to, and an mtime that is not new with it.
        let modified = inode::time(self.inode(ino)?, Stamp::Modify);
        if has_only_times && atime.is_none() && ctime.is_some() && mtime == Some(SetTime::To(modified)) {
            return Ok(());
        }
        self.expect_mutable(ino)?;
        // A kernel with a writeback cache sends its own "now": the same in mtime and ctime.
        let is_now = |time: SetTime| time == SetTime::Now || Some(time) == ctime;
        if !has_only_times || !atime.is_none_or(is_now) || !mtime.is_none_or(is_now) {
            return Err(basalt_vfs::Error::NotPermitted("append-only").into());
        }
        Ok(())
    }

    /// Changes the permission bits, and the access ACL with them.
    fn change_mode(&mut self, ino: Ino, permissions: u32) -> Result<()> {
        let raw = self.inode_mut(ino)?;
        let kind = u32::from(raw.i_mode.get()) & !0o7777;
        raw.i_mode.set((kind | permissions) as u16);
        if let Some(mut acl) = self.access_acl(ino)? {
            acl.chmod(permissions);
            self.store_acl(ino, Some(&acl), false)?;
        }
        Ok(())
    }

    /// The access ACL of an inode.
    pub(crate) fn access_acl(&mut self, ino: Ino) -> Result<Option<Acl>> {
        self.load_acl(ino, false)
    }

    /// Clears set-uid, and set-gid where the group may execute.
    pub(crate) fn clear_set_ids(&mut self, ino: Ino) -> Result<()> {
        let mode = u32::from(self.inode(ino)?.i_mode.get());
        let without = without_set_ids(mode);
        if without != mode {
            self.inode_mut(ino)?.i_mode.set(without as u16);
        }
        Ok(())
    }

    /// Sets the `chattr(1)` flags a user may set.
    pub(crate) fn set_flags(&mut self, ino: Ino, flags: InodeFlags) -> Result<()> {
        let old = InodeFlags::from_bits_retain(self.inode(ino)?.i_flags.get());
        let kept = old.difference(SETTABLE);
        let unknown = flags.difference(SETTABLE).difference(old);
        if !unknown.is_empty() {
            return Err(basalt_vfs::Error::NotSupported("inode flag").into());
        }
        self.inode_mut(ino)?.i_flags.set(kept.union(flags.intersection(SETTABLE)).bits());
        self.touch_change(ino)
    }

    /// Sets the project id.
    pub(crate) fn set_project_id(&mut self, ino: Ino, project_id: u32) -> Result<()> {
        let has_feature = self.geometry.features.contains(Features::PROJECT_QUOTA);
        if !has_feature || !self.inode(ino)?.has_extra(PROJECT_END) {
            return if project_id == 0 { Ok(()) } else { Err(basalt_vfs::Error::NotSupported("project ids").into()) };
        }
        self.inode_mut(ino)?.extra_mut().i_projid.set(project_id);
        self.touch_change(ino)
    }

    /// Adds to an inode's links, or takes from them.
    pub(crate) fn change_links(&mut self, ino: Ino, by: i32) -> Result<u32> {
        let raw = self.inode_mut(ino)?;
        let links = raw.i_links.get().saturating_add_signed(by);
        raw.i_links.set(links);
        Ok(links)
    }
}

fn without_set_ids(mode: u32) -> u32 {
    let mut mode = mode & !SET_UID;
    if mode & GROUP_EXECUTE != 0 {
        mode &= !SET_GID;
    }
    mode
}
