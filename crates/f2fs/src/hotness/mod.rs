//! Hotness records: what the placement knows of the volume is kept with it, from one mount to the next.
//!
//! | file | subject |
//! |---|---|
//! | `area` | where they are, and reading them |
//! | `codec` | as bytes, and back |
//! | `state` | what an open volume knows of them |
//! | `keep` | when they are read and written |
//!
//! They are hints, and never truths. Nobody waits for them but opening and closing, no error of theirs counts, and the volume is the same
//! without them. What Linux or another Basalt has changed meanwhile shows in the segments themselves, by their modification times and
//! live blocks, and their records are dropped. Where blocks have only died, the records of the others still hold.
//!
//! Source: SFS (FAST 2012, section 3.3) keeps its group centres with the volume; the records and their place are ours.

mod area;
mod codec;
pub(crate) mod keep;
pub(crate) mod state;
