//! Active logs: where the next block goes, who owns it, and how it reaches the device.
//!
//! | module | what |
//! |---|---|
//! | [`active`] | the state of each log |
//! | `logs` | all logs of a volume, by their id |
//! | `place` | taking the next block of a log, and giving blocks up |
//! | `slack` | segments in use whose dead blocks are written again |
//! | `stock` | the slack that is reserved for the logs |
//! | [`writer`] | blocks on their way to the device, joined to large requests |
//! | `chain` | the roll-forward chain behind a checkpoint |

pub mod active;
mod chain;
pub(crate) mod logs;
mod place;
pub(crate) mod slack;
pub(crate) mod stock;
pub(crate) mod tallies;
pub mod writer;
