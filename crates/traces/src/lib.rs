//! Block traces: reading, writing, recording and replaying them.
//!
//! | module | what |
//! |---|---|
//! | [`request`] | [`TraceRequest`]: one request, with its time |
//! | [`mod@format`] | the formats that traces come in |
//! | [`reader`] | [`TraceReader`]: the requests of a file, one after the other; bad lines are named and counted |
//! | [`error`] | what can go wrong, in one line each |
//!
//! Offsets and lengths are in bytes, times in nanoseconds since a trace's first request.

pub mod error;
pub mod format;
mod lines;
mod packed;
pub mod reader;
pub mod request;

pub use error::{BadLine, Result, TraceError};
pub use format::{Event, Format};
pub use reader::{Counts, ReadOptions, TraceReader};
pub use request::TraceRequest;
