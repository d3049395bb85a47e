//! Roll-forward: what was fsynced after the last checkpoint, written and recovered.
//!
//! An fsync appends the file's direct nodes and its inode to the warm node log. Each node's footer has the version of the last
//! checkpoint and the address the log goes on at, so that from the checkpoint's position in that log on they make a chain. At
//! open the chain is followed, and every inode that carries an fsync mark gets back what its nodes in the chain say.
//!
//! | module | what |
//! |---|---|
//! | [`scan`] | following the chain, and how much of it counts |
//! | [`forward`] | recovering inodes, addresses, xattrs and names, in memory; the checkpoint of `F2fs::open` makes it durable |
//! | `file` | one file's attributes, blocks and xattrs |
//! | `name` | one file's name |
//!
//! Source: C. Lee et al., "F2FS: A New File System for Flash Storage", FAST 2015, section 2.7.2; which marks and conditions Linux
//! uses: the kernel's `fs/f2fs/file.c` (`need_do_checkpoint`), `node.c` (`f2fs_fsync_node_pages`) and `recovery.c`.

mod file;
pub mod followed;
pub mod forward;
mod name;
pub mod scan;

/// How much of what is behind the last checkpoint is recovered, from most to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The cleaning journal, and what was fsynced.
    All,
    /// The cleaning journal.
    Journal,
    /// As much of a damaged cleaning journal as makes sense.
    RestOfJournal,
}

/// How a volume is recovered.
#[derive(Debug, Clone, Copy)]
pub struct Recovery {
    /// How much.
    pub extent: Extent,
    /// For a repair. Where the SIT contradicts the checkpoint's counts, what is live is found anew, by reading every node; and where the
    /// chain of fsyncs is broken, what counts behind that is recovered too. A mount is read-only instead.
    pub is_repair: bool,
}

impl Recovery {
    /// As a mount does it.
    pub const MOUNT: Recovery = Recovery { extent: Extent::All, is_repair: false };
}
