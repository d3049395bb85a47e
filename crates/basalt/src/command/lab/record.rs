//! `basalt lab record`: shows an image as a file, and records every request to it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use basalt_device::{FileDevice, OpenOptions};
use basalt_traces::expose::{self, ImageFile};
use tracing::level_filters::LevelFilter;

use crate::failure::{DONE, Failure, Outcome, Word};
use crate::mount::recorded::recorder;
use crate::mount::serve::true_path;
use crate::mount::{daemon, logging, signals};
use crate::size;
use crate::target;

/// Mount an image as a file, and record every request to it
///
/// DIR shows a file `image` with the content of IMAGE. Attach a loop device to it, or start a virtual machine on it: every read, write,
/// flush and discard that arrives is recorded in the directory RECORDING. Unmount DIR (`basalt umount DIR`) to end the recording. The
/// command returns when the file is there; a background process serves it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Record any file system of the running kernel, as root:
  basalt lab record --size 1G disk.img /mnt/record --output recording
  device=$(losetup --find --show --direct-io=on /mnt/record/image)
  mkfs.ext4 $device && mount $device /mnt/ext4 && …
  umount /mnt/ext4 && losetup --detach $device && basalt umount /mnt/record
  basalt lab trace recording; basalt lab replay recording copy.img

A discard leaves zeros. A loop device sends discards and requests for zeros alike, as holes.")]
pub struct Args {
    /// Image file or block device
    #[arg(value_hint = clap::ValueHint::FilePath)]
    image: PathBuf,

    /// Directory to mount on
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,

    /// New directory for the recording
    #[arg(long, value_name = "RECORDING", value_hint = clap::ValueHint::DirPath)]
    output: PathBuf,

    /// Create IMAGE, which must not exist yet, with this size
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,

    /// Record the requests without the bytes written; such a recording can be analysed, but not replayed
    #[arg(long)]
    no_content: bool,

    /// Stay in the foreground, and log to standard error
    #[arg(long)]
    foreground: bool,

    /// Be the background process: log to the system log, and say on standard output when the file is there
    #[arg(long, hide = true)]
    background_process: bool,

    /// How long to wait for the image.
    #[command(flatten)]
    patience: target::Patience,
}

/// Runs the command.
///
/// # Errors
/// When the image cannot be opened, DIR cannot be mounted on, or the recording cannot be written.
pub fn run(args: &Args) -> Outcome {
    if args.background_process {
        daemon::detach();
        logging::to_syslog(LevelFilter::INFO);
        serve(args, daemon::ready)?;
        return Ok(DONE);
    }
    if args.foreground {
        logging::to_stderr(LevelFilter::INFO);
        serve(args, || ())?;
        return Ok(DONE);
    }
    start(args)
}

/// Serves in the background.
fn start(args: &Args) -> Outcome {
    let mut arguments: Vec<OsString> = ["lab", "record", "--background-process", "--wait"].map(OsString::from).into();
    arguments.push(args.patience.wait.as_secs_f64().to_string().into());
    if let Some(size) = args.size {
        arguments.extend(["--size".into(), size.to_string().into()]);
    }
    if args.no_content {
        arguments.push("--no-content".into());
    }
    arguments.extend(["--output".into(), args.output.clone().into(), "--".into()]);
    arguments.extend([args.image.clone().into(), args.directory.clone().into()]);
    daemon::start(&arguments)
}

fn serve(args: &Args, ready: impl FnOnce()) -> Result<(), Failure> {
    let directory = true_path(&args.directory).map_err(|error| {
        Failure::at(args.directory.display(), error)
            .hint(format_args!("create it with `mkdir {}`", Word(&args.directory)))
    })?;
    // Before any thread starts: they inherit it.
    basalt_fuse::protect_server();
    expose::keep_in_memory();
    let recorder = Arc::new(recorder(open(args)?, &args.output, !args.no_content)?);
    let file = Arc::new(ImageFile::new(recorder.clone()));
    let session = match expose::mount(file.clone(), &directory) {
        Ok(session) => session,
        Err(error) => {
            recorder.abandon();
            return Err(Failure::new(error));
        }
    };
    let recorded = recorder.clone();
    let finish = Box::new(move || recorded.finish().map(drop).map_err(Failure::new));
    signals::watch(file, session.unmounter(), finish).map_err(|error| Failure::at("waiting for signals", error))?;
    ready();
    let served = session.run();
    let finished = recorder.finish();
    match &finished {
        Ok(description) => {
            let totals = description.totals;
            tracing::info!("{}: recorded {} requests", args.image.display(), totals.requests());
        }
        Err(error) => tracing::error!("{error}"),
    }
    served.map_err(|error| Failure::at(args.image.display(), error))?;
    finished.map(drop).map_err(Failure::new)
}

fn open(args: &Args) -> Result<FileDevice, Failure> {
    // The process will change its directory, and whoever looks for the mount's image needs to find it.
    let path = std::path::absolute(&args.image).map_err(|error| Failure::at(args.image.display(), error))?;
    match args.size {
        Some(size) => FileDevice::create(path, size).map_err(|error| Failure::device(&error)),
        None => target::open(&path, &OpenOptions::default(), args.patience.wait),
    }
}
