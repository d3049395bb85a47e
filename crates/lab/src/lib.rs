//! The lab: experiments, comparisons, lifetimes, reproductions and reports on simulated flash.
//!
//! | module | what |
//! |---|---|
//! | [`engine`] | a workload on the F2FS engine on a simulated device, in virtual time |
//! | [`experiment`] | experiments as files: points that run anywhere, results, their report |
//! | [`lifetime`] | years until a device is worn |
//! | [`reproduce`] | the papers' figures, measured again |
//! | [`report`] | one self-contained HTML page with tables and plots |
//! | [`mod@replay`] | a trace on a simulated device: busy time, write amplification, erases, latencies |
//! | [`size`] | sizes and durations as people write them |

pub mod engine;
pub mod experiment;
pub mod lifetime;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod size;
