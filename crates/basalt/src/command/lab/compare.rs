//! `basalt lab compare`: the same workload on Basalt and on the file systems of Linux.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use basalt_lab::compare::{self, CompareError, Comparison, Row, System};
use basalt_workloads::{Limit, Settings};

use crate::failure::{DONE, Failure, Outcome, Word};
use crate::output::Output;
use crate::progress::spinner;
use crate::size;

/// Compare file systems under the same workload
///
/// Each workload runs on each file system: Basalt in this process, those of Linux in User-Mode Linux (Debian package
/// user-mode-linux; no privilege is needed). All requests to the disk are recorded and replayed on one simulated device and through a
/// page-level and a hybrid (FAST) flash translation layer. Both were written once before (--fill), as those of a device in use. Only the
/// measured phase is counted; the phases before it age the translation layers.
///
/// A file system that cannot run here, runs out of space or does not finish within the limit has a row that says so.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Workloads, separated by commas, with options as `basalt lab workloads` lists them
    #[arg(long, short, value_name = "WORKLOAD", required = true)]
    workload: Vec<String>,

    /// File systems, separated by commas: basalt, basalt-PLACEMENT (such as basalt-auto), ext4, xfs, btrfs, f2fs, f2fs-lfs, nilfs2
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "basalt,ext4,xfs,btrfs,f2fs,nilfs2")]
    fs: Vec<System>,

    /// Device: a preset of `basalt lab devices`, or a TOML file, as `basalt lab profile` writes it
    #[arg(long, short, value_name = "DEVICE", default_value = "ssd-m")]
    device: String,

    /// Size of the volume
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1G")]
    size: u64,

    /// How full the volume is, in percent of the space that the file system offers to users
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=99), default_value_t = 85)]
    utilization: u32,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Share of the simulated device that was written before, in percent
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    fill: u8,

    /// Bytes to write before measuring [default: 5/8 of the volume]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    age: Option<u64>,

    /// Bytes to write while measuring [default: the size of the volume]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    measure: Option<u64>,

    /// Maximum time of a run
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 600)]
    limit: u64,

    /// Write a report (report.html) and the results (results.jsonl) to this directory
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Also keep the requests of every run in the output directory, as iologs of fio
    #[arg(long, requires = "output")]
    keep: bool,

    /// Print one line of JSON for each file system, instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When a workload or the device does not exist, files cannot be written, or nothing could be measured.
pub fn run(args: &Args) -> Outcome {
    let device = super::device(&args.device)?;
    if let Some(directory) = &args.output {
        std::fs::create_dir_all(directory).map_err(|error| Failure::at(directory.display(), error))?;
        // Both call their lines results.jsonl.
        if directory.join("experiment.toml").exists() {
            let why = "holds the results of an experiment, which a comparison would replace; choose another directory";
            return Err(Failure::at(directory.display(), why));
        }
    }
    let place = scratch(args.output.as_deref())?;
    let program = std::env::current_exe().map_err(|error| Failure::at("this program", error))?;
    let comparison = Comparison {
        workloads: args.workload.iter().flat_map(|text| workloads(text)).collect(),
        systems: args.fs.clone(),
        device: Arc::new(device),
        fill_percent: args.fill,
        settings: settings(args),
        limit: Duration::from_secs(args.limit),
        program,
        place: place.path().to_owned(),
        keep: args.output.clone().filter(|_| args.keep),
    };
    let mut rows = Vec::new();
    let ended = measure(&comparison, args.json, &mut rows);
    // What was measured before an interruption took its minutes, too.
    if let Some(directory) = args.output.as_ref().filter(|_| ended.is_ok() || !rows.is_empty()) {
        write_results(directory, &comparison, &rows)?;
    }
    ended?;
    if !args.json {
        show(&rows, args.output.as_deref())?;
    }
    if rows.iter().all(|row| row.measured.is_none()) {
        return Err(Failure::new("nothing could be measured; the line of each file system says why"));
    }
    Ok(DONE)
}

fn settings(args: &Args) -> Settings {
    Settings {
        size_bytes: args.size,
        utilization_percent: args.utilization,
        seed: args.seed,
        age: args.age.map(Limit::Bytes),
        measure: args.measure.map(Limit::Bytes),
        ..Settings::default()
    }
}

/// A directory for images, which are large: with the results, or where large temporary files go.
fn scratch(output: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let temporary = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let place = output.unwrap_or(&temporary);
    let made = tempfile::Builder::new().prefix("basalt-compare-").tempdir_in(place);
    made.map_err(|error| Failure::at(place.display(), error))
}

/// Workloads that are separated by commas: what looks like `key=value` is an option of the one before it.
fn workloads(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let is_option = part.split_once('=').is_some_and(|(key, _)| !key.contains(':'));
        match found.last_mut() {
            Some(last) if is_option => {
                last.push(',');
                last.push_str(part);
            }
            _ => found.push(part.to_owned()),
        }
    }
    found
}

/// Runs everything; shows on standard error how far it is, and on standard output the rows as JSON if that is wanted. `rows` gets each row that
/// was measured, also where something fails later.
fn measure(comparison: &Comparison, json: bool, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(|error| Failure::at("signals", error))?;
    }
    let bar = spinner("measuring", false);
    let mut failed = None;
    let mut watch = |workload: &str, system: System, reached: &str| {
        bar.set_message(format!("{workload} on {}: {reached}", system.name()));
        if interrupted.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut done = |row: &Row| {
        let how = row.error.as_deref().unwrap_or("measured");
        bar.println(format!("{} on {}: {how} ({:.0} s)", row.workload, row.fs, row.elapsed_seconds));
        if json && failed.is_none() {
            failed = print_row(row).err();
        }
        rows.push(row.clone());
    };
    let ended = comparison.run(&mut watch, &mut done);
    bar.finish_and_clear();
    failed.map_or(Ok(()), Err)?;
    ended.map(drop).map_err(|error| match error {
        CompareError::Workload(_) => Failure::usage(error),
        CompareError::Interrupted => Failure::new(error),
    })
}

fn print_row(row: &Row) -> Result<(), Failure> {
    let mut output = Output::new();
    output.json_line(row)?;
    output.finish()
}

fn show(rows: &[Row], directory: Option<&Path>) -> Result<(), Failure> {
    let mut output = Output::new();
    output.bytes(compare::table::table(rows).as_bytes())?;
    output.line(compare::table::LEGEND)?;
    if let Some(directory) = directory {
        output.line(format_args!("\nReport: {}", directory.join("report.html").display()))?;
    }
    output.finish()
}

fn write_results(directory: &Path, comparison: &Comparison, rows: &[Row]) -> Result<(), Failure> {
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::at(path.display(), error))
    };
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    let mut lines = lines.map_err(|error| Failure::at("results", error))?;
    lines.push(String::new());
    write("results.jsonl", lines.join("\n"))?;
    let words = std::env::args_os().skip(1).map(|word| Word(Path::new(&word)).to_string());
    let command: Vec<String> = std::iter::once("basalt".to_owned()).chain(words).collect();
    write("report.html", compare::page::report(comparison, rows, &command.join(" ")).to_html())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::workloads;

    #[test]
    fn commas_separate_workloads_and_their_options() {
        assert_eq!(workloads("zipf,fileserver"), ["zipf", "fileserver"]);
        assert_eq!(workloads("zipf:0.9,sync=4,varmail:files=10,"), ["zipf:0.9,sync=4", "varmail:files=10"]);
        assert_eq!(workloads("zipf:theta=1"), ["zipf:theta=1"]);
    }
}
