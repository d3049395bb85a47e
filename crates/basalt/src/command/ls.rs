//! `basalt ls`: lists directories of a volume.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use basalt_vfs::path::{Entries, PathError, resolve};
use basalt_vfs::{Attributes, Error, FileKind, FileSystem};

use super::entry::{self, Entry};
use crate::failure::{DONE, Failure, Outcome, printable};
use crate::output::{Names, Output, tell};
use crate::size;
use crate::target::Target;
use crate::time;
use crate::transfer::{MAX_DEPTH, Trail};
use crate::volume::Reference;
use crate::volume::open_to_read;

/// List files and directories of a volume
///
/// Names are escaped on a terminal and with -b. Elsewhere they are printed as they are, a line each, as by ls(1).
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Paths in the volume
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<OsString>,

    /// Print mode, links, owner, group, size and time (UTC)
    #[arg(short)]
    long: bool,

    /// List names that begin with a dot, and `.` and `..`
    #[arg(short, long)]
    all: bool,

    /// List names that begin with a dot
    #[arg(short = 'A', long)]
    almost_all: bool,

    /// List directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,

    /// Print inode numbers
    #[arg(short, long)]
    inode: bool,

    /// Print sizes as 1.5K, 20M
    #[arg(short = 'h', long)]
    human_readable: bool,

    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Escape backslashes, control characters and bytes that are no UTF-8 in names, as on a terminal
    #[arg(short = 'b', long)]
    escape: bool,

    /// Print all fields as JSON
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Exit code of a list that lacks something, which was told.
const INCOMPLETE: u8 = 1;

/// Runs the command. What is not there, or cannot be read, is told, and the rest listed.
///
/// # Errors
/// When the volume cannot be read, or standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    let volume = open_to_read(&args.target)?;
    let mut lister = Lister {
        fs: volume.files(),
        args,
        names: if args.escape { Names::Escaped } else { Names::of_stdout() },
        output: Output::streaming(),
        json: Vec::new(),
        blank: false,
        is_complete: true,
    };
    for path in &args.paths {
        lister.list(path.as_bytes())?;
    }
    let Lister { mut output, json, is_complete, .. } = lister;
    if args.json {
        output.json(&json)?;
    }
    output.finish()?;
    volume.close()?;
    Ok(if is_complete { DONE } else { INCOMPLETE })
}

/// A name, and the inode behind it.
struct Row {
    name: Vec<u8>,
    attributes: Attributes,
    target: Option<Vec<u8>>,
}

struct Lister<'a> {
    fs: &'a dyn FileSystem,
    args: &'a Args,
    /// How names are written.
    names: Names,
    output: Output,
    json: Vec<Entry>,
    /// Whether something is above, to be set off by an empty line.
    blank: bool,
    is_complete: bool,
}

impl<'a> Lister<'a> {
    fn miss(&mut self, failure: &Failure) {
        tell(format_args!("basalt: ls: {}", failure.line()));
        self.is_complete = false;
    }

    /// Lists what a path leads to. Fails only if the output does.
    fn list(&mut self, path: &[u8]) -> Result<(), Failure> {
        // As ls does: a symbolic link is shown itself where its own attributes are asked for.
        let follow = !self.args.directory && !self.args.long;
        let found = match resolve(&self.fs, path, follow) {
            // A link that leads nowhere is listed itself.
            Err(PathError { reason: Error::NotFound | Error::TooManySymlinks, .. }) => resolve(&self.fs, path, false),
            found => found,
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.miss(&Failure::path(error));
                return Ok(());
            }
        };
        if found.attributes.kind == FileKind::Directory && !self.args.directory {
            return self.list_tree(path, found);
        }
        match entry::link_target(self.fs, &found.attributes) {
            Ok(target) => self.show(&[Row { name: path.to_vec(), attributes: found.attributes, target }], None),
            Err(error) => {
                self.miss(&failure(path, error));
                Ok(())
            }
        }
    }

    /// Lists a directory, and those below it if that is asked for.
    fn list_tree(&mut self, path: &[u8], directory: Reference<'a>) -> Result<(), Failure> {
        let titles = self.args.paths.len() > 1 || self.args.recursive;
        // Of this path: one that is met again has two names. That is damage, and may have no end.
        let mut seen = HashSet::new();
        // Directories still to list, the next one last: a deep tree needs no deep stack.
        let mut pending = vec![(Trail::start(), directory)];
        while let Some((trail, directory)) = pending.pop() {
            let path = trail.names().into_iter().fold(path.to_vec(), |path, name| join(&path, name));
            if trail.depth() > MAX_DEPTH {
                let reason = format!("nested deeper than {MAX_DEPTH} directories");
                self.miss(&Failure::at(format_args!("volume:{}", printable(&path)), reason));
                continue;
            }
            if !seen.insert(directory.ino()) {
                let reason = "is a directory with a second name; run `basalt fsck`";
                self.miss(&Failure::at(format_args!("volume:{}", printable(&path)), reason));
                continue;
            }
            let below = self.list_directory(&path, &directory, titles)?;
            pending.extend(below.into_iter().rev().map(|(name, child)| (trail.below(&name), child)));
        }
        Ok(())
    }

    /// Lists one directory; returns those in it, if they are to be listed too.
    fn list_directory(
        &mut self,
        path: &[u8],
        directory: &Reference<'a>,
        title: bool,
    ) -> Result<Vec<(Vec<u8>, Reference<'a>)>, Failure> {
        let mut rows = Vec::new();
        let mut below = Vec::new();
        for name in self.names(path, directory) {
            let found = directory.lookup(&name).and_then(|child| {
                let target = entry::link_target(self.fs, &child.attributes)?;
                Ok((child, target))
            });
            let (child, target) = match found {
                Ok(found) => found,
                Err(error) => {
                    self.miss(&failure(&join(path, &name), error));
                    continue;
                }
            };
            let attributes = child.attributes;
            let is_own = matches!(name.as_slice(), b"." | b"..");
            if self.args.recursive && attributes.kind == FileKind::Directory && !is_own {
                below.push((name.clone(), child));
            }
            rows.push(Row { name, attributes, target });
        }
        self.show(&rows, Some((path, title)))?;
        Ok(below)
    }

    fn names(&mut self, path: &[u8], directory: &Reference<'a>) -> Vec<Vec<u8>> {
        let mut names = if self.args.all { vec![b".".to_vec(), b"..".to_vec()] } else { Vec::new() };
        let hidden_too = self.args.all || self.args.almost_all || self.args.json;
        for entry in Entries::new(&self.fs, directory.ino()) {
            match entry {
                Ok(entry) if hidden_too || !entry.name.starts_with(b".") => names.push(entry.name),
                Ok(_) => {}
                Err(error) => self.miss(&failure(path, error)),
            }
        }
        names.sort_unstable();
        names
    }

    /// Shows names; of a directory, if its path is given, with the path in front of them if a title is wanted.
    fn show(&mut self, rows: &[Row], directory: Option<(&[u8], bool)>) -> Result<(), Failure> {
        if self.args.json {
            let inside = directory.filter(|_| self.args.recursive || self.args.paths.len() > 1);
            self.json.extend(rows.iter().map(|row| {
                let name = inside.map_or_else(|| row.name.clone(), |(path, _)| join(path, &row.name));
                Entry::new(&name, &row.attributes, row.target.as_deref())
            }));
            return Ok(());
        }
        if let Some((path, true)) = directory {
            if self.blank {
                self.output.line("")?;
            }
            let mut title = self.names.show(path);
            title.push(b':');
            self.output.name_line(&title, Names::Raw)?;
        }
        self.blank = true;
        let widths = self.args.long.then(|| self.widths(rows));
        for row in rows {
            let mut line = if self.args.inode { format!("{:>8} ", row.attributes.ino) } else { String::new() };
            if let Some(widths) = &widths {
                line.push_str(&self.long(row, widths));
            }
            let target = row.target.as_deref().filter(|_| self.args.long);
            self.output.bytes(line.as_bytes())?;
            self.output.name_line(&entry::name_text(&row.name, target, self.names), Names::Raw)?;
        }
        Ok(())
    }

    fn columns(&self, row: &Row) -> [String; 4] {
        let attributes = &row.attributes;
        let is_device = matches!(attributes.kind, FileKind::BlockDevice | FileKind::CharDevice);
        let size = if is_device {
            let (major, minor) = entry::device(attributes.rdev);
            format!("{major}, {minor}")
        } else if self.args.human_readable {
            size::short(attributes.size)
        } else {
            attributes.size.to_string()
        };
        [attributes.links.to_string(), attributes.uid.to_string(), attributes.gid.to_string(), size]
    }

    fn widths(&self, rows: &[Row]) -> [usize; 4] {
        rows.iter()
            .map(|row| self.columns(row).map(|text| text.len()))
            .fold([0; 4], |widths, row| std::array::from_fn(|column| widths[column].max(row[column])))
    }

    fn long(&self, row: &Row, widths: &[usize; 4]) -> String {
        let [links, uid, gid, size] = self.columns(row);
        let [links_width, uid_width, gid_width, size_width] = *widths;
        format!(
            "{} {links:>links_width$} {uid:>uid_width$} {gid:>gid_width$} {size:>size_width$} {} ",
            entry::mode_text(&row.attributes),
            time::minutes(row.attributes.mtime)
        )
    }
}

fn failure(path: &[u8], error: Error) -> Failure {
    Failure::at(format_args!("volume:{}", printable(path)), error)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}
