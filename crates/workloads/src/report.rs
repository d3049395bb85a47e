//! What a run reports.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::operation::Kind;
use crate::settings::Settings;
use crate::workload::Phase;

/// Longest latency that is told apart, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Latencies of one kind of operation, in nanoseconds, exact to three digits.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        let mut histogram = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"));
        histogram.auto(true);
        Latencies(histogram)
    }
}

impl Latencies {
    /// Counts one operation.
    pub fn record(&mut self, nanoseconds: u64) {
        // The histogram grows as needed; an hour is within what it can hold.
        let _ = self.0.record(nanoseconds.min(LONGEST));
    }

    /// Adds the latencies of another.
    pub fn add(&mut self, other: &Latencies) {
        let _ = self.0.add(&other.0);
    }

    /// How many operations were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that this many percent of the operations did not exceed; 0 if there were none.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_percentile(percent) }
    }

    /// The numbers that reports show.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            mean_ns: if self.0.is_empty() { 0 } else { self.0.mean() as u64 },
            p50_ns: self.percentile(50.0),
            p95_ns: self.percentile(95.0),
            p99_ns: self.percentile(99.0),
            p99_9_ns: self.percentile(99.9),
            max_ns: self.0.max(),
        }
    }
}

/// Latencies in a few numbers, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Operations.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// One kind of operation in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindReport {
    /// The kind.
    pub kind: Kind,
    /// Bytes read or written by it.
    pub bytes: u64,
    /// Its latencies.
    #[serde(flatten)]
    pub latency: LatencySummary,
    /// All its latencies, to merge and to plot; not part of the JSON.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// What happened in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// The phase.
    pub phase: Phase,
    /// Operations of all kinds.
    pub operations: u64,
    /// Steps of the workload: transactions, files, overwrites.
    pub steps: u64,
    /// Bytes that the application wrote.
    pub written_bytes: u64,
    /// Bytes that the application read.
    pub read_bytes: u64,
    /// Calls of fsync and fdatasync.
    pub fsyncs: u64,
    /// Time by the observer's clock, the final sync included, in nanoseconds.
    pub elapsed_ns: u64,
    /// Hash of the operations: equal on every target (but not for [`Phase::Dummy`], which depends on the space).
    pub operation_hash: u64,
    /// Each kind that occurred.
    pub kinds: Vec<KindReport>,
}

impl PhaseReport {
    /// Operations per second of the observer's time; 0 if no time passed.
    pub fn operations_per_second(&self) -> f64 {
        per_second(self.operations, self.elapsed_ns)
    }

    /// Bytes written per second of the observer's time; 0 if no time passed.
    pub fn written_bytes_per_second(&self) -> f64 {
        per_second(self.written_bytes, self.elapsed_ns)
    }

    /// What is known of one kind.
    pub fn kind(&self, kind: Kind) -> Option<&KindReport> {
        self.kinds.iter().find(|report| report.kind == kind)
    }

    /// The latencies of several kinds together; of all for an empty list.
    pub fn latencies(&self, kinds: &[Kind]) -> Latencies {
        let mut all = Latencies::default();
        for report in self.kinds.iter().filter(|report| kinds.is_empty() || kinds.contains(&report.kind)) {
            all.add(&report.latencies);
        }
        all
    }
}

fn per_second(count: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 { 0.0 } else { count as f64 * 1e9 / nanoseconds as f64 }
}

/// The report of a whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadReport {
    /// The workload with all its options.
    pub workload: String,
    /// The settings.
    pub settings: Settings,
    /// Bytes of dummy data.
    pub dummy_bytes: u64,
    /// Utilization reached when ageing began, in percent of the space that was free at first.
    pub utilization_percent: f64,
    /// Bytes compared with what was written, if that was asked for.
    pub verified_bytes: u64,
    /// The measured phase.
    pub measure: PhaseReport,
    /// The phases before it.
    pub before: Vec<PhaseReport>,
}
