//! Volume simulator: placement and cleaning decisions alone, driven by a stream of block writes.
//!
//! There is no file system and no device: a [`Volume`] is a segment table, a map from blocks to places, and the cleaner's
//! decisions of `basalt-segments`, the same code that the F2FS engine runs. Billions of writes show in minutes what a policy
//! costs.
//!
//! ```
//! use basalt_simulator::{Cleaning, Options, Volume};
//!
//! // 64 MiB with 70 % in use, overwritten from end to end: segments die whole, nothing is ever copied.
//! let options = Options { cleaning: Cleaning::FreeSections { least: 3, victims: 1 }, ..Options::of(64 << 20, 70)? };
//! let blocks = options.blocks;
//! let mut volume = Volume::new(options)?;
//! for _ in 0..4 {
//!     (0..blocks).try_for_each(|block| volume.write(block))?;
//! }
//! assert_eq!(volume.statistics().write_amplification(), 1.0);
//! # Ok::<(), basalt_simulator::Error>(())
//! ```
//!
//! # Where things are
//!
//! | module | subject |
//! |---|---|
//! | `options` | [`Options`]: size, logs, victim policy, when to clean |
//! | `volume` | [`Volume`]: writes, overwrites, checkpoints |
//! | `volume/cleaning` | when it cleans, and moving live blocks |
//! | `volume/file` | the engine's page cache and nodes, for runs that are to match the engine's block for block |
//! | `volume/pool` | SFS's write path: a pool of dirty blocks, and full groups written from it |
//! | `statistics` | [`Statistics`]: copies, victims, write amplification, write cost; [`Memory`] |
//! | `traffic` | [`Traffic`]: what a device below would be asked for |

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

mod error;
mod options;
mod statistics;
mod traffic;
mod volume;

pub use error::Error;
pub use options::{Age, Cleaning, FileModel, LogStart, Options, PoolOptions, WORKING_SECTIONS};
pub use statistics::{Memory, Statistics, UTILIZATION_BINS};
pub use traffic::Traffic;
pub use volume::{PageList, Volume};

/// The victim policies there are, by name.
pub use basalt_segments::victim;

/// Bytes in a block.
pub const BLOCK_SIZE: u64 = 4096;
