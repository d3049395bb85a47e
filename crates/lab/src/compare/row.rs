//! One file system under one workload: what is shown and what is written as JSON.

use serde::Serialize;

use super::{Comparison, System};
use crate::peers::PeerRun;
use crate::replay::Outcome;

/// What one file system did with one workload. Everything that is measured is of the measured phase alone, and absent where that
/// was not reached or not finished.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The file system.
    pub fs: &'static str,
    /// The workload with all its options, or as it was asked for where it did not begin.
    pub workload: String,
    /// The device's name.
    pub device: String,
    /// Bytes of the volume.
    pub size_bytes: u64,
    /// How full it was asked to be, in percent of what the file system offers.
    pub utilization_percent: u32,
    /// Share of the device that was written before, in percent.
    pub fill_percent: u8,
    /// The seed.
    pub seed: u64,
    /// What was measured.
    #[serde(flatten)]
    pub measured: Option<Measured>,
    /// Real seconds that the run took, which say how busy this computer was and no more.
    pub elapsed_seconds: f64,
    /// Why nothing was measured, or that what was measured is not the whole phase.
    pub error: Option<String>,
    /// True where the file system could not be tried here at all.
    pub skipped: bool,
}

/// The measured phase of a run that came to its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Seconds that the simulated device was busy, as its model says.
    pub device_seconds: f64,
    /// The same with the copies of a page-level translation layer; see [`crate::replay`] for when to look at it.
    pub device_seconds_page_level: f64,
    /// The same with the copies of the FAST translation layer.
    pub device_seconds_fast: f64,
    /// Bytes written to the device for each byte that the application wrote.
    pub waf: f64,
    /// Flash pages programmed for each page written to a device with a page-level translation layer.
    pub wa: f64,
    /// The same with the FAST hybrid translation layer.
    pub wa_fast: f64,
    /// Flash pages programmed for each page that the application wrote, page-level.
    pub flash_pages_per_page: f64,
    /// The same with FAST.
    pub flash_pages_per_page_fast: f64,
    /// Blocks erased, page-level.
    pub erases: u64,
    /// Blocks erased, FAST.
    pub erases_fast: u64,
    /// Erases for each erase block of the flash, spare ones included, page-level. Below 1 most of what was measured went to blocks that
    /// were free before.
    pub erases_per_block: f64,
    /// The same with FAST.
    pub erases_per_block_fast: f64,
    /// Time of a request that half of all requests do not exceed, in milliseconds.
    pub p50_ms: f64,
    /// 99 %.
    pub p99_ms: f64,
    /// 99 %, with the copies that the requests waited for in a page-level translation layer.
    pub p99_page_level_ms: f64,
    /// 99 %, with the copies that they waited for in FAST.
    pub p99_fast_ms: f64,
    /// 99.9 %.
    pub p99_9_ms: f64,
    /// Requests that are no flush.
    pub requests: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes that the application wrote.
    pub application_bytes: u64,
    /// Operations of the application.
    pub operations: u64,
    /// fsyncs of the application.
    pub fsyncs: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
    /// How full the volume was, in percent of what the file system offers.
    pub reached_utilization_percent: f64,
    /// Hash of the operations of the measured phase: the same on every file system.
    pub operation_hash: String,
}

impl Row {
    /// A row without measurements.
    pub(super) fn new(comparison: &Comparison, workload: &str, system: System) -> Row {
        let settings = &comparison.settings;
        Row {
            fs: system.name(),
            workload: workload.to_owned(),
            device: comparison.device.name.clone(),
            size_bytes: settings.size_bytes,
            utilization_percent: settings.utilization_percent,
            fill_percent: comparison.fill_percent,
            seed: settings.seed,
            measured: None,
            elapsed_seconds: 0.0,
            error: None,
            skipped: false,
        }
    }
}

impl Measured {
    /// Puts together what the application and what the device saw.
    pub(super) fn new(run: &PeerRun, outcome: &Outcome) -> Option<Measured> {
        let report = run.report.as_ref().ok()?;
        let [page_level, fast] = outcome.layers.as_slice() else { return None };
        let application_bytes = report.measure.written_bytes;
        let application_pages = application_bytes as f64 / f64::from(page_level.page_bytes);
        let share = |count: u64, of: f64| if of > 0.0 { count as f64 / of } else { 0.0 };
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let requests = &outcome.requests;
        Some(Measured {
            device_seconds: seconds(outcome.device_ns),
            device_seconds_page_level: seconds(page_level.device_ns),
            device_seconds_fast: seconds(fast.device_ns),
            waf: share(requests.bytes_written, application_bytes as f64),
            wa: page_level.wa,
            wa_fast: fast.wa,
            flash_pages_per_page: share(page_level.statistics.pages_programmed, application_pages),
            flash_pages_per_page_fast: share(fast.statistics.pages_programmed, application_pages),
            erases: page_level.statistics.erases,
            erases_fast: fast.statistics.erases,
            erases_per_block: page_level.wear.mean,
            erases_per_block_fast: fast.wear.mean,
            p50_ms: milliseconds(outcome.latency.p50_ns),
            p99_ms: milliseconds(outcome.latency.p99_ns),
            p99_page_level_ms: milliseconds(page_level.latency.p99_ns),
            p99_fast_ms: milliseconds(fast.latency.p99_ns),
            p99_9_ms: milliseconds(outcome.latency.p999_ns),
            requests: requests.requests() - requests.flushes,
            flushes: requests.flushes,
            application_bytes,
            operations: report.measure.operations,
            fsyncs: report.measure.fsyncs,
            written_bytes: requests.bytes_written,
            read_bytes: requests.bytes_read,
            discarded_bytes: requests.bytes_discarded,
            reached_utilization_percent: report.utilization_percent,
            operation_hash: format!("{:016x}", report.measure.operation_hash),
        })
    }
}

/// What went wrong with a workload, without its name in front, which has its options as numbers of bytes: the heading above has it already.
pub(super) fn without_name(error: &str, workload: &str) -> String {
    let kind = workload.split([':', ',']).next().unwrap_or_default();
    match error.split_once(": ") {
        Some((name, why)) if name.split([':', ',']).next() == Some(kind) => why.to_owned(),
        _ => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_repeat_the_workload() {
        let full = "zipf:0.99,set=268435456,request=4096: no space left in the measure phase (write data); lower it";
        for workload in ["zipf", "zipf:0.99", "zipf:set=256M"] {
            let why = without_name(full, workload);
            assert_eq!(why, "no space left in the measure phase (write data); lower it");
        }
        assert_eq!(without_name("fileserver: full", "fileserver:set=25%"), "full");
        for other in ["write data: it failed", "stopped after 600 s"] {
            assert_eq!(without_name(other, "zipf"), other);
        }
    }
}
