//! The form of a job file: sections with options, `[global]` for the jobs behind it.

use super::super::{Line, Source};
use crate::error::Result;

/// An option as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// Its name, without aliases.
    pub(super) name: String,
    /// What is behind `=`; empty without.
    pub(super) value: String,
    pub(super) line: Line,
}

/// A job with its options, those of the global sections before it first: the last of a name counts.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) line: Line,
    pub(super) options: Vec<Given>,
}

/// Jobs of a file at most, and options of a job.
const SECTIONS: usize = 1000;
const OPTIONS: usize = 1000;

/// Takes a file apart.
pub(super) fn sections(source: &Source) -> Result<Vec<Section>> {
    let mut global: Vec<Given> = Vec::new();
    let mut jobs: Vec<Section> = Vec::new();
    let mut in_job = None;
    for (index, whole) in source.text.lines().enumerate() {
        let line = index + 1;
        // fio cuts comments off behind options, too.
        let text = whole.split([';', '#']).next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        if let Some(rest) = text.strip_prefix('[') {
            let name = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| source.error(line, format_args!("`{text}` is not `[name]`")))?;
            in_job = Some(name != "global");
            if name != "global" {
                if jobs.len() == SECTIONS {
                    return Err(source.error(line, format_args!("more than {SECTIONS} jobs")));
                }
                jobs.push(Section { name: name.to_owned(), line, options: global.clone() });
            }
            continue;
        }
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let given = option(source, line, name.trim(), value.trim())?;
        let options = match (in_job, jobs.last_mut()) {
            (Some(false), _) => &mut global,
            (Some(true), Some(job)) => &mut job.options,
            _ => return Err(source.error(line, format_args!("`{text}` stands before the first `[job]`"))),
        };
        set(options, given);
        if options.len() > OPTIONS {
            return Err(source.error(line, format_args!("more than {OPTIONS} options")));
        }
    }
    if jobs.is_empty() {
        return Err(source.error(source.text.lines().count().max(1), "there is no job; write `[name]` and its options"));
    }
    Ok(jobs)
}

/// One option, its name as fio's documentation has it.
pub(super) fn option(source: &Source, line: Line, name: &str, value: &str) -> Result<Given> {
    if name.contains('$') || value.contains("${") || value.starts_with('$') {
        let line = source.error(line, format_args!("`{name}`: variables are not supported; write the value itself"));
        return Err(line);
    }
    let name = match name {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "io_limit" => "io_size",
        "wait_for_previous" => "stonewall",
        "timeout" => "runtime",
        "start_delay" => "startdelay",
        name => name,
    };
    Ok(Given { name: name.to_owned(), value: value.to_owned(), line })
}

/// Sets an option; the last one counts.
pub(super) fn set(options: &mut Vec<Given>, given: Given) {
    // fio's two ways to say one thing replace each other.
    let same = |name: &str| match name {
        "rwmixwrite" => "rwmixread".to_owned(),
        name => name.to_owned(),
    };
    options.retain(|known| same(&known.name) != same(&given.name));
    options.push(given);
}
