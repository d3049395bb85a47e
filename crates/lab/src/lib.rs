//! The lab: experiments, comparisons, lifetimes, reproductions and reports on simulated flash.
