//! Roll-forward: what was fsynced after the last checkpoint, written and recovered.
//!
//! An fsync appends the file's direct nodes and its inode to the warm node log. Each node's footer has the version of the last
//! checkpoint and the address the log goes on at, so that from the checkpoint's position in that log on they make a chain. At
//! open the chain is followed, and every inode that carries an fsync mark gets back what its nodes in the chain say.
//!
//! | module | what |
//! |---|---|
//! | [`scan`] | following the chain, and how much of it counts |
//! | `inside` | whether an inode that is its own seal counts |
//! | [`forward`] | recovering inodes, addresses, xattrs and names, in memory; the checkpoint of `F2fs::open` makes it durable |
//! | `file` | one file's attributes, blocks and xattrs |
//! | `delta` | what deltas tell of one file |
//! | `name` | one file's name |
//!
//! Source: C. Lee et al., "F2FS: A New File System for Flash Storage", FAST 2015, section 2.7.2; which marks and conditions Linux
//! uses: the kernel's `fs/f2fs/file.c` (`need_do_checkpoint`), `node.c` (`f2fs_fsync_node_pages`) and `recovery.c`.

mod delta;
mod file;
pub mod followed;
pub mod forward;
mod inside;
mod name;
pub mod scan;
