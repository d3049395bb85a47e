//! Tests of the workloads, through the crate's public door.
//!
//! | module | what |
//! |---|---|
//! | `engine` | every workload on the F2FS engine: it fits, verifies, repeats, leaves a sound volume |
//! | `bounds` | job files that would never end, or take memory without bounds |
//! | `contents` | what the engine leaves on a device is on record |
//! | `directory` | a directory of any file system ends up with the same tree |
//! | `filebench` | files in Filebench's language, likewise |
//! | `fio` | job files of fio: what is read, what is refused, what they do |
//! | `fio_peer` | the same job files with fio itself |
//! | `page_cache` | the page cache in front of an engine
//! | `streams` | shares, order and repetition of the streams of block numbers |

mod bounds;
mod contents;
mod directory;
mod engine;
mod filebench;
mod fio;
mod fio_peer;
mod job_files;
mod page_cache;
mod streams;
mod support;
