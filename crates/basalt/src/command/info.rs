//! `basalt info`: what a volume is, and how full.

mod flashlight;

use std::path::Path;
use std::sync::Arc;

use basalt_device::{FileDevice, Lock, OpenOptions};
use basalt_f2fs::layout::BLOCK_SIZE;
use basalt_f2fs::{F2fs, KindInfo, SystemClock, VolumeInfo};

use crate::failure::{DONE, Failure, Outcome, one_line};
use crate::mount::{MountDefaults, class_of};
use crate::output::{Output, tell};
use crate::size::human;

/// Show the superblock, features, checkpoint, usage and segments of a volume
///
/// A volume in use is shown as of its last checkpoint.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image file or block device
    #[arg(value_name = "TARGET", value_hint = clap::ValueHint::FilePath)]
    target: std::path::PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When the target cannot be read, or holds no volume.
pub fn run(args: &Args) -> Outcome {
    let device = open(&args.target)?;
    if let Some(shape) = crate::volume::flashlight::detect_whole(&device)? {
        return flashlight::run(args, device, shape);
    }
    let defaults = MountDefaults::of(class_of(&device));
    let options = basalt_f2fs::OpenOptions { read_only: true, ..basalt_f2fs::OpenOptions::default() };
    let fs = F2fs::open(Arc::new(device), options, Arc::new(SystemClock))
        .map_err(|error| Failure::volume(&args.target, &error))?;
    let info = fs.info();
    let mut output = Output::new();
    if args.json {
        output.json(&Shown { info: &info, mount_defaults: &defaults })?;
    } else {
        describe(&info, &defaults, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

/// Opens the target, even while it is in use: every checkpoint leaves the one before it whole, so there is always one to show.
fn open(path: &Path) -> Result<FileDevice, Failure> {
    let shared = OpenOptions { read_only: true, lock: Lock::Shared, ..OpenOptions::default() };
    let opened = FileDevice::open(path, &shared).or_else(|error| match error {
        basalt_device::DeviceError::InUse { reason, .. } => {
            let line = format!("{} is in use ({reason}); showing its last checkpoint", path.display());
            tell(format_args!("basalt: {line}"));
            FileDevice::open(path, &OpenOptions { lock: Lock::None, ..shared })
        }
        error => Err(error),
    });
    opened.map_err(|error| Failure::device(&error))
}

/// What is shown as JSON.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    info: &'a VolumeInfo,
    mount_defaults: &'a MountDefaults,
}

fn describe(info: &VolumeInfo, defaults: &MountDefaults, output: &mut Output) -> Result<(), Failure> {
    let blocks = |count: u64| human(count.saturating_mul(BLOCK_SIZE as u64));
    let mut row = |name: &str, value: String| output.line(format_args!("{name:<16}{}", one_line(&value)));
    row("device", info.device.clone())?;
    row("label", if info.label.is_empty() { "-".to_owned() } else { info.label.clone() })?;
    row("uuid", info.uuid.clone())?;
    row("features", if info.features.is_empty() { "none".to_owned() } else { info.features.clone() })?;
    row("made by", info.version.clone())?;
    row(
        "size",
        format!("{} ({} blocks of 4 KiB, {} segments of 2 MiB)", blocks(info.blocks), info.blocks, info.segments),
    )?;
    let areas = &info.areas;
    row(
        "areas",
        format!(
            "checkpoint at block {}, SIT {}, NAT {}, SSA {}, main {}",
            areas.checkpoint, areas.sit, areas.nat, areas.ssa, areas.main
        ),
    )?;
    let checkpoint = &info.checkpoint;
    let state = if checkpoint.clean { "clean" } else { "not unmounted cleanly" };
    row(
        "checkpoint",
        format!("version {} in pack {}, {state}, flags {:#x}", checkpoint.version, checkpoint.pack, checkpoint.flags),
    )?;
    if checkpoint.orphans > 0 {
        row("orphans", checkpoint.orphans.to_string())?;
    }
    let usage = &info.usage;
    let share = if usage.user_blocks == 0 { 0.0 } else { 100.0 * usage.used_blocks as f64 / usage.user_blocks as f64 };
    row("used", format!("{} of {} ({share:.1} %)", blocks(usage.used_blocks), blocks(usage.user_blocks)))?;
    row("free", blocks(usage.user_blocks.saturating_sub(usage.used_blocks)))?;
    row("inodes", format!("{}, {} nodes in total", usage.inodes, usage.nodes))?;
    let kept = f64::from(usage.overprovision_segments) / f64::from(info.main_segments.max(1)) * 100.0;
    row(
        "over-provision",
        format!(
            "{} segments ({kept:.2} % of the main area), {} of them reserved",
            usage.overprovision_segments, usage.reserved_segments
        ),
    )?;
    let live = if info.journal_live { ", live: only Basalt can use the volume until it is recovered" } else { "" };
    row("journal", format!("{}{live}", super::tune::journal_size(info.journal_bytes)))?;
    let states = &info.states;
    row(
        "main segments",
        format!(
            "{}, {} in a section: {} free, {} active, {} dirty, {} full, {} free after the next checkpoint",
            info.main_segments,
            info.segments_per_section,
            states.free,
            states.active,
            states.dirty,
            states.full,
            states.prefree
        ),
    )?;
    row("mount defaults", describe_defaults(defaults))?;
    if info.read_only
        && let Some(reason) = info.warnings.iter().find(|warning| warning.starts_with("mounted read-only"))
    {
        row("changes", reason.clone())?;
    }
    describe_kinds(&info.kinds, output)?;
    for warning in &info.warnings {
        output.line(format_args!("note: {}", one_line(warning)))?;
    }
    Ok(())
}

/// As the options of a mount, which can say otherwise.
fn describe_defaults(defaults: &MountDefaults) -> String {
    let MountDefaults { class, placement, victim, background_victim, reclaim, flash_page_bytes } = defaults;
    let page = flash_page_bytes >> 10;
    format!(
        "profile={class},placement={placement},victim={victim},background_victim={background_victim},reclaim={reclaim},flash_page={page}K"
    )
}

/// A table: how many segments of each kind are how full.
fn describe_kinds(kinds: &[KindInfo], output: &mut Output) -> Result<(), Failure> {
    output.line("")?;
    let mut head = format!("{:<12} {:>9} {:>12}  utilization, % live:", "segments of", "in use", "live blocks");
    for bin in 1..=basalt_bins(kinds) {
        head.push_str(&format!(" {:>6}", format!("≤{}", bin * 100 / basalt_bins(kinds))));
    }
    output.line(head)?;
    for kind in kinds {
        let mut line = format!("{:<12} {:>9} {:>12}  {:>20}", kind.kind, kind.segments, kind.live_blocks, "");
        for count in kind.utilization {
            line.push_str(&format!(" {count:>6}"));
        }
        output.line(line)?;
    }
    Ok(())
}

fn basalt_bins(kinds: &[KindInfo]) -> usize {
    kinds.first().map_or(0, |kind| kind.utilization.len())
}
