//! Threads: operations side by side under a scheduler that may go over to another thread at every lock of the engine and at every
//! request to the device, and the power goes at any of these requests.
//!
//! | module | what |
//! |---|---|
//! | [`script`] | what threads do, and where the scheduler switches, as text |
//! | [`stage`] | the scheduler, and the device and clock through which it sees what happens |
//! | [`run`](mod@run) | one life with threads, recorded |
//! | [`oracle`] | what may be there after a power cut, by call and return |
//! | [`generate`] | random workloads |
//! | `busy` | when writing behind ends |
//! | [`explore`] | cutting lives at many moments |
//! | [`shrink`](mod@shrink) | making a finding shorter: fewer threads, steps, switches |
//!
//! The engine that runs is compiled with locks of the scheduler (`crates/f2fs-shuttled`); what a cut leaves is opened by the engine as
//! it is shipped. A thread is a coroutine: all run on one thread of the processor, and one seed gives one run.

mod busy;
pub mod explore;
pub mod generate;
pub mod oracle;
pub mod run;
pub mod script;
pub mod shrink;
pub mod stage;

pub use explore::threads;
