//! `basalt cat`: writes files of a volume to standard output.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use basalt_vfs::path::resolve;
use basalt_vfs::{FileKind, FileSystem};

use crate::failure::{DONE, Failure, Outcome, printable};
use crate::output::{Output, tell};
use crate::target::Target;
use crate::volume::open_to_read;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Write files of a volume to standard output
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Files in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Exit code when a file could not be written out, which was told.
const INCOMPLETE: u8 = 1;

/// Why a file was not written out as a whole.
enum Stop {
    /// It is not there, is no regular file, or cannot be read: the next one may be.
    File(Failure),
    /// Standard output cannot be written.
    Output(Failure),
}

/// Runs the command. What is not there, or cannot be read, is told, and the rest written.
///
/// # Errors
/// When the volume cannot be read, or standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    let volume = open_to_read(&args.target)?;
    let mut output = Output::streaming();
    let mut code = DONE;
    for path in &args.paths {
        if let Err(error) = write_out(volume.files(), path.as_bytes(), &mut output) {
            match error {
                Stop::File(failure) => tell(format_args!("basalt: cat: {}", failure.line())),
                Stop::Output(failure) => return Err(failure),
            }
            code = INCOMPLETE;
        }
    }
    output.finish()?;
    volume.close()?;
    Ok(code)
}

fn write_out(fs: &dyn FileSystem, path: &[u8], output: &mut Output) -> Result<(), Stop> {
    let file = resolve(&fs, path, true).map_err(|error| Stop::File(Failure::path(error)))?;
    let place = || format!("volume:{}", printable(path));
    match file.attributes.kind {
        FileKind::Regular => {}
        FileKind::Directory => {
            return Err(Stop::File(Failure::at(place(), "is a directory").hint("`basalt ls` lists it")));
        }
        _ => return Err(Stop::File(Failure::at(place(), "is not a regular file"))),
    }
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let read = fs.read(file.ino(), at, &mut buffer);
        let length = read.map_err(|error| Stop::File(Failure::at(place(), error)))?;
        if length == 0 {
            return Ok(());
        }
        output.bytes(&buffer[..length]).map_err(Stop::Output)?;
        at += length as u64;
    }
}
