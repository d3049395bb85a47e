//! How much free space a write takes, as it is told before: never less than it takes, and not much more.

use std::sync::Arc;

use basalt_device::MemoryDevice;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, NewNode};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Nodes that a short range may need, and the block of what the inode holds.
const NODES: u64 = 7;

fn open() -> F2fs {
    let device = Arc::new(MemoryDevice::new(96 << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap()
}

fn create(fs: &F2fs, name: &str) -> u64 {
    let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
    fs.create(fs.root(), name.as_bytes(), &file, &Caller::default()).unwrap().ino
}

/// So many blocks, with the nodes for them.
#[track_caller]
fn expect(fs: &F2fs, ino: u64, offset: u64, length: u64, blocks: u64) {
    let room = fs.room_for(ino, offset, length).unwrap() / BLOCK;
    assert!((blocks..=blocks + NODES).contains(&room), "{room} blocks told for {blocks}: {length} bytes at {offset}");
}

#[test]
fn a_write_takes_a_block_for_each_that_it_begins_in_a_hole() {
    let fs = open();
    let ino = create(&fs, "file");
    fs.write(ino, 0, &[1; 12_288], false).unwrap();
    fs.write(ino, 40 * MIB, &[1; 5000], false).unwrap();
    // The first is in the inode's own slots, the others are behind no node yet, or behind one that has blocks, too.
    for hole in [12_288, 20 * MIB, 40 * MIB + 2 * BLOCK] {
        expect(&fs, ino, hole, 1, 1);
        expect(&fs, ino, hole, BLOCK, 1);
        expect(&fs, ino, hole, BLOCK + 1, 2);
        expect(&fs, ino, hole + BLOCK - 1, 2, 2);
    }
    // Where only a part has no blocks.
    expect(&fs, ino, 0, 12_288 + 1, 1);
    expect(&fs, ino, 40 * MIB - BLOCK, 4 * BLOCK, 2);
    // Far more than one node addresses.
    let long = fs.room_for(ino, 8 * MIB, 24 * MIB).unwrap();
    assert!((24 * MIB..25 * MIB).contains(&long), "{long}");
}

#[test]
fn what_is_there_takes_nothing() {
    let fs = open();
    let ino = create(&fs, "file");
    fs.write(ino, 0, &[1; 12_000], false).unwrap();
    fs.fallocate(ino, FallocateMode::KEEP_SIZE, 8 * MIB, 3 * BLOCK).unwrap();
    for (offset, length) in [(0, 12_288), (5000, 1), (8 * MIB, 3 * BLOCK), (8 * MIB + 1, BLOCK), (20 * MIB, 0)] {
        assert_eq!(fs.room_for(ino, offset, length).unwrap(), 0, "{length} bytes at {offset}");
    }
}

#[test]
fn what_does_not_fit_in_the_inode_any_more_takes_blocks() {
    let fs = open();
    let ino = create(&fs, "file");
    expect(&fs, ino, 0, 9000, 3);
    fs.write(ino, 0, &[1; 100], false).unwrap();
    assert_eq!(fs.room_for(ino, 50, 500).unwrap(), 0);
    // With the block for what the inode holds.
    expect(&fs, ino, 9000, 10, 2);
    expect(&fs, ino, 0, 3900, 1);
}

#[test]
fn no_write_takes_more_than_was_told() {
    let fs = open();
    let available = || fs.stat_fs().unwrap().available * u64::from(fs.stat_fs().unwrap().block_size);
    for (number, (offset, length)) in
        [(0, 9000), (0, 4 * MIB), (9 * MIB + 3, 70_000), (700 * MIB, 1), (1 << 40, MIB)].into_iter().enumerate()
    {
        let ino = create(&fs, &format!("file{number}"));
        fs.write(ino, 0, &[1; 10], false).unwrap();
        fs.sync().unwrap();
        let (room, before) = (fs.room_for(ino, offset, length).unwrap(), available());
        fs.write(ino, offset, &vec![1; length as usize], false).unwrap();
        fs.sync().unwrap();
        let taken = before - available();
        assert!(taken > 0 && taken <= room, "{length} bytes at {offset}: {taken} bytes taken, {room} told");
    }
}
