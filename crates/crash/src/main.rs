//! `basalt-crash`: runs the crash simulator.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use basalt_crash::campaign::{Outcome, campaign};
use basalt_crash::explore::{Finding, Seen, Tally, guarded};
use basalt_crash::f2fs::{VOLUMES, volume};
use basalt_crash::hunt::{Hunted, hunt};
use basalt_crash::linux;
use basalt_crash::linux::guest::visit_all;
use basalt_crash::linux::work::work;
use basalt_crash::modes::{MODES, Mode, Setting, mode};
use basalt_crash::reach::{Reach, edges_in_all};
use basalt_crash::scenario::Scenario;
use basalt_crash::shrink::shrink;
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
    /// Run one mode
    Run {
        /// The mode: see `modes`
        mode: String,
        #[command(flatten)]
        range: Range,
    },
    /// List the modes
    Modes,
    /// All modes, each with its share of the cuts
    Campaign {
        /// Power cuts to make
        #[arg(long, default_value_t = 1_000_000)]
        cuts: u64,
        /// First seed
        #[arg(long, default_value_t = 0)]
        first: u64,
    },
    /// Have Linux, in User-Mode Linux, recover what power cuts have left, and judge it by the same oracle: docs/crash-testing.md
    Linux {
        /// Images to show to it
        #[arg(long, default_value_t = 500)]
        images: u64,
        /// First seed
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// Show one image in so many to fsck.f2fs afterwards (0: none)
        #[arg(long, default_value_t = 1)]
        fsck_every: u64,
        /// Go on until so many have been found
        #[arg(long, default_value_t = 1)]
        findings: usize,
        /// The other way round: Linux works, what it wrote is cut, and Basalt recovers it
        #[arg(long)]
        back: bool,
        /// A story instead: what its first power cut leaves
        #[arg(long, conflicts_with = "back")]
        story: Option<PathBuf>,
    },
    /// Do the steps of a file below a directory (called inside the machine)
    #[command(hide = true)]
    Work {
        /// The directory
        directory: PathBuf,
        /// The file of steps
        steps: PathBuf,
        /// The disk that is marked
        disk: PathBuf,
        /// The file to write
        file: PathBuf,
    },
    /// Mount the disks of the machine in turn, and write down everything there is (called inside the machine)
    #[command(hide = true)]
    Visit {
        /// Where to mount
        directory: PathBuf,
        /// Disks
        disks: usize,
        /// What the names of files begin with
        round: u32,
    },
    /// All modes in turns on one processor until something is found; tells what and after how many cuts, as a line of JSON
    Hunt {
        /// Power cuts to make
        #[arg(long, default_value_t = 50_000)]
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A panic of the engine is a finding, and told as such.
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    match cli.command {
        Command::Run { mode: name, range } => match mode(&name) {
            Some(mode) => run(mode, range, &Seen::new(), &Reach::new()).0,
            None => {
                let names: Vec<&str> = MODES.iter().map(|mode| mode.name).collect();
                eprintln!("basalt-crash: there is no mode `{name}`; there are {}", names.join(", "));
                ExitCode::from(2)
            }
        },
        Command::Modes => {
            MODES.iter().for_each(|mode| println!("{:<12} {}", mode.name, mode.about));
            ExitCode::SUCCESS
        }
        Command::Campaign { cuts, first } => run_all(cuts, first),
        Command::Linux { images, first, fsck_every, findings, back, story } => {
            show_to_linux(&linux::Wanted { images, first, fsck_every, findings }, back, story)
        }
        Command::Visit { directory, disks, round } => inside(visit_all(&directory, disks, round)),
        Command::Work { directory, steps, disk, file } => inside(work(&directory, &steps, &disk, &file)),
        Command::Hunt { cuts, first } => hunt_once(first, cuts),
        Command::Replay { file, shrink } => replay(file, shrink),
    }
}

/// Runs every mode, and says what they came to together.
fn run_all(cuts: u64, first: u64) -> ExitCode {
    let (start, seen, reach) = (Instant::now(), Seen::new(), Reach::new());
    let shares: u64 = MODES.iter().map(|mode| mode.share).sum();
    let mut total = Tally::default();
    let mut is_clean = true;
    for mode in MODES {
        let cuts = (cuts * mode.share).div_ceil(shares);
        let range = Range { first, seeds: None, cuts: Some(cuts), fsck_every: 500 };
        let (code, tally) = run(mode, range, &seen, &reach);
        total.add(&tally);
        is_clean &= code == ExitCode::SUCCESS;
    }
    tell("all", &total, start.elapsed());
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(mode: &Mode, range: Range, seen: &Seen, reach: &Reach) -> (ExitCode, Tally) {
    let start = Instant::now();
    let count = range.seeds.unwrap_or(if range.cuts.is_some() { u64::MAX - range.first } else { mode.runs });
    let setting =
        Setting { elsewhere_every: range.fsck_every, seen: Some(seen), reach: Some(reach), ..Setting::default() };
    let seeds = range.first..range.first.saturating_add(count);
    let outcome = campaign(mode.name, seeds, range.cuts.unwrap_or_default(), |number, tally| {
        (mode.run)(mode.spread(number), setting, tally)
    });
    let code = report(mode.name, &outcome, start.elapsed());
    if edges_in_all() > 0 {
        let (news, edges, all) = (reach.news(), reach.edges(), edges_in_all());
        println!(
            "{}: by now recovery has reached {edges} of the engine's {all} branches; {news} cuts reached a new one, or one as often as none before ({} in all)",
            mode.name,
            reach.classes()
        );
    }
    (code, outcome.tally)
}

/// Hunts, and tells the end in a line of JSON.
fn hunt_once(first: u64, cuts: u64) -> ExitCode {
    let reach = Reach::new();
    let Hunted { tally, found } = hunt(Setting { reach: Some(&reach), ..Setting::default() }, first, cuts);
    let cuts = tally.cuts;
    let Some((mode, seed, Finding { what, .. })) = found else {
        println!("{}", serde_json::json!({ "end": "survived", "cuts": cuts }));
        return ExitCode::SUCCESS;
    };
    let violation = what.lines().next().unwrap_or_default();
    println!(
        "{}",
        serde_json::json!({ "end": "found", "mode": mode, "seed": seed, "cuts": cuts, "violation": violation })
    );
    ExitCode::FAILURE
}

/// What was done, in a line.
fn tell(label: &str, tally: &Tally, took: Duration) {
    let Tally { runs, steps, cuts, states, nested, checked_elsewhere, schedules } = tally;
    let seconds = took.as_secs_f64();
    println!(
        "{label}: {cuts} power cuts ({nested} after another one) that left {states} distinct states, of {runs} runs with {steps} steps, \
         {checked_elsewhere} volumes shown to fsck.f2fs, {seconds:.1} s, {:.0} cuts/s",
        *cuts as f64 / seconds
    );
    if *schedules > 0 {
        println!("{label}: {schedules} different schedules of threads");
    }
}

fn report(label: &str, outcome: &Outcome, took: Duration) -> ExitCode {
    tell(label, &outcome.tally, took);
    let Some((seed, finding)) = &outcome.finding else {
        println!("{label}: 0 violations");
        return ExitCode::SUCCESS;
    };
    println!("{label}: violation with seed {seed}: {}", finding.what);
    if !finding.scenario.lives.is_empty() {
        println!("shortening…");
        show(&shorter(finding));
    }
    ExitCode::FAILURE
}

fn shorter(finding: &Finding) -> Finding {
    volume(&finding.scenario.volume).map_or_else(|| finding.clone(), |engine| shrink(engine, finding, PATIENCE))
}

fn show(finding: &Finding) {
    println!("{}\n--- save this, and: basalt-crash replay FILE\n{}---", finding.what, finding.scenario);
}

/// How something that was called inside the machine ended.
fn inside(result: std::io::Result<()>) -> ExitCode {
    if let Err(error) = result {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Has Linux recover images, or what a story leaves.
fn show_to_linux(wanted: &linux::Wanted, back: bool, story: Option<PathBuf>) -> ExitCode {
    let start = Instant::now();
    let outcome = std::env::current_exe().map_err(|error| error.to_string()).and_then(|program| match story {
        Some(file) => {
            let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            linux::run_story(&program, text.parse()?)
        }
        None if back => linux::back::run(&program, wanted),
        None => linux::run(&program, wanted),
    });
    match outcome {
        Ok(outcome) => {
            print!("{outcome}");
            println!("linux: {:.1} s", start.elapsed().as_secs_f64());
            if outcome.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("basalt-crash: {error}");
            ExitCode::from(2)
        }
    }
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
