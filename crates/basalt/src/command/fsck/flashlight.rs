//! `basalt fsck` of a FlashLight volume. Nothing is written: what a power cut left is recovered in memory, and then checked.

use std::sync::Arc;

use basalt_device::FileDevice;
use basalt_flashlight::{Checked, Error};
use basalt_nand::Geometry;
use serde::Serialize;

use super::{Args, FAULTS_LEFT};
use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;
use crate::target::Target;
use crate::volume::flashlight::{self, Changes};

/// The result of a check.
#[derive(Debug, Default, Serialize)]
struct Report {
    clean: bool,
    /// It was not unmounted, and what was fsynced is recovered by the next mount.
    recovered: bool,
    files: u32,
    directories: u32,
    /// Blocks whose live pages were counted wrong.
    wrong_counts: u32,
    /// Inodes that no directory leads to, or that are elsewhere than the inode table says.
    lost: u32,
    /// Directories that say a wrong number of entries.
    wrong_sizes: u32,
    /// What ended the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

pub(super) fn run(args: &Args, target: &Target, device: FileDevice, shape: Geometry) -> Outcome {
    if args.repair || args.backup.is_some() {
        return Err(Failure::at(target.path.display(), "holds a FlashLight volume, which cannot be repaired")
            .hint("`basalt fsck` without --repair checks it, and `basalt get` copies out what can be read"));
    }
    let report = check(target, device, shape)?;
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else if !args.quiet {
        describe(target, &report, &mut output)?;
    }
    output.finish()?;
    Ok(if report.clean { DONE } else { FAULTS_LEFT })
}

fn check(target: &Target, device: FileDevice, shape: Geometry) -> Result<Report, Failure> {
    let chip = flashlight::chip(Arc::new(device), shape, Changes::Dropped)?;
    let failed = |error: &Error| flashlight::failure(&target.path, error);
    let mut volume = match flashlight::mount_chip(chip) {
        Ok(volume) => volume,
        Err(error) => return damage(error).ok_or_else(|| failed(&error)),
    };
    let recovered = !volume.is_clean();
    match volume.check() {
        Ok(checked) => {
            let Checked { directories, files, wrong_counts, lost, wrong_sizes } = checked;
            let clean = checked.is_sound();
            // The directory of deleted files is nobody's.
            let directories = directories.saturating_sub(1);
            Ok(Report { clean, recovered, files, directories, wrong_counts, lost, wrong_sizes, damage: None })
        }
        Err(error) => damage(error).map(|report| Report { recovered, ..report }).ok_or_else(|| failed(&error)),
    }
}

/// The report of a check that damage ended; `None` for what is none.
fn damage(error: Error) -> Option<Report> {
    let is_damage = matches!(
        error,
        Error::Damaged { .. } | Error::Nand(basalt_nand::NandError::Uncorrectable { .. }) | Error::NotFound
    );
    is_damage.then(|| Report { damage: Some(error.to_string()), ..Report::default() })
}

fn describe(target: &Target, report: &Report, output: &mut Output) -> Result<(), Failure> {
    let path = target.path.display();
    if let Some(damage) = &report.damage {
        output.line(format_args!("damage: {damage}"))?;
        return output.line(format_args!(
            "{path}: faults found; the check stopped there; `basalt get {path} / DIR` copies out what can be read"
        ));
    }
    for (count, what) in [
        (report.wrong_counts, "blocks whose live pages were counted wrong"),
        (report.lost, "inodes that no directory leads to"),
        (report.wrong_sizes, "directories with a wrong number of entries"),
    ] {
        if count > 0 {
            output.line(format_args!("damage: {count} {what}"))?;
        }
    }
    let verdict = if report.clean { "clean" } else { "faults found" };
    let recovered =
        if report.recovered { "; it was not unmounted, and the next mount recovers what was fsynced" } else { "" };
    output
        .line(format_args!("{path}: {verdict}; {} files, {} directories{recovered}", report.files, report.directories))
}
