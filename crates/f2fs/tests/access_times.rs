//! Access times make nodes dirty, and those need room: whoever only reads must not fill the volume.

use std::sync::Arc;
use std::time::Duration;

use basalt_device::MemoryDevice;
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Atime, F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Fills nearly all of a volume with files of one block, and rewrites some of them until cleaning has come to rest.
fn fill(fs: &F2fs) -> Vec<InodeNumber> {
    let count = fs.stat_fs().unwrap().available * 95 / 100;
    let mut inodes = Vec::new();
    for number in 0..count {
        let ino = fs.create(fs.root(), number.to_string().as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        if fs.write(ino, 0, &[9; 3000], false).is_err() {
            break;
        }
        inodes.push(ino);
        if number % 1000 == 0 {
            fs.sync().unwrap();
        }
    }
    fs.sync().unwrap();
    let mut rng = Rng::new(3);
    for round in 0..10_000 {
        fs.write(inodes[rng.below(inodes.len() as u64) as usize], 0, &[8; 2000], false).unwrap();
        if round % 100 == 0 {
            fs.sync().unwrap();
        }
    }
    inodes
}

#[test]
fn reading_does_not_fill_a_volume() {
    for (cache_bytes, atime) in [(128 << 20, Atime::Strict), (512 << 20, Atime::Relatime)] {
        let device = Arc::new(MemoryDevice::new(128 << 20, 512));
        let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
        // Nothing is committed but by who reads.
        let hour = Duration::from_secs(3600);
        let options = OpenOptions { cache_bytes, atime, commit_interval: hour, ..OpenOptions::default() };
        let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
        let inodes = fill(&fs);
        let mut bytes = [0; 100];
        inodes.iter().for_each(|ino| assert_eq!(fs.read(*ino, 0, &mut bytes).unwrap(), 100));
        fs.sync().unwrap();
        fs.create(fs.root(), b"later", &FILE, &Caller::default()).unwrap();
        fs.close().unwrap();
        drop(fs);
        let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.is_clean(), "cache of {cache_bytes} bytes: {:?}", report.faults);
    }
}
