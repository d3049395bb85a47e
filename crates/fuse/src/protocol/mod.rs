//! The bytes that cross `/dev/fuse`: structures, constants, and the decoding of a request. No I/O, no state.
//!
//! | file | what |
//! |---|---|
//! | [`wire`] | the structures, field by field as in `linux/fuse.h`, with their sizes asserted |
//! | [`flags`] | the bits in their flag words |
//! | [`operation`] | the table of operations: opcode, name, decoder |
//! | [`request`] | one message from the kernel: header and operation |
//! | [`errno`] | the error number for each error of a file system |
//!
//! Everything is in the machine's own byte order; the kernel and the server run on the same machine.

mod errno;
pub mod flags;
pub mod operation;
pub mod request;
pub mod wire;

pub use errno::errno;
pub use operation::Operation;
pub use request::{Fault, Request};

/// The protocol's major version; there has been only this one.
pub const MAJOR: u32 = 7;
/// The minor version this crate speaks: Linux 6.18's.
pub const MINOR: u32 = 45;
/// The oldest minor version served: Linux 5.4's, the first with `NO_OPENDIR_SUPPORT` and `CACHE_SYMLINKS`.
pub const OLDEST_MINOR: u32 = 31;
/// The node id of the root directory, whatever its inode number.
pub const ROOT_NODE: u64 = 1;
