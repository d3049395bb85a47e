//! A damaged inode that was unlinked while it was open costs its own blocks, and nothing else.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::path::Files;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn volume() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(128 << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {}).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> F2fs {
    let options = OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::default() };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

/// An unlinked inode that is still open, in the list of the last checkpoint, and not in memory.
fn with_unlinked() -> (Arc<MemoryDevice>, F2fs, u32) {
    with_unlinked_at(0, 10_000)
}

/// As [`with_unlinked`], with so much data from byte `offset` on.
fn with_unlinked_at(offset: u64, length: usize) -> (Arc<MemoryDevice>, F2fs, u32) {
    let device = volume();
    let fs = open(&device);
    let ino = fs.create(fs.root(), b"gone", &FILE, &Caller::default()).unwrap().ino;
    let mut done = 0;
    while done < length {
        done += fs.write(ino, offset + done as u64, &vec![1; length - done], false).unwrap();
    }
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.sync().unwrap();
    for index in 0..2000 {
        let made = fs.create(fs.root(), format!("f{index}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.forget(made, 1);
    }
    fs.sync().unwrap();
    (device, fs, ino as u32)
}

/// Damages every version of an inode that is on the device.
fn damage(device: &MemoryDevice, ino: u32) {
    let mut found = 0;
    for block in 0..device.size() / BLOCK {
        let mut bytes = [0; BLOCK as usize];
        device.read_at(block * BLOCK, &mut bytes).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        // The footer: node id, inode number, and the offset above the marks.
        if (word(4072), word(4076), word(4080) >> 3) == (ino, ino, 0) {
            bytes[5] ^= 0xff;
            bytes[100] ^= 0xff;
            device.write_at(block * BLOCK, &bytes).unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "inode {ino} is nowhere");
}

/// Damages every version of the nodes below an inode that is on the device: none says any more which one it is.
fn damage_below(device: &MemoryDevice, ino: u32) {
    change_below(device, ino, |node| node[4072..4076].fill(0xff));
}

/// Changes every version of the nodes below an inode that is on the device.
fn change_below(device: &MemoryDevice, ino: u32, change: impl Fn(&mut [u8])) {
    let mut found = 0;
    for block in 0..device.size() / BLOCK {
        let mut bytes = [0; BLOCK as usize];
        device.read_at(block * BLOCK, &mut bytes).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        if word(4076) == ino && word(4072) != ino && word(4080) >> 3 != 0 {
            change(&mut bytes);
            device.write_at(block * BLOCK, &bytes).unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "inode {ino} has no node");
}

fn expect_all(fs: &F2fs, ino: u32) {
    assert!(fs.is_writable());
    let warnings = fs.warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains(&format!("unlinked inode {ino} cannot be freed"))),
        "{warnings:?}"
    );
    let files = Files::new(fs);
    assert_eq!(files.read("/important").unwrap(), vec![7; 100_000]);
    files.write("/later", b"goes on").unwrap();
}

fn expect_whole_after_repair(device: &Arc<MemoryDevice>) {
    plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    let fs = open(device);
    assert_eq!(fs.warnings(), [""; 0]);
    assert_eq!(Files::new(&fs).read("/later").unwrap(), b"goes on");
}

#[test]
fn closing_keeps_what_was_written_since_the_checkpoint() {
    let (device, fs, ino) = with_unlinked();
    damage(&device, ino);
    Files::new(&fs).write("/important", vec![7; 100_000]).unwrap();
    fs.close().unwrap();
    drop(fs);
    for _ in 0..2 {
        let fs = open(&device);
        expect_all(&fs, ino);
        fs.close().unwrap();
    }
    expect_whole_after_repair(&device);
}

#[test]
fn a_volume_with_one_opens_after_a_power_cut() {
    let (device, fs, ino) = with_unlinked();
    Files::new(&fs).write("/important", vec![7; 100_000]).unwrap();
    fs.sync().unwrap();
    let device = Arc::new(device.snapshot());
    drop(fs);
    damage(&device, ino);
    expect_all(&open(&device), ino);
}

/// The NAT block with the entry of an unlinked inode cannot be read: the volume opens all the same, and tells.
#[test]
fn one_whose_nat_block_cannot_be_read() {
    let device = volume();
    let fs = open(&device);
    // Ids beyond the first NAT blocks, so that the root's is another one.
    for index in 0..3000 {
        let made = fs.create(fs.root(), format!("f{index}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.forget(made, 1);
    }
    fs.sync().unwrap();
    let ino = fs.create(fs.root(), b"gone", &FILE, &Caller::default()).unwrap().ino;
    fs.write(ino, 0, &[1; 10_000], false).unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.sync().unwrap();
    // So many changes that the NAT itself has its entry, and no journal.
    for index in 0..3000 {
        fs.unlink(fs.root(), format!("f{index}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    let cut = device.snapshot();
    drop(fs);
    // Both copies of the block.
    let geometry = basalt_f2fs::Geometry::read(&cut).unwrap().0;
    let index = ino / 455;
    let mut told = 0;
    for copy in [false, true] {
        let block = u64::from(geometry.nat_block(index as u32, copy));
        let device = Arc::new(cut.snapshot());
        device.spoil(block * BLOCK, BLOCK).unwrap();
        let fs = open(&device);
        assert!(fs.is_writable(), "{:?}", fs.warnings());
        told += u32::from(fs.warnings().iter().any(|warning| warning.contains("cannot be freed")));
    }
    assert_eq!(told, 1, "one of the copies is in use");
}

/// Its nodes may be damaged as well as itself: it stays in the list then, so that its blocks are not lost for good.
#[test]
fn a_damaged_node_below_one_costs_no_more() {
    let (device, fs, ino) = with_unlinked_at(5000 * BLOCK, 10_000);
    damage_below(&device, ino);
    Files::new(&fs).write("/important", vec![7; 100_000]).unwrap();
    fs.close().unwrap();
    drop(fs);
    for _ in 0..3 {
        let fs = open(&device);
        expect_all(&fs, ino);
        fs.close().unwrap();
    }
    expect_whole_after_repair(&device);
}

/// As above where something is freed before the damage is met: its blocks in the inode, in front of those below the damaged node.
#[test]
fn a_damaged_node_behind_sound_blocks_costs_no_more() {
    let (device, fs, ino) = with_unlinked_at(0, 6 << 20);
    damage_below(&device, ino);
    Files::new(&fs).write("/important", vec![7; 100_000]).unwrap();
    fs.close().unwrap();
    drop(fs);
    expect_all(&open(&device), ino);
}

/// As above with a sound node that points to a block which is free.
#[test]
fn a_pointer_to_a_free_block_behind_sound_blocks_costs_no_more() {
    let (device, fs, ino) = with_unlinked_at(0, 6 << 20);
    let geometry = basalt_f2fs::Geometry::read(&*device).unwrap().0;
    let last = geometry.main.get() + geometry.main_segments * 512 - 1;
    change_below(&device, ino, |node| node[..4].copy_from_slice(&last.to_le_bytes()));
    Files::new(&fs).write("/important", vec![7; 100_000]).unwrap();
    fs.close().unwrap();
    drop(fs);
    expect_all(&open(&device), ino);
}
