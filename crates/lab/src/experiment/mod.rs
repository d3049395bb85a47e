//! Experiments: small TOML files that say what to vary and what to show.
//!
//! | module | what |
//! |---|---|
//! | [`kinds`] | what a point can be: one file a kind |
//! | `parameter` | parameters and metrics of kinds |
//! | `point` | [`Point`]: one independent command with a deterministic result |
//! | `file` | [`Experiment`]: the file, checked |
//! | `entry` | [`Entry`]: its points, case by case: the product of all lists of a case |
//! | `plan`, `stated` | its plots, and values of others in them |
//! | `change` | other values for settings of a file |
//! | `inputs` | the files that a point reads, by content |
//! | `result` | [`Record`]: what came of a point, as a line of JSON |
//! | `run` | running points, several at a time, stopping, time limits |
//! | `directory` | [`ResultsDirectory`]: `experiment.toml`, `results.jsonl`, `results.parquet`, `report.html` |
//! | `report`, `parquet` | from results to a page and a table |
//!
//! ```toml
//! title = "Write cost over utilization"
//! kind = "engine"
//!
//! [settings]                      # a list is an axis; points are the product of all axes
//! workload = ["zipf:0.99", "uniform"]
//! utilization = [60, 70, 80]
//! size = "1G"
//! seed = [1, 2, 3]                # repetitions: plots show the mean, the least and the largest
//!
//! [[case]]                        # an axis of several settings at a time, with a name for each
//! name = "one section a checkpoint"
//! sections-per-commit = 1
//!
//! [[case]]
//! name = "as a mount does"
//!
//! [[plot]]
//! title = "Write cost"
//! x = "utilization"
//! y = ["write_cost"]
//! ```

mod change;
mod directory;
mod entry;
mod file;
mod inputs;
pub mod kinds;
mod parameter;
mod parquet;
mod plan;
mod point;
mod report;
mod result;
mod run;
mod stated;

pub use change::{Change, with_changes};
pub use directory::{DirectoryError, ResultsDirectory, verdicts_of};
pub use entry::{Entry, SEED};
pub(crate) use file::Wrong;
pub use file::{CASE, Case, Experiment, FileError};
pub use kinds::Kind;
pub use parameter::{Form, Measured, Metric, Parameter};
pub(crate) use plan::RawPlot;
pub use plan::{PlotPlan, Shape};
pub use point::Point;
pub use report::Measurement;
pub use result::Record;
pub use run::{Children, InProcess, Runner, Summary, run};
pub use stated::StatedValue;
