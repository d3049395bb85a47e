//! `basalt mkfs`: makes a volume.

mod flashlight;

use std::path::Path;

use basalt_device::{BlockDevice, FileDevice, Hardware, MemoryDevice, OpenOptions};
use basalt_f2fs::format::plan::segments_of_erase_unit;
use basalt_f2fs::format::{FormatOptions, FormatReport, format};
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::probe::{Content, identify, probe};
use basalt_f2fs::{Clock, SystemClock, features};
use basalt_nand::Geometry;

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size;
use crate::target::{self, Target};

/// Make an F2FS volume in a new or existing file, or on a device; or a FlashLight volume in an image of a NAND chip
#[derive(Debug, clap::Args)]
#[command(
    after_help = "All data on the target is lost. A mounted target is always refused; a target that holds something \
                        recognizable is refused without --force.\nExit codes: 0 done, 1 failed, 2 wrong arguments."
)]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Format of the volume: F2FS is for drives and cards, FlashLight for raw NAND flash
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "f2fs")]
    kind: VolumeKind,

    /// Of a FlashLight volume, the chip that the image is of: its name, or its shape as PAGE+SPARExPAGESxBLOCKS, for example 2048+64x64x1024
    /// [default: that of the volume which is there]
    #[arg(long, value_name = "CHIP", value_parser = crate::volume::flashlight::parse_chip, long_help = crate::volume::flashlight::chips_help())]
    nand: Option<Geometry>,

    /// Size of the image file, which is created or resized as needed [default: the whole existing file or device]
    #[arg(long, value_name = "SIZE", value_parser = volume_size)]
    size: Option<u64>,

    /// Label of the volume
    #[arg(short = 'L', long, value_name = "LABEL", default_value = "")]
    label: String,

    /// UUID of the volume [default: random]
    #[arg(long, value_name = "UUID")]
    uuid: Option<uuid::Uuid>,

    /// Segments of 2 MiB in a section, the unit of cleaning [default: those of the erase unit, or of a part of it if all would cost more than
    /// 3 % of the room; 1 where it is not known]
    #[arg(short = 's', long, value_name = "N", value_parser = segments_per_section, conflicts_with = "erase_unit")]
    segments_per_section: Option<u32>,

    /// What the device erases together: of an SD card its allocation unit [default: what the kernel tells of SD cards]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    erase_unit: Option<u64>,

    /// Percent kept back for cleaning, beyond the sections that it needs to go on, as mkfs.f2fs counts it [default: the value that leaves
    /// most room for files]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    overprovision: Option<f64>,

    /// Size of the cleaning journal; 0 for none [default: 256K, none with --boot]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    journal_size: Option<u64>,

    /// Features, separated by commas, instead of the default ones
    #[arg(short = 'O', long, value_name = "LIST", value_parser = parse_features)]
    features: Option<Features>,

    /// Use no features, so that boot loaders can read the volume
    #[arg(long, conflicts_with = "features")]
    boot: bool,

    /// Owner of the root directory [default: the calling user]
    #[arg(long, value_name = "UID:GID", value_parser = super::put::parse_owner)]
    root_owner: Option<(u32, u32)>,

    /// Do not discard the device first
    #[arg(short = 'K', long)]
    no_discard: bool,

    /// Overwrite a target that holds something recognizable
    #[arg(short, long)]
    force: bool,

    /// Show what would be made, without writing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum VolumeKind {
    F2fs,
    Flashlight,
}

/// Sector size of the device that a rehearsal writes to.
const MEMORY_SECTOR: u32 = 512;

/// Runs the command.
///
/// # Errors
/// When the target is in use, holds something, is too small or fails, or the options contradict each other.
pub fn run(args: &Args) -> Outcome {
    let mut output = Output::new();
    if args.kind == VolumeKind::Flashlight {
        let report = flashlight::make(args)?;
        show(args, &report, flashlight::describe, &mut output)?;
    } else if args.nand.is_some() {
        return Err(Failure::usage("--nand is for FlashLight volumes: add --type flashlight"));
    } else {
        let report = if args.dry_run { rehearse(args)? } else { make(args)? };
        show(args, &report, describe, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

fn show<R: serde::Serialize>(
    args: &Args,
    report: &R,
    describe: fn(&Args, &R, &mut Output) -> Result<(), Failure>,
    output: &mut Output,
) -> Result<(), Failure> {
    match (args.json, args.quiet) {
        (true, _) => output.json(report),
        (false, true) => Ok(()),
        (false, false) => describe(args, report, output),
    }
}

impl Args {
    /// Owner and group of the root directory.
    fn owner_of_root(&self) -> (u32, u32) {
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        self.root_owner.unwrap_or(if me.0 == 0 { (0, 0) } else { me })
    }
}

fn make(args: &Args) -> Result<FormatReport, Failure> {
    let path = &args.target.path;
    let is_new = is_missing(path);
    let device = if is_new {
        FileDevice::create(path, needed_size(args)?).map_err(|error| Failure::device(&error))?
    } else {
        open_existing(args)?
    };
    let made = format_device(args, &device, &Flash::of(&device), !device.is_block_device());
    if made.is_err() && is_new {
        // It was made above and holds nothing. Why there is no volume is what the user needs to know.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Does everything in memory, where nothing but zeros takes no room.
fn rehearse(args: &Args) -> Result<FormatReport, Failure> {
    let path = &args.target.path;
    let (size, flash) = if is_missing(path) || is_empty_file(path) {
        (needed_size(args)?, Flash::default())
    } else {
        let device = args.target.open_shared()?;
        check_content(args, &device)?;
        (wanted_size(args, &device)?, Flash::of(&device))
    };
    let rehearsal = MemoryDevice::named(path.display().to_string(), size, MEMORY_SECTOR);
    format_device(args, &rehearsal, &flash, true)
}

/// Opens what is there, unless it holds something, with the size that was asked for.
fn open_existing(args: &Args) -> Result<FileDevice, Failure> {
    let path = &args.target.path;
    let wait = args.target.patience.wait;
    if is_empty_file(path) {
        let resize = Some(needed_size(args)?);
        return target::open(path, &OpenOptions { resize, ..OpenOptions::default() }, wait);
    }
    let device = args.target.open_exclusive()?;
    check_content(args, &device)?;
    let size = wanted_size(args, &device)?;
    if size == device.size() {
        return Ok(device);
    }
    drop(device);
    target::open(path, &OpenOptions { resize: Some(size), ..OpenOptions::default() }, wait)
}

fn check_content(args: &Args, device: &FileDevice) -> Result<(), Failure> {
    if args.force { Ok(()) } else { expect_nothing_on(&args.target.path, device) }
}

/// Refuses a target that holds something recognizable.
pub(super) fn expect_nothing_on(path: &Path, device: &FileDevice) -> Result<(), Failure> {
    let mut found = probe(device).map_err(|error| Failure::volume(path, &error))?;
    if found.is_none() {
        // One whose block 0 has no root.
        let shape = crate::volume::flashlight::detect(device).map_err(|error| Failure::device(&error))?;
        found = shape.map(|_| crate::volume::flashlight::NAME);
    }
    if let Some(found) = found {
        return Err(Failure::at(path.display(), format_args!("holds {found}"))
            .hint("--force overwrites it, and all its data is lost"));
    }
    match identify(device) {
        content @ (Content::Headless | Content::Part { .. } | Content::Shifted { .. }) => {
            Err(Failure::at(path.display(), content)
                .hint("`basalt rescue --list` shows what is there; --force overwrites it, and all its data is lost"))
        }
        _ => Ok(()),
    }
}

fn volume_size(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("a volume cannot have 0 bytes; 64M makes a small one".into()),
        bytes => Ok(bytes),
    }
}

fn wanted_size(args: &Args, device: &FileDevice) -> Result<u64, Failure> {
    match args.size {
        Some(size) if device.is_block_device() && size != device.size() => Err(Failure::usage(format_args!(
            "{}: is a block device of {}, and its size cannot be changed; omit --size",
            args.target.path.display(),
            size::human(device.size())
        ))),
        size => Ok(size.unwrap_or(device.size())),
    }
}

fn needed_size(args: &Args) -> Result<u64, Failure> {
    args.size.ok_or_else(|| {
        let path = args.target.path.display();
        Failure::usage(match is_empty_file(&args.target.path) {
            true => format!("{path}: is empty; --size SIZE says how large the image is to be"),
            false => format!("{path}: no such file; --size SIZE creates an image file"),
        })
    })
}

fn is_missing(path: &Path) -> bool {
    // A dangling symbolic link is there: writing through it would surprise.
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn is_empty_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0)
}

/// Where the target lies on flash, as far as the kernel tells.
#[derive(Default)]
struct Flash {
    /// Bytes of the disk in front of it.
    offset: u64,
    erase_unit: Option<u64>,
}

impl Flash {
    fn of(device: &FileDevice) -> Flash {
        // eMMC maps pages, as far as anybody knows, and gains little by it: docs/policies.md, "Sections and erase units".
        let is_card = device.hardware() == Some(Hardware::SdCard);
        Flash { offset: device.disk_offset(), erase_unit: device.erase_unit().filter(|_| is_card) }
    }
}

fn format_device(
    args: &Args,
    device: &dyn BlockDevice,
    flash: &Flash,
    reads_zeros: bool,
) -> Result<FormatReport, Failure> {
    let erase_unit = args.erase_unit.or(flash.erase_unit);
    let options = FormatOptions {
        label: args.label.clone(),
        segments_per_section: args.segments_per_section.unwrap_or_else(|| {
            erase_unit.map_or(1, |unit| segments_of_erase_unit(device.size(), flash.offset, unit, args.overprovision))
        }),
        disk_offset: flash.offset,
        overprovision_percent: args.overprovision,
        features: match args.features {
            Some(features) => features,
            None if args.boot => Features::empty(),
            None => FormatOptions::DEFAULT_FEATURES,
        },
        uuid: args.uuid.map(uuid::Uuid::into_bytes),
        discard: !args.no_discard,
        discard_reads_zeros: reads_zeros,
        journal_bytes: match args.journal_size {
            Some(bytes) => bytes,
            // After a power cut, only Basalt reads a volume whose journal is live: no boot loader.
            None if args.boot => 0,
            None => FormatOptions::DEFAULT_JOURNAL_BYTES,
        },
        root_owner: args.owner_of_root(),
        time: SystemClock.now(),
    };
    let mut progress = Progress::new("formatting", Unit::Bytes, args.quiet);
    format(device, &options, &mut |done, total| progress.update(done, total))
        .map_err(|error| Failure::volume(&args.target.path, &error))
}

fn describe(args: &Args, report: &FormatReport, output: &mut Output) -> Result<(), Failure> {
    let path = args.target.path.display();
    let would = if args.dry_run { "would be made" } else { "made" };
    output.line(format_args!("{path}: F2FS volume of {} {would}", size::human(report.size)))?;
    output.line(format_args!("  uuid       {}", report.uuid))?;
    if !args.label.is_empty() {
        output.line(format_args!("  label      {}", crate::failure::one_line(&args.label)))?;
    }
    let main = u64::from(report.main_segments) * (2 << 20);
    let reserved = (1.0 - report.user_bytes as f64 / main.max(1) as f64) * 100.0;
    output.line(format_args!(
        "  room       {} for files, {:.2} % of the main area reserved for cleaning (--overprovision {:.2})",
        size::human(report.user_bytes),
        reserved,
        report.overprovision_percent
    ))?;
    output.line(format_args!(
        "  segments   {} of 2 MiB, {} for files, in {} sections of {}",
        report.segments,
        report.main_segments,
        report.sections,
        size::human(main / u64::from(report.sections.max(1)))
    ))?;
    output.line(format_args!("  journal    {}", super::tune::journal_size(report.journal_bytes)))
}

fn segments_per_section(text: &str) -> Result<u32, String> {
    let most = FormatOptions::SEGMENTS_PER_SECTION_MAX;
    text.parse()
        .ok()
        .filter(|count| (1..=most).contains(count))
        .ok_or_else(|| format!("expected a number from 1 to {most}"))
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    number
        .ok()
        .filter(|percent| (0.01..100.0).contains(percent))
        .ok_or_else(|| "expected a percentage of at least 0.01, and below 100".to_owned())
}

fn parse_features(text: &str) -> Result<Features, String> {
    let possible = FormatOptions::POSSIBLE_FEATURES;
    text.split(',').filter(|name| !name.is_empty()).try_fold(Features::empty(), |chosen, name| {
        let found = possible.iter().find(|&feature| features::names(feature) == name);
        found.map(|feature| chosen | feature).ok_or_else(|| format!("expected one of {}", features::names(possible)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_by_name() {
        assert_eq!(parse_features("extra_attr,inode_checksum"), Ok(Features::EXTRA_ATTR | Features::INODE_CHECKSUM));
        assert_eq!(parse_features(""), Ok(Features::empty()));
        assert!(parse_features("casefold").is_err());
        assert!(parse_features("extra_attr;inode_checksum").is_err());
    }

    #[test]
    fn percentages() {
        assert_eq!(percent("7.5%"), Ok(7.5));
        for text in ["0", "100", "-1", "NaN", "a"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
