//! How long a device lasts under a load: years until the rated program/erase cycles of its flash are used, for each policy.
//!
//! | module | what |
//! |---|---|
//! | `trace` | a block trace as the load: as recorded, or as a log-structured volume would write it |
//! | `load` | a workload on the F2FS engine as the load |
//!
//! A device can program `capacity × (1 + over-provisioning) × cycles` bytes before its blocks are worn. A load that writes `rate`
//! bytes a day makes it program `rate × WAF × WA`: WAF is what the file system or the log adds, and what is programmed of a page that is
//! written in part; WA what the translation layer adds. Both are measured here. Blocks wear unevenly: the second number of each estimate
//! is when the block erased most is worn, in the proportion that the simulation found.

mod load;
mod trace;

use basalt_flash::device::DeviceModel;
use basalt_flash::ftl::{TranslationKind, Wear};
use serde::Serialize;

use crate::size;

pub use load::of_workload;
pub use trace::of_trace;

/// Days of a year.
const YEAR: f64 = 365.25;
/// Cycles assumed of a device whose preset names none: flash with three bits a cell.
const USUAL_CYCLES: u32 = 3_000;

/// A device as far as its life is concerned.
#[derive(Debug, Clone, Serialize)]
pub struct Flash {
    /// The preset's name.
    pub device: String,
    /// Bytes of flash, spare ones included.
    pub physical_bytes: u64,
    /// Program/erase cycles of each block.
    pub rated_cycles: u32,
    /// Whether the cycles are the preset's own.
    pub cycles_are_known: bool,
}

impl Flash {
    /// The flash of a device; `capacity` in bytes where the preset has none or another is wanted.
    ///
    /// # Errors
    /// In words, when the device has no flash, or its capacity is not known.
    pub fn of(device: &DeviceModel, capacity: Option<u64>) -> Result<Flash, String> {
        let Some(flash) = &device.flash else {
            return Err(format!("{} has no flash that could wear out", device.name));
        };
        let Some(capacity) = capacity.or(device.capacity_bytes) else {
            return Err(format!("the capacity of {} is not known; give it with --capacity", device.name));
        };
        Ok(Flash {
            device: device.name.clone(),
            physical_bytes: (capacity as f64 * (1.0 + flash.over_provisioning_percent / 100.0)).round() as u64,
            rated_cycles: flash.rated_cycles.unwrap_or(USUAL_CYCLES),
            cycles_are_known: flash.rated_cycles.is_some(),
        })
    }

    /// Bytes that can be programmed in all.
    pub fn endurance_bytes(&self) -> f64 {
        self.physical_bytes as f64 * f64::from(self.rated_cycles)
    }
}

/// A policy's part in an estimate: what it makes of the bytes of the load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Amplification {
    /// What writes: `as recorded`, `log, greedy`, `basalt`, …
    pub policy: String,
    /// The translation layer below; none where the policy leaves it nothing to copy.
    pub layer: Option<TranslationKind>,
    /// Bytes of the flash pages, or of a log's blocks, that are written to for each byte of the load. A page that is written in part
    /// counts as a whole.
    pub waf: f64,
    /// Pages programmed for each page written to the device.
    pub wa: f64,
    /// Erases of the block erased most, for each erase of a block on average.
    pub unevenness: f64,
}

/// What policies make of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// Each policy with each translation layer.
    pub amplifications: Vec<Amplification>,
    /// The policies on whose volume the load does not fit, with the reason.
    pub left_out: Vec<String>,
    /// Whether the load goes on for ever, and is measured when volume and flash are steady. A workload that comes to an end is measured on
    /// the volume and flash that it finds.
    pub is_steady: bool,
    /// Where what was simulated has more room than the device, because the load writes to too little for that: one sentence each.
    pub more_room: Vec<String>,
}

/// Years of a device under a load with one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// What was measured of the policy.
    #[serde(flatten)]
    pub amplification: Amplification,
    /// Years until all blocks are worn, if wear is spread evenly.
    pub years: f64,
    /// Years until the block erased most is worn, if it goes on as in the simulation.
    pub years_to_first_block: f64,
}

impl Estimate {
    /// The estimate for a load of `bytes_per_day`.
    pub fn new(flash: &Flash, amplification: Amplification, bytes_per_day: f64) -> Estimate {
        let programmed = bytes_per_day * amplification.waf * amplification.wa;
        let years = flash.endurance_bytes() / programmed / YEAR;
        Estimate { years, years_to_first_block: years / amplification.unevenness.max(1.0), amplification }
    }
}

/// What all estimates of a report rest on, one sentence each.
pub fn assumptions(flash: &Flash, bytes_per_day: f64, source_of_rate: &str, load: &Simulated) -> Vec<String> {
    let cycles = if flash.cycles_are_known { "the preset's" } else { "assumed: the preset names none" };
    let lasting = match load.is_steady {
        true => "WAF and WA are those of the simulated steady state, and stay so for the device's whole life",
        false => "the workload comes to an end: WAF and WA are those of one run on a new volume, and stay so",
    };
    let simulated = match load.more_room.is_empty() {
        true => {
            "the simulated flash has the device's page, erase block and over-provisioning, and is as large as the load needs"
        }
        false => "the simulated flash has the device's page and erase block, and is as large as the load needs",
    };
    let mut all = vec![
        format!("the load is written every day: {} a day ({source_of_rate})", size::human(bytes_per_day as u64)),
        format!(
            "{}: {} of flash with its spare blocks, {} program/erase cycles a block ({cycles})",
            flash.device,
            size::human(flash.physical_bytes),
            flash.rated_cycles
        ),
        "a block is worn when its rated cycles are used; retention, read disturb and early failures are left out"
            .to_owned(),
        "a write of part of a flash page programs the whole page: WAF has it".to_owned(),
        lasting.to_owned(),
        simulated.to_owned(),
    ];
    all.extend(load.more_room.iter().cloned());
    all
}

/// How much more the block erased most was erased than a block on average; 1 where hardly anything was erased.
pub(crate) fn unevenness(wear: &Wear) -> f64 {
    if wear.mean < 1.0 { 1.0 } else { f64::from(wear.max) / wear.mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_lasts_as_long_as_its_cycles() {
        let flash =
            Flash { device: "card".into(), physical_bytes: 10_000_000_000, rated_cycles: 1000, cycles_are_known: true };
        let amplification = Amplification { policy: "log".into(), layer: None, waf: 2.0, wa: 1.25, unevenness: 2.0 };
        // 10 TB of endurance; 10 GB a day are 25 GB programmed: 400 days.
        let estimate = Estimate::new(&flash, amplification, 10e9);
        assert!((estimate.years - 400.0 / 365.25).abs() < 1e-9, "{}", estimate.years);
        assert!((estimate.years_to_first_block - 200.0 / 365.25).abs() < 1e-9);
    }

    #[test]
    fn a_disk_does_not_wear_out() {
        let disk = basalt_flash::device::preset("hdd-m").expect("a preset");
        assert!(Flash::of(&disk, None).is_err());
    }
}
