//! A block trace as the load: as recorded, or as a log-structured volume would write it.
//!
//! The simulated flash holds what the trace writes to: see [`TraceLoad`]. All of it is full of data at the start; the trace is then
//! written again and again until the flash has been programmed several times over, and the second half counts.

use basalt_flash::device::DeviceModel;
use basalt_flash::ftl::{TranslationKind, TranslationLayer};
use basalt_segments::{CostBenefit, Greedy, VictimPolicy};
use basalt_simulator::{Age, BLOCK_SIZE};

use super::{Amplification, Simulated, unevenness};
use crate::size;
use crate::trace_load::TraceLoad;
use crate::volume::{self, Lengths, Setup, Source, defaults, size_of_trace};

/// How often the flash is programmed over before it is measured, and while it is.
const ROUNDS: u64 = 2;
/// Most pages of 4 KiB written in one simulation, so that a trace of few writes ends all the same.
const MOST_PAGES: u64 = 400_000_000;

/// What each policy and translation layer makes of a trace whose data takes `utilization` percent of the device; `say` hears
/// which one is simulated.
///
/// # Errors
/// In words, when the flash or volume cannot be simulated.
pub fn of_trace(
    load: &TraceLoad,
    device: &DeviceModel,
    utilization: u8,
    say: &mut dyn FnMut(&str),
) -> Result<Simulated, String> {
    let more_room = more_room(load, device, utilization)?;
    let mut all = Vec::new();
    for kind in TranslationKind::ALL {
        say(&format!("as recorded, {kind}"));
        all.push(as_recorded(load, device, kind, utilization)?);
    }
    let policies: [&'static dyn VictimPolicy; 2] = [&Greedy, &CostBenefit];
    for policy in policies {
        say(&format!("log, {}", policy.name()));
        all.push(logged(load, policy, utilization)?);
    }
    Ok(Simulated { amplifications: all, left_out: Vec::new(), is_steady: true, more_room })
}

/// [`Simulated::more_room`] of a trace.
fn more_room(load: &TraceLoad, device: &DeviceModel, utilization: u8) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let geometry = device.geometry(logical_bytes(load, utilization)).map_err(|error| error.to_string())?;
    let spare = (geometry.physical_pages() as f64 / geometry.logical_pages() as f64 - 1.0) * 100.0;
    let (footprint, devices) =
        (size::human(load.footprint()), device.flash.map(|flash| flash.over_provisioning_percent));
    // Whole erase blocks are some more anyway.
    if let Some(devices) = devices.filter(|devices| spare > devices * 1.2 + 1.0) {
        all.push(format!(
            "the trace writes to only {footprint}: with the erase blocks that a translation layer needs, the simulated flash has {spare:.0} % \
             over-provisioning, the device {devices} %; WA is too low, and the years as recorded are too many"
        ));
    }
    let full = load.footprint() * 100 / size_of_trace(load, utilization, 1, defaults::CLEANING)?.max(1);
    if full + 5 < u64::from(utilization) {
        all.push(format!(
            "the trace writes to only {footprint}: the simulated log is {full} % full, the device {utilization} %; its WAF is too low, and its \
             years are too many"
        ));
    }
    Ok(all)
}

/// Bytes of the device of which the trace's data takes so many percent.
fn logical_bytes(load: &TraceLoad, utilization: u8) -> u64 {
    load.footprint() * 100 / u64::from(utilization.clamp(1, 100))
}

fn as_recorded(
    load: &TraceLoad,
    device: &DeviceModel,
    kind: TranslationKind,
    utilization: u8,
) -> Result<Amplification, String> {
    let geometry = device.geometry(logical_bytes(load, utilization)).map_err(|error| error.to_string())?;
    let mut layer = kind.build(geometry).map_err(|error| error.to_string())?;
    overwrite(layer.as_mut(), 0, load.footprint())?;
    let rounds = rounds(load, geometry.physical_pages() * u64::from(geometry.page_bytes()) / BLOCK_SIZE);
    let replay = |layer: &mut dyn TranslationLayer| {
        let mut writes = (0..rounds).flat_map(|_| load.writes());
        writes.try_for_each(|write| overwrite(layer, write.offset(), write.length()))
    };
    replay(layer.as_mut())?;
    let before = layer.statistics();
    replay(layer.as_mut())?;
    let (measured, wear) = (layer.statistics().since(&before), layer.wear());
    let written = measured.pages_written * u64::from(geometry.page_bytes());
    Ok(Amplification {
        policy: "as recorded".into(),
        layer: Some(kind),
        waf: written as f64 / (load.written_bytes * rounds) as f64,
        wa: measured.write_amplification(),
        unevenness: unevenness(&wear),
    })
}

/// How often the trace is written so that flash of `pages` pages of 4 KiB is programmed over [`ROUNDS`] times.
fn rounds(load: &TraceLoad, pages: u64) -> u64 {
    (pages * ROUNDS).min(MOST_PAGES / 2).div_ceil(load.blocks_written().max(1))
}

/// Writes the pages of flash that these bytes touch.
fn overwrite(layer: &mut dyn TranslationLayer, offset: u64, length: u64) -> Result<(), String> {
    let pages = layer.geometry().touched(offset, length);
    layer.write(pages.start, pages.end - pages.start).map_err(|error| error.to_string())
}

/// Segments are whole erase blocks and are discarded when they are empty: the layer below copies nothing.
fn logged(load: &TraceLoad, policy: &'static dyn VictimPolicy, utilization: u8) -> Result<Amplification, String> {
    let setup = Setup {
        size: size_of_trace(load, utilization, 1, defaults::CLEANING)?,
        utilization: utilization.clamp(1, 99),
        segments_per_section: 1,
        logs: 6,
        policy,
        placement: Default::default(),
        cleaning: defaults::CLEANING.to_owned(),
        age: Age::Modified,
    };
    let mut options = setup.options()?;
    // What the trace writes to, and not more: the volume was rounded up.
    options.blocks = load.blocks();
    let writes = rounds(load, setup.size / BLOCK_SIZE) * load.blocks_written();
    let lengths = Lengths { warm_up: writes, measured: writes };
    let (statistics, _) = volume::run(options, &mut Source::Trace(load), lengths, &mut |_, _| ())?;
    Ok(Amplification {
        policy: format!("log, {}", policy.name()),
        layer: None,
        waf: statistics.write_amplification() * (load.blocks_written() * BLOCK_SIZE) as f64 / load.written_bytes as f64,
        wa: 1.0,
        unevenness: 1.0,
    })
}

#[cfg(test)]
mod tests {
    use basalt_device::RequestKind;
    use basalt_flash::device::preset;
    use basalt_random::Rng;
    use basalt_traces::TraceRequest;

    use super::*;

    /// So many writes of `length` bytes, each at the beginning of a page chosen at random, among `pages` of 4 KiB.
    fn random_writes(count: usize, pages: u64, length: u64) -> TraceLoad {
        let mut rng = Rng::new(7);
        let request = |time_ns| {
            let offset = rng.below(pages) * 4096;
            Ok(TraceRequest { time_ns, kind: RequestKind::Write, offset, length })
        };
        TraceLoad::read((0..count as u64).map(request)).unwrap()
    }

    /// What is programmed, in bytes, for each write of a load.
    fn programmed(load: &TraceLoad, one: &Amplification) -> f64 {
        one.waf * one.wa * load.written_bytes as f64
    }

    /// A page is programmed as a whole, so eight times as few bytes cost the same.
    #[test]
    fn parts_of_pages_cost_whole_pages() {
        let device = preset("sd-b").unwrap();
        let page = device.geometry(1 << 30).unwrap().page_bytes();
        let (parts, blocks) = (random_writes(50_000, 16_384, 512), random_writes(50_000, 16_384, 4096));
        let of_parts = of_trace(&parts, &device, 85, &mut |_| {}).unwrap().amplifications;
        let of_blocks = of_trace(&blocks, &device, 85, &mut |_| {}).unwrap().amplifications;
        for (part, block) in of_parts.iter().zip(&of_blocks) {
            let (few, many) = (programmed(&parts, part), programmed(&blocks, block));
            assert!((few / many - 1.0).abs() < 1e-9, "{part:?}: {few} and {many} bytes");
            let whole = if part.layer.is_some() { f64::from(page) } else { 4096.0 };
            assert!(part.waf >= whole / 512.0 && block.waf >= whole / 4096.0, "{part:?} {block:?}");
        }
        let recorded = &of_blocks[0];
        assert!((recorded.waf - f64::from(page) / 4096.0).abs() < 1e-9, "{recorded:?}");
    }

    /// What a translation layer needs at least is more than a small footprint leaves, and said.
    #[test]
    fn more_room_than_the_device_has_is_told() {
        let device = preset("sd-b").unwrap();
        let (small, large) = (random_writes(5_000, 2_048, 4096), random_writes(200_000, 65_536, 4096));
        let told = more_room(&small, &device, 85).unwrap();
        assert!(
            told.len() == 2 && told[0].contains("the device 7 %") && told[1].contains("the device 85 %"),
            "{told:?}"
        );
        assert_eq!(more_room(&large, &device, 85).unwrap(), Vec::<String>::new());
    }

    /// A write that is not aligned costs the pages at both of its ends.
    #[test]
    fn a_write_across_a_border_costs_two_pages() {
        let device = preset("ssd-m").unwrap();
        let write = |time_ns| {
            let offset = (time_ns * 37) % 8_000 * 4096 + 2048;
            Ok(TraceRequest { time_ns, kind: RequestKind::Write, offset, length: 4096 })
        };
        let load = TraceLoad::read((0..20_000).map(write)).unwrap();
        let all = of_trace(&load, &device, 85, &mut |_| {}).unwrap().amplifications;
        assert!((all[0].waf - 2.0).abs() < 1e-9, "{:?}", all[0]);
    }
}
