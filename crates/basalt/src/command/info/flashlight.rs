//! `basalt info` of a FlashLight volume.

use std::sync::Arc;

use basalt_device::FileDevice;
use basalt_flashlight::memory_bytes;
use basalt_flashlight_vfs::{label_text, uuid_text};
use basalt_nand::{Geometry, NandDevice};
use serde::Serialize;

use super::Args;
use crate::failure::{DONE, Failure, Outcome, one_line};
use crate::output::Output;
use crate::size::human;
use crate::volume::flashlight::{self, Changes, ChipFacts};

/// What is shown.
#[derive(Debug, Serialize)]
struct Info {
    #[serde(rename = "type")]
    kind: &'static str,
    label: String,
    uuid: String,
    #[serde(flatten)]
    chip: ChipFacts,
    free_blocks: u32,
    /// It was unmounted.
    clean: bool,
    /// Bytes that files can have in all, and those in use.
    user_bytes: u64,
    used_bytes: u64,
    inodes: u32,
    free_inodes: u32,
    /// How often blocks were erased, all together.
    erases: u64,
    /// Bytes of memory that a mount takes for pages and blocks.
    memory_bytes: usize,
}

pub(super) fn run(args: &Args, device: FileDevice, shape: Geometry) -> Outcome {
    let mut volume = flashlight::mount(&args.target, Arc::new(device), shape, Changes::Dropped)?;
    let (usage, identity) = (volume.usage(), volume.identity());
    let info = Info {
        kind: "flashlight",
        label: label_text(&identity),
        uuid: uuid_text(&identity),
        chip: ChipFacts::new(&shape, usage.bad_blocks, volume.device().correctable()),
        free_blocks: volume.free_blocks(),
        clean: volume.is_clean(),
        user_bytes: usage.bytes,
        used_bytes: usage.used,
        inodes: usage.inodes,
        free_inodes: usage.free_inodes,
        erases: volume.erases(),
        memory_bytes: memory_bytes(&volume.geometry()),
    };
    let mut output = Output::new();
    if args.json {
        output.json(&info)?;
    } else {
        describe(args, &info, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

fn describe(args: &Args, info: &Info, output: &mut Output) -> Result<(), Failure> {
    let mut row = |name: &str, value: String| output.line(format_args!("{name:<16}{}", one_line(&value)));
    let chip = &info.chip;
    row("device", args.target.display().to_string())?;
    row("format", "FlashLight".to_owned())?;
    row("label", if info.label.is_empty() { "-".to_owned() } else { info.label.clone() })?;
    row("uuid", info.uuid.clone())?;
    row("size", format!("{} ({} of image with spare bytes)", human(chip.bytes()), human(chip.image_bytes)))?;
    row(
        "chip",
        format!(
            "{} blocks of {} pages of {}, each with {} spare bytes; {} flipped bits of each 512 bytes are corrected",
            chip.blocks,
            chip.pages_per_block,
            human(u64::from(chip.page_bytes)),
            chip.spare_bytes,
            chip.corrected_bits
        ),
    )?;
    row("state", if info.clean { "clean" } else { "not unmounted cleanly" }.to_owned())?;
    let share = 100.0 * info.used_bytes as f64 / info.user_bytes.max(1) as f64;
    row("used", format!("{} of {} ({share:.1} %)", human(info.used_bytes), human(info.user_bytes)))?;
    row("free", human(info.user_bytes.saturating_sub(info.used_bytes)))?;
    row("inodes", format!("{} in use, {} more can be made", info.inodes, info.free_inodes))?;
    row("blocks", format!("{} free, {} bad", info.free_blocks, chip.bad_blocks))?;
    row("wear", format!("{:.1} erases of a block in the mean", info.erases as f64 / f64::from(chip.blocks.max(1))))?;
    row("memory", format!("{} bytes for a mount", info.memory_bytes))
}
