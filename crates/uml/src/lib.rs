//! User-Mode Linux: the real kernel as an ordinary process.
