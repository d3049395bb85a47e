//! Which block goes where, and what to clean next: pure decisions.
//!
//! This crate knows no device and no file system. An engine tells it which blocks live and die, and asks:
//!
//! - *where does the next log continue?* — [`SegmentTable::open_segment`];
//! - *which log does this block belong to?* — a [`Placement`];
//! - *which section is cleaned next?* — [`SegmentTable::select_victim`] with a [`VictimPolicy`];
//! - *when is cleaning due, and how much of it?* — a [`cleaning::Cleaner`];
//! - *how does a volume make room for a change?* — [`cleaning::make_room`];
//! - *what may be reused once the checkpoint is durable?* — [`SegmentTable::prefree`] and [`SegmentTable::release`].
//!
//! The units, from small to large: a *block* is 4 KiB; a *segment* is [`BLOCKS_PER_SEGMENT`] blocks, has one entry in
//! the segment information table (SIT) and is what a log fills; a *section* is one or more consecutive segments and is
//! what the cleaner empties.
//!
//! A policy is a small type. This one cleans sections in turn, as a circular log does:
//!
//! ```
//! use basalt_segments::{MainBlock, Section, SectionView, SegmentKind, SegmentTable, VictimPolicy};
//!
//! struct InTurn;
//!
//! impl VictimPolicy for InTurn {
//!     fn name(&self) -> &'static str {
//!         "in-turn"
//!     }
//!
//!     fn about(&self) -> &'static str {
//!         "sections in the order of their numbers"
//!     }
//!
//!     fn cost(&self, section: &SectionView, _now: u64, _oldest: u64, _youngest: u64) -> f64 {
//!         f64::from(section.section.get())
//!     }
//! }
//!
//! let mut table = SegmentTable::new(4, 1);
//! let mut after = None;
//! for time in 1..=3 {
//!     let segment = table.open_segment(SegmentKind::HotData, after).expect("a free segment");
//!     table.set_live(MainBlock::in_segment(segment, 7), time);
//!     table.close_segment(segment);
//!     after = Some(segment);
//! }
//! let victims = [0, 1].map(|cleaned| table.select_victim(&InTurn, 4, &|section| section.get() < cleaned));
//! assert_eq!(victims, [Some(Section::new(0)), Some(Section::new(1))]);
//! ```
//!
//! # Where things are
//!
//! | module | subject |
//! |---|---|
//! | `table` | [`SegmentTable`]: live blocks, segment states, allocation, victim search |
//! | [`placement`] | one file per placement policy |
//! | [`victim`] | one file per victim policy |
//! | `page_lists`, `temperature` | [`Lists`]: a page cache's active and inactive list; [`PageTemperatures`]: which of them a page is on |
//! | [`cleaning`] | when cleaning is due, how much of it, and its plan |
//! | [`slack`] | how the dead blocks of a segment in use are best filled |
//!
//! # Preconditions
//!
//! Segment, section and block numbers are checked by the engine before they come here, because only the engine can
//! name the structure on disk that held a bad one. A number out of range is a fault of the caller and panics.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

mod bitmap;
pub mod cleaning;
mod kind;
mod log_id;
mod main_block;
mod page_lists;
pub mod placement;
mod segment;
pub mod slack;
mod table;
mod temperature;
pub mod victim;

pub use kind::SegmentKind;
pub use log_id::LogId;
pub use main_block::MainBlock;
pub use page_lists::{List, Lists};
pub use placement::{BlockTraits, Placement, Reason, StaticPlacement};
pub use segment::{Section, Segment, Segments};
pub use table::{Durable, Held, MAX_SEGMENTS, Promise, Quiet, SegmentState, SegmentTable, Slack, SlackPlaces};
pub use temperature::{PageTemperatures, Touches};
pub use victim::{CostBenefit, Greedy, Informed, SectionView, VictimPolicy};

/// Blocks in a segment (F2FS: 512, that is 2 MiB).
pub const BLOCKS_PER_SEGMENT: u32 = 512;
