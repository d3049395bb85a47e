//! `basalt lab workload`: runs one workload on a directory or on an image, in real time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use basalt_f2fs::{Clock, F2fs, SystemClock};
use basalt_vfs::FileSystem;
use basalt_workloads::{
    DirectoryFiles, Event, Files, LatencySummary, Limit, Observer, Phase, PhaseReport, Settings, VfsFiles, WallClock,
    WorkloadReport, by_name,
};

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size::{human, parse, seconds};
use crate::target::{Patience, Target};

/// Run a workload in a directory of any mounted file system, or on a volume that is not mounted
///
/// The workload makes its files, fills the file system with data that is never updated, ages it, and is measured by the machine's clock. The
/// same seed and settings give the same operations everywhere. `basalt lab workloads` lists all workloads, and says which job files
/// are read. The files stay there unless --remove is given.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the workload, with options as in `zipf:0.9,set=25%`, or a job file of fio or Filebench: `load.fio`, `mail.f:mails=5000`
    #[arg(value_name = "NAME")]
    workload: String,

    /// Empty directory to run in
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath, required_unless_present = "image")]
    directory: Option<PathBuf>,

    /// Run on the F2FS volume in this image or block device, with the engine in this process
    #[arg(long, value_name = "TARGET", value_hint = clap::ValueHint::FilePath, conflicts_with = "directory")]
    image: Option<PathBuf>,

    /// Size of the volume that the workload is made for [default: the size of the file system]
    #[arg(long, value_name = "SIZE", value_parser = parse)]
    size: Option<u64>,

    /// How full the file system is while the workload runs, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 85, value_parser = clap::value_parser!(u32).range(1..=100))]
    utilization: u32,

    /// Seed of all random choices and of the content
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Bytes to write before measuring, for ageing; 0 for none [default: as the workload says]
    #[arg(long, value_name = "SIZE", value_parser = parse)]
    age: Option<u64>,

    /// Measure until this many bytes are written [default: as the workload says]
    #[arg(long, value_name = "SIZE", value_parser = parse, group = "length")]
    bytes: Option<u64>,

    /// Measure this many operations
    #[arg(long, value_name = "N", group = "length")]
    operations: Option<u64>,

    /// Measure for this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds, group = "length")]
    seconds: Option<std::time::Duration>,

    /// fsync after N writes, if the workload does not decide that; 0 for never
    #[arg(long, value_name = "N")]
    sync_every: Option<u64>,

    /// Bytes of data that is never updated, instead of filling up to the utilization
    #[arg(long, value_name = "SIZE", value_parser = parse)]
    dummy: Option<u64>,

    /// Compare all data that is read with what was written, and every file at the end
    #[arg(long)]
    verify: bool,

    /// Delete all files at the end
    #[arg(long)]
    remove: bool,

    /// Print one line of JSON
    #[arg(long)]
    json: bool,

    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    patience: Patience,
}

/// Runs the command.
///
/// # Errors
/// When there is no such workload, it does not fit, or the target fails.
pub fn run(args: &Args) -> Outcome {
    let report = match (&args.image, &args.directory) {
        (Some(image), _) => on_image(args, image)?,
        (None, Some(directory)) => on_directory(args, directory)?,
        (None, None) => return Err(Failure::usage("a directory or --image is required")),
    };
    let mut output = Output::new();
    if args.json {
        output.json_line(&report)?;
    } else {
        describe(&report, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

fn on_directory(args: &Args, directory: &Path) -> Result<WorkloadReport, Failure> {
    let mut files = DirectoryFiles::new(directory).map_err(Failure::new)?;
    run_on(args, &directory.display().to_string(), &mut files, None)
}

fn on_image(args: &Args, image: &Path) -> Result<WorkloadReport, Failure> {
    let target = Target { path: image.to_owned(), patience: args.patience.clone() };
    let device = Arc::new(target.open_exclusive()?);
    let engine = F2fs::open(device, basalt_f2fs::OpenOptions::default(), Arc::new(SystemClock))
        .map_err(|error| Failure::volume(image, &error))?;
    if !engine.is_writable() {
        let reasons = engine.warnings().join("; ");
        return Err(Failure::at(image.display(), format_args!("cannot be changed: {reasons}")));
    }
    let mut files = VfsFiles::new(&engine);
    let report = run_on(args, &image.display().to_string(), &mut files, Some(&engine));
    drop(files);
    // What a failed workload left is closed cleanly, too.
    let closed = engine.close().map_err(|error| Failure::at(image.display(), error));
    let report = report?;
    closed.map(|()| report)
}

fn run_on(
    args: &Args,
    place: &str,
    files: &mut dyn Files,
    engine: Option<&dyn FileSystem>,
) -> Result<WorkloadReport, Failure> {
    let failed = |error: basalt_workloads::Error| match error {
        basalt_workloads::Error::Specification(line) => Failure::usage(line),
        error => Failure::at(place, error),
    };
    // What mkfs makes is no reason to refuse.
    let foreign = files.list("").map_err(failed)?.into_iter().find(|entry| entry.name != "lost+found");
    if let Some(entry) = foreign {
        let line = format!("is not empty: it has `{}`; use an empty directory", entry.name);
        return Err(Failure::at(place, line));
    }
    let size_bytes = match args.size {
        Some(size) => size,
        None => files.space().map_err(failed)?.total,
    };
    let settings = Settings {
        size_bytes,
        utilization_percent: args.utilization,
        seed: args.seed,
        age: args.age.map(Limit::Bytes),
        measure: measure(args),
        sync_every: args.sync_every,
        dummy_bytes: args.dummy,
        verify: args.verify,
        ..Settings::default()
    };
    let mut workload = by_name(&args.workload, &settings).map_err(failed)?;
    let mut watch = Watch::new(engine, args.quiet);
    let report = basalt_workloads::run(&mut *workload, &settings, files, &mut watch);
    drop(watch);
    if args.remove {
        remove_all(files, "", 0).map_err(failed)?;
    }
    report.map_err(failed)
}

fn measure(args: &Args) -> Option<Limit> {
    let bytes = args.bytes.map(Limit::Bytes);
    let operations = args.operations.map(Limit::Operations);
    let time = args.seconds.map(|time| Limit::Nanoseconds(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    bytes.or(operations).or(time)
}

/// Deepest directory that is looked into: workloads make far shallower trees.
const DEEPEST: u32 = 32;

/// Deletes what a workload made.
fn remove_all(files: &mut dyn Files, directory: &str, depth: u32) -> basalt_workloads::Result<()> {
    for entry in files.list(directory)? {
        if directory.is_empty() && entry.name == "lost+found" {
            continue;
        }
        let path = if directory.is_empty() { entry.name } else { format!("{directory}/{}", entry.name) };
        if !entry.directory {
            files.unlink(&path)?;
        } else if depth < DEEPEST {
            remove_all(files, &path, depth + 1)?;
            files.remove_directory(&path)?;
        }
    }
    Ok(())
}

/// The machine's clock, a progress bar, and the background work of an engine in this process.
struct Watch<'e> {
    clock: WallClock,
    progress: Progress,
    quiet: bool,
    engine: Option<&'e dyn FileSystem>,
    /// When the engine wants to be called again, in nanoseconds of the clock.
    due: u64,
}

impl<'e> Watch<'e> {
    fn new(engine: Option<&'e dyn FileSystem>, quiet: bool) -> Watch<'e> {
        let progress = Progress::new("preparing", Unit::Things, quiet);
        Watch { clock: WallClock::default(), progress, quiet, engine, due: 0 }
    }
}

impl Observer for Watch<'_> {
    fn now(&mut self) -> u64 {
        self.clock.now()
    }

    fn operation(&mut self, event: &Event) -> basalt_workloads::Result<()> {
        if let Some(engine) = self.engine
            && event.end_ns >= self.due
        {
            let next = engine.tick(SystemClock.now()).next;
            self.due = self.clock.now().saturating_add(u64::try_from(next.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn phase_started(&mut self, phase: Phase) {
        let label = match phase {
            Phase::Prepare => "preparing",
            Phase::Dummy => "filling up",
            Phase::Age => "ageing",
            Phase::Measure => "measuring",
        };
        self.progress = Progress::new(label, Unit::Things, self.quiet);
    }

    fn progress(&mut self, _: Phase, done: u64, total: u64) {
        // A phase that ends by itself has no length that anybody knows.
        self.progress.update(done, if total == u64::MAX { 0 } else { total });
    }
}

fn describe(report: &WorkloadReport, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!("workload     {}", report.workload))?;
    let settings = &report.settings;
    let (size, dummy) = (human(settings.size_bytes), human(report.dummy_bytes));
    output.line(format_args!(
        "volume       {size}, {:.1} % used, {dummy} of it never updated; seed {}",
        report.utilization_percent, settings.seed
    ))?;
    for phase in report.before.iter().chain([&report.measure]) {
        describe_phase(phase, output)?;
    }
    if settings.verify {
        output.line(format_args!("verified     {}, no difference", human(report.verified_bytes)))?;
    }
    output.line("")?;
    output.line(format_args!(
        "{:<10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "measured", "count", "bytes", "mean µs", "p50 µs", "p99 µs", "p99.9 µs", "max µs"
    ))?;
    for kind in &report.measure.kinds {
        let LatencySummary { count, mean_ns, p50_ns, p99_ns, p99_9_ns, max_ns, .. } = kind.latency;
        let micro = |nanoseconds: u64| format!("{:.1}", nanoseconds as f64 / 1000.0);
        output.line(format_args!(
            "{:<10} {count:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            kind.kind.name(),
            human(kind.bytes),
            micro(mean_ns),
            micro(p50_ns),
            micro(p99_ns),
            micro(p99_9_ns),
            micro(max_ns)
        ))?;
    }
    Ok(())
}

fn describe_phase(phase: &PhaseReport, output: &mut Output) -> Result<(), Failure> {
    let seconds = phase.elapsed_ns as f64 / 1e9;
    output.line(format_args!(
        "{:<12} {seconds:.3} s, {} operations ({:.0}/s), {} written ({}/s), {} read, {} fsyncs",
        phase.phase.name(),
        phase.operations,
        phase.operations_per_second(),
        human(phase.written_bytes),
        human(phase.written_bytes_per_second() as u64),
        human(phase.read_bytes),
        phase.fsyncs
    ))
}
