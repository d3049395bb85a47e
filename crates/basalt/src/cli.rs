//! From arguments to a command to an exit code.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};

use crate::command::{
    cat, clean, completions, defrag, fsck, get, info, lab, ls, man, mkfs, mount, put, rescue, resize, stat, stats,
    sync, tune, umount,
};
use crate::failure::{DONE, Failure, Kind, Outcome, one_line};
use crate::mount::watcher;

/// The name under which mount(8) calls its helper for `mount -t fuse.basalt`, and for the type that mounts then have.
const MOUNT_HELPERS: [&str; 2] = ["mount.fuse.basalt", "mount.fuseblk.basalt"];

/// Flash file systems in userspace: format, mount, check and inspect F2FS volumes
#[derive(Debug, Parser)]
#[command(name = "basalt", version, arg_required_else_help = true, subcommand_required = true, max_term_width = 100)]
#[command(after_help = "A TARGET is an image file or a block device. Sizes take K, M, G and T, powers of 1024.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mkfs(mkfs::Args),
    Mount(mount::Args),
    Umount(umount::Args),
    Sync(sync::Args),
    Clean(clean::Args),
    Defrag(defrag::Args),
    Stats(stats::Args),
    Fsck(fsck::Args),
    Resize(resize::Args),
    Tune(tune::Args),
    Rescue(rescue::Args),
    Info(info::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Stat(stat::Args),
    Get(get::Args),
    Put(put::Args),
    Lab(Box<lab::Args>),
    Man(man::Args),
    Completions(completions::Args),
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Command::Mkfs(_) => "mkfs",
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Sync(_) => "sync",
            Command::Clean(_) => "clean",
            Command::Defrag(_) => "defrag",
            Command::Stats(_) => "stats",
            Command::Fsck(_) => "fsck",
            Command::Resize(_) => "resize",
            Command::Tune(_) => "tune",
            Command::Rescue(_) => "rescue",
            Command::Info(_) => "info",
            Command::Ls(_) => "ls",
            Command::Cat(_) => "cat",
            Command::Stat(_) => "stat",
            Command::Get(_) => "get",
            Command::Put(_) => "put",
            Command::Lab(_) => "lab",
            Command::Man(_) => "man",
            Command::Completions(_) => "completions",
        }
    }

    fn run(self) -> Outcome {
        match self {
            Command::Mkfs(args) => mkfs::run(&args),
            Command::Mount(args) => mount::run(&args),
            Command::Umount(args) => umount::run(&args),
            Command::Sync(args) => sync::run(&args),
            Command::Clean(args) => clean::run(&args),
            Command::Defrag(args) => defrag::run(&args),
            Command::Stats(args) => stats::run(&args),
            Command::Fsck(args) => fsck::run(&args),
            Command::Resize(args) => resize::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Rescue(args) => rescue::run(&args),
            Command::Info(args) => info::run(&args),
            Command::Ls(args) => ls::run(&args),
            Command::Cat(args) => cat::run(&args),
            Command::Stat(args) => stat::run(&args),
            Command::Get(args) => get::run(&args),
            Command::Put(args) => put::run(&args),
            Command::Lab(args) => lab::run(&args),
            Command::Man(args) => man::run(&args),
            Command::Completions(args) => completions::run(&args),
        }
    }
}

/// The definition of the whole command line, for man pages and completions.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Exit codes of a command: for wrong arguments, and for what could not be done. mount and fsck have those of mount(8) and fsck(8).
fn exit_codes(command: &str) -> (u8, u8) {
    match command {
        "mount" => (1, 32),
        "fsck" => (16, 8),
        _ => (2, 1),
    }
}

/// Runs the program with its arguments, its own name first.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // A limit on the size of files is an error of a write (EFBIG), and ends no process that others wait for. It cannot fail.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let arguments: Vec<OsString> = arguments.collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    if called == OsStr::new(watcher::NAME) {
        return watcher::run();
    }
    let code = if MOUNT_HELPERS.iter().any(|name| called == OsStr::new(name)) {
        let parsed = mount::HelperArgs::try_parse_from(&arguments);
        parsed.map_or_else(|error| usage_error(&["mount"], &error), |args| finish("mount", mount::run_helper(args)))
    } else {
        run_command(&arguments)
    };
    ExitCode::from(code)
}

fn run_command(arguments: &[OsString]) -> u8 {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => finish(cli.command.name(), cli.command.run()),
        Err(error) => {
            let words: Vec<&str> = arguments.iter().skip(1).map_while(|word| word.to_str()).collect();
            usage_error(&words, &error)
        }
    }
}

fn finish(command: &str, outcome: Outcome) -> u8 {
    let failure = match outcome {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    let (usage, operation) = exit_codes(command);
    let code = match failure.kind() {
        Kind::Unread => return DONE,
        Kind::Usage => usage,
        Kind::Operation => operation,
    };
    report(command, &failure);
    code
}

/// Prints a failure as one line.
fn report(command: &str, failure: &Failure) {
    // If standard error is closed, the message is lost.
    let _ = writeln!(std::io::stderr(), "basalt: {command}: {}", failure.line());
}

/// The first words that are names of commands: `lab` and `trace` of `lab trace FILE`.
fn commands(words: &[&str]) -> Vec<String> {
    let mut definition = definition();
    let found = words.iter().map_while(|word| {
        definition = definition.find_subcommand(word)?.clone();
        Some(definition.get_name().to_owned())
    });
    found.collect()
}

/// Prints what clap says: help and versions as they are, an error as one line.
fn usage_error(words: &[&str], error: &clap::Error) -> u8 {
    use clap::error::ErrorKind;
    let (usage, _) = exit_codes(words.first().copied().unwrap_or_default());
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader may close the output early, as `| head` does.
            let _ = error.print();
            return DONE;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return usage;
        }
        _ => {}
    }
    let text = error.to_string();
    let what = text.strip_prefix("error: ").unwrap_or(&text);
    let what: Vec<&str> = what.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let commands = commands(words);
    let place = commands.first().map_or_else(|| "basalt: ".to_owned(), |name| format!("basalt: {name}: "));
    let help = format!("basalt {}--help", commands.iter().map(|name| format!("{name} ")).collect::<String>());
    let _ = writeln!(std::io::stderr(), "{place}{}; try `{help}`", one_line(&what.join(" ")));
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_sound() {
        definition().debug_assert();
        mount::HelperArgs::command().debug_assert();
    }
}
