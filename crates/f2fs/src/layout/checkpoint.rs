//! The checkpoint block: first and last block of a checkpoint pack, and the orphan blocks between them.
//!
//! A pack: head block, `cp_payload` blocks, orphan blocks, data summaries (one or two compact blocks, or three), node
//! summaries (only if unmounted cleanly), tail block identical to the head.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where `checksum_offset` points unless the NAT bitmap is large.
pub const CHECKSUM_OFFSET: usize = 4092;
/// First byte after the fixed fields: the SIT and NAT version bitmaps.
pub const BITMAP_OFFSET: usize = 192;
/// Entries in an orphan block.
pub const ORPHANS_PER_BLOCK: usize = 1020;
/// Slots for active logs of each class in the checkpoint.
pub const LOG_SLOTS: usize = 8;

bitflags! {
    /// `ckpt_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct CheckpointFlags: u32 {
        /// Written by a clean unmount; node summaries are in the pack.
        const UMOUNT = 0x1;
        /// Orphan blocks are in the pack.
        const ORPHAN = 0x2;
        /// Data summaries are compact.
        const COMPACT_SUMMARY = 0x4;
        /// The volume had a fatal error.
        const ERROR = 0x8;
        /// A check is wanted.
        const FSCK = 0x10;
        /// Written on a fast boot; node summaries are in the pack.
        const FASTBOOT = 0x20;
        /// The checksum also guards roll-forward (node footers carry it).
        const CRC_RECOVERY = 0x40;
        /// NAT bits follow.
        const NAT_BITS = 0x80;
        /// Everything free was discarded.
        const TRIMMED = 0x100;
        /// Written without recovery.
        const NO_CRC_RECOVERY = 0x200;
        /// NAT bitmap at the start of the bitmap area.
        const LARGE_NAT_BITMAP = 0x400;
        /// Quota files are out of date.
        const QUOTA_NEED_FSCK = 0x800;
        /// Checkpoints are disabled.
        const DISABLED = 0x1000;
        /// Quick disable.
        const DISABLED_QUICK = 0x2000;
        /// A resize was under way.
        const RESIZE = 0x4000;
        const _ = !0;
    }
}

/// The fixed fields of a checkpoint block. Field names are F2FS's.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // Field by field documented in the kernel's f2fs_fs.h, under the same names.
pub struct RawCheckpoint {
    pub checkpoint_ver: U64,
    pub user_block_count: U64,
    pub valid_block_count: U64,
    pub rsvd_segment_count: U32,
    pub overprov_segment_count: U32,
    pub free_segment_count: U32,
    pub cur_node_segno: [U32; LOG_SLOTS],
    pub cur_node_blkoff: [U16; LOG_SLOTS],
    pub cur_data_segno: [U32; LOG_SLOTS],
    pub cur_data_blkoff: [U16; LOG_SLOTS],
    pub ckpt_flags: U32,
    pub cp_pack_total_block_count: U32,
    pub cp_pack_start_sum: U32,
    pub valid_node_count: U32,
    pub valid_inode_count: U32,
    pub next_free_nid: U32,
    pub sit_ver_bitmap_bytesize: U32,
    pub nat_ver_bitmap_bytesize: U32,
    pub checksum_offset: U32,
    pub elapsed_time: U64,
    pub alloc_type: [u8; 16],
}

/// An orphan block: inodes without links that were still open.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawOrphanBlock {
    pub ino: [U32; ORPHANS_PER_BLOCK],
    pub reserved: U32,
    pub blk_addr: U16,
    pub blk_count: U16,
    pub entry_count: U32,
    pub check_sum: U32,
}

const _: () = {
    assert!(size_of::<RawCheckpoint>() == BITMAP_OFFSET);
    assert!(core::mem::offset_of!(RawCheckpoint, ckpt_flags) == 132);
    assert!(core::mem::offset_of!(RawCheckpoint, checksum_offset) == 164);
    assert!(core::mem::offset_of!(RawCheckpoint, alloc_type) == 176);
    assert!(size_of::<RawOrphanBlock>() == super::BLOCK_SIZE);
};

impl RawCheckpoint {
    /// The flags of the pack.
    pub fn flags(&self) -> CheckpointFlags {
        CheckpointFlags::from_bits_retain(self.ckpt_flags.get())
    }

    /// `cp_ver` of nodes written behind a checkpoint with this checksum: the version, and the checksum above it where the flags say so.
    pub fn node_version(&self, checksum: u32) -> u64 {
        let version = self.checkpoint_ver.get();
        if self.flags().contains(CheckpointFlags::CRC_RECOVERY) { version | u64::from(checksum) << 32 } else { version }
    }
}
