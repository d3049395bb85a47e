//! A device with a volatile write cache whose power can go at any request.
//!
//! What a power cut may do, and what may not be counted on:
//!
//! 1. What was written before a completed flush is there, whole.
//! 2. Each 512-byte sector written since then is there or not, independently of every other: a request may be kept, lost, or
//!    torn, and a later one may be there without an earlier one. Where two requests wrote the same sector, either may have
//!    been the last to reach the medium, which is the same as the later one being lost.
//! 3. The request that the power cut meets is one of them. A flush that it meets has made nothing durable.
//! 4. Each sector of a range discarded since the last flush reads as before or as zeros; or, where that is asked for, as anything.
//! 5. Where that is asked for, a torn write takes along what its [flash page](FlashPages) held before.
//! 6. Where that is asked for, a sector written since the last flush cannot be read at all, as a flash page that was being programmed.
//!
//! One run is recorded once by [`PowerCutDevice`]; [`Replay`] then makes the device of any number of cuts from its log, at a
//! cost in proportion to what the cache held.

mod pages;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::DeviceLayer;
use crate::block::{BlockDevice, Result};
use crate::memory::MemoryDevice;
use crate::range::total_length;
use pages::Ends;

pub use pages::FlashPages;

/// Bytes of a sector, the unit of a torn write; less than [`BlockDevice::sector_size`] allows, never more.
pub const TORN_SECTOR: u64 = 512;

/// A request that changes the medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Bytes were written.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// A range was discarded.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// What came before is durable once the request after this one was asked for.
    Flush,
    /// The same of a flush that others wrote beside: what came before the change of this number, the first since it began, is durable.
    FlushOf(usize),
}

impl Change {
    /// First byte and length; nothing for a flush.
    pub fn range(&self) -> (u64, u64) {
        match self {
            Change::Write { offset, data } => (*offset, data.len() as u64),
            Change::Discard { offset, length } => (*offset, *length),
            Change::Flush | Change::FlushOf(_) => (0, 0),
        }
    }

    /// Whether it is a flush that is over.
    pub fn is_flush(&self) -> bool {
        matches!(self, Change::Flush | Change::FlushOf(_))
    }

    /// Sectors of [`TORN_SECTOR`] bytes that it touches.
    pub fn sectors(&self) -> usize {
        let (offset, length) = self.range();
        let end = offset.saturating_add(length).div_ceil(TORN_SECTOR);
        if length == 0 { 0 } else { usize::try_from(end - offset / TORN_SECTOR).unwrap_or(usize::MAX) }
    }
}

/// What becomes of a request that was in the cache when the power went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It reached the medium.
    Kept,
    /// It did not.
    Lost,
    /// These of its sectors did, in order from its first; sectors left out did not.
    Torn(Vec<bool>),
    /// These of its sectors, in order from its first, cannot be read any more; the others reached the medium.
    Unreadable(Vec<bool>),
    /// It was being programmed: what it tears of its [flash pages](FlashPages) holds bytes made from this number. Where none are known, it is lost.
    Programmed(u64),
    /// What was discarded holds bytes made from this number. A write has reached the medium.
    Garbage(u64),
}

/// A device in memory that keeps a log of what changes it.
///
/// ```
/// use basalt_device::power::Fate;
/// use basalt_device::{BlockDevice, MemoryDevice, PowerCutDevice, Replay};
///
/// let device = PowerCutDevice::new(MemoryDevice::new(1 << 20, 512));
/// device.write_at(0, &[1; 512])?;
/// device.flush()?;
/// device.write_at(512, &[2; 512])?;
///
/// // Power goes, and the write that was not flushed is lost.
/// let history = device.history();
/// let left = Replay::new(&history).cut(history.changes.len(), |cached| vec![Fate::Lost; cached.len()]);
/// let mut bytes = [9; 1024];
/// left.read_at(0, &mut bytes)?;
/// assert_eq!((bytes[0], bytes[512]), (1, 0));
/// # Ok::<(), basalt_device::DeviceError>(())
/// ```
pub struct PowerCutDevice {
    base: MemoryDevice,
    live: MemoryDevice,
    log: Mutex<Vec<Change>>,
    pages: Option<FlashPages>,
}

impl PowerCutDevice {
    /// A device that starts with the content of `base`, all of it durable.
    pub fn new(base: MemoryDevice) -> PowerCutDevice {
        PowerCutDevice { live: base.snapshot(), base, log: Mutex::default(), pages: None }
    }

    /// The same device, whose flash pages are these.
    #[must_use]
    pub fn with_pages(self, pages: Option<FlashPages>) -> PowerCutDevice {
        PowerCutDevice { pages, ..self }
    }

    /// Changes logged so far: the index of the next.
    pub fn position(&self) -> usize {
        self.log.lock().len()
    }

    /// The run so far.
    pub fn history(&self) -> History {
        History { base: self.base.snapshot(), changes: self.log.lock().clone(), pages: self.pages }
    }

    /// What it holds now, cache included.
    pub fn now(&self) -> MemoryDevice {
        self.live.snapshot()
    }

    /// Ends a flush that began when [`position`](Self::position) was `begun`: what was logged since is not covered.
    pub fn end_flush(&self, begun: usize) {
        let mut log = self.log.lock();
        let flush = if begun == log.len() { Change::Flush } else { Change::FlushOf(begun) };
        log.push(flush);
    }

    fn push(&self, change: Change) {
        self.log.lock().push(change);
    }
}

impl DeviceLayer for PowerCutDevice {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.live
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.live.write_vectored_at(offset, slices)?;
        if total_length(slices) > 0 {
            let data: Arc<[u8]> = if let [only] = slices { Arc::from(*only) } else { Arc::from(slices.concat()) };
            self.push(Change::Write { offset, data });
        }
        Ok(())
    }

    fn on_flush(&self) -> Result<()> {
        self.live.flush()?;
        self.push(Change::Flush);
        Ok(())
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.live.discard(offset, length)?;
        self.push(Change::Discard { offset, length });
        Ok(())
    }
}

/// What a device held in the beginning, and everything that changed it since.
pub struct History {
    /// The content before the first change.
    pub base: MemoryDevice,
    /// The changes in order. Tests of the testers may alter them: a flush left out is a device that lies.
    pub changes: Vec<Change>,
    /// Flash pages, where they are known.
    pub pages: Option<FlashPages>,
}

/// Goes through a history from front to back and makes devices after power cuts.
pub struct Replay<'a> {
    changes: &'a [Change],
    durable: MemoryDevice,
    /// Of `durable`.
    digest: u64,
    /// Changes before this one are durable.
    cached_from: usize,
    pages: Option<FlashPages>,
    ends: Ends,
}

impl<'a> Replay<'a> {
    /// At the beginning of `history`.
    pub fn new(history: &'a History) -> Replay<'a> {
        Replay::knowing(history, 0)
    }

    /// As [`new`](Self::new), where the digest of what the device held in the beginning is known.
    pub fn knowing(history: &'a History, digest: u64) -> Replay<'a> {
        Replay {
            changes: &history.changes,
            durable: history.base.snapshot(),
            digest,
            cached_from: 0,
            pages: history.pages,
            ends: Ends::default(),
        }
    }

    /// Changes that are in the cache when the power goes during change `at`, which is one of them; none is in flight if
    /// `at` is the end of the history.
    fn cached(&self, at: usize) -> &'a [Change] {
        let end = match self.changes.get(at) {
            Some(change) if !change.is_flush() => at + 1,
            _ => at.min(self.changes.len()),
        };
        &self.changes[self.cached_from..end]
    }

    /// The device after the power went during change `at`, where `fates` decides about what was in the cache, one fate for
    /// each change it is shown; changes without one are lost. Cuts must be asked for in rising order of `at`.
    ///
    /// # Panics
    /// If `at` lies before an earlier one with a flush between them.
    pub fn cut(&mut self, at: usize, fates: impl FnOnce(&[Change]) -> Vec<Fate>) -> MemoryDevice {
        self.cut_with_digest(at, fates).0
    }

    /// As [`cut`](Self::cut), with the [digest](MemoryDevice::digest) of what is left; it costs little more.
    ///
    /// # Panics
    /// As [`cut`](Self::cut).
    pub fn cut_with_digest(&mut self, at: usize, fates: impl FnOnce(&[Change]) -> Vec<Fate>) -> (MemoryDevice, u64) {
        assert!(at >= self.cached_from, "cuts go from front to back");
        let before = at.min(self.changes.len());
        let covered = (self.cached_from..before).filter_map(|index| match self.changes[index] {
            Change::Flush => Some(index + 1),
            Change::FlushOf(begun) => Some(begun),
            _ => None,
        });
        if let Some(covered) = covered.max().filter(|covered| *covered > self.cached_from) {
            for change in &self.changes[self.cached_from..covered] {
                let _ = torn_with(self.pages, &mut self.ends, &self.durable, change);
                apply(&self.durable, change, &Fate::Kept, &mut self.digest);
            }
            self.cached_from = covered;
        }
        let cached = self.cached(at);
        let (device, mut digest) = (self.durable.snapshot(), self.digest);
        let fates = fates(cached);
        let tears_pages = fates.iter().any(|fate| matches!(fate, Fate::Programmed(_)));
        let mut ends = if tears_pages { self.ends.clone() } else { Ends::default() };
        for (change, fate) in cached.iter().zip(fates) {
            let torn = if tears_pages { torn_with(self.pages, &mut ends, &device, change) } else { Vec::new() };
            match fate {
                Fate::Programmed(seed) => torn.iter().for_each(|range| spoil_page(&device, *range, seed, &mut digest)),
                fate => apply(&device, change, &fate, &mut digest),
            }
        }
        (device, digest)
    }
}

/// Brings a change to the medium as far as its fate says, and keeps the digest of the medium up to date.
fn apply(device: &MemoryDevice, change: &Change, fate: &Fate, digest: &mut u64) {
    // The request went through once on a device of this size: it cannot fail.
    let mut reach = |from: u64, to: u64| {
        *digest = digest.wrapping_sub(device.digest_of(from, to));
        match change {
            Change::Write { offset, data } => {
                let bytes = &data[(from - offset) as usize..(to - offset) as usize];
                let _ = device.write_at(from, bytes);
            }
            Change::Discard { .. } => drop(device.discard(from, to - from)),
            Change::Flush | Change::FlushOf(_) => {}
        }
        *digest = digest.wrapping_add(device.digest_of(from, to));
    };
    let (offset, length) = change.range();
    let end = offset + length;
    match fate {
        Fate::Lost | Fate::Programmed(_) => {}
        Fate::Kept => reach(offset, end),
        Fate::Garbage(seed) => match change {
            Change::Discard { .. } => litter(device, offset, length, *seed, digest),
            _ => reach(offset, end),
        },
        Fate::Unreadable(sectors) => {
            reach(offset, end);
            let first = offset / TORN_SECTOR;
            for sector in (first..).zip(sectors).filter(|(_, is_bad)| **is_bad).map(|(sector, _)| sector) {
                let (from, to) = (sector * TORN_SECTOR, (sector + 1) * TORN_SECTOR);
                *digest = digest.wrapping_sub(device.digest_of(from, to));
                let _ = device.spoil(from, TORN_SECTOR);
                *digest = digest.wrapping_add(device.digest_of(from, to));
            }
        }
        Fate::Torn(sectors) => {
            let first = offset / TORN_SECTOR;
            for (sector, _) in (first..).zip(sectors).filter(|(_, kept)| **kept) {
                let (from, to) = ((sector * TORN_SECTOR).max(offset), ((sector + 1) * TORN_SECTOR).min(end));
                if from < to {
                    reach(from, to);
                }
            }
        }
    }
}

/// What is lost if this change is torn while its flash pages are programmed.
fn torn_with(pages: Option<FlashPages>, ends: &mut Ends, device: &MemoryDevice, change: &Change) -> Vec<(u64, u64)> {
    match (pages, change) {
        (Some(pages), Change::Write { offset, data }) => ends.note(pages, device, *offset, data.len() as u64),
        _ => Vec::new(),
    }
}

/// Fills a flash page that was being programmed, or the part of it that was, with bytes that nobody wrote.
fn spoil_page(device: &MemoryDevice, (from, to): (u64, u64), seed: u64, digest: &mut u64) {
    let to = to.min(device.size());
    *digest = digest.wrapping_sub(device.digest_of(from, to));
    let byte = |at: u64| (seed.wrapping_add(at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    // As in `apply`: it cannot fail.
    let _ = device.write_at(from, &(from..to).map(byte).collect::<Vec<u8>>());
    *digest = digest.wrapping_add(device.digest_of(from, to));
}

/// Fills what was discarded with bytes that nobody wrote. Of every 64 KiB, the first block: that much is as good as all, and costs less.
fn litter(device: &MemoryDevice, offset: u64, length: u64, seed: u64, digest: &mut u64) {
    const STEP: u64 = 64 << 10;
    *digest = digest.wrapping_sub(device.digest_of(offset, offset + length));
    // As in `apply`: it cannot fail.
    let _ = device.discard(offset, length);
    for from in (offset..offset + length).step_by(STEP as usize) {
        let size = 4096.min(offset + length - from) as usize;
        let mut state = seed ^ from;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..size).map(|_| next()).collect();
        let _ = device.write_at(from, &bytes);
    }
    *digest = digest.wrapping_add(device.digest_of(offset, offset + length));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(device: &MemoryDevice) -> Vec<u8> {
        let mut bytes = vec![0xee; usize::try_from(device.size()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Four writes of a block each, the flush behind the second.
    fn history() -> History {
        let device = PowerCutDevice::new(MemoryDevice::from_bytes(&[9; 4 * 4096], 512));
        for block in 0..4_u8 {
            device.write_vectored_at(u64::from(block) * 4096, &[&[block + 1; 1024], &[block + 1; 3072]]).unwrap();
            if block == 1 {
                device.flush().unwrap();
            }
        }
        device.write_at(0, &[]).unwrap();
        assert_eq!(device.position(), 5);
        device.history()
    }

    #[test]
    fn a_flush_holds_from_the_next_request_on() {
        let history = history();
        let mut replay = Replay::new(&history);
        let lost = |cached: &[Change]| vec![Fate::Lost; cached.len()];
        // During the first write, the second, and the flush: nothing is sure.
        for at in 0..3 {
            assert_eq!(content(&replay.cut(at, lost)), [9; 4 * 4096]);
        }
        let firsts = [[1; 4096], [2; 4096], [9; 4096], [9; 4096]].concat();
        for at in 3..=5 {
            assert_eq!(content(&replay.cut(at, lost)), firsts);
        }
    }

    #[test]
    fn the_cache_holds_what_was_written_since_and_the_write_in_flight() {
        let history = history();
        let mut replay = Replay::new(&history);
        for (at, expected) in [(0, 1), (1, 2), (2, 2), (3, 1), (4, 2), (5, 2)] {
            let mut seen = 0;
            let device = replay.cut(at, |cached| {
                seen = cached.len();
                vec![Fate::Kept; seen]
            });
            assert_eq!(seen, expected, "cut at {at}");
            let kept = content(&device).chunks(4096).filter(|block| block[0] != 9).count();
            assert_eq!(kept, if at < 3 { seen } else { 2 + seen });
        }
    }

    #[test]
    fn a_flush_covers_what_came_before_it_began() {
        let device = PowerCutDevice::new(MemoryDevice::new(4 * 512, 512));
        device.write_at(0, &[1; 512]).unwrap();
        let begun = device.position();
        device.write_at(512, &[2; 512]).unwrap();
        device.end_flush(begun);
        device.write_at(1024, &[3; 512]).unwrap();
        let begun = device.position();
        device.end_flush(begun);
        let history = device.history();
        assert_eq!(history.changes[2], Change::FlushOf(1));
        assert_eq!(history.changes[4], Change::Flush);
        let mut replay = Replay::new(&history);
        let mut left = |at: usize| {
            let image = content(&replay.cut(at, |cached| vec![Fate::Lost; cached.len()]));
            [image[0], image[512], image[1024]]
        };
        // During the flush nothing is sure; behind it, what came before it began.
        assert_eq!([left(2), left(3), left(4), left(5)], [[0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 2, 3]]);
    }

    #[test]
    fn writes_and_discards_tear_at_sectors() {
        let device = PowerCutDevice::new(MemoryDevice::from_bytes(&[9; 4096], 512));
        device.write_at(256, &[1; 1024]).unwrap();
        device.discard(2048, 2048).unwrap();
        let history = device.history();
        assert_eq!(history.changes[0].sectors(), 3);
        let torn = vec![Fate::Torn(vec![false, true, true]), Fate::Torn(vec![false, false, true, false])];
        let bytes = content(&Replay::new(&history).cut(2, |_| torn));
        let runs: Vec<(u8, usize)> = bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        assert_eq!(runs, [(9, 512), (1, 768), (9, 1792), (0, 512), (9, 512)]);
    }

    #[test]
    fn digests_tell_what_is_left() {
        let history = history();
        let mut replay = Replay::knowing(&history, history.base.digest());
        let mut seen = std::collections::HashMap::new();
        for at in 0..=5 {
            for kept in [true, false] {
                let fate = if kept { Fate::Kept } else { Fate::Torn(vec![true, false, true, true]) };
                let (device, digest) = replay.cut_with_digest(at, |cached| vec![fate; cached.len()]);
                assert_eq!(digest, device.digest(), "cut at {at}");
                let before = seen.insert(digest, content(&device));
                assert!(before.is_none_or(|before| before == content(&device)), "one digest of two contents");
            }
        }
        assert!(seen.len() >= 6);
    }

    #[test]
    fn a_later_write_may_be_there_without_an_earlier_one() {
        let device = PowerCutDevice::new(MemoryDevice::new(512, 512));
        device.write_at(0, &[1; 512]).unwrap();
        device.write_at(0, &[2; 512]).unwrap();
        let history = device.history();
        let after = |fates: [Fate; 2]| content(&Replay::new(&history).cut(2, |_| fates.to_vec()))[0];
        assert_eq!(after([Fate::Lost, Fate::Kept]), 2);
        assert_eq!(after([Fate::Kept, Fate::Lost]), 1);
        assert_eq!(after([Fate::Kept, Fate::Kept]), 2);
        assert_eq!(after([Fate::Lost, Fate::Lost]), 0);
    }
}
