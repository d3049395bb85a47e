//! Random trees and random changes to them.
//!
//! The same seed and options give the same tree on every file system that behaves as POSIX says, modification times
//! included, so that one tree can be built twice, on different file systems, and compared. As another user than root,
//! what needs root is left out: owners, device nodes, `trusted` and `security` attributes.

mod attributes;
mod build;
mod mutate;
mod operations;
mod options;
mod random;

pub use build::build_random_tree;
pub use mutate::{MutateOptions, MutateReport, mutate_tree};
pub use options::TreeOptions;
