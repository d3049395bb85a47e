//! `basalt-crash`: runs the crash simulator.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use basalt_crash::campaign::{Outcome, campaign};
use basalt_crash::enumerate::PAIRS;
use basalt_crash::explore::{Finding, Tally, guarded};
use basalt_crash::f2fs::{VOLUMES, volume};
use basalt_crash::modes::{Setting, enumerated, exhaustive, journaled, random};
use basalt_crash::scenario::Scenario;
use basalt_crash::shrink::shrink;
use basalt_crash::threads::threads;
use clap::{Parser, Subcommand};

/// Time that shrinking a failure may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Cuts the power of file systems at every request, and holds what is left against what was promised.
#[derive(Debug, Parser)]
#[command(name = "basalt-crash", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct Range {
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seeds to run; as many as it takes if cuts are given
    #[arg(long)]
    seeds: Option<u64>,
    /// Power cuts to make
    #[arg(long)]
    cuts: Option<u64>,
    /// Show one closed volume in so many to fsck.f2fs (0: none)
    #[arg(long, default_value_t = 500)]
    fsck_every: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Short workloads, cut at every request
    Exhaustive(Range),
    /// Every sequence of two operations with fsync or sync after each, then random ones of three
    Enumerate(Range),
    /// Long random workloads, cut at random moments
    Random(Range),
    /// Long workloads on volumes whose cleaning a journal commits, cut at random moments
    Journaled(Range),
    /// Threads under random schedules, cut at random moments
    Threads(Range),
    /// All five, a fifth of the cuts each
    Campaign {
        /// Power cuts to make
        #[arg(long, default_value_t = 1_000_000)]
        cuts: u64,
        /// First seed
        #[arg(long, default_value_t = 0)]
        first: u64,
    },
    /// Play a story, from a file or standard input
    Replay {
        /// The file; standard input if it is left out or `-`
        file: Option<PathBuf>,
        /// Shorten it first if it fails
        #[arg(long)]
        shrink: bool,
    },
}

type Mode = fn(u64, Setting, &mut Tally) -> Result<(), Finding>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A panic of the engine is a finding, and told as such.
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    match cli.command {
        Command::Exhaustive(range) => run("exhaustive", exhaustive, range, 200),
        Command::Enumerate(range) => run("enumerated", enumerated, range, PAIRS),
        Command::Random(range) => run("random", random, range, 1000),
        Command::Journaled(range) => run("journaled", journaled, range, 1000),
        Command::Threads(range) => run("threads", threads, range, 200),
        Command::Campaign { cuts, first } => {
            let range = Range { first, seeds: None, cuts: Some(cuts.div_ceil(5)), fsck_every: 500 };
            let modes: [(&'static str, Mode); 5] = [
                ("exhaustive", exhaustive),
                ("enumerated", enumerated),
                ("random", random),
                ("journaled", journaled),
                ("threads", threads),
            ];
            let all = modes.map(|(name, mode)| run(name, mode, range, 0) == ExitCode::SUCCESS);
            if all == [true; 5] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Command::Replay { file, shrink } => replay(file, shrink),
    }
}

fn run(label: &'static str, mode: Mode, range: Range, seeds: u64) -> ExitCode {
    let start = Instant::now();
    let count = range.seeds.unwrap_or(if range.cuts.is_some() { u64::MAX - range.first } else { seeds });
    let setting = Setting { device_mutant: None, elsewhere_every: range.fsck_every };
    let seeds = range.first..range.first.saturating_add(count);
    let outcome = campaign(label, seeds, range.cuts.unwrap_or_default(), |seed, tally| mode(seed, setting, tally));
    report(label, &outcome, start.elapsed())
}

fn report(label: &str, outcome: &Outcome, took: Duration) -> ExitCode {
    let Tally { runs, steps, cuts, nested, checked_elsewhere, schedules, states } = outcome.tally;
    let seconds = took.as_secs_f64();
    println!(
        "{label}: {cuts} power cuts ({nested} after another one) of {runs} runs with {steps} steps, {checked_elsewhere} volumes \
         shown to fsck.f2fs, {seconds:.1} s, {:.0} cuts/s",
        cuts as f64 / seconds
    );
    if schedules > 0 {
        println!("{label}: {schedules} different schedules, {states} different volumes left by cuts");
    }
    let Some((seed, finding)) = &outcome.finding else {
        println!("{label}: 0 violations");
        return ExitCode::SUCCESS;
    };
    println!("{label}: violation with seed {seed}: {}", finding.what);
    println!("shortening…");
    show(&shorter(finding));
    ExitCode::FAILURE
}

fn shorter(finding: &Finding) -> Finding {
    volume(&finding.scenario.volume).map_or_else(|| finding.clone(), |engine| shrink(engine, finding, PATIENCE))
}

fn show(finding: &Finding) {
    println!("{}\n--- save this, and: basalt-crash replay FILE\n{}---", finding.what, finding.scenario);
}

fn replay(file: Option<PathBuf>, shorten: bool) -> ExitCode {
    let text = match &file {
        Some(file) if file.as_os_str() != "-" => {
            std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
        }
        _ => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map(|_| text).map_err(|error| format!("standard input: {error}"))
        }
    };
    let scenario = text.and_then(|text| text.parse::<Scenario>());
    let engine = scenario.as_ref().map_err(Clone::clone).and_then(|scenario| {
        volume(&scenario.volume).ok_or_else(|| {
            let names: Vec<String> = VOLUMES.iter().map(|v| basalt_crash::engine::Engine::name(v).to_owned()).collect();
            format!("there is no volume `{}`; there are {}", scenario.volume, names.join(", "))
        })
    });
    let (scenario, engine) = match (scenario, engine) {
        (Ok(scenario), Ok(engine)) => (scenario, engine),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("basalt-crash: {error}");
            return ExitCode::from(2);
        }
    };
    match guarded(|| scenario.play(engine)) {
        Ok(_) => {
            println!("nothing is violated");
            ExitCode::SUCCESS
        }
        Err(what) => {
            let finding = Finding { scenario, what };
            if shorten {
                show(&shorter(&finding));
            } else {
                println!("{}", finding.what);
            }
            ExitCode::FAILURE
        }
    }
}
