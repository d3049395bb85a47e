//! Simulated devices: how long requests take, in virtual time.
//!
//! | module | what |
//! |---|---|
//! | [`queue`] | times requests of which several are under way |
//! | [`model`] | a device's costs as a TOML file gives them |
//! | [`error`] | why a model cannot be had |
//! | [`mod@presets`] | the devices and chips that come with Basalt |
//! | [`mod@chip`] | bare NAND chips |
//! | [`meter`] | times requests, without data |
//! | [`clock`] | virtual time |
//! | [`copies`] | what a translation layer's own work takes |
//! | [`summary`] | a device in a line of a table |
//! | [`timed`] | a block device whose requests take virtual time |
//! | [`statistics`] | requests, bytes, busy time, latencies |
//! | [`forgetful`] | a device that keeps no file data |

pub mod chip;
pub mod clock;
pub mod copies;
pub mod error;
mod flushes;
pub mod forgetful;
pub mod meter;
pub mod model;
mod prefetched;
pub mod presets;
pub mod queue;
pub mod statistics;
mod stripes;
pub mod summary;
pub mod timed;
mod timeline;

pub use chip::ChipModel;
pub use clock::VirtualClock;
pub use copies::CopyCost;
pub use error::ModelError;
pub use forgetful::{FORGETTABLE, ForgetfulDevice};
pub use meter::{Cost, Meter};
pub use model::{Curve, DeviceKind, DeviceModel, Direction, FlashModel, Parallelism};
pub use presets::{chip, chips, find, preset, preset_text, presets};
pub use queue::{Queue, Served};
pub use statistics::{DeviceStatistics, KindStatistics};
pub use summary::DeviceSummary;
pub use timed::{LayerReport, TimedDevice};
