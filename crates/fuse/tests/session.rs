//! The session against a kernel in memory: the handshake, what is no request, requests whose callers have gone, and how a connection ends.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use basalt_fuse::protocol::flags::InitFlags;
use basalt_fuse::protocol::wire::{
    BatchForgetIn, CreateIn, EntryOut, ForgetIn, ForgetOne, FsyncIn, GetxattrIn, GetxattrOut, InHeader, InitIn,
    InvalInodeOut, LseekIn, LseekOut, ReadIn, WriteIn, WriteOut,
};
use basalt_fuse::protocol::{MAJOR, MINOR, OLDEST_MINOR, ROOT_NODE};
use basalt_fuse::{MountError, MountOptions, ReceiveError, Serving, SessionError, Transport};
use basalt_testkit::limit;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, XattrFlags};
use rustix::io::Errno;
use support::kernel::{MemoryTransport, connection, message};
use support::memory::{MemoryFs, ROOT};
use support::served::{Served, options};
use zerocopy::{FromBytes, IntoBytes};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const READLINK: u32 = 5;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const FSYNC: u32 = 20;
const GETXATTR: u32 = 22;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const LSEEK: u32 = 46;
const TMPFILE: u32 = 51;
/// No operation has it.
const UNKNOWN: u32 = 999;

fn failed(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

#[test]
fn the_handshake_settles_version_features_and_sizes() {
    let (mut kernel, transport) = connection();
    let offer = kernel.offer(MAJOR, MINOR + 5);
    Serving::connect(Arc::new(MemoryFs::new()), transport, &options()).unwrap();
    let answer = kernel.agreed(offer);
    assert_eq!((answer.major, answer.minor), (MAJOR, MINOR));
    let flags = InitFlags::from_bits_retain(u64::from(answer.flags) | u64::from(answer.flags2) << 32);
    assert!(flags.contains(InitFlags::WRITEBACK_CACHE | InitFlags::MAX_PAGES), "{flags:?}");
    assert_eq!(answer.max_write as usize, usize::from(answer.max_pages) * rustix::param::page_size());
}

#[test]
fn a_newer_kernel_is_told_the_version_and_asks_again() {
    let (mut kernel, transport) = connection();
    let (first, second) = (kernel.offer(MAJOR + 1, 0), kernel.offer(MAJOR, OLDEST_MINOR));
    Serving::connect(Arc::new(MemoryFs::new()), transport, &options()).unwrap();
    assert_eq!(kernel.agreed(first).major, MAJOR);
    assert_eq!(kernel.agreed(second).minor, OLDEST_MINOR);
}

fn refused(transport: MemoryTransport) -> MountError {
    let fs = Arc::new(MemoryFs::new());
    let error = Serving::connect(fs.clone(), transport, &options()).map(drop).unwrap_err();
    assert_eq!(fs.calls.closes.load(SeqCst), 0, "what was never served is not closed");
    error
}

#[test]
fn what_is_no_handshake_is_refused() {
    let (mut kernel, transport) = connection();
    kernel.offer(MAJOR, OLDEST_MINOR - 1);
    assert!(matches!(refused(transport), MountError::OldKernel { major: MAJOR, .. }));
    assert_eq!(kernel.next_message().code, failed(Errno::PROTO));

    let (mut kernel, transport) = connection();
    kernel.request(STATFS, ROOT_NODE, &[]);
    assert!(matches!(refused(transport), MountError::NoHandshake));

    let (mut kernel, transport) = connection();
    kernel.request(26, 0, &InitIn::default().as_bytes()[..7]);
    assert!(matches!(refused(transport), MountError::NoHandshake));

    let (kernel, transport) = connection();
    kernel.end(ReceiveError::Failed(Errno::IO));
    let error = refused(transport);
    assert!(error.to_string().starts_with(MemoryTransport::NAME), "{error}");
}

#[test]
fn an_unknown_operation_is_declined() {
    let mut served = Served::new();
    for arguments in [vec![], vec![7; 100]] {
        assert_eq!(served.kernel.ask(UNKNOWN, ROOT_NODE, &arguments[..]).code, failed(Errno::NOSYS));
    }
    served.expect_alive();
    served.unmount();
}

#[test]
fn a_truncated_request_is_refused_where_it_can_be_told_from_others() {
    let mut served = Served::new();
    // Arguments that end too soon: the request has a number, and so a reply.
    assert_eq!(served.kernel.ask(LOOKUP, ROOT_NODE, b"name").code, failed(Errno::INVAL));
    let write = WriteIn { size: 100, ..Default::default() };
    assert_eq!(served.kernel.ask(WRITE, ROOT_NODE, &write).code, failed(Errno::INVAL));
    // Messages that are not as long as they say, or have no header: there is no request to answer.
    let whole = message(4711, LOOKUP, ROOT_NODE, b"name\0");
    for length in [1, size_of::<InHeader>() - 1, size_of::<InHeader>(), whole.len() - 1] {
        served.kernel.hand_over(whole[..length].to_vec());
    }
    served.expect_alive();
    served.unmount();
}

#[test]
fn an_interrupt_is_declined_and_what_it_was_for_goes_on() {
    let mut served = Served::new();
    let request = served.kernel.request(STATFS, ROOT_NODE, &[]);
    let interrupt = served.kernel.request(INTERRUPT, 0, request.as_bytes());
    let mut replies = [served.kernel.next_message(), served.kernel.next_message()];
    replies.sort_by_key(|reply| reply.unique);
    assert_eq!(replies.map(|reply| (reply.unique, reply.code)), [(request, 0), (interrupt, failed(Errno::NOSYS))]);
    served.unmount();
}

#[test]
fn a_reply_that_nobody_waits_for_gives_its_references_back() {
    let mut served = Served::new();
    let before = served.fs.inode_count();
    let kept = served.unnamed_file();
    assert_eq!(served.fs.inode_count(), before + 1);
    // The program is killed while its file is being made.
    let arguments = CreateIn { mode: 0o600, ..Default::default() };
    served.kernel.interrupted_request(TMPFILE, ROOT_NODE, arguments.as_bytes());
    served.expect_alive();
    assert_eq!(served.fs.inode_count(), before + 1, "nobody can name or forget the second file");
    served.kernel.request(FORGET, kept.node, ForgetIn { count: 1 }.as_bytes());
    served.expect_alive();
    assert_eq!(served.fs.inode_count(), before);
    served.unmount();
}

#[test]
fn references_are_given_back_many_at_a_time() {
    let mut served = Served::new();
    let before = served.fs.inode_count();
    let mut forgotten = Vec::new();
    for (name, count) in [(&b"a\0"[..], 1), (b"b\0", 2), (b"c\0", 5)] {
        let plain = &name[..name.len() - 1];
        let node = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let ino = served.fs.create(ROOT, plain, &node, &Caller::default()).unwrap().ino;
        served.fs.forget(ino, 1);
        for _ in 0..count {
            assert_eq!(served.kernel.ask(LOOKUP, ROOT_NODE, name).code, 0);
        }
        served.fs.unlink(ROOT, plain).unwrap();
        forgotten.push(ForgetOne { node: ino, count });
    }
    assert_eq!(served.fs.inode_count(), before + 3, "the kernel may still use them");
    let list = BatchForgetIn { count: 3, dummy: 0 };
    served.kernel.request(BATCH_FORGET, 0, &[list.as_bytes(), forgotten.as_bytes()].concat());
    // It has no reply; the next request has.
    served.expect_alive();
    assert_eq!(served.fs.inode_count(), before);
    served.unmount();
}

#[test]
fn a_reply_larger_than_the_buffer_is_an_error() {
    let (mut kernel, transport) = connection();
    // Without MAX_PAGES a payload has 32 pages.
    let offer = InitIn { major: MAJOR, minor: MINOR, ..Default::default() };
    let offer = kernel.request(26, 0, offer.as_bytes());
    let fs = Arc::new(MemoryFs::new());
    let serving = Serving::connect(fs.clone(), transport, &options()).unwrap();
    let largest = kernel.agreed(offer).max_write;
    let losses = serving.losses();
    let server = std::thread::spawn(move || serving.run());
    let mut served = Served { kernel, fs, server, losses };

    let file = served.unnamed_file().node;
    let read = |size: u32| ReadIn { size, ..Default::default() };
    assert_eq!(served.kernel.ask(READ, file, &read(largest)).code, 0);
    assert_eq!(served.kernel.ask(READ, file, &read(largest + 4096)).code, failed(Errno::INVAL));
    assert_eq!(served.kernel.ask(READ, file, &read(u32::MAX)).code, failed(Errno::INVAL));

    for (name, extra, code) in [(&b"fits\0"[..], 0, 0), (b"is too long\0", 1, failed(Errno::TOOBIG))] {
        let target = vec![b'x'; largest as usize + extra];
        let link = NewNode { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target: &target };
        served.fs.create(ROOT, &name[..name.len() - 1], &link, &Caller::default()).unwrap();
        let found: EntryOut = served.kernel.ask(LOOKUP, ROOT_NODE, name).content();
        let reply = served.kernel.ask(READLINK, found.node, &[0_u8; 0]);
        assert_eq!((reply.code, reply.payload == target), (code, code == 0));
    }
    served.unmount();
}

#[test]
fn an_attribute_fits_a_buffer_of_its_own_size() {
    let mut served = Served::new();
    let file = served.unnamed_file().node;
    for length in [0, 1, 100] {
        let value = vec![b'v'; length];
        served.fs.set_xattr(file, b"user.name", &value, XattrFlags::empty()).unwrap();
        let mut ask = |size: u32| {
            let arguments = GetxattrIn { size, padding: 0 };
            served.kernel.ask(GETXATTR, file, &[arguments.as_bytes(), b"user.name\0"].concat()[..])
        };
        assert_eq!(ask(0).content::<GetxattrOut>().size as usize, length);
        if length > 0 {
            assert_eq!(ask(length as u32).payload, value);
        }
        assert_eq!(ask(length as u32 + 1).payload, value);
        if length > 1 {
            assert_eq!(ask(length as u32 - 1).code, failed(Errno::RANGE));
        }
    }
    served.unmount();
}

#[test]
fn a_request_larger_than_the_buffer_never_comes() {
    let mut served = Served::new();
    served.kernel.request(WRITE, ROOT_NODE, &vec![0; 64 << 20]);
    served.expect_alive();
    assert_eq!(served.kernel.too_large(), 1);
    served.unmount();
}

#[test]
fn content_comes_back_as_it_was_written() {
    let mut served = Served::with(&MountOptions { threads: 4, ..options() });
    let file = served.unnamed_file().node;
    let data: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let write = WriteIn { size: data.len() as u32, offset: 5, ..Default::default() };
    let reply = served.kernel.ask(WRITE, file, &[write.as_bytes(), &data].concat()[..]);
    assert_eq!(reply.content::<WriteOut>().size, write.size);
    let read = ReadIn { size: write.size, offset: 5, ..Default::default() };
    assert!(served.kernel.ask(READ, file, &read).payload == data);
    served.unmount();
}

/// The file system may keep the bytes of a large write: no later request changes them.
#[test]
fn large_writes_may_be_kept() {
    const LARGE: usize = 512 << 10;
    for threads in [1, 4] {
        let mut served = Served::with(&MountOptions { threads, ..options() });
        let file = served.unnamed_file().node;
        let lengths = [LARGE, LARGE - 1, 1 << 20, LARGE + 4096, 4096, LARGE];
        let content = |number: usize, length: usize| -> Vec<u8> {
            (number..number + length).map(|at| (at % 251) as u8).collect()
        };
        for (number, length) in lengths.into_iter().enumerate() {
            // Every second one comes from the kernel's page cache.
            let write_flags = number as u32 % 2;
            let write = WriteIn { size: length as u32, offset: number as u64 * 7, write_flags, ..Default::default() };
            let data = content(number, length);
            let reply = served.kernel.ask(WRITE, file, &[write.as_bytes(), &data].concat()[..]);
            assert_eq!((reply.code, reply.content::<WriteOut>().size), (0, write.size));
            let read = ReadIn { size: write.size, offset: write.offset, ..Default::default() };
            assert!(served.kernel.ask(READ, file, &read).payload == data, "write {number}");
        }
        let kept = served.fs.calls.kept.lock().clone();
        let large: Vec<usize> = (0..lengths.len()).filter(|&number| lengths[number] >= LARGE).collect();
        assert_eq!(kept.len(), large.len());
        for ((bytes, is_from_cache), number) in kept.iter().zip(large) {
            assert!(**bytes == content(number, lengths[number]), "write {number} has changed");
            assert_eq!(*is_from_cache, number % 2 == 1, "write {number}");
            assert!(bytes.as_ptr().addr().is_multiple_of(4096), "direct I/O takes them as they are");
        }
        served.unmount();
    }
}

#[test]
fn the_kernel_hears_of_what_is_out_of_date_before_the_reply() {
    let mut served = Served::new();
    let file = served.unnamed_file().node;
    let request = served.kernel.request(FSYNC, file, FsyncIn::default().as_bytes());
    let (notification, reply) = (served.kernel.next_message(), served.kernel.next_message());
    // FUSE_NOTIFY_INVAL_INODE, of attributes alone.
    assert_eq!((notification.unique, notification.code), (0, 2));
    let what = InvalInodeOut::read_from_bytes(&notification.payload).unwrap();
    assert_eq!((what.node, what.offset), (file, -1));
    assert_eq!((reply.unique, reply.code), (request, 0));
    // Once: the next request brings its reply and nothing else.
    served.expect_alive();
    served.unmount();
}

#[test]
fn who_writes_hears_of_a_shortage_before_the_reply_that_shows_it() {
    let mut served = Served::new();
    let file = served.unnamed_file().node;
    // FUSE_WRITE_CACHE: what the kernel had in its page cache.
    let write = WriteIn { size: 1, write_flags: 1, ..Default::default() };
    let ask = |served: &mut Served| served.kernel.request(WRITE, file, &[write.as_bytes(), b"1"].concat());
    let request = ask(&mut served);
    assert_eq!(served.kernel.next_message().unique, request);
    served.fs.calls.taken.store((1 << 19) - 1000, SeqCst);
    for _ in 0..2 {
        let request = ask(&mut served);
        let (mut messages, mut told) = (0, 0);
        loop {
            let message = served.kernel.next_message();
            if message.unique == request {
                break;
            }
            messages += 1;
            // FUSE_NOTIFY_INVAL_INODE, of attributes alone: the next write(2) asks first.
            let what = InvalInodeOut::read_from_bytes(&message.payload).unwrap();
            told += u32::from((message.unique, message.code, what.node, what.offset) == (0, 2, file, -1));
        }
        assert!(told > 0, "{messages} other messages");
    }
    served.unmount();
}

/// Of two loops, one sees that a shortage begins while the other, which has seen none, has just replied.
#[test]
fn a_shortage_that_begins_is_told_of_all_files() {
    let mut served = Served::with(&MountOptions { threads: 2, ..options() });
    let [a, b, other] = [(); 3].map(|()| {
        let create = CreateIn { mode: 0o600, flags: libc::O_RDWR as u32, ..Default::default() };
        let reply = served.kernel.ask(51, ROOT_NODE, &create);
        EntryOut::read_from_prefix(&reply.payload).unwrap().0.node
    });
    let large = vec![b'1'; 128 << 10];
    let write = WriteIn { size: large.len() as u32, write_flags: 1, ..Default::default() };
    let wait = |millis| std::thread::sleep(std::time::Duration::from_millis(millis));
    served.fs.calls.stat_slow.store(200, SeqCst);
    served.kernel.request(WRITE, b, &[write.as_bytes(), &large].concat());
    wait(50);
    served.kernel.request(WRITE, a, &[write.as_bytes(), &large].concat());
    // The first has looked by then, and the second looks.
    wait(250);
    served.fs.calls.taken.store((1 << 19) - 1000, SeqCst);
    // Each is told, and then written back; next_message has a limit.
    let mut missing: BTreeSet<(u64, i64)> = [a, b, other].iter().flat_map(|&node| [(node, -1), (node, 0)]).collect();
    let mut replies = 2;
    while replies > 0 || !missing.is_empty() {
        let message = served.kernel.next_message();
        match InvalInodeOut::read_from_bytes(&message.payload) {
            Ok(what) if message.unique == 0 => _ = missing.remove(&(what.node, what.offset)),
            _ => replies -= 1,
        }
    }
    served.fs.calls.stat_slow.store(0, SeqCst);
    served.unmount();
}

#[test]
fn a_reply_takes_the_channel_that_its_request_came_by() {
    let mut served = Served::with(&MountOptions { threads: 2, ..options() });
    let file = served.unnamed_file().node;
    let write = WriteIn { size: 1, ..Default::default() };
    assert_eq!(served.kernel.ask(WRITE, file, &[write.as_bytes(), b"x"].concat()[..]).code, 0);
    // The first loop is held up by an fsync, so what follows comes to the second.
    let fs = Arc::clone(&served.fs);
    let held = fs.calls.synced_files.lock();
    let fsync = served.kernel.request(FSYNC, file, FsyncIn::default().as_bytes());
    served.expect_alive();
    // The thread beside the loops answers this, once the kernel has dropped its pages.
    let seek = LseekIn { whence: 4, ..Default::default() };
    let seek = served.kernel.request(LSEEK, file, seek.as_bytes());
    assert_eq!(served.kernel.next_message().unique, 0, "a notification");
    let reply = served.kernel.next_message();
    assert_eq!((reply.unique, reply.content::<LseekOut>().offset), (seek, 1));
    drop(held);
    assert_eq!(served.kernel.next_message().unique, 0, "a notification");
    assert_eq!(served.kernel.next_message().unique, fsync);
    served.unmount();
}

#[test]
fn the_first_failure_counts_whatever_other_loops_are_told() {
    let mut served = Served::with(&MountOptions { threads: 2, ..options() });
    let file = served.unnamed_file().node;
    // With the first loop held up by an fsync, there is a second.
    let fs = Arc::clone(&served.fs);
    let held = fs.calls.synced_files.lock();
    let fsync = served.kernel.request(FSYNC, file, FsyncIn::default().as_bytes());
    served.expect_alive();
    drop(held);
    assert_eq!(served.kernel.next_message().unique, 0, "a notification");
    assert_eq!(served.kernel.next_message().unique, fsync);
    served.kernel.end_differently([ReceiveError::Aborted, ReceiveError::Unmounted]);
    let outcome = limit::join(served.server, limit::SHORT);
    assert!(matches!(outcome, Err(SessionError::Aborted)), "{outcome:?}");
    assert_eq!(served.fs.calls.closes.load(SeqCst), 1);
}

#[test]
fn pages_that_a_read_only_volume_refuses_are_counted_as_lost() {
    let mut served = Served::new();
    let file = served.unnamed_file().node;
    served.fs.refuses_pages.store(true, SeqCst);
    // From the kernel's page cache: the program's write(2) has succeeded long ago.
    let write = WriteIn { size: 4096, write_flags: 1, ..Default::default() };
    let reply = served.kernel.ask(WRITE, file, &[write.as_bytes(), &[7; 4096]].concat()[..]);
    assert_eq!(reply.code, failed(Errno::IO));
    assert_eq!(served.losses.bytes(), 4096);
    served.unmount();
}

#[test]
fn the_file_system_is_closed_once_however_the_connection_ends() {
    Served::new().unmount();
    assert!(matches!(Served::new().end(ReceiveError::Aborted), Err(SessionError::Aborted)));
    let error = Served::new().end(ReceiveError::Failed(Errno::IO)).unwrap_err();
    assert!(error.to_string().contains(MemoryTransport::NAME), "{error}");
    let mut served = Served::new();
    assert_eq!(served.kernel.ask(DESTROY, 0, &[0_u8; 0]).code, 0);
    assert_eq!(served.fs.calls.closes.load(SeqCst), 1);
    served.unmount();
}

#[test]
fn a_thread_of_the_session_writes_behind_as_long_as_it_lasts() {
    for threads in [1, 4] {
        let mut served = Served::with(&MountOptions { threads, ..options() });
        served.expect_alive();
        let fs = served.fs.clone();
        let (begun, ended) = &fs.calls.behind;
        let start = Instant::now();
        while begun.load(SeqCst) == 0 && start.elapsed() < limit::SHORT {
            std::thread::yield_now();
        }
        assert_eq!(ended.load(SeqCst), 0);
        served.unmount();
        assert_eq!((begun.load(SeqCst), ended.load(SeqCst)), (1, 1));
    }
}

#[test]
fn a_transport_that_has_nothing_more_ends_the_session() {
    for threads in [1, 4] {
        let mut served = Served::with(&MountOptions { threads, ..options() });
        served.expect_alive();
        (0..threads).for_each(|_| served.kernel.hand_over(Vec::new()));
        limit::join(served.server, limit::SHORT).unwrap();
        assert_eq!(served.fs.calls.closes.load(SeqCst), 1);
    }
}
