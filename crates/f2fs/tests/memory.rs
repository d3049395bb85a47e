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

fn device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(128 << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {}).unwrap();
    device
}

fn open(device: Arc<MemoryDevice>) -> F2fs {
    let options = OpenOptions {
        cache_bytes: 1 << 20,
        checkpoint_interval: HOUR,
        commit_interval: HOUR,
        ..OpenOptions::default()
    };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

/// Makes so many files.
fn make(fs: &F2fs, files: u64) {
    for number in 0..files {
        fs.create(fs.root(), format!("{number}").as_bytes(), &FILE, &Caller::default()).unwrap();
    }
}

/// Makes so many files on a new volume, and returns how many checkpoints were taken for want of memory.
fn checkpoints_of(files: u64) -> u64 {
    let fs = open(device());
    make(&fs, files);
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

/// Found by the crash simulator, with a checkpoint of cleaning.
#[test]
fn a_checkpoint_without_pages_leaves_durable_data_that_moves_out_of_its_inode() {
    for promise in [0, 1] {
        let device = device();
        let fs = open(device.clone());
        let ino = fs.create(fs.root(), b"small", &FILE, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, b"durable", false).unwrap();
        if promise == 0 {
            fs.sync().unwrap();
        } else {
            fs.sync_file(ino, false).unwrap();
        }
        fs.write(ino, 48 << 10, &[7; 4096], false).unwrap();
        make(&fs, ENTRIES + 500);
        assert_eq!(fs.statistics().checkpoints.memory, 1);
        // As after a power cut.
        let later = open(Arc::new(device.snapshot()));
        let mut content = [0; 7];
        let ino = later.lookup(later.root(), b"small").unwrap().ino;
        later.read(ino, 0, &mut content).unwrap();
        assert_eq!(&content, b"durable", "promised by {promise}");
    }
}
