//! Simulated flash: devices in virtual time, and flash translation layers.
//!
//! | module | what |
//! |---|---|
//! | [`ftl`] | page-level and FAST translation layers: write amplification, erases, wear |
//! | [`device`] | device models and presets, a virtual clock, devices timed by it |
//! | [`profile`] | measures a real device and makes a model of it |
//!
//! Nothing here knows a file system: requests come in, time and counts come out, and the same requests give the same
//! numbers on any machine.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

pub mod device;
pub mod ftl;
#[expect(clippy::disallowed_methods, reason = "it measures real devices by the machine's clock")]
pub mod profile;

pub use device::{
    ChipModel, Cost, DeviceKind, DeviceModel, DeviceStatistics, FORGETTABLE, ForgetfulDevice, KindStatistics,
    LayerReport, Meter, ModelError, TimedDevice, VirtualClock, chip, chips, find, preset, preset_text, presets,
};
pub use ftl::{
    Fast, FastOptions, FtlError, FtlStatistics, Geometry, GeometryError, GeometryOptions, PageLevel, PageLevelOptions,
    TranslationKind, TranslationLayer, Wear,
};
pub use profile::{ProfileError, ProfileOptions};
