//! The mount as users have it: the real program, the real kernel, real programs on top, `fsck.f2fs` at the end of every test.
//!
//! | module | what is held against the mount |
//! |---|---|
//! | `posix` | pjdfstest; random reads, writes, mappings and holes in one file, as fsx does; both on a FlashLight volume as well |
//! | `programs` | git, SQLite, rsync, tar, cp |
//! | `durability` | what is there after the process was killed: sync, syncfs, umount, fsync, the commit interval, load |
//! | `kills` | the process killed many times under writers that use fsync |
//! | `cuts` | power cuts under the kernel's page cache, direct and synchronous writes, over a device that remembers all |
//! | `databases` | SQLite and PostgreSQL, killed likewise |
//! | `space` | full volumes |
//! | `clean` | `basalt clean`, and what tools for Linux's F2FS ask for |
//! | `defrag` | `basalt defrag`, and the same by the ioctl of Linux's F2FS |
//! | `placements` | placements and victim policies, in turns on one volume |
//! | `faults` | a device that takes no more |
//! | `names` | large directories, long and strange names, renames, unnamed files |
//! | `attributes` | times, ACLs, flags, set-uid, special files |
//! | `privileges` | set-uid and set-gid bits and file capabilities go when content changes, as on ext4 |
//! | `clocks` | times in the order of what happened, and as they were shown |
//! | `coherence` | direct writes, also asynchronous ones, beside readers through the page cache |
//! | `hanging` | servers that are killed while the kernel waits for them: nobody else waits |
//! | `system` | what the system sees: df, findmnt, losetup, fstrim, locks, read-only mounts |
//! | `threads` | many at once |
//! | `counters`, `owners` | `basalt stats`: what a mount tells about itself; to whom |

mod attributes;
mod clean;
mod clocks;
mod coherence;
mod counters;
mod cuts;
mod databases;
mod defrag;
mod durability;
mod faults;
mod fixture;
mod fsx;
mod hanging;
mod kills;
mod names;
mod owners;
mod placements;
mod posix;
mod privileges;
mod programs;
mod shortage;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod system;
mod threads;
