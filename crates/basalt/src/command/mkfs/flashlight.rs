//! `basalt mkfs --type flashlight`: makes a FlashLight volume in an image of a NAND chip.

use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice, OpenOptions};
use basalt_f2fs::probe::{Content, identify, probe};
use basalt_f2fs::{Clock, SystemClock};
use basalt_flashlight::{Change, FlashLight, FormatOptions, Identity, Time, memory_bytes};
use basalt_nand::{Chip, ChipOptions, Corrected, Geometry, NandDevice};
use serde::Serialize;

use super::{Args, check_content, is_empty_file, is_missing};
use crate::failure::{Failure, one_line};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size::human;
use crate::target;
use crate::volume::flashlight::{self, Changes, ChipFacts, ImageChip};

/// Bytes of a label.
const LABEL: usize = 64;

/// What was made.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    chip: ChipFacts,
    /// Bytes that files can have in all.
    user_bytes: u64,
    /// Bytes of memory that a mount takes for pages and blocks.
    memory_bytes: usize,
    uuid: String,
    label: String,
}

/// Makes the volume, or rehearses that.
pub(super) fn make(args: &Args) -> Result<Report, Failure> {
    check_options(args)?;
    let path = &args.target.path;
    if args.dry_run {
        let shape = match (args.nand, is_missing(path)) {
            (Some(shape), true) => shape,
            (None, true) => return Err(no_chip(args)),
            (_, false) => {
                let device = args.target.open_shared()?;
                expect_image(args, &device)?;
                shape_for(args, &device)?.0
            }
        };
        return rehearse(args, shape);
    }
    if is_missing(path) {
        let shape = args.nand.ok_or_else(|| no_chip(args))?;
        rehearse(args, shape)?;
        let device = FileDevice::create(path, shape.raw_bytes()).map_err(|error| Failure::device(&error))?;
        let made = erase_all(args, &device).and_then(|()| format_image(args, device, shape));
        if made.is_err() {
            // It was made above and holds nothing.
            let _ = std::fs::remove_file(path);
        }
        return made;
    }
    if is_empty_file(path) {
        let shape = args.nand.ok_or_else(|| no_chip(args))?;
        rehearse(args, shape)?;
        let resize = Some(shape.raw_bytes());
        let device = target::open(path, &OpenOptions { resize, ..OpenOptions::default() }, args.target.patience.wait)?;
        return erase_all(args, &device).and_then(|()| format_image(args, device, shape));
    }
    let device = args.target.open_exclusive()?;
    expect_image(args, &device)?;
    let (shape, is_chip) = shape_for(args, &device)?;
    // What cannot be made destroys nothing.
    rehearse(args, shape)?;
    let device = match device.size() == shape.raw_bytes() {
        true => device,
        false => {
            drop(device);
            let resize = Some(shape.raw_bytes());
            target::open(path, &OpenOptions { resize, ..OpenOptions::default() }, args.target.patience.wait)?
        }
    };
    if !is_chip {
        erase_all(args, &device)?;
    }
    format_image(args, device, shape)
}

/// Makes the volume on a chip in memory.
fn rehearse(args: &Args, shape: Geometry) -> Result<Report, Failure> {
    let chip = Corrected::new(Chip::new(ChipOptions::new(shape)));
    let path = args.target.path.display();
    let chip = chip.map_err(|_| Failure::at(&path, flashlight::too_little_spare(&shape)))?;
    let report = format(args, chip, shape)?;
    if report.user_bytes == 0 {
        return Err(Failure::at(path, format_args!("a chip of {} blocks has no room for files", shape.blocks))
            .hint("cleaning, logs and the checkpoint take all of it: choose a chip with more blocks"));
    }
    Ok(report)
}

/// Options that a FlashLight volume has not.
fn check_options(args: &Args) -> Result<(), Failure> {
    let of_f2fs = [
        (args.size.is_some(), "--size"),
        (args.segments_per_section.is_some(), "--segments-per-section"),
        (args.erase_unit.is_some(), "--erase-unit"),
        (args.overprovision.is_some(), "--overprovision"),
        (args.journal_size.is_some(), "--journal-size"),
        (args.features.is_some(), "--features"),
        (args.boot, "--boot"),
        (args.no_discard, "--no-discard"),
    ];
    if let Some((_, option)) = of_f2fs.iter().find(|(is_given, _)| *is_given) {
        return Err(Failure::usage(format_args!(
            "{option} is for F2FS volumes; --nand says what a FlashLight volume is made for"
        )));
    }
    if args.label.len() > LABEL {
        let length = args.label.len();
        return Err(Failure::usage(format_args!(
            "--label: has {length} bytes, and a FlashLight volume has room for {LABEL}"
        )));
    }
    Ok(())
}

fn no_chip(args: &Args) -> Failure {
    let path = args.target.path.display();
    Failure::usage(format_args!("{path}: --nand CHIP says what chip the image is of, for example --nand w25n01gv"))
}

fn expect_image(args: &Args, device: &FileDevice) -> Result<(), Failure> {
    let path = args.target.path.display();
    if device.is_block_device() {
        return Err(Failure::at(path, "is a block device; FlashLight is for raw NAND flash")
            .hint("give an image file, or make an F2FS volume"));
    }
    check_content(args, device)
}

/// The shape of the chip, and whether the image is one already, whose marks of bad blocks stay.
fn shape_for(args: &Args, device: &FileDevice) -> Result<(Geometry, bool), Failure> {
    let found = flashlight::detect(device).map_err(|error| Failure::device(&error))?;
    let shape = args.nand.or(found).ok_or_else(|| no_chip(args))?;
    // A dump of a chip that nothing is on is known by its length alone.
    let is_dump = || matches!(probe(device), Ok(None)) && identify(device) == Content::Unknown;
    let is_chip = found == Some(shape) || device.size() == shape.raw_bytes() && is_dump();
    Ok((shape, is_chip))
}

/// Makes all of an image read as an erased chip.
fn erase_all(args: &Args, device: &FileDevice) -> Result<(), Failure> {
    const PIECE: u64 = 1 << 20;
    let mut progress = Progress::new("erasing", Unit::Bytes, args.quiet);
    let erased = vec![0xFF; PIECE as usize];
    let size = device.size();
    for at in (0..size).step_by(PIECE as usize) {
        let length = PIECE.min(size - at) as usize;
        device.write_at(at, &erased[..length]).map_err(|error| Failure::device(&error))?;
        progress.update(at, size);
    }
    Ok(())
}

fn format_image(args: &Args, device: FileDevice, shape: Geometry) -> Result<Report, Failure> {
    format(args, flashlight::chip(Arc::new(device), shape, Changes::Kept)?, shape)
}

fn format(args: &Args, chip: ImageChip, shape: Geometry) -> Result<Report, Failure> {
    let failed = |error: &basalt_flashlight::Error| flashlight::failure(&args.target.path, error);
    let uuid = args.uuid.unwrap_or_else(uuid::Uuid::new_v4);
    let mut label = [0; LABEL];
    label[..args.label.len()].copy_from_slice(args.label.as_bytes());
    let now = SystemClock.now();
    let now = Time { seconds: now.seconds, nanoseconds: now.nanoseconds };
    let options = FormatOptions { identity: Identity { uuid: uuid.into_bytes(), label }, now };
    let (usable, bits) = (chip.geometry(), chip.correctable());
    let memory = memory_bytes(&usable);
    let mut volume = FlashLight::format(chip, vec![0; memory], &options).map_err(|error| failed(&error))?;
    let (uid, gid) = args.owner_of_root();
    let owner = Change { uid: Some(uid), gid: Some(gid), ..Change::default() };
    volume.change(volume.root(), &owner, now).map_err(|error| failed(&error))?;
    let usage = volume.usage();
    let mut chip = volume.unmount().map_err(|(error, _)| failed(&error))?;
    chip.flush().map_err(|error| failed(&error.into()))?;
    Ok(Report {
        kind: "flashlight",
        chip: ChipFacts::new(&shape, usage.bad_blocks, bits),
        user_bytes: usage.bytes,
        memory_bytes: memory,
        uuid: uuid.to_string(),
        label: args.label.clone(),
    })
}

pub(super) fn describe(args: &Args, report: &Report, output: &mut Output) -> Result<(), Failure> {
    let would = if args.dry_run { "would be made" } else { "made" };
    let (path, chip) = (args.target.path.display(), &report.chip);
    output.line(format_args!(
        "{path}: FlashLight volume {would} on a chip of {}, an image of {}",
        human(chip.bytes()),
        human(chip.image_bytes)
    ))?;
    output.line(format_args!("  uuid       {}", report.uuid))?;
    if !report.label.is_empty() {
        output.line(format_args!("  label      {}", one_line(&report.label)))?;
    }
    output.line(format_args!("  room       {} for files", human(report.user_bytes)))?;
    output.line(format_args!(
        "  chip       {} blocks of {}, {} of them bad; pages of {} with {} spare bytes",
        chip.blocks,
        human(chip.block_bytes()),
        chip.bad_blocks,
        human(u64::from(chip.page_bytes)),
        chip.spare_bytes
    ))?;
    output.line(format_args!("  corrected  {} flipped bits of each 512 bytes", chip.corrected_bits))?;
    output.line(format_args!("  memory     {} bytes for a mount", report.memory_bytes))
}
