//! The kinds of F2FS volume met in the wild.
