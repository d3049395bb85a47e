//! Looks for threads that can never work: files that are opened twice, or used without being open.

use super::super::Source;
use super::script::{Action, Script, ThreadDefinition};
use crate::error::Result;

/// Every thread, for two rounds of its flowops: the second begins as the first has left the files.
pub(super) fn check(source: &Source, script: &Script) -> Result<()> {
    for thread in &script.threads {
        if !thread.flowops.iter().any(|flowop| flowop.action != Action::Wait && !flowop.action.finishes()) {
            return Err(source.error(thread.line, "thread: none of its flowops does anything"));
        }
        let slots = thread.flowops.iter().map(|flowop| flowop.fd.max(flowop.source_fd) + 1).max().unwrap_or(1);
        let mut open: Vec<Option<usize>> = vec![None; slots];
        round(source, script, thread, &mut open)?;
        // What ends the run may end it before the second round.
        if !thread.flowops.iter().any(|flowop| flowop.action.finishes()) {
            round(source, script, thread, &mut open)?;
        }
    }
    Ok(())
}

fn round(source: &Source, script: &Script, thread: &ThreadDefinition, open: &mut [Option<usize>]) -> Result<()> {
    for flowop in &thread.flowops {
        let (action, fd) = (flowop.action, flowop.fd);
        let failed = |what: String| source.error(flowop.line, format_args!("flowop {}: {what}", flowop.kind));
        let uses_file = action.opens() || action.needs_open();
        match (open[fd], flowop.set) {
            (Some(_), _) if matches!(action, Action::Open | Action::Create) => {
                return Err(failed(format!("fd {fd} is open already; close it first")));
            }
            (Some(_), _) if action == Action::Delete && fd > 0 => {
                return Err(failed(format!("fd {fd} is still open; close it first")));
            }
            (None, _) if action.needs_open() => return Err(failed(format!("fd {fd} is not open"))),
            (None, None) if action.opens() => {
                return Err(failed(format!("fd {fd} is not open, and there is no filesetname to open a file of")));
            }
            (None, None) if matches!(action, Action::Delete | Action::Stat) && fd == 0 => {
                return Err(failed("`filesetname` is missing".to_owned()));
            }
            (Some(one), Some(other)) if uses_file && one != other => {
                return Err(failed(format!("fd {fd} is a file of {}", script.sets[one].name)));
            }
            (Some(_), _) if action == Action::Close => open[fd] = None,
            (None, Some(set)) if action.opens() || matches!(action, Action::Open | Action::Create) => {
                open[fd] = Some(set)
            }
            _ => {}
        }
        if flowop.repeat > 1 && matches!(action, Action::Open | Action::Create | Action::Close) {
            return Err(failed("`iters` makes no sense here".to_owned()));
        }
    }
    Ok(())
}
