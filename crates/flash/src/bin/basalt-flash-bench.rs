//! How many page writes a second the translation layers simulate on one core: medians of several runs.
//!
//! Seconds are those of the processor, so that whatever else runs on the machine counts little.

use std::process::ExitCode;
use std::time::Duration;

use basalt_flash::{FtlStatistics, Geometry, GeometryOptions, TranslationKind, TranslationLayer};
use basalt_random::Rng;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

const USAGE: &str = "usage: basalt-flash-bench [--json] [--runs N]";

/// Logical bytes of the simulated flash.
const LOGICAL_BYTES: u64 = 1 << 30;

/// What the host writes.
#[derive(Clone, Copy)]
enum Load {
    Sequential,
    Uniform,
}

/// One case: a layer, spare space and a load.
struct Case {
    name: &'static str,
    kind: TranslationKind,
    over_provisioning_percent: f64,
    load: Load,
    /// Logical sizes written in a run.
    times: u64,
    /// Page writes a second that are asked for; 0 where nothing is.
    wanted: f64,
}

const CASES: [Case; 5] = [
    Case {
        name: "page-level, sequential overwrites, 10 % spare",
        kind: TranslationKind::PageLevel,
        over_provisioning_percent: 10.0,
        load: Load::Sequential,
        times: 40,
        wanted: 10e6,
    },
    Case {
        name: "page-level, uniform random, 200 % spare (hardly any copies)",
        kind: TranslationKind::PageLevel,
        over_provisioning_percent: 200.0,
        load: Load::Uniform,
        times: 20,
        wanted: 10e6,
    },
    Case {
        name: "page-level, uniform random, 10 % spare (collecting all the time)",
        kind: TranslationKind::PageLevel,
        over_provisioning_percent: 10.0,
        load: Load::Uniform,
        times: 12,
        wanted: 3e6,
    },
    Case {
        name: "FAST, sequential overwrites, 10 % spare",
        kind: TranslationKind::Fast,
        over_provisioning_percent: 10.0,
        load: Load::Sequential,
        times: 40,
        wanted: 0.0,
    },
    Case {
        name: "FAST, uniform random, 10 % spare",
        kind: TranslationKind::Fast,
        over_provisioning_percent: 10.0,
        load: Load::Uniform,
        times: 4,
        wanted: 0.0,
    },
];

/// A line of the result.
#[derive(Serialize)]
struct Measured {
    name: &'static str,
    page_writes_per_second: f64,
    wanted_per_second: f64,
    write_amplification: f64,
    memory_bytes: u64,
    runs: usize,
}

fn main() -> ExitCode {
    let mut json = false;
    let mut runs = 5;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--runs" => {
                match arguments.next().and_then(|text| text.parse().ok()).filter(|runs| (1..=99).contains(runs)) {
                    Some(number) => runs = number,
                    None => return usage("--runs needs a number from 1 to 99"),
                }
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => return usage(&format!("`{other}` is no option")),
        }
    }
    for case in &CASES {
        match measure(case, runs) {
            Ok(measured) => print(&measured, json),
            Err(error) => {
                eprintln!("basalt-flash-bench: {}: {error}", case.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("basalt-flash-bench: {problem}; {USAGE}");
    ExitCode::from(2)
}

fn print(measured: &Measured, json: bool) {
    if json {
        // A plain structure: nothing in it can fail to be written.
        println!("{}", serde_json::to_string(measured).unwrap_or_default());
        return;
    }
    let wanted = match measured.wanted_per_second {
        0.0 => String::new(),
        wanted => format!(" (wanted {:.0})", wanted / 1e6),
    };
    println!(
        "{:<66} {:6.1} million page writes/s{wanted}, write amplification {:.2}",
        measured.name,
        measured.page_writes_per_second / 1e6,
        measured.write_amplification
    );
}

fn measure(case: &Case, runs: usize) -> Result<Measured, Box<dyn std::error::Error>> {
    let options = GeometryOptions {
        logical_bytes: LOGICAL_BYTES,
        over_provisioning_percent: case.over_provisioning_percent,
        ..GeometryOptions::default()
    };
    let mut rates = Vec::with_capacity(runs);
    let mut result = (FtlStatistics::default(), 0);
    for _ in 0..runs {
        let mut layer = case.kind.build(Geometry::new(&options)?)?;
        let pages = layer.geometry().logical_pages();
        // Full once and overwritten once, so that what is measured is the steady state.
        layer.write(0, pages)?;
        let mut rng = Rng::new(1);
        write(layer.as_mut(), case.load, 1, &mut rng)?;
        let before = layer.statistics();
        let start = processor_time();
        write(layer.as_mut(), case.load, case.times, &mut rng)?;
        rates.push((case.times * pages) as f64 / (processor_time() - start).as_secs_f64());
        result = (layer.statistics().since(&before), layer.memory());
    }
    rates.sort_by(f64::total_cmp);
    Ok(Measured {
        name: case.name,
        page_writes_per_second: rates[runs / 2],
        wanted_per_second: case.wanted,
        write_amplification: result.0.write_amplification(),
        memory_bytes: result.1,
        runs,
    })
}

/// Time that this thread had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is ever negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn write(
    layer: &mut dyn TranslationLayer,
    load: Load,
    times: u64,
    rng: &mut Rng,
) -> Result<(), basalt_flash::FtlError> {
    let pages = layer.geometry().logical_pages();
    for _ in 0..times {
        match load {
            Load::Sequential => layer.write(0, pages)?,
            Load::Uniform => {
                for _ in 0..pages {
                    layer.write(rng.below(pages), 1)?;
                }
            }
        }
    }
    Ok(())
}
