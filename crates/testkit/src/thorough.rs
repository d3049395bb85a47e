//! How much of a long test is run.
//!
//! `make test` is for everybody. Where [`THOROUGH`] is `1`, as in continuous integration, long tests do more of the same.

/// The environment variable with which long tests do all that they can.
pub const THOROUGH: &str = "BASALT_THOROUGH";

/// How many rounds, cuts or the like: `few`, or `many` where [`THOROUGH`] is `1`.
pub fn count(few: u64, many: u64) -> u64 {
    if std::env::var_os(THOROUGH).is_some_and(|value| value == "1") { many } else { few }
}
