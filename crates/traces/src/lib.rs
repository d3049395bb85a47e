//! Block traces: reading, writing, recording and replaying them.
//!
//! | module | what |
//! |---|---|
//! | [`request`] | [`TraceRequest`]: one request, with its time |
//! | [`mod@format`] | the formats that traces come in |
//! | [`reader`] | [`TraceReader`]: the requests of a file, one after the other; bad lines are named and counted |
//! | [`writer`] | [`IologWriter`]: fio's iolog |
//! | [`statistics`] | what a trace is like |
//! | [`recorder`] | [`Recorder`]: a device wrapper that records every request |
//! | [`recording`] | [`Recording`]: what a recorder left behind |
//! | [`mod@replay`] | the bytes of a recording onto another device |
//! | [`expose`] | a device as a file, for loop devices and virtual machines |
//! | [`zeroing`] | [`ZeroingDevice`]: a file or device on which discards leave zeros |
//! | [`error`] | what can go wrong, in one line each |
//!
//! ```text
//!  any file system ── loop device ── DIR/image ── FUSE ── expose::ImageFile ── Recorder ── ZeroingDevice ── the image
//!                                                                                │
//!        replay ◄── Recording ◄── trace.fio, content.lz4, recording.json  ◄──────┘
//! ```
//!
//! Offsets and lengths are in bytes, times in nanoseconds since a trace's first request.

pub mod error;
pub mod expose;
pub mod format;
mod lines;
mod packed;
pub mod reader;
pub mod recorder;
pub mod recording;
pub mod replay;
pub mod request;
pub mod statistics;
pub mod writer;
pub mod zeroing;

pub use error::{BadLine, Result, TraceError};
pub use expose::Exposed;
pub use format::{Event, Format};
pub use reader::{Counts, ReadOptions, TraceReader};
pub use recorder::{Clock, RecordOptions, Recorder};
pub use recording::{Description, Recording, Totals};
pub use replay::replay;
pub use request::TraceRequest;
pub use statistics::{KindStatistics, TraceStatistics};
pub use writer::{IologVersion, IologWriter};
pub use zeroing::ZeroingDevice;
