//! Basalt and Linux's own F2FS, in User-Mode Linux, take turns on the same volumes, and see the same.
//!
//! | module | what |
//! |---|---|
//! | [`volumes`] | Basalt's side: make, open, close, check |
//! | [`guest`] | Linux's side: mount, do, unmount, several volumes in one boot |
//! | [`listing`] | a manifest of what Basalt sees, to compare with one that Linux wrote |
//! | [`copying`] | a tree of the host's into a volume, through the file-system interface |
//! | [`changes`] | random changes through the file-system interface |
//! | [`variants`] | every kind of volume, made by either, written by both |
//! | [`turns`] | fifty rounds in turn on one volume |
//! | [`layouts`] | large directories, sparse files with every sort of node, large attributes |
//! | [`huge`] | version bitmaps that do not fit the checkpoint's first block |
//! | [`maintenance`] | `resize.f2fs` and Linux's cleaning on what Basalt wrote |
//! | [`resized`] | volumes that Basalt resized |
//! | [`slack`] | thirty rounds in turn on volumes nearly full, whose logs fill slack |
//! | [`unclean`] | power cuts, orphans, torn checkpoints, logs that Linux left in slack |
//! | [`fsync`] | what one fsynced before a power cut, recovered by the other |
//! | [`journal`] | cleaning that a journal committed, and a journal that is live |
//! | [`read_only`] | volumes that Basalt only reads |

mod changes;
mod copying;
mod guest;
mod listing;
mod volumes;

mod fsync;
mod huge;
mod journal;
mod layouts;
mod maintenance;
mod read_only;
mod resized;
mod slack;
mod turns;
mod unclean;
mod variants;
