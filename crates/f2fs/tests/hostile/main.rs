//! Damaged volumes: nothing on disk may make the engine panic, hang, or take memory without bound, and what is wrong is said.
//!
//! | module | what |
//! |---|---|
//! | `campaign` | thousands of seeds of random damage; `BASALT_HOSTILE_SEED=17` repeats one, `BASALT_HOSTILE_TIMES=10` runs ten times as many |
//! | `replay` | the seed corpus of the fuzz targets |
//! | `superblock`, `checkpoint`, `tables`, `inode`, `directory` | each kind of damage by name |

mod campaign;
mod checkpoint;
mod directory;
/// Finds structures on a volume and changes them, checksums brought up to date.
#[allow(dead_code)]
#[path = "../editor/mod.rs"]
mod editor;
mod inode;
mod replay;
mod superblock;
mod support;
mod tables;

/// What the fuzz targets run.
#[allow(dead_code, missing_docs)]
#[path = "../../../../fuzz/src/lib.rs"]
mod fuzz;
