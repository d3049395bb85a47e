//! INIT: what kernel and server agree on.

use rustix::io::Errno;

use super::buffer::PageBuffer;
use super::reply::Reply;
use crate::mount::{MountError, MountOptions};
use crate::protocol::flags::InitFlags;
use crate::protocol::wire::{InitIn, InitOut};
use crate::protocol::{MAJOR, MINOR, OLDEST_MINOR, Operation, Request};
use crate::transport::Transport;

/// Payload of the largest request when the kernel does not say how large they may be.
const DEFAULT_REQUEST: usize = 1 << 20;
/// No request's payload is larger, whatever the administrator allows: every thread has two buffers of this size.
const LARGEST_REQUEST: usize = 4 << 20;
/// Background requests (readahead, writeback) that may be under way.
const MAX_BACKGROUND: u16 = 64;

/// What was agreed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    /// Features in use.
    pub(super) flags: InitFlags,
    /// Largest payload of a request or reply, in bytes.
    pub(super) max_payload: usize,
}

impl Agreed {
    /// Before the handshake: nothing.
    pub(super) const NOTHING: Agreed = Agreed { flags: InitFlags::empty(), max_payload: DEFAULT_REQUEST };
}

/// Waits for the kernel's INIT, which mounting sends, and answers it.
pub(super) fn perform<T: Transport>(transport: &T, options: &MountOptions) -> Result<Agreed, MountError> {
    let max_payload = largest_payload();
    let mut inbox = PageBuffer::new(max_payload);
    loop {
        let len = transport.receive(inbox.bytes_mut()).map_err(|error| failed::<T>(error.errno()))?;
        let request = Request::parse(&inbox.bytes()[..len]).map_err(|_| MountError::NoHandshake)?;
        let Operation::Init { arguments, flags } = request.operation else { return Err(MountError::NoHandshake) };
        let unique = request.header.unique;
        if arguments.major > MAJOR {
            // The kernel asks again with the version it is told here.
            send(transport, unique, &InitOut { major: MAJOR, minor: MINOR, ..Default::default() })?;
            continue;
        }
        if arguments.major < MAJOR || arguments.minor < OLDEST_MINOR {
            let _ = Reply::new(0).send(transport, unique, Some(Errno::PROTO));
            return Err(MountError::OldKernel { major: arguments.major, minor: arguments.minor });
        }
        let (answer, agreed) = negotiate(&arguments, flags, options, max_payload);
        send(transport, unique, &answer)?;
        return Ok(agreed);
    }
}

fn send<T: Transport>(transport: &T, unique: u64, answer: &InitOut) -> Result<(), MountError> {
    let mut reply = Reply::new(size_of::<InitOut>());
    // Fits: the reply was made for it.
    let _ = reply.push(answer);
    reply.send(transport, unique, None).map_err(|error| failed::<T>(error.errno()))
}

fn failed<T: Transport>(errno: Errno) -> MountError {
    MountError::Transport { name: T::NAME, errno }
}

/// Chooses from what the kernel offers.
fn negotiate(arguments: &InitIn, offered: InitFlags, options: &MountOptions, max_payload: usize) -> (InitOut, Agreed) {
    let mut wanted = InitFlags::ASYNC_READ
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::BIG_WRITES
        | InitFlags::DONT_MASK
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::ASYNC_DIO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::ABORT_ERROR
        | InitFlags::MAX_PAGES
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::NO_OPENDIR_SUPPORT
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::SETXATTR_EXT
        | InitFlags::INIT_EXT;
    if options.writeback_cache {
        wanted |= InitFlags::WRITEBACK_CACHE;
    }
    if options.default_permissions {
        // Who agrees to this one lets the kernel check permissions, whatever the mount options say.
        wanted |= InitFlags::POSIX_ACL;
    }
    if options.skip_open {
        wanted |= InitFlags::NO_OPEN_SUPPORT;
    }
    let flags = wanted & offered;
    let max_payload = if flags.contains(InitFlags::MAX_PAGES) { max_payload } else { 32 * rustix::param::page_size() };
    let answer = InitOut {
        major: MAJOR,
        minor: MINOR.min(arguments.minor),
        max_readahead: arguments.max_readahead,
        flags: (flags.bits() & u64::from(u32::MAX)) as u32,
        flags2: (flags.bits() >> 32) as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write: max_payload as u32,
        time_gran: 1,
        // At most LARGEST_REQUEST / 4096.
        max_pages: (max_payload / rustix::param::page_size()) as u16,
        ..Default::default()
    };
    (answer, Agreed { flags, max_payload })
}

/// The largest payload that the kernel allows, in whole pages of the host.
fn largest_payload() -> usize {
    let page = rustix::param::page_size();
    let limit = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").ok();
    let limit = limit.and_then(|text| text.trim().parse::<usize>().ok()).map(|pages| pages.saturating_mul(page));
    limit.unwrap_or(DEFAULT_REQUEST).clamp(page, LARGEST_REQUEST).next_multiple_of(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(offered: InitFlags, change: impl FnOnce(&mut MountOptions)) -> (InitOut, Agreed) {
        let mut options = MountOptions::new("/mnt", "disk");
        change(&mut options);
        let arguments = InitIn { major: 7, minor: 37, max_readahead: 131_072, flags: 0 };
        negotiate(&arguments, offered, &options, 1 << 20)
    }

    #[test]
    fn the_older_minor_version_wins() {
        assert_eq!(agree(InitFlags::all(), |_| ()).0.minor, 37);
    }

    #[test]
    fn nothing_is_accepted_that_was_not_offered() {
        let offered = InitFlags::ASYNC_READ | InitFlags::BIG_WRITES;
        let (answer, agreed) = agree(offered, |options| options.writeback_cache = true);
        assert_eq!(agreed.flags, offered);
        assert_eq!((answer.flags, answer.flags2), (offered.bits() as u32, 0));
        assert_eq!(answer.max_write as usize, 32 * rustix::param::page_size());
    }

    #[test]
    fn truncation_on_open_is_left_to_the_kernel() {
        for skip in [true, false] {
            let flags = agree(InitFlags::all(), |options| options.skip_open = skip).1.flags;
            assert!(!flags.contains(InitFlags::ATOMIC_O_TRUNC));
            assert_eq!(flags.contains(InitFlags::NO_OPEN_SUPPORT), skip);
        }
    }

    #[test]
    fn acls_come_with_the_kernels_checks() {
        for checked in [true, false] {
            let flags = agree(InitFlags::all(), |options| options.default_permissions = checked).1.flags;
            assert_eq!(flags.contains(InitFlags::POSIX_ACL), checked);
        }
    }

    #[test]
    fn the_writeback_cache_is_a_choice() {
        let flags = |on| agree(InitFlags::all(), |options| options.writeback_cache = on).1.flags;
        assert!(flags(true).contains(InitFlags::WRITEBACK_CACHE));
        assert!(!flags(false).contains(InitFlags::WRITEBACK_CACHE));
    }
}
