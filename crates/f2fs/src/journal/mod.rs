//! The cleaning journal: victims are free without a checkpoint.
//!
//! Cleaning copies what a victim holds that somebody or something durable needs, and notes each such move. To commit, the moves are
//! written into journal blocks; one flush later the victims are free. Recovery starts from the last checkpoint, applies the moves,
//! and rolls forward. docs/cleaning-journal.md tells the protocol and why none of its hazards can happen.
//!
//! | module | what |
//! |---|---|
//! | [`area`] | where the journal is on the volume, and reading it |
//! | [`guard`] | the mark in the superblock that keeps every other F2FS off while a journal is live |
//! | `moves` | what was moved since the last commit |
//! | `commit` | writing the moves, and freeing what they emptied; or why a checkpoint is better |
//! | `translation` | recovery: where what was at an address went |
//! | `need` | when only a checkpoint helps |
//! | `state` | what an open volume knows of its journal |
//! | `price` | what a checkpoint costs on this device, as measured |
//! | `recover` | recovery: the checkpoint's nodes, tables and summaries brought to where things are |
//!
//! Source: E. Gwak and D. Shin, "Segment Cleaning Journaling", IEEE Access 2021, section IV. Beyond it: node segments are victims too,
//! one flush is enough, moves carry owners, and moves of what an fsync vouches for are applied to the roll-forward chain.

pub mod area;
pub(crate) mod commit;
pub mod guard;
pub(crate) mod live;
pub(crate) mod moves;
mod need;
pub(crate) mod price;
mod recover;
pub(crate) mod state;
pub(crate) mod translation;
pub(crate) mod wait;
