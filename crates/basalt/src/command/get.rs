//! `basalt get`: copies files out of a volume that is not mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::transfer::{Teller, copy_each};
use crate::failure::{Failure, Outcome};
use crate::output::tell;
use crate::target::Target;
use crate::transfer::{Get, GetOptions};
use crate::volume::open_to_read;

/// Copy files out of a volume that is not mounted
///
/// Keeps permissions, times, attributes, hard links and holes; as root also owners and devices. With several paths, the last one is the
/// destination on the host, as for cp. With one, the destination is the current directory. Existing directories keep their own owner,
/// permissions and attributes.
///
/// A file that is there is replaced once the new one is whole. A symbolic link among the PATHs is followed; with -r it is copied as a link.
/// A destination that is a symbolic link to a file stands for that file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all copied, 1 failed or something was left out, 2 wrong arguments.")]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Paths in the volume, then the destination
    #[arg(value_name = "PATH", required = true, value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<OsString>,

    /// Copy directories recursively
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Use the destination as the new name, never as a directory to copy into
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// Copy nothing that grants rights: no owners, no set-uid, set-gid and sticky bits, no devices, no ACLs, capabilities and
    /// trusted attributes; apply the umask. Always on without root
    #[arg(long)]
    safe: bool,

    /// Print the path of each file that was made, and their number at the end
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the command.
///
/// # Errors
/// When a source does not exist or cannot be read, or the host has no room.
pub fn run(args: &Args) -> Outcome {
    let (sources, destination) = match args.paths.as_slice() {
        [sources @ .., destination] if !sources.is_empty() => (sources, PathBuf::from(destination)),
        alone => (alone, PathBuf::from(".")),
    };
    check(args, sources, &destination)?;
    let volume = open_to_read(&args.target)?;
    let mut teller = Teller::new("get", args.verbose);
    let options = GetOptions {
        recursive: args.recursive,
        exact_destination: args.no_target_directory,
        safe: args.safe,
        new_destination: false,
    };
    let mut get = Get::new(volume.files(), options, &mut teller);
    let is_complete = copy_each("get", sources, Get::is_last, |source| get.copy(source.as_bytes(), &destination));
    let report = get.report();
    drop(get);
    volume.close()?;
    if args.recursive && !rustix::process::geteuid().is_root() {
        tell(
            "basalt: get: owners, ACLs, set-uid bits and attributes that only root can set are not kept; run as root to keep them",
        );
    }
    teller.finish(&report, is_complete)
}

fn check(args: &Args, sources: &[OsString], destination: &Path) -> Result<(), Failure> {
    if sources.len() < 2 {
        return Ok(());
    }
    if args.no_target_directory {
        return Err(Failure::usage("--no-target-directory takes only one source"));
    }
    if !destination.is_dir() {
        return Err(
            Failure::at(destination.display(), "no such directory").hint("several sources need an existing directory")
        );
    }
    Ok(())
}
