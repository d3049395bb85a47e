//! Attributes and times as the protocol has them.

use std::time::Duration;

use basalt_vfs::{Attributes, FileKind, InodeFlags, SetAttributes, SetTime, Time};

use crate::protocol::flags::SetattrValid;
use crate::protocol::wire::{Attr, SetattrIn, Statx, StatxTime};

/// Fields that `stat(2)` has, and the creation time, as `statx(2)` numbers them.
const STATX_BASIC: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
/// Attribute bits of `statx(2)`; the values are those of the `chattr(1)` flags.
const STATX_FLAGS: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND).union(InodeFlags::NODUMP);

/// What a SETATTR brings by which the kernel hands over times that it kept while a file was written to. No system call has these: those
/// that set times name no open file.
const WRITTEN_BACK: SetattrValid = SetattrValid::MTIME.union(SetattrValid::CTIME).union(SetattrValid::FILE_HANDLE);

/// `stat(2)`; `block_size` in bytes.
pub(super) fn attr(from: &Attributes, block_size: u32) -> Attr {
    Attr {
        ino: from.ino,
        size: from.size,
        blocks: from.sectors,
        atime: from.atime.seconds as u64,
        mtime: from.mtime.seconds as u64,
        ctime: from.ctime.seconds as u64,
        atimensec: from.atime.nanoseconds,
        mtimensec: from.mtime.nanoseconds,
        ctimensec: from.ctime.nanoseconds,
        mode: from.mode(),
        nlink: from.links,
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        blksize: block_size,
        flags: 0,
    }
}

/// `statx(2)`; `block_size` in bytes.
pub(super) fn statx(from: &Attributes, block_size: u32) -> Statx {
    let (rdev_major, rdev_minor) = device_numbers(from.rdev);
    Statx {
        mask: STATX_BASIC | if from.crtime.is_some() { STATX_BTIME } else { 0 },
        blksize: block_size,
        attributes: u64::from((from.flags & STATX_FLAGS).bits()),
        attributes_mask: u64::from(STATX_FLAGS.bits()),
        nlink: from.links,
        uid: from.uid,
        gid: from.gid,
        // Kind and permissions are 16 bits.
        mode: from.mode() as u16,
        ino: from.ino,
        size: from.size,
        blocks: from.sectors,
        atime: statx_time(from.atime),
        btime: statx_time(from.crtime.unwrap_or_default()),
        ctime: statx_time(from.ctime),
        mtime: statx_time(from.mtime),
        rdev_major,
        rdev_minor,
        ..Default::default()
    }
}

fn statx_time(time: Time) -> StatxTime {
    StatxTime { seconds: time.seconds, nanoseconds: time.nanoseconds, reserved: 0 }
}

/// Major and minor of a device number in the kernel's 32-bit encoding: 12 bits of major within 20 bits of minor.
fn device_numbers(rdev: u32) -> (u32, u32) {
    (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xf_ff00)
}

/// What a SETATTR changes.
pub(super) fn changes(arguments: &SetattrIn) -> SetAttributes {
    let valid = SetattrValid::from_bits_retain(arguments.valid);
    let field = |flag, value| valid.contains(flag).then_some(value);
    SetAttributes {
        permissions: field(SetattrValid::MODE, arguments.mode & 0o7777),
        uid: field(SetattrValid::UID, arguments.uid),
        gid: field(SetattrValid::GID, arguments.gid),
        size: valid.contains(SetattrValid::SIZE).then_some(arguments.size),
        atime: valid
            .contains(SetattrValid::ATIME)
            .then(|| set_time(valid.contains(SetattrValid::ATIME_NOW), arguments.atime, arguments.atimensec)),
        mtime: valid
            .contains(SetattrValid::MTIME)
            .then(|| set_time(valid.contains(SetattrValid::MTIME_NOW), arguments.mtime, arguments.mtimensec)),
        ctime: valid.contains(SetattrValid::CTIME).then(|| set_time(false, arguments.ctime, arguments.ctimensec)),
        clear_suid_sgid: valid.contains(SetattrValid::KILL_SUIDGID),
        is_due: valid == WRITTEN_BACK,
    }
}

fn set_time(now: bool, seconds: u64, nanoseconds: u32) -> SetTime {
    if now {
        return SetTime::Now;
    }
    // Seconds before the epoch come as two's complement.
    SetTime::To(Time { seconds: seconds as i64, nanoseconds: nanoseconds.min(999_999_999) })
}

/// A kind as `d_type`.
pub(super) fn dirent_kind(kind: FileKind) -> u32 {
    kind.mode_bits() >> 12
}

/// A lifetime as the protocol has it: seconds and nanoseconds.
pub(super) fn lifetime(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_taken_apart() {
        assert_eq!(device_numbers(0x0000_0801), (8, 1));
        assert_eq!(device_numbers(0x1230_4501), (0x45, 0x12301));
    }

    #[test]
    fn only_valid_fields_change() {
        let valid = (SetattrValid::MTIME | SetattrValid::ATIME | SetattrValid::ATIME_NOW | SetattrValid::MODE).bits();
        let arguments =
            SetattrIn { valid, mtime: -5_i64 as u64, mtimensec: 7, mode: 0o100_644, uid: 9, ..Default::default() };
        let changes = changes(&arguments);
        assert_eq!(changes.mtime, Some(SetTime::To(Time { seconds: -5, nanoseconds: 7 })));
        assert_eq!((changes.atime, changes.ctime), (Some(SetTime::Now), None));
        assert_eq!((changes.permissions, changes.uid, changes.size), (Some(0o644), None, None));
    }
}
