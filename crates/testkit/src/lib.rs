//! What Basalt's interop and end-to-end tests need, and nothing of Basalt itself.
//!
//! | module | what |
//! |---|---|
//! | [`uml`] | Linux as an ordinary process (User-Mode Linux): its own F2FS, on any image, in about two seconds |
//! | [`tree`] | random trees and random changes to them; the same seed always gives the same tree |
//! | [`manifest`] | everything a user can see of a tree, as sorted text, with a readable difference |
//! | [`images`] | `mkfs.f2fs`, `fsck.f2fs`, `dump.f2fs`, `resize.f2fs` on image files |
//! | [`variants`] | the kinds of F2FS volume met in the wild, as `mkfs.f2fs` arguments |
//! | [`loopdev`] | loop devices that detach themselves |
//! | [`mapping`] | shared mappings of files, also by another process |
//! | [`recorded`] | results on record, to be the same tomorrow |
//! | [`scratch`] | temporary directories on a real disk |
//! | [`limit`] | limits of time for whatever a test waits for |
//! | [`skip`] | saying that a test cannot run here; an error where nothing may be skipped |
//! | [`thorough`] | how much of a long test is run |
//! | [`shuttled`] | locks whose interleavings a scheduler chooses |
//! | [`rng`], [`hash`] | pinned random numbers and content hashes |
//!
//! The program `basalt-testkit` offers [`tree`] and [`manifest`] to scripts that run inside User-Mode Linux, where the
//! host's files are visible: [`helper::path`] says where it is. `basalt-bench` is what `scripts/bench` runs.

pub mod command;
pub mod error;
pub mod hash;
pub mod helper;
pub mod images;
pub mod limit;
pub mod loopdev;
pub mod manifest;
pub mod mapping;
pub mod namespace;
pub mod recorded;
pub mod scratch;
pub mod shuttled;
pub mod skip;
pub mod thorough;
pub mod tree;
pub mod uml;
pub mod variants;

pub use basalt_random as rng;
pub use error::{Error, Result};
pub use manifest::Manifest;
pub use uml::Uml;
