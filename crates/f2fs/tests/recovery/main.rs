//! fsync by roll-forward: what it promised is there after the power went, and nothing else broke.
//!
//! | module | what |
//! |---|---|
//! | [`power`] | a device whose power goes, and a volume on it |
//! | [`content`] | data, sizes, holes, inline data, xattrs |
//! | [`names`] | new files, renames, links, names taken over |
//! | [`ordered`] | what no checkpoint may have without its data: sizes, links, names that replace |
//! | [`rules`] | when an fsync is one flush, when a checkpoint, and when nothing |
//! | [`beside`] | several fsyncs at once |
//! | [`claims`] | a chain that claims a block of another file's, and summaries that name a wrong owner |
//! | [`torn`] | the last inode of Linux's chain, of which only a part arrived |
//! | [`resumed`] | what counts behind such damage |
//! | [`segments`] | damage in a chain that runs through several segments |
//! | [`returned`] | damage under an fsync that had returned |
//! | [`cuts`] | power cuts at random inside fsync and inside recovery |

mod beside;
mod claims;
mod content;
mod cuts;
/// Finds structures on a volume and changes them, checksums brought up to date.
#[allow(dead_code)]
#[path = "../editor/mod.rs"]
mod editor;
mod names;
mod ordered;
mod power;
mod resumed;
mod returned;
mod rules;
mod segments;
mod torn;
