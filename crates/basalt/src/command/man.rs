//! `basalt man`: writes the manual pages, for packages and `make install`.

use std::path::{Path, PathBuf};

use clap_mangen::Man;

use crate::failure::{DONE, Failure, Outcome};

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// Directory for the pages, created if needed
    #[arg(value_name = "DIR", required_unless_present = "out")]
    directory: Option<PathBuf>,

    /// The same as DIR
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    out: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When the pages cannot be written.
pub fn run(args: &Args) -> Outcome {
    let Some(directory) = args.directory.as_ref().or(args.out.as_ref()) else {
        return Err(Failure::usage("no directory given"));
    };
    std::fs::create_dir_all(directory).map_err(|error| Failure::at(directory.display(), error))?;
    let mut definition = crate::cli::definition().disable_help_subcommand(true);
    definition.build();
    write_all(directory, "basalt", &definition)?;
    Ok(DONE)
}

/// The page of a command, and those of the commands below it.
fn write_all(directory: &Path, name: &str, command: &clap::Command) -> Result<(), Failure> {
    write(directory, name, command.clone().version(env!("CARGO_PKG_VERSION")))?;
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
        write_all(directory, &format!("{name}-{}", part.get_name()), &part.clone().disable_help_subcommand(true))?;
    }
    Ok(())
}

fn write(directory: &Path, name: &str, command: clap::Command) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.1"));
    let page = Man::new(command)
        .title(name.to_uppercase())
        .manual("Basalt")
        .source(concat!("basalt ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    let written = page.render(&mut text).and_then(|()| std::fs::write(&path, text));
    written.map_err(|error| Failure::at(path.display(), error))
}
