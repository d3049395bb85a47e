//! The command line, `basalt`.
//!
//! | module | what |
//! |---|---|
//! | [`cli`] | from arguments to a command to an exit code |
//! | [`command`] | one file a command |
//! | [`target`], [`volume`] | opening images and devices; finding files in a volume that is not mounted |
//! | [`transfer`] | copying trees in and out |
//! | [`mount`] | options, the daemon, serving a mount, logging |
//! | [`mounts`], [`abandoned`] | what is mounted; ending mounts whose serving process is gone while the kernel waits for it |
//! | [`statistics`] | the live counters of a mount: asking for them, showing them |
//! | [`failure`], [`output`], [`progress`] | what users see: one line an error, results, a bar for what takes long |
//! | [`size`], [`time`] | numbers as people write them |
//!
//! It is a library so that tests can call its parts; there is no promise that they stay as they are.

pub mod abandoned;
pub mod cli;
pub mod command;
pub mod failure;
pub mod mount;
pub mod mounts;
pub mod output;
pub mod progress;
pub mod size;
pub mod statistics;
pub mod target;
pub mod time;
pub mod transfer;
pub mod volume;
