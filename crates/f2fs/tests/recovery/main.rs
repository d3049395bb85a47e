//! fsync by roll-forward: what it promised is there after the power went, and nothing else broke.
//!
//! | module | what |
//! |---|---|
//! | [`power`] | a device whose power goes, and a volume on it |
//! | [`content`] | data, sizes, holes, inline data, xattrs |
//! | [`names`] | new files, renames, links, names taken over |
//! | [`rules`] | when an fsync is one flush, when a checkpoint, and when nothing |
//! | [`beside`] | several fsyncs at once |
//! | [`cuts`] | power cuts at random inside fsync and inside recovery |

mod beside;
mod content;
mod cuts;
mod names;
mod power;
mod rules;
