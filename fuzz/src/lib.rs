//! What the fuzz targets run: one function a target, from any bytes to no panic.
//!
//! | module | what |
//! |---|---|
//! | `structures` | single structures: superblock, checkpoint, tables, inodes, directory entries, xattrs, kernel requests |
//! | `base` | small volumes that hold something of everything, and where in them each structure is |
//! | `patch` | damage: fields changed, blocks zeroed or swapped, the device cut short; checksums brought up to date |
//! | `guarded` | a device that ends a run which asks for too much |
//! | `script` | operations on a mounted volume |
//! | `trace` | block traces; apart from the rest, which the tests of the engine include |
//! | `volume` | a damaged volume: opened, walked, changed, closed or cut off; checked, rescued, repaired, resized |
//!
//! The tests of the engine include this file: seeded campaigns and the seed corpus run through the same code.

#![forbid(unsafe_code)]

pub mod base;
pub mod guarded;
pub mod patch;
pub mod script;
pub mod structures;
pub mod volume;

pub use structures::{checkpoint, dentry, fuse_request, node_inode, superblock, tables, xattr};
pub use volume::{check, mount_walk_write, repair, rescue, resize};

/// A fuzz target: takes any bytes and returns.
pub type Target = fn(&[u8]);

/// Every target with its name, which is also that of its corpus.
pub const TARGETS: [(&str, Target); 12] = [
    ("superblock", superblock),
    ("checkpoint", checkpoint),
    ("tables", tables),
    ("node_inode", node_inode),
    ("dentry", dentry),
    ("xattr", xattr),
    ("fuse_request", fuse_request),
    ("mount_walk_write", mount_walk_write),
    ("check", check),
    ("repair", repair),
    ("rescue", rescue),
    ("resize", resize),
];
