//! `basalt fsck` of a FlashLight volume. Nothing is written: what a power cut left is recovered in memory, and then checked. All content is read,
//! since each page of it says whether it is whole.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use basalt_device::FileDevice;
use basalt_flashlight::{Checked, Error, InodeNumber};
use basalt_nand::Geometry;
use serde::Serialize;

use super::{Args, FAULTS_LEFT};
use crate::failure::{DONE, Failure, Outcome, printable};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::target::Target;
use crate::volume::flashlight::{self, Changes, ImageVolume};

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Directories below one another that are walked through.
const MAX_DEPTH: usize = 4096;

/// The result of a check.
#[derive(Debug, Default, Serialize)]
struct Report {
    clean: bool,
    /// It was not unmounted, and what was fsynced is recovered by the next mount.
    recovered: bool,
    /// All that the volume has was looked at.
    complete: bool,
    files: u32,
    directories: u32,
    /// Bytes of content that were read.
    bytes: u64,
    /// Blocks whose live pages were counted wrong.
    wrong_counts: u32,
    /// Inodes that no directory leads to, or that are elsewhere than the inode table says.
    lost: u32,
    /// Directories and files that say a wrong number of entries or pages.
    wrong_sizes: u32,
    /// What is wrong, as far as it is listed, in order.
    faults: Vec<Fault>,
    /// How many faults there are.
    fault_count: u64,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
struct Fault {
    /// What it is in; none if it is in what no file is.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Bytes of the file that cannot be read: the first one, and how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<(u64, u64)>,
    what: String,
}

pub(super) fn run(args: &Args, target: &Target, device: FileDevice, shape: Geometry) -> Outcome {
    let report = check(args, target, device, shape)?;
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else if !args.quiet {
        describe(target, &report, args.repair || args.preen, &mut output)?;
    }
    output.finish()?;
    Ok(if report.clean { DONE } else { FAULTS_LEFT })
}

fn check(args: &Args, target: &Target, device: FileDevice, shape: Geometry) -> Result<Report, Failure> {
    let chip = flashlight::chip(Arc::new(device), shape, Changes::Dropped)?;
    let failed = |error: &Error| flashlight::failure(&target.path, error);
    let mut check = Check { report: Report::default(), most: args.max_faults };
    let mut volume = match flashlight::mount_chip(chip) {
        Ok(volume) => volume,
        Err(error) if is_damage(error) => {
            check.fault(None, None, error);
            return Ok(check.report);
        }
        Err(error) => return Err(failed(&error)),
    };
    check.report.recovered = !volume.is_clean();
    let mut progress = Progress::new("reading files", Unit::Bytes, args.quiet);
    let used = volume.usage().used;
    let read = check.walk(&mut volume, &mut |done| progress.update(done, used)).map_err(|error| failed(&error))?;
    drop(progress);
    match volume.check() {
        Ok(Checked { wrong_counts, lost, wrong_sizes, .. }) => {
            (check.report.wrong_counts, check.report.lost, check.report.wrong_sizes) =
                (wrong_counts, lost, wrong_sizes);
            for (count, what) in [
                (wrong_counts, "blocks whose live pages were counted wrong"),
                (lost, "inodes that no directory leads to, or that are not where the inode table says"),
                (wrong_sizes, "directories or files that say a wrong number of entries or pages"),
            ] {
                if count > 0 {
                    check.fault(None, None, format_args!("{count} {what}"));
                }
            }
            check.report.complete = read;
        }
        Err(error) if is_damage(error) => check.fault(None, None, error),
        Err(error) => return Err(failed(&error)),
    }
    check.report.clean = check.report.fault_count == 0;
    Ok(check.report)
}

/// Whether an error says that something on the volume is wrong.
fn is_damage(error: Error) -> bool {
    use basalt_nand::NandError;
    matches!(
        error,
        Error::Damaged { .. } | Error::Nand(NandError::Uncorrectable { .. }) | Error::NotFound | Error::NotFlashLight
    )
}

struct Check {
    report: Report,
    /// Faults that are listed.
    most: usize,
}

impl Check {
    fn fault(&mut self, path: Option<&[u8]>, bytes: Option<Range<u64>>, what: impl std::fmt::Display) {
        self.report.fault_count += 1;
        if self.report.faults.len() < self.most {
            let bytes = bytes.map(|bytes| (bytes.start, bytes.end - bytes.start));
            self.report.faults.push(Fault { path: path.map(printable), bytes, what: what.to_string() });
        }
    }

    /// Notes an error as a fault, if it is damage.
    fn note(&mut self, path: &[u8], error: Error) -> basalt_flashlight::Result<()> {
        if !is_damage(error) {
            return Err(error);
        }
        self.fault(Some(path), None, error);
        Ok(())
    }

    /// Reads all directories and files; whether that went everywhere.
    fn walk(&mut self, volume: &mut ImageVolume, progress: &mut dyn FnMut(u64)) -> basalt_flashlight::Result<bool> {
        let mut waiting = vec![(volume.root(), Vec::new(), 0)];
        let (mut complete, mut seen) = (true, HashSet::new());
        while let Some((directory, path, depth)) = waiting.pop() {
            // A damaged directory may be below itself.
            if !seen.insert(directory) {
                self.fault(Some(&path), None, "the directory is in more than one place");
                continue;
            }
            self.report.directories += 1;
            let mut from = Some(0);
            while let Some(cookie) = from {
                let mut name = [0; 255];
                let listed = match volume.list(directory, cookie, &mut name) {
                    Ok(Some(listed)) => listed,
                    Ok(None) => break,
                    Err(error) => {
                        complete = false;
                        let path = if path.is_empty() { &b"/"[..] } else { &path };
                        self.note(path, error)?;
                        // The others can be read, unless it is the directory itself that cannot.
                        from = volume.list_behind(directory, cookie).unwrap_or(None);
                        continue;
                    }
                };
                from = listed.next;
                let below = [&path[..], b"/", &name[..listed.name_length]].concat();
                match volume.attributes(listed.number) {
                    Ok(found) if found.is_directory() && depth < MAX_DEPTH => {
                        waiting.push((listed.number, below, depth + 1));
                    }
                    Ok(found) if found.is_directory() => complete = false,
                    Ok(found) => {
                        self.report.files += 1;
                        self.read(volume, listed.number, &below, found.size)?;
                        progress(self.report.bytes);
                    }
                    Err(error) => self.note(&below, error)?,
                }
            }
        }
        Ok(complete)
    }

    /// Reads a file.
    fn read(
        &mut self,
        volume: &mut ImageVolume,
        number: InodeNumber,
        path: &[u8],
        size: u64,
    ) -> basalt_flashlight::Result<()> {
        if size > volume.largest_file() {
            self.fault(Some(path), None, format_args!("a size of {size} bytes, which no file can have"));
            return Ok(());
        }
        let page = u64::from(volume.geometry().page_bytes);
        let mut buffer = vec![0; CHUNK];
        let (mut at, mut lost): (u64, Option<(Range<u64>, Error)>) = (0, None);
        // In large pieces, and page by page where one fails.
        let mut pages_until = 0;
        while at < size {
            // Holes have nothing to read, and a damaged size may say anything.
            if at >= pages_until {
                match volume.next_data(number, at) {
                    Ok(Some(data)) => at = data,
                    Ok(None) => break,
                    Err(error) if is_damage(error) => pages_until = (at + CHUNK as u64).min(size),
                    Err(error) => return Err(error),
                }
            }
            let whole = if at < pages_until { page } else { CHUNK as u64 };
            let length = whole.min(size - at);
            match volume.read(number, at, &mut buffer[..length as usize]) {
                Ok(_) => self.report.bytes += length,
                Err(error) if !is_damage(error) => return Err(error),
                Err(_) if whole > page => {
                    pages_until = at + whole;
                    continue;
                }
                Err(error) => match &mut lost {
                    Some((range, _)) if range.end == at => range.end = at + length,
                    _ => {
                        self.note_lost(path, lost.take());
                        lost = Some((at..at + length, error));
                    }
                },
            }
            at += length;
        }
        self.note_lost(path, lost);
        Ok(())
    }

    fn note_lost(&mut self, path: &[u8], lost: Option<(Range<u64>, Error)>) {
        if let Some((bytes, error)) = lost {
            self.fault(Some(path), Some(bytes), error);
        }
    }
}

fn describe(target: &Target, report: &Report, asked_to_repair: bool, output: &mut Output) -> Result<(), Failure> {
    for fault in &report.faults {
        let place = match (&fault.path, fault.bytes) {
            (Some(path), Some((first, length))) => format!("{path}: {length} bytes at {first}: "),
            (Some(path), None) => format!("{path}: "),
            (None, _) => String::new(),
        };
        output.line(format_args!("damage: {place}{}", fault.what))?;
    }
    if !report.complete {
        output.line(format_args!("not everything could be looked at"))?;
    }
    let more = report.fault_count - report.faults.len() as u64;
    if more > 0 {
        output.line(format_args!("{more} faults are not listed; --max-faults lists more"))?;
    }
    let path = target.path.display();
    let counted = format!("{} files, {} directories", report.files, report.directories);
    let recovered =
        if report.recovered { "; it was not unmounted, and the next mount recovers what was fsynced" } else { "" };
    if report.clean {
        return output.line(format_args!("{path}: clean; {counted}{recovered}"));
    }
    let repair = if asked_to_repair { "FlashLight volumes cannot be repaired; " } else { "" };
    output.line(format_args!(
        "{path}: faults found; {counted}{recovered}; {repair}`basalt rescue {path} DIR` copies out what can be read"
    ))
}
