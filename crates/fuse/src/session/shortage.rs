//! Nearly full volumes: who writes into the kernel's page cache hears of it from write(2).
//!
//! With its writeback cache the kernel takes every write(2), and finds out long afterwards, when it hands its pages over, that
//! there is no room for them; only fsync and close say so, and what the program has written is lost. How much the kernel may hold back is
//! limited (`crate::mount::dirty`). So once less than that limit is free, no write(2) to a cached file begins before everything that was
//! written to the file earlier is on the volume:
//!
//! - The kernel is told that the attributes it knows of the file are out of date. The next write(2) then asks for them through its open
//!   file before it puts anything into the cache. It is told before it has the reply to the WRITE that shows the shortage: a thread that
//!   is to tell it later may have to wait for a processor, while programs go on writing and other threads take it.
//! - That question is answered by the thread beside the loops, which first lets the kernel write the file's pages back (see `cache_thread`).
//!   Doing so also makes the kernel take the answer for an old one: the write(2) after it asks again.
//! - What the write brings is in the system call that waits for the answer (see `caller`), and the file system knows which of that has its
//!   blocks already. The answer is ENOSPC where that does not fit, together with what was promised to other writes under way, or where
//!   earlier pages found no room. Who looks at the file with fstat(2), or reads it, gets an answer.
//! - A promise is kept when the kernel has written the file back after the write has ended. Where promises to other files are in the way,
//!   the kernel first writes those back.
//! - Whatever else takes space, fallocate(2) or a write past the cache, leaves what was promised.
//!
//! Where nobody can tell what a write brings (the program is another user's and Basalt is not root's, io_uring, AIO, splice; its memory is
//! mapped from a file that cannot be read now), it counts as much as the one before it. Pages that change through mmap(2) are not asked
//! about. Their loss is told to msync and fsync.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use basalt_vfs::{FileSystem, InodeNumber, StatFs};
use parking_lot::Mutex;

use super::caller::Call;
use super::onlooker::Onlooker;
use crate::mount::DirtyLimit;

/// From so many free bytes on a volume is not full any more.
const ROOM: u64 = 1 << 20;
/// Bytes that nodes take beside the content that one write(2) adds.
const NODES: u64 = 64 << 10;
/// Pauses between looks at a thread that should wait and still runs, in milliseconds.
const PAUSES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The unit of space in attributes, in bytes.
const SECTOR: u64 = 512;

/// What is known of the free space, and of files written to while there is little.
pub(super) struct Shortage {
    limit: DirtyLimit,
    onlooker: Onlooker,
    /// Less is free than the kernel may hold back.
    is_tight: AtomicBool,
    /// Held while somebody looks: what was seen earlier must not outlast what others see later. Whether a shortage has begun since
    /// somebody last asked that.
    has_begun: Mutex<bool>,
    /// Requests under way that take much.
    coming: AtomicUsize,
    /// Whether there are any files: spares the lock where all is well.
    any: AtomicBool,
    files: Mutex<HashMap<InodeNumber, Written>>,
}

/// A file that is written to through the kernel's cache.
#[derive(Default)]
struct Written {
    /// Pages of it found no room.
    lost: bool,
    /// Its space when somebody last asked before a write, in sectors.
    sectors: Option<u64>,
    /// What was promised to each thread, since the kernel last wrote back what it had of the file.
    promised: HashMap<u32, Promise>,
}

impl Written {
    fn promised(&self) -> u64 {
        self.promised.values().map(|promise| promise.bytes).sum()
    }
}

/// Room for a write that may not have reached the volume.
struct Promise {
    call: Call,
    /// Bytes of free space.
    bytes: u64,
}

impl Shortage {
    pub(super) fn new(limit: DirtyLimit) -> Self {
        Shortage {
            limit,
            onlooker: Onlooker::new(),
            is_tight: AtomicBool::new(false),
            has_begun: Mutex::new(false),
            coming: AtomicUsize::new(0),
            any: AtomicBool::new(false),
            files: Mutex::new(HashMap::new()),
        }
    }

    /// Sets the limit by the size of the volume, in bytes.
    pub(super) fn tune(&self, size: u64) {
        self.limit.tune(size);
    }

    /// Compares what is free with what the kernel may hold back: whether there is a shortage. One that begins is noted.
    pub(super) fn look(&self, fs: &dyn FileSystem) -> bool {
        let mut has_begun = self.has_begun.lock();
        let is_coming = self.coming.load(Ordering::Acquire) > 0;
        let is_tight = is_coming || fs.stat_fs().is_ok_and(|stat| available(&stat) < self.limit.bytes());
        if is_tight && !self.is_tight() {
            self.begin();
            *has_begun = true;
        }
        self.is_tight.store(is_tight, Ordering::Release);
        is_tight
    }

    /// Whether a shortage has begun since this was last asked.
    pub(super) fn take_begun(&self) -> bool {
        std::mem::take(&mut *self.has_begun.lock())
    }

    /// Whether a shortage begins when the blocks for a range of a file are taken.
    pub(super) fn would_begin(&self, ino: InodeNumber, offset: u64, length: u64, fs: &dyn FileSystem) -> bool {
        let (Ok(stat), Ok(bytes)) = (fs.stat_fs(), fs.room_for(ino, offset, length)) else { return false };
        !self.is_tight() && available(&stat) < self.limit.bytes().saturating_add(bytes)
    }

    /// A request that takes much goes to the thread that answers writers, one after the other.
    pub(super) fn expect(&self) {
        self.coming.fetch_add(1, Ordering::AcqRel);
    }

    /// It is answered.
    pub(super) fn meet(&self) {
        self.coming.fetch_sub(1, Ordering::AcqRel);
    }

    /// A shortage begins. What was known belongs to an earlier one; the files may have grown by any amount since.
    pub(super) fn begin(&self) {
        self.is_tight.store(true, Ordering::Release);
        self.files.lock().values_mut().for_each(|file| (file.sectors, file.promised) = (None, HashMap::new()));
    }

    /// Whether there was a shortage when somebody last looked.
    pub(super) fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Acquire)
    }

    /// From now on, writes to this file are asked about. `is_new`: the kernel holds nothing back of it yet, so what it takes now
    /// tells how much the first write adds.
    pub(super) fn watch(&self, ino: InodeNumber, is_new: bool, fs: &dyn FileSystem) {
        let now = || is_new.then(|| fs.attributes(ino).ok().map(|attributes| attributes.sectors)).flatten();
        self.files.lock().entry(ino).or_insert_with(|| Written { sectors: now(), ..Default::default() });
        self.any.store(true, Ordering::Release);
    }

    /// Whether writes to this file have to be asked about.
    pub(super) fn watches(&self, ino: InodeNumber) -> bool {
        self.is_tight() && self.any.load(Ordering::Acquire) && self.files.lock().contains_key(&ino)
    }

    /// Cached pages of this file found no room.
    pub(super) fn note_loss(&self, ino: InodeNumber) {
        self.files.lock().entry(ino).or_default().lost = true;
        self.any.store(true, Ordering::Release);
    }

    /// Threads that were promised room in a file and have ended the write: when the kernel has written back what it has now, theirs is there.
    /// One of them is who asks now.
    pub(super) fn finished(&self, ino: InodeNumber, asks: Option<u32>) -> Vec<u32> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let promised: Vec<(u32, Call)> = match self.files.lock().get(&ino) {
            Some(file) => file.promised.iter().map(|(&thread, promise)| (thread, promise.call)).collect(),
            None => return Vec::new(),
        };
        // Of whom nobody can tell anything has lost its promise: it keeps its memory from being read itself.
        let has_ended = |&(thread, call): &(u32, Call)| {
            asks == Some(thread) || ![call, Call::Running].contains(&self.call_of(thread))
        };
        promised.into_iter().filter(has_ended).map(|(thread, _)| thread).collect()
    }

    /// What was promised to these threads is on the volume.
    pub(super) fn keep(&self, ino: InodeNumber, threads: &[u32]) {
        if !threads.is_empty()
            && let Some(file) = self.files.lock().get_mut(&ino)
        {
            file.promised.retain(|thread, _| !threads.contains(thread));
        }
    }

    /// Other files to which something was promised, if what a request takes may not fit beside that; `None`: nobody can tell how much.
    pub(super) fn in_the_way(
        &self,
        ino: InodeNumber,
        takes: impl FnOnce() -> Option<u64>,
        fs: &dyn FileSystem,
    ) -> Vec<InodeNumber> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let promised: Vec<(InodeNumber, u64)> =
            self.files.lock().iter().map(|(&file, written)| (file, written.promised())).collect();
        let others = promised.iter().filter(|(file, bytes)| *file != ino && *bytes > 0);
        let others: Vec<InodeNumber> = others.map(|(file, _)| *file).collect();
        let all = promised.iter().fold(NODES, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let fits = |bytes: u64| fs.stat_fs().is_ok_and(|stat| available(&stat) >= all.saturating_add(bytes));
        if others.is_empty() || takes().is_some_and(fits) { Vec::new() } else { others }
    }

    /// What a thread does, by its number, as far as that can be told in time.
    pub(super) fn call_of(&self, thread: u32) -> Call {
        self.onlooker.call_of(thread)
    }

    /// Bytes that a call would add to a file, with its nodes; `None` where nobody can tell.
    pub(super) fn brings(ino: InodeNumber, call: Call, fs: &dyn FileSystem) -> Option<u64> {
        match call {
            Call::Look => Some(0),
            Call::Write { offset: Some(offset), length } => fs.room_for(ino, offset, length).ok(),
            Call::Write { offset: None, length } => fs.room_for(ino, fs.attributes(ino).ok()?.size, length).ok(),
            Call::Unknown | Call::Running => None,
        }
    }

    /// Whether what this thread is about to write to the file has to be refused: it does not fit. Who was refused once may try again. The
    /// kernel has just written back what it had of the file.
    pub(super) fn refuses(&self, ino: InodeNumber, thread: u32, fs: &dyn FileSystem) -> bool {
        if !self.any.load(Ordering::Acquire) || !self.files.lock().contains_key(&ino) {
            return false;
        }
        // Where there is enough, an event loop asks, and nobody has to wait.
        let call = if self.is_tight() { see_waiting(|| self.call_of(thread)) } else { self.call_of(thread) };
        let (Ok(stat), Ok(attributes)) = (fs.stat_fs(), fs.attributes(ino)) else { return false };
        if call == Call::Look {
            return false;
        }
        let known = Self::brings(ino, call, fs);
        let mut files = self.files.lock();
        let elsewhere: u64 = files.iter().filter(|(other, _)| **other != ino).map(|(_, file)| file.promised()).sum();
        let Some(file) = files.get_mut(&ino) else { return false };
        let had_lost = std::mem::take(&mut file.lost);
        let before = file.sectors.replace(attributes.sectors).unwrap_or(attributes.sectors);
        let grown = attributes.sectors.saturating_sub(before).saturating_mul(SECTOR);
        let bytes = known.unwrap_or(grown);
        let needed = bytes.saturating_add(NODES).saturating_add(elsewhere).saturating_add(file.promised());
        let refused = had_lost && available(&stat) < ROOM || bytes > 0 && available(&stat) < needed;
        if !refused && bytes > 0 {
            file.promised.insert(thread, Promise { call, bytes });
        }
        refused
    }

    /// Whether something else may take space for a range of a file: what was promised still fits then.
    pub(super) fn leaves_room(&self, ino: InodeNumber, offset: u64, length: u64, fs: &dyn FileSystem) -> bool {
        if !self.is_tight() || !self.any.load(Ordering::Acquire) {
            return true;
        }
        let promised: u64 = self.files.lock().values().map(Written::promised).sum();
        let (Ok(stat), Ok(bytes)) = (fs.stat_fs(), fs.room_for(ino, offset, length)) else { return true };
        promised == 0 || bytes == 0 || available(&stat) >= bytes.saturating_add(promised)
    }

    /// A file was closed: the kernel has written back what it had of it.
    pub(super) fn close(&self, ino: InodeNumber) {
        if self.any.load(Ordering::Acquire)
            && let Some(file) = self.files.lock().get_mut(&ino)
        {
            file.promised.clear();
        }
    }

    /// The kernel knows the file no more.
    pub(super) fn forget(&self, ino: InodeNumber) {
        if self.any.load(Ordering::Acquire) {
            let mut files = self.files.lock();
            files.remove(&ino);
            self.any.store(!files.is_empty(), Ordering::Release);
        }
    }
}

/// What a thread does that waits for an answer, or will as soon as it has a processor: that may take some looks.
pub(super) fn see_waiting(mut look: impl FnMut() -> Call) -> Call {
    for pause in PAUSES {
        match look() {
            Call::Running => std::thread::sleep(Duration::from_millis(pause)),
            call => return call,
        }
    }
    look()
}

fn available(stat: &StatFs) -> u64 {
    stat.available.saturating_mul(u64::from(stat.block_size))
}
