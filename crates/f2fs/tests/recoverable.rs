//! After each fsync the power may go: what it wrote is recovered, and there is room to write it once more.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

const BLOCK: usize = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
/// Blocks of the file lie so far apart: each has a node of its own.
const APART: u64 = 1018;

fn open(device: Arc<MemoryDevice>) -> F2fs {
    let options = OpenOptions { pre_invalid_bytes: Some(1 << 30), ..OpenOptions::default() };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

fn write(fs: &F2fs, ino: InodeNumber, block: u64, round: u8) {
    assert_eq!(fs.write(ino, block * APART * BLOCK as u64, &[round; BLOCK], false).unwrap(), BLOCK);
}

/// Much of what is free is dirty, and half of it are nodes that one fsync adds to the chain.
#[test]
fn a_large_fsync_leaves_room_to_recover_it() {
    let device = Arc::new(MemoryDevice::new(128 << 20, 512));
    let journal_bytes = FormatOptions::DEFAULT_JOURNAL_BYTES;
    let options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let fs = open(device.clone());
    let ino = fs.create(fs.root(), b"file", &FILE, &Caller::default()).unwrap().ino;
    let blocks = 6000;
    (0..blocks).for_each(|block| write(&fs, ino, block, 1));
    fs.sync().unwrap();
    let mut rng = Rng::new(11);
    let mut model = vec![1; blocks as usize];
    for round in 2..80 {
        for _ in 0..1000 + rng.below(2000) {
            let block = rng.below(blocks);
            model[block as usize] = round;
            write(&fs, ino, block, round);
        }
        fs.sync_file(ino, false).unwrap();
        let after = open(Arc::new(device.snapshot()));
        after.create(after.root(), b"another", &FILE, &Caller::default()).unwrap_or_else(|error| {
            panic!("after fsync {round}, the volume cannot be written: {error}");
        });
        for block in (0..blocks).step_by(97) {
            let mut bytes = [0; BLOCK];
            after.read(ino, block * APART * BLOCK as u64, &mut bytes).unwrap();
            assert_eq!(bytes, [model[block as usize]; BLOCK], "after fsync {round}: block {block}");
        }
    }
    let commits = fs.statistics().cleaning.total().journal_commits;
    assert!(commits > 20, "{commits} commits of the journal: this tests nothing");
    fs.close().unwrap();
    let report = basalt_f2fs::check::check(&*device as &dyn BlockDevice, &Default::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}
