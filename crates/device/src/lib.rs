//! Where bytes rest.
//!
//! | module | what |
//! |---|---|
//! | [`block`] | the [`BlockDevice`] trait, its geometry and errors: the only thing engines see |
//! | [`file`] | image files and block devices (direct I/O), with locks and discard |
//! | [`memory`] | a sparse device in memory |
//! | [`record`] | a wrapper that records every request |
//!
//! Offsets and lengths are in bytes everywhere in this crate.

pub mod block;

pub use block::{BlockDevice, DeviceError, Result};
