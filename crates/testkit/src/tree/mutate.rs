//! Changing a tree at random.

use std::collections::BTreeMap;
use std::path::Path;

use super::operations::{Forest, OPERATIONS};
use crate::error::{Error, Result};
use crate::rng::Rng;

/// How [`mutate_tree`] behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutateOptions {
    /// How many operations.
    pub operations: u32,
    /// The largest piece written at once and the most by which a file grows at once, in bytes.
    pub max_size: u64,
    /// Whether every change is followed by setting the times of what it changed, so that two file systems that get the
    /// same changes stay equal. Otherwise times are the clock's.
    pub pin_times: bool,
    /// Whether running out of space ends the run early without an error.
    pub stop_when_full: bool,
}

impl Default for MutateOptions {
    fn default() -> MutateOptions {
        MutateOptions { operations: 200, max_size: 128 << 10, pin_times: true, stop_when_full: false }
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MutateReport {
    /// How often each operation was done, by name.
    pub done: BTreeMap<&'static str, u32>,
    /// Whether the run ended early for want of space.
    pub full: bool,
}

/// Applies random operations to a tree: creates, writes, truncates, renames, links, deletes, changes attributes.
///
/// The same tree, seed and options give the same result everywhere.
///
/// # Errors
/// When the file system refuses an operation that POSIX allows: the message names it, with its number.
pub fn mutate_tree(directory: &Path, seed: u64, options: &MutateOptions) -> Result<MutateReport> {
    let mut forest = Forest::scan(directory, options)?;
    let mut rng = Rng::new(seed);
    let mut report = MutateReport::default();
    let total = OPERATIONS.iter().map(|operation| operation.weight).sum();
    for number in 0..options.operations {
        let mut ticket = rng.below(total);
        let Some(operation) = OPERATIONS.iter().find(|operation| {
            let chosen = ticket < operation.weight;
            ticket = ticket.saturating_sub(operation.weight);
            chosen
        }) else {
            continue;
        };
        match (operation.apply)(&mut forest, &mut rng) {
            Ok(true) => *report.done.entry(operation.name).or_default() += 1,
            Ok(false) => {}
            Err(error) if options.stop_when_full && is_full(&error) => {
                report.full = true;
                break;
            }
            Err(error) => {
                return Err(Error::Invalid(format!("operation {number} ({}): {error}", operation.name)));
            }
        }
    }
    Ok(report)
}

fn is_full(error: &Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error())
}
