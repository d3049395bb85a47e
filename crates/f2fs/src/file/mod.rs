//! What an inode holds: attributes, cached pages, data and holes, inline data, extended attributes.

pub mod attributes;
mod block;
pub mod cache;
pub mod data;
pub mod evict;
mod expect;
pub mod extents;
pub mod growth;
pub mod inline;
pub mod page_lists;
pub mod pages;
pub mod ranges;
pub mod read;
pub mod room;
pub mod temperature;
pub mod through;
mod times;
pub mod truncate;
pub mod write;
pub mod writeback;
pub mod xattr;
