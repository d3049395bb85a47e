//! How long a device takes for what a simulated volume writes and reads.

use std::sync::Arc;

use basalt_device::RequestKind;
use basalt_flash::device::{DeviceModel, Meter};
use basalt_segments::{BLOCKS_PER_SEGMENT, MainBlock};
use basalt_simulator::{BLOCK_SIZE, Traffic};
use parking_lot::Mutex;

/// Runs of blocks that wait for more at most, one for each log and some more: beyond, the one that waits for longest is written.
const MOST_RUNS: usize = 64;

/// What a device was asked for, and how long it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct DeviceCost {
    /// Write requests.
    pub writes: u64,
    /// Blocks of them.
    pub written_blocks: u64,
    /// Nanoseconds for them.
    pub write_ns: u64,
    /// Read requests: of cleaning, nobody else reads.
    pub reads: u64,
    /// Blocks of them.
    pub read_blocks: u64,
    /// Nanoseconds for them.
    pub read_ns: u64,
    /// Flushes, one for each checkpoint.
    pub flushes: u64,
    /// Nanoseconds for them.
    pub flush_ns: u64,
    /// Nanoseconds for a block of a long sequential write in full requests.
    pub block_ns: f64,
}

impl DeviceCost {
    /// Seconds of the device in all.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.write_ns + self.read_ns + self.flush_ns) as f64 / 1e9
    }

    /// Device time over the time for so many new blocks alone, written one behind the other: the write cost of the SFS paper (C. Min et al.,
    /// FAST 2012, section 5.1), measured. `None` without new blocks.
    #[must_use]
    pub fn write_cost(&self, new_blocks: u64) -> Option<f64> {
        let alone = new_blocks as f64 * self.block_ns;
        (alone > 0.0).then(|| (self.write_ns + self.read_ns + self.flush_ns) as f64 / alone)
    }
}

/// Times what a volume does on a device model, one request after the other. Blocks that are written one behind the other become requests of
/// at most a size, and never cross the end of a segment; a checkpoint, or that many other runs were begun, ends them early. Live blocks that
/// lie one behind the other are read together, likewise. The main area begins at the device's first byte.
#[derive(Debug)]
pub struct Priced {
    meter: Meter,
    /// Blocks of a request at most.
    most: u32,
    /// First block and number of blocks that are not written yet, the longest waiting first.
    runs: Vec<(u32, u32)>,
    cost: DeviceCost,
}

impl Priced {
    /// A device that has just been switched on, with requests of at most so many bytes, rounded down to whole blocks and up to one.
    #[must_use]
    pub fn new(model: Arc<DeviceModel>, request_bytes: u64) -> Priced {
        let blocks = (request_bytes / BLOCK_SIZE).clamp(1, u64::from(BLOCKS_PER_SEGMENT));
        let mut priced =
            Priced { meter: Meter::new(model), most: blocks as u32, runs: Vec::new(), cost: DeviceCost::default() };
        priced.cost.block_ns = priced.block_ns();
        priced
    }

    /// Nanoseconds for a block where full requests follow each other.
    fn block_ns(&self) -> f64 {
        let mut meter = Meter::new(Arc::clone(self.meter.model()));
        let length = u64::from(self.most) * BLOCK_SIZE;
        meter.request(RequestKind::Write, 0, length);
        meter.request(RequestKind::Write, length, length) as f64 / f64::from(self.most)
    }

    /// Writes what waits; what was asked for since the last call.
    pub fn take(&mut self) -> DeviceCost {
        self.write_all();
        let block_ns = self.cost.block_ns;
        std::mem::replace(&mut self.cost, DeviceCost { block_ns, ..DeviceCost::default() })
    }

    fn write_all(&mut self) {
        for (first, count) in std::mem::take(&mut self.runs) {
            self.write_now(first, count);
        }
    }

    fn write_now(&mut self, first: u32, count: u32) {
        self.cost.write_ns += self.request(RequestKind::Write, first, count);
        self.cost.writes += 1;
        self.cost.written_blocks += u64::from(count);
    }

    fn request(&mut self, kind: RequestKind, first: u32, count: u32) -> u64 {
        self.meter.request(kind, u64::from(first) * BLOCK_SIZE, u64::from(count) * BLOCK_SIZE)
    }
}

impl Traffic for Priced {
    fn write(&mut self, first: MainBlock, count: u32) {
        let (begin, end) = (first.get(), first.get() + count);
        let goes_on = |run: &(u32, u32)| run.0 + run.1 == begin && first.offset() > 0;
        let (mut from, waiting) = match self.runs.iter().position(goes_on) {
            Some(index) => self.runs.remove(index),
            None => (begin, 0),
        };
        let mut left = waiting + count;
        let ends_segment = end.is_multiple_of(BLOCKS_PER_SEGMENT);
        while left >= self.most || (left > 0 && ends_segment) {
            let now = left.min(self.most);
            self.write_now(from, now);
            (from, left) = (from + now, left - now);
        }
        if left > 0 {
            self.runs.push((from, left));
        }
        if self.runs.len() > MOST_RUNS {
            let (first, count) = self.runs.remove(0);
            self.write_now(first, count);
        }
    }

    fn read(&mut self, first: MainBlock, count: u32) {
        let end = first.get() + count;
        let mut from = first.get();
        while from < end {
            let now = (end - from).min(self.most);
            self.cost.read_ns += self.request(RequestKind::Read, from, now);
            self.cost.reads += 1;
            self.cost.read_blocks += u64::from(now);
            from += now;
        }
    }

    fn checkpoint(&mut self) {
        self.write_all();
        self.cost.flush_ns += self.request(RequestKind::Flush, 0, 0);
        self.cost.flushes += 1;
    }
}

/// The same device for a volume, which hands it traffic, and for who looks at it afterwards.
#[derive(Debug, Clone)]
pub(super) struct Shared(pub Arc<Mutex<Priced>>);

impl Traffic for Shared {
    fn write(&mut self, first: MainBlock, count: u32) {
        self.0.lock().write(first, count);
    }

    fn read(&mut self, first: MainBlock, count: u32) {
        self.0.lock().read(first, count);
    }

    fn checkpoint(&mut self) {
        self.0.lock().checkpoint();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 µs a block in streams, 9 µs more to begin one; reads 2 µs a block and 18 µs more; a flush 100 µs.
    const ROUND: &str = r#"
        name = "round"
        description = "d"
        source = "made up"
        kind = "ssd"
        flush_us = 100
        [read]
        streams = 1
        sequential = { points = [[4096, 2048]] }
        random = { latency_us = 18, points = [[4096, 2048]] }
        [write]
        streams = 2
        sequential = { points = [[4096, 4096]] }
        random = { latency_us = 9, points = [[4096, 4096]] }
    "#;

    fn priced(request_bytes: u64) -> Priced {
        Priced::new(Arc::new(DeviceModel::parse(ROUND, "round").unwrap()), request_bytes)
    }

    fn micros(cost: &DeviceCost) -> [u64; 3] {
        [cost.write_ns, cost.read_ns, cost.flush_ns].map(|ns| ns / 1000)
    }

    #[test]
    fn a_segment_is_written_in_full_requests() {
        let mut priced = priced(1 << 20);
        (1024..1024 + 512).for_each(|block| priced.write(MainBlock::new(block), 1));
        let cost = priced.take();
        // Two requests of 256 blocks, of which the first begins a stream.
        assert_eq!((cost.writes, cost.written_blocks, micros(&cost)), (2, 512, [512 + 9, 0, 0]));
        // 512 blocks alone would have taken 512 µs.
        assert!((cost.write_cost(512).unwrap() - 521.0 / 512.0).abs() < 1e-12, "{cost:?}");
        // The next segment goes on where this one ended, and is no part of its requests.
        priced.write(MainBlock::new(1536), 300);
        let cost = priced.take();
        assert_eq!((cost.writes, cost.written_blocks, micros(&cost)), (2, 300, [300, 0, 0]));
        assert_eq!(DeviceCost::default().write_cost(0), None);
    }

    #[test]
    fn logs_side_by_side_have_requests_of_their_own() {
        let mut priced = priced(16 << 10);
        for block in 0..8 {
            priced.write(MainBlock::new(block), 1);
            priced.write(MainBlock::new(5120 + block), 1);
        }
        let cost = priced.take();
        // Two requests of four blocks each, in two streams that the device follows at once.
        assert_eq!((cost.writes, micros(&cost)), (4, [16 + 2 * 9, 0, 0]));
    }

    /// What reuses space in place has a request, and begins a stream, for each hole.
    #[test]
    fn holes_cost_a_request_each() {
        let mut priced = priced(1 << 20);
        [(10, 2), (14, 1), (700, 1), (20, 3)]
            .into_iter()
            .for_each(|(at, count)| priced.write(MainBlock::new(at), count));
        assert_eq!(priced.cost.writes, 0, "they wait for what may follow");
        priced.checkpoint();
        let cost = priced.take();
        assert_eq!((cost.writes, cost.flushes, micros(&cost)), (4, 1, [7 + 4 * 9, 0, 100]));
        // More than can wait are written in their order.
        (0..200).for_each(|hole| priced.write(MainBlock::new(hole * 2), 1));
        assert_eq!((priced.cost.writes, priced.runs.len(), priced.runs[0]), (200 - 64, 64, (136 * 2, 1)));
    }

    #[test]
    fn live_blocks_are_read_in_runs() {
        let mut priced = priced(16 << 10);
        priced.read(MainBlock::new(100), 6);
        priced.read(MainBlock::new(200), 1);
        let cost = priced.take();
        // Four blocks and two that follow, then one elsewhere.
        assert_eq!((cost.reads, cost.read_blocks, micros(&cost)), (3, 7, [0, 14 + 2 * 18, 0]));
        assert!((cost.seconds() - 50e-6).abs() < 1e-12);
    }
}
