//! The kinds of points: what runs, with which parameters, and what it measures. One file a kind.

use std::str::FromStr;

use basalt_segments::{VictimPolicy, placement};

use super::parameter::{Form, Measured, Metric, Parameter};
use super::point::Point;

pub mod engine;
pub mod replay;
pub mod requests;
pub mod volume;

/// Bytes of a segment.
const SEGMENT: u64 = 2 << 20;
/// A whole number of any size.
const ANY_NUMBER: Form = Form::Number { least: 0, largest: u64::MAX };
/// A size of any number of bytes.
const ANY_SIZE: Form = Form::Size { least: 0 };
/// The same, or a share of the volume's.
const ANY_SHARE: Form = Form::Share { least: 0 };

const fn parameter(name: &'static str, default: &'static str, form: Form, about: &'static str) -> Parameter {
    Parameter { name, default, form, about }
}

/// A kind of point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A workload on the F2FS engine on a simulated device: [`engine`].
    Engine,
    /// A stream of block writes on the volume simulator: [`volume`].
    Volume,
    /// A block trace on a simulated device: [`replay`].
    Replay,
    /// Requests of one size on a simulated device: [`requests`].
    Requests,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Engine, Kind::Volume, Kind::Replay, Kind::Requests];

    /// Its name in files and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Engine => "engine",
            Kind::Volume => "volume",
            Kind::Replay => "replay",
            Kind::Requests => "requests",
        }
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Kind::Engine => "a workload on the F2FS engine on a simulated device, in virtual time",
            Kind::Volume => "a stream of block writes on the volume simulator, without a file system",
            Kind::Replay => "a block trace on a simulated device with a flash translation layer",
            Kind::Requests => "requests of one size on a simulated device, in order or at random",
        }
    }

    /// Its parameters.
    #[must_use]
    pub fn parameters(self) -> &'static [Parameter] {
        match self {
            Kind::Engine => engine::PARAMETERS,
            Kind::Volume => volume::PARAMETERS,
            Kind::Replay => replay::PARAMETERS,
            Kind::Requests => requests::PARAMETERS,
        }
    }

    /// What it measures.
    #[must_use]
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Kind::Engine => engine::METRICS,
            Kind::Volume => volume::METRICS,
            Kind::Replay => replay::METRICS,
            Kind::Requests => requests::METRICS,
        }
    }

    /// The metrics that a table shows if nobody chooses others.
    #[must_use]
    pub fn main_metrics(self) -> &'static [&'static str] {
        match self {
            Kind::Engine => engine::MAIN_METRICS,
            Kind::Volume => volume::MAIN_METRICS,
            Kind::Replay => replay::MAIN_METRICS,
            Kind::Requests => requests::MAIN_METRICS,
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

    /// The name and value that a parameter of an earlier version has now; `None` where it has not changed.
    pub(super) fn renamed(self, name: &str, value: &str) -> Option<(&'static str, String)> {
        matches!((self, name), (Kind::Volume, "free-sections")).then(|| ("cleaning", format!("free:{value}")))
    }

    /// The value that a parameter which a line of an earlier version does not have stood for there, where that is not its default now.
    pub(super) fn before(self, values: &[(&str, String)]) -> Option<(&'static str, &'static str)> {
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        let on_fresh_flash =
            self == Kind::Engine && value("ftl-fill").is_none() && value("ftl").is_some_and(|layer| layer != "none");
        on_fresh_flash.then_some(("ftl-fill", "0"))
    }

    /// Runs a point of this kind.
    pub(super) fn run(self, point: &Point) -> Result<Measured, String> {
        match self {
            Kind::Engine => engine::run(point),
            Kind::Volume => volume::run(point),
            Kind::Replay => replay::run(point),
            Kind::Requests => requests::run(point),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            format!("`{text}` is not a kind of point; expected {}", known.join(", "))
        })
    }
}

/// The placement policy that a point names.
fn placement(point: &Point) -> Result<&'static placement::Policy, String> {
    basalt_schemes::placement_by_name(point.value("placement")).ok_or_else(|| "placement: no such policy".to_owned())
}

/// The victim policy that a parameter of a point names.
fn victim(point: &Point, name: &str) -> Result<&'static dyn VictimPolicy, String> {
    basalt_schemes::victim_by_name(point.value(name)).ok_or_else(|| format!("{name}: no such policy"))
}
