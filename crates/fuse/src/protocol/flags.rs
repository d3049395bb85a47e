//! The bits in the protocol's flag words.

use bitflags::bitflags;

/// Among the flags of an OPEN: the file is opened to be executed. Source: the kernel's `__FMODE_EXEC`.
pub const EXECUTE: u32 = 1 << 5;

bitflags! {
    /// What the kernel offers and the server accepts in INIT; bits 32 and up travel in `flags2`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct InitFlags: u64 {
        /// Several reads of one file at once.
        const ASYNC_READ = 1;
        /// `O_TRUNC` comes with OPEN instead of as a SETATTR behind it. Not to be accepted together with the writeback cache: the
        /// kernel sets its own size to 0 only some time after OPEN was answered (`fuse_do_setattr`), and forgets what another
        /// program wrote, and the kernel wrote back, meanwhile; the server keeps it.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// `.` and `..` can be looked up (for NFS and `open_by_handle_at`).
        const EXPORT_SUPPORT = 1 << 4;
        /// WRITEs larger than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask (it knows the default ACL).
        const DONT_MASK = 1 << 6;
        /// READDIRPLUS exists.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between READDIR and READDIRPLUS.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O in several requests at once.
        const ASYNC_DIO = 1 << 15;
        /// The kernel's page cache holds dirty pages, and keeps size, mtime and ctime of files.
        const WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS to OPEN means: opens always succeed, do not ask again.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings of one directory in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel checks and caches POSIX ACLs (and turns `default_permissions` on).
        const POSIX_ACL = 1 << 20;
        /// ECONNABORTED instead of ENODEV after an abort.
        const ABORT_ERROR = 1 << 21;
        /// The reply to INIT says how many pages a request may have.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links may be cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to OPENDIR means: opens always succeed, do not ask again.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The server clears set-uid and set-gid when told to.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has its longer structure.
        const SETXATTR_EXT = 1 << 29;
        /// INIT has `flags2`.
        const INIT_EXT = 1 << 30;
        /// What others may ask for.
        const _ = !0;
    }

    /// Which fields of [`SetattrIn`](super::wire::SetattrIn) count.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SetattrValid: u32 {
        /// `mode`.
        const MODE = 1;
        /// `uid`.
        const UID = 1 << 1;
        /// `gid`.
        const GID = 1 << 2;
        /// `size`.
        const SIZE = 1 << 3;
        /// `atime`.
        const ATIME = 1 << 4;
        /// `mtime`.
        const MTIME = 1 << 5;
        /// An open file; without `SIZE`, its times are written back.
        const FILE_HANDLE = 1 << 6;
        /// With `ATIME`: now, instead of the value.
        const ATIME_NOW = 1 << 7;
        /// With `MTIME`: now, instead of the value.
        const MTIME_NOW = 1 << 8;
        /// `ctime`.
        const CTIME = 1 << 10;
        /// Clear set-uid and set-gid.
        const KILL_SUIDGID = 1 << 11;
        /// Lock owner, of no use here.
        const _ = !0;
    }

    /// Flags of a WRITE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct WriteFlags: u32 {
        /// Written back from the kernel's page cache.
        const CACHE = 1;
        /// A lock owner is given: the write goes past the page cache.
        const LOCK_OWNER = 1 << 1;
        /// Clear set-uid and set-gid.
        const KILL_SUIDGID = 1 << 2;
        /// What newer kernels add.
        const _ = !0;
    }

    /// Flags of a READ.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ReadFlags: u32 {
        /// A lock owner is given: the read goes past the page cache.
        const LOCK_OWNER = 1 << 1;
        /// What newer kernels add.
        const _ = !0;
    }

    /// Flags of an OPEN or CREATE, beside those of `open(2)`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct OpenRequestFlags: u32 {
        /// Clear set-uid and set-gid (with `O_TRUNC`).
        const KILL_SUIDGID = 1;
        /// What newer kernels add.
        const _ = !0;
    }

    /// What the reply to an OPEN tells the kernel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct OpenReplyFlags: u32 {
        /// Reads and writes go past the page cache.
        const DIRECT_IO = 1 << 0;
        /// What the kernel has cached of the file is still right.
        const KEEP_CACHE = 1 << 1;
        /// Listings of the directory may be cached.
        const CACHE_DIR = 1 << 3;
        /// No flush when a descriptor is closed (counts only without the writeback cache).
        const NO_FLUSH = 1 << 5;
        /// Direct writes to one file may run in parallel.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}
