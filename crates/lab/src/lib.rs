//! The lab: experiments, comparisons, lifetimes, reproductions and reports on simulated flash.
//!
//! | module | what |
//! |---|---|
//! | [`mod@replay`] | a trace on a simulated device: busy time, write amplification, erases, latencies |
//! | [`report`] | one self-contained HTML page with tables and plots |

pub mod replay;
pub mod report;
