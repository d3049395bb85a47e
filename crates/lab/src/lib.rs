//! The lab: experiments, comparisons, lifetimes, reproductions and reports on simulated flash.
//!
//! | module | what |
//! |---|---|
//! | [`compare`] | the same workload on Basalt and on the file systems of Linux |
//! | [`engine`] | a workload on the F2FS engine on a simulated device, in virtual time |
//! | [`experiment`] | experiments as files: points that run anywhere, results, their report |
//! | [`lifetime`] | years until a device is worn |
//! | [`reproduce`] | the papers' figures, measured again |
//! | [`report`] | one self-contained HTML page with tables and plots |
//! | [`peers`] | the file systems of Linux, in User-Mode Linux |
//! | [`mod@replay`] | a trace on a simulated device: busy time, write amplification, erases, latencies |
//! | [`size`] | sizes and durations as people write them |
//! | [`trace_load`] | the writes of a trace, on a volume as large as they need |
//! | [`verdicts`] | papers' numbers beside ours: rows, rules, files |
//! | [`volume`] | a run of the volume simulator |

pub mod compare;
pub mod engine;
pub mod experiment;
pub mod lifetime;
pub mod peers;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod size;
pub mod trace_load;
pub mod verdicts;
pub mod volume;
