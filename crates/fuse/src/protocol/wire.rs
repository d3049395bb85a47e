//! The structures of the FUSE protocol, as `linux/fuse.h` declares them.
//!
//! Names follow the kernel's without the `fuse_` prefix; `In` comes from the kernel, `Out` goes to it. Fields that no
//! server uses are there for their place only.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares structures with their size in bytes, and checks it.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

wire! {
    /// Opens every request.
    InHeader: 40 {
        /// Length of the whole request in bytes, this header included.
        len: u32,
        /// Which operation.
        opcode: u32,
        /// Names the request; its reply repeats it.
        unique: u64,
        /// The inode the operation is about.
        node: u64,
        /// User id of the calling thread.
        uid: u32,
        /// Group id of the calling thread.
        gid: u32,
        /// Thread id of the caller; 0 for the kernel itself.
        pid: u32,
        /// Length of the extensions behind the arguments, in 8-byte units; only with features never asked for here.
        extensions: u16,
        /// Unused.
        padding: u16,
    }
    /// Opens every reply.
    OutHeader: 16 {
        /// Length of the whole reply in bytes, this header included.
        len: u32,
        /// 0, or an errno negated.
        error: i32,
        /// The request's `unique`.
        unique: u64,
    }
    /// INIT, its first 16 bytes; newer kernels send more, see [`InitFlags2In`].
    InitIn: 16 {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
        /// How far the kernel would read ahead, in bytes.
        max_readahead: u32,
        /// What the kernel offers, bits 0 to 31.
        flags: u32,
    }
    /// INIT, behind [`InitIn`] where its flags have `INIT_EXT`.
    InitFlags2In: 4 {
        /// What the kernel offers, bits 32 to 63.
        flags2: u32,
    }
    /// Reply to INIT.
    InitOut: 64 {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
        /// How far the kernel may read ahead, in bytes.
        max_readahead: u32,
        /// What the server accepts, bits 0 to 31.
        flags: u32,
        /// How many background requests (readahead, writeback) may be under way.
        max_background: u16,
        /// From how many on the kernel counts the server as congested.
        congestion_threshold: u16,
        /// Largest payload of a WRITE in bytes.
        max_write: u32,
        /// Granularity of times in nanoseconds.
        time_gran: u32,
        /// Largest payload of any request in pages.
        max_pages: u16,
        /// For DAX.
        map_alignment: u16,
        /// What the server accepts, bits 32 to 63.
        flags2: u32,
        /// For stacked file systems.
        max_stack_depth: u32,
        /// Seconds after which the kernel gives a request up; 0 for never.
        request_timeout: u16,
        /// Unused.
        unused: [u16; 11],
    }
    /// What `stat(2)` tells.
    Attr: 88 {
        /// Inode number as programs see it.
        ino: u64,
        /// Size in bytes.
        size: u64,
        /// Space taken in 512-byte sectors.
        blocks: u64,
        /// Seconds of the last read.
        atime: u64,
        /// Seconds of the last content change.
        mtime: u64,
        /// Seconds of the last attribute change.
        ctime: u64,
        /// Nanoseconds of `atime`.
        atimensec: u32,
        /// Nanoseconds of `mtime`.
        mtimensec: u32,
        /// Nanoseconds of `ctime`.
        ctimensec: u32,
        /// Kind and permissions.
        mode: u32,
        /// Hard links.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number.
        rdev: u32,
        /// Preferred size of an access in bytes.
        blksize: u32,
        /// For submounts and DAX.
        flags: u32,
    }
    /// Reply to whatever finds or makes an inode.
    EntryOut: 128 {
        /// The inode's node id; 0 says that the name does not exist (and for how long that holds).
        node: u64,
        /// Distinguishes inodes that had the same node id one after the other.
        generation: u64,
        /// Seconds for which the name may be cached.
        entry_valid: u64,
        /// Seconds for which the attributes may be cached.
        attr_valid: u64,
        /// Nanoseconds of `entry_valid`.
        entry_valid_nsec: u32,
        /// Nanoseconds of `attr_valid`.
        attr_valid_nsec: u32,
        /// The attributes.
        attr: Attr,
    }
    /// Reply to GETATTR and SETATTR.
    AttrOut: 104 {
        /// Seconds for which the attributes may be cached.
        attr_valid: u64,
        /// Nanoseconds of `attr_valid`.
        attr_valid_nsec: u32,
        /// Unused.
        dummy: u32,
        /// The attributes.
        attr: Attr,
    }
    /// FORGET.
    ForgetIn: 8 {
        /// How many references go.
        count: u64,
    }
    /// BATCH_FORGET, followed by `count` of [`ForgetOne`].
    BatchForgetIn: 8 {
        /// How many inodes.
        count: u32,
        /// Unused.
        dummy: u32,
    }
    /// One inode of a BATCH_FORGET.
    ForgetOne: 16 {
        /// The inode's node id.
        node: u64,
        /// How many references go.
        count: u64,
    }
    /// STATX.
    StatxIn: 24 {
        /// Whether `fh` counts.
        getattr_flags: u32,
        /// Unused.
        reserved: u32,
        /// The open file.
        fh: u64,
        /// Flags of `statx(2)`.
        flags: u32,
        /// Mask of `statx(2)`.
        mask: u32,
    }
    /// A time of `statx(2)`.
    StatxTime: 16 {
        /// Seconds since the epoch.
        seconds: i64,
        /// Nanoseconds.
        nanoseconds: u32,
        /// Unused.
        reserved: i32,
    }
    /// What `statx(2)` tells.
    Statx: 256 {
        /// Which fields are filled.
        mask: u32,
        /// Preferred size of an access in bytes.
        blksize: u32,
        /// Attribute bits that are set.
        attributes: u64,
        /// Hard links.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Kind and permissions.
        mode: u16,
        /// Unused.
        spare0: u16,
        /// Inode number.
        ino: u64,
        /// Size in bytes.
        size: u64,
        /// Space taken in 512-byte sectors.
        blocks: u64,
        /// Attribute bits that mean something here.
        attributes_mask: u64,
        /// Last read.
        atime: StatxTime,
        /// Creation.
        btime: StatxTime,
        /// Last attribute change.
        ctime: StatxTime,
        /// Last content change.
        mtime: StatxTime,
        /// Major device number of a device node.
        rdev_major: u32,
        /// Minor device number of a device node.
        rdev_minor: u32,
        /// Filled by the kernel.
        dev_major: u32,
        /// Filled by the kernel.
        dev_minor: u32,
        /// Unused.
        spare2: [u64; 14],
    }
    /// Reply to STATX.
    StatxOut: 288 {
        /// Seconds for which the attributes may be cached.
        attr_valid: u64,
        /// Nanoseconds of `attr_valid`.
        attr_valid_nsec: u32,
        /// Unused.
        flags: u32,
        /// Unused.
        spare: [u64; 2],
        /// The answer.
        stat: Statx,
    }
    /// SETATTR.
    SetattrIn: 88 {
        /// Which fields count, see [`SetattrValid`](super::flags::SetattrValid).
        valid: u32,
        /// Unused.
        padding: u32,
        /// The open file.
        fh: u64,
        /// New size in bytes.
        size: u64,
        /// Unused.
        lock_owner: u64,
        /// Seconds of the new last-read time.
        atime: u64,
        /// Seconds of the new content-change time.
        mtime: u64,
        /// Seconds of the new attribute-change time.
        ctime: u64,
        /// Nanoseconds of `atime`.
        atimensec: u32,
        /// Nanoseconds of `mtime`.
        mtimensec: u32,
        /// Nanoseconds of `ctime`.
        ctimensec: u32,
        /// New mode.
        mode: u32,
        /// Unused.
        unused4: u32,
        /// New owner.
        uid: u32,
        /// New group.
        gid: u32,
        /// Unused.
        unused5: u32,
    }
    /// MKNOD, followed by the name.
    MknodIn: 16 {
        /// Kind and permissions.
        mode: u32,
        /// Device number.
        rdev: u32,
        /// The caller's umask.
        umask: u32,
        /// Unused.
        padding: u32,
    }
    /// MKDIR, followed by the name.
    MkdirIn: 8 {
        /// Permissions.
        mode: u32,
        /// The caller's umask.
        umask: u32,
    }
    /// RENAME, followed by the old and the new name.
    RenameIn: 8 {
        /// The new parent.
        new_parent: u64,
    }
    /// RENAME2, followed by the old and the new name.
    Rename2In: 16 {
        /// The new parent.
        new_parent: u64,
        /// Flags of `renameat2(2)`.
        flags: u32,
        /// Unused.
        padding: u32,
    }
    /// LINK, followed by the new name.
    LinkIn: 8 {
        /// The inode that gets the name; the header names the directory.
        node: u64,
    }
    /// OPEN and OPENDIR.
    OpenIn: 8 {
        /// Flags of `open(2)`, without those that the kernel serves by itself.
        flags: u32,
        /// See [`OpenRequestFlags`](super::flags::OpenRequestFlags).
        open_flags: u32,
    }
    /// RELEASE.
    ReleaseIn: 24 {
        /// The open file.
        fh: u64,
        /// Flags of `open(2)`.
        flags: u32,
        /// Unused.
        release_flags: u32,
        /// Unused.
        lock_owner: u64,
    }
    /// CREATE and TMPFILE, followed by the name.
    CreateIn: 16 {
        /// Flags of `open(2)`.
        flags: u32,
        /// Kind and permissions.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// See [`OpenRequestFlags`](super::flags::OpenRequestFlags).
        open_flags: u32,
    }
    /// Reply to OPEN and OPENDIR; behind [`EntryOut`] in the reply to CREATE and TMPFILE.
    OpenOut: 16 {
        /// The server's handle.
        fh: u64,
        /// See [`OpenReplyFlags`](super::flags::OpenReplyFlags).
        open_flags: u32,
        /// For passthrough.
        backing_id: i32,
    }
    /// READ, READDIR and READDIRPLUS.
    ReadIn: 40 {
        /// The open file.
        fh: u64,
        /// Where to start: a byte offset, or a directory cursor.
        offset: u64,
        /// Largest reply in bytes.
        size: u32,
        /// See [`ReadFlags`](super::flags::ReadFlags).
        read_flags: u32,
        /// Unused.
        lock_owner: u64,
        /// Flags of `open(2)`.
        flags: u32,
        /// Unused.
        padding: u32,
    }
    /// WRITE, followed by the data.
    WriteIn: 40 {
        /// The open file.
        fh: u64,
        /// Byte offset.
        offset: u64,
        /// Length of the data in bytes.
        size: u32,
        /// See [`WriteFlags`](super::flags::WriteFlags).
        write_flags: u32,
        /// Unused.
        lock_owner: u64,
        /// Flags of `open(2)`.
        flags: u32,
        /// Unused.
        padding: u32,
    }
    /// Reply to WRITE and COPY_FILE_RANGE.
    WriteOut: 8 {
        /// Bytes written.
        size: u32,
        /// Unused.
        padding: u32,
    }
    /// Reply to STATFS.
    StatfsOut: 80 {
        /// Blocks for users.
        blocks: u64,
        /// Free blocks.
        bfree: u64,
        /// Free blocks for unprivileged users.
        bavail: u64,
        /// Inodes that can exist.
        files: u64,
        /// Inodes that can still be made.
        ffree: u64,
        /// Preferred size of an access in bytes.
        bsize: u32,
        /// Longest name in bytes.
        namelen: u32,
        /// Size of a block in bytes.
        frsize: u32,
        /// Unused.
        padding: u32,
        /// Unused.
        spare: [u32; 6],
    }
    /// GETATTR.
    GetattrIn: 16 {
        /// Bit 0: asked through an open file.
        flags: u32,
        /// Unused.
        dummy: u32,
        /// The open file.
        fh: u64,
    }
    /// FSYNC and FSYNCDIR.
    FsyncIn: 16 {
        /// The open file.
        fh: u64,
        /// Bit 0: data only.
        flags: u32,
        /// Unused.
        padding: u32,
    }
    /// SETXATTR, followed by the name and the value.
    SetxattrIn: 8 {
        /// Length of the value in bytes.
        size: u32,
        /// Flags of `setxattr(2)`.
        flags: u32,
    }
    /// SETXATTR, between [`SetxattrIn`] and the name where `SETXATTR_EXT` was agreed.
    SetxattrExtraIn: 8 {
        /// Bit 0: clear set-gid, a process outside the group changes the ACL.
        flags: u32,
        /// Unused.
        padding: u32,
    }
    /// GETXATTR (followed by the name) and LISTXATTR.
    GetxattrIn: 8 {
        /// Largest reply in bytes; 0 asks for the length only.
        size: u32,
        /// Unused.
        padding: u32,
    }
    /// Reply to GETXATTR and LISTXATTR that asked for the length.
    GetxattrOut: 8 {
        /// Length in bytes.
        size: u32,
        /// Unused.
        padding: u32,
    }
    /// FALLOCATE.
    FallocateIn: 32 {
        /// The open file.
        fh: u64,
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Mode of `fallocate(2)`.
        mode: u32,
        /// Unused.
        padding: u32,
    }
    /// LSEEK.
    LseekIn: 24 {
        /// The open file.
        fh: u64,
        /// Byte offset.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
        /// Unused.
        padding: u32,
    }
    /// Reply to LSEEK.
    LseekOut: 8 {
        /// Byte offset.
        offset: u64,
    }
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    CopyFileRangeIn: 56 {
        /// The open source.
        fh_in: u64,
        /// Byte offset in the source; the header names the inode.
        offset_in: u64,
        /// The target's node id.
        node_out: u64,
        /// The open target.
        fh_out: u64,
        /// Byte offset in the target.
        offset_out: u64,
        /// Length in bytes.
        length: u64,
        /// Always 0.
        flags: u64,
    }
    /// Reply to COPY_FILE_RANGE_64.
    CopyFileRangeOut: 8 {
        /// Bytes copied.
        size: u64,
    }
    /// IOCTL, followed by the input bytes.
    IoctlIn: 32 {
        /// The open file.
        fh: u64,
        /// Whether the caller is a 32-bit program, and whether the inode is a directory.
        flags: u32,
        /// The command.
        command: u32,
        /// The caller's argument, as a number.
        argument: u64,
        /// Length of the input in bytes.
        in_size: u32,
        /// Largest output in bytes.
        out_size: u32,
    }
    /// Reply to IOCTL, followed by the output bytes.
    IoctlOut: 16 {
        /// What `ioctl(2)` returns.
        result: i32,
        /// For unrestricted ioctls.
        flags: u32,
        /// For unrestricted ioctls.
        in_iovs: u32,
        /// For unrestricted ioctls.
        out_iovs: u32,
    }
    /// Notification that the kernel shall write back and drop what it has cached of an inode, or its attributes alone.
    InvalInodeOut: 24 {
        /// The inode's node id.
        node: u64,
        /// First byte, or negative for the attributes alone.
        offset: i64,
        /// Length in bytes, 0 for all.
        length: i64,
    }
    /// One entry in the reply to READDIR, followed by the name and padding to 8 bytes; in READDIRPLUS an
    /// [`EntryOut`] goes before it.
    Dirent: 24 {
        /// Inode number.
        ino: u64,
        /// Cursor behind this entry.
        offset: u64,
        /// Length of the name in bytes.
        name_len: u32,
        /// Kind, as `d_type`.
        kind: u32,
    }
}
