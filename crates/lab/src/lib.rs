//! The lab: experiments, comparisons, lifetimes, reproductions and reports on simulated flash.
//!
//! | module | what |
//! |---|---|
//! | [`report`] | one self-contained HTML page with tables and plots |

pub mod report;
