//! Slack: the dead blocks of segments that are still in use, and how they are best filled.
//!
//! | file | subject |
//! |---|---|
//! | `times` | [`DeviceTimes`]: how long the device takes for runs of blocks |
//! | `plan` | [`SlackPlan`]: which live blocks are copied out of the way first |
//! | `pages` | [`FlashPage`]: the same where a flash page holds several blocks |
//! | `batch` | [`SlackBatch`]: copying them, step by step, and what one commit makes ready |
//! | `classes` | [`DeviceClass`]: the times of usual devices |
//! | `learned` | [`LearnedTimes`]: what the requests of a volume in use tell of its device's times |
//!
//! Which places may be written again, and who gets them, is the table's: [`SegmentTable::reserve_slack`](crate::SegmentTable::reserve_slack).

mod batch;
mod classes;
mod learned;
mod pages;
mod plan;
#[cfg(test)]
mod testing;
mod times;

pub use batch::SlackBatch;
pub use classes::DeviceClass;
pub use learned::{LearnedTimes, TookTime};
pub use pages::FlashPage;
pub(crate) use plan::runs;
pub use plan::{SlackPlan, are_better_emptied};
pub use times::{DeviceTimes, Point};
