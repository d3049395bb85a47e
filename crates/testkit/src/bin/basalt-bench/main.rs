//! `basalt-bench`: Basalt's mount beside ext4, xfs and btrfs, and beside Linux's own F2FS in User-Mode Linux.
//!
//! Called by `scripts/bench`, which prepares the working directory and removes it and all that is mounted in it, however this
//! program ends. Every contender does the same work in the same run, in turn (A B C D, A B C D, …), each time on a volume
//! formatted just before.
//!
//! | module | what |
//! |---|---|
//! | `options` | the command line, and how much work a run does |
//! | `contender` | a file system: formatting, mounting, starting cold |
//! | `workload` | what is measured |
//! | `sources` | the tree that is unpacked and the repository that is cloned |
//! | `race` | all contenders through all workloads, in turn |
//! | `huge` | mount time and memory of a 1 TiB volume |
//! | `check` | `fsck` of a 64 GiB volume with 500,000 files |
//! | `guest` | the race inside User-Mode Linux |
//! | `report`, `machine` | the tables, and the machine they were measured on |

mod check;
mod contender;
mod guest;
mod huge;
mod machine;
mod options;
mod race;
mod report;
mod sources;
mod workload;

use std::process::ExitCode;

use basalt_testkit::{Error, Result};
use clap::Parser;

use contender::{Contender, Kind};
use options::{Options, Scale};
use report::{Report, Section};
use sources::Sources;
use workload::Workload;

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.inside_guest { guest::inside(&options) } else { outside(&options) };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("basalt-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole benchmark, on the host; `false` when something failed and was left out of the tables.
fn outside(options: &Options) -> Result<bool> {
    let report = measure(options)?;
    if options.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Error::Invalid(format!("cannot write the report as JSON: {error}")))?;
        println!("{text}");
    } else {
        print!("{}", report.markdown());
    }
    Ok(report.sections.iter().all(|section| section.failures.is_empty()))
}

/// What the cleaning journal gives: the same mount with and without it, under constant cleaning.
fn measure_cleaning(options: &Options, scale: &Scale, title: &str, ours: Kind, other: Kind) -> Result<Section> {
    let workloads = [Workload::Overwrite, Workload::OverwriteFiles];
    let mut section = Section::new(title, ours.name(), other.name());
    let sources = Sources::make(&options.directory.join("sources"), &workloads, options.quick)?;
    let mut contenders = Vec::new();
    for kind in [other, ours] {
        contenders.push(Contender::image(kind, options, scale.full_bytes)?);
    }
    race::run(&mut section, &mut contenders, &workloads, scale, &sources, options.runs());
    Ok(section)
}

fn measure(options: &Options) -> Result<Report> {
    let mut report = Report { machine: machine::facts(options), sections: Vec::new() };
    let scale = Scale::host(options.quick);
    let workloads = options.workloads("")?;
    if !workloads.is_empty() {
        let sources = Sources::make(&options.directory.join("sources"), &workloads, options.quick)?;
        let mut section = Section::new("On the host, each on an image file", "Basalt", "ext4");
        let mut contenders = Vec::new();
        for kind in [Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Basalt] {
            match contender::check_installed(kind) {
                Ok(()) => contenders.push(Contender::image(kind, options, scale.volume_bytes)?),
                Err(error) => section.fail(format!("{}: {error}", kind.name())),
            }
        }
        race::run(&mut section, &mut contenders, &workloads, &scale, &sources, options.runs());
        report.sections.push(section);
    }
    if options.wants("cleaning") {
        // The paper's utilization, and one that is harder.
        for full_percent in [80, 90] {
            for (title, ours, other) in [
                ("Cleaning committed by the journal, or by checkpoints", Kind::Basalt, Kind::BasaltCheckpoints),
                ("The same with a commit for each victim", Kind::BasaltEach, Kind::BasaltEachCheckpoints),
            ] {
                let title = format!("{title}, {full_percent} % full");
                let scale = Scale { full_percent, slowest_aim: Some(1.0 / 0.6), ..scale };
                report.sections.push(measure_cleaning(options, &scale, &title, ours, other)?);
            }
        }
    }
    if options.wants("volume") {
        report.sections.push(huge::measure(options)?);
    }
    if options.wants("fsck") {
        report.sections.push(check::measure(options)?);
    }
    let inside: Vec<Workload> = options.workloads("uml-")?;
    if !inside.is_empty() {
        report.sections.push(guest::measure(options, &inside)?);
    }
    Ok(report)
}
