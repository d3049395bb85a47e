//! When sections are cleaned, which, and how far: the decisions of a cleaner without its input and output.
//!
//! An engine and the volume simulator drive the very same code: both tell it what they have written and what is dirty
//! ([`Load`]), ask how urgent cleaning is ([`Cleaner::pressure`]) and how much of it a change owes ([`Cleaner::due`]), have it
//! choose victims ([`Cleaner::plan_foreground`]), move the live blocks it points at ([`SegmentTable::movable`]), and report how
//! far they came ([`Cleaner::advance`]).
//!
//! | file | subject |
//! |---|---|
//! | `plan` | [`Cleaner`]: the sections to empty, in which order, and how far that has come |
//! | `pace` | [`Load`] and [`Pressure`]: when it is time, and how much of it one writer waits for |
//! | `commit` | [`Ledger`]: whether what was cleaned is committed by a journal or by a checkpoint |
//! | `victims` | [`Victim`]: what became of each, for whoever wants to look |
//!
//! [`SegmentTable::movable`]: crate::SegmentTable::movable

mod commit;
mod pace;
mod plan;
mod victims;

pub use commit::{Commit, Ledger, Prospect, Rule};
pub use pace::{Load, Pressure};
pub use plan::{Cleaner, Purpose};
pub use victims::{RecentVictims, Victim};
