//! The table of operations: what each opcode is called and how its arguments are decoded.
//!
//! [`Operation`] is what the session answers; its `match` there is exhaustive, so an operation added here cannot be forgotten.

use super::request::Arguments;
use super::wire::{
    BatchForgetIn, CopyFileRangeIn, CreateIn, FallocateIn, ForgetIn, ForgetOne, FsyncIn, GetattrIn, GetxattrIn,
    InitFlags2In, InitIn, IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, Rename2In, RenameIn,
    SetattrIn, SetxattrExtraIn, SetxattrIn, WriteIn,
};
use crate::protocol::flags::InitFlags;

/// A request's operation with its arguments. Names are without their zero byte.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "variants are the protocol's operations, fields their arguments")]
pub enum Operation<'a> {
    Init {
        arguments: InitIn,
        flags: InitFlags,
    },
    Destroy,
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget(ForgetList<'a>),
    GetAttr {
        /// The handle of the open file for which the kernel asks, where it does not ask for `stat(2)`.
        by_file: Option<u64>,
    },
    Statx,
    SetAttr(SetattrIn),
    ReadLink,
    SymLink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MkNod {
        arguments: MknodIn,
        name: &'a [u8],
    },
    MkDir {
        arguments: MkdirIn,
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    RmDir {
        name: &'a [u8],
    },
    Rename {
        new_parent: u64,
        flags: u32,
        name: &'a [u8],
        new_name: &'a [u8],
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open(OpenIn),
    Read(ReadIn),
    Write {
        arguments: WriteIn,
        data: &'a [u8],
    },
    StatFs,
    Release {
        /// The handle that OPEN or CREATE was answered with.
        handle: u64,
    },
    Fsync {
        data_only: bool,
    },
    SetXattr(SetXattrBody<'a>),
    GetXattr {
        size: u32,
        name: &'a [u8],
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Flush,
    OpenDir,
    ReadDir(ReadIn),
    ReadDirPlus(ReadIn),
    ReleaseDir,
    FsyncDir {
        data_only: bool,
    },
    Create {
        arguments: CreateIn,
        name: &'a [u8],
    },
    TmpFile(CreateIn),
    Interrupt,
    Ioctl {
        arguments: IoctlIn,
        input: &'a [u8],
    },
    Fallocate(FallocateIn),
    Lseek(LseekIn),
    CopyFileRange(CopyFileRangeIn),
    CopyFileRange64(CopyFileRangeIn),
    SyncFs,
    /// Known by name, and left to the kernel's own way: ACCESS (the kernel checks permissions), file locks, BMAP, POLL.
    Declined,
    /// An opcode that this crate does not know.
    Unknown,
}

/// The inodes of a BATCH_FORGET.
#[derive(Debug, Clone, Copy)]
pub struct ForgetList<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl ForgetList<'_> {
    /// The inodes, at most as many as the message has bytes for.
    pub fn iter(&self) -> impl Iterator<Item = ForgetOne> {
        let mut arguments = Arguments(self.bytes);
        (0..self.count).map_while(move |_| arguments.take())
    }
}

/// The arguments of a SETXATTR; how long they are was agreed in INIT.
#[derive(Debug, Clone, Copy)]
pub struct SetXattrBody<'a>(&'a [u8]);

/// The decoded arguments of a SETXATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// The attribute's name with its prefix.
    pub name: &'a [u8],
    /// Its new value.
    pub value: &'a [u8],
    /// Flags of `setxattr(2)`.
    pub flags: u32,
    /// Clear set-gid: a process outside the group changes the ACL.
    pub clear_sgid: bool,
}

impl<'a> SetXattrBody<'a> {
    /// Decodes; `extended` says whether `SETXATTR_EXT` was agreed. `None` where the bytes are too short.
    pub fn decode(&self, extended: bool) -> Option<SetXattr<'a>> {
        let mut arguments = Arguments(self.0);
        let fixed: SetxattrIn = arguments.take()?;
        let extra = if extended { arguments.take()? } else { SetxattrExtraIn::default() };
        let name = arguments.name()?;
        let value = arguments.bytes(fixed.size)?;
        Some(SetXattr { name, value, flags: fixed.flags, clear_sgid: extra.flags & 1 != 0 })
    }
}

/// One line of the table.
struct Line {
    opcode: u32,
    name: &'static str,
    decode: for<'a> fn(&mut Arguments<'a>) -> Option<Operation<'a>>,
}

const fn line(
    opcode: u32,
    name: &'static str,
    decode: for<'a> fn(&mut Arguments<'a>) -> Option<Operation<'a>>,
) -> Line {
    Line { opcode, name, decode }
}

/// All operations, by opcode (sorted).
static TABLE: [Line; 53] = [
    line(1, "LOOKUP", |a| Some(Operation::Lookup { name: a.name()? })),
    line(2, "FORGET", |a| Some(Operation::Forget { count: a.take::<ForgetIn>()?.count })),
    line(3, "GETATTR", |a| {
        let GetattrIn { flags, fh, .. } = a.take()?;
        Some(Operation::GetAttr { by_file: (flags & 1 != 0).then_some(fh) })
    }),
    line(4, "SETATTR", |a| Some(Operation::SetAttr(a.take()?))),
    line(5, "READLINK", |_| Some(Operation::ReadLink)),
    line(6, "SYMLINK", |a| Some(Operation::SymLink { name: a.name()?, target: a.name()? })),
    line(8, "MKNOD", |a| Some(Operation::MkNod { arguments: a.take()?, name: a.name()? })),
    line(9, "MKDIR", |a| Some(Operation::MkDir { arguments: a.take()?, name: a.name()? })),
    line(10, "UNLINK", |a| Some(Operation::Unlink { name: a.name()? })),
    line(11, "RMDIR", |a| Some(Operation::RmDir { name: a.name()? })),
    line(12, "RENAME", |a| {
        let RenameIn { new_parent } = a.take()?;
        Some(Operation::Rename { new_parent, flags: 0, name: a.name()?, new_name: a.name()? })
    }),
    line(13, "LINK", |a| Some(Operation::Link { node: a.take::<LinkIn>()?.node, name: a.name()? })),
    line(14, "OPEN", |a| Some(Operation::Open(a.take()?))),
    line(15, "READ", |a| Some(Operation::Read(a.take()?))),
    line(16, "WRITE", |a| {
        let arguments: WriteIn = a.take()?;
        Some(Operation::Write { arguments, data: a.bytes(arguments.size)? })
    }),
    line(17, "STATFS", |_| Some(Operation::StatFs)),
    line(18, "RELEASE", |a| Some(Operation::Release { handle: a.take::<ReleaseIn>()?.fh })),
    line(20, "FSYNC", |a| Some(Operation::Fsync { data_only: a.take::<FsyncIn>()?.flags & 1 != 0 })),
    line(21, "SETXATTR", |a| Some(Operation::SetXattr(SetXattrBody(a.0)))),
    line(22, "GETXATTR", |a| Some(Operation::GetXattr { size: a.take::<GetxattrIn>()?.size, name: a.name()? })),
    line(23, "LISTXATTR", |a| Some(Operation::ListXattr { size: a.take::<GetxattrIn>()?.size })),
    line(24, "REMOVEXATTR", |a| Some(Operation::RemoveXattr { name: a.name()? })),
    line(25, "FLUSH", |_| Some(Operation::Flush)),
    line(26, "INIT", |a| {
        let arguments: InitIn = a.take()?;
        let low = InitFlags::from_bits_retain(u64::from(arguments.flags));
        let high = if low.contains(InitFlags::INIT_EXT) { a.take::<InitFlags2In>()?.flags2 } else { 0 };
        Some(Operation::Init { arguments, flags: low | InitFlags::from_bits_retain(u64::from(high) << 32) })
    }),
    line(27, "OPENDIR", |_| Some(Operation::OpenDir)),
    line(28, "READDIR", |a| Some(Operation::ReadDir(a.take()?))),
    line(29, "RELEASEDIR", |_| Some(Operation::ReleaseDir)),
    line(30, "FSYNCDIR", |a| Some(Operation::FsyncDir { data_only: a.take::<FsyncIn>()?.flags & 1 != 0 })),
    line(31, "GETLK", declined),
    line(32, "SETLK", declined),
    line(33, "SETLKW", declined),
    line(34, "ACCESS", declined),
    line(35, "CREATE", |a| Some(Operation::Create { arguments: a.take()?, name: a.name()? })),
    line(36, "INTERRUPT", |_| Some(Operation::Interrupt)),
    line(37, "BMAP", declined),
    line(38, "DESTROY", |_| Some(Operation::Destroy)),
    line(39, "IOCTL", |a| {
        let arguments: IoctlIn = a.take()?;
        Some(Operation::Ioctl { arguments, input: a.bytes(arguments.in_size)? })
    }),
    line(40, "POLL", declined),
    line(41, "NOTIFY_REPLY", declined),
    line(42, "BATCH_FORGET", |a| {
        let BatchForgetIn { count, .. } = a.take()?;
        Some(Operation::BatchForget(ForgetList { count, bytes: a.0 }))
    }),
    line(43, "FALLOCATE", |a| Some(Operation::Fallocate(a.take()?))),
    line(44, "READDIRPLUS", |a| Some(Operation::ReadDirPlus(a.take()?))),
    line(45, "RENAME2", |a| {
        let Rename2In { new_parent, flags, .. } = a.take()?;
        Some(Operation::Rename { new_parent, flags, name: a.name()?, new_name: a.name()? })
    }),
    line(46, "LSEEK", |a| Some(Operation::Lseek(a.take()?))),
    line(47, "COPY_FILE_RANGE", |a| Some(Operation::CopyFileRange(a.take()?))),
    line(48, "SETUPMAPPING", declined),
    line(49, "REMOVEMAPPING", declined),
    line(50, "SYNCFS", |_| Some(Operation::SyncFs)),
    line(51, "TMPFILE", |a| Some(Operation::TmpFile(a.take()?))),
    line(52, "STATX", |_| Some(Operation::Statx)),
    line(53, "COPY_FILE_RANGE_64", |a| Some(Operation::CopyFileRange64(a.take()?))),
    line(4096, "CUSE_INIT", declined),
    line(u32::MAX, "UNKNOWN", |_| Some(Operation::Unknown)),
];

fn declined<'a>(_: &mut Arguments<'a>) -> Option<Operation<'a>> {
    Some(Operation::Declined)
}

fn find(opcode: u32) -> &'static Line {
    let index = TABLE.binary_search_by_key(&opcode, |line| line.opcode);
    &TABLE[index.unwrap_or(TABLE.len() - 1)]
}

/// The protocol's name of an opcode, for messages.
pub fn name(opcode: u32) -> &'static str {
    find(opcode).name
}

/// Decodes the arguments of `opcode`; `None` where they are malformed.
pub(super) fn decode(opcode: u32, arguments: &[u8]) -> Option<Operation<'_>> {
    (find(opcode).decode)(&mut Arguments(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_without_doubles() {
        assert!(TABLE.windows(2).all(|pair| pair[0].opcode < pair[1].opcode));
    }

    #[test]
    fn opcodes_have_the_kernels_names() {
        for (opcode, expected) in [(1, "LOOKUP"), (26, "INIT"), (50, "SYNCFS"), (7, "UNKNOWN"), (54, "UNKNOWN")] {
            assert_eq!(name(opcode), expected);
        }
    }

    #[test]
    fn setxattr_is_read_in_both_sizes() {
        let old = [&[2, 0, 0, 0, 1, 0, 0, 0][..], b"user.a\0", b"xy"].concat();
        let new = [&[2, 0, 0, 0, 1, 0, 0, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0], b"user.a\0", b"xy"].concat();
        let expected = SetXattr { name: b"user.a", value: b"xy", flags: 1, clear_sgid: false };
        assert_eq!(SetXattrBody(&old).decode(false), Some(expected));
        assert_eq!(SetXattrBody(&new).decode(true), Some(SetXattr { clear_sgid: true, ..expected }));
    }
}
