//! What is to be thought of numbers: papers' numbers beside ours, row by row, with verdicts that rules decide.
//!
//! | module | what |
//! |---|---|
//! | `expectation` | what a paper leads one to expect of a number, and where ours lies beside it |
//! | `verdict` | what is to be thought of that: by rule, from what a row declares |
//! | `item` | a number of a paper and ours, with one seed |
//! | `row` | the same with several seeds: the median, the spread, the verdict |
//! | `file` | [`VerdictFile`]: the rows of an experiment as a file beside it, checked |
//! | `scope` | what expressions of such a file see: numbers of points |
//! | `evaluate` | from a verdict file and results to rows |

mod evaluate;
mod expectation;
mod file;
mod item;
mod row;
mod scope;
mod verdict;

pub use expectation::{Expectation, Position, Side, Tolerance, number};
pub use file::VerdictFile;
pub use item::Item;
pub use row::{BaselineRow, Row};
pub use verdict::{Baseline, Claim, Source, Verdict};
