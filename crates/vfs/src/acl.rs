//! POSIX ACLs.
