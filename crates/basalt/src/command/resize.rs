//! `basalt resize`: makes a volume larger or smaller.

use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::resize::{ResizeReport, Stage, finish, plan, resize};
use basalt_f2fs::tune::journal;
use basalt_f2fs::{Clock, F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::FileSystem;
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome};
use crate::mount::flash_page_of;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size;
use crate::target::{self, Target};

/// Make a volume that is not mounted larger or smaller
///
/// Without SIZE, the volume takes the whole device or file. A file is made longer for a larger SIZE, and truncated for a smaller one. A
/// power cut leaves the old volume, or one that the next `basalt resize TARGET` or mount finishes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments.")]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// New size [default: the whole device or file]
    #[arg(value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Make the volume as small as its content allows; with --dry-run, print that size
    #[arg(short = 'M', long, conflicts_with = "size")]
    minimum: bool,

    /// Do not truncate the image file when the volume gets smaller
    #[arg(long)]
    no_truncate: bool,

    /// Show what would be done, without writing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// What is shown as JSON.
#[derive(Serialize)]
struct Report {
    /// An earlier resize had been interrupted, and was finished first.
    finished_interrupted: bool,
    /// Bytes of the device or file afterwards.
    device_bytes: u64,
    #[serde(flatten)]
    resize: ResizeReport,
}

/// Runs the command.
///
/// # Errors
/// When the target is in use, holds no volume that can be changed, or the content does not fit.
pub fn run(args: &Args) -> Outcome {
    let report = if args.dry_run { rehearse(args)? } else { change(args)? };
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else if !args.quiet {
        describe(args, &report, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

fn rehearse(args: &Args) -> Result<Report, Failure> {
    let device = args.target.open_shared()?;
    let size = wanted(args, &device)?;
    let resize = plan(&device, size).map_err(|error| failure(args, &error))?;
    let device_bytes = if is_cut_off(args, &device, size) { size } else { size.max(device.size()) };
    Ok(Report { finished_interrupted: false, device_bytes, resize })
}

fn change(args: &Args) -> Result<Report, Failure> {
    let device = args.target.open_exclusive()?;
    let mut shown = Stages::new(args.quiet);
    let finished = finish(&device, &mut |stage, done, total| shown.update(stage, done, total))
        .map_err(|error| failure(args, &error))?;
    if finished && args.size.is_none() && !args.minimum {
        // What was asked for then is done; to fill the device now could be the opposite.
        let (geometry, _) = Geometry::read(&device).map_err(|error| failure(args, &error))?;
        let size = geometry.block_count * basalt_f2fs::layout::BLOCK_SIZE as u64;
        let resize = plan(&device, size).map_err(|error| failure(args, &error))?;
        return Ok(Report { finished_interrupted: true, device_bytes: device.size(), resize });
    }
    // Until a live journal is recovered, there is nothing to plan with.
    let is_live = journal(&device).is_ok_and(|journal| journal.live);
    let device = if args.minimum || is_live { settled(args, device)? } else { device };
    let size = wanted(args, &device)?;
    plan(&device, size).map_err(|error| failure(args, &error))?;
    let before = device.size();
    let device = if size > before { set_length(args, device, size)? } else { device };
    let is_cut_off = is_cut_off(args, &device, size);
    let options = OpenOptions { flash_page: flash_page_of(&device), ..OpenOptions::default() };
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let done = resize(&device, size, &options, &clock, &mut |stage, done, total| {
        shown.update(stage, done, total);
    });
    drop(shown);
    let resize = match done {
        Ok(report) => report,
        Err(error) => {
            give_back(args, device, before);
            return Err(failure(args, &error));
        }
    };
    let mut device_bytes = device.size();
    drop(device);
    if is_cut_off {
        device_bytes = size;
        let options = DeviceOptions { resize: Some(size), ..DeviceOptions::default() };
        target::open(&args.target.path, &options, args.target.patience.wait)?;
    }
    Ok(Report { finished_interrupted: finished, device_bytes, resize })
}

/// The size asked for.
fn wanted(args: &Args, device: &FileDevice) -> Result<u64, Failure> {
    let path = args.target.path.display();
    if args.minimum {
        return plan(device, device.size()).map(|found| found.minimum_bytes).map_err(|error| failure(args, &error));
    }
    match args.size {
        Some(size) if size > device.size() && device.is_block_device() => Err(Failure::usage(format_args!(
            "{path}: is a block device of {}, smaller than {}; omit SIZE to fill it",
            size::human(device.size()),
            size::human(size)
        ))),
        size => Ok(size.unwrap_or(device.size())),
    }
}

/// Whether the file is to end where the volume does.
fn is_cut_off(args: &Args, device: &FileDevice, size: u64) -> bool {
    size < device.size() && !device.is_block_device() && !args.no_truncate
}

/// Opened and closed once: what the last user left unfinished counts in the minimum.
fn settled(args: &Args, device: FileDevice) -> Result<FileDevice, Failure> {
    let flash_page = flash_page_of(&device);
    let device = Arc::new(device);
    let options = OpenOptions { journal: false, flash_page, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).map_err(|error| failure(args, &error))?;
    fs.close().map_err(|error| Failure::at(args.target.path.display(), error))?;
    drop(fs);
    Arc::into_inner(device).map_or_else(|| args.target.open_exclusive(), Ok)
}

fn set_length(args: &Args, device: FileDevice, size: u64) -> Result<FileDevice, Failure> {
    drop(device);
    let options = DeviceOptions { resize: Some(size), ..DeviceOptions::default() };
    target::open(&args.target.path, &options, args.target.patience.wait)
}

/// After a failure: the file as long as it was, if the volume did not grow.
fn give_back(args: &Args, device: Arc<dyn BlockDevice>, before: u64) {
    let fits = Geometry::read(&*device)
        .is_ok_and(|(found, _)| found.block_count <= before / basalt_f2fs::layout::BLOCK_SIZE as u64);
    let has_grown = device.size() > before;
    drop(device);
    if fits && has_grown {
        let options = DeviceOptions { resize: Some(before), ..DeviceOptions::default() };
        // Why there was no resize is what the user needs to know.
        let _ = target::open(&args.target.path, &options, args.target.patience.wait);
    }
}

fn failure(args: &Args, error: &basalt_f2fs::Error) -> Failure {
    Failure::volume(&args.target.path, error)
}

/// A bar for each stage.
struct Stages {
    quiet: bool,
    bar: Option<(Stage, Progress)>,
}

impl Stages {
    fn new(quiet: bool) -> Stages {
        Stages { quiet, bar: None }
    }

    fn update(&mut self, stage: Stage, done: u64, total: u64) {
        if self.bar.as_ref().is_none_or(|(shown, _)| *shown != stage) {
            let label = match stage {
                Stage::Moving => "moving blocks",
                Stage::Preparing => "preparing the tables",
                Stage::Placing => "writing the tables",
            };
            // The old bar goes before the new one comes.
            self.bar = None;
            self.bar = Some((stage, Progress::new(label, Unit::Things, self.quiet)));
        }
        if let Some((_, bar)) = &mut self.bar {
            bar.update(done, total);
        }
    }
}

fn describe(args: &Args, report: &Report, output: &mut Output) -> Result<(), Failure> {
    let path = args.target.path.display();
    let (before, after) = (report.resize.before, report.resize.after);
    if report.finished_interrupted {
        output.line(format_args!("{path}: an interrupted resize was finished"))?;
    }
    if args.minimum && args.dry_run {
        let least = report.resize.minimum_bytes;
        return output.line(format_args!("{path}: minimum size {least} bytes ({})", size::human(least)));
    }
    if before == after {
        return output.line(format_args!("{path}: {}, nothing to do", size::human(after.bytes)));
    }
    let would = if args.dry_run { "would be resized" } else { "resized" };
    output.line(format_args!("{path}: {would} from {} to {}", size::human(before.bytes), size::human(after.bytes)))?;
    output.line(format_args!(
        "  room       {}, was {}",
        size::human(after.user_bytes),
        size::human(before.user_bytes)
    ))?;
    output.line(format_args!("  segments   {} of 2 MiB, {} for files", after.segments, after.main_segments))?;
    if report.resize.blocks_moved > 0 {
        output.line(format_args!("  moved      {} blocks of 4 KiB", report.resize.blocks_moved))?;
    }
    output.line(format_args!("  minimum    {}", size::human(report.resize.minimum_bytes)))
}
