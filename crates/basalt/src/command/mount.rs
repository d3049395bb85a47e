//! `basalt mount`: mounts a volume; and what mount(8) calls for `mount -t fuse.basalt`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::abandoned;
use crate::failure::{DONE, Failure, Outcome, Word};
use crate::mount::options;
use crate::mount::serve::{Job, serve, true_path};
use crate::mount::{MountChoices, daemon, logging};
use crate::target::Target;

/// Mount a volume
///
/// Returns when the mount serves; a background process serves it until it is unmounted. As root, images are mounted through a loop
/// device, and sync(2), syncfs(2) and umount(8) return when everything is durable. On other mounts use `basalt sync` and
/// `basalt umount`. Data that the kernel has handed over is durable within the commit time.
#[derive(Debug, clap::Args)]
#[command(after_help = options::help() + "\n\nExit codes: 0 mounted, 1 wrong arguments, 32 failed.")]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Directory to mount on
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,

    /// Mount options, separated by commas; see below
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,

    /// Mount read-only; the same as -o ro
    #[arg(short, long)]
    read_only: bool,

    /// Stay in the foreground, and log to standard error
    #[arg(long)]
    foreground: bool,

    /// Be the background process: log to the system log, and say on standard output when the mount serves
    #[arg(long, hide = true)]
    background_process: bool,
}

/// What mount(8) passes to its helpers: `mount.fuse.basalt SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`.
#[derive(Debug, clap::Parser)]
#[command(name = "mount.fuse.basalt", version, about = "Mount a volume; called by mount(8)")]
pub struct HelperArgs {
    /// Image file or block device
    source: PathBuf,

    /// Directory to mount on
    directory: PathBuf,

    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,

    /// Do everything but mount
    #[arg(short, long)]
    fake: bool,

    /// Ignore unknown options
    #[arg(short, long)]
    sloppy: bool,

    /// Ignored: there is no mtab any more
    #[arg(short)]
    no_mtab: bool,

    /// Ignored
    #[arg(short, long)]
    verbose: bool,

    /// Ignored: the type is known
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,

    /// Ignored: mount(8) has entered it
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
}

/// How long a helper waits for a target that is about to be released.
const HELPER_WAIT: Duration = Duration::from_secs(30);

/// Runs the command.
///
/// # Errors
/// Wrong options; a target that cannot be opened, or a directory that cannot be mounted on.
pub fn run(args: &Args) -> Outcome {
    let mut list = args.options.clone();
    if args.read_only {
        list.push("ro".to_owned());
    }
    let job = job(&args.target.path, &args.directory, &list, args.target.patience.wait)?;
    if args.background_process {
        daemon::detach();
        logging::to_syslog(job.choices.log);
        serve(&Job { background: true, ..job }, daemon::ready)?;
        return Ok(DONE);
    }
    if args.foreground {
        logging::to_stderr(job.choices.log);
        serve(&job, || ())?;
        return Ok(DONE);
    }
    start(&job, &list)
}

/// Runs as mount(8)'s helper.
///
/// # Errors
/// As [`run`].
pub fn run_helper(args: HelperArgs) -> Outcome {
    let mut list = args.options;
    if args.sloppy {
        list = known_only(&list);
    }
    let job = job(&args.source, &args.directory, &list, HELPER_WAIT)?;
    if args.fake { Ok(DONE) } else { start(&job, &list) }
}

/// Mounts in the background.
fn start(job: &Job, list: &[String]) -> Outcome {
    let mut arguments: Vec<OsString> = ["mount", "--background-process", "--wait"].map(OsString::from).into();
    arguments.push(job.wait.as_secs_f64().to_string().into());
    for options in list {
        arguments.extend(["-o".into(), options.into()]);
    }
    arguments.push("--".into());
    arguments.push(job.target.clone().into());
    arguments.push(job.directory.clone().into());
    daemon::start(&arguments)
}

fn job(target: &Path, directory: &Path, list: &[String], wait: Duration) -> Result<Job, Failure> {
    let mut choices = MountChoices::default();
    let wrong = |error: String| Failure::usage(error).hint("`basalt mount --help` lists all options");
    list.iter().try_for_each(|options| choices.apply(options)).and_then(|()| choices.settle()).map_err(wrong)?;
    let target = std::fs::canonicalize(target).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::at(target.display(), "no such file or device"),
        _ => Failure::at(target.display(), error),
    })?;
    let directory = true_path(directory).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::at(directory.display(), "mount point does not exist")
            .hint(format_args!("create it with `mkdir {}`", Word(directory))),
        _ => Failure::at(directory.display(), error),
    })?;
    abandoned::release_all(&target, &directory)?;
    Ok(Job { target, directory, choices, wait, background: false })
}

/// The options that are known, for mount(8)'s `-s`.
fn known_only(list: &[String]) -> Vec<String> {
    let options = list.iter().flat_map(|options| options.split(','));
    options.filter(|option| MountChoices::default().apply(option).is_ok()).map(str::to_owned).collect()
}
