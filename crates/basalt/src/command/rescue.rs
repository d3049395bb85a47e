//! `basalt rescue`: copies out what is left of a damaged volume.

mod f2fs;
mod flashlight;

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use basalt_device::FileDevice;
use basalt_nand::Geometry;
use basalt_vfs::path::{Entries, data_range};
use basalt_vfs::{Attributes, FileKind, FileSystem, InodeNumber};
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome, one_line, printable};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size::human;
use crate::target::Target;
use crate::transfer::{Get, GetOptions, MAX_DEPTH, Observer, Report, Salvage, Trail};
use crate::volume::flashlight as flashlight_volume;

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

    /// The chip of a FlashLight volume, if no root tells its shape or the image was cut off: as `mkfs --nand`
    #[arg(long, value_name = "CHIP", value_parser = flashlight_volume::parse_chip, conflicts_with_all = ["nodes_only", "main_block"])]
    nand: Option<Geometry>,

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

/// What a search has found on a volume of some type.
trait Search {
    /// All of it, to be read.
    fn files(&self) -> &dyn FileSystem;

    /// Where the part of a file ends that begins at byte `offset` and is known to be lost; `None` where a read may succeed.
    fn missing_until(&self, ino: InodeNumber, offset: u64) -> Option<u64>;

    /// The parts of a file, in bytes, that cannot be had, as far as that is known.
    ///
    /// # Errors
    /// The inode cannot be read, or the device fails.
    fn lost_ranges(&self, ino: InodeNumber) -> basalt_vfs::Result<Vec<Range<u64>>>;

    /// The report for programs.
    fn json(&self) -> serde_json::Value;

    /// The report for people, without what is lost.
    fn lines(&self, path: &Path) -> Vec<String>;

    /// Names whose file is lost, a line each, as far as they are listed.
    fn lost(&self) -> Vec<String>;

    /// How many names have lost their file.
    fn lost_names(&self) -> u64;

    /// Whether nothing is missing, as far as the search knows.
    fn is_whole(&self) -> bool;
}

/// Everything that is reported.
struct Whole<'a> {
    found: &'a dyn Search,
    copied: Report,
    files_with_holes: u64,
    holes: &'a [HoledFile],
    warnings: &'a [String],
}

/// The same for programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    search: serde_json::Value,
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

struct Known<'a>(&'a dyn Search);

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
    let device = args.target.open_shared()?;
    let found = match shape(args, &device)? {
        Some(shape) => flashlight::search(args, device, shape)?,
        None => f2fs::search(args, device)?,
    };
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
        Some(directory) => copy(args, &*found, directory, is_new, &mut listener)?,
        None => list(args, &*found, &mut listener, &mut output)?,
    };
    let Listener { progress, holes, files_with_holes, warnings, .. } = listener;
    drop(progress);
    if args.json {
        let (search, holes, warnings) = (found.json(), &holes[..], &warnings[..]);
        output.json(&Document { search, copied, files_with_holes, holes, warnings })?;
    } else if !args.quiet {
        let whole = Whole { found: &*found, copied, files_with_holes, holes: &holes, warnings: &warnings };
        describe(args, &whole, &mut output)?;
    }
    output.finish()?;
    let is_whole = files_with_holes == 0 && copied.left_out == 0 && found.is_whole();
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

/// The shape of the chip that a FlashLight volume is on; `None` if it is no such volume.
fn shape(args: &Args, device: &FileDevice) -> Result<Option<Geometry>, Failure> {
    match args.nand {
        Some(shape) => Ok(Some(shape)),
        None => flashlight_volume::detect_whole(device),
    }
}

fn copy(
    args: &Args,
    found: &dyn Search,
    directory: &Path,
    is_new: bool,
    listener: &mut Listener,
) -> Result<Report, Failure> {
    let options = GetOptions { recursive: true, exact_destination: false, safe: args.safe, new_destination: is_new };
    let salvage = Known(found);
    let mut get = Get::new(found.files(), options, listener).salvaging(&salvage);
    get.copy(b"/", directory).map_err(|error| super::transfer::failure(&error))?;
    Ok(get.report())
}

/// Shows every file with what is known to be missing of it.
fn list(args: &Args, found: &dyn Search, listener: &mut Listener, output: &mut Output) -> Result<Report, Failure> {
    let mut report = Report::default();
    let files = found.files();
    // Files with several names that were listed once.
    let mut linked = HashSet::new();
    let mut open = vec![(files.root(), Trail::start())];
    while let Some((directory, trail)) = open.pop() {
        let path = trail.names().iter().flat_map(|name| [b"/", *name]).collect::<Vec<_>>().concat();
        for entry in Entries::new(&files, directory) {
            let entry = entry.map_err(|error| Failure::at(printable(&path), error))?;
            let full = [path.as_slice(), b"/", &entry.name].concat();
            let attributes = files.attributes(entry.ino);
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
            let bytes = bytes.and_then(|(attributes, lost)| readable(files, attributes, lost).ok());
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
fn readable(files: &dyn FileSystem, attributes: &Attributes, lost: &[Range<u64>]) -> basalt_vfs::Result<u64> {
    let (mut bytes, mut end) = (0, 0);
    if attributes.kind != FileKind::Regular {
        return Ok(bytes);
    }
    while let Some(data) = data_range(files, attributes.ino, end, attributes.size)? {
        let missing = lost.iter().map(|range| range.end.min(data.end).saturating_sub(range.start.max(data.start)));
        bytes += (data.end - data.start).saturating_sub(missing.sum());
        end = data.end;
    }
    Ok(bytes)
}

fn describe(args: &Args, whole: &Whole<'_>, output: &mut Output) -> Result<(), Failure> {
    for line in whole.found.lines(&args.target.path) {
        output.line(line)?;
    }
    for warning in whole.warnings {
        output.line(format_args!("left out: {warning}"))?;
    }
    for file in whole.holes {
        let pieces: Vec<String> =
            file.missing.iter().take(8).map(|(start, length)| format!("{length} bytes at {start}")).collect();
        let more = if file.missing.len() > pieces.len() { ", …" } else { "" };
        output.line(format_args!("holes: {}: {}{more}", file.path, pieces.join(", ")))?;
    }
    for line in whole.found.lost() {
        output.line(line)?;
    }
    let copied = &whole.copied;
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
        whole.found.lost_names()
    ))
}
