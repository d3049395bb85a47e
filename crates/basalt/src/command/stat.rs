//! `basalt stat`: shows everything that is known of files of a volume.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use basalt_vfs::path::resolve;
use basalt_vfs::{FileKind, FileSystem, InodeFlags};
use serde::Serialize;

use super::entry::{self, Entry};
use crate::failure::{DONE, Failure, Outcome, printable};
use crate::output::{Names, Output, tell};
use crate::target::Target;
use crate::time;
use crate::volume::{Reference, open_to_read};

/// Show the status of files of a volume
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,

    /// Print all fields as JSON
    #[arg(long)]
    json: bool,
}

/// An extended attribute, for JSON.
#[derive(Serialize)]
struct Xattr {
    name: String,
    /// The value's bytes in hexadecimal digits.
    value_hex: String,
}

/// A file, for JSON.
#[derive(Serialize)]
struct File {
    #[serde(flatten)]
    entry: Entry,
    xattrs: Vec<Xattr>,
}

/// Exit code when something could not be shown, which was told.
const INCOMPLETE: u8 = 1;

/// Runs the command. What is not there, or cannot be read, is told, and the rest shown.
///
/// # Errors
/// When the volume cannot be read, or standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    let volume = open_to_read(&args.target)?;
    let mut output = Output::new();
    let mut json = Vec::new();
    let mut code = DONE;
    for path in &args.paths {
        let path = path.as_bytes();
        let (found, target, xattrs) = match examine(volume.files(), path, args.dereference) {
            Ok(found) => found,
            Err(failure) => {
                tell(format_args!("basalt: stat: {}", failure.line()));
                code = INCOMPLETE;
                continue;
            }
        };
        if args.json {
            json.push(File { entry: Entry::new(path, &found.attributes, target.as_deref()), xattrs });
        } else {
            describe(path, &found, target.as_deref(), &xattrs, &mut output)?;
        }
    }
    if args.json {
        output.json(&json)?;
    }
    output.finish()?;
    volume.close()?;
    Ok(code)
}

/// What is at a path, the target of a symbolic link, and the attributes.
type Examined<'a> = (Reference<'a>, Option<Vec<u8>>, Vec<Xattr>);

/// Looks at what is at a path.
fn examine<'a>(fs: &'a dyn FileSystem, path: &[u8], follow: bool) -> Result<Examined<'a>, Failure> {
    let failed = |error| Failure::at(format_args!("volume:{}", printable(path)), error);
    let found = resolve(&fs, path, follow).map_err(Failure::path)?;
    let target = entry::link_target(fs, &found.attributes).map_err(failed)?;
    let xattrs = xattrs(fs, &found).map_err(failed)?;
    Ok((found, target, xattrs))
}

fn xattrs(fs: &dyn FileSystem, found: &Reference<'_>) -> basalt_vfs::Result<Vec<Xattr>> {
    let list = match fs.list_xattrs(found.ino()) {
        Err(basalt_vfs::Error::NotSupported(_)) => Vec::new(),
        list => list?,
    };
    let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let value = fs.get_xattr(found.ino(), name)?;
            let value_hex = value.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(Xattr { name: printable(name), value_hex })
        })
        .collect()
}

/// As stat(1) writes it.
fn describe(
    path: &[u8],
    found: &Reference<'_>,
    target: Option<&[u8]>,
    xattrs: &[Xattr],
    output: &mut Output,
) -> Result<(), Failure> {
    let attributes = &found.attributes;
    output.bytes(b"  File: ")?;
    output.name_line(&entry::name_text(path, target, Names::Escaped), Names::Raw)?;
    output.line(format_args!(
        "  Size: {:<15} Blocks: {:<10} {}",
        attributes.size,
        attributes.sectors,
        entry::kind_name(attributes.kind)
    ))?;
    let mut second =
        format!(" Inode: {:<15} Links: {:<11} Generation: {}", attributes.ino, attributes.links, attributes.generation);
    if matches!(attributes.kind, FileKind::BlockDevice | FileKind::CharDevice) {
        let (major, minor) = entry::device(attributes.rdev);
        second.push_str(&format!("  Device type: {major},{minor}"));
    }
    output.line(second)?;
    output.line(format_args!(
        "Access: ({:04o}/{})  Uid: {}  Gid: {}  Project: {}",
        attributes.permissions,
        entry::mode_text(attributes),
        attributes.uid,
        attributes.gid,
        attributes.project_id
    ))?;
    output.line(format_args!("Access: {}", time::full(attributes.atime)))?;
    output.line(format_args!("Modify: {}", time::full(attributes.mtime)))?;
    output.line(format_args!("Change: {}", time::full(attributes.ctime)))?;
    output.line(format_args!(" Birth: {}", attributes.crtime.map_or_else(|| "-".to_owned(), time::full)))?;
    if !attributes.flags.is_empty() {
        output.line(format_args!(" Flags: {}", flag_names(attributes.flags)))?;
    }
    for xattr in xattrs {
        output.line(format_args!(" Xattr: {} = 0x{}", xattr.name, xattr.value_hex))?;
    }
    Ok(())
}

/// The flags by their names in the interface, and the rest as a number.
fn flag_names(flags: InodeFlags) -> String {
    let mut names: Vec<String> = flags.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect();
    let known = flags.iter_names().fold(InodeFlags::empty(), |known, (_, flag)| known | flag);
    let rest = flags.difference(known).bits();
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    names.join(", ")
}
