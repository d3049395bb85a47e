//! Workloads in Filebench's language (WML), as its workload files (`varmail.f`) are written.
//!
//! Syntax and meaning are those of Filebench 1.4.9.1 and 1.5 (`parser_gram.y`, `flowop_library.c`, and the wiki's page *Workload model
//! language*). Threads are logical and take turns, one operation each, as those of the built-in `varmail` and `fileserver` do.
//!
//! | module | what |
//! |---|---|
//! | `words` | a text as words |
//! | `values` | numbers, and random variables |
//! | `script` | what a file says |
//! | `attributes`, `parse`, `flowops` | words as a script |
//! | `check` | finds threads that can never work |
//! | `set` | the files of a fileset |
//! | `thread` | which operation a thread does next |

mod attributes;
mod check;
mod flowops;
mod parse;
mod script;
mod set;
mod thread;
mod values;
mod words;

use basalt_random::Rng;

use super::{OPEN_FILES, Source, directories};
use crate::error::{Error, Result};
use crate::operation::{MAX_REQUEST, Operation};
use crate::settings::{BLOCK, Limit, Plan, Settings};
use crate::specification::Specification;
use crate::workload::{Phase, Workload, steady, steady_reads};

use script::{Quit, Script};
use set::Set;
use thread::{Shared, Thread, Turn};

/// Operations that are tried out, to know how large the files get.
const TRIED: u64 = 1_000_000;

/// The processes of a file.
#[derive(Debug, Clone)]
pub(crate) struct Filebench {
    name: String,
    script: Script,
    /// Directories above the filesets', still to be made.
    directories: std::vec::IntoIter<String>,
    /// The fileset that the prepare phase makes next.
    prepared: usize,
    threads: Vec<Thread>,
    turn: usize,
    shared: Shared,
    /// Threads that are at their end.
    done: Vec<bool>,
    plan: Plan,
}

impl Filebench {
    /// Options behind the path replace variables of the file: `mail.f:nfiles=5000,meanfilesize=8k`.
    pub(crate) fn new(source: &Source, mut options: Specification, settings: &Settings) -> Result<Filebench> {
        let name = options.whole().to_owned();
        let script = parse::parse(source, options.take_all())?;
        let entries: u64 = script.sets.iter().map(|set| set.entries).sum();
        // Each file takes a block at least: what cannot fit is not even drawn.
        if entries > settings.size_bytes / BLOCK {
            let (needed, size) = (entries * BLOCK, settings.size_bytes);
            return Err(Error::TooLarge { workload: name, needed, size });
        }
        let mut rng = Rng::new(settings.seed);
        let sets: Vec<Set> = script.sets.iter().map(|set| Set::new(set, &mut rng)).collect();
        // No file is larger than the volume, made beforehand or not.
        if let Some(needed) = sets.iter().filter_map(Set::largest).max().filter(|bytes| *bytes > settings.size_bytes) {
            return Err(Error::TooLarge { workload: name, needed, size: settings.size_bytes });
        }
        let directories = directories(script.sets.iter().map(|set| set.root.as_str()));
        let (threads, opened) = threads(&script);
        if opened > OPEN_FILES {
            let line = script.threads.last().map_or(0, |thread| thread.line);
            return Err(source.error(line, format_args!("more than {OPEN_FILES} open files; lower instances")));
        }
        let initial_bytes = sets.iter().fold(0_u64, |sum, set| sum.saturating_add(set.bytes));
        let files = sets.iter().map(|set| set.files.count()).sum::<u64>() + directories.len() as u64;
        let writes = script.threads.iter().flat_map(|thread| &thread.flowops).any(|flowop| flowop.action.writes());
        let (age, measure) = if writes { steady(settings) } else { steady_reads(settings) };
        let plan = Plan { initial_bytes, peak_bytes: initial_bytes, files, age, measure };
        let done = vec![false; threads.len()];
        let shared = Shared { sets, rng, count: 0, bytes: 0, finished: false };
        let directories = directories.into_iter();
        let mut workload = Filebench { name, script, directories, prepared: 0, threads, turn: 0, shared, done, plan };
        if initial_bytes <= settings.size_bytes {
            workload.try_out(settings);
        }
        Ok(workload)
    }

    /// Finds out how large the files get in as many bytes as the run writes, and whether the run comes to an end by itself, by doing it
    /// without a target.
    fn try_out(&mut self, settings: &Settings) {
        let ends = |flowop: &script::Flowop| flowop.action.finishes();
        let may_end = self.script.quit != Quit::Timeout
            || self.script.threads.iter().flat_map(|thread| &thread.flowops).any(ends);
        let wanted =
            Wanted::new([settings.age.unwrap_or(self.plan.age), settings.measure.unwrap_or(self.plan.measure)]);
        let mut trial = self.clone();
        let mut operations = Vec::new();
        let (mut written, mut peak, mut tried) = (0, self.plan.initial_bytes, 0);
        let mut halfway = (0, peak);
        while tried < TRIED && (may_end || wanted.is_more_than(written, tried)) {
            operations.clear();
            if !trial.step(Phase::Measure, &mut operations) {
                if may_end {
                    (self.plan.age, self.plan.measure) = (Limit::Operations(0), Limit::Operations(u64::MAX));
                }
                break;
            }
            for operation in &operations {
                tried += 1;
                if let Operation::Write { length, .. } = operation {
                    written += u64::from(*length);
                }
            }
            peak = peak.max(trial.bytes());
            if tried <= TRIED / 2 {
                halfway = (written, trial.bytes());
            }
        }
        self.plan.peak_bytes = peak;
        // What still grows when the trial is cut off goes on so.
        if tried >= TRIED && wanted.bytes > written && written > halfway.0 {
            let growth = trial.bytes().saturating_sub(halfway.1) as f64 / (written - halfway.0) as f64;
            self.plan.peak_bytes = peak.saturating_add((growth * (wanted.bytes - written) as f64) as u64);
        }
    }

    /// Bytes of all files now, in whole blocks.
    fn bytes(&self) -> u64 {
        self.shared.sets.iter().map(|set| set.bytes).sum()
    }

    fn prepare(&mut self, operations: &mut Vec<Operation>) -> bool {
        if let Some(path) = self.directories.next() {
            operations.push(Operation::MakeDirectory(path));
            return true;
        }
        let before = operations.len();
        while let Some(set) = self.shared.sets.get_mut(self.prepared) {
            let mut made = Vec::new();
            if set.files.prepare(MAX_REQUEST, &mut made) {
                operations.append(&mut made);
                break;
            }
            self.prepared += 1;
        }
        operations.len() > before
    }

    /// A thread found no file for what it had to do.
    fn out_of_files(&mut self, thread: usize) {
        match self.script.quit {
            Quit::Timeout => {}
            Quit::FirstDone => self.shared.finished = true,
            Quit::AllDone => self.done[thread] = true,
        }
    }
}

impl Workload for Filebench {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase == Phase::Prepare {
            return self.prepare(operations);
        }
        // Two rounds in which nobody finds anything to do are the end.
        for _ in 0..self.threads.len() * 2 {
            if self.shared.finished {
                return false;
            }
            let index = self.turn;
            self.turn = (index + 1) % self.threads.len();
            if self.done[index] {
                continue;
            }
            let thread = &mut self.threads[index];
            let definition = &self.script.threads[thread.definition];
            let to_the_end = self.script.quit == Quit::Timeout;
            match thread.turn(definition, to_the_end, &mut self.shared, operations) {
                Turn::Operation => return true,
                Turn::OutOfFiles => self.out_of_files(index),
                Turn::Nothing => {}
            }
        }
        false
    }
}

/// What two phases do together.
struct Wanted {
    bytes: u64,
    operations: u64,
    /// One of them ends by time.
    timed: bool,
}

impl Wanted {
    fn new(limits: [Limit; 2]) -> Wanted {
        let mut wanted = Wanted { bytes: 0, operations: 0, timed: false };
        for limit in limits {
            match limit {
                Limit::Bytes(bytes) => wanted.bytes = wanted.bytes.saturating_add(bytes),
                Limit::Operations(count) => wanted.operations = wanted.operations.saturating_add(count),
                Limit::Nanoseconds(_) => wanted.timed = true,
            }
        }
        wanted
    }

    fn is_more_than(&self, bytes: u64, operations: u64) -> bool {
        self.timed || bytes < self.bytes || operations < self.operations
    }
}

/// All threads, and how many file numbers they have together.
fn threads(script: &Script) -> (Vec<Thread>, u64) {
    let mut threads = Vec::new();
    let mut base: u64 = 0;
    for (number, definition) in script.threads.iter().enumerate() {
        let slots = definition.flowops.iter().map(|flowop| flowop.fd.max(flowop.source_fd) + 1).max().unwrap_or(1);
        for _ in 0..definition.count {
            threads.push(Thread::new(number, slots, u32::try_from(base).unwrap_or(u32::MAX)));
            base += slots as u64;
        }
    }
    (threads, base)
}
