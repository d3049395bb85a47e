//! How long requests take, without data.

use std::sync::Arc;

use basalt_device::RequestKind;

use super::model::{Curve, DeviceModel, Direction, Parallelism};

/// Times requests one after the other as a [`DeviceModel`] says. It remembers where streams ended and whether something
/// was written since the last flush; nothing else.
#[derive(Debug, Clone)]
pub struct Meter {
    model: Arc<DeviceModel>,
    read: DirectionMeter,
    write: DirectionMeter,
    /// Something was written or discarded since the last flush.
    dirty: bool,
}

/// What a request costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds of the device's time.
    pub nanoseconds: u64,
    /// Whether it continued a stream.
    pub sequential: bool,
}

impl DeviceModel {
    /// A meter for a device that has just been switched on.
    pub fn meter(&self) -> Meter {
        Meter::new(Arc::new(self.clone()))
    }
}

impl Meter {
    /// A meter that shares the model.
    pub fn new(model: Arc<DeviceModel>) -> Meter {
        let read = DirectionMeter::new(&model.read, model.parallelism);
        let write = DirectionMeter::new(&model.write, model.parallelism);
        Meter { model, read, write, dirty: false }
    }

    /// The model.
    pub fn model(&self) -> &Arc<DeviceModel> {
        &self.model
    }

    /// Nanoseconds that the device takes for this request, which is then done. Offset and length are in bytes.
    pub fn request(&mut self, kind: RequestKind, offset: u64, length: u64) -> u64 {
        self.cost(kind, offset, length).nanoseconds
    }

    /// The same, and whether the request continued a stream.
    pub fn cost(&mut self, kind: RequestKind, offset: u64, length: u64) -> Cost {
        match kind {
            RequestKind::Read => self.read.cost(offset, length),
            RequestKind::Write => {
                self.dirty = true;
                self.write.cost(offset, length)
            }
            RequestKind::Discard => {
                self.dirty = true;
                Cost { nanoseconds: nanoseconds(self.model.discard_us), sequential: false }
            }
            RequestKind::Flush => {
                let due = std::mem::take(&mut self.dirty);
                let nanoseconds = if due { nanoseconds(self.model.flush_us) } else { 0 };
                Cost { nanoseconds, sequential: false }
            }
        }
    }
}

/// One direction's curves and streams.
#[derive(Debug, Clone)]
struct DirectionMeter {
    sequential: CurveMeter,
    random: CurveMeter,
    parallelism: Option<Parallelism>,
    /// Where the last streams ended, the latest first.
    ends: Vec<u64>,
    streams: usize,
}

impl DirectionMeter {
    fn new(direction: &Direction, parallelism: Option<Parallelism>) -> DirectionMeter {
        DirectionMeter {
            sequential: CurveMeter::new(&direction.sequential),
            random: CurveMeter::new(&direction.random),
            parallelism,
            ends: Vec::new(),
            streams: direction.streams as usize,
        }
    }

    fn cost(&mut self, offset: u64, length: u64) -> Cost {
        let sequential = self.follow(offset, offset.saturating_add(length));
        let curve = if sequential { &self.sequential } else { &self.random };
        let length = self.parallelism.map_or(length, |parallelism| busiest_unit(parallelism, offset, length));
        Cost { nanoseconds: curve.time(length), sequential }
    }

    /// Moves the stream that ended at `offset` on to `end`, or begins one in place of the one idle for longest.
    fn follow(&mut self, offset: u64, end: u64) -> bool {
        let found = self.ends.iter().position(|&known| known == offset);
        match found {
            Some(place) => self.ends[..=place].rotate_right(1),
            None if self.ends.len() < self.streams => self.ends.insert(0, offset),
            None => self.ends.rotate_right(1),
        }
        self.ends[0] = end;
        found.is_some()
    }
}

/// Bytes of the request that the busiest unit has.
fn busiest_unit(parallelism: Parallelism, offset: u64, length: u64) -> u64 {
    let (units, stripe) = (u64::from(parallelism.units), u64::from(parallelism.stripe_bytes));
    let head = (stripe - offset % stripe).min(length);
    let whole = (length - head) / stripe;
    let tail = (length - head) % stripe;
    // Stripes in order: head, whole ones, tail; those at the same remainder by `units` share a unit.
    let stripes = 1 + whole + u64::from(tail > 0);
    let rounds = stripes.div_ceil(units);
    if rounds == 1 {
        return if whole > 0 { stripe } else { head.max(tail) };
    }
    let bytes_of = |index: u64| match index {
        0 => head,
        index if index <= whole => stripe,
        _ => tail,
    };
    // The first unit has the head, the last busy one the tail; any between them has whole stripes only.
    let unit_bytes = |unit: u64| {
        let count = (stripes - unit).div_ceil(units);
        let last = unit + (count - 1) * units;
        match count {
            1 => bytes_of(unit),
            count => bytes_of(unit) + bytes_of(last) + (count - 2) * stripe,
        }
    };
    (0..units.min(3)).map(unit_bytes).max().unwrap_or(length)
}

/// A curve with its logarithms taken once.
#[derive(Debug, Clone)]
struct CurveMeter {
    latency_ns: f64,
    /// Size in bytes, its binary logarithm, that of the bandwidth in MB/s.
    points: Vec<(u64, f64, f64)>,
}

impl CurveMeter {
    fn new(curve: &Curve) -> CurveMeter {
        let logarithms = |&(bytes, bandwidth): &(u64, f64)| (bytes, libm::log2(bytes as f64), libm::log2(bandwidth));
        CurveMeter { latency_ns: curve.latency_us * 1e3, points: curve.points.iter().map(logarithms).collect() }
    }

    /// Nanoseconds for a request of `length` bytes. The logarithms are libm's, not the machine's: the same everywhere.
    fn time(&self, length: u64) -> u64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return 0 };
        let length = length.max(first.0);
        let bandwidth = if length >= last.0 {
            last.2
        } else {
            let above = self.points.partition_point(|point| point.0 <= length);
            let (low, high) = (self.points[above - 1], self.points[above]);
            if length == low.0 {
                low.2
            } else {
                let share = (libm::log2(length as f64) - low.1) / (high.1 - low.1);
                low.2 + share * (high.2 - low.2)
            }
        };
        // MB/s are bytes a microsecond.
        (self.latency_ns + length as f64 * 1e3 / libm::exp2(bandwidth)).round() as u64
    }
}

fn nanoseconds(microseconds: f64) -> u64 {
    (microseconds * 1e3).round() as u64
}
