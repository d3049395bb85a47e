//! Sizes and durations as people write them: the lab's, whose files have them too.

pub use basalt_lab::size::{human, parse, seconds, short};
