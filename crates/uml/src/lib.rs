//! User-Mode Linux (UML): the real kernel as an ordinary process.
//!
//! The guest's root directory is the host's (hostfs), so every program and file of the host is there under the same
//! name. Image files appear as `/dev/ubda`, `/dev/ubdb`…; the first process runs a shell script as root; then the
//! machine powers off and the script's exit status, its output and the kernel's log come back. Booting takes about two
//! seconds and needs no privilege.
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | [`Uml`]: a machine to be started, and running it, never longer than its time limit |
//! | [`result`] | [`UmlResult`]: what a machine left behind |
//! | [`requests`] | the requests that a machine made to one of its images: reads, writes, discards, flushes, in order |
//! | [`error`] | why a machine could not be run |
//!
//! ```no_run
//! # fn main() -> basalt_uml::Result<()> {
//! let result = basalt_uml::Uml::new().run_script("uname -r")?;
//! println!("{}", result.output);
//! # Ok(())
//! # }
//! ```
//!
//! Powering off is not unmounting: what a script leaves mounted is cut off as if by a power failure.
//!
//! A small library is loaded into the kernel's process (`src/preload/`): it completes register state for processors with AMX,
//! and writes down requests. It is compiled with this crate and needs nothing at run time.

pub mod error;
mod guest;
pub mod machine;
mod process;
pub mod requests;
pub mod result;

pub use error::{Error, Result};
pub use guest::quoted;
pub use machine::Uml;
pub use requests::{Request, RequestKind, Requests, RequestsWriter};
pub use result::{Status, UmlResult, complaints};
