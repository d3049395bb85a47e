//! Volumes made larger and smaller.
//!
//! | module | what |
//! |---|---|
//! | [`support`] | volumes with content that is known, on memory devices of any size |
//! | [`sizes`] | growing and shrinking, and what is refused |
//! | [`cuts`] | power cuts at every request |

mod cuts;
mod sizes;
mod support;
