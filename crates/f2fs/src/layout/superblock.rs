//! The superblock: geometry, features and identity. Written by mkfs, twice.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `magic` of every F2FS superblock.
pub const MAGIC: u32 = 0xF2F5_2010;
/// Byte offset of the superblock within its block.
pub const SUPERBLOCK_OFFSET: usize = 1024;
/// Bytes in the structure.
pub const SUPERBLOCK_SIZE: usize = 3072;
/// Where `checksum_offset` must point if the superblock carries a checksum.
pub const CHECKSUM_OFFSET: u32 = 3068;
/// High half of `log_sectors_per_block` while a cleaning journal is live: keeps every other F2FS off the volume.
pub const JOURNAL_GUARD: u32 = 0x4C4B_0000;
/// The same where a fsync may have written a [delta](super::delta), too: versions of Basalt that know of none refuse the volume as well.
pub const DELTA_GUARD: u32 = 0x4C44_0000;
/// High half of `log_sectors_per_block` while a resize is being put in place: like [`JOURNAL_GUARD`].
pub const RESIZE_GUARD: u32 = 0x525A_0000;
/// Most extensions the superblock lists.
pub const EXTENSION_MAX: usize = 64;

/// Whether a value of `log_sectors_per_block` has the guard of a live journal: of one kind or the other.
pub fn has_guard(sectors: u32) -> bool {
    matches!(sectors & !0xFF, JOURNAL_GUARD | DELTA_GUARD)
}

bitflags! {
    /// `feature`: what the volume uses.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// Encrypted files may exist.
        const ENCRYPT = 0x1;
        /// Zoned block device.
        const BLKZONED = 0x2;
        /// Atomic writes.
        const ATOMIC_WRITE = 0x4;
        /// Inodes carry extra attributes.
        const EXTRA_ATTR = 0x8;
        /// Inodes carry a project id.
        const PROJECT_QUOTA = 0x10;
        /// Inodes carry a checksum.
        const INODE_CHECKSUM = 0x20;
        /// The size of inline xattrs is kept in each inode.
        const FLEXIBLE_INLINE_XATTR = 0x40;
        /// Quota inodes exist.
        const QUOTA_INO = 0x80;
        /// Inodes carry a creation time.
        const INODE_CRTIME = 0x100;
        /// A lost+found directory exists.
        const LOST_FOUND = 0x200;
        /// fs-verity files may exist.
        const VERITY = 0x400;
        /// The superblock carries a checksum.
        const SB_CHECKSUM = 0x800;
        /// Case-insensitive directories may exist.
        const CASEFOLD = 0x1000;
        /// Compressed files may exist.
        const COMPRESSION = 0x2000;
        /// Made to be read only.
        const READ_ONLY = 0x4000;
        /// Files may alias whole devices.
        const DEVICE_ALIAS = 0x8000;
        /// Several summaries share a block.
        const PACKED_SSA = 0x1_0000;
        const _ = !0;
    }
}

/// One of up to eight devices of a volume.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDevice {
    /// Path, zero-padded.
    pub path: [u8; 64],
    /// Segments on it.
    pub total_segments: U32,
}

/// The superblock as it lies on the volume. Field names are F2FS's.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // Field by field documented in the kernel's f2fs_fs.h, under the same names.
pub struct RawSuperblock {
    pub magic: U32,
    pub major_ver: U16,
    pub minor_ver: U16,
    pub log_sectorsize: U32,
    pub log_sectors_per_block: U32,
    pub log_blocksize: U32,
    pub log_blocks_per_seg: U32,
    pub segs_per_sec: U32,
    pub secs_per_zone: U32,
    pub checksum_offset: U32,
    pub block_count: U64,
    pub section_count: U32,
    pub segment_count: U32,
    pub segment_count_ckpt: U32,
    pub segment_count_sit: U32,
    pub segment_count_nat: U32,
    pub segment_count_ssa: U32,
    pub segment_count_main: U32,
    pub segment0_blkaddr: U32,
    pub cp_blkaddr: U32,
    pub sit_blkaddr: U32,
    pub nat_blkaddr: U32,
    pub ssa_blkaddr: U32,
    pub main_blkaddr: U32,
    pub root_ino: U32,
    pub node_ino: U32,
    pub meta_ino: U32,
    pub uuid: [u8; 16],
    pub volume_name: [U16; 512],
    pub extension_count: U32,
    pub extension_list: [[u8; 8]; EXTENSION_MAX],
    pub cp_payload: U32,
    pub version: [u8; 256],
    pub init_version: [u8; 256],
    pub feature: U32,
    pub encryption_level: u8,
    pub encrypt_pw_salt: [u8; 16],
    pub devs: [RawDevice; 8],
    pub qf_ino: [U32; 3],
    pub hot_ext_count: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_stop_reason: [u8; 32],
    pub s_errors: [u8; 16],
    pub reserved: [u8; 258],
    pub crc: U32,
}

const _: () = {
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
    assert!(core::mem::offset_of!(RawSuperblock, block_count) == 36);
    assert!(core::mem::offset_of!(RawSuperblock, root_ino) == 96);
    assert!(core::mem::offset_of!(RawSuperblock, volume_name) == 124);
    assert!(core::mem::offset_of!(RawSuperblock, cp_payload) == 1664);
    assert!(core::mem::offset_of!(RawSuperblock, feature) == 2180);
    assert!(core::mem::offset_of!(RawSuperblock, reserved) == 2810);
    assert!(core::mem::offset_of!(RawSuperblock, crc) == CHECKSUM_OFFSET as usize);
};

impl RawSuperblock {
    /// The features the volume uses.
    pub fn features(&self) -> Features {
        Features::from_bits_retain(self.feature.get())
    }

    /// The checksum the structure should carry.
    pub fn expected_crc(&self) -> u32 {
        super::crc::crc(&self.as_bytes()[..CHECKSUM_OFFSET as usize])
    }

    /// The volume label, decoded from UTF-16.
    pub fn label(&self) -> String {
        let units: Vec<u16> = self.volume_name.iter().map(|u| u.get()).take_while(|&u| u != 0).collect();
        String::from_utf16_lossy(&units)
    }
}
