//! `basalt stats`: the live counters of a mount.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::{DONE, Failure, Outcome, Word};
use crate::output::{Output, tell};
use crate::size;
use crate::statistics::{AskError, Document, Source, exposition, lines};

/// Pauses between two looks that make sense: the shortest.
const SHORTEST: Duration = Duration::from_millis(10);
/// Moves to the top of a terminal and empties it.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Show the live counters of a mount
///
/// Shows what was written, cleaned and committed since the volume was mounted. The serving process answers by itself: nothing is written,
/// and the mount is not slowed down. Only root and the user who mounted can see the counters. Amplification is all blocks written for each
/// block of new data.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point, or any path on the mount
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,

    /// Repeat every SECONDS (1), with the change per second beside the totals, until interrupted or unmounted
    #[arg(long, short, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = pause)]
    watch: Option<Duration>,

    /// Print JSON; with --watch one line each time
    #[arg(long)]
    json: bool,

    /// Print Prometheus's text format
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    prometheus: bool,
}

fn pause(text: &str) -> Result<Duration, String> {
    let pause = size::seconds(text)?;
    if pause < SHORTEST { Err(format!("`{text}` is less than {} s", SHORTEST.as_secs_f64())) } else { Ok(pause) }
}

/// Runs the command.
///
/// # Errors
/// When DIR is not on a mount of Basalt, the mount has no counters, or this user may not see them.
pub fn run(args: &Args) -> Outcome {
    let source = Source::of(&args.directory).map_err(|error| failure(args, &error))?;
    let document = source.document().map_err(|error| failure(args, &error))?;
    if let Some(pause) = args.watch {
        return watch(args, &source, document, pause);
    }
    let mut output = Output::new();
    if args.json {
        output.json(&document)?;
    } else if args.prometheus {
        output.bytes(exposition(&document).as_bytes())?;
    } else {
        table(&document, None, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

/// Shows one document after the other until the mount is gone.
fn watch(args: &Args, source: &Source, mut document: Document, pause: Duration) -> Outcome {
    let mut earlier = None;
    loop {
        show(args, &document, earlier.as_ref())?;
        std::thread::sleep(pause);
        let next = match source.document() {
            Ok(next) if next.is_same_mount(&document) => next,
            Ok(_) => break,
            Err(error) if error.is_gone() => break,
            Err(error) => return Err(failure(args, &error)),
        };
        earlier = Some(std::mem::replace(&mut document, next));
    }
    tell(format_args!("basalt: {} is no longer mounted", document.mount.mount_point));
    Ok(DONE)
}

fn show(args: &Args, document: &Document, earlier: Option<&Document>) -> Result<(), Failure> {
    let mut output = Output::streaming();
    if args.json {
        output.json_line(document)?;
    } else {
        if std::io::stdout().is_terminal() {
            output.bytes(CLEAR.as_bytes())?;
        } else if earlier.is_some() {
            output.line("")?;
        }
        table(document, earlier, &mut output)?;
    }
    output.finish()
}

fn table(document: &Document, earlier: Option<&Document>, output: &mut Output) -> Result<(), Failure> {
    lines(document, earlier).iter().try_for_each(|line| output.line(line))
}

fn failure(args: &Args, error: &AskError) -> Failure {
    let failure = Failure::new(error);
    let directory = Word(&args.directory);
    match error {
        AskError::NotBasalt(_) => failure.hint("`findmnt -t fuse.basalt,fuseblk.basalt` lists Basalt's mounts"),
        AskError::Gone(_) => failure.hint(format_args!("`basalt umount {directory}` removes the dead mount")),
        AskError::NoSocket(_) => failure.hint("the process has ended or has no counters; see the system log"),
        AskError::Denied { .. } => failure,
        AskError::Silent { .. } => failure.hint("it may be stopped, or the machine may be overloaded"),
        AskError::Path { .. } | AskError::Answer { .. } => failure,
    }
}
