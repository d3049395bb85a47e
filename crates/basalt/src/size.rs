//! Sizes and durations as people write them: the lab's, whose files have them too.

pub use basalt_lab::size::{human, parse, seconds, short};

/// A number of jobs, as an option has it.
///
/// # Errors
/// What is expected.
pub fn jobs(text: &str) -> Result<std::num::NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number from 1".to_owned())
}
