//! `basalt rescue`: copies out what is left of a damaged volume.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use basalt_f2fs::SystemClock;
use basalt_f2fs::rescue::{RescueOptions, RescueReport, RescueStage, Rescued, TableState};
use basalt_vfs::path::{Entries, data_range};
use basalt_vfs::{Attributes, FileKind, FileSystem, InodeNumber};
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome, one_line, printable};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size::human;
use crate::target::Target;
use crate::transfer::{Get, GetOptions, MAX_DEPTH, Observer, Report, Salvage, Trail};

/// Exit code when something is missing.
const MISSING: u8 = 1;
/// Files with holes, and warnings, that are kept for the report; all are counted.
const LISTED_MAX: usize = 100_000;
/// How much copied between two looks at the progress bar.
const STEP: u64 = 1 << 20;

/// Copy files out of a damaged or dying volume
///
/// Searches the whole volume for files and copies them into DIR, with owners, permissions, times and attributes as far as they are found.
/// Works without superblock, checkpoint and tables, on truncated images, and around unreadable sectors. Unreadable parts of a file become
/// holes. Nothing is written to TARGET.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Files whose directory is gone go to lost+found. DIR must be empty or not exist, and be on another device.\n\
                        Copy a dying card as a whole first (ddrescue), and rescue from the copy.\n\
                        Exit codes: 0 everything found is whole, 1 failed or something is missing, 2 wrong arguments."
)]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Directory for the files
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath, required_unless_present = "list")]
    directory: Option<PathBuf>,

    /// List what would be rescued, without writing
    #[arg(short = 'n', long, visible_alias = "dry-run", conflicts_with = "directory")]
    list: bool,

    /// Also rescue deleted files, into lost+found/deleted
    #[arg(long)]
    deleted: bool,

    /// Ignore superblock, checkpoint and tables; search for nodes only
    #[arg(long)]
    nodes_only: bool,

    /// First block of the main area, if superblock and checkpoint are gone
    #[arg(long, value_name = "BLOCK")]
    main_block: Option<u32>,

    /// Copy nothing that grants rights: no owners, no set-uid, set-gid and sticky bits, no devices, no ACLs, capabilities and
    /// trusted attributes; apply the umask. Always on without root
    #[arg(long)]
    safe: bool,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,

    /// Print no report, and show no progress bar
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// A file of which bytes are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct HoledFile {
    /// Its path.
    path: String,
    /// First byte and number of bytes of each piece that is missing.
    missing: Vec<(u64, u64)>,
}

/// Everything that is reported.
#[derive(Debug, Serialize)]
struct Whole<'a> {
    search: &'a RescueReport,
    copied: Report,
    files_with_holes: u64,
    holes: &'a [HoledFile],
    warnings: &'a [String],
}

/// Receives the progress of the copy.
struct Listener {
    progress: Progress,
    holes: Vec<HoledFile>,
    files_with_holes: u64,
    last_holed: Vec<u8>,
    warnings: Vec<String>,
    shown: u64,
}

impl Observer for Listener {
    fn warning(&mut self, message: &str) {
        if self.warnings.len() < LISTED_MAX {
            self.warnings.push(one_line(message));
        }
    }

    fn progress(&mut self, report: &Report) {
        if report.bytes >= self.shown + STEP || report.bytes == 0 {
            self.shown = report.bytes;
            self.progress.update(report.bytes, 0);
        }
    }

    fn hole(&mut self, path: &[u8], bytes: Range<u64>) {
        if self.last_holed != path {
            self.last_holed = path.to_vec();
            self.files_with_holes += 1;
            if self.holes.len() < LISTED_MAX {
                self.holes.push(HoledFile { path: printable(path), missing: Vec::new() });
            }
        }
        let Some(file) = self.holes.last_mut().filter(|_| self.files_with_holes <= LISTED_MAX as u64) else { return };
        let length = bytes.end - bytes.start;
        let has_room = file.missing.len() < LISTED_MAX;
        match file.missing.last_mut() {
            Some((start, count)) if *start + *count == bytes.start => *count += length,
            _ if has_room => file.missing.push((bytes.start, length)),
            _ => {}
        }
    }
}

struct Known<'a>(&'a Rescued);

impl Salvage for Known<'_> {
    fn missing_until(&self, ino: InodeNumber, offset: u64) -> Option<u64> {
        self.0.missing_until(ino, offset)
    }
}

/// Runs the command.
///
/// # Errors
/// When the target cannot be opened or holds no node, or the directory cannot be written.
pub fn run(args: &Args) -> Outcome {
    let destination = args.directory.as_deref().filter(|_| !args.list);
    let is_new = destination.map_or(Ok(false), prepare)?;
    let rescued = rescue(args, destination, is_new);
    if let (Err(_), Some(directory), true) = (&rescued, destination, is_new) {
        // Only if there is nothing in it.
        let _ = fs::remove_dir(directory);
    }
    rescued
}

fn rescue(args: &Args, destination: Option<&Path>, is_new: bool) -> Outcome {
    let found = search(args)?;
    let mut listener = Listener {
        progress: Progress::new("copying", Unit::Bytes, args.quiet),
        holes: Vec::new(),
        files_with_holes: 0,
        last_holed: Vec::new(),
        warnings: Vec::new(),
        shown: 0,
    };
    let mut output = Output::new();
    let copied = match destination {
        Some(directory) => copy(args, &found, directory, is_new, &mut listener)?,
        None => list(args, &found, &mut listener, &mut output)?,
    };
    let Listener { progress, holes, files_with_holes, warnings, .. } = listener;
    drop(progress);
    let whole = Whole { search: found.report(), copied, files_with_holes, holes: &holes, warnings: &warnings };
    if args.json {
        output.json(&whole)?;
    } else if !args.quiet {
        describe(args, &whole, &mut output)?;
    }
    output.finish()?;
    let report = found.report();
    let is_whole = files_with_holes == 0 && copied.left_out == 0 && report.lost_names == 0 && report.lost_nodes == 0;
    Ok(if is_whole { DONE } else { MISSING })
}

/// Makes the directory, for this user alone, or makes sure that there is nothing in it; returns whether it was made.
fn prepare(directory: &Path) -> Result<bool, Failure> {
    let failed = |error| Failure::at(directory.display(), error);
    match fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) => Err(Failure::at(directory.display(), "is not empty").hint("rescue into a new directory")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::DirBuilder::new().mode(0o700).create(directory).map(|()| true).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn search(args: &Args) -> Result<Rescued, Failure> {
    let device = args.target.open_shared()?;
    let options = RescueOptions { deleted: args.deleted, nodes_only: args.nodes_only, main_block: args.main_block };
    let mut bar: Option<(RescueStage, Progress)> = None;
    Rescued::open(Arc::new(device), &options, Arc::new(SystemClock), &mut |progress| {
        if bar.as_ref().is_none_or(|(stage, _)| *stage != progress.stage) {
            let label = match progress.stage {
                RescueStage::Nodes => "searching segments",
                RescueStage::Names => "reading inodes",
            };
            // The old bar goes before the new one comes.
            bar = None;
            bar = Some((progress.stage, Progress::new(label, Unit::Things, args.quiet)));
        }
        if let Some((_, bar)) = &mut bar {
            bar.update(progress.done, progress.total);
        }
    })
    .map_err(|error| match error {
        basalt_f2fs::Error::NotF2fs { .. } => Failure::new(error).hint("the search found no file"),
        error => Failure::volume(&args.target.path, &error),
    })
}

fn copy(
    args: &Args,
    found: &Rescued,
    directory: &Path,
    is_new: bool,
    listener: &mut Listener,
) -> Result<Report, Failure> {
    let options = GetOptions { recursive: true, exact_destination: false, safe: args.safe, new_destination: is_new };
    let salvage = Known(found);
    let mut get = Get::new(found, options, listener).salvaging(&salvage);
    get.copy(b"/", directory).map_err(|error| super::transfer::failure(&error))?;
    Ok(get.report())
}

/// Shows every file with what is known to be missing of it.
fn list(args: &Args, found: &Rescued, listener: &mut Listener, output: &mut Output) -> Result<Report, Failure> {
    let mut report = Report::default();
    // Files with several names that were listed once.
    let mut linked = HashSet::new();
    let mut open = vec![(found.root(), Trail::start())];
    while let Some((directory, trail)) = open.pop() {
        let path = trail.names().iter().flat_map(|name| [b"/", *name]).collect::<Vec<_>>().concat();
        for entry in Entries::new(&found, directory) {
            let entry = entry.map_err(|error| Failure::at(printable(&path), error))?;
            let full = [path.as_slice(), b"/", &entry.name].concat();
            let attributes = found.attributes(entry.ino);
            let lost = match entry.kind {
                FileKind::Directory if trail.depth() < MAX_DEPTH => {
                    open.push((entry.ino, trail.below(&entry.name)));
                    report.directories += 1;
                    continue;
                }
                FileKind::Regular => found.lost_ranges(entry.ino),
                _ => Ok(Vec::new()),
            };
            let bytes = attributes.as_ref().ok().zip(lost.as_ref().ok());
            let bytes = bytes.and_then(|(attributes, lost)| readable(found, attributes, lost).ok());
            let (Ok(attributes), Ok(lost), Some(bytes)) = (attributes, lost, bytes) else {
                report.left_out += 1;
                listener.warning(&format!("{}: cannot be read", printable(&full)));
                continue;
            };
            let size = attributes.size;
            match entry.kind {
                _ if attributes.links > 1 && !linked.insert(entry.ino) => report.hard_links += 1,
                FileKind::Regular => (report.files, report.bytes) = (report.files + 1, report.bytes + bytes),
                FileKind::Symlink => report.symlinks += 1,
                _ => report.special += 1,
            }
            let missing: u64 = lost.iter().map(|range| range.end - range.start).sum();
            lost.into_iter().for_each(|range| listener.hole(&full, range));
            if !args.json && !args.quiet {
                let note = if missing > 0 { format!("  ({} missing)", human(missing)) } else { String::new() };
                output.line(format_args!("{size:>14}  {}{note}", printable(&full)))?;
            }
        }
    }
    Ok(report)
}

/// Bytes of a file's content that would be copied: holes, and what is lost, are not.
fn readable(found: &Rescued, attributes: &Attributes, lost: &[Range<u64>]) -> basalt_vfs::Result<u64> {
    let (mut bytes, mut end) = (0, 0);
    if attributes.kind != FileKind::Regular {
        return Ok(bytes);
    }
    while let Some(data) = data_range(found, attributes.ino, end, attributes.size)? {
        let missing = lost.iter().map(|range| range.end.min(data.end).saturating_sub(range.start.max(data.start)));
        bytes += (data.end - data.start).saturating_sub(missing.sum());
        end = data.end;
    }
    Ok(bytes)
}

fn describe(args: &Args, whole: &Whole<'_>, output: &mut Output) -> Result<(), Failure> {
    let Whole { search, copied, .. } = whole;
    let path = args.target.path.display();
    let table = |state| match state {
        TableState::Whole => "whole",
        TableState::Partial => "damaged",
        TableState::Gone => "gone",
    };
    for note in &search.notes {
        output.line(format_args!("note: {}", one_line(note)))?;
    }
    let checkpoint = search.checkpoint.map_or("no checkpoint".to_owned(), |version| format!("checkpoint {version}"));
    let source = format!("{:?}", search.geometry).to_lowercase();
    output.line(format_args!(
        "{path}: layout from {source}, {checkpoint}, NAT {}, SIT {}; {} node blocks, {} nodes in use",
        table(search.nat),
        table(search.sit),
        search.node_blocks,
        search.nodes
    ))?;
    if search.truncated_bytes > 0 {
        output.line(format_args!("{path}: truncated: {} of the volume are missing", human(search.truncated_bytes)))?;
    }
    if search.unreadable_bytes > 0 {
        output.line(format_args!("{path}: {} could not be read", human(search.unreadable_bytes)))?;
        for range in search.unreadable.iter().take(20) {
            output.line(format_args!("  {} bytes at {}", range.length, range.offset))?;
        }
    }
    output.line(format_args!(
        "{} inodes: {} named, {} placed by their inode, {} in lost+found; {} deleted; {} directories damaged",
        search.inodes,
        search.named,
        search.placed_by_inode,
        search.without_place,
        search.deleted,
        search.damaged_directories
    ))?;
    for warning in whole.warnings {
        output.line(format_args!("left out: {warning}"))?;
    }
    for file in whole.holes {
        let pieces: Vec<String> =
            file.missing.iter().take(8).map(|(start, length)| format!("{length} bytes at {start}")).collect();
        let more = if file.missing.len() > pieces.len() { ", …" } else { "" };
        output.line(format_args!("holes: {}: {}{more}", file.path, pieces.join(", ")))?;
    }
    for lost in search.lost.iter().take(1000) {
        let name = one_line(&lost.name);
        output.line(format_args!("lost: `{name}` in directory {}: inode {} is gone", lost.directory, lost.ino))?;
    }
    let verb = if args.list { "found" } else { "rescued" };
    output.line(format_args!(
        "{verb}: {} files ({} of them with holes), {} directories, {} symbolic links, {} others, {}; {} left out, {} names lost",
        copied.files,
        whole.files_with_holes,
        copied.directories,
        copied.symlinks,
        copied.special,
        human(copied.bytes),
        copied.left_out,
        search.lost_names
    ))
}
