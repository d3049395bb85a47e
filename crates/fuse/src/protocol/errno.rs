//! The error number that a program sees for each error of a file system.

use basalt_vfs::ErrorKind;
use rustix::io::Errno;

/// What the kernel hands to the program for an error of this kind.
#[must_use]
pub const fn errno(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::Exists => Errno::EXIST,
        ErrorKind::NotDirectory => Errno::NOTDIR,
        ErrorKind::IsDirectory => Errno::ISDIR,
        ErrorKind::NotEmpty => Errno::NOTEMPTY,
        ErrorKind::NameTooLong | ErrorKind::PathTooLong => Errno::NAMETOOLONG,
        ErrorKind::TooManySymlinks => Errno::LOOP,
        ErrorKind::NotOpen => Errno::BADF,
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::NotText => Errno::ILSEQ,
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::FileTooLarge => Errno::FBIG,
        ErrorKind::TooManyLinks => Errno::MLINK,
        ErrorKind::ReadOnly => Errno::ROFS,
        ErrorKind::NotPermitted => Errno::PERM,
        ErrorKind::Access => Errno::ACCESS,
        ErrorKind::NoAttribute => Errno::NODATA,
        ErrorKind::OtherProject => Errno::XDEV,
        ErrorKind::Range => Errno::RANGE,
        ErrorKind::TooBig => Errno::TOOBIG,
        ErrorKind::NotSupported => Errno::OPNOTSUPP,
        ErrorKind::NoData => Errno::NXIO,
        ErrorKind::Busy => Errno::BUSY,
        ErrorKind::Stale => Errno::STALE,
        ErrorKind::Corrupted => Errno::UCLEAN,
        ErrorKind::Io => Errno::IO,
        ErrorKind::OutOfMemory => Errno::NOMEM,
    }
}

#[cfg(test)]
mod tests {
    use basalt_vfs::Error;

    use super::*;

    /// Each error with its number as Linux's `errno-base.h` and `errno.h` have it.
    fn table() -> Vec<(Error, i32)> {
        vec![
            (Error::NotFound, 2),
            (Error::Exists, 17),
            (Error::NotDirectory, 20),
            (Error::IsDirectory, 21),
            (Error::NotEmpty, 39),
            (Error::NameTooLong, 36),
            (Error::PathTooLong, 36),
            (Error::TooManySymlinks, 40),
            (Error::NotOpen("for writing"), 9),
            (Error::Invalid("flags"), 22),
            (Error::NotText, 84),
            (Error::NoSpace, 28),
            (Error::FileTooLarge, 27),
            (Error::TooManyLinks, 31),
            (Error::ReadOnly, 30),
            (Error::NotPermitted("immutable"), 1),
            (Error::Access, 13),
            (Error::NoAttribute, 61),
            (Error::OtherProject, 18),
            (Error::Range, 34),
            (Error::TooBig, 7),
            (Error::NotSupported("holes"), 95),
            (Error::NoData, 6),
            (Error::Busy, 16),
            (Error::Stale, 116),
            (Error::Corrupted("inode 5".to_owned()), 117),
            (Error::Io("write failed".to_owned()), 5),
            (Error::OutOfMemory, 12),
        ]
    }

    #[test]
    fn every_error_has_its_number() {
        let table = table();
        let kinds: Vec<ErrorKind> = table.iter().map(|(error, _)| error.kind()).collect();
        assert_eq!(kinds, ErrorKind::ALL);
        for (error, number) in &table {
            assert_eq!(errno(error.kind()).raw_os_error(), *number, "{error}");
        }
        // A name and a path that are too long are one number for programs.
        let distinct: std::collections::BTreeSet<i32> = table.iter().map(|(_, number)| *number).collect();
        assert_eq!(distinct.len(), table.len() - 1);
    }

    #[test]
    fn by_path_and_by_a_mount_programs_see_the_same_kind() {
        // No request of a mount fails because a file is no text.
        for (error, number) in table().into_iter().filter(|(error, _)| error.kind() != ErrorKind::NotText) {
            let by_path = std::io::ErrorKind::from(error.kind());
            let mounted = std::io::Error::from_raw_os_error(number).kind();
            // Kinds that the standard library has no stable name for are `Other`.
            let has_name = !matches!(format!("{mounted:?}").as_str(), "Uncategorized" | "FilesystemLoop");
            assert_eq!(by_path, if has_name { mounted } else { std::io::ErrorKind::Other }, "{error}");
        }
    }
}
