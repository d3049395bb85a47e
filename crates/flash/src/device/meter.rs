//! How long requests take, without data.

use std::sync::Arc;

use basalt_device::RequestKind;

use super::model::{Curve, DeviceModel, Direction, Parallelism};
use super::stripes::Stripes;

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

impl Meter {
    /// As [`cost`](Self::cost), for reads and writes with what each unit of the device takes: its number and nanoseconds. Other requests
    /// belong to no unit, and leave `parts` empty.
    pub(super) fn spread(
        &mut self,
        kind: RequestKind,
        offset: u64,
        length: u64,
        parts: &mut Vec<(usize, u64)>,
    ) -> Cost {
        parts.clear();
        match kind {
            RequestKind::Read => self.read.spread(offset, length, parts),
            RequestKind::Write => self.write.spread(offset, length, parts),
            RequestKind::Flush | RequestKind::Discard => self.cost(kind, offset, length),
        }
    }

    /// What a flush costs that has something to do, in nanoseconds.
    pub(super) fn flush_ns(&self) -> u64 {
        nanoseconds(self.model.flush_us)
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
        let length = self.parallelism.map_or(length, |parallelism| Stripes::new(parallelism, offset, length).busiest());
        Cost { nanoseconds: curve.time(length), sequential }
    }

    /// As [`cost`](Self::cost), and the units that have something to do and for how long. No unit takes longer than the busiest one,
    /// whatever the curve.
    fn spread(&mut self, offset: u64, length: u64, parts: &mut Vec<(usize, u64)>) -> Cost {
        let cost = self.cost(offset, length);
        let curve = if cost.sequential { &self.sequential } else { &self.random };
        match self.parallelism.map(|parallelism| Stripes::new(parallelism, offset, length)) {
            Some(stripes) => {
                let busiest = stripes.busiest();
                parts.extend(stripes.by_unit().map(|(unit, bytes)| match bytes {
                    bytes if bytes == busiest => (unit, cost.nanoseconds),
                    bytes => (unit, curve.time(bytes).min(cost.nanoseconds)),
                }));
            }
            None => parts.push((0, cost.nanoseconds)),
        }
        cost
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
