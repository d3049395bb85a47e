//! A device that serves several requests at a time.

use std::sync::Arc;

use basalt_device::RequestKind;

use super::flushes::{Flushed, Flushes};
use super::meter::Meter;
use super::model::DeviceModel;
use super::timeline::Timeline;

/// Times requests as a [`DeviceModel`] says, up to a number of them at a time (the queue depth). Times are in nanoseconds.
///
/// - A request begins when it is submitted, or as soon as fewer than that number are under way.
/// - With [`Parallelism`](super::Parallelism) each unit serves what it has of a request, in the time that its curve says, as soon as it is
///   free; the request ends when the last of its units does. The latency of a request occupies its units too. Without parallelism the
///   device is one unit, and requests are served in turn.
/// - A discard takes the time of all units.
/// - A flush waits for no other request and delays none: its caller has already seen the end of the writes that it makes durable. Flushes run
///   one after the other. A caller that asks during a flush shares the next one, as in Linux's block layer.
///
/// Requests may be submitted out of the order of time, by threads each of which has a time of its own. One that comes late fills the gaps that
/// others left; what was promised to others does not change.
///
/// With a depth of 1, requests that are each submitted at the end of the one before take the times of a [`Meter`].
#[derive(Debug, Clone)]
pub struct Queue {
    meter: Meter,
    places: Timeline,
    units: Vec<Timeline>,
    flushes: Flushes,
    /// Units of the request that is served, and what each takes.
    parts: Vec<(usize, u64)>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// When it was done.
    pub end: u64,
    /// What the device spent on it: its time on a device that has nothing else to do.
    pub busy_ns: u64,
    /// Whether it continued a stream.
    pub sequential: bool,
    /// A flush that another one's flush served.
    pub shared: bool,
}

impl Queue {
    /// A device that serves up to `depth` requests at a time, at least 1.
    #[must_use]
    pub fn new(model: Arc<DeviceModel>, depth: u32) -> Queue {
        let units = model.parallelism.map_or(1, |parallelism| parallelism.units as usize);
        Queue {
            meter: Meter::new(model),
            places: Timeline::new(depth),
            units: vec![Timeline::new(1); units],
            flushes: Flushes::default(),
            parts: Vec::new(),
        }
    }

    /// Serves a request of `length` bytes at `offset` that is submitted at `time`.
    pub fn submit(&mut self, time: u64, kind: RequestKind, offset: u64, length: u64) -> Served {
        if kind == RequestKind::Flush {
            let Flushed { end, own_ns, shared } = self.flushes.ask(time, self.meter.flush_ns());
            return Served { end, busy_ns: own_ns, sequential: false, shared };
        }
        let cost = self.meter.spread(kind, offset, length, &mut self.parts);
        if kind == RequestKind::Discard {
            self.parts.extend((0..self.units.len()).map(|unit| (unit, cost.nanoseconds)));
        }
        let mut begin = time;
        let end = loop {
            let ends = self.parts.iter().map(|&(unit, length)| self.units[unit].free(begin, length) + length);
            let end = ends.max().unwrap_or(begin);
            match self.places.full_within(begin, end) {
                Some(later) => begin = later,
                None => break end,
            }
        };
        for &(unit, length) in &self.parts {
            let first = self.units[unit].free(begin, length);
            self.units[unit].take(first, first + length);
        }
        self.places.take(begin, end);
        if kind != RequestKind::Read {
            self.flushes.wrote(end);
        }
        Served { end, busy_ns: cost.nanoseconds, sequential: cost.sequential, shared: false }
    }

    /// Lets the device work on itself for a request that it has served, for `length`, with all of its units: the request ends that much
    /// later, or more if a unit is not free.
    pub fn prolong(&mut self, served: &mut Served, length: u64) {
        if length == 0 {
            return;
        }
        let mut begin = served.end;
        while let Some(later) = self.units.iter().filter_map(|unit| unit.full_within(begin, begin + length)).max() {
            begin = later;
        }
        let end = begin + length;
        self.units.iter_mut().for_each(|unit| unit.take(begin, end));
        self.places.take(served.end, end);
        self.flushes.wrote(end);
        served.end = end;
        served.busy_ns += length;
    }

    /// Says that nothing will be submitted before `floor` any more, so that what was before it can be forgotten.
    pub fn forget_before(&mut self, floor: u64) {
        self.places.forget_before(floor);
        self.units.iter_mut().for_each(|unit| unit.forget_before(floor));
        self.flushes.forget_before(floor);
    }

    /// The first moment from `time` on at which fewer requests are under way than may be.
    #[must_use]
    pub fn admits(&self, time: u64) -> u64 {
        self.places.free(time, 0)
    }
}
