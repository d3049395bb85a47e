//! What a trace is like: how much, how large, how sequential, over how much space.

use std::collections::BTreeMap;

use basalt_device::RequestKind;
use serde::Serialize;

use crate::request::TraceRequest;

/// Footprints are counted in pages of this many bytes.
pub const FOOTPRINT_PAGE: u64 = 4096;
/// Pages of a map's chunk.
const CHUNK_PAGES: u64 = 4096;
const CHUNK_WORDS: usize = (CHUNK_PAGES / 64) as usize;
/// Most chunks of a map: 128 MiB of memory, 4 TiB of pages that lie together.
const MOST_CHUNKS: usize = 1 << 18;

/// Size classes of requests: up to 512 bytes, 1 KiB, … 1 MiB, and more.
pub const SIZE_CLASSES: usize = 13;

/// Numbers of one kind of request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KindStatistics {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Requests that begin where the one of the same kind before ended.
    pub sequential: u64,
    /// Requests whose offset or length is no multiple of 4 KiB.
    pub unaligned: u64,
    /// The longest request in bytes.
    pub longest: u64,
    /// How many requests have up to 512 bytes, up to 1 KiB, and so on by powers of two up to 1 MiB; the last: more.
    pub sizes: [u64; SIZE_CLASSES],
    /// Bytes of the different 4 KiB pages touched; 0 for discards, whose ranges are not followed.
    pub footprint: u64,
    #[serde(skip)]
    next: u64,
}

impl KindStatistics {
    /// Requests that go on where the last one ended, as a share of all; 0 without requests.
    pub fn sequential_share(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.sequential as f64 / self.requests as f64 }
    }

    /// Bytes of a request on average.
    pub fn mean_length(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.bytes as f64 / self.requests as f64 }
    }

    fn add(&mut self, request: &TraceRequest) {
        self.sequential += u64::from(self.requests > 0 && request.offset == self.next);
        self.next = request.end();
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(request.length);
        self.unaligned += u64::from(!(request.offset | request.length).is_multiple_of(FOOTPRINT_PAGE));
        self.longest = self.longest.max(request.length);
        // Class k holds requests of up to 512 << k bytes.
        let class = request.length.div_ceil(512).next_power_of_two().ilog2() as usize;
        self.sizes[class.min(SIZE_CLASSES - 1)] += 1;
    }
}

/// Numbers of a trace; see [`add`](Self::add).
#[derive(Debug, Clone, Default, Serialize)]
pub struct TraceStatistics {
    /// Reads.
    pub reads: KindStatistics,
    /// Writes.
    pub writes: KindStatistics,
    /// Discards.
    pub discards: KindStatistics,
    /// Flushes.
    pub flushes: u64,
    /// Nanoseconds from the first request to the latest.
    pub duration_ns: u64,
    /// One past the last byte that any request names.
    pub end: u64,
    /// Bytes of the different 4 KiB pages read or written.
    pub footprint: u64,
    /// The footprints are larger than shown: the trace jumps about so much that not every page could be remembered.
    pub footprint_is_partial: bool,
    #[serde(skip)]
    read_pages: PageSet,
    #[serde(skip)]
    written_pages: PageSet,
    #[serde(skip)]
    all_pages: PageSet,
}

impl TraceStatistics {
    /// Nothing counted yet.
    pub fn new() -> TraceStatistics {
        TraceStatistics::default()
    }

    /// Counts a request.
    pub fn add(&mut self, request: &TraceRequest) {
        self.duration_ns = self.duration_ns.max(request.time_ns);
        self.end = self.end.max(request.end());
        let (kind, pages) = match request.kind {
            RequestKind::Flush => return self.flushes += 1,
            RequestKind::Discard => return self.discards.add(request),
            RequestKind::Read => (&mut self.reads, &mut self.read_pages),
            RequestKind::Write => (&mut self.writes, &mut self.written_pages),
        };
        kind.add(request);
        let touched = request.pages(FOOTPRINT_PAGE);
        pages.insert(touched.clone());
        self.all_pages.insert(touched);
        kind.footprint = pages.count * FOOTPRINT_PAGE;
        self.footprint = self.all_pages.count * FOOTPRINT_PAGE;
        self.footprint_is_partial = pages.is_partial || self.all_pages.is_partial || self.footprint_is_partial;
    }

    /// Requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests + self.discards.requests + self.flushes
    }
}

/// A set of page numbers, within bounded memory.
#[derive(Debug, Clone, Default)]
struct PageSet {
    chunks: BTreeMap<u64, Box<[u64; CHUNK_WORDS]>>,
    count: u64,
    is_partial: bool,
}

impl PageSet {
    fn insert(&mut self, pages: std::ops::Range<u64>) {
        let mut at = pages.start;
        while at < pages.end {
            let chunk = at / CHUNK_PAGES;
            let end = pages.end.min((chunk + 1) * CHUNK_PAGES);
            if self.chunks.len() >= MOST_CHUNKS && !self.chunks.contains_key(&chunk) {
                self.is_partial = true;
            } else {
                let words = self.chunks.entry(chunk).or_insert_with(|| Box::new([0; CHUNK_WORDS]));
                self.count += fill(words, at % CHUNK_PAGES, end - chunk * CHUNK_PAGES);
            }
            at = end;
        }
    }
}

/// Sets the bits from `start` to `end`; returns how many were not set before.
fn fill(words: &mut [u64; CHUNK_WORDS], start: u64, end: u64) -> u64 {
    let mut added = 0;
    let mut at = start;
    while at < end {
        let stop = end.min((at / 64 + 1) * 64);
        let mask = (u64::MAX >> (64 - (stop - at))) << (at % 64);
        let word = &mut words[(at / 64) as usize];
        added += u64::from((mask & !*word).count_ones());
        *word |= mask;
        at = stop;
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_random::Rng;
    use std::collections::HashSet;

    #[test]
    fn footprints_agree_with_a_plain_set() {
        let mut rng = Rng::new(7);
        let (mut pages, mut plain) = (PageSet::default(), HashSet::new());
        for _ in 0..2_000 {
            let start = rng.below(40_000);
            let longest = if rng.below(20) == 0 { 9_000 } else { 100 };
            let end = start + rng.below(longest);
            pages.insert(start..end);
            plain.extend(start..end);
            assert_eq!(pages.count, plain.len() as u64);
        }
        assert!(!pages.is_partial);
    }

    #[test]
    fn kinds_are_told_apart() {
        let mut statistics = TraceStatistics::new();
        let mut add = |time_ns, kind, offset, length| statistics.add(&TraceRequest { time_ns, kind, offset, length });
        add(0, RequestKind::Write, 0, 8192);
        add(10, RequestKind::Write, 8192, 512);
        add(20, RequestKind::Read, 4096, 4096);
        add(90, RequestKind::Flush, 0, 0);
        add(80, RequestKind::Discard, 0, 1 << 40);
        assert_eq!(statistics.requests(), 5);
        assert_eq!((statistics.writes.requests, statistics.writes.bytes, statistics.writes.sequential), (2, 8704, 1));
        assert_eq!(
            (statistics.writes.footprint, statistics.reads.footprint, statistics.footprint),
            (12_288, 4_096, 12_288)
        );
        assert_eq!((statistics.writes.unaligned, statistics.flushes, statistics.duration_ns), (1, 1, 90));
        assert_eq!((statistics.writes.sizes[0], statistics.writes.sizes[4], statistics.reads.sizes[3]), (1, 1, 1));
        assert_eq!(statistics.discards.sizes[SIZE_CLASSES - 1], 1);
        assert_eq!((statistics.end, statistics.discards.longest), (1 << 40, 1 << 40));
        assert!((statistics.writes.sequential_share() - 0.5).abs() < 1e-9);
    }
}
