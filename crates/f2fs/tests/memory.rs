//! What only a checkpoint lets go of takes bounded memory, however long the intervals between checkpoints are.

use std::sync::Arc;
use std::time::Duration;

use basalt_device::MemoryDevice;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
const HOUR: Duration = Duration::from_secs(3600);
/// Changed entries of the NAT that may wait with the smallest cache.
const ENTRIES: u64 = 4096;

/// Makes so many files on a new volume, and returns how many checkpoints were taken for want of memory.
fn checkpoints_of(files: u64) -> u64 {
    let device = Arc::new(MemoryDevice::new(128 << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {}).unwrap();
    let options = OpenOptions {
        cache_bytes: 1 << 20,
        checkpoint_interval: HOUR,
        commit_interval: HOUR,
        ..OpenOptions::default()
    };
    let fs = F2fs::open(device, options, Arc::new(SystemClock)).unwrap();
    for number in 0..files {
        fs.create(fs.root(), format!("{number}").as_bytes(), &FILE, &Caller::default()).unwrap();
    }
    let statistics = fs.statistics();
    assert_eq!(statistics.checkpoints.cleaning, 0, "{statistics:?}");
    fs.close().unwrap();
    statistics.checkpoints.memory
}

#[test]
fn changed_entries_of_the_nat_are_bounded() {
    assert_eq!(checkpoints_of(ENTRIES - 100), 0);
    assert_eq!(checkpoints_of(2 * ENTRIES + ENTRIES / 2), 2);
}
