//! A file system that panics: EIO for the one request that meets it, and the session goes on, to the volume's closing.

mod support;

use std::sync::atomic::Ordering::SeqCst;

use basalt_fuse::protocol::ROOT_NODE;
use basalt_fuse::protocol::wire::{CreateIn, EntryOut, FallocateIn, GetattrIn, LseekIn, WriteIn};
use basalt_fuse::{MountOptions, ReceiveError};
use basalt_testkit::limit;
use rustix::io::Errno;
use support::kernel::Message;
use support::memory::MemoryFs;
use support::served::{Served, options};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const GETATTR: u32 = 3;
const WRITE: u32 = 16;
const FALLOCATE: u32 = 43;
const LSEEK: u32 = 46;
const TMPFILE: u32 = 51;
/// Free blocks of the file system at first.
const FREE: u64 = 1 << 19;

/// Makes a request and waits for its reply, whatever the session tells the kernel meanwhile.
#[track_caller]
fn answer(served: &mut Served, opcode: u32, node: u64, arguments: &(impl IntoBytes + Immutable + ?Sized)) -> Message {
    let asked = served.kernel.request(opcode, node, arguments.as_bytes());
    loop {
        let message = served.kernel.next_message();
        if message.unique == asked {
            return message;
        }
    }
}

#[track_caller]
fn new_file(served: &mut Served) -> u64 {
    let reply = answer(served, TMPFILE, ROOT_NODE, &CreateIn { mode: 0o600, flags: 2, ..Default::default() });
    EntryOut::read_from_prefix(&reply.payload).unwrap().0.node
}

/// Panics were survived: the session answers, ends well, and closes the file system.
#[track_caller]
fn expect_sound_end(mut served: Served) {
    served.fs.calls.stat_panics.store(false, SeqCst);
    assert_eq!(answer(&mut served, GETATTR, ROOT_NODE, &GetattrIn::default()).code, 0);
    while served.kernel.messages_left() > 0 {
        served.kernel.next_message();
    }
    served.kernel.end(ReceiveError::Unmounted);
    limit::join(served.server, limit::SHORT).unwrap();
    assert_eq!(served.fs.calls.closes.load(SeqCst), 1);
}

#[test]
fn a_panic_behind_an_answer_changes_nothing() {
    let mut served = Served::new();
    let file = new_file(&mut served);
    served.fs.calls.stat_panics.store(true, SeqCst);
    let write = WriteIn { size: 3, ..Default::default() };
    let reply = answer(&mut served, WRITE, file, &[write.as_bytes(), b"abc"].concat()[..]);
    assert_eq!(reply.code, 0);
    expect_sound_end(served);
}

#[test]
fn a_panic_before_a_request_is_taken_is_an_error() {
    for threads in [1, 4] {
        let mut served = Served::with(&MountOptions { threads, ..options() });
        let file = new_file(&mut served);
        served.fs.calls.stat_panics.store(true, SeqCst);
        let reply = answer(&mut served, FALLOCATE, file, &FallocateIn { length: 4096, ..Default::default() });
        assert_eq!(reply.code, -Errno::IO.raw_os_error(), "{threads}");
        expect_sound_end(served);
    }
}

#[test]
fn a_panic_of_the_thread_beside_the_loops_is_an_error() {
    let mut served = Served::new();
    // Little is free: that thread answers.
    served.fs.calls.taken.store(FREE - 10_000, SeqCst);
    let (one, other) = (new_file(&mut served), new_file(&mut served));
    // Something is promised to the one.
    for _ in 0..2 {
        assert_eq!(answer(&mut served, GETATTR, one, &GetattrIn { flags: 1, fh: 1, ..Default::default() }).code, 0);
        let write = WriteIn { size: 8192, write_flags: 1, ..Default::default() };
        assert_eq!(answer(&mut served, WRITE, one, &[write.as_bytes(), &[1; 8192]].concat()[..]).code, 0);
    }
    let allocate = FallocateIn { length: 4096, ..Default::default() };
    // The loop is behind what follows from the write.
    assert_eq!(answer(&mut served, GETATTR, ROOT_NODE, &GetattrIn::default()).code, 0);
    // The first look at what is free is the loop's, the next one that thread's.
    served.fs.calls.stat_panics_in.store(2, SeqCst);
    assert_eq!(answer(&mut served, FALLOCATE, other, &allocate).code, -Errno::IO.raw_os_error());
    assert_eq!(served.fs.calls.stat_panics_in.load(SeqCst), 0);
    assert_eq!(answer(&mut served, FALLOCATE, other, &allocate).code, 0);
    let seek = LseekIn { whence: 3, ..Default::default() };
    assert_eq!(answer(&mut served, LSEEK, one, &seek).code, 0);
    expect_sound_end(served);
}

#[test]
fn a_panic_of_the_thread_that_writes_behind_changes_nothing() {
    let fs = MemoryFs::new();
    fs.calls.behind_panics.store(true, SeqCst);
    expect_sound_end(Served::of(fs, &options()));
}
