//! Where bytes rest.
//!
//! | module | what |
//! |---|---|
//! | [`block`] | the [`BlockDevice`] trait, its geometry and errors: the only thing engines see |
//! | [`mod@file`] | image files and block devices (direct I/O), with locks and discard |
//! | [`loopdev`] | loop devices: a block device's name for an image file |
//! | [`memory`] | a sparse device in memory, with cheap snapshots |
//! | [`compact`] | a device in memory on which blocks of one byte take none |
//! | [`request`] | one request as a value: what the wrappers record and decide on |
//! | [`layer`] | what a device in front of another has to say |
//! | [`record`] | a wrapper that records every request |
//! | [`fault`] | a wrapper that makes requests fail |
//! | [`stopwatch`] | a wrapper that tells how long requests take |
//! | [`power`] | a device with a volatile write cache, and what power cuts leave of it |
//!
//! Offsets and lengths are in bytes everywhere in this crate.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod block;
pub mod compact;
pub mod fault;
pub mod file;
pub mod layer;
pub mod loopdev;
pub mod memory;
pub mod power;
mod range;
pub mod record;
pub mod request;
pub mod stopwatch;

pub use block::{BlockDevice, DeviceError, Result};
pub use compact::{CompactBlock, CompactDevice};
pub use fault::FaultyDevice;
pub use file::{FileDevice, Hardware, Lock, OpenOptions};
pub use layer::DeviceLayer;
pub use loopdev::LoopDevice;
pub use memory::{Counters, MemoryDevice};
pub use power::{FlashPages, PowerCutDevice, Replay};
pub use record::RecordingDevice;
pub use request::{Request, RequestKind};
pub use stopwatch::{Stopwatch, StopwatchDevice, Timed};
