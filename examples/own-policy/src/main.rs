//! A placement and a victim policy of one's own, beside others: in the volume simulator, in the engine, in a report.
//!
//! `cargo run -- own-policy.html`

mod placement;
mod victim;

use std::process::ExitCode;

use basalt_flash::device::presets;
use basalt_lab::engine::{EngineSettings, run as run_engine};
use basalt_lab::report::{Cell, Report, Section, Table, Unit};
use basalt_lab::volume::{Lengths, Placing, Setup, Source, run_placed};
use basalt_segments::placement::Policy;
use basalt_segments::{CostBenefit, VictimPolicy};
use basalt_workloads::{Limit, Settings};

type Failure = Box<dyn std::error::Error>;

const SIZE: u64 = 256 << 20;
const UTILIZATION: u8 = 80;
const LOAD: &str = "zipf:0.99";
/// The same as a workload: a file of 45 % of the volume is overwritten.
const WORKLOAD: &str = "zipf:0.99,set=45%";

/// Blocks written for each block that the stream writes: segments and policies alone.
fn simulated(placement: &'static Policy, policy: &'static dyn VictimPolicy) -> Result<f64, Failure> {
    let setup = Setup {
        size: SIZE,
        utilization: UTILIZATION,
        segments_per_section: 1,
        logs: 6,
        policy,
        placement: Placing::Policy(placement),
        cleaning: "free:6".to_owned(),
        age: Default::default(),
    };
    let options = setup.options()?;
    let mut source = Source::stream(LOAD, options.blocks, 1)?;
    let lengths = Lengths::or_usual(None, None, options.blocks);
    let (statistics, _) = run_placed(options, setup.placement, &mut source, lengths, &mut |_, _| ())?;
    Ok(statistics.write_amplification())
}

/// Bytes written to the device for each byte that the workload writes: the whole F2FS engine, in virtual time.
fn in_engine(placement: &'static Policy, victim: &'static dyn VictimPolicy) -> Result<f64, Failure> {
    let settings = Settings {
        size_bytes: SIZE,
        utilization_percent: u32::from(UTILIZATION),
        age: Some(Limit::Bytes(SIZE)),
        measure: Some(Limit::Bytes(SIZE)),
        sync_every: Some(256),
        ..Settings::default()
    };
    let mut settings = EngineSettings::new(presets::find("ssd-m")?, settings);
    // A large cache would absorb most of what is overwritten in so small a volume.
    settings.options.cache_bytes = 4 << 20;
    settings.options.placement = placement;
    settings.options.victim = victim;
    settings.options.background_victim = victim;
    let mut workload = basalt_workloads::by_name(WORKLOAD, &settings.workload)?;
    let run = run_engine(workload.as_mut(), &settings)?;
    run.write_amplification().ok_or_else(|| "nothing was written".into())
}

fn compare(report_path: &str) -> Result<(), Failure> {
    let placements = ["static", "sepbit", "dac"].into_iter().filter_map(basalt_schemes::placement_by_name);
    let mut table = Table::new("Write amplification", ["placement", "victim", "simulator", "engine"]);
    for placement in placements.chain([&placement::POLICY]) {
        for victim in [&CostBenefit as &'static dyn VictimPolicy, &victim::Patient] {
            let (simulator, engine) = (simulated(placement, victim)?, in_engine(placement, victim)?);
            println!("{:<10} {:<13} simulator {simulator:.3}  engine {engine:.3}", placement.name, victim.name());
            table.row([
                Cell::text(placement.name),
                Cell::text(victim.name()),
                Cell::quantity(simulator, Unit::Plain),
                Cell::quantity(engine, Unit::Plain),
            ]);
        }
    }
    let mut report = Report::new("Blocks by their rewrite interval");
    report.summary("Data grouped by the time between two writes of a block, beside F2FS's placement, SepBIT and DAC.");
    report.parameter("volume", format!("{} MiB, {UTILIZATION} % in use", SIZE >> 20));
    report.parameter("load", LOAD);
    report.add(Section::new("Result").table(table));
    std::fs::write(report_path, report.to_html())?;
    Ok(())
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: own-policy REPORT.html");
        return ExitCode::from(2);
    };
    match compare(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("own-policy: {error}");
            ExitCode::FAILURE
        }
    }
}
