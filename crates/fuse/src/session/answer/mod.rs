//! The answers to the operations, by subject: short methods of [`Server`](super::server::Server) that translate to and
//! from the file system's terms.

mod attributes;
mod content;
mod directory;
mod ioctl;
mod names;
