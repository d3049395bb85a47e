//! A device as a file: every request that a kernel sends to that file arrives here, one by one.
//!
//! | module | what |
//! |---|---|
//! | [`image`] | [`ImageFile`]: a file system with a single file, `image`, whose content is a device |
//! | [`serve`] | [`mount`], and [`Exposed`], which serves the mount in a thread |
//!
//! With a loop device on the file, any file system of the running kernel can be used on a device of ours, and with a
//! [`Recorder`](crate::Recorder) in between everything it does is recorded. Neither readahead nor the page cache of the file
//! stands in between: a read is a read, a write is a write, a flush an fsync, and a discard a punched hole. A request larger than
//! a FUSE message (1 MiB) arrives in pieces.
//!
//! **Discard and "write zeros" look the same**: a loop device punches a hole for both, unless the file system forbids to
//! unmap, in which case it asks for zeros, and those are written and recorded as a write.
//!
//! **No deadlock by memory**: when memory is short, the kernel writes the pages of the file system above back, and waits for us.
//! [`do_not_wait_for_writeback`] and [`keep_in_memory`] are for that.

pub mod image;
pub mod serve;

pub use image::{IMAGE_NAME, ImageFile};
pub use serve::{ExposeError, Exposed, do_not_wait_for_writeback, keep_in_memory, mount};
