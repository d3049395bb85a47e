//! What a simulated device served, and how long it was busy.

use basalt_device::RequestKind;
use hdrhistogram::Histogram;

/// Requests of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct KindStatistics {
    /// Requests; a vectored write is one.
    pub requests: u64,
    /// Of them, those that continued a stream.
    pub sequential: u64,
    /// Bytes.
    pub bytes: u64,
    /// Nanoseconds that they take on a device with nothing else to do.
    pub busy_ns: u64,
    /// Nanoseconds from asking for each request to its end, within 0.1 %; anything over an hour counts as an hour.
    pub latency: Histogram<u64>,
}

/// The longest time that a histogram tells apart: an hour in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Default for KindStatistics {
    fn default() -> Self {
        let latency =
            Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are constants that fit each other");
        KindStatistics { requests: 0, sequential: 0, bytes: 0, busy_ns: 0, latency }
    }
}

impl KindStatistics {
    pub(super) fn record(&mut self, bytes: u64, busy_ns: u64, latency_ns: u64, sequential: bool) {
        self.requests += 1;
        self.sequential += u64::from(sequential);
        self.bytes += bytes;
        self.busy_ns += busy_ns;
        self.latency.saturating_record(latency_ns.max(1));
    }

    /// The latency that `percent` of the requests did not exceed, in nanoseconds; 0 without requests.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        if self.latency.is_empty() { 0 } else { self.latency.value_at_quantile(percent / 100.0) }
    }

    fn since(&self, earlier: &KindStatistics) -> KindStatistics {
        let mut latency = self.latency.clone();
        if latency.subtract(&earlier.latency).is_err() {
            // Not an older value of the same statistics: nothing to take away.
            latency.clone_from(&self.latency);
        }
        KindStatistics {
            requests: self.requests.saturating_sub(earlier.requests),
            sequential: self.sequential.saturating_sub(earlier.sequential),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            latency,
        }
    }
}

/// Requests of all kinds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceStatistics {
    /// Reads.
    pub read: KindStatistics,
    /// Writes.
    pub write: KindStatistics,
    /// Flushes that the device made.
    pub flush: KindStatistics,
    /// Flushes asked for that one of those served which others had asked for.
    pub flushes_shared: u64,
    /// Discards.
    pub discard: KindStatistics,
}

impl DeviceStatistics {
    /// Requests of one kind.
    pub fn of(&self, kind: RequestKind) -> &KindStatistics {
        match kind {
            RequestKind::Read => &self.read,
            RequestKind::Write => &self.write,
            RequestKind::Flush => &self.flush,
            RequestKind::Discard => &self.discard,
        }
    }

    pub(super) fn of_mut(&mut self, kind: RequestKind) -> &mut KindStatistics {
        match kind {
            RequestKind::Read => &mut self.read,
            RequestKind::Write => &mut self.write,
            RequestKind::Flush => &mut self.flush,
            RequestKind::Discard => &mut self.discard,
        }
    }

    /// Nanoseconds that the device was busy in all; where several requests are served at a time, the sum of what each takes.
    pub fn busy_ns(&self) -> u64 {
        self.read.busy_ns + self.write.busy_ns + self.flush.busy_ns + self.discard.busy_ns
    }

    /// What happened after `earlier`, an older value of the same device.
    #[must_use]
    pub fn since(&self, earlier: &DeviceStatistics) -> DeviceStatistics {
        DeviceStatistics {
            read: self.read.since(&earlier.read),
            write: self.write.since(&earlier.write),
            flush: self.flush.since(&earlier.flush),
            flushes_shared: self.flushes_shared.saturating_sub(earlier.flushes_shared),
            discard: self.discard.since(&earlier.discard),
        }
    }
}
