//! Job files of fio as workloads.
//!
//! fio's documentation (`HOWTO`) says what the options mean; where it leaves something open, it is as fio 3.33 does it
//! (`crates/workloads/tests/workloads/fio_peer.rs` runs both). Files that are read, or have `overwrite`, are laid out in the prepare phase;
//! the others are made with their size and a hole, where fio reserves the space. Each thread opens its files when it begins and closes
//! them when it is done.
//!
//! | module | what |
//! |---|---|
//! | `ini` | sections and options |
//! | `values` | sizes and numbers |
//! | `options` | what the options mean |
//! | `cursor` | which block of a file is next |
//! | `thread` | which operation a thread does next |

mod cursor;
mod ini;
mod options;
mod thread;
mod values;

use std::collections::BTreeMap;

use super::{OPEN_FILES, Source, THREADS, directories};
use crate::error::Result;
use crate::fileset::write_range;
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Limit, Plan, Settings, blocks};
use crate::specification::Specification;
use crate::workload::{Phase, Workload, steady, steady_reads};

use cursor::Cursor;
use options::{Job, Order};
use thread::Thread;

/// A file that the prepare phase makes.
#[derive(Debug, Clone)]
struct Layout {
    path: String,
    size: u64,
    /// Written, and not a hole.
    written: bool,
    /// How much of it is written.
    done: u64,
}

/// The jobs of a file.
#[derive(Debug)]
pub(crate) struct FioJobs {
    name: String,
    /// Still to be made in the prepare phase.
    directories: std::vec::IntoIter<String>,
    layouts: std::vec::IntoIter<Layout>,
    /// The file that is being made.
    making: Option<Layout>,
    /// Threads that run side by side, and which of these groups runs.
    groups: Vec<Vec<Thread>>,
    group: usize,
    turn: usize,
    plan: Plan,
}

impl FioJobs {
    /// Options behind the path replace those of every job: `load.fio:size=20%,numjobs=4`.
    pub(crate) fn new(source: &Source, mut options: Specification, settings: &Settings) -> Result<FioJobs> {
        let name = options.whole().to_owned();
        let mut sections = ini::sections(source)?;
        for (key, value) in options.take_all() {
            let given = ini::option(source, 0, &key, &value)?;
            sections.iter_mut().for_each(|section| ini::set(&mut section.options, given.clone()));
        }
        let jobs = sections.into_iter().map(|section| options::job(source, section, settings));
        let jobs = jobs.collect::<Result<Vec<Job>>>()?;
        check_counts(source, &jobs)?;
        let mut groups: Vec<Vec<Job>> = Vec::new();
        for job in jobs {
            match groups.last_mut() {
                Some(group) if !job.stonewall => group.push(job),
                _ => groups.push(vec![job]),
            }
        }
        check_pace(source, &groups)?;
        let writes = groups.iter().flatten().any(|job| job.writes);
        let endless = groups.iter().flatten().any(|job| job.endless);
        let mut files = Files { layouts: BTreeMap::new(), opened: 0, threads: 0, seed: settings.seed };
        let groups: Vec<Vec<Thread>> = groups
            .into_iter()
            .map(|group| group.into_iter().map(|job| files.threads(source, &job)).collect::<Result<Vec<_>>>())
            .map(|group| Ok(group?.into_iter().flatten().collect()))
            .collect::<Result<_>>()?;
        let directories = directories(files.layouts.keys().map(String::as_str));
        if let Some(path) = directories.iter().find(|path| files.layouts.contains_key(*path)) {
            return Err(source.error(0, format_args!("filename: `{path}` is a file and a directory")));
        }
        let layouts: Vec<Layout> = files.layouts.into_values().collect();
        let (age, measure) = match endless {
            true if writes => steady(settings),
            true => steady_reads(settings),
            false => (Limit::Operations(0), Limit::Operations(u64::MAX)),
        };
        let written = layouts.iter().filter(|layout| layout.written);
        let plan = Plan {
            initial_bytes: total(written),
            peak_bytes: total(layouts.iter()),
            files: (layouts.len() + directories.len()) as u64,
            age,
            measure,
        };
        let (directories, layouts) = (directories.into_iter(), layouts.into_iter());
        Ok(FioJobs { name, directories, layouts, making: None, groups, group: 0, turn: 0, plan })
    }

    /// The next operations that make a file.
    fn prepare(&mut self, operations: &mut Vec<Operation>) -> bool {
        const FILE: File = File(0);
        if let Some(path) = self.directories.next() {
            operations.push(Operation::MakeDirectory(path));
            return true;
        }
        if self.making.is_none() {
            let Some(layout) = self.layouts.next() else { return false };
            operations.push(Operation::Create(FILE, layout.path.clone()));
            self.making = Some(layout);
        }
        let Some(layout) = &mut self.making else { return false };
        if layout.written {
            let length = (layout.size - layout.done).min(u64::from(MAX_REQUEST));
            write_range(FILE, layout.done, length, MAX_REQUEST, operations);
            layout.done += length;
        } else {
            operations.push(Operation::Truncate(FILE, layout.size));
            layout.done = layout.size;
        }
        if layout.done == layout.size {
            operations.push(Operation::Close(FILE));
            self.making = None;
        }
        true
    }
}

impl Workload for FioJobs {
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
        while let Some(group) = self.groups.get_mut(self.group) {
            for _ in 0..group.len() {
                let thread = self.turn % group.len();
                self.turn = thread + 1;
                if group[thread].step(operations) {
                    return true;
                }
            }
            self.group += 1;
            self.turn = 0;
        }
        false
    }
}

fn total<'l>(layouts: impl Iterator<Item = &'l Layout>) -> u64 {
    layouts.fold(0, |sum: u64, layout| sum.saturating_add(blocks(layout.size)))
}

/// Bounds what the threads and their open files cost.
fn check_counts(source: &Source, jobs: &[Job]) -> Result<()> {
    let (mut threads, mut files) = (0, 0);
    for job in jobs {
        threads += job.threads;
        files += job.threads * job.files;
        if threads > THREADS {
            return Err(source.error(job.line, format_args!("more than {THREADS} threads; lower numjobs")));
        }
        if files > OPEN_FILES {
            let what = format_args!("more than {OPEN_FILES} open files; lower numjobs or nrfiles");
            return Err(source.error(job.line, what));
        }
    }
    Ok(())
}

/// Time passes for all jobs alike: what slows one down more than another changes the order of operations.
fn check_pace(source: &Source, groups: &[Vec<Job>]) -> Result<()> {
    for group in groups {
        if let Some(job) = group.iter().find(|job| job.pace != group[0].pace) {
            let what = format!(
                "[{}] and [{}] run side by side at different paces (`{}`, `{}`), and a workload has no clock; give both one pace",
                group[0].name, job.name, group[0].pace, job.pace
            );
            return Err(source.error(job.line, what));
        }
    }
    Ok(())
}

/// All files, as threads come to them.
struct Files {
    layouts: BTreeMap<String, Layout>,
    opened: u32,
    threads: u64,
    seed: u64,
}

impl Files {
    /// The threads of a job.
    fn threads(&mut self, source: &Source, job: &Job) -> Result<Vec<Thread>> {
        (0..job.threads).map(|number| self.thread(source, job, number)).collect()
    }

    fn thread(&mut self, source: &Source, job: &Job, number: u64) -> Result<Thread> {
        let size = job.size / job.files;
        let request = job.request[usize::from(!job.reads)];
        // A pass over a file ends when the next request of either direction has no room: it would be over before it begins.
        let largest = if job.reads && job.writes { job.request[0].max(job.request[1]) } else { request };
        let Some(count) = size.checked_div(request).filter(|_| size >= largest) else {
            let what = format!("size: {size} bytes a file are less than one request of {largest}");
            return Err(source.error(job.line, what));
        };
        let Ok(count) = u32::try_from(if job.order == Order::Sequential { 1 } else { count }) else {
            return Err(source.error(job.line, format_args!("{count} blocks at random are more than {}", u32::MAX)));
        };
        self.threads += 1;
        let seed = mixed(self.seed ^ mixed(job.seed) ^ mixed(self.threads));
        let mut cursors = Vec::new();
        for index in 0..job.files {
            let path = path(source, job, number, index)?;
            let layout = self.layouts.entry(path.clone()).or_insert(Layout {
                path: path.clone(),
                size: 0,
                written: false,
                done: 0,
            });
            layout.size = layout.size.max(size);
            layout.written |= job.reads || job.overwrite;
            let seed = mixed(seed ^ index.wrapping_add(1));
            cursors.push(Cursor::new(File(self.opened), path, size, count, job.order, seed));
            self.opened += 1;
        }
        Ok(Thread::new(job.clone(), cursors, seed))
    }
}

/// The path of a file: named, or fio's `job.thread.file`.
fn path(source: &Source, job: &Job, thread: u64, file: u64) -> Result<String> {
    if let Some(names) = &job.names {
        return Ok(names[file as usize].clone());
    }
    // As fio: a name is not a path.
    let name = format!("{}.{thread}.{file}", job.name.replace('/', "."));
    source.below_target(job.line, &format!("{}/{name}", job.directory))
}

/// Another number for every number (SplitMix64's finalizer).
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
