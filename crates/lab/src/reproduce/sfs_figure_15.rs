//! SFS figures 15 and 16: what the translation layer of an SSD adds to the writes of ext4, of btrfs and of a log-structured file
//! system, and how many blocks it erases. The log-structured one here is Basalt with its baseline: one hotness group, as LFS-CB.
//!
//! As in the paper: four workloads, 85 % in use, flash with pages of 4 KiB, blocks of 512 KiB and 10 % over-provisioning, the requests
//! of each file system recorded and replayed through both layers. The device is smaller: 1 GiB, 4 GiB with `--full`. Ageing and the measured
//! phase are the shares of it that the paper's 20 GiB and 8 GiB are of its 32 GB of flash (sections 4.1 and 4.4), and so is the set of
//! what is overwritten, 8 GB (`experiments/sfs-figure-9.toml` says why). The flash was written once before; the paper does not say what was on its own.
//! btrfs in its SSD mode does not always fit at 85 %; it is then measured at 60 %, and the item says so.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use basalt_flash::device::preset;
use basalt_workloads::{Limit, Settings};

use super::{Outcome, STOPPED, Scale, Tell};
use crate::compare::{CompareError, Comparison, Measured, System};
use crate::peers::Peer;
use crate::verdicts::{Expectation, Item, Tolerance};

const WORKLOADS: [&str; 4] = ["zipf:0.9", "uniform", "tpcc", "res"];
const UTILIZATION: u32 = 85;
/// Where btrfs is measured if it does not fit.
const LOWER_UTILIZATION: u32 = 60;
/// Share of the flash that was written before, in percent.
const FILL_PERCENT: u8 = 100;
/// Real time that one workload on one file system may take.
const LIMIT: Duration = Duration::from_secs(400);
/// The paper's averages are of other versions on a device many times as large.
const TOLERANCE: Tolerance = Tolerance::OfValue(0.35);
/// Of erases relative to the log's: as many as the log's are no gain of the log.
const RELATIVE: Tolerance = Tolerance::OfGain(0.35);

/// Where the paper's numbers are from: erases are stated relative to SFS, whose own LFS-CB has 1.2 times as many.
const STATED: &str = "section 4.4, figure 15";
const DERIVED: &str = "section 4.4, figure 16: the ratio to SFS over that of LFS-CB";

/// Averages of a file system over the workloads that it finished.
struct Average {
    workloads: usize,
    wa: f64,
    wa_fast: f64,
    /// Erases for each gigabyte that the application wrote.
    erases: f64,
    erases_fast: f64,
    conditions: String,
}

pub(super) fn run(scale: &Scale, stop: &AtomicBool, say: Tell<'_>) -> Outcome {
    let log = measure(System::Basalt, UTILIZATION, true, scale, stop, say)?;
    let ext4 = measure(System::Peer(Peer::Ext4), UTILIZATION, true, scale, stop, say)?;
    // Where one workload does not fit, the others are not worth their minutes.
    let mut btrfs = measure(System::Peer(Peer::Btrfs), UTILIZATION, false, scale, stop, say)?;
    if btrfs.workloads < WORKLOADS.len() {
        let before = std::mem::take(&mut btrfs.conditions);
        btrfs = measure(System::Peer(Peer::Btrfs), LOWER_UTILIZATION, true, scale, stop, say)?;
        btrfs.conditions = format!("at {UTILIZATION} %: {before}; so at {LOWER_UTILIZATION} %: {}", btrfs.conditions);
    }
    // LFS-CB, ext4 and btrfs: write amplification with FAST and page-level; erases relative to SFS.
    let papers = [
        (&log, "the log (Basalt)", [1.1, 1.0], [1.2, 1.2]),
        (&ext4, "ext4", [5.3, 2.8], [3.1, 1.8]),
        (&btrfs, "btrfs", [4.5, 1.6], [8.9, 4.9]),
    ];
    let baseline = papers[0].3;
    let mut items = Vec::new();
    for (average, name, amplification, erases) in papers {
        let is_ours = std::ptr::eq(average, &log);
        items.extend(amplifications(average, name, amplification, is_ours));
        if !is_ours {
            let relative = [erases[0] / baseline[0], erases[1] / baseline[1]];
            items.extend(relative_erases(average, &log, name, relative));
        }
    }
    Ok(items)
}

/// Runs all workloads on one file system, or those up to the first that fails.
fn measure(
    system: System,
    utilization: u32,
    all: bool,
    scale: &Scale,
    stop: &AtomicBool,
    say: Tell<'_>,
) -> Result<Average, String> {
    let place = tempfile::Builder::new()
        .prefix("basalt-reproduce-")
        .tempdir_in("/var/tmp")
        .map_err(|error| error.to_string())?;
    let mut comparison = comparison(system, utilization, scale, place.path())?;
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for workload in WORKLOADS {
        comparison.workloads = vec![workload.to_owned()];
        let mut watch = |_: &str, _: System, _: &str| match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let more = comparison.run(&mut watch, &mut |row| {
            say(&format!("{} on {}, {utilization} %: {:.0} s", row.workload, row.fs, row.elapsed_seconds));
            if let Some(error) = &row.error {
                failed.push(format!("{}: {error}", row.workload));
            }
        });
        rows.extend(more.map_err(|error| match error {
            CompareError::Interrupted => STOPPED.to_owned(),
            error => error.to_string(),
        })?);
        if !all && !failed.is_empty() {
            break;
        }
    }
    let measured: Vec<&Measured> = rows.iter().filter_map(|row| row.measured.as_ref()).collect();
    Ok(average(&measured, &failed))
}

/// The paper's experiment on a smaller device, still without a workload.
fn comparison(system: System, utilization: u32, scale: &Scale, place: &Path) -> Result<Comparison, String> {
    let size_bytes: u64 = if scale.full { 4 << 30 } else { 1 << 30 };
    Ok(Comparison {
        workloads: Vec::new(),
        systems: vec![system],
        device: Arc::new(preset("ssd-m").map_err(|error| error.to_string())?),
        fill_percent: FILL_PERCENT,
        settings: Settings {
            size_bytes,
            utilization_percent: utilization,
            seed: scale.seed,
            age: Some(Limit::Bytes(size_bytes / 8 * 5)),
            measure: Some(Limit::Bytes(size_bytes / 4)),
            ..Settings::default()
        },
        limit: LIMIT,
        program: std::env::current_exe().map_err(|error| format!("this program: {error}"))?,
        place: place.to_owned(),
        keep: None,
    })
}

fn average(measured: &[&Measured], failed: &[String]) -> Average {
    let mean =
        |value: fn(&Measured) -> f64| measured.iter().map(|one| value(one)).sum::<f64>() / measured.len().max(1) as f64;
    let list = |value: fn(&Measured) -> f64| {
        measured.iter().map(|one| format!("{:.2}", value(one))).collect::<Vec<_>>().join(", ")
    };
    let mut conditions = format!(
        "{} of {} workloads; WAF {}; WA page-level {}; FAST {}; erases per block {}; FAST {}",
        measured.len(),
        WORKLOADS.len(),
        list(|one| one.waf),
        list(|one| one.wa),
        list(|one| one.wa_fast),
        list(|one| one.erases_per_block),
        list(|one| one.erases_per_block_fast)
    );
    if !failed.is_empty() {
        conditions = format!("{conditions}; {}", failed.join("; "));
    }
    Average {
        workloads: measured.len(),
        wa: mean(|one| one.wa),
        wa_fast: mean(|one| one.wa_fast),
        erases: mean(|one| one.erases as f64 * 1e9 / one.application_bytes.max(1) as f64),
        erases_fast: mean(|one| one.erases_fast as f64 * 1e9 / one.application_bytes.max(1) as f64),
        conditions,
    }
}

/// Figure 15: write amplification of the two layers. Only ours can be better: a peer that differs from the paper's is a difference.
fn amplifications(average: &Average, name: &str, papers: [f64; 2], is_ours: bool) -> Vec<Item> {
    let measured = [("FAST", average.wa_fast), ("page-level", average.wa)];
    let item = |((layer, ours), paper): ((&str, f64), f64)| {
        let label = ("sfs", "15");
        let what = format!("write amplification in the device, {layer}, {name}");
        let expectation = match is_ours {
            true => Expectation::AtMost { value: paper, tolerance: TOLERANCE }.stated(STATED),
            false => Expectation::Near { value: paper, tolerance: TOLERANCE }.stated(STATED),
        };
        match average.workloads {
            0 => Item::missing(label, what, expectation, average.conditions.clone()),
            _ => Item::new(label, what, expectation, ours, average.conditions.clone()),
        }
    };
    measured.into_iter().zip(papers).map(item).collect()
}

/// Figure 16: erases for the same application writes, relative to the log-structured file system.
fn relative_erases(average: &Average, log: &Average, name: &str, papers: [f64; 2]) -> Vec<Item> {
    let measured = [("FAST", average.erases_fast, log.erases_fast), ("page-level", average.erases, log.erases)];
    let item = |((layer, ours, log_erases), paper): ((&str, f64, f64), f64)| {
        let label = ("sfs", "16");
        let what = format!("erases relative to the log's, {layer}, {name}");
        let expectation = Expectation::Near { value: paper, tolerance: RELATIVE }.derived(DERIVED);
        if average.workloads == 0 || log.workloads == 0 || log_erases == 0.0 {
            return Item::missing(label, what, expectation, "one of the two erased nothing, or did not finish");
        }
        let why = format!("{ours:.0} against {log_erases:.0} erases for each GB that the application wrote");
        Item::new(label, what, expectation, ours / log_erases, why)
    };
    measured.into_iter().zip(papers).map(item).collect()
}
