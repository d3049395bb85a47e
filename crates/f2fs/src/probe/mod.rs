//! What a device holds, told by the numbers every format leaves at a fixed place: so that mkfs does not destroy somebody's data without
//! being told to, and so that whoever finds no volume is not sent there.

mod traces;

use basalt_device::BlockDevice;

pub use crate::content::Content;
use crate::error::{Error, Result};
use crate::layout::{BLOCK_BITS, BLOCK_SIZE};
use traces::Traces;

/// One way to recognise a format: bytes at an offset; a negative offset counts from the end of the device.
struct Signature {
    name: &'static str,
    offset: i64,
    bytes: &'static [u8],
}

const fn at(name: &'static str, offset: i64, bytes: &'static [u8]) -> Signature {
    Signature { name, offset, bytes }
}

/// Bytes at the start that hold every signature but those of [`FAR`].
const HEAD: usize = 68 << 10;

/// Signatures that decide by themselves. File systems first, because some keep a boot sector that looks like a partition table.
const SIGNATURES: &[Signature] = &[
    at("f2fs", 1024, b"\x10\x20\xF5\xF2"),
    at("f2fs", 4096 + 1024, b"\x10\x20\xF5\xF2"),
    at("xfs", 0, b"XFSB"),
    at("btrfs", 65_536 + 64, b"_BHRfS_M"),
    at("bcachefs or bcache", 4096 + 24, b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81"),
    at("bcachefs", 4096 + 24, b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9\xD9\x6A\x60\xCF\x80\x3D\xF7\xEF"),
    at("exfat", 3, b"EXFAT   "),
    at("ntfs", 3, b"NTFS    "),
    at("bitlocker", 3, b"-FVE-FS-"),
    at("vfat", 82, b"FAT32   "),
    at("vfat", 54, b"FAT16   "),
    at("vfat", 54, b"FAT12   "),
    at("vfat", 54, b"FAT     "),
    at("squashfs", 0, b"hsqs"),
    at("erofs", 1024, b"\xE2\xE1\xF5\xE0"),
    at("iso9660", 32_769, b"CD001"),
    at("udf", 32_769, b"BEA01"),
    at("nilfs2", 1024 + 6, b"\x34\x34"),
    at("LUKS", 0, b"LUKS\xBA\xBE"),
    at("LUKS", 16_384, b"SKUL\xBA\xBE"),
    at("LVM2 physical volume", 512, b"LABELONE"),
    at("LVM2 physical volume", 0, b"LABELONE"),
    at("LVM2 physical volume", 1024, b"LABELONE"),
    at("LVM2 physical volume", 1536, b"LABELONE"),
    at("swap", 4086, b"SWAPSPACE2"),
    at("swap", 4086, b"SWAP-SPACE"),
    at("swap", 16_374, b"SWAPSPACE2"),
    at("swap", 65_526, b"SWAPSPACE2"),
    at("suspended system (swap)", 4086, b"S1SUSPEND"),
    at("jfs", 32_768, b"JFS1"),
    at("reiserfs", 65_536 + 52, b"ReIsErFs"),
    at("reiserfs", 65_536 + 52, b"ReIsEr2Fs"),
    at("ufs", 8192 + 1372, b"\x54\x19\x01\x00"),
    at("ufs", 65_536 - 8192 + 8192 + 1372, b"\x19\x01\x54\x19"),
    at("hfs", 1024, b"BD"),
    at("hfsplus", 1024, b"H+\x00\x04"),
    at("hfsplus", 1024, b"HX\x00\x05"),
    at("apfs", 32, b"NXSB"),
    at("ocfs2", 8192, b"OCFSV2"),
    at("gfs2", 65_536, b"\x01\x16\x19\x70"),
    at("minix", 1024 + 16, b"\x7F\x13"),
    at("minix", 1024 + 16, b"\x8F\x13"),
    at("minix", 1024 + 16, b"\x68\x24"),
    at("minix", 1024 + 16, b"\x78\x24"),
    at("minix", 1024 + 24, b"\x5A\x4D"),
    at("cramfs", 0, b"\x45\x3D\xCD\x28"),
    at("ubi", 0, b"UBI#"),
    at("ubifs", 0, b"\x31\x18\x10\x06"),
    at("jffs2", 0, b"\x85\x19\x03\x20"),
    at("flashlight", 20, b"FLASHLIT"),
    at("Linux RAID member", 4096, b"\xFC\x4E\x2B\xA9"),
    at("Linux RAID member", 0, b"\xFC\x4E\x2B\xA9"),
    at("VDO", 0, b"dmvdo001"),
    at("Ceph BlueStore", 0, b"bluestore block device"),
    at("GPT partition table", 512, b"EFI PART"),
    at("GPT partition table", 4096, b"EFI PART"),
];

/// Signatures at the end of the device.
const FAR: &[Signature] =
    &[at("GPT partition table (backup)", -512, b"EFI PART"), at("GPT partition table (backup)", -4096, b"EFI PART")];

/// ZFS writes its uberblocks, one a KiB (or a sector), behind each label's first 128 KiB.
const ZFS_UBERBLOCKS: std::ops::Range<usize> = 128 << 10..256 << 10;
/// An uberblock's magic number, in either byte order.
const ZFS_MAGIC: [[u8; 8]; 2] = [*b"\x0C\xB1\xBA\x00\x00\x00\x00\x00", *b"\x00\x00\x00\x00\x00\xBA\xB1\x0C"];

/// The name of the file system, volume or partition table on the device, or `None` if nothing known is on it.
///
/// # Errors
/// Only if the device cannot be read.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<&'static str>> {
    let head = read_up_to(device, 0, HEAD)?;
    let found = SIGNATURES.iter().find(|signature| matches(&head, signature)).map(|signature| signature.name);
    if let Some(name) = found.or_else(|| ext_version(&head)) {
        return Ok(Some(name));
    }
    for signature in FAR {
        // FAR's offsets are small and negative.
        let Some(start) = device.size().checked_sub(signature.offset.unsigned_abs()) else {
            continue;
        };
        if read_up_to(device, start, signature.bytes.len())? == signature.bytes {
            return Ok(Some(signature.name));
        }
    }
    if has_zfs_label(device)? {
        return Ok(Some("zfs"));
    }
    Ok(has_partitions(&head).then_some("MBR partition table"))
}

fn matches(head: &[u8], signature: &Signature) -> bool {
    // Offsets of SIGNATURES are positive and below HEAD.
    let start = signature.offset.unsigned_abs() as usize;
    head.get(start..start + signature.bytes.len()) == Some(signature.bytes)
}

/// Reads `length` bytes, or fewer at the end of the device.
fn read_up_to(device: &dyn BlockDevice, start: u64, length: usize) -> Result<Vec<u8>> {
    let left = device.size().saturating_sub(start);
    let mut bytes = vec![0; length.min(usize::try_from(left).unwrap_or(usize::MAX))];
    device.read_at(start, &mut bytes)?;
    Ok(bytes)
}

/// Tells ext2, ext3 and ext4 apart by their feature bits.
fn ext_version(head: &[u8]) -> Option<&'static str> {
    const HAS_JOURNAL: u32 = 0x4;
    /// What ext3 knows: filetype, recover, journal device, meta block groups.
    const EXT3_INCOMPATIBLE: u32 = 0x1E;
    let superblock = head.get(1024..2048)?;
    let word =
        |at: usize| u32::from_le_bytes([superblock[at], superblock[at + 1], superblock[at + 2], superblock[at + 3]]);
    if superblock[56..58] != *b"\x53\xEF" {
        return None;
    }
    let (compatible, incompatible) = (word(92), word(96));
    Some(if incompatible & !EXT3_INCOMPATIBLE != 0 {
        "ext4"
    } else if compatible & HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    })
}

fn has_zfs_label(device: &dyn BlockDevice) -> Result<bool> {
    let label = read_up_to(device, 0, ZFS_UBERBLOCKS.end)?;
    let uberblocks = label.get(ZFS_UBERBLOCKS).unwrap_or_default();
    Ok(uberblocks.chunks_exact(1024).any(|block| ZFS_MAGIC.iter().any(|magic| block.starts_with(magic))))
}

/// A boot sector whose partition table names at least one partition, and nothing impossible.
fn has_partitions(head: &[u8]) -> bool {
    let Some(table) = head.get(446..512) else {
        return false;
    };
    let (entries, mark) = table.split_at(64);
    let plausible = |entry: &[u8]| matches!(entry[0], 0 | 0x80);
    mark == b"\x55\xAA"
        && entries.chunks_exact(16).all(plausible)
        && entries.chunks_exact(16).any(|entry| entry[4] != 0)
}

/// What a device holds that has no usable F2FS superblock, as far as some reads tell: at most 88 MiB.
pub fn identify(device: &dyn BlockDevice) -> Content {
    let bytes = device.size();
    let other = match probe(device) {
        // A copy that is there but cannot be used.
        Ok(Some("f2fs")) | Ok(None) => None,
        Ok(other) => other,
        Err(_) => return Content::Unreadable,
    };
    let traces = Traces::gather(device);
    let shift = traces.shift();
    let was_f2fs = traces.checkpoints > 0 || shift.is_some();
    match (other, shift) {
        (Some(name), _) => Content::Other { name, was_f2fs },
        (None, Some(shift)) if shift > 0 && traces.checkpoints == 0 => {
            Content::Part { blocks_before: u32::try_from(shift).unwrap_or(u32::MAX) }
        }
        (None, Some(shift)) if shift < 0 => Content::Shifted { offset: shift.unsigned_abs() << BLOCK_BITS },
        _ if was_f2fs => Content::Headless,
        _ if bytes == 0 => Content::Empty,
        _ if traces.is_zero && bytes >= BLOCK_SIZE as u64 => {
            if traces.is_whole {
                Content::Empty
            } else {
                Content::Zeros
            }
        }
        _ if bytes < 2 * BLOCK_SIZE as u64 => Content::Short { bytes },
        _ => Content::Unknown,
    }
}

/// The error for a device that holds no F2FS volume, with what it holds instead.
pub(crate) fn not_f2fs(device: &dyn BlockDevice) -> Error {
    Error::NotF2fs { device: device.name().into(), content: identify(device) }
}

#[cfg(test)]
mod tests;
