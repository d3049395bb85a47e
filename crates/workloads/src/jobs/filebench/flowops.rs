//! Reads the flowops of a thread.

use super::attributes::Attributes;
use super::parse::{FLOWOPS, Parser};
use super::script::{Action, Flowop};
use super::values::Amount;
use crate::error::Result;

/// The highest file number of a thread, as Filebench's `THREADFLOW_MAXFD`.
const HIGHEST_FD: u64 = 128;
/// The largest request, in bytes.
pub(super) const LARGEST: u64 = 1 << 30;

/// `{ flowop … flowop … }`.
pub(super) fn flowops(parser: &mut Parser<'_>) -> Result<Vec<Flowop>> {
    parser.expect('{')?;
    let mut flowops = Vec::new();
    while !parser.accept('}') {
        let line = parser.line();
        let word = parser.name("`flowop` or `}`")?;
        if word != "flowop" {
            return Err(parser.source.error(line, format_args!("thread: `{word}` is not `flowop`")));
        }
        let kind = parser.name("a flowop")?;
        let Some(action) = Action::parse(&kind) else {
            return Err(parser.source.error(line, format_args!("flowop {kind} is not known or not supported")));
        };
        let names: Vec<String> = parser.script.sets.iter().map(|set| set.name.clone()).collect();
        let limited = parser.is_paced() && kind.ends_with("limit");
        let attributes = parser.attributes(&format!("flowop {kind}"), line)?;
        flowops.push(flowop(attributes, action, kind, &names)?);
        if matches!(flowops.last(), Some(flowop) if flowop.kind == "delay" || limited) {
            parser.waits.get_or_insert(line);
        }
        if flowops.len() > FLOWOPS {
            return Err(parser.source.error(line, format_args!("more than {FLOWOPS} flowops")));
        }
    }
    Ok(flowops)
}

fn flowop(mut attributes: Attributes<'_>, action: Action, kind: String, sets: &[String]) -> Result<Flowop> {
    let line = attributes.line;
    let named = match attributes.text("filesetname")? {
        None => attributes.text("filename")?,
        named => named,
    };
    let set = match named {
        None => None,
        Some((line, name)) => {
            let set = sets.iter().position(|known| *known == name);
            Some(set.ok_or_else(|| attributes.error(line, &format!("no fileset `{name}` is defined above")))?)
        }
    };
    if set.is_none() && action.needs_set() {
        return Err(attributes.error(line, "`filesetname` is missing"));
    }
    let fd = attributes.number("fd", 0, 0, HIGHEST_FD)? as usize;
    let source_fd = attributes.number("srcfd", 0, 0, HIGHEST_FD)? as usize;
    let size = attributes.amount("iosize")?;
    let needs_size = matches!(action, Action::Read | Action::Write | Action::Append | Action::AppendRandom);
    if needs_size && size.is_none_or(|size| size.constant() == Some(0)) {
        return Err(attributes.error(line, "`iosize` is missing"));
    }
    if size.is_some_and(|size| size.constant().is_some_and(|size| size > LARGEST)) {
        return Err(attributes.error(line, &format!("iosize is above {LARGEST} bytes")));
    }
    let working_set = match attributes.amount("workingset")? {
        None => attributes.amount("wss")?,
        amount => amount,
    };
    let (random, repeat) = (attributes.flag("random")?, attributes.number("iters", 1, 1, 1_000_000)?);
    let value = if action.finishes() { attributes.number("value", 0, 0, u64::MAX)? } else { 0 };
    if attributes.flag("dsync")? {
        return Err(attributes.error(line, "dsync is not supported: it changes the operations; write a flowop fsync"));
    }
    attributes.ignore(&["name", "directio", "noreadahead"]);
    if action == Action::Wait {
        attributes.ignore(&["value", "target"]);
    }
    attributes.finish()?;
    let working_set = working_set.unwrap_or(Amount::fixed(0));
    Ok(Flowop { line, action, kind, set, fd, source_fd, size, working_set, random, repeat, value })
}
