//! The F2FS engine: reads and writes real F2FS volumes.
//!
//! In the order data flows:
//!
//! | module | what |
//! |---|---|
//! | [`layout`] | the bytes on disk: one structure a file, no behaviour |
//! | `geometry`, [`features`] | a checked superblock: where everything is, and what of it Basalt serves |
//! | `ops` | [`F2fs`]: the file-system interface on a volume; the only door in |
//! | `room` | room for every change: writeback and cleaning, when they are due |
//! | `maintenance` | checkpoints and background work: when they happen |
//! | `submission` | writes that are decided under the volume's lock and handed to the device without it |
//! | `file` | attributes, page cache, reading, writing, truncation, holes, inline data, xattrs |
//! | `dir` | entries, hashes, look-up, rename |
//! | `node` | node cache, node address table, the way from a file offset to a node |
//! | `log` | active logs and the block writer |
//! | `clean` | segment cleaning |
//! | `defragment` | putting the blocks of a file in sequence again, on request |
//! | `discard` | telling the device what is free |
//! | `checkpoint` | reading one, writing the next |
//! | `journal` | committing what was cleaned without a checkpoint, and recovering that |
//! | `hotness` | what the placement knows, kept from one mount to the next |
//! | [`check`](mod@check) | fsck: finds everything that is wrong with a volume |
//! | [`format`](mod@format) | mkfs: makes an empty volume |
//! | [`probe`](mod@probe) | what a device holds, if not an F2FS volume |
//! | `open` | opening: checkpoint, journal, what was fsynced since, orphans |
//! | `volume` | who owns what; put together from a checkpoint |
//! | [`resize`](mod@resize) | a larger or smaller volume, offline |
//! | [`tune`] | adds a cleaning journal to an existing volume, or removes it |
//! | `recovery` | roll-forward: what fsync appends behind a checkpoint, and how it is recovered |
//! | [`repair`] | fsck's other half: makes a volume sound again |
//! | [`rescue`] | what is left of a volume whose superblock, checkpoints or tables are gone |
//! | `info`, `live`, `trim` | facts for people: about a volume, about what an open one is doing; FITRIM |
//! | `learner` | how long the device takes, learned from the engine's requests |
//! | [`error`], `options`, `clock`, `sync` | errors, options, injected time, locks |
//!
//! A volume in memory: made, written, its file made durable, opened again. With a `FileDevice` it is an image file or a block device.
//! [`Files`](basalt_vfs::path::Files) is `std::fs` on a volume; below it is [`FileSystem`](basalt_vfs::FileSystem), by inode numbers.
//!
//! ```
//! use std::io::Write;
//! use std::sync::Arc;
//!
//! use basalt_device::{BlockDevice, MemoryDevice};
//! use basalt_f2fs::check::{CheckOptions, check};
//! use basalt_f2fs::format::{FormatOptions, format};
//! use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
//! use basalt_vfs::FileSystem;
//! use basalt_vfs::path::Files;
//!
//! let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(64 << 20, 512));
//! format(&*device, &FormatOptions::default(), &mut |_done, _total| ())?;
//!
//! let fs = F2fs::open(Arc::clone(&device), OpenOptions::default(), Arc::new(SystemClock))?;
//! let files = Files::new(&fs);
//! files.create_dir_all("/home/user")?;
//! let mut file = files.create("/home/user/greeting")?;
//! file.write_all(b"hello")?;
//! file.sync_all()?; // fsync: from here on, power may fail
//! drop(file);
//! fs.close()?;
//!
//! let fs = F2fs::open(Arc::clone(&device), OpenOptions::default(), Arc::new(SystemClock))?;
//! assert_eq!(Files::new(&fs).read("/home/user/greeting")?, b"hello");
//! let ino = fs.lookup(fs.root(), b"home")?.ino; // the same by inode number
//! assert_eq!(fs.attributes(ino)?.links, 3);
//! fs.forget(ino, 1);
//! fs.close()?;
//!
//! let report = check(&*device, &CheckOptions::default(), &mut |_progress| ())?;
//! assert!(report.faults.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What runs in the background (writeback, checkpoints, cleaning) is [`FileSystem::tick`](basalt_vfs::FileSystem::tick): a program that keeps a
//! volume open calls it now and then. The crate's `examples` make an image file, walk a volume, and use a device of their own.

#![cfg_attr(
    not(test),
    warn(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stderr, clippy::print_stdout)
)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod blocks;
pub mod check;
// Hidden modules are for Basalt's own tests, fuzz targets and crash simulator, which look into a volume; an embedder needs none of them.
#[doc(hidden)]
pub mod checkpoint;
mod clean;
mod clock;
mod closing;
mod content;
mod counts;
mod defragment;
mod delta;
#[doc(hidden)]
pub mod dir;
mod discard;
pub mod error;
pub mod features;
mod file;
mod flushes;
pub mod format;
mod fsync;
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod geometry;
mod hotness;
mod info;
mod inside;
#[doc(hidden)]
pub mod journal;
pub mod layout;
mod learner;
mod live;
mod lock;
mod log;
mod lost_entries;
mod maintenance;
mod merged;
#[cfg_attr(feature = "mutants", doc(hidden))]
pub mod mutant;
mod node;
mod open;
mod ops;
mod options;
pub mod probe;
mod recovery;
pub mod repair;
pub mod rescue;
pub mod resize;
mod room;
mod since;
mod statistics;
mod submission;
mod sync;
#[cfg(all(test, not(feature = "shuttle")))]
mod testing;
mod trim;
pub mod tune;
mod unsealed;
mod volume;

pub use clock::{Clock, SystemClock};
pub use error::{Error, Result};
pub use geometry::Geometry;
pub use info::{Areas, CheckpointInfo, KindInfo, LogInfo, States, Usage, VolumeInfo};
pub use learner::Learner;
pub use lock::F2fs;
pub use options::{Atime, Deltas, OpenOptions, Reclaim, VictimReads};
pub use statistics::{
    CheckpointCause, CheckpointStatistics, CleaningCause, CleaningStatistics, CleaningWork, Counters,
    HotnessStatistics, Statistics,
};
