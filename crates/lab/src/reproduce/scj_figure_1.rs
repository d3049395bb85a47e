//! SCJ figure 1 and section III: how much of the time of segment cleaning goes into the checkpoint that commits it.
//!
//! As in the paper: 80 % in use, F2FS in LFS mode (ours never writes in place), a Samsung 970 class SSD, fileserver, varmail, tpcc and
//! YCSB-A. The volume is an eighth of the paper's 16 GiB. Time is the device's: choosing a victim takes none of it.

use basalt_f2fs::CleaningWork;
use basalt_flash::device::preset;
use basalt_workloads::{Settings, by_name};

use super::{Expectation, Item, Outcome, Say, Scale};
use crate::engine::{self, EngineRun, EngineSettings};

const LABEL: (&str, &str) = ("scj", "1");
/// Size of the paper's file system in bytes, and what it is divided by unless asked otherwise.
const SIZE: u64 = 16 << 30;
const DIVISOR: u64 = 8;
const UTILIZATION: u32 = 80;
/// Shares are of two systems with other code: they may differ by this much and still tell the same.
const TOLERANCE: f64 = 0.35;

/// A workload and the paper's share of the checkpoint in the latency of cleaning.
const LOADS: [(&str, f64); 4] = [("fileserver", 0.52), ("varmail", 0.44), ("tpcc", 0.57), ("ycsb-a", 0.56)];

pub(super) fn run(scale: &Scale, say: Say<'_>) -> Outcome {
    let size_bytes = if scale.full { SIZE } else { SIZE / DIVISOR };
    let settings = Settings { size_bytes, utilization_percent: UTILIZATION, seed: scale.seed, ..Settings::default() };
    let mut items = Vec::new();
    for (name, paper) in LOADS {
        say(name);
        let device = preset("nvme").map_err(|error| error.to_string())?;
        let mut workload = by_name(name, &settings).map_err(|error| error.to_string())?;
        let run = engine::run(workload.as_mut(), &EngineSettings::new(device, settings.clone()))
            .map_err(|error| format!("{name}: {error}"))?;
        items.extend(shares(name, paper, &run));
    }
    Ok(items)
}

/// The checkpoint's share of the time of foreground cleaning: as it is here, where victims share checkpoints, and what it would be with
/// one like these for each victim, which is what the paper's F2FS does.
fn shares(name: &str, paper: f64, run: &EngineRun) -> Vec<Item> {
    let what = format!("share of the checkpoint in the time of cleaning, {name}");
    let CleaningWork { victims, blocks_copied, checkpoints, select, copy, commit, .. } = run.engine.cleaning.foreground;
    let [select, copy, commit] = [select, copy, commit].map(|time| time.as_secs_f64());
    let expectation = Expectation::Low { value: paper, tolerance: TOLERANCE };
    if checkpoints == 0 || victims == 0 || commit == 0.0 {
        return vec![Item::missing(LABEL, what, expectation, "nothing was cleaned in the measured phase")];
    }
    let together = victims as f64 / checkpoints as f64;
    let why = format!(
        "{victims} victims, {blocks_copied} blocks copied, {checkpoints} checkpoints: {together:.1} victims share one"
    );
    let shared = Item::new(LABEL, what.clone(), expectation, commit / (select + copy + commit), why);
    let alone = commit * together;
    let why = "computed from the same run: as long a checkpoint behind each victim as those that are shared; shorter ones, with less to \
               write, would come out lower";
    let single =
        Item::new(LABEL, format!("{what}, one for each victim"), expectation, alone / (select + copy + alone), why);
    vec![shared, single]
}
