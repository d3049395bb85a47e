//! `basalt-testkit`: random trees and manifests for scripts, above all those inside User-Mode Linux; mappings for tests.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use basalt_testkit::manifest::Parts;
use basalt_testkit::tree::{MutateOptions, TreeOptions, build_random_tree, mutate_tree};
use basalt_testkit::{Error, Manifest, Result};

const USAGE: &str =
    "usage: basalt-testkit build DIRECTORY SEED [files=N,directories=N,max-size=BYTES,crowded=N,no-acls,…]
       basalt-testkit mutate DIRECTORY SEED OPERATIONS [MAX-SIZE] [--clock-times] [--stop-when-full]
       basalt-testkit manifest DIRECTORY [no-times,flags,without=NAME,…]
       basalt-testkit compare DIRECTORY MANIFEST-FILE [no-times,flags,without=NAME,…]
       basalt-testkit map FILE < REQUESTS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("basalt-testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `false` when the arguments are wrong.
fn run(words: &[&str]) -> Result<bool> {
    match words {
        ["build", directory, seed, rest @ ..] if rest.len() <= 1 => {
            let options: TreeOptions = rest.concat().parse()?;
            build_random_tree(Path::new(directory), number(seed)?, &options)?;
        }
        ["mutate", directory, seed, operations, rest @ ..] => {
            let Some(options) = mutate_options(operations, rest)? else {
                return Ok(false);
            };
            let report = mutate_tree(Path::new(directory), number(seed)?, &options)?;
            for (name, count) in &report.done {
                println!("{count:6} {name}");
            }
            if report.full {
                println!("the file system is full");
            }
        }
        ["manifest", directory, rest @ ..] if rest.len() <= 1 => {
            let manifest = Manifest::read(Path::new(directory), &rest.concat().parse::<Parts>()?)?;
            let written = std::io::stdout().lock().write_all(manifest.to_string().as_bytes());
            written.map_err(|source| Error::Io { doing: "write the manifest".to_owned(), source })?;
        }
        ["compare", directory, file, rest @ ..] if rest.len() <= 1 => {
            compare(Path::new(directory), Path::new(file), &rest.concat().parse()?)?;
        }
        ["map", file] => basalt_testkit::mapping::serve(Path::new(file))
            .map_err(|source| Error::Io { doing: format!("write a mapping of {file}"), source })?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn compare(directory: &Path, file: &Path, parts: &Parts) -> Result<()> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| Error::Io { doing: format!("read {}", file.display()), source })?;
    let expected: Manifest = text.parse()?;
    let difference = expected.difference(&Manifest::read(directory, parts)?);
    if difference.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid(format!("{} differs from {}\n{difference}", directory.display(), file.display())))
}

fn mutate_options(operations: &str, rest: &[&str]) -> Result<Option<MutateOptions>> {
    let operations =
        u32::try_from(number(operations)?).map_err(|_| Error::Invalid("too many operations".to_owned()))?;
    let mut options = MutateOptions { operations, ..MutateOptions::default() };
    for word in rest {
        match *word {
            "--clock-times" => options.pin_times = false,
            "--stop-when-full" => options.stop_when_full = true,
            word if word.starts_with('-') => return Ok(None),
            size => options.max_size = number(size)?,
        }
    }
    Ok(Some(options))
}

fn number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::Invalid(format!("not a number: {text}")))
}
