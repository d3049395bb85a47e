//! What is measured. Every workload starts on a new, empty, mounted volume with cold caches.

mod content;
mod mail;
mod names;
mod overwrite;
mod trees;

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use basalt_testkit::Result;
use basalt_testkit::error::Context;

use crate::contender::{Contender, Kind};
use crate::options::Scale;
use crate::report::Sample;
use crate::sources::Sources;

pub use content::scatter;
pub use names::create;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// One large file, written and read from start to end.
    Sequential,
    /// 4 KiB at random places of a large file.
    Random,
    /// Many small files: create, stat, unlink.
    Files,
    /// `tar --extract` of a real tree.
    Untar,
    /// `git clone` of a real tree.
    Clone,
    /// 4 KiB appended, then fsync, again and again.
    Fsync,
    /// A mail server's spool: small files, many threads, fsync after each write.
    Varmail,
    /// 4 KiB at random places of a file that nearly fills its volume, under constant cleaning.
    Overwrite,
    /// The same with many small files.
    OverwriteFiles,
}

impl Workload {
    /// All of them, in the order in which they run.
    pub const ALL: [Workload; 9] = [
        Workload::Sequential,
        Workload::Random,
        Workload::Files,
        Workload::Untar,
        Workload::Clone,
        Workload::Fsync,
        Workload::Varmail,
        Workload::Overwrite,
        Workload::OverwriteFiles,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Sequential => "sequential",
            Workload::Random => "random",
            Workload::Files => "files",
            Workload::Untar => "untar",
            Workload::Clone => "clone",
            Workload::Fsync => "fsync",
            Workload::Varmail => "varmail",
            Workload::Overwrite => "overwrite",
            Workload::OverwriteFiles => "overwrite-files",
        }
    }

    /// Whether it is measured in User-Mode Linux, too. Disks there are too large and too slow to be filled.
    pub fn is_for_guests(self) -> bool {
        !self.fills_volume()
    }

    fn fills_volume(self) -> bool {
        matches!(self, Workload::Overwrite | Workload::OverwriteFiles)
    }

    /// Whether it can be done there: btrfs says that a nearly full volume of that size is full when it is overwritten.
    pub fn suits(self, kind: Kind) -> bool {
        !self.fills_volume() || kind != Kind::Btrfs
    }

    /// The size of its volumes on the host.
    pub fn volume_bytes(self, scale: &Scale) -> u64 {
        if self.fills_volume() { scale.full_bytes } else { scale.volume_bytes }
    }

    /// Does the work and says how long each part of it took.
    pub fn run(self, volume: &mut Contender, scale: &Scale, sources: &Sources) -> Result<Vec<Sample>> {
        match self {
            Workload::Sequential => content::sequential(volume, scale),
            Workload::Random => content::random(volume, scale),
            Workload::Files => names::files(volume, scale),
            Workload::Untar => trees::untar(volume, sources),
            Workload::Clone => trees::clone(volume, sources),
            Workload::Fsync => content::fsyncs(volume, scale),
            Workload::Varmail => mail::varmail(volume, scale),
            Workload::Overwrite => overwrite::one_file(volume, scale),
            Workload::OverwriteFiles => overwrite::many_files(volume, scale),
        }
    }
}

/// Seconds since then; never 0, so that it can be divided by.
fn seconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64().max(1e-9)
}

/// Waits until everything on the volume is durable.
fn sync_volume(mount_point: &Path) -> Result<()> {
    let directory = File::open(mount_point).doing("open", mount_point)?;
    rustix::fs::syncfs(&directory).doing("sync", mount_point)
}

/// "1 GiB", "512 MiB".
fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) { format!("{} GiB", bytes >> 30) } else { format!("{} MiB", bytes >> 20) }
}

/// "20,000".
fn count(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", count(number / 1000), number % 1000) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_read_well() {
        assert_eq!(super::count(999), "999");
        assert_eq!(super::count(20_000), "20,000");
        assert_eq!(super::count(1_234_007), "1,234,007");
        assert_eq!(super::size(1 << 30), "1 GiB");
        assert_eq!(super::size(512 << 20), "512 MiB");
    }
}
