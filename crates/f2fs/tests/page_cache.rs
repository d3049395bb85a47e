//! Placement `page-cache` on a volume: what is touched again is hot when its block gets a place, whichever way it was written.

use std::sync::Arc;

use basalt_device::MemoryDevice;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_segments::SegmentKind::{ColdData, HotData, WarmData};
use basalt_segments::{SegmentKind, Touches, placement};
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, SetAttributes};

const BLOCK: u64 = 4096;
/// Blocks of directories: the root's and that of lost+found.
const DIRECTORIES: u64 = 2;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn open(logs: u8, cache_mib: usize, touches: Option<Touches>) -> F2fs {
    let device = MemoryDevice::new(128 << 20, 512);
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&device, &options, &mut |_, _| ()).unwrap();
    let placement = placement::by_name("page-cache").unwrap();
    let cache_bytes = cache_mib << 20;
    let options =
        OpenOptions { placement, logs, touches, cache_bytes, background_cleaning: false, ..OpenOptions::default() };
    F2fs::open(Arc::new(device), options, Arc::new(SystemClock)).unwrap()
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn write(fs: &F2fs, ino: InodeNumber, block: u64, blocks: usize) {
    let data = vec![7; blocks * BLOCK as usize];
    assert_eq!(fs.write(ino, block * BLOCK, &data, false).unwrap(), data.len());
}

fn read(fs: &F2fs, ino: InodeNumber, block: u64, blocks: usize) {
    let mut data = vec![0; blocks * BLOCK as usize];
    assert_eq!(fs.read(ino, block * BLOCK, &mut data).unwrap(), data.len());
}

fn truncate(fs: &F2fs, ino: InodeNumber, size: u64) {
    fs.set_attributes(ino, &SetAttributes { size: Some(size), ..Default::default() }).unwrap();
}

/// Live blocks of data of a kind, those of directories apart.
fn live(fs: &F2fs, kind: SegmentKind) -> u64 {
    let of_directories = if kind == HotData { DIRECTORIES } else { 0 };
    fs.info().kinds[kind.index()].live_blocks - of_directories
}

/// Live blocks of hot and of warm data behind an fsync.
fn live_after(fs: &F2fs, ino: InodeNumber) -> (u64, u64) {
    fs.sync_file(ino, false).unwrap();
    (live(fs, HotData), live(fs, WarmData))
}

#[test]
fn what_is_touched_again_is_hot() {
    let fs = open(6, 64, None);
    let ino = create(&fs, "file");
    // Large writes pass the cache by, small ones wait in it.
    for (block, blocks) in [(0, 64), (64, 8)] {
        write(&fs, ino, block, blocks);
    }
    fs.sync().unwrap();
    assert_eq!((live(&fs, HotData), live(&fs, WarmData)), (0, 72), "each page was touched once");
    write(&fs, ino, 0, 32);
    assert_eq!(live_after(&fs, ino), (32, 40), "a large write");
    write(&fs, ino, 64, 4);
    assert_eq!(live_after(&fs, ino), (36, 36), "a small one");
    // Two touches of one page before it is written for the first time.
    (0..2).for_each(|_| write(&fs, ino, 100, 1));
    read(&fs, ino, 40, 8);
    write(&fs, ino, 40, 8);
    assert_eq!(live_after(&fs, ino), (45, 28));
}

#[test]
fn where_only_reads_count_writes_make_nothing_hot() {
    let fs = open(6, 64, Some(Touches::Reads));
    let ino = create(&fs, "file");
    (0..5).for_each(|_| write(&fs, ino, 0, 20));
    assert_eq!(live_after(&fs, ino), (0, 20));
    // A read beyond the end touches no page.
    (0..2).for_each(|_| read(&fs, ino, 10, 10));
    write(&fs, ino, 0, 20);
    assert_eq!(live_after(&fs, ino), (10, 10));
}

#[test]
fn with_four_logs_the_rest_is_cold() {
    let fs = open(4, 64, None);
    let ino = create(&fs, "file");
    write(&fs, ino, 0, 20);
    write(&fs, ino, 0, 5);
    fs.sync_file(ino, false).unwrap();
    assert_eq!((live(&fs, HotData), live(&fs, ColdData)), (5, 15));
}

/// Truncated, or punched: a new page there is a new page.
#[test]
fn what_is_gone_is_forgotten() {
    let fs = open(6, 64, None);
    let ino = create(&fs, "file");
    for how in 0..3 {
        (0..2).for_each(|_| write(&fs, ino, 0, 20));
        assert_eq!(live_after(&fs, ino), (20, 0), "{how}");
        match how {
            0 => truncate(&fs, ino, 0),
            1 => {
                let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                fs.fallocate(ino, mode, 0, 20 * BLOCK).unwrap();
            }
            _ => {
                // One block stays, and is hot.
                truncate(&fs, ino, 10);
                write(&fs, ino, 0, 20);
                assert_eq!(live_after(&fs, ino), (1, 19));
                break;
            }
        }
        write(&fs, ino, 0, 20);
        assert_eq!(live_after(&fs, ino), (0, 20), "{how}");
    }
}

/// Lists of as many pages as the cache has room for: 1024 with 4 MiB.
#[test]
fn the_lists_are_as_long_as_the_cache() {
    for (mib, expected) in [(4, (0, 1500)), (8, (1500, 0))] {
        let fs = open(6, mib, None);
        let ino = create(&fs, "file");
        for _ in 0..2 {
            (0..1500).step_by(20).for_each(|block| write(&fs, ino, block, 20));
        }
        assert_eq!(live_after(&fs, ino), expected, "{mib} MiB");
    }
}

/// Programs read to the end with a larger buffer: that touches no page that is not there.
#[test]
fn reads_behind_the_end_touch_nothing() {
    let fs = open(6, 64, None);
    let ino = create(&fs, "file");
    write(&fs, ino, 0, 10);
    let mut data = vec![0; 20 * BLOCK as usize];
    fs.sync_file(ino, false).unwrap();
    assert_eq!(fs.read(ino, 0, &mut data).unwrap(), 10 * BLOCK as usize);
    write(&fs, ino, 10, 10);
    assert_eq!(live_after(&fs, ino).0, 0, "no block was written after its second touch");
}
