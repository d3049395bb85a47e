//! Seeded file system workloads, on any engine or directory.
