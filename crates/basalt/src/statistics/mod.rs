//! The live counters of a mount: what the serving process tells, and what `basalt stats` makes of it.
//!
//! | file | what |
//! |---|---|
//! | `document` | what is told: one JSON document |
//! | `fields` | the numbers in it: those that every engine has, and those of one engine |
//! | `farewell` | how a mount ended, sent to programs that unmount it |
//! | `place` | where the socket of a mount is, found from the mount's device number |
//! | `ask` | the client's side: a document from the socket of a path's mount |
//! | `table` | a document as people read it, and what changed since an earlier one |
//! | `prometheus` | a document in Prometheus's text format |
//!
//! The server's side is `mount::counters`. The protocol, of the counters: each client that connects gets one document;
//! then the connection is closed. Nothing is read from clients.

mod ask;
mod document;
pub(crate) mod farewell;
mod fields;
pub(crate) mod place;
mod prometheus;
mod table;

pub use ask::{AskError, Source};
pub use document::{Document, MountFacts, PlannedBy, VolumeFacts};
pub use prometheus::exposition;
pub use table::lines;
