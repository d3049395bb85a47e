//! Seeded file system workloads, on any engine or directory.
//!
//! | module | what |
//! |---|---|
//! | [`operation`] | the operations that workloads consist of |
//! | [`workload`] | the trait of workloads, and the phases of a run |
//! | [`catalog`] | the workloads there are, and how to get one by its name |
//! | `jobs` | workloads of files: job files of fio, and Filebench's language |
//! | [`settings`] | size, utilization, seed, lengths |
//! | [`files`] | what a target has to offer: engines in this process, directories of any mount |
//! | [`stream`] | which block is written next: Zipf, uniform, hot and cold, TPC-C |
//! | [`mod@run`] | runs a workload on a target, with an observer that has the clock |
//! | [`report`] | what a run reports: counts, bytes, latencies |
//! | [`error`] | errors |
//!
//! Bytes everywhere, times in nanoseconds of the observer's clock. The same seed and settings give the same operations and the
//! same content on every target.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

pub mod catalog;
pub mod error;
pub mod files;
pub mod operation;
pub mod report;
pub mod run;
pub mod settings;
pub mod stream;
pub mod workload;

mod content;
mod fileset;
mod jobs;
mod pool;
mod shadow;
mod specification;

pub use catalog::{Description, by_name, files as job_files, is_file, list};
pub use error::{Error, Result};
pub use files::{DirectoryFiles, Files, Handle, Space, VfsFiles};
pub use files::{List, PAGE, PageCache, PageCacheSettings, PageCacheStatistics};
pub use operation::{File, Kind, Operation};
pub use report::{KindReport, Latencies, LatencySummary, PhaseReport, WorkloadReport};
pub use run::{Event, Observer, Runner, Unobserved, WallClock, run};
pub use settings::{Contents, Limit, Plan, Settings};
pub use stream::Stream;
pub use workload::{Phase, Workload};
