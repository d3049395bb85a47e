//! `basalt-mutants`: plants many bugs in one copy of the sources, and counts the power cuts until the crash simulator finds each.
//!
//! Every bug is behind a switch that the environment sets, so that one build serves for all of them. Who chooses:
//!
//! - `cargo-mutants`: a shard of its list ([`listed`]),
//! - what that never does, by kinds and a seed ([`kinds`]): a removed flush, note, pin or hold, a checksum that is not compared, two neighbouring
//!   writes swapped, positions off by one,
//! - patches written by hand, each with `planted::is_on("NAME")`.
//!
//! `scripts/mutant-campaign` does all of it: copy, list, plant, build, hunt. docs/crash-testing-mutants.md has the results.

mod edits;
mod hunt;
mod kinds;
mod listed;
mod mutant;
mod plant;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Plants bugs in a copy of the sources, and counts the power cuts until the crash simulator finds each.
#[derive(Debug, Parser)]
#[command(name = "basalt-mutants", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plant bugs in a copy of the sources, each behind a switch, and write their list
    Plant(plant::Options),
    /// Count the power cuts until a crash simulator built from that copy finds each
    Hunt(hunt::Options),
    /// Print the table of what a hunt found, as Markdown
    Table {
        /// What `hunt` wrote
        results: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Plant(options) => plant::plant(&options),
        Command::Hunt(options) => hunt::hunt(&options),
        Command::Table { results } => hunt::table(&results),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("basalt-mutants: {error}");
            ExitCode::FAILURE
        }
    }
}
