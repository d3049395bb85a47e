//! A device whose requests take virtual time.

use std::sync::Arc;

use basalt_device::{BlockDevice, DeviceLayer, RequestKind, Result};
use parking_lot::Mutex;

use super::clock::VirtualClock;
use super::copies::CopyCost;
use super::meter::{Cost, Meter};
use super::model::DeviceModel;
use super::prefetched::Prefetched;
use super::queue::{Queue, Served};
use super::statistics::DeviceStatistics;
use crate::ftl::{FtlStatistics, Geometry, TranslationKind, TranslationLayer, Wear};

/// Wraps a device: what the device holds stays where it is, the time comes from a [`DeviceModel`] and passes on a
/// [`VirtualClock`]. Translation layers may listen to its writes and discards.
///
/// Requests are served one after the other, unless there is a [queue](TimedDevice::with_queue); each advances the clock when it has succeeded, and only then. A
/// [`prefetch`](BlockDevice::prefetch) is charged as the read it announces, and reads within it then cost nothing more. A
/// [`write_vectored_at`](BlockDevice::write_vectored_at) is one request.
pub struct TimedDevice<D> {
    inner: D,
    clock: VirtualClock,
    model: Arc<DeviceModel>,
    /// Nanoseconds of the processor for each block of a request.
    processor_ns: u64,
    state: Mutex<State>,
}

/// Bytes of a block that a processor works on.
const PROCESSOR_BLOCK: u64 = 4096;

struct State {
    meter: Meter,
    /// Serves the requests in place of the meter, if several can be under way.
    queue: Option<Queue>,
    statistics: DeviceStatistics,
    prefetched: Prefetched,
    layers: Vec<Box<dyn TranslationLayer>>,
    /// What the work of the layers takes, if it takes time.
    copy_cost: Option<CopyCost>,
}

/// What a translation layer that listens has done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerReport {
    /// Which one it is.
    pub kind: TranslationKind,
    /// Its flash.
    pub geometry: Geometry,
    /// Its counters.
    pub statistics: FtlStatistics,
    /// Its erase counts.
    pub wear: Wear,
}

impl LayerReport {
    /// What a layer did so far.
    pub fn of(layer: &dyn TranslationLayer) -> LayerReport {
        LayerReport {
            kind: layer.kind(),
            geometry: *layer.geometry(),
            statistics: layer.statistics(),
            wear: layer.wear(),
        }
    }
}

impl<D: BlockDevice> TimedDevice<D> {
    /// Times `inner` as `model` says, on `clock`.
    pub fn new(inner: D, model: Arc<DeviceModel>, clock: VirtualClock) -> TimedDevice<D> {
        let state = State {
            meter: Meter::new(Arc::clone(&model)),
            queue: None,
            statistics: DeviceStatistics::default(),
            prefetched: Prefetched::default(),
            layers: Vec::new(),
            copy_cost: None,
        };
        TimedDevice { inner, clock, model, processor_ns: 0, state: Mutex::new(state) }
    }

    /// Lets a translation layer listen to what follows: it is given every page that a write touches and every page that
    /// lies wholly within a discard. Pages past the end of its flash are left out. Several may listen.
    #[must_use]
    pub fn with_layer(mut self, layer: Box<dyn TranslationLayer>) -> TimedDevice<D> {
        self.state.get_mut().layers.push(layer);
        self
    }

    /// Lets what the listening layers copy and erase for a request take device time, as part of that request. Without this, layers only
    /// count.
    #[must_use]
    pub fn with_layer_time(mut self, cost: CopyCost) -> TimedDevice<D> {
        self.state.get_mut().copy_cost = Some(cost);
        self
    }

    /// Serves up to `depth` requests at a time, as [`Queue`] says. They come from threads that each have a time of their own
    /// ([`VirtualClock::resume`]); one thread alone waits for each of its requests.
    #[must_use]
    pub fn with_queue(mut self, depth: u32) -> TimedDevice<D> {
        self.state.get_mut().queue = Some(Queue::new(Arc::clone(&self.model), depth));
        self
    }

    /// Lets the processor work for so many nanoseconds on each block of 4 KiB that is read or written, before the request is made.
    #[must_use]
    pub fn with_processor(mut self, nanoseconds_per_block: u64) -> TimedDevice<D> {
        self.processor_ns = nanoseconds_per_block;
        self
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The clock that requests advance.
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// The model that says how long requests take.
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// What was served so far.
    pub fn statistics(&self) -> DeviceStatistics {
        self.state.lock().statistics.clone()
    }

    /// What the listening layers did so far, in the order they were added.
    pub fn layers(&self) -> Vec<LayerReport> {
        self.state.lock().layers.iter().map(|layer| LayerReport::of(layer.as_ref())).collect()
    }

    /// Charges a request that has succeeded.
    fn charge(&self, kind: RequestKind, offset: u64, length: u64) {
        let mut state = self.state.lock();
        if kind == RequestKind::Read && state.prefetched.take(offset, length) {
            return;
        }
        if kind != RequestKind::Read && length > 0 {
            state.prefetched.forget(offset, length);
        }
        if self.processor_ns > 0 && matches!(kind, RequestKind::Read | RequestKind::Write) {
            self.clock.advance(self.processor_ns.saturating_mul(length.div_ceil(PROCESSOR_BLOCK)));
        }
        let now = self.clock.now();
        // Within the lock, so that times and statistics are those of one order.
        let Served { end, busy_ns, sequential, shared } = state.serve(now, self.clock.floor(), kind, offset, length);
        if shared {
            state.statistics.flushes_shared += 1;
        } else {
            state.statistics.of_mut(kind).record(length, busy_ns, end - now, sequential);
        }
        self.clock.advance_to(end);
    }
}

impl State {
    /// Serves a request that is made at `now`, the work of the layers included; nobody will make one before `floor`.
    fn serve(&mut self, now: u64, floor: u64, kind: RequestKind, offset: u64, length: u64) -> Served {
        let State { meter, queue, layers, copy_cost, .. } = self;
        let mut served = match queue {
            None => {
                let Cost { nanoseconds, sequential } = meter.cost(kind, offset, length);
                Served { end: now + nanoseconds, busy_ns: nanoseconds, sequential, shared: false }
            }
            Some(queue) => {
                queue.forget_before(floor);
                queue.submit(now, kind, offset, length)
            }
        };
        for layer in layers {
            let before = layer.statistics();
            tell(layer.as_mut(), kind, offset, length);
            let Some(cost) = copy_cost else { continue };
            let copying = cost.nanoseconds(&before, &layer.statistics());
            match queue {
                None => {
                    served.end += copying;
                    served.busy_ns += copying;
                }
                Some(queue) => queue.prolong(&mut served, copying),
            }
        }
        served
    }
}

/// Hands a request in bytes to a layer, as far as its flash reaches.
fn tell(layer: &mut dyn TranslationLayer, kind: RequestKind, offset: u64, length: u64) {
    let geometry = layer.geometry();
    let pages =
        if kind == RequestKind::Discard { geometry.within(offset, length) } else { geometry.touched(offset, length) };
    let end = pages.end.min(geometry.logical_pages());
    let count = end.saturating_sub(pages.start);
    // Cut to the layer's pages above: it refuses none of these.
    let _ = match kind {
        RequestKind::Flush => {
            layer.flush();
            Ok(())
        }
        _ if count == 0 => Ok(()),
        RequestKind::Read => layer.read(pages.start, count),
        RequestKind::Write => layer.write(pages.start, count),
        RequestKind::Discard => layer.trim(pages.start, count),
    };
}

impl<D: BlockDevice> DeviceLayer for TimedDevice<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)?;
        self.charge(RequestKind::Read, offset, buf.len() as u64);
        Ok(())
    }

    fn on_prefetch(&self, offset: u64, length: u64) {
        let length = length.min(self.inner.size().saturating_sub(offset));
        if length == 0 {
            return;
        }
        self.inner.prefetch(offset, length);
        self.charge(RequestKind::Read, offset, length);
        self.state.lock().prefetched.add(offset, length);
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.inner.write_vectored_at(offset, slices)?;
        let length = slices.iter().map(|slice| slice.len() as u64).sum();
        self.charge(RequestKind::Write, offset, length);
        Ok(())
    }

    fn on_flush(&self) -> Result<()> {
        self.inner.flush()?;
        self.charge(RequestKind::Flush, 0, 0);
        Ok(())
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.inner.discard(offset, length)?;
        self.charge(RequestKind::Discard, offset, length);
        Ok(())
    }
}
