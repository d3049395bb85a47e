//! Making inodes, and checking them when they are read.

use zerocopy::little_endian::{U16, U64};

use basalt_vfs::{FileKind, Time};

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::inode::{
    DEFAULT_INLINE_XATTR_SLOTS, EXTRA_SIZE_MAX, InlineFlags, RawExtra, RawInode, RawInodeFlags, SLOTS,
};
use crate::layout::superblock::Features;
use crate::layout::{BLOCK_BITS, BLOCK_SIZE, Ino, NAME_MAX};
use crate::node::path::BLOCKS_MAX;

/// End of the checksum within the extra attributes.
pub const CHECKSUM_END: usize = core::mem::offset_of!(RawExtra, i_inode_checksum) + 4;
/// End of the creation time within the extra attributes.
pub const CRTIME_END: usize = core::mem::offset_of!(RawExtra, i_crtime_nsec) + 4;
/// End of the project id within the extra attributes.
pub const PROJECT_END: usize = core::mem::offset_of!(RawExtra, i_projid) + 4;

/// Largest size in bytes that an inode may have: no file reaches further than block addresses do. Some kernels counted the
/// inode's own addresses too.
pub const SIZE_LIMIT: u64 = (BLOCKS_MAX + SLOTS as u64) << BLOCK_BITS;

/// What kind of file an inode is.
pub fn kind(inode: &RawInode) -> FileKind {
    FileKind::from_mode(u32::from(inode.i_mode.get())).unwrap_or(FileKind::Regular)
}

/// Whether the inode has room for a checksum.
pub fn has_checksum(inode: &RawInode) -> bool {
    inode.has_extra(CHECKSUM_END)
}

/// Brings the checksum up to date, where the inode has one.
pub fn set_checksum(inode: &mut RawInode, seed: u32) {
    if has_checksum(inode) {
        let value = inode.expected_checksum(seed);
        inode.extra_mut().i_inode_checksum.set(value);
    }
}

fn bad(ino: Ino, found: impl Into<String>) -> Error {
    Error::damaged("inode", format!("inode {ino}"), found)
}

/// Checks an inode as it is read: everything later code takes for granted, and its checksum.
pub fn validate(inode: &RawInode, ino: Ino, geometry: &Geometry) -> Result<()> {
    validate_fields(inode, ino, geometry)?;
    validate_checksum(inode, ino, geometry)
}

/// Checks an inode's checksum, where the volume has them.
pub fn validate_checksum(inode: &RawInode, ino: Ino, geometry: &Geometry) -> Result<()> {
    if geometry.features.contains(Features::INODE_CHECKSUM) && has_checksum(inode) {
        let expected = inode.expected_checksum(geometry.checksum_seed);
        let found = inode.extra().i_inode_checksum.get();
        if found != expected {
            return Err(bad(ino, format!("checksum {found:#010x}, expected {expected:#010x}")));
        }
    }
    Ok(())
}

/// Whether an inode has a checksum that says so.
pub(crate) fn is_whole(inode: &RawInode, geometry: &Geometry) -> bool {
    let has_one = geometry.features.contains(Features::INODE_CHECKSUM) && has_checksum(inode);
    has_one && inode.extra().i_inode_checksum.get() == inode.expected_checksum(geometry.checksum_seed)
}

/// Bytes of extra attributes that every inode of a volume has that has any. Linux could never make fewer: it has had checksums and project
/// ids for as long as it has had extra attributes.
pub(crate) fn least_extra_size(features: Features) -> u32 {
    if features.contains(Features::INODE_CHECKSUM) {
        12
    } else if features.contains(Features::PROJECT_QUOTA) {
        8
    } else {
        4
    }
}

/// Checks everything of an inode that later code takes for granted.
pub fn validate_fields(inode: &RawInode, ino: Ino, geometry: &Geometry) -> Result<()> {
    let features = geometry.features;
    let Some(kind) = FileKind::from_mode(u32::from(inode.i_mode.get())) else {
        return Err(bad(ino, format!("mode {:#o} names no kind of file", inode.i_mode)));
    };
    let extra = inode.is_inline(InlineFlags::EXTRA_ATTR);
    if extra {
        let size = u32::from(inode.extra().i_extra_isize.get());
        let is_possible = (least_extra_size(features)..=EXTRA_SIZE_MAX).contains(&size) && size % 4 == 0;
        if !features.contains(Features::EXTRA_ATTR) || !is_possible {
            return Err(bad(ino, format!("{size} bytes of extra attributes")));
        }
    }
    if features.contains(Features::FLEXIBLE_INLINE_XATTR) {
        let slots = u32::from(inode.extra().i_inline_xattr_size.get());
        if !extra || slots > SLOTS - EXTRA_SIZE_MAX / 4 - 1 {
            return Err(bad(ino, format!("{slots} slots of inline xattrs")));
        }
    }
    validate_inline(inode, ino, kind, geometry)?;
    if inode.i_size.get() > SIZE_LIMIT {
        return Err(bad(ino, format!("size {}, more than a file can have", inode.i_size)));
    }
    if inode.i_namelen.get() as usize > NAME_MAX {
        return Err(bad(ino, format!("name of {} bytes", inode.i_namelen)));
    }
    if inode.i_blocks.get() == 0 || inode.xattr_nid() >= geometry.node_ids() {
        return Err(bad(ino, format!("{} blocks, xattr node {}", inode.i_blocks, inode.i_xattr_nid)));
    }
    Ok(())
}

fn validate_inline(inode: &RawInode, ino: Ino, kind: FileKind, geometry: &Geometry) -> Result<()> {
    let capacity = inode.inline_data_range(geometry.flexible_inline_xattr()).len() as u64;
    if inode.is_inline(InlineFlags::DATA) {
        if !matches!(kind, FileKind::Regular | FileKind::Symlink) {
            return Err(bad(ino, format!("inline data in a {kind:?}")));
        }
        if inode.i_size.get() > capacity {
            return Err(bad(ino, format!("size {} with inline data, at most {capacity} fit", inode.i_size)));
        }
    }
    if inode.is_inline(InlineFlags::DENTRY) && kind != FileKind::Directory {
        return Err(bad(ino, format!("inline directory in a {kind:?}")));
    }
    Ok(())
}

/// What a new inode starts with.
pub struct NewInode<'a> {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, final.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device nodes.
    pub rdev: u32,
    /// Its directory; 0 without a name.
    pub parent: Ino,
    /// Its name, empty without one.
    pub name: &'a [u8],
    /// Distinguishes users of one inode number.
    pub generation: u32,
    /// Flags inherited from the directory.
    pub flags: u32,
    /// Project id inherited from the directory.
    pub project_id: u32,
    /// Placement hints.
    pub advise: u8,
    /// Now.
    pub time: Time,
}

/// Fills a zeroed inode block (footer excepted). One link, or two for a directory.
pub fn initialise(raw: &mut RawInode, new: &NewInode<'_>, geometry: &Geometry) {
    let is_directory = new.kind == FileKind::Directory;
    raw.i_mode = U16::new((new.kind.mode_bits() | new.permissions) as u16);
    raw.i_uid.set(new.uid);
    raw.i_gid.set(new.gid);
    raw.i_links.set(if is_directory { 2 } else { 1 });
    raw.i_blocks = U64::new(1);
    raw.i_generation.set(new.generation);
    raw.i_advise = new.advise;
    raw.i_flags.set(new.flags | if is_directory { RawInodeFlags::INDEX.bits() } else { 0 });
    raw.i_current_depth.set(u32::from(is_directory));
    set_name(raw, new.parent, new.name);
    let mut inline = InlineFlags::XATTR;
    match new.kind {
        FileKind::Directory => inline |= InlineFlags::DENTRY,
        FileKind::Regular | FileKind::Symlink => inline |= InlineFlags::DATA,
        _ => {}
    }
    if geometry.features.contains(Features::EXTRA_ATTR) {
        inline |= InlineFlags::EXTRA_ATTR;
        let extra = raw.extra_mut();
        extra.i_extra_isize.set(EXTRA_SIZE_MAX as u16);
        if geometry.flexible_inline_xattr() {
            extra.i_inline_xattr_size.set(DEFAULT_INLINE_XATTR_SLOTS as u16);
        }
        if geometry.features.contains(Features::INODE_CRTIME) {
            extra.i_crtime.set(new.time.seconds as u64);
            extra.i_crtime_nsec.set(new.time.nanoseconds);
        }
        if geometry.features.contains(Features::PROJECT_QUOTA) {
            extra.i_projid.set(new.project_id);
        }
    }
    raw.i_inline = inline.bits();
    if matches!(new.kind, FileKind::BlockDevice | FileKind::CharDevice) {
        set_device_number(raw, new.rdev);
    }
    for which in [Stamp::Access, Stamp::Modify, Stamp::Change] {
        set_time(raw, which, new.time);
    }
}

/// Records the directory and the name, which roll-forward and rescue use.
pub fn set_name(raw: &mut RawInode, parent: Ino, name: &[u8]) {
    let length = name.len().min(NAME_MAX);
    raw.i_pino.set(parent.get());
    raw.i_namelen.set(length as u32);
    raw.i_name = [0; NAME_MAX];
    raw.i_name[..length].copy_from_slice(&name[..length]);
}

/// Which of an inode's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// Last read.
    Access,
    /// Last content change.
    Modify,
    /// Last attribute change.
    Change,
}

/// Reads one of an inode's times.
pub fn time(raw: &RawInode, which: Stamp) -> Time {
    let (seconds, nanoseconds) = match which {
        Stamp::Access => (raw.i_atime, raw.i_atime_nsec),
        Stamp::Modify => (raw.i_mtime, raw.i_mtime_nsec),
        Stamp::Change => (raw.i_ctime, raw.i_ctime_nsec),
    };
    Time { seconds: seconds.get() as i64, nanoseconds: nanoseconds.get().min(999_999_999) }
}

/// Sets one of an inode's times.
pub fn set_time(raw: &mut RawInode, which: Stamp, time: Time) {
    let (seconds, nanoseconds) = match which {
        Stamp::Access => (&mut raw.i_atime, &mut raw.i_atime_nsec),
        Stamp::Modify => (&mut raw.i_mtime, &mut raw.i_mtime_nsec),
        Stamp::Change => (&mut raw.i_ctime, &mut raw.i_ctime_nsec),
    };
    seconds.set(time.seconds as u64);
    nanoseconds.set(time.nanoseconds);
}

/// The device number in an inode's first two address slots: the first if it fits 16 bits, else the second.
pub fn device_number(raw: &RawInode) -> u32 {
    let base = (raw.extra_size() / 4) as usize;
    let (old, new) = (raw.slots[base].get(), raw.slots[base + 1].get());
    if old != 0 { old } else { new }
}

fn set_device_number(raw: &mut RawInode, rdev: u32) {
    let base = (raw.extra_size() / 4) as usize;
    let fits = rdev <= 0xFFFF;
    raw.slots[base].set(if fits { rdev } else { 0 });
    raw.slots[base + 1].set(if fits { 0 } else { rdev });
}

/// 512-byte sectors in a block.
pub const SECTORS_PER_BLOCK: u64 = (BLOCK_SIZE / 512) as u64;
