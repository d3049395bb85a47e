//! Checkpoints: choosing and reading the one to start from, and writing the next.

pub mod block;
pub mod choose;
pub mod fields;
pub(crate) mod half;
pub(crate) mod journals;
pub mod load;
pub(crate) mod mark;
pub mod pack;
pub(crate) mod previous;
pub(crate) mod state;
mod summaries;
mod tables;
mod whole;
pub(crate) mod write;
