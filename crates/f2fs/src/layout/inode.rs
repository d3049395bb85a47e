//! Inodes: attributes, then 923 slots for block addresses, inline data or an inline directory, then five node ids.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::node::RawNodeFooter;
use crate::layout::{Ino, Nid};

/// Four-byte slots in an inode.
pub const SLOTS: u32 = 923;
/// Node ids in an inode: two direct, two indirect, one double indirect.
pub const NIDS: usize = 5;
/// Four-byte slots kept for inline xattrs unless the inode says otherwise.
pub const DEFAULT_INLINE_XATTR_SLOTS: u32 = 50;
/// Slots reserved in front of inline data.
pub const INLINE_RESERVED_SLOTS: u32 = 1;
/// Bytes of the largest set of extra attributes (Linux 6.x).
pub const EXTRA_SIZE_MAX: u32 = 36;
/// Bytes of extra attributes that hold everything up to the creation time.
pub const EXTRA_SIZE_CRTIME: u32 = 24;

bitflags! {
    /// `i_inline`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InlineFlags: u8 {
        /// Slots at the end hold xattrs.
        const XATTR = 0x1;
        /// Slots hold the file's data.
        const DATA = 0x2;
        /// Slots hold the directory.
        const DENTRY = 0x4;
        /// Inline data has content.
        const DATA_EXIST = 0x8;
        /// An old, unconverted inline directory.
        const DOTS = 0x10;
        /// Extra attributes precede the slots.
        const EXTRA_ATTR = 0x20;
        /// Blocks may not move.
        const PIN_FILE = 0x40;
        /// Saved blocks of a compressed file were given back.
        const COMPRESS_RELEASED = 0x80;
    }

    /// `i_advise`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Advise: u8 {
        /// Data goes to the cold log.
        const COLD = 0x1;
        /// The parent was lost: fsync needs a checkpoint.
        const LOST_PINO = 0x2;
        /// Encrypted.
        const ENCRYPT = 0x4;
        /// Encrypted name.
        const ENC_NAME = 0x8;
        /// Blocks past the size are kept.
        const KEEP_SIZE = 0x10;
        /// Data goes to the hot log.
        const HOT = 0x20;
        /// fs-verity.
        const VERITY = 0x40;
        /// Truncation to be finished.
        const TRUNC = 0x80;
    }

    /// `i_flags` beyond those of `chattr(1)` that matter to the engine.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RawInodeFlags: u32 {
        /// Compressed file.
        const COMPRESS = 0x4;
        /// Synchronous.
        const SYNC = 0x8;
        /// Immutable.
        const IMMUTABLE = 0x10;
        /// Append only.
        const APPEND = 0x20;
        /// No dump.
        const NODUMP = 0x40;
        /// No access time.
        const NOATIME = 0x80;
        /// Indexed directory.
        const INDEX = 0x1000;
        /// Synchronous directory.
        const DIRSYNC = 0x1_0000;
        /// Project id is inherited.
        const PROJINHERIT = 0x2000_0000;
        /// Case-insensitive directory.
        const CASEFOLD = 0x4000_0000;
        /// Aliases a device.
        const DEVICE_ALIAS = 0x8000_0000;
        const _ = !0;
    }
}

/// The largest extent of a file, a hint. Basalt always writes length 0.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtent {
    pub fofs: U32,
    pub blk: U32,
    pub len: U32,
}

/// The extra attributes that, where the inode has them, lie in its first slots.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtra {
    pub i_extra_isize: U16,
    pub i_inline_xattr_size: U16,
    pub i_projid: U32,
    pub i_inode_checksum: U32,
    pub i_crtime: U64,
    pub i_crtime_nsec: U32,
    pub i_compr_blocks: U64,
    pub i_compress_algorithm: u8,
    pub i_log_cluster_size: u8,
    pub i_compress_flag: U16,
}

/// An inode block. Field names are F2FS's.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // Field by field documented in the kernel's f2fs_fs.h, under the same names.
pub struct RawInode {
    pub i_mode: U16,
    pub i_advise: u8,
    pub i_inline: u8,
    pub i_uid: U32,
    pub i_gid: U32,
    pub i_links: U32,
    pub i_size: U64,
    pub i_blocks: U64,
    pub i_atime: U64,
    pub i_ctime: U64,
    pub i_mtime: U64,
    pub i_atime_nsec: U32,
    pub i_ctime_nsec: U32,
    pub i_mtime_nsec: U32,
    pub i_generation: U32,
    /// Directories: depth of the hash; files: failed cleanings.
    pub i_current_depth: U32,
    pub i_xattr_nid: U32,
    pub i_flags: U32,
    pub i_pino: U32,
    pub i_namelen: U32,
    pub i_name: [u8; 255],
    pub i_dir_level: u8,
    pub i_ext: RawExtent,
    pub slots: [U32; SLOTS as usize],
    pub i_nid: [U32; NIDS],
    pub footer: RawNodeFooter,
}

/// Byte offset of the slots.
pub const SLOTS_OFFSET: usize = 360;
/// Byte offset of the checksum among the extra attributes.
const CHECKSUM_OFFSET: usize = SLOTS_OFFSET + core::mem::offset_of!(RawExtra, i_inode_checksum);

const _: () = {
    assert!(size_of::<RawInode>() == super::BLOCK_SIZE);
    assert!(size_of::<RawExtra>() == EXTRA_SIZE_MAX as usize);
    assert!(core::mem::offset_of!(RawInode, i_generation) == 68);
    assert!(core::mem::offset_of!(RawInode, i_name) == 92);
    assert!(core::mem::offset_of!(RawInode, i_ext) == 348);
    assert!(core::mem::offset_of!(RawInode, slots) == SLOTS_OFFSET);
    assert!(core::mem::offset_of!(RawInode, i_nid) == 4052);
    assert!(core::mem::offset_of!(RawExtra, i_crtime) == 12);
};

impl RawInode {
    /// `i_pino`: the directory that its name is, or was, in.
    pub fn parent(&self) -> Ino {
        self.i_pino.into()
    }

    /// `i_xattr_nid`: the node of its xattrs.
    pub fn xattr_nid(&self) -> Nid {
        self.i_xattr_nid.into()
    }

    /// `i_inline` as flags.
    pub fn inline_flags(&self) -> InlineFlags {
        InlineFlags::from_bits_retain(self.i_inline)
    }

    /// Whether `flag` is set in `i_inline`.
    pub fn is_inline(&self, flag: InlineFlags) -> bool {
        self.inline_flags().contains(flag)
    }

    /// Whether a directory's names are as they were given, neither encrypted nor case-insensitive: a hash follows from its name.
    pub fn has_plain_names(&self) -> bool {
        let casefold = RawInodeFlags::from_bits_retain(self.i_flags.get()).contains(RawInodeFlags::CASEFOLD);
        !casefold && !self.is_encrypted()
    }

    /// Whether a file's content, or a directory's names, are encrypted.
    pub fn is_encrypted(&self) -> bool {
        Advise::from_bits_retain(self.i_advise).contains(Advise::ENCRYPT)
    }

    /// The extra attributes as stored, whether or not the inode has them (see [`extra_size`](Self::extra_size)).
    pub fn extra(&self) -> &RawExtra {
        let bytes = self.slots.as_bytes();
        // 36 of 3,692 bytes, alignment 1: always fits.
        RawExtra::ref_from_bytes(&bytes[..size_of::<RawExtra>()]).expect("slots are larger than the extra attributes")
    }

    /// As [`extra`](Self::extra), to change.
    pub fn extra_mut(&mut self) -> &mut RawExtra {
        let bytes = self.slots.as_mut_bytes();
        RawExtra::mut_from_bytes(&mut bytes[..size_of::<RawExtra>()])
            .expect("slots are larger than the extra attributes")
    }

    /// The checksum the inode should carry; `seed` is the volume's, see [`Geometry::checksum_seed`](crate::Geometry).
    /// Source: the kernel's `f2fs_inode_chksum`.
    pub fn expected_checksum(&self, seed: u32) -> u32 {
        let block = self.as_bytes();
        let (front, back) = (&block[..CHECKSUM_OFFSET], &block[CHECKSUM_OFFSET + 4..]);
        // Number and generation first, so that an inode copied to another place is recognised; the field itself as zero.
        [self.footer.ino.as_bytes(), self.i_generation.as_bytes(), front, &[0; 4], back]
            .into_iter()
            .fold(seed, super::crc::crc_from)
    }

    /// Bytes of extra attributes: 0 without them. A damaged value is cut to what the slots hold.
    pub fn extra_size(&self) -> u32 {
        if self.is_inline(InlineFlags::EXTRA_ATTR) {
            u32::from(self.extra().i_extra_isize.get()).min(EXTRA_SIZE_MAX) & !3
        } else {
            0
        }
    }

    /// Whether the extra attributes reach to byte `end`.
    pub fn has_extra(&self, end: usize) -> bool {
        self.extra_size() as usize >= end
    }

    /// Slots taken by inline xattrs; `flexible` is the volume's FLEXIBLE_INLINE_XATTR.
    pub fn inline_xattr_slots(&self, flexible: bool) -> u32 {
        if flexible {
            u32::from(self.extra().i_inline_xattr_size.get()).min(SLOTS - EXTRA_SIZE_MAX / 4 - INLINE_RESERVED_SLOTS)
        } else if self.inline_flags().intersects(InlineFlags::XATTR | InlineFlags::DENTRY) {
            DEFAULT_INLINE_XATTR_SLOTS
        } else {
            0
        }
    }

    /// Slots for block addresses: what extra attributes and inline xattrs leave.
    pub fn address_slots(&self, flexible: bool) -> u32 {
        SLOTS - self.extra_size() / 4 - self.inline_xattr_slots(flexible)
    }

    /// The slots for block addresses themselves; only sensible where they hold some.
    pub fn addresses(&self, flexible: bool) -> &[U32] {
        &self.slots[(self.extra_size() / 4) as usize..][..self.address_slots(flexible) as usize]
    }

    /// As [`addresses`](Self::addresses), to change.
    pub fn addresses_mut(&mut self, flexible: bool) -> &mut [U32] {
        let (first, count) = ((self.extra_size() / 4) as usize, self.address_slots(flexible) as usize);
        &mut self.slots[first..][..count]
    }

    /// Byte range of inline data (or of the inline directory) within the inode block.
    pub fn inline_data_range(&self, flexible: bool) -> std::ops::Range<usize> {
        let start = SLOTS_OFFSET + 4 * (self.extra_size() / 4 + INLINE_RESERVED_SLOTS) as usize;
        let length = 4 * (self.address_slots(flexible) - INLINE_RESERVED_SLOTS) as usize;
        start..start + length
    }

    /// Byte range of inline xattrs within the inode block: the last slots.
    pub fn inline_xattr_range(&self, flexible: bool) -> std::ops::Range<usize> {
        let end = SLOTS_OFFSET + 4 * SLOTS as usize;
        end - 4 * self.inline_xattr_slots(flexible) as usize..end
    }
}
