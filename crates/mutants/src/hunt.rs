//! Hunting: the crash simulator against one bug after the other, on all processors.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::mutant::{End, Hunted, Mutant};

/// What to hunt, and how long.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The crash simulator, built from the tree in which the bugs are
    #[arg(long)]
    simulator: PathBuf,
    /// The list that `plant` wrote
    #[arg(long)]
    mutants: PathBuf,
    /// Power cuts that a bug may survive
    #[arg(long, default_value_t = 50_000)]
    cuts: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Hunts at one time; one for each processor if it is left out
    #[arg(long)]
    jobs: Option<usize>,
    /// Seconds of processor time that one hunt may take: what is not found then counts as not found
    #[arg(long, default_value_t = 1200)]
    limit: u64,
    /// Only the bugs of these names
    #[arg(long)]
    only: Vec<String>,
    /// How each hunt ended, as JSON; what is there already is not hunted again
    #[arg(long)]
    output: PathBuf,
}

/// Hunts all of them.
///
/// # Errors
/// In a line: a file that cannot be read or written, a simulator that cannot be run or says what it should not.
pub fn hunt(options: &Options) -> Result<(), String> {
    let mutants: Vec<Mutant> = read(&options.mutants)?;
    let done: Vec<Hunted> = if options.output.exists() { read(&options.output)? } else { Vec::new() };
    let is_wanted = |mutant: &&Mutant| {
        (options.only.is_empty() || options.only.contains(&mutant.name))
            && !done.iter().any(|hunted| hunted.mutant.name == mutant.name)
    };
    let wanted: Vec<&Mutant> = mutants.iter().filter(is_wanted).collect();
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, std::num::NonZero::get));
    let (next, results, failure) = (AtomicUsize::new(0), Mutex::new(done), Mutex::new(None));
    let bar = bar(wanted.len() as u64);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(mutant) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let hunted = hunt_one(options, mutant).and_then(|hunted| {
                        println!("{}: {}", mutant.what, serde_json::to_string(&hunted.end).unwrap_or_default());
                        let mut results = results.lock().map_err(|error| error.to_string())?;
                        results.push(hunted);
                        write(&options.output, &*results)
                    });
                    bar.inc(1);
                    if let Err(error) = hunted {
                        let _ = failure.lock().map(|mut failure| failure.get_or_insert(error).len());
                        return;
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    match failure.into_inner() {
        Ok(None) => table(&options.output),
        Ok(Some(error)) => Err(error),
        Err(error) => Err(error.to_string()),
    }
}

fn bar(hunts: u64) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("hunting [{wide_bar}] {pos}/{len} {eta}");
    ProgressBar::with_draw_target(Some(hunts), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn write<T: serde::Serialize>(path: &Path, value: &T) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// One bug: a process of its own, with limits of time and memory.
fn hunt_one(options: &Options, mutant: &Mutant) -> Result<Hunted, String> {
    let script = format!(
        "ulimit -t {} -v 6000000; exec \"$0\" hunt --cuts {} --first {}",
        options.limit, options.cuts, options.first
    );
    let mut simulator = Command::new("bash");
    simulator.arg("-c").arg(script).arg(&options.simulator).env("BASALT_PLANTED", &mutant.name);
    let told = simulator.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let told = told.map_err(|error| format!("{}: {error}", options.simulator.display()))?;
    let end = match told.status.code() {
        Some(0 | 1) => {
            let text = String::from_utf8_lossy(&told.stdout);
            let line = text.lines().last().unwrap_or_default();
            serde_json::from_str(line)
                .map_err(|error| format!("the simulator said `{line}` of {}: {error}", mutant.name))?
        }
        // Killed for its time. An abort, as by the end of memory, is what a user would see as well, but no finding of the simulator's.
        _ => End::TimedOut,
    };
    Ok(Hunted { mutant: mutant.clone(), end })
}

/// Prints the table.
///
/// # Errors
/// In a line: a file that cannot be read.
pub fn table(results: &Path) -> Result<(), String> {
    let mut results: Vec<Hunted> = read(results)?;
    results.sort_by_key(|hunted| hunted.mutant.name.parse::<u32>().unwrap_or(u32::MAX));
    println!("| bug | found by | after cuts |\n|---|---|---|");
    let mut found = 0;
    for Hunted { mutant, end } in &results {
        let what = mutant.what.replace('|', "\\|");
        match end {
            End::Found { mode, cuts, .. } => {
                found += 1;
                println!("| {what} | {mode} | {cuts} |");
            }
            End::Survived { cuts } => println!("| {what} | – | {cuts} |"),
            End::TimedOut => println!("| {what} | – (no end) | |"),
        }
    }
    println!("\n{found} of {} found", results.len());
    Ok(())
}
