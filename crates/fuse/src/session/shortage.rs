//! Nearly full volumes: who writes into the kernel's page cache hears of it from write(2).
//!
//! With its writeback cache the kernel takes every write(2), and finds out long afterwards, when it hands its pages over, that
//! there is no room for them; only fsync and close say so, and what the program has written is lost. How much the kernel may hold back is
//! limited (`crate::mount::dirty`). So once less than that limit is free, no write(2) to a cached file begins before everything that was
//! written to the file earlier is on the volume:
//!
//! - The kernel is told that the attributes it knows of the file are out of date. The next write(2) then asks for them through its open
//!   file before it puts anything into the cache.
//! - That question is answered by the thread beside the loops, which first lets the kernel write the file's pages back (see `seeker`).
//!   Doing so also makes the kernel take the answer for an old one: the write(2) after it asks again.
//! - The answer is ENOSPC where earlier pages found no room, or less is free than the write before needed, and than those of other files
//!   that are under way. stat(2) asks without an
//!   open file, a reader through one that is not open for writing; both get their answers.
//!
//! What one write(2) alone brings beyond what is free is taken all the same: the kernel does not say how much it is. Its loss is told
//! to the next one, to fsync and to close.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use basalt_vfs::{FileSystem, InodeNumber, StatFs};
use parking_lot::Mutex;

use crate::mount::DirtyLimit;

/// From so many free bytes on a volume is not full any more.
const ROOM: u64 = 1 << 20;
/// Bytes that nodes take beside the content that one write(2) adds.
const NODES: u64 = 64 << 10;
/// The unit of space in attributes, in bytes.
const SECTOR: u64 = 512;

/// What is known of the free space, and of files written to while there is little.
pub(super) struct Shortage {
    limit: DirtyLimit,
    /// Less is free than the kernel may hold back.
    is_tight: AtomicBool,
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
    /// Bytes that the write under way is expected to add, as the one before it did.
    promised: u64,
}

impl Shortage {
    pub(super) fn new(limit: DirtyLimit) -> Self {
        Shortage {
            limit,
            is_tight: AtomicBool::new(false),
            any: AtomicBool::new(false),
            files: Mutex::new(HashMap::new()),
        }
    }

    /// Sets the limit by the size of the volume, in bytes.
    pub(super) fn tune(&self, size: u64) {
        self.limit.tune(size);
    }

    /// Compares what is free with what the kernel may hold back: whether there is a shortage, and whether it has just begun.
    pub(super) fn look(&self, fs: &dyn FileSystem) -> (bool, bool) {
        let is_tight = fs.stat_fs().is_ok_and(|stat| available(&stat) < self.limit.bytes());
        let was_tight = self.is_tight.swap(is_tight, Ordering::AcqRel);
        let has_begun = is_tight && !was_tight;
        if has_begun {
            // What was known belongs to an earlier shortage; the files may have grown by any amount since.
            self.files.lock().values_mut().for_each(|file| (file.sectors, file.promised) = (None, 0));
        }
        (is_tight, has_begun)
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

    /// Whether a write to this file has to be refused. Who was refused once may try again.
    pub(super) fn refuses(&self, ino: InodeNumber, fs: &dyn FileSystem) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let (Ok(stat), Ok(attributes)) = (fs.stat_fs(), fs.attributes(ino)) else { return false };
        let mut files = self.files.lock();
        let promised: u64 = files.iter().filter(|(other, _)| **other != ino).map(|(_, file)| file.promised).sum();
        let Some(file) = files.get_mut(&ino) else { return false };
        let had_lost = std::mem::take(&mut file.lost);
        let before = file.sectors.replace(attributes.sectors).unwrap_or(attributes.sectors);
        let grown = attributes.sectors.saturating_sub(before).saturating_mul(SECTOR);
        let needed = grown.saturating_add(NODES).saturating_add(promised);
        let refused = had_lost && available(&stat) < ROOM || grown > 0 && available(&stat) < needed;
        file.promised = if refused { 0 } else { grown };
        refused
    }

    /// A file was closed: the kernel has written back what it had of it.
    pub(super) fn close(&self, ino: InodeNumber) {
        if self.any.load(Ordering::Acquire)
            && let Some(file) = self.files.lock().get_mut(&ino)
        {
            file.promised = 0;
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

fn available(stat: &StatFs) -> u64 {
    stat.available.saturating_mul(u64::from(stat.block_size))
}
