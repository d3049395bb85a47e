//! Slack: the dead blocks of segments that are still in use, and how they are best filled.
//!
//! | file | subject |
//! |---|---|
//! | `times` | [`DeviceTimes`]: how long the device takes for runs of blocks |
//! | `plan` | [`SlackPlan`]: which live blocks are copied out of the way first |
//!
//! Which places may be written again, and who gets them, is the table's: [`SegmentTable::reserve_slack`](crate::SegmentTable::reserve_slack).

mod plan;
mod times;

pub use plan::SlackPlan;
pub(crate) use plan::runs;
pub use times::{DeviceTimes, Point};
