//! `basalt fsck --explain`: what kinds of faults mean, and what a repair does about them.

use basalt_f2fs::check::FaultKind;
use basalt_f2fs::repair::advice;

use super::severity_name;
use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;

/// The word that lists all kinds.
const LIST: &str = "list";
/// The word for the kinds that were found.
pub(super) const FOUND: &str = "found";

/// Explains a kind by its name, or lists all of them. Needs no volume.
pub(super) fn run(name: &str, json: bool) -> Outcome {
    let kinds: Vec<FaultKind> = match FaultKind::ALL.iter().find(|kind| kind.name() == name) {
        Some(kind) => vec![*kind],
        None if name == LIST => FaultKind::ALL.to_vec(),
        None => {
            let line = format!("--explain: unknown kind of fault {name:?}");
            return Err(Failure::usage(line).hint("`basalt fsck --explain list` lists all kinds"));
        }
    };
    let mut output = Output::new();
    if json {
        let described: Vec<_> = kinds.into_iter().map(Description::of).collect();
        output.json(&described)?;
    } else if name == LIST {
        for kind in kinds {
            output.line(format_args!("{:<24} {}", kind.name(), severity_name(kind.severity())))?;
        }
    } else {
        explain(&kinds, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

/// Writes what each kind means.
pub(super) fn explain(kinds: &[FaultKind], output: &mut Output) -> Result<(), Failure> {
    for kind in kinds {
        output.line(format_args!("{kind} ({})", severity_name(kind.severity())))?;
        output.line(format_args!("  {}", kind.explain()))?;
        output.line(format_args!("  Repair: {}", advice(*kind)))?;
    }
    Ok(())
}

/// A kind of fault, for programs.
#[derive(serde::Serialize)]
struct Description {
    kind: FaultKind,
    severity: &'static str,
    means: &'static str,
    repair: &'static str,
}

impl Description {
    fn of(kind: FaultKind) -> Description {
        Description { kind, severity: severity_name(kind.severity()), means: kind.explain(), repair: advice(kind) }
    }
}
