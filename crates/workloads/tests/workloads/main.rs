//! Tests of the workloads, through the crate's public door.
//!
//! | module | what |
//! |---|---|
//! | `engine` | every workload on the F2FS engine: it fits, verifies, repeats, leaves a sound volume |
//! | `contents` | what the engine leaves on a device is on record |
//! | `directory` | a directory of any file system ends up with the same tree |
//! | `page_cache` | the page cache in front of an engine
//! | `streams` | shares, order and repetition of the streams of block numbers |

mod contents;
mod directory;
mod engine;
mod page_cache;
mod streams;
mod support;
