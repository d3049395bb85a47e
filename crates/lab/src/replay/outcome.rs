//! What a replayed trace did to a device.

use basalt_device::RequestKind;
use basalt_flash::{FtlStatistics, TranslationKind, Wear};
use basalt_traces::TraceRequest;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Requests and bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RequestTotals {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
}

/// How long requests took, in nanoseconds; 0 where there were none. Within 0.1 %.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Latency {
    /// On average.
    pub mean_ns: f64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What one translation layer did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerOutcome {
    /// Which one.
    pub layer: TranslationKind,
    /// Bytes of a flash page.
    pub page_bytes: u32,
    /// Erase blocks of the simulated flash.
    pub blocks: u64,
    /// Physical pages programmed for each logical page written.
    pub wa: f64,
    /// Its counters.
    pub statistics: FtlStatistics,
    /// How evenly blocks were erased.
    pub wear: Wear,
    /// Nanoseconds that the device was busy, the copies of this layer included; from the first request to the end of all where several are
    /// under way.
    pub device_ns: u64,
    /// Requests of all kinds, with the copies that they waited for.
    pub latency: Latency,
    /// Writes alone, with the copies that they waited for.
    pub write_latency: Latency,
}

/// What a stream of requests did to a simulated device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The name of the device's model.
    pub device: String,
    /// Bytes that the simulated device holds.
    pub logical_bytes: u64,
    /// The requests.
    pub requests: RequestTotals,
    /// Requests under way at a time.
    #[serde(skip_serializing_if = "is_one")]
    pub queue_depth: u32,
    /// Nanoseconds that the device was busy, as its model says; from the first request to the end of all where several are under way.
    pub device_ns: u64,
    /// Requests of all kinds.
    pub latency: Latency,
    /// Writes alone.
    pub write_latency: Latency,
    /// What each translation layer did, in the order in which they were asked for.
    pub layers: Vec<LayerOutcome>,
}

impl RequestTotals {
    /// Counts a request.
    pub fn add(&mut self, request: &TraceRequest) {
        let (requests, bytes) = match request.kind {
            RequestKind::Flush => return self.flushes += 1,
            RequestKind::Read => (&mut self.reads, &mut self.bytes_read),
            RequestKind::Write => (&mut self.writes, &mut self.bytes_written),
            RequestKind::Discard => (&mut self.discards, &mut self.bytes_discarded),
        };
        *requests += 1;
        *bytes = bytes.saturating_add(request.length);
    }

    /// Requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }
}

impl Latency {
    pub(super) fn of(times: &Histogram<u64>) -> Latency {
        if times.is_empty() {
            return Latency::default();
        }
        let at = |quantile| times.value_at_quantile(quantile);
        Latency { mean_ns: times.mean(), p50_ns: at(0.5), p99_ns: at(0.99), p999_ns: at(0.999), max_ns: times.max() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(depth: &u32) -> bool {
    *depth == 1
}
