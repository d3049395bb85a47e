//! The kinds of points: what runs, with which parameters, and what it measures. One file a kind.

use std::str::FromStr;

use super::parameter::{Measured, Metric, Parameter};
use super::point::Point;

pub mod engine;

/// A kind of point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A workload on the F2FS engine on a simulated device: [`engine`].
    Engine,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 1] = [Kind::Engine];

    /// Its name in files and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Engine => "engine",
        }
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Kind::Engine => "a workload on the F2FS engine on a simulated device, in virtual time",
        }
    }

    /// Its parameters.
    #[must_use]
    pub fn parameters(self) -> &'static [Parameter] {
        match self {
            Kind::Engine => engine::PARAMETERS,
        }
    }

    /// What it measures.
    #[must_use]
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Kind::Engine => engine::METRICS,
        }
    }

    /// The metrics that a table shows if nobody chooses others.
    #[must_use]
    pub fn main_metrics(self) -> &'static [&'static str] {
        match self {
            Kind::Engine => engine::MAIN_METRICS,
        }
    }

    /// The metric of this name.
    #[must_use]
    pub fn metric(self, name: &str) -> Option<&'static Metric> {
        self.metrics().iter().find(|metric| metric.name == name)
    }

    /// Which of its parameters has this name.
    ///
    /// # Errors
    /// A text that names those there are.
    pub fn parameter_index(self, name: &str) -> Result<usize, String> {
        let parameters = self.parameters();
        parameters.iter().position(|parameter| parameter.name == name).ok_or_else(|| {
            let known: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
            format!("{} points have no `{name}`; they have {}", self.name(), known.join(", "))
        })
    }

    /// Runs a point of this kind.
    pub(super) fn run(self, point: &Point) -> Result<Measured, String> {
        match self {
            Kind::Engine => engine::run(point),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            format!("`{text}` is no kind of point; there are {}", known.join(", "))
        })
    }
}
