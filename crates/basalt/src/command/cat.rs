//! `basalt cat`: writes files of a volume to standard output.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use basalt_vfs::path::resolve;
use basalt_vfs::{FileKind, FileSystem};

use crate::failure::{DONE, Failure, Outcome, printable};
use crate::output::Output;
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

/// Runs the command.
///
/// # Errors
/// When a file does not exist, is no regular file, or cannot be read.
pub fn run(args: &Args) -> Outcome {
    let volume = open_to_read(&args.target)?;
    let mut output = Output::streaming();
    for path in &args.paths {
        write_out(&volume.fs, path.as_bytes(), &mut output)?;
    }
    output.finish()?;
    volume.close()?;
    Ok(DONE)
}

fn write_out(fs: &dyn FileSystem, path: &[u8], output: &mut Output) -> Result<(), Failure> {
    let file = resolve(&fs, path, true).map_err(Failure::path)?;
    let place = || format!("volume:{}", printable(path));
    match file.attributes.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Failure::at(place(), "is a directory").hint("`basalt ls` lists it")),
        _ => return Err(Failure::at(place(), "is not a regular file")),
    }
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let length = fs.read(file.ino(), at, &mut buffer).map_err(|error| Failure::at(place(), error))?;
        if length == 0 {
            return Ok(());
        }
        output.bytes(&buffer[..length])?;
        at += length as u64;
    }
}
