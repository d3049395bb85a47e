//! Which features are served, read only or not at all. Source: f2fs-format, section 5.

use basalt_device::BlockDevice;

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::superblock::Features;

/// Features that Basalt reads and writes.
pub const WRITABLE: Features = Features::EXTRA_ATTR
    .union(Features::INODE_CHECKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::LOST_FOUND)
    .union(Features::SB_CHECKSUM)
    .union(Features::ENCRYPT)
    .union(Features::VERITY)
    .union(Features::QUOTA_INO)
    .union(Features::PROJECT_QUOTA);

/// Features whose volumes are refused: their blocks are not where Basalt would look.
const REFUSED: Features = Features::BLKZONED.union(Features::DEVICE_ALIAS).union(Features::PACKED_SSA);

/// Fails for volumes that Basalt cannot even read.
pub fn expect_served(geometry: &Geometry, device: &dyn BlockDevice) -> Result<()> {
    let unsupported = |reason: String| Error::Unsupported { device: device.name().into(), reason };
    let refused = geometry.features.intersection(REFUSED);
    if !refused.is_empty() {
        return Err(unsupported(format!("feature {} is not served", names(refused))));
    }
    if geometry.superblock.devs[0].path[0] != 0 {
        return Err(unsupported("the volume spans several devices, which is not served".into()));
    }
    Ok(())
}

/// Why a volume may only be read, or `None`.
pub fn read_only_reason(geometry: &Geometry, flags: CheckpointFlags, device: &dyn BlockDevice) -> Option<String> {
    refuses_changes(geometry, flags).or_else(|| device.is_read_only().then(|| "the device is read-only".into()))
}

/// Why a volume may only be read on whatever device, or `None`.
pub fn refuses_changes(geometry: &Geometry, flags: CheckpointFlags) -> Option<String> {
    let unknown = geometry.features.difference(WRITABLE);
    if !unknown.is_empty() {
        return Some(format!("feature {}", names(unknown)));
    }
    if flags.intersects(CheckpointFlags::DISABLED | CheckpointFlags::RESIZE) {
        return Some("checkpoints are disabled, or a resize was cut off; let Linux finish it".into());
    }
    if flags.contains(CheckpointFlags::ERROR) {
        return Some("Linux gave this volume up after an error; run fsck first".into());
    }
    if flags.contains(CheckpointFlags::FSCK) {
        return Some("a check is wanted; run fsck first".into());
    }
    None
}

/// The names of features, as `mkfs.f2fs` spells them.
pub fn names(features: Features) -> String {
    const NAMES: [(Features, &str); 17] = [
        (Features::ENCRYPT, "encrypt"),
        (Features::BLKZONED, "blkzoned"),
        (Features::ATOMIC_WRITE, "atomic_write"),
        (Features::EXTRA_ATTR, "extra_attr"),
        (Features::PROJECT_QUOTA, "project_quota"),
        (Features::INODE_CHECKSUM, "inode_checksum"),
        (Features::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr"),
        (Features::QUOTA_INO, "quota"),
        (Features::INODE_CRTIME, "inode_crtime"),
        (Features::LOST_FOUND, "lost_found"),
        (Features::VERITY, "verity"),
        (Features::SB_CHECKSUM, "sb_checksum"),
        (Features::CASEFOLD, "casefold"),
        (Features::COMPRESSION, "compression"),
        (Features::READ_ONLY, "ro"),
        (Features::DEVICE_ALIAS, "device_alias"),
        (Features::PACKED_SSA, "packed_ssa"),
    ];
    let mut names: Vec<String> =
        NAMES.iter().filter(|(flag, _)| features.contains(*flag)).map(|(_, name)| (*name).to_owned()).collect();
    let known = NAMES.iter().fold(Features::empty(), |all, (flag, _)| all | *flag);
    let rest = features.difference(known);
    if !rest.is_empty() {
        names.push(format!("{:#x}", rest.bits()));
    }
    names.join(",")
}
