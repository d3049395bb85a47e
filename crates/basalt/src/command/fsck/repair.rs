//! `basalt fsck --repair`, and `--restore`, which takes one back.

use std::fs::{self, File, OpenOptions};
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_f2fs::check::Stage;
use basalt_f2fs::repair::{Plan, RepairOptions, RepairReport, RestoreError, plan, restore};

use super::{FAULTS_LEFT, severity_name, stage_name};
use crate::failure::{DONE, Failure, Outcome, one_line};
use crate::output::{Output, tell};
use crate::progress::{Progress, Unit};
use crate::target::Target;

/// Exit code when faults were found and repaired.
const REPAIRED: u8 = 1;

/// What the user asked for.
pub(super) struct Order<'a> {
    pub(super) target: &'a Target,
    pub(super) dry_run: bool,
    /// Whether to stop at what a user should decide.
    pub(super) preen: bool,
    /// Whether to go on though something is lost.
    pub(super) force: bool,
    pub(super) backup: Option<&'a Path>,
    pub(super) json: bool,
    pub(super) quiet: bool,
    pub(super) max_listed: usize,
}

/// Repairs a volume, or says how it would.
pub(super) fn run(order: &Order<'_>) -> Outcome {
    let target = order.target;
    let device = if order.dry_run { target.open_shared()? } else { target.open_exclusive()? };
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let failed = |error: basalt_f2fs::Error| Failure::volume(&target.path, &error);
    let plan = make_plan(&device, order).map_err(failed)?;
    let mut output = Output::new();
    let has_work = plan.report().blocks > 0;
    if order.dry_run || !has_work {
        show(order, plan.report(), false, &mut output)?;
        output.finish()?;
        let clean = plan.report().clean && plan.report().repairs.is_empty();
        return Ok(if clean { DONE } else { FAULTS_LEFT });
    }
    if let Some(why) = refusal(order, plan.report()) {
        // What would be done, and what not be there afterwards.
        show(order, plan.report(), false, &mut output)?;
        output.finish()?;
        // The exit code is that of faults left, as fsck(8) has it; that of a failure would be another one.
        tell(format_args!("basalt: fsck: {why}"));
        return Ok(FAULTS_LEFT);
    }
    if let Some(path) = order.backup {
        back_up(&plan, path)?;
    }
    let report = plan.commit().map_err(failed)?;
    show(order, &report, true, &mut output)?;
    output.finish()?;
    Ok(if report.clean { REPAIRED } else { FAULTS_LEFT })
}

/// Why a repair is not written, and what to do instead.
fn refusal(order: &Order<'_>, report: &RepairReport) -> Option<String> {
    let path = order.target.path.display();
    if !report.losses.is_empty() && !order.force {
        return Some(format!(
            "{path}: not repaired: the repair would lose data that `basalt rescue` can still read; copy it out with \
             `basalt rescue {path} DIR`, then run `basalt fsck --repair --force {path}`"
        ));
    }
    if report.uncertain_checkpoint && !order.force {
        return Some(format!(
            "{path}: not repaired: a checkpoint that cannot be read may be the newest, and would be overwritten; copy the device \
             (ddrescue) and repair the copy, or run `basalt fsck --repair --force {path}` to use the other checkpoint"
        ));
    }
    if order.preen && report.restored_nodes {
        return Some(format!(
            "{path}: not repaired: nodes had to be searched for, and a user should look first; \
             `basalt fsck --repair --dry-run {path}` shows the repair, and without --dry-run makes it"
        ));
    }
    None
}

fn make_plan(device: &Arc<dyn BlockDevice>, order: &Order<'_>) -> basalt_f2fs::Result<Plan> {
    let options = RepairOptions { max_listed: order.max_listed, ..RepairOptions::default() };
    let mut bar: Option<((u32, Stage), Progress)> = None;
    plan(Arc::clone(device), &options, &mut |progress| {
        let now = (progress.round, progress.check.stage);
        if bar.as_ref().is_none_or(|(stage, _)| *stage != now) {
            // The old bar goes before the new one comes.
            bar = None;
            bar = Some((now, Progress::new(stage_name(progress.check.stage), Unit::Things, order.quiet)));
        }
        if let Some((_, bar)) = &mut bar {
            bar.update(progress.check.done, progress.check.total);
        }
    })
}

/// Saves what is about to be overwritten. A file that is there already may be the backup of another repair: it stays.
fn back_up(plan: &Plan, path: &Path) -> Result<(), Failure> {
    let place = || path.display().to_string();
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let file = file.map_err(|error| Failure::at(place(), error).hint("nothing was repaired; choose another file"))?;
    let mut writer = BufWriter::new(&file);
    let saved = plan.back_up(&mut writer).map_err(|error| Failure::at(place(), error));
    // What it still has, it has because the file takes no more.
    drop(writer.into_parts());
    let saved = saved.and_then(|()| file.sync_all().map_err(|error| Failure::at(place(), error)));
    saved.map_err(|failure| {
        // A stump would only be in the way of the next attempt.
        let _ = fs::remove_file(path);
        failure.hint("nothing was repaired")
    })
}

/// What was done, for programs.
#[derive(serde::Serialize)]
struct Answer<'a> {
    /// Whether it was written.
    written: bool,
    #[serde(flatten)]
    report: &'a RepairReport,
}

fn show(order: &Order<'_>, report: &RepairReport, written: bool, output: &mut Output) -> Result<(), Failure> {
    if order.json {
        return output.json(&Answer { written, report });
    }
    if order.quiet {
        return Ok(());
    }
    for repair in &report.repairs {
        output.line(format_args!("{}: {}", severity_name(repair.severity), one_line(&repair.to_string())))?;
    }
    let listed = report.repairs.len() as u64;
    if report.repaired > listed {
        output.line(format_args!("and {} more repairs", report.repaired - listed))?;
    }
    for loss in &report.losses {
        output.line(format_args!("lost: {}", one_line(&loss.to_string())))?;
    }
    for fault in &report.left {
        output.line(format_args!("left: {}: {}", severity_name(fault.severity), one_line(&fault.to_string())))?;
    }
    let path = order.target.path.display();
    let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (blocks, repaired) = (counted(report.blocks, "block"), counted(report.repaired, "repair"));
    let state = if report.clean { "clean" } else { "faults left" };
    if written {
        output.line(format_args!("{path}: {state}; {repaired}, {blocks} written"))
    } else if report.blocks > 0 {
        output.line(format_args!("{path}: would be {state}; {repaired}, {blocks}; nothing was written"))
    } else {
        output.line(format_args!("{path}: {state}; nothing was written"))
    }
}

/// Puts back what a repair overwrote.
pub(super) fn put_back(target: &Target, from: &Path, force: bool, quiet: bool) -> Outcome {
    let device = target.open_exclusive()?;
    let mut file = File::open(from).map_err(|error| Failure::at(from.display(), error))?;
    let blocks = restore(&device, &mut file, force).map_err(|error| {
        let failure = Failure::at(from.display(), &error);
        match error {
            RestoreError::Stale(_) => {
                failure.hint("nothing was restored; --force restores it, and may damage the volume")
            }
            _ => failure,
        }
    })?;
    if !quiet {
        let mut output = Output::new();
        output.line(format_args!("{}: {blocks} blocks restored from {}", target.path.display(), from.display()))?;
        output.finish()?;
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use basalt_device::MemoryDevice;
    use basalt_f2fs::format::{FormatOptions, format};

    use super::*;
    use crate::target::Patience;

    /// No image has a block that cannot be read; `checkpoint_damage` in the engine has such a device.
    #[test]
    fn a_checkpoint_that_cannot_be_read_is_written_over_with_force_only() {
        let device = MemoryDevice::new(64 << 20, 512);
        format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let plan = plan(Arc::new(device), &RepairOptions::default(), &mut |_| ()).unwrap();
        let mut report = plan.report().clone();
        report.uncertain_checkpoint = true;
        let target = Target { path: "volume".into(), patience: Patience { wait: Duration::ZERO } };
        let refused = |preen, force| {
            let order = Order {
                target: &target,
                dry_run: false,
                preen,
                force,
                backup: None,
                json: false,
                quiet: false,
                max_listed: 10,
            };
            refusal(&order, &report)
        };
        for preen in [false, true] {
            assert!(refused(preen, false).unwrap().contains("--force volume"));
        }
        assert_eq!(refused(false, true), None);
    }
}
