//! Mounting: options, the daemon, serving, logging.
//!
//! | file | what |
//! |---|---|
//! | `options` | what `-o` takes: one table with names, defaults and help |
//! | `defaults` | what a mount does where no option says otherwise |
//! | `policies` | the placements and victim policies of `-o` |
//! | `profile` | what the device is like: a class of devices, or a file that says what was measured |
//! | `daemon` | a copy of this program in the background, and how its parent learns that the mount serves |
//! | `serve` | from target and directory to a served mount to a clean volume |
//! | `counters` | live counters for `basalt stats`, on a socket |
//! | `recorded` | the device of a mount, recorded or not |
//! | `watcher` | a process that aborts the connection when the server is killed |
//! | `signals` | ending it on SIGTERM and the like |
//! | `logging`, `syslog` | where messages go |

mod counters;
pub mod daemon;
mod defaults;
pub mod logging;
pub mod options;
mod policies;
mod profile;
pub(crate) mod recorded;
pub mod serve;
pub(crate) mod signals;
mod syslog;
pub mod watcher;

pub use defaults::MountDefaults;
pub use options::MountChoices;
pub use profile::{Profile, class_of, flash_page_of};
