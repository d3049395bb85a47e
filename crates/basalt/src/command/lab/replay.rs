//! `basalt lab replay`: writes what a recording wrote.

use std::path::PathBuf;

use basalt_device::{FileDevice, OpenOptions};
use basalt_traces::{Recording, ZeroingDevice};

use crate::failure::{DONE, Failure, Outcome};
use crate::mount::recorded::ZEROS;
use crate::output::{self, Output};
use crate::progress::{Progress, Unit};
use crate::target::{self, Patience};

/// Replay the writes of a recording on an image or device
///
/// TARGET must have the content that the recorded device had when the recording began. If that was all zeros, TARGET is created if it does
/// not exist. Afterwards TARGET has, byte for byte, the content that the recorded device had at the end.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory that `basalt lab record` or `basalt mount -o record` made
    #[arg(value_hint = clap::ValueHint::DirPath)]
    recording: PathBuf,

    /// Image file or block device, which is overwritten
    #[arg(value_hint = clap::ValueHint::FilePath)]
    target: PathBuf,

    /// Stop after N requests, counting reads and flushes
    #[arg(long, value_name = "N")]
    upto: Option<u64>,

    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,

    /// Print what was replayed as JSON
    #[arg(long)]
    json: bool,

    /// How long to wait for the target.
    #[command(flatten)]
    patience: Patience,
}

/// Runs the command.
///
/// # Errors
/// When the recording has no content or is damaged, or the target cannot be written.
pub fn run(args: &Args) -> Outcome {
    let recording = Recording::open(&args.recording).map_err(Failure::new)?;
    let description = recording.description();
    if !description.complete {
        let why = description.error.as_deref().unwrap_or("it was interrupted, or is not finished yet");
        output::tell(format_args!("basalt: {}: the recording is not complete: {why}", args.recording.display()));
    }
    let device = ZeroingDevice::new(open(args, &recording)?);
    let total = args.upto.map_or(description.totals.requests(), |upto| upto.min(description.totals.requests()));
    let mut progress = Progress::new("replaying", Unit::Things, args.quiet);
    let totals = basalt_traces::replay(&recording, &device, args.upto, &mut |done| progress.update(done, total))
        .map_err(Failure::new)?;
    drop(progress);
    let mut output = Output::new();
    if args.json {
        output.json(&totals)?;
    } else if !args.quiet {
        output.line(format_args!(
            "{}: {} writes, {} discards and {} flushes of {} requests replayed",
            args.target.display(),
            totals.writes,
            totals.discards,
            totals.flushes,
            totals.requests()
        ))?;
    }
    output.finish()?;
    Ok(DONE)
}

fn open(args: &Args, recording: &Recording) -> Result<FileDevice, Failure> {
    let description = recording.description();
    if args.target.exists() {
        return target::open(&args.target, &OpenOptions::default(), args.patience.wait);
    }
    if description.initial_content != ZEROS {
        let why = "no such file, and the recorded device was not empty at the start";
        return Err(
            Failure::at(args.target.display(), why).hint(format_args!("it held {}", description.initial_content))
        );
    }
    FileDevice::create(&args.target, description.size).map_err(|error| Failure::device(&error))
}
