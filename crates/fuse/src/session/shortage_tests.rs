//! Who is refused near a full volume, by what threads really do: a thread that waits in a write to a pipe is one that waits in a write.

use std::io::{PipeReader, Read, Write, pipe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Scope, yield_now};

use basalt_vfs::*;

use super::caller::Call;
use super::shortage::{Shortage, see_waiting};
use crate::mount::DirtyLimit;

const KIB: u64 = 1 << 10;
/// More than half of what is free, with the nodes for it.
const MUCH: usize = 600 << 10;
const FREE: u64 = 1 << 20;

/// Answers what a shortage asks.
struct Volume {
    free: AtomicU64,
    /// Of each file: bytes from its beginning that have blocks.
    stored: AtomicU64,
}

impl Volume {
    fn with_free(free: u64) -> Volume {
        Volume { free: AtomicU64::new(free), stored: AtomicU64::new(0) }
    }
}

/// The thread's number, and ways to go on with it.
struct Writer {
    thread: u32,
    pipe: PipeReader,
    may_wait: Sender<()>,
}

/// Starts a thread that writes to a full pipe, then runs until it may wait, and waits for `end`.
fn writer<'scope>(scope: &'scope Scope<'scope, '_>, is_running: &'scope AtomicBool, end: Receiver<()>) -> Writer {
    let (reader, mut pipe) = pipe().unwrap();
    let (tell, told) = channel();
    let (may_wait, is_allowed) = channel();
    scope.spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        // Who reads it may have failed.
        let _ = pipe.write_all(&[1; MUCH]);
        is_running.store(true, Ordering::Release);
        while is_allowed.try_recv() == Err(TryRecvError::Empty) {
            std::hint::spin_loop();
        }
        let _ = end.recv();
    });
    let thread = told.recv().unwrap();
    until(thread, |call| call == Call::Write { offset: Some(0), length: MUCH as u64 });
    Writer { thread, pipe: reader, may_wait }
}

fn until(thread: u32, is_wanted: impl Fn(Call) -> bool) {
    while !is_wanted(Call::of(thread)) {
        yield_now();
    }
}

/// A shortage on this volume, with two files that are written to.
fn shortage(volume: &Volume) -> Shortage {
    let shortage = Shortage::new(DirtyLimit::of(None));
    assert!(shortage.look(volume) && shortage.take_begun());
    [4, 5].into_iter().for_each(|ino| shortage.watch(ino, true, volume));
    shortage
}

/// Whether a write is refused, after what the kernel writes back before it is answered.
fn refused(shortage: &Shortage, ino: InodeNumber, thread: u32, volume: &Volume) -> bool {
    let write_back = |file: InodeNumber| shortage.keep(file, &shortage.finished(file, Some(thread)));
    write_back(ino);
    let takes = || Shortage::brings(ino, Call::of(thread), volume);
    shortage.in_the_way(ino, takes, volume).into_iter().for_each(write_back);
    shortage.refuses(ino, thread, volume)
}

#[test]
fn what_one_thread_was_promised_is_not_promised_to_another() {
    let volume = Volume::with_free(FREE);
    for other_file in [4, 5] {
        let shortage = shortage(&volume);
        let (one_runs, other_runs) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let ((end_one, ended_one), (end_other, ended_other)) = (channel(), channel());
            let mut one = writer(scope, &one_runs, ended_one);
            let mut other = writer(scope, &other_runs, ended_other);
            assert!(!refused(&shortage, 4, one.thread, &volume));
            // Asked again, it needs what it was promised, not that twice.
            assert!(!refused(&shortage, 4, one.thread, &volume));
            assert!(refused(&shortage, other_file, other.thread, &volume), "waiting, {other_file}");
            one.pipe.read_exact(&mut [0; MUCH]).unwrap();
            while !one_runs.load(Ordering::Acquire) {
                yield_now();
            }
            // It may be in that write, still.
            until(one.thread, |call| call == Call::Running);
            assert!(refused(&shortage, other_file, other.thread, &volume), "running, {other_file}");
            one.may_wait.send(()).unwrap();
            until(one.thread, |call| call == Call::Unknown);
            // The write is over, and the kernel has written its pages back.
            assert!(!refused(&shortage, other_file, other.thread, &volume), "over, {other_file}");
            other.pipe.read_exact(&mut [0; MUCH]).unwrap();
            other.may_wait.send(()).unwrap();
            drop((end_one, end_other));
        });
    }
}

#[test]
fn what_takes_space_otherwise_leaves_what_was_promised() {
    let volume = Volume::with_free(FREE);
    let shortage = shortage(&volume);
    let is_running = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (end, ended) = channel();
        let mut writer = writer(scope, &is_running, ended);
        let leaves = |offset, length| shortage.leaves_room(5, offset, length, &volume);
        assert!(leaves(0, FREE));
        assert!(!shortage.refuses(4, writer.thread, &volume));
        assert!(leaves(0, 300 * KIB) && !leaves(0, 500 * KIB));
        // What is there is written over, however little is free.
        volume.stored.store(800 * KIB, Ordering::Release);
        volume.free.store(100 * KIB, Ordering::Release);
        assert!(leaves(0, 800 * KIB) && !leaves(0, 801 * KIB));
        // A new shortage begins with nothing promised.
        volume.free.store(FREE, Ordering::Release);
        volume.stored.store(0, Ordering::Release);
        shortage.begin();
        assert!(leaves(0, FREE));
        // A closed file has nothing in the kernel's cache.
        assert!(!shortage.refuses(4, writer.thread, &volume) && !leaves(0, FREE));
        shortage.close(4);
        assert!(leaves(0, FREE));
        writer.pipe.read_exact(&mut [0; MUCH]).unwrap();
        writer.may_wait.send(()).unwrap();
        drop(end);
    });
}

#[test]
fn who_was_refused_has_been_promised_nothing() {
    let volume = Volume::with_free(500 * KIB);
    let shortage = shortage(&volume);
    let is_running = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (end, ended) = channel();
        let mut writer = writer(scope, &is_running, ended);
        assert!(shortage.refuses(4, writer.thread, &volume));
        assert!(shortage.leaves_room(5, 0, 500 * KIB, &volume));
        // What it writes has its blocks.
        volume.stored.store(MUCH as u64, Ordering::Release);
        assert!(!shortage.refuses(4, writer.thread, &volume));
        // A loss is told once.
        shortage.note_loss(4);
        assert!(shortage.refuses(4, writer.thread, &volume));
        assert!(!shortage.refuses(4, writer.thread, &volume));
        writer.pipe.read_exact(&mut [0; MUCH]).unwrap();
        writer.may_wait.send(()).unwrap();
        drop(end);
    });
}

#[test]
fn who_cannot_be_seen_writes_as_much_as_before() {
    let volume = Volume::with_free(FREE);
    let shortage = shortage(&volume);
    volume.stored.store(600 * KIB, Ordering::Release);
    assert!(!shortage.refuses(4, 0, &volume));
    assert!(!shortage.leaves_room(5, 600 * KIB, 500 * KIB, &volume));
    volume.stored.store(1800 * KIB, Ordering::Release);
    assert!(shortage.refuses(4, 0, &volume));
}

/// A thread that asks may have to wait for a processor before it waits for the answer.
#[test]
fn who_runs_is_looked_at_again() {
    let mut looks = 0;
    let call = see_waiting(|| {
        looks += 1;
        if looks < 4 { Call::Running } else { Call::Look }
    });
    assert_eq!((call, looks), (Call::Look, 4));
    looks = 0;
    let call = see_waiting(|| {
        looks += 1;
        Call::Running
    });
    assert_eq!((call, looks), (Call::Running, 8), "but not for ever");
}

#[test]
fn what_takes_much_is_a_shortage_until_it_is_answered() {
    let volume = Volume::with_free(1 << 50);
    let shortage = Shortage::new(DirtyLimit::of(None));
    assert!(!shortage.look(&volume) && !shortage.take_begun());
    assert!(!shortage.would_begin(4, 0, FREE, &volume) && shortage.would_begin(4, 0, 1 << 50, &volume));
    [(); 2].into_iter().for_each(|()| shortage.expect());
    assert!(shortage.look(&volume) && shortage.take_begun());
    assert!(shortage.look(&volume) && !shortage.take_begun());
    shortage.meet();
    assert!(shortage.look(&volume) && !shortage.take_begun());
    shortage.meet();
    assert!(!shortage.look(&volume) && !shortage.take_begun());
}

const NO: Error = Error::NotSupported("not asked for");

impl FileSystem for Volume {
    fn attributes(&self, ino: InodeNumber) -> Result<Attributes> {
        let stored = self.stored.load(Ordering::Acquire);
        Ok(Attributes {
            ino,
            generation: 0,
            kind: FileKind::Regular,
            permissions: 0o600,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: stored,
            sectors: stored / 512,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: None,
            flags: InodeFlags::empty(),
            project_id: 0,
        })
    }

    fn stat_fs(&self) -> Result<StatFs> {
        let available = self.free.load(Ordering::Acquire) / KIB;
        let (blocks, files) = (1 << 50, 1 << 20);
        Ok(StatFs {
            block_size: KIB as u32,
            blocks,
            free: available,
            available,
            files,
            files_free: files,
            name_max: 255,
            id: 1,
        })
    }

    fn room_for(&self, _: InodeNumber, offset: u64, length: u64) -> Result<u64> {
        Ok((offset + length).saturating_sub(offset.max(self.stored.load(Ordering::Acquire))))
    }

    fn root(&self) -> InodeNumber {
        3
    }
    fn lookup(&self, _: InodeNumber, _: &[u8]) -> Result<Attributes> {
        Err(NO)
    }
    fn forget(&self, _: InodeNumber, _: u64) {}
    fn set_attributes(&self, _: InodeNumber, _: &SetAttributes) -> Result<Attributes> {
        Err(NO)
    }
    fn read_link(&self, _: InodeNumber) -> Result<Vec<u8>> {
        Err(NO)
    }
    fn create(&self, _: InodeNumber, _: &[u8], _: &NewNode<'_>, _: &Caller) -> Result<Attributes> {
        Err(NO)
    }
    fn create_unnamed(&self, _: InodeNumber, _: u32, _: &Caller) -> Result<Attributes> {
        Err(NO)
    }
    fn link(&self, _: InodeNumber, _: InodeNumber, _: &[u8]) -> Result<Attributes> {
        Err(NO)
    }
    fn unlink(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(NO)
    }
    fn remove_directory(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(NO)
    }
    fn rename(&self, _: InodeNumber, _: &[u8], _: InodeNumber, _: &[u8], _: RenameFlags, _: &Caller) -> Result<()> {
        Err(NO)
    }
    fn read(&self, _: InodeNumber, _: u64, _: &mut [u8]) -> Result<usize> {
        Err(NO)
    }
    fn write(&self, _: InodeNumber, _: u64, _: &[u8], _: bool) -> Result<usize> {
        Err(NO)
    }
    fn fallocate(&self, _: InodeNumber, _: FallocateMode, _: u64, _: u64) -> Result<()> {
        Err(NO)
    }
    fn seek(&self, _: InodeNumber, _: u64, _: Seek) -> Result<u64> {
        Err(NO)
    }
    fn read_directory(&self, _: InodeNumber, _: u64, _: &mut dyn FnMut(DirectoryEntry<'_>) -> bool) -> Result<()> {
        Err(NO)
    }
    fn sync_file(&self, _: InodeNumber, _: bool) -> Result<()> {
        Err(NO)
    }
    fn sync(&self) -> Result<()> {
        Err(NO)
    }
    fn get_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<Vec<u8>> {
        Err(NO)
    }
    fn set_xattr(&self, _: InodeNumber, _: &[u8], _: &[u8], _: XattrFlags) -> Result<()> {
        Err(NO)
    }
    fn list_xattrs(&self, _: InodeNumber) -> Result<Vec<u8>> {
        Err(NO)
    }
    fn remove_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(NO)
    }
    fn set_flags(&self, _: InodeNumber, _: InodeFlags) -> Result<()> {
        Err(NO)
    }
    fn set_project_id(&self, _: InodeNumber, _: u32) -> Result<()> {
        Err(NO)
    }
    fn trim(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        Err(NO)
    }
    fn tick(&self, _: Time) -> Background {
        Background { next: std::time::Duration::MAX }
    }
    fn close(&self) -> Result<()> {
        Err(NO)
    }
}
