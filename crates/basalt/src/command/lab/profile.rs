//! `basalt lab profile`: measures a real device and writes a file to simulate it with.

use std::path::PathBuf;
use std::time::Duration;

use basalt_device::{BlockDevice, DeviceError, FileDevice, Lock, OpenOptions};
use basalt_flash::profile::{ProfileOptions, measure};
use basalt_flash::{DeviceModel, ModelError};

use crate::command::mkfs;
use crate::failure::{DONE, Failure, Outcome};
use crate::output::{self, Output};
use crate::progress::{Progress, Unit};
use crate::target::{self, Target};

/// Measure a device or file, and write a model to simulate it
///
/// Reads of 4 KiB to 32 MiB are timed in sequence and at random, one at a time and past the page cache where the file
/// system allows it. Writes and flushes are timed with --write only, which destroys all data on the target.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments.")]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Write the model to this file, for use as a DEVICE of other commands [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,

    /// Also measure writes; this destroys all data on TARGET
    #[arg(long)]
    write: bool,

    /// With --write: overwrite a target that holds something recognizable
    #[arg(short, long, requires = "write")]
    force: bool,

    /// Time to measure; a request that was started is completed
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = crate::size::seconds)]
    seconds: Duration,

    /// Name of the model
    #[arg(long, value_name = "NAME", default_value = "measured", value_parser = name)]
    name: String,

    /// Seed of the offsets that are read and written
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// Print the model as JSON
    #[arg(long)]
    json: bool,
}

/// A name that options take.
fn name(text: &str) -> Result<String, String> {
    let good = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if good { Ok(text.to_owned()) } else { Err("expected only letters, digits, `-`, `_` and `.`".to_owned()) }
}

/// Runs the command.
///
/// # Errors
/// When the target is in use or too small, a request fails, or the file cannot be written.
pub fn run(args: &Args) -> Outcome {
    let device = open(args)?;
    if args.write && !args.force {
        mkfs::expect_nothing_on(&args.target.path, &device)?;
    }
    let options = ProfileOptions { limit: args.seconds, write: args.write, seed: args.seed };
    let mut shown = Progress::new("measuring", Unit::Things, args.quiet);
    let model = measure(&device, &args.name, &options, &mut |_, done, total| shown.update(done, total))
        .map_err(Failure::new)?;
    drop(shown);
    if !device.is_direct() && !args.quiet {
        output::tell(format_args!("basalt: {}: no direct I/O; measuring through the page cache", device.name()));
    }
    let text = checked(&model)?;
    if let Some(path) = &args.output {
        std::fs::write(path, &text).map_err(|error| Failure::at(path.display(), error))?;
    }
    let mut output = Output::new();
    if args.json {
        output.json(&model)?;
    } else if let Some(path) = &args.output {
        if !args.quiet {
            describe(&model, path, &mut output)?;
        }
    } else {
        output.bytes(text.as_bytes())?;
    }
    output.finish()?;
    Ok(DONE)
}

/// The model's file, which must be read back as the same model.
fn checked(model: &DeviceModel) -> Result<String, Failure> {
    let failure = |error: ModelError| Failure::new(error);
    let text = model.to_toml().map_err(failure)?;
    DeviceModel::parse(&text, &model.name).map_err(failure)?;
    Ok(text)
}

/// Opens the target past the page cache, or through it where that is refused.
fn open(args: &Args) -> Result<FileDevice, Failure> {
    let lock = if args.write { Lock::default() } else { Lock::Shared };
    let options = OpenOptions { read_only: !args.write, lock, direct: Some(true), ..OpenOptions::default() };
    // To see whether direct I/O works, something must be read: some file systems take the flag and refuse the request.
    let direct = FileDevice::open(&args.target.path, &options)
        .and_then(|device| device.read_at(0, &mut [0; 4096]).map(|()| device));
    match direct {
        Ok(device) => return Ok(device),
        Err(DeviceError::InUse { .. }) => {}
        Err(_) if !args.target.path.exists() => {}
        Err(_) => {
            let buffered = OpenOptions { direct: None, ..options.clone() };
            return target::open(&args.target.path, &buffered, args.target.patience.wait);
        }
    }
    target::open(&args.target.path, &options, args.target.patience.wait)
}

fn describe(model: &DeviceModel, path: &std::path::Path, output: &mut Output) -> Result<(), Failure> {
    let summary = model.summary();
    output.line(format_args!("sequential read   {:>10.2} MB/s", summary.sequential_read))?;
    output.line(format_args!("random 4K read    {:>10.2} MB/s", summary.random_read))?;
    if model.write != model.read {
        output.line(format_args!("sequential write  {:>10.2} MB/s", summary.sequential_write))?;
        output.line(format_args!("random 4K write   {:>10.2} MB/s", summary.random_write))?;
        output.line(format_args!("flush             {:>10.1} us", model.flush_us))?;
    }
    output.line(format_args!("written to {}", path.display()))
}
