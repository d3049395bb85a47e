//! Counts of a running phase, and what they come to.

use super::Event;
use crate::operation::{Kind, OperationHash};
use crate::report::{KindReport, Latencies, PhaseReport};
use crate::settings::Limit;
use crate::workload::Phase;

/// Counts of a running phase.
pub(super) struct Counts {
    pub(super) report: PhaseReport,
    pub(super) hash: OperationHash,
    /// Operations since the last one that wrote.
    pub(super) without_write: u64,
    bytes: [u64; Kind::COUNT],
    latencies: Vec<Option<Latencies>>,
    pub(super) started: u64,
}

impl Counts {
    pub(super) fn new(phase: Phase, started: u64) -> Counts {
        let report = PhaseReport {
            phase,
            operations: 0,
            steps: 0,
            written_bytes: 0,
            read_bytes: 0,
            fsyncs: 0,
            elapsed_ns: 0,
            operation_hash: 0,
            kinds: Vec::new(),
        };
        let latencies = (0..Kind::COUNT).map(|_| None).collect();
        Counts { report, hash: OperationHash::default(), without_write: 0, bytes: [0; Kind::COUNT], latencies, started }
    }

    pub(super) fn add(&mut self, event: &Event) {
        let report = &mut self.report;
        report.operations += 1;
        self.without_write += 1;
        match event.kind {
            Kind::Write => {
                report.written_bytes += event.bytes;
                self.without_write = 0;
            }
            Kind::Read => report.read_bytes += event.bytes,
            Kind::Fsync | Kind::Fdatasync => report.fsyncs += 1,
            _ => {}
        }
        let kind = event.kind as usize;
        self.bytes[kind] += event.bytes;
        let latency = event.end_ns.saturating_sub(event.start_ns);
        self.latencies[kind].get_or_insert_default().record(latency);
    }

    pub(super) fn finish(mut self, now: u64) -> PhaseReport {
        self.report.elapsed_ns = now.saturating_sub(self.started);
        self.report.operation_hash = self.hash.value();
        for kind in Kind::ALL {
            if let Some(latencies) = self.latencies[kind as usize].take() {
                let latency = latencies.summary();
                self.report.kinds.push(KindReport { kind, bytes: self.bytes[kind as usize], latency, latencies });
            }
        }
        self.report
    }

    /// How much of a limit is reached, and the limit.
    pub(super) fn progress(&self, limit: Limit, now: u64) -> (u64, u64) {
        match limit {
            Limit::Bytes(bytes) => (self.report.written_bytes, bytes),
            Limit::Operations(operations) => (self.report.operations, operations),
            Limit::Nanoseconds(time) => (now.saturating_sub(self.started), time),
        }
    }
}
