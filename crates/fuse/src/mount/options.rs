//! How to mount.

use std::path::PathBuf;
use std::time::Duration;

/// For how long the kernel may keep what no one else changes.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// How to mount; [`new`](Self::new) gives the defaults.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Where.
    pub mountpoint: PathBuf,
    /// What `findmnt` and `df` show as the source, for mounts without a block device.
    pub source: String,
    /// The block device: mounts as `fuseblk`, where sync(2), syncfs(2) and umount(2) wait for the volume (root only).
    /// The kernel opens it exclusively: whoever opened it with `O_EXCL` must have let go.
    pub block_device: Option<PathBuf>,
    /// Block size of a `fuseblk` mount in bytes: a power of two, from 512 to the host's page size.
    pub block_size: u32,
    /// Refuse whatever would change the volume.
    pub read_only: bool,
    /// Let other users in (root's mounts: default true).
    pub allow_other: bool,
    /// Let the kernel check permissions by owner, mode and ACL (default true). Nobody else checks them: without it, everybody
    /// who is let in may do everything, and ACLs are neither read nor inherited by the kernel.
    pub default_permissions: bool,
    /// Never note reads. The file system notes them, so it must be told as well.
    pub noatime: bool,
    /// Never note listings.
    pub nodiratime: bool,
    /// Note reads only where they tell something new (the kernel's default).
    pub relatime: bool,
    /// Ignore set-uid and set-gid (always so without root).
    pub nosuid: bool,
    /// Ignore device nodes (always so without root).
    pub nodev: bool,
    /// Execute nothing.
    pub noexec: bool,
    /// Every write waits until it is durable.
    pub sync: bool,
    /// Every change of a directory waits until it is durable.
    pub dirsync: bool,
    /// Largest READ in bytes; `None` for the largest request.
    pub max_read: Option<u32>,
    /// How far the kernel reads ahead, in bytes (root only; default 1 MiB).
    pub read_ahead: u32,
    /// Event loops, at most: each is started when requests that wait (fsync, mostly) keep all there are, so that as many fsyncs share
    /// a flush (default 32). As many as there are processors, from 2 to 8, work in parallel on what does not wait.
    pub threads: usize,
    /// During bursts of requests, keep idle processors from sleeping deeply: makes small requests several times faster where
    /// waking up is slow, as on virtual machines, and costs power as long as a burst lasts. Without the right to use
    /// `/dev/cpu_dma_latency` nothing happens (default true).
    pub wakeful: bool,
    /// Let the kernel's page cache hold dirty pages: small writes cost no round trip, and the kernel keeps mtime and
    /// size of files in memory (default true).
    pub writeback_cache: bool,
    /// Hand every read(2) and write(2) to the file system as it is, past the kernel's page cache: for files whose every
    /// request counts. Shared writable mappings of such files fail (default false; not together with `skip_open`).
    pub direct_io: bool,
    /// Let the kernel open files without asking. Saves a round trip an open, but then nobody refuses to open immutable
    /// and append-only files for writing, and with the writeback cache the writer learns of it only at fsync or close
    /// (default false).
    pub skip_open: bool,
    /// For how long names may be cached.
    pub entry_lifetime: Duration,
    /// For how long the absence of a name may be cached.
    pub negative_lifetime: Duration,
    /// For how long attributes may be cached.
    pub attribute_lifetime: Duration,
}

impl MountOptions {
    /// The defaults, for a volume that only this mount changes.
    pub fn new(mountpoint: impl Into<PathBuf>, source: impl Into<String>) -> Self {
        MountOptions {
            mountpoint: mountpoint.into(),
            source: source.into(),
            block_device: None,
            block_size: 4096,
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            default_permissions: true,
            noatime: false,
            nodiratime: false,
            relatime: false,
            nosuid: false,
            nodev: false,
            noexec: false,
            sync: false,
            dirsync: false,
            max_read: None,
            read_ahead: 1 << 20,
            threads: 32,
            wakeful: true,
            writeback_cache: true,
            direct_io: false,
            skip_open: false,
            entry_lifetime: LONG,
            negative_lifetime: LONG,
            attribute_lifetime: LONG,
        }
    }

    /// What the kernel and the helper both take, as option words.
    pub(super) fn common_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.default_permissions {
            words.push("default_permissions".to_owned());
        }
        if self.allow_other {
            words.push("allow_other".to_owned());
        }
        words.extend(self.max_read.map(|bytes| format!("max_read={bytes}")));
        words
    }
}
