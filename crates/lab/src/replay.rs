//! A trace on a simulated device: how long the device is busy, and what its flash goes through.
//!
//! A [`Meter`] times every request as the device's model says; each [`TranslationLayer`] is told the pages that the request
//! touches. Layers see the same requests, and know nothing of each other.
//!
//! **Pages.** A write that is not aligned touches its first and last page as a whole; a discard trims only the pages that lie
//! wholly within it.
//!
//! **Time** comes twice. [`Outcome::device_ns`] is the model's alone: the curves of most presets were measured on whole devices,
//! so that the work of their own translation layer is in them. [`LayerOutcome::device_ns`] adds, for every page that the
//! simulated layer copied, what the device takes to write it in its largest sequential requests: the stall that a request meets
//! when the layer cleans in front of it. On devices whose curves hold such work already this counts it twice; it is meant for
//! comparing layers and file systems with each other, not with a watch.
//!
//! **Requests** follow one after the other, or [several are under way](Replay::with_queue_depth). The times that a trace recorded have
//! no effect.

mod closed_loop;
mod outcome;

use std::sync::Arc;

use basalt_device::RequestKind;
use basalt_flash::device::CopyCost;
use basalt_flash::{
    DeviceModel, FtlError, FtlStatistics, GeometryError, Meter, TranslationKind, TranslationLayer, Wear,
};
use basalt_traces::{TraceError, TraceReader, TraceRequest};
use closed_loop::ClosedLoop;
use hdrhistogram::Histogram;

pub use outcome::{Latency, LayerOutcome, Outcome, RequestTotals};

/// The least size of a simulated device: room for its spare blocks.
const LEAST_SIZE: u64 = 64 << 20;

/// The bytes of a device that a trace up to byte `end` runs on, if nobody says how large it is.
#[must_use]
pub fn size_for(end: u64) -> u64 {
    end.next_multiple_of(1 << 20).max(LEAST_SIZE)
}

/// The longest time that a histogram tells apart: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The flash cannot be of that size.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A request is behind the end of the simulated device.
    #[error(
        "a {operation} of {length} bytes at {offset} is behind the end of the simulated device at {size}: make it larger"
    )]
    TooSmall {
        /// What was asked for.
        operation: &'static str,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes that the simulated device has.
        size: u64,
    },
    /// A translation layer refused a request.
    #[error(transparent)]
    Layer(#[from] FtlError),
}

/// A simulated device under a stream of requests.
pub struct Replay {
    meter: Meter,
    /// Makes the requests where several are under way.
    host: Option<ClosedLoop>,
    queue_depth: u32,
    logical_bytes: u64,
    /// What the copies of the layers cost.
    copy_cost: CopyCost,
    requests: RequestTotals,
    device_ns: u64,
    all: Histogram<u64>,
    writes: Histogram<u64>,
    layers: Vec<Layer>,
}

/// One translation layer, and what was known of it when measuring began.
struct Layer {
    layer: Box<dyn TranslationLayer>,
    host: Option<ClosedLoop>,
    earlier: FtlStatistics,
    earlier_erases: Vec<u32>,
    device_ns: f64,
    all: Histogram<u64>,
    writes: Histogram<u64>,
}

impl Replay {
    /// A new device of `logical_bytes` with these translation layers side by side; none of its pages has been written.
    ///
    /// # Errors
    /// When flash of that size cannot be.
    pub fn new(model: Arc<DeviceModel>, logical_bytes: u64, kinds: &[TranslationKind]) -> Result<Replay, ReplayError> {
        let geometry = model.geometry(logical_bytes)?;
        let copy_cost = CopyCost::new(&model, &geometry);
        let mut layers = Vec::with_capacity(kinds.len());
        for kind in kinds {
            layers.push(Layer::new(kind.build(geometry)?));
        }
        Ok(Replay {
            meter: Meter::new(model),
            host: None,
            queue_depth: 1,
            logical_bytes,
            copy_cost,
            requests: RequestTotals::default(),
            device_ns: 0,
            all: histogram(),
            writes: histogram(),
            layers,
        })
    }

    /// Keeps up to `depth` requests under way: each is made as soon as fewer are, in the order of the trace, and a flush waits for all
    /// before it and holds back all behind it. [`Queue`](basalt_flash::device::Queue) says how a device serves them. At 1, the default, they
    /// follow one after the other. For a device that nothing has been asked of yet.
    #[must_use]
    pub fn with_queue_depth(mut self, depth: u32) -> Replay {
        self.queue_depth = depth.max(1);
        let host = || (depth > 1).then(|| ClosedLoop::new(self.meter.model(), depth));
        self.host = host();
        self.layers.iter_mut().for_each(|layer| layer.host = host());
        self
    }

    /// Writes the first `share` (0 to 1) of all pages once, in order, so that the layers find a device in use; this is not
    /// counted, and takes no time.
    pub fn fill(&mut self, share: f64) {
        for layer in &mut self.layers {
            layer.layer.fill(share);
            layer.begin_measuring();
        }
    }

    /// Carries a request out.
    ///
    /// # Errors
    /// When it is behind the end of the device.
    pub fn request(&mut self, request: &TraceRequest) -> Result<(), ReplayError> {
        let &TraceRequest { kind, offset, length, .. } = request;
        if request.end() > self.logical_bytes {
            let (operation, size) = (kind.operation(), self.logical_bytes);
            return Err(ReplayError::TooSmall { operation, offset, length, size });
        }
        self.requests.add(request);
        let own = match &mut self.host {
            Some(host) => host.request(kind, offset, length, 0),
            None => self.meter.request(kind, offset, length),
        };
        self.device_ns += own;
        let is_write = kind == RequestKind::Write;
        note(&mut self.all, is_write.then_some(&mut self.writes), own);
        for layer in &mut self.layers {
            let copied = layer.serve(kind, offset, length)?;
            let copying = self.copy_cost.programs_ns(copied);
            let time = match &mut layer.host {
                Some(host) => host.request(kind, offset, length, copying.round() as u64) as f64,
                None => own as f64 + copying,
            };
            layer.device_ns += time;
            note(&mut layer.all, is_write.then_some(&mut layer.writes), time.round() as u64);
        }
        Ok(())
    }

    /// Forgets everything counted so far, but not what the device holds: what comes next is the measured phase.
    pub fn begin_measuring(&mut self) {
        self.requests = RequestTotals::default();
        self.device_ns = 0;
        self.all.clear();
        self.writes.clear();
        self.host.iter_mut().for_each(ClosedLoop::begin_measuring);
        self.layers.iter_mut().for_each(Layer::begin_measuring);
    }

    /// What happened since measuring began.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            device: self.meter.model().name.clone(),
            logical_bytes: self.logical_bytes,
            requests: self.requests,
            queue_depth: self.queue_depth,
            device_ns: self.host.as_ref().map_or(self.device_ns, ClosedLoop::elapsed),
            latency: Latency::of(&self.all),
            write_latency: Latency::of(&self.writes),
            layers: self.layers.iter().map(Layer::outcome).collect(),
        }
    }
}

/// Replays a trace to its end. Bad lines are left out; the reader has counted them, and stops at them if it is strict.
///
/// # Errors
/// When the trace cannot be read, or has requests behind the end of the device.
pub fn replay_trace(trace: &mut TraceReader, replay: &mut Replay) -> Result<(), ReplayError> {
    let strict = trace.is_strict();
    for request in trace {
        match request {
            Ok(request) => replay.request(&request)?,
            Err(TraceError::BadLine(_)) if !strict => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Layer {
    fn new(layer: Box<dyn TranslationLayer>) -> Layer {
        let earlier_erases = layer.erase_counts().to_vec();
        let earlier = layer.statistics();
        Layer { layer, host: None, earlier, earlier_erases, device_ns: 0.0, all: histogram(), writes: histogram() }
    }

    /// Carries a request out; returns how many pages were copied for it.
    fn serve(&mut self, kind: RequestKind, offset: u64, length: u64) -> Result<u64, FtlError> {
        let copied = self.layer.statistics().pages_copied;
        let geometry = self.layer.geometry();
        let count = |pages: &std::ops::Range<u64>| pages.end - pages.start;
        match kind {
            RequestKind::Read => {
                let pages = geometry.touched(offset, length);
                self.layer.read(pages.start, count(&pages))?;
            }
            RequestKind::Write => {
                let pages = geometry.touched(offset, length);
                self.layer.write(pages.start, count(&pages))?;
            }
            RequestKind::Discard => {
                let pages = geometry.within(offset, length);
                self.layer.trim(pages.start, count(&pages))?;
            }
            RequestKind::Flush => self.layer.flush(),
        }
        Ok(self.layer.statistics().pages_copied - copied)
    }

    fn begin_measuring(&mut self) {
        self.earlier = self.layer.statistics();
        self.earlier_erases.clear();
        self.earlier_erases.extend_from_slice(self.layer.erase_counts());
        self.device_ns = 0.0;
        self.host.iter_mut().for_each(ClosedLoop::begin_measuring);
        self.all.clear();
        self.writes.clear();
    }

    fn outcome(&self) -> LayerOutcome {
        let statistics = self.layer.statistics().since(&self.earlier);
        let now = self.layer.erase_counts().iter().zip(&self.earlier_erases);
        let erases: Vec<u32> = now.map(|(now, earlier)| now - earlier).collect();
        let geometry = self.layer.geometry();
        LayerOutcome {
            layer: self.layer.kind(),
            page_bytes: geometry.page_bytes(),
            blocks: geometry.physical_blocks(),
            wa: statistics.write_amplification(),
            statistics,
            wear: Wear::of(&erases),
            device_ns: self.host.as_ref().map_or(self.device_ns.round() as u64, ClosedLoop::elapsed),
            latency: Latency::of(&self.all),
            write_latency: Latency::of(&self.writes),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are constants that fit each other")
}

fn note(all: &mut Histogram<u64>, writes: Option<&mut Histogram<u64>>, nanoseconds: u64) {
    // A histogram begins at 1; what costs nothing counts as that.
    all.saturating_record(nanoseconds.max(1));
    if let Some(writes) = writes {
        writes.saturating_record(nanoseconds.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_flash::{PageLevel, PageLevelOptions};
    use basalt_random::Rng;
    use basalt_traces::ReadOptions;

    const SIZE: u64 = 64 << 20;

    fn replay(kinds: &[TranslationKind]) -> Replay {
        let model = Arc::new(basalt_flash::preset("ssd-m").unwrap());
        Replay::new(model, SIZE, kinds).unwrap()
    }

    fn write(offset: u64, length: u64) -> TraceRequest {
        TraceRequest { time_ns: 0, kind: RequestKind::Write, offset, length }
    }

    #[test]
    fn sequential_overwrites_amplify_nothing() {
        let mut replay = replay(&TranslationKind::ALL);
        for _ in 0..4 {
            (0..SIZE >> 20).for_each(|at| replay.request(&write(at << 20, 1 << 20)).unwrap());
        }
        let outcome = replay.outcome();
        assert_eq!(outcome.requests.bytes_written, 4 * SIZE);
        assert_eq!(outcome.layers.len(), 2);
        for layer in &outcome.layers {
            assert!((layer.wa - 1.0).abs() < 1e-9, "{layer:?}");
            assert_eq!(layer.device_ns, outcome.device_ns);
            assert_eq!(layer.statistics.pages_written, 4 * SIZE / 4096);
        }
    }

    #[test]
    fn copies_cost_time_and_the_counters_are_the_layers() {
        let mut replay = replay(&[TranslationKind::PageLevel]);
        replay.fill(1.0);
        let mut alone = PageLevel::new(*replay.layers[0].layer.geometry(), PageLevelOptions::default()).unwrap();
        (0..SIZE / 4096).for_each(|page| alone.write(page, 1).unwrap());
        let before = alone.statistics();
        let mut rng = Rng::new(3);
        for _ in 0..60_000 {
            let page = rng.below(SIZE / 4096);
            replay.request(&write(page * 4096, 4096)).unwrap();
            alone.write(page, 1).unwrap();
        }
        let outcome = replay.outcome();
        let layer = &outcome.layers[0];
        assert_eq!(layer.statistics, alone.statistics().since(&before));
        assert!(layer.wa > 2.0, "{}", layer.wa);
        assert!(layer.device_ns > outcome.device_ns);
        assert!(layer.write_latency.p999_ns > outcome.write_latency.p999_ns);
        assert_eq!(layer.latency.p50_ns, outcome.latency.p50_ns);
    }

    #[test]
    fn whole_pages_are_touched_and_only_whole_pages_trimmed() {
        let mut replay = replay(&[TranslationKind::PageLevel]);
        replay.request(&write(4095, 2)).unwrap();
        let discard = TraceRequest { kind: RequestKind::Discard, ..write(4095, 4097) };
        replay.request(&discard).unwrap();
        replay.request(&TraceRequest::flush(9)).unwrap();
        let statistics = replay.outcome().layers[0].statistics;
        assert_eq!((statistics.pages_written, statistics.pages_trimmed, statistics.flushes), (2, 1, 1));
    }

    #[test]
    fn measuring_begins_anew() {
        let mut replay = replay(&TranslationKind::ALL);
        replay.request(&write(0, 4096)).unwrap();
        replay.begin_measuring();
        let outcome = replay.outcome();
        assert_eq!(outcome.requests, RequestTotals::default());
        assert_eq!((outcome.device_ns, outcome.latency), (0, Latency::default()));
        assert!(
            outcome.layers.iter().all(|layer| layer.statistics == FtlStatistics::default() && layer.device_ns == 0)
        );
    }

    #[test]
    fn several_requests_under_way_take_less_time_and_do_the_same() {
        let run = |device: &str, depth| {
            let model = Arc::new(basalt_flash::preset(device).unwrap());
            let mut replay = Replay::new(model, SIZE, &[TranslationKind::PageLevel]).unwrap().with_queue_depth(depth);
            replay.fill(1.0);
            let mut rng = Rng::new(7);
            (0..5000).for_each(|_| replay.request(&write(rng.below(SIZE / 4096) * 4096, 4096)).unwrap());
            replay.outcome()
        };
        let (one, four) = (run("nvme", 1), run("nvme", 4));
        assert_eq!(one.layers[0].statistics, four.layers[0].statistics);
        assert!(four.device_ns < one.device_ns / 2 && four.device_ns > one.device_ns / 4);
        assert!(four.layers[0].device_ns < one.layers[0].device_ns);
        assert!(four.latency.mean_ns > one.latency.mean_ns);
        // A device of one unit is no faster, but its requests wait.
        let (one, four) = (run("ssd-m", 1), run("ssd-m", 4));
        assert_eq!(one.device_ns, four.device_ns);
        assert!(one.layers[0].device_ns.abs_diff(four.layers[0].device_ns) <= 5000);
        assert!(four.latency.p50_ns > one.latency.p50_ns * 3);
    }

    #[test]
    fn requests_behind_the_end_are_refused() {
        let error = replay(&[]).request(&write(SIZE - 512, 1024)).unwrap_err();
        assert!(error.to_string().contains("behind the end of the simulated device"), "{error}");
    }

    #[test]
    fn traces_are_replayed_and_bad_lines_left_out() {
        let text = "fio version 3 iolog\n0 d write 0 8192\n1 d frobnicate 0 1\n2 d trim 0 4096\n3 d datasync 0 0\n";
        let open = |strict| {
            let options = ReadOptions { strict, ..ReadOptions::default() };
            TraceReader::new("test", std::io::Cursor::new(text), &options).unwrap()
        };
        let mut device = replay(&TranslationKind::ALL);
        let mut trace = open(false);
        replay_trace(&mut trace, &mut device).unwrap();
        assert_eq!(trace.counts().bad_lines, 1);
        assert_eq!(device.outcome().requests.requests(), 3);
        assert!(matches!(replay_trace(&mut open(true), &mut device), Err(ReplayError::Trace(TraceError::BadLine(_)))));
    }
}
