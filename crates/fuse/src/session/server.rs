//! From an operation to the method that answers it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use basalt_vfs::{Caller, FallocateMode, FileSystem, InodeNumber};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::control::Control;
use super::handshake::Agreed;
use super::losses::Losses;
use super::nodes::Nodes;
use super::overwritten::Overwritten;
use super::programs::{Programs, WRITER};
use super::reply::{Answer, Failure, Reply};
use super::shortage::Shortage;
use crate::mount::{DirtyLimit, MountOptions};
use crate::protocol::flags::InitFlags;
use crate::protocol::wire::InHeader;
use crate::protocol::{self, Operation, Request, operation};

/// What to do with a request that has been carried out.
pub(super) enum Verdict {
    /// Send the reply.
    Reply,
    /// Send an error.
    Error(Errno),
    /// Send nothing: the kernel expects no reply.
    Silence,
}

/// A file system and what was agreed with the kernel; all threads share one.
pub(super) struct Server {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) nodes: Nodes,
    pub(super) agreed: Agreed,
    /// Bytes in a block of the volume: what `stat(2)` calls the preferred size of an access.
    pub(super) block_size: u32,
    pub(super) entry_lifetime: Duration,
    pub(super) negative_lifetime: Duration,
    attribute_lifetime: Duration,
    /// Whether reads and listings are all that the mount allows.
    pub(super) read_only: bool,
    /// Whether reads and writes go past the kernel's page cache.
    pub(super) direct_io: bool,
    /// Whether the kernel asks before it opens a file.
    asks_to_open: bool,
    /// Free space, and who has to be told that there is little.
    pub(super) shortage: Shortage,
    /// What the kernel handed over in vain.
    pub(super) losses: Losses,
    /// Files that are open for writing or for execution.
    pub(super) programs: Programs,
    /// Files that were written to directly.
    pub(super) overwritten: Overwritten,
    /// What others ask, and may know.
    pub(super) control: Arc<Control>,
    /// The outcome of closing, once it happened.
    closed: OnceLock<basalt_vfs::Result<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("nodes", &self.nodes).field("agreed", &self.agreed).finish_non_exhaustive()
    }
}

impl Server {
    /// A server before its handshake.
    pub(super) fn unconnected(fs: Arc<dyn FileSystem>, options: &MountOptions, limit: DirtyLimit) -> Self {
        let block_size = fs.stat_fs().map_or(4096, |stat| stat.block_size);
        Server {
            nodes: Nodes::new(fs.root()),
            fs,
            agreed: Agreed::NOTHING,
            block_size,
            entry_lifetime: options.entry_lifetime,
            negative_lifetime: options.negative_lifetime,
            attribute_lifetime: options.attribute_lifetime,
            read_only: options.read_only,
            direct_io: options.direct_io,
            losses: Losses::default(),
            asks_to_open: !options.skip_open,
            shortage: Shortage::new(limit),
            programs: Programs::default(),
            overwritten: Overwritten::default(),
            control: Arc::default(),
            closed: OnceLock::new(),
        }
    }

    /// Sets what the kernel may hold back by the size of the volume.
    pub(super) fn tune(&self) {
        if let Ok(stat) = self.fs.stat_fs() {
            self.shortage.tune(stat.blocks.saturating_mul(u64::from(stat.block_size)));
        }
    }

    pub(super) fn file_system(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Largest payload of a request in bytes.
    pub(super) fn max_payload(&self) -> usize {
        self.agreed.max_payload
    }

    /// For how long the kernel may trust attributes: not at all while there is little space, so that it asks before the first write to a
    /// file already that it learns of then.
    pub(super) fn attribute_lifetime(&self) -> Duration {
        if self.shortage.is_tight() && self.kernel_keeps_dirty_pages() {
            Duration::ZERO
        } else {
            self.attribute_lifetime
        }
    }

    /// The inode that a request's header names.
    pub(super) fn target(&self, header: &InHeader) -> InodeNumber {
        self.nodes.inode(header.node)
    }

    /// Whether the kernel's page cache holds dirty pages, and keeps times and sizes of files.
    pub(super) fn kernel_keeps_dirty_pages(&self) -> bool {
        self.agreed.flags.contains(InitFlags::WRITEBACK_CACHE)
    }

    /// Closes the file system the first time; every caller waits for that and gets its outcome.
    pub(super) fn close(&self) -> Result<(), &basalt_vfs::Error> {
        self.control.end();
        let close = || catch_unwind(AssertUnwindSafe(|| self.fs.close()));
        let panicked = |_| Err(basalt_vfs::Error::Io("the file system panicked".to_owned()));
        let outcome = self.closed.get_or_init(|| close().unwrap_or_else(panicked));
        outcome.as_ref().map(|&()| ())
    }

    /// Whether an open file, by its handle, is open for writing. Where the kernel opens files without asking, each may be.
    fn is_writer(&self, handle: Option<u64>) -> bool {
        handle.is_some_and(|handle| handle == WRITER || !self.asks_to_open)
    }

    /// Whether the kernel shall write a file's pages back before this request is answered.
    pub(super) fn wants_pages_first(&self, operation: &Operation<'_>) -> bool {
        self.kernel_keeps_dirty_pages()
            && match *operation {
                Operation::Lseek(_) => true,
                Operation::GetAttr { by_file } => self.shortage.is_tight() && self.is_writer(by_file),
                // One after the other with the writers' questions: each leaves what was promised before it.
                Operation::Fallocate(_) => self.shortage.is_tight(),
                _ => false,
            }
    }

    /// With the attributes of a file that is watched: the kernel shall not take them for new, so that it asks before the next write.
    fn keep_asking(&self, header: &InHeader, reply: &mut Reply) {
        if self.shortage.watches(self.target(header)) {
            reply.outdates(header.node);
        }
    }

    /// Whether a request takes so much that less is left than the kernel may hold back, where there is enough now.
    pub(super) fn brings_shortage(&self, header: &InHeader, operation: &Operation<'_>) -> bool {
        let Operation::Fallocate(arguments) = operation else { return false };
        let takes =
            FallocateMode::from_bits(arguments.mode).is_some_and(|mode| !mode.contains(FallocateMode::PUNCH_HOLE));
        self.kernel_keeps_dirty_pages()
            && takes
            && self.shortage.would_begin(self.target(header), arguments.offset, arguments.length, &*self.fs)
    }

    /// Nodes of other files that the kernel shall write back before this request is answered: what was promised to them is in its way.
    pub(super) fn in_the_way(&self, header: &InHeader, operation: &Operation<'_>) -> Vec<u64> {
        let ino = self.target(header);
        let others = match *operation {
            Operation::GetAttr { by_file } if self.is_writer(by_file) => {
                let takes = || Shortage::brings(ino, self.shortage.call_of(header.pid), &*self.fs);
                self.shortage.in_the_way(ino, takes, &*self.fs)
            }
            Operation::Fallocate(arguments) => {
                let takes = || self.fs.room_for(ino, arguments.offset, arguments.length).ok();
                self.shortage.in_the_way(ino, takes, &*self.fs)
            }
            _ => Vec::new(),
        };
        others.into_iter().map(|ino| self.nodes.node(ino)).collect()
    }

    /// A shortage begins: the nodes of all files that are open for writing. They are watched from now on; the kernel shall ask before
    /// it takes any more for them, and write back what it has.
    pub(super) fn begin_shortage(&self) -> Vec<u64> {
        self.shortage.begin();
        self.written()
    }

    /// The nodes of all files that are open for writing, which are watched from now on.
    fn written(&self) -> Vec<u64> {
        let written = self.programs.written();
        written.iter().for_each(|&ino| self.shortage.watch(ino, false, &*self.fs));
        written.into_iter().map(|ino| self.nodes.node(ino)).collect()
    }

    /// Before a request is answered that lets somebody write while there is little space: the kernel asks already before the first write.
    fn watch_first(&self, request: &Request<'_>, reply: &mut Reply) {
        if !self.shortage.is_tight() || !self.kernel_keeps_dirty_pages() {
            return;
        }
        let ino = self.target(&request.header);
        let mut concerned: Vec<InodeNumber> = reply.references().to_vec();
        match request.operation {
            Operation::Open(arguments) if may_write(arguments.flags) => {
                self.shortage.watch(ino, true, &*self.fs);
                concerned.push(ino);
            }
            Operation::Create { .. } | Operation::TmpFile(_) => {
                concerned.iter().for_each(|&ino| self.shortage.watch(ino, true, &*self.fs));
            }
            Operation::SetAttr(_) | Operation::Fallocate(_) => concerned.push(ino),
            _ => {}
        }
        concerned.retain(|&ino| self.shortage.watches(ino));
        concerned.into_iter().for_each(|ino| reply.outdates(self.nodes.node(ino)));
    }

    /// Between a WRITE and its reply, which is that for pages of the kernel's cache, or for a direct write: while there is little space, the
    /// kernel asks before it takes more for the file. So it is where the pages found no room.
    pub(super) fn watch_write(&self, request: &Request<'_>, error: Option<Errno>, reply: &mut Reply) {
        if !matches!(request.operation, Operation::Write { .. }) || !self.kernel_keeps_dirty_pages() {
            return;
        }
        let is_short = match error {
            None => self.shortage.look(&*self.fs),
            Some(error) => error == Errno::NOSPC,
        };
        if is_short && error.is_none() {
            self.shortage.watch(self.target(&request.header), false, &*self.fs);
        }
        if is_short {
            reply.outdates(request.header.node);
        }
    }

    /// After a request was answered: calls `distrust` with each node that is written to while there is little space, and of which the
    /// kernel may trust the attributes. Returns the nodes of which it shall also write back what it has: a shortage has begun.
    pub(super) fn watch(
        &self,
        request: &Request<'_>,
        error: Option<Errno>,
        reply: &Reply,
        mut distrust: impl FnMut(u64),
    ) -> Vec<u64> {
        let ino = self.target(&request.header);
        if error.is_some() {
            return Vec::new();
        }
        let is_write = matches!(request.operation, Operation::Write { .. });
        let makes_writers = match request.operation {
            Operation::Fallocate(_) | Operation::Create { .. } | Operation::TmpFile(_) => true,
            Operation::Open(arguments) => may_write(arguments.flags),
            _ => false,
        };
        // With a write, somebody has looked before the reply.
        if makes_writers {
            self.shortage.look(&*self.fs);
        }
        let has_begun = (makes_writers || is_write) && self.shortage.take_begun();
        // In this order: whoever takes note that it has begun sees it.
        if !self.shortage.is_tight() {
            return Vec::new();
        }
        let mut concerned: Vec<InodeNumber> = reply.references().to_vec();
        if matches!(request.operation, Operation::Open(_) | Operation::SetAttr(_)) {
            concerned.push(ino);
        }
        if makes_writers {
            concerned.iter().for_each(|&ino| self.shortage.watch(ino, true, &*self.fs));
        } else {
            concerned.retain(|&ino| self.shortage.watches(ino));
        }
        concerned.into_iter().for_each(|ino| distrust(self.nodes.node(ino)));
        if has_begun { self.written() } else { Vec::new() }
    }

    /// Carries a request out.
    pub(super) fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Verdict {
        let header = &request.header;
        match self.dispatch(request, reply) {
            Ok(()) => match request.operation {
                Operation::Forget { .. } | Operation::BatchForget(_) => Verdict::Silence,
                _ => {
                    self.watch_first(request, reply);
                    Verdict::Reply
                }
            },
            Err(failure) => {
                self.losses.note(&request.operation, &failure);
                report(header, &failure);
                Verdict::Error(failure.errno())
            }
        }
    }

    fn dispatch(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let Request { header, operation, shared } = request;
        let ino = self.nodes.inode(header.node);
        match *operation {
            // Only the handshake expects one.
            Operation::Init { .. } => Err(Errno::INVAL.into()),
            Operation::Destroy => self.close().map_err(|error| Failure::Errno(protocol::errno(error.kind()))),

            Operation::Lookup { name } => self.lookup(ino, name, reply),
            Operation::Forget { count } => self.forget(ino, count),
            Operation::BatchForget(list) => {
                list.iter().try_for_each(|one| self.forget(self.nodes.inode(one.node), one.count))
            }
            Operation::SymLink { name, target } => self.symlink(header, name, target, reply),
            Operation::MkNod { arguments, name } => self.mknod(header, &arguments, name, reply),
            Operation::MkDir { arguments, name } => self.mkdir(header, &arguments, name, reply),
            Operation::Create { arguments, name } => self.create(header, &arguments, name, reply),
            Operation::TmpFile(arguments) => self.tmpfile(header, &arguments, reply),
            Operation::Link { node, name } => self.link(self.nodes.inode(node), ino, name, reply),
            Operation::Unlink { name } => Ok(self.fs.unlink(ino, name)?),
            Operation::RmDir { name } => Ok(self.fs.remove_directory(ino, name)?),
            Operation::Rename { new_parent, flags, name, new_name } => {
                self.rename(header, name, self.nodes.inode(new_parent), new_name, flags)
            }

            Operation::GetAttr { by_file }
                if self.is_writer(by_file) && self.shortage.refuses(ino, header.pid, &*self.fs) =>
            {
                Err(basalt_vfs::Error::NoSpace.into())
            }
            Operation::GetAttr { .. } => {
                self.keep_asking(header, reply);
                self.getattr(ino, reply)
            }
            Operation::Statx => {
                self.keep_asking(header, reply);
                self.statx(ino, reply)
            }
            Operation::SetAttr(arguments) => self.setattr(header, ino, &arguments, reply),
            Operation::ReadLink => reply.push_bytes(&self.fs.read_link(ino)?),
            Operation::Open(arguments) => self.open(header, &arguments, reply),
            Operation::StatFs => self.statfs(reply),
            Operation::SetXattr(body) => self.setxattr(ino, &body),
            Operation::GetXattr { size, name } => {
                // Before the first write to a new file the kernel looks for capabilities; when it was made, it could not be told yet.
                self.keep_asking(header, reply);
                sized(&self.fs.get_xattr(ino, name)?, size, reply)
            }
            Operation::ListXattr { size } => sized(&self.visible_xattrs(ino, header)?, size, reply),
            Operation::RemoveXattr { name } => Ok(self.fs.remove_xattr(ino, name)?),
            Operation::Ioctl { arguments, input } => self.ioctl(header, &arguments, input, reply),

            Operation::Read(arguments) => self.read(ino, &arguments, reply),
            Operation::Write { arguments, data } => self.write(header, &arguments, (data, *shared), reply),
            Operation::Fallocate(arguments) => self.fallocate(header, &arguments, reply),
            Operation::Lseek(arguments) => self.lseek(ino, &arguments, reply),
            Operation::CopyFileRange(arguments) => self.copy_file_range(header, &arguments, false, reply),
            Operation::CopyFileRange64(arguments) => self.copy_file_range(header, &arguments, true, reply),

            Operation::OpenDir => self.opendir(reply),
            Operation::ReadDir(arguments) => self.readdir(ino, &arguments, reply),
            Operation::ReadDirPlus(arguments) => self.readdirplus(ino, &arguments, reply),

            Operation::Fsync { data_only } => {
                if self.kernel_keeps_dirty_pages() {
                    // It keeps no count of the blocks that a file has.
                    reply.outdates(header.node);
                }
                Ok(self.fs.sync_file(ino, data_only)?)
            }
            Operation::FsyncDir { data_only } => Ok(self.fs.sync_file(ino, data_only)?),
            Operation::SyncFs => Ok(self.fs.sync()?),

            Operation::Release { handle } => {
                self.shortage.close(ino);
                self.programs.close(ino, handle);
                Ok(())
            }
            Operation::ReleaseDir => Ok(()),
            // ENOSYS makes the kernel stop asking. FLUSH: it writes dirty pages back itself. INTERRUPT: no operation
            // here waits for anything but the device.
            Operation::Flush | Operation::Interrupt | Operation::Declined | Operation::Unknown => {
                Err(Errno::NOSYS.into())
            }
        }
    }
}

/// Answers an extended-attribute request: the value where it fits, its length where that was asked for.
fn sized(value: &[u8], size: u32, reply: &mut Reply) -> Answer {
    // Attributes are a few KiB at most.
    let len = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    match size {
        0 => reply.push(&protocol::wire::GetxattrOut { size: len, padding: 0 }),
        _ if len > size => Err(Errno::RANGE.into()),
        _ => reply.push_bytes(value),
    }
}

/// Logs what an administrator must know: damage and device errors.
fn report(header: &InHeader, failure: &Failure) {
    let operation = operation::name(header.opcode);
    match failure {
        Failure::FileSystem(error @ (basalt_vfs::Error::Corrupted(_) | basalt_vfs::Error::Io(_))) => {
            tracing::error!(operation, node = header.node, %error);
        }
        _ => tracing::trace!(operation, node = header.node, ?failure),
    }
}

/// Whether a file that is opened with these flags of open(2) may be written to.
pub(super) fn may_write(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// Who asks, for a new inode.
pub(super) fn caller(header: &InHeader, umask: u32) -> Caller {
    Caller { uid: header.uid, gid: header.gid, umask: umask & 0o777 }
}
