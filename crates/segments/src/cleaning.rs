//! When sections are cleaned, which, and how far: the decisions of a cleaner without its input and output.
//!
//! An engine and the volume simulator are driven by the very same code: before each change they call [`make_room`], which asks them for
//! [`Facts`] and says what to do next: write back, choose victims ([`Cleaner::plan_when_needed`]), move the live blocks that
//! [`SegmentTable::movable`] points at and report how far that came ([`Cleaner::advance`]), commit, or take a checkpoint.
//!
//! | file | subject |
//! |---|---|
//! | `plan` | [`Cleaner`]: the sections to empty, in which order, and how far that has come |
//! | `drive` | [`Driven`], [`make_room`]: the driver decides how a volume makes room for a change |
//! | `pace` | [`Load`] and [`Pressure`]: when it is time, and how much of it one writer waits for |
//! | `commit` | [`Ledger`]: whether what was cleaned is committed by a journal or by a checkpoint |
//! | `victims` | [`Victim`]: what became of each, for whoever wants to look |
//!
//! [`SegmentTable::movable`]: crate::SegmentTable::movable

mod commit;
mod drive;
mod pace;
mod plan;
mod victims;

pub use commit::{Commit, Ledger, Prospect, Rule};
pub use drive::{Driven, Facts, Moved, PIECE, Want, make_room, relieve_memory};
pub use pace::{KeepFree, Load, Pressure};
pub use plan::{Cleaner, Purpose};
pub use victims::{RecentVictims, Victim};
