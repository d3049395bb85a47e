//! A bug to plant, and what became of it.

use serde::{Deserialize, Serialize};

/// A bug to plant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mutant {
    /// What switches it on: `BASALT_PLANTED=name`.
    pub name: String,
    /// Where it is and what it changes, in a line.
    pub what: String,
}

/// How a hunt ended.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", tag = "end")]
pub enum End {
    /// The simulator has found something.
    Found {
        /// The mode of the run that found it.
        mode: String,
        /// Power cuts made by then, in all modes.
        cuts: u64,
        /// What was violated, the first line.
        violation: String,
    },
    /// Nothing was violated by so many cuts.
    Survived {
        /// Power cuts made.
        cuts: u64,
    },
    /// The simulator has not come to its end in time: no finding.
    TimedOut,
}

/// A bug and how its hunt ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hunted {
    /// The bug.
    #[serde(flatten)]
    pub mutant: Mutant,
    /// How it ended.
    #[serde(flatten)]
    pub end: End,
}
