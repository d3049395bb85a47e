//! The file systems that Basalt is held against: those of Linux, run in User-Mode Linux on an image whose requests are recorded.
//!
//! | module | what |
//! |---|---|
//! | this one | [`Peer`]: which there are, and what each needs |
//! | `script` | how each is formatted, mounted and set up in the machine |
//! | [`mod@run`] | a machine with a peer in it, and a program on the peer |
//! | [`guest`] | that program: a workload on a directory, with marks where its phases begin |
//!
//! All have the defaults of their `mkfs` and of Linux 6.1, but for what would make them no peers: F2FS on less than 16 GiB writes in place, so its
//! policy is set to that of large volumes; NILFS2 keeps overwritten data for an hour, so its cleaner protects nothing and rests as little as it
//! can be told to.

pub mod guest;
pub mod run;
mod script;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use guest::{GuestEvent, GuestTask};
pub use run::{MEMORY_MIB, Machine, PeerRun, Stop, run};
pub use script::LONGEST_REQUEST;

/// A file system of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs: metadata twice, checksums, copy on write.
    Btrfs,
    /// F2FS as on large volumes: a log that fills holes when free segments are short, and updates in place for small fsyncs.
    F2fs,
    /// F2FS as a pure log (`mode=lfs`), which cleans instead.
    F2fsLfs,
    /// NILFS2 with its cleaner.
    Nilfs2,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 6] = [Peer::Ext4, Peer::Xfs, Peer::Btrfs, Peer::F2fs, Peer::F2fsLfs, Peer::Nilfs2];

    /// Its name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Peer::Ext4 => "ext4",
            Peer::Xfs => "xfs",
            Peer::Btrfs => "btrfs",
            Peer::F2fs => "f2fs",
            Peer::F2fsLfs => "f2fs-lfs",
            Peer::Nilfs2 => "nilfs2",
        }
    }

    /// How it is formatted and mounted, for reports.
    pub const fn setting(self) -> &'static str {
        match self {
            Peer::Ext4 => "defaults, blocks of 4 KiB",
            Peer::Xfs => "defaults",
            Peer::Btrfs => "defaults: metadata twice",
            Peer::F2fs => "mode=adaptive with the policies of volumes over 16 GiB (ipu_policy 16, alloc_mode=default)",
            Peer::F2fsLfs => "mode=lfs",
            Peer::Nilfs2 => "cleaner without protection period, below 30 % of free segments, ten rounds a second",
        }
    }

    /// What `mount -t` calls it.
    const fn kind(self) -> &'static str {
        match self {
            Peer::F2fsLfs => "f2fs",
            other => other.name(),
        }
    }

    /// The programs it needs, and the Debian package that has them.
    const fn programs(self) -> (&'static [&'static str], &'static str) {
        match self {
            Peer::Ext4 => (&["mkfs.ext4"], "e2fsprogs"),
            Peer::Xfs => (&["mkfs.xfs"], "xfsprogs"),
            Peer::Btrfs => (&["mkfs.btrfs"], "btrfs-progs"),
            Peer::F2fs | Peer::F2fsLfs => (&["mkfs.f2fs"], "f2fs-tools"),
            Peer::Nilfs2 => (&["mkfs.nilfs2", "nilfs_cleanerd"], "nilfs-tools"),
        }
    }

    /// Kernel modules it needs, in order; the others are built into Debian's kernel.
    const fn modules(self) -> &'static [&'static str] {
        match self {
            Peer::F2fs | Peer::F2fsLfs => &["crypto/crc32_generic", "fs/f2fs/f2fs"],
            Peer::Nilfs2 => &["fs/nilfs2/nilfs2"],
            Peer::Ext4 | Peer::Xfs | Peer::Btrfs => &[],
        }
    }

    /// Why it cannot run on this computer, in one line; `None` when it can.
    pub fn missing(self) -> Option<String> {
        if let Err(error) = basalt_uml::Uml::installed() {
            return Some(error.to_string());
        }
        let (programs, package) = self.programs();
        let missing: Vec<&str> = programs.iter().copied().filter(|program| find_program(program).is_none()).collect();
        (!missing.is_empty()).then(|| format!("no {} here; install the Debian package {package}", missing.join(", ")))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Peer, String> {
        Peer::ALL.into_iter().find(|peer| peer.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Peer::ALL.iter().map(|peer| peer.name()).collect();
            format!("`{text}` is no file system to compare with; there are {}", names.join(", "))
        })
    }
}

/// Where a program is: PATH, then the directories of system programs, which users often lack.
fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Path::new).map(Path::to_owned);
    std::env::split_paths(&path).chain(system).map(|directory| directory.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for peer in Peer::ALL {
            assert_eq!(peer.name().parse(), Ok(peer));
        }
        assert!("zfs".parse::<Peer>().unwrap_err().contains("nilfs2"));
    }
}
