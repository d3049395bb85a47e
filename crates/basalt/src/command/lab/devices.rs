//! `basalt lab devices`: the simulated devices there are.

use basalt_flash::device::{ChipModel, DeviceSummary};
use basalt_flash::{ModelError, chip, chips, preset_text, presets};
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;

/// List the simulated devices and chips, or print the file of one
///
/// Bandwidths are in MB/s (10^6 bytes a second), one request at a time: 32 MiB requests in sequence, 4 KiB requests at
/// random. A printed file can be changed and used as a DEVICE of other commands; `basalt lab profile` measures a real device
/// and writes such a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments.")]
pub struct Args {
    /// Device or chip whose file is printed, or the path of a file to check and print
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print JSON: one line for each device, or the whole model of NAME
    #[arg(long)]
    json: bool,
}

/// A chip in the list.
#[derive(Serialize)]
struct ListedChip {
    kind: &'static str,
    #[serde(flatten)]
    chip: ChipModel,
}

/// Runs the command.
///
/// # Errors
/// When there is no such device, or its file is wrong.
pub fn run(args: &Args) -> Outcome {
    let mut output = Output::new();
    match &args.name {
        Some(name) => print_one(name, args.json, &mut output)?,
        None if args.json => list_json(&mut output)?,
        None => list(&mut output)?,
    }
    output.finish()?;
    Ok(DONE)
}

fn failure(error: ModelError) -> Failure {
    Failure::new(error)
}

fn print_one(name: &str, json: bool, output: &mut Output) -> Result<(), Failure> {
    if let Ok(chip) = chip(name) {
        return if json { output.json(&chip) } else { print_text(name, output) };
    }
    let model = super::device(name)?;
    if json {
        return output.json(&model);
    }
    // A preset has comments; a file is shown as it was understood.
    if preset_text(name).is_ok() { print_text(name, output) } else { output.bytes(toml(&model)?.as_bytes()) }
}

fn toml(model: &basalt_flash::DeviceModel) -> Result<String, Failure> {
    model.to_toml().map_err(failure)
}

fn print_text(name: &str, output: &mut Output) -> Result<(), Failure> {
    output.bytes(preset_text(name).map_err(failure)?.as_bytes())
}

fn list_json(output: &mut Output) -> Result<(), Failure> {
    for model in presets().map_err(failure)? {
        output.json_line(&model.summary())?;
    }
    for chip in chips().map_err(failure)? {
        output.json_line(&ListedChip { kind: "nand-chip", chip })?;
    }
    Ok(())
}

fn list(output: &mut Output) -> Result<(), Failure> {
    output.line(
        "DEVICE    SEQ READ  4K READ  SEQ WRITE  4K WRITE  FTL         CYCLES  WHAT, AND WHERE THE NUMBERS COME FROM",
    )?;
    for model in presets().map_err(failure)? {
        let summary = model.summary();
        let DeviceSummary { name, sequential_read, random_read, sequential_write, random_write, .. } = &summary;
        let translation = summary.translation.map_or("-", |kind| kind.name());
        let cycles = summary.rated_cycles.map_or_else(|| "-".to_owned(), |cycles| cycles.to_string());
        output.line(format_args!(
            "{name:<8} {:>9} {:>8} {:>10} {:>9}  {translation:<10} {cycles:>7}  {}: {}",
            short(*sequential_read),
            short(*random_read),
            short(*sequential_write),
            short(*random_write),
            summary.description,
            first_sentence(&summary.source),
        ))?;
    }
    output.line("")?;
    output.line(
        "CHIP        PAGE  SPARE  PAGES  READ us  PROGRAM us  ERASE us   CYCLES  WHAT, AND WHERE THE NUMBERS COME FROM",
    )?;
    for chip in chips().map_err(failure)? {
        output.line(format_args!(
            "{:<9} {:>6} {:>6} {:>6} {:>8} {:>11} {:>9} {:>8}  {}: {}",
            chip.name,
            chip.page_bytes,
            chip.oob_bytes,
            chip.pages_per_block,
            short(chip.read_ns as f64 / 1e3),
            short(chip.program_ns as f64 / 1e3),
            short(chip.erase_ns as f64 / 1e3),
            chip.rated_cycles,
            chip.description,
            first_sentence(&chip.source),
        ))?;
    }
    Ok(())
}

/// The part of a source before its details: up to the first colon, comma behind a parenthesis, or full stop.
fn first_sentence(source: &str) -> &str {
    let end =
        [":", "), ", ". "].iter().filter_map(|mark| source.find(mark).map(|at| at + usize::from(*mark == "), "))).min();
    source[..end.unwrap_or(source.len())].trim_end()
}

/// A number with three digits that count.
fn short(number: f64) -> String {
    match number {
        number if number >= 100.0 => format!("{number:.0}"),
        number if number >= 10.0 => format!("{number:.1}"),
        number if number >= 1.0 => format!("{number:.2}"),
        number => format!("{number:.3}"),
    }
}
