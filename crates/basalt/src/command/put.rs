//! `basalt put`: copies files into a volume that is not mounted.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::transfer::{Teller, copy_each, failure};
use crate::failure::{Failure, Outcome};
use crate::target::Target;
use crate::transfer::{Put, PutOptions};
use crate::volume::open_to_write;

/// Copy files into a volume that is not mounted
///
/// Keeps owners, permissions, times, attributes, hard links and holes. With several paths, the last one is the destination in the volume,
/// as for cp. With one, the destination is the root of the volume; a directory is copied there without its name, so that `put -r` makes an
/// image from a tree.
///
/// A file that is there is replaced once the new one is whole. A symbolic link among the PATHs is followed; with -r it is copied as a link.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all copied, 1 failed or something was left out, 2 wrong arguments.")]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Files to copy, then the destination in the volume
    #[arg(value_name = "PATH", required = true, value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,

    /// Copy directories recursively
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Use the destination as the new name, never as a directory to copy into
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// Stay on the file system of each source
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Set the owner of all copied files
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,

    /// Print the path of each file that was copied, and their number at the end
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the command.
///
/// # Errors
/// When a source cannot be read, or the volume is full or fails.
pub fn run(args: &Args) -> Outcome {
    let (sources, destination) = split(&args.paths);
    if args.no_target_directory && sources.len() > 1 {
        return Err(Failure::usage("--no-target-directory takes only one source"));
    }
    let volume = open_to_write(&args.target)?;
    let mut teller = Teller::new("put", args.verbose);
    let options = PutOptions {
        recursive: args.recursive,
        exact_destination: args.no_target_directory,
        one_file_system: args.one_file_system,
        owner: args.owner,
        exclude: std::fs::metadata(&args.target.path).ok().map(|image| (image.dev(), image.ino())),
    };
    let mut put = Put::new(volume.files(), options, &mut teller);
    let destination = destination.as_bytes();
    let has_place = if sources.len() > 1 { put.expect_directory(destination) } else { Ok(()) };
    let is_complete =
        has_place.is_ok() && copy_each("put", &sources, Put::is_last, |source| put.copy(source, destination));
    let report = put.report();
    drop(put);
    // What was copied stays, also when the rest could not be.
    let closed = volume.close();
    has_place.map_err(|error| failure(&error))?;
    closed?;
    teller.finish(&report, is_complete)
}

/// Sources and destination. A directory that comes alone is copied without its name.
fn split(paths: &[PathBuf]) -> (Vec<PathBuf>, OsString) {
    match paths {
        [sources @ .., destination] if !sources.is_empty() => (sources.to_vec(), destination.clone().into()),
        alone => {
            let whole = |path: &PathBuf| if path.is_dir() { path.join(OsStr::new(".")) } else { path.clone() };
            (alone.iter().map(whole).collect(), "/".into())
        }
    }
}

/// Reads `UID:GID`.
pub(super) fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let parse = |id: &str| id.parse::<u32>().ok().filter(|&id| id != u32::MAX);
    text.split_once(':')
        .and_then(|(uid, gid)| Some((parse(uid)?, parse(gid)?)))
        .ok_or_else(|| "expected user and group as numbers, for example 1000:1000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners() {
        assert_eq!(parse_owner("0:1000"), Ok((0, 1000)));
        for text in ["", "0", "root:root", "4294967295:0", "-1:0"] {
            assert!(parse_owner(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_directory_alone_goes_without_its_name() {
        let (sources, destination) = split(&["/".into()]);
        assert_eq!(sources, [PathBuf::from("/.")]);
        assert_eq!(destination, "/");
        let (sources, destination) = split(&["/etc/a".into(), "b".into(), "/c".into()]);
        assert_eq!(sources, [PathBuf::from("/etc/a"), PathBuf::from("b")]);
        assert_eq!(destination, "/c");
    }
}
