//! Opens a volume that is not mounted, and finds files in it.
//!
//! | file | what |
//! |---|---|
//! | `open` | from a target to a served volume, and back to a clean one |
//! | `reference` | an inode in use, given back when dropped |
//! | `path` | from a path to an inode, symbolic links included |
//! | `list` | the entries of a directory |

pub mod list;
pub mod open;
pub mod path;
pub mod reference;

pub use open::{OpenVolume, open_to_read, open_to_write};
pub use path::WalkError;
pub use reference::Reference;
