//! SFS figure 1 and table 1: random writes reach the bandwidth of sequential ones when requests are large. Here: the device
//! models, measured through the clock of a simulated device as a benchmark would measure a real one.

use std::sync::Arc;

use basalt_device::RequestKind;
use basalt_flash::device::{DeviceModel, preset};
use basalt_random::Rng;

use super::{Expectation, Item, Outcome, Runs, Say, Scale};

const LABEL: (&str, &str) = ("sfs", "1");
/// Bytes written for one bandwidth.
const MEASURED: u64 = 1 << 30;
/// At most so many requests of one size: small ones all cost the same.
const MOST_REQUESTS: u64 = 4096;
/// Random writes have caught up at this share of the sequential bandwidth.
const CAUGHT_UP: f64 = 0.9;
/// Tolerance for numbers that the models were made from.
const EXACT: f64 = 0.05;

/// A device of table 1: MB/s of sequential reads, random 4 KiB reads, sequential writes, random 4 KiB writes, and the request
/// size in MiB from which on random writes are as fast as sequential ones.
struct Device {
    name: &'static str,
    bandwidths: [f64; 4],
    converges_mib: u64,
}

const DEVICES: [Device; 3] = [
    Device { name: "ssd-h", bandwidths: [216.9, 13.8, 170.0, 5.3], converges_mib: 16 },
    Device { name: "ssd-m", bandwidths: [212.6, 10.6, 87.0, 0.6], converges_mib: 32 },
    Device { name: "ssd-l", bandwidths: [69.1, 5.3, 38.0, 0.002], converges_mib: 16 },
];

pub(super) fn run(scale: &Scale, _runs: &mut Runs, say: Say<'_>) -> Outcome {
    let mut items = Vec::new();
    for device in &DEVICES {
        say(device.name);
        let model = Arc::new(preset(device.name).map_err(|error| error.to_string())?);
        items.extend(table(device, &model, scale.seed));
        items.push(convergence(device, &model, scale.seed));
    }
    Ok(items)
}

fn table(device: &Device, model: &Arc<DeviceModel>, seed: u64) -> Vec<Item> {
    let measures = [
        ("sequential reads", RequestKind::Read, 1 << 20, false),
        ("random 4 KiB reads", RequestKind::Read, 4096, true),
        ("sequential writes", RequestKind::Write, 1 << 20, false),
        ("random 4 KiB writes", RequestKind::Write, 4096, true),
    ];
    let item = |((what, kind, size, random), paper): ((&str, RequestKind, u64, bool), f64)| {
        let ours = bandwidth(model, kind, size, random, seed);
        let expectation = Expectation::Near { value: paper, tolerance: EXACT };
        let what = format!("{} {what}, MB/s (table 1)", device.name.to_uppercase());
        Item::new(LABEL, what, expectation, ours, "the model was made from this number")
    };
    measures.into_iter().zip(device.bandwidths).map(item).collect()
}

/// The smallest power of two at which random writes have caught up with sequential ones.
fn convergence(device: &Device, model: &Arc<DeviceModel>, seed: u64) -> Item {
    let sequential = bandwidth(model, RequestKind::Write, 32 << 20, false, seed);
    let sizes = (12..=26).map(|shift| 1_u64 << shift);
    let caught_up = |size: &u64| bandwidth(model, RequestKind::Write, *size, true, seed) >= CAUGHT_UP * sequential;
    let ours = sizes.clone().find(caught_up).map(|size| size as f64 / f64::from(1 << 20));
    let what = format!("{} request size at which random writes reach sequential ones, MiB", device.name.to_uppercase());
    let expectation = Expectation::Near { value: device.converges_mib as f64, tolerance: EXACT };
    let why = format!("first power of two with {:.0} % of the sequential bandwidth", 100.0 * CAUGHT_UP);
    match ours {
        Some(ours) => Item::new(LABEL, what, expectation, ours, why),
        None => Item::missing(LABEL, what, expectation, "random writes never catch up in this model"),
    }
}

/// MB/s of requests of one size, one after the other.
fn bandwidth(model: &Arc<DeviceModel>, kind: RequestKind, size: u64, random: bool, seed: u64) -> f64 {
    let mut meter = model.meter();
    let mut rng = Rng::new(seed);
    let places = (model.capacity_bytes.unwrap_or(MEASURED) / size).max(1);
    let requests = (MEASURED / size).clamp(1, MOST_REQUESTS);
    let mut time = 0;
    for request in 0..requests {
        let place = if random { rng.below(places) } else { request % places };
        time += meter.request(kind, place * size, size);
    }
    (requests * size) as f64 * 1e3 / time.max(1) as f64
}
