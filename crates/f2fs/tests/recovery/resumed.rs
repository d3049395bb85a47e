//! What was fsynced behind damage: rescue and repair have all of it, with its direct nodes, and nothing of an fsync that power cut.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::layout::crc::crc_from;
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileSystem, InodeNumber};

use super::power::{FILE, formatted};

pub(super) const BLOCK: usize = 4096;
/// Blocks of a file that needs direct nodes.
pub(super) const LARGE: usize = 1000;

pub(super) fn open(device: &Arc<MemoryDevice>) -> F2fs {
    let options = OpenOptions { background_cleaning: false, inside_seals: false, ..OpenOptions::default() };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

pub(super) fn make(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

/// Makes a file of one block and fsyncs it.
pub(super) fn small(fs: &F2fs, name: &str) {
    let ino = make(fs, name);
    fs.write(ino, 0, &[7; BLOCK], false).unwrap();
    fs.sync_file(ino, false).unwrap();
}

/// A new volume behind a checkpoint.
pub(super) fn volume() -> (Arc<MemoryDevice>, F2fs) {
    let device = Arc::new(formatted(128 << 20));
    let fs = open(&device);
    make(&fs, "first");
    fs.sync().unwrap();
    (device, fs)
}

/// The blocks that begin with this.
pub(super) fn blocks_with(image: &MemoryDevice, is_one: impl Fn(&[u8]) -> bool) -> Vec<u64> {
    let mut bytes = vec![0; BLOCK];
    let mut is_it = |block: &u64| image.read_at(block * BLOCK as u64, &mut bytes).is_ok() && is_one(&bytes);
    (0..image.size() / BLOCK as u64).filter(&mut is_it).collect()
}

/// Zeros over the second seal.
fn break_chain(image: &MemoryDevice) {
    let seals = blocks_with(image, |bytes| bytes.starts_with(b"BSEL"));
    image.write_at(seals[1] * BLOCK as u64, &[0; BLOCK]).unwrap();
}

/// Each block of a file, which has the same byte everywhere.
pub(super) fn content(fs: &dyn FileSystem, name: &str, blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0; blocks * BLOCK];
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len(), "{name}");
    let all = bytes.chunks(BLOCK).map(|block| if block.iter().all(|byte| *byte == block[0]) { block[0] } else { 0xEE });
    all.collect()
}

/// By rescue, and by a repair that asks before.
fn rescued_and_repaired(image: MemoryDevice, name: &str, blocks: usize) -> [Vec<u8>; 2] {
    let image = Arc::new(image);
    let clock = Arc::new(SystemClock);
    let rescued = Rescued::open(image.clone(), &RescueOptions::default(), clock, &mut |_| ()).unwrap();
    let by_rescue = content(&rescued, name, blocks);
    drop(rescued);
    let planned = plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(planned.report().restored_nodes && planned.report().losses.is_empty(), "{:?}", planned.report());
    assert!(planned.commit().unwrap().clean);
    [by_rescue, content(&open(&image), name, blocks)]
}

#[test]
fn direct_nodes_behind_damage_count() {
    for is_new in [true, false] {
        let (device, fs) = volume();
        let large = make(&fs, "large");
        let mut expected = vec![1; LARGE];
        if !is_new {
            fs.write(large, 0, &[1; LARGE * BLOCK], false).unwrap();
        }
        fs.sync().unwrap();
        ["a", "b", "c"].iter().for_each(|name| small(&fs, name));
        if is_new {
            fs.write(large, 0, &[1; LARGE * BLOCK], false).unwrap();
        } else {
            fs.write(large, 950 * BLOCK as u64, &[2; 10 * BLOCK], false).unwrap();
            expected[950..960].fill(2);
        }
        fs.sync_file(large, false).unwrap();
        ["d", "e"].iter().for_each(|name| small(&fs, name));
        let image = device.snapshot();
        break_chain(&image);
        let found = rescued_and_repaired(image, "large", LARGE);
        assert!(found.iter().all(|found| *found == expected), "new {is_new}");
    }
}

/// Seal and inode of the last fsync have arrived, its data has not: what had returned before counts.
#[test]
fn a_cut_off_fsync_behind_damage_does_not_count() {
    let (device, fs) = volume();
    let file = make(&fs, "file");
    fs.sync().unwrap();
    ["a", "b", "c"].iter().for_each(|name| small(&fs, name));
    fs.write(file, 0, &[1; 2 * BLOCK], false).unwrap();
    fs.sync_file(file, false).unwrap();
    small(&fs, "d");
    let before = device.snapshot();
    fs.write(file, 0, &[2; 2 * BLOCK], false).unwrap();
    fs.sync_file(file, false).unwrap();
    let image = device.snapshot();
    let late = blocks_with(&image, |bytes| bytes.iter().all(|byte| *byte == 2));
    assert_eq!(late.len(), 2);
    let mut old = vec![0; BLOCK];
    for block in late {
        before.read_at(block * BLOCK as u64, &mut old).unwrap();
        image.write_at(block * BLOCK as u64, &old).unwrap();
    }
    assert_eq!(content(&open(&Arc::new(image.snapshot())), "file", 2), [1, 1], "only cut off");
    break_chain(&image);
    assert_eq!(rescued_and_repaired(image, "file", 2), [[1, 1], [1, 1]]);
}

/// Two fsyncs of one file under way at once, of which the first one's data has not arrived: the second one's inode points there.
#[test]
fn what_follows_a_cut_off_fsync_does_not_count() {
    let (device, fs) = volume();
    let file = make(&fs, "file");
    fs.write(file, 0, &[1; 2 * BLOCK], false).unwrap();
    fs.sync().unwrap();
    ["a", "b", "c", "d"].iter().for_each(|name| small(&fs, name));
    let before = device.snapshot();
    fs.write(file, 0, &[2; BLOCK], false).unwrap();
    fs.sync_file(file, false).unwrap();
    fs.write(file, BLOCK as u64, &[3; BLOCK], false).unwrap();
    fs.sync_file(file, false).unwrap();
    let image = device.snapshot();
    let late = blocks_with(&image, |bytes| bytes.iter().all(|byte| *byte == 2));
    let mut old = vec![0; BLOCK];
    before.read_at(late[0] * BLOCK as u64, &mut old).unwrap();
    image.write_at(late[0] * BLOCK as u64, &old).unwrap();
    // The flush of the first was not over when the second one's seal was written.
    let seals = blocks_with(&image, |bytes| bytes.starts_with(b"BSEL"));
    forget_last_flush(&image, seals[seals.len() - 2], seals[seals.len() - 1]);
    assert_eq!(content(&open(&Arc::new(image.snapshot())), "file", 2), [1, 1], "only cut off");
    break_chain(&image);
    assert_eq!(rescued_and_repaired(image, "file", 2), [[1, 1], [1, 1]]);
}

/// Makes a seal know of no more than the one before does.
fn forget_last_flush(image: &MemoryDevice, before: u64, seal: u64) {
    let (mut known, mut bytes) = (vec![0; BLOCK], vec![0; BLOCK]);
    image.read_at(before * BLOCK as u64, &mut known).unwrap();
    image.read_at(seal * BLOCK as u64, &mut bytes).unwrap();
    bytes[16..20].copy_from_slice(&known[16..20]);
    let entries = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    let covered = [&bytes[..12], &bytes[16..24 + 8 * entries], &bytes[4072..]];
    let sum = covered.into_iter().fold(u32::from_le_bytes(*b"BSEA"), crc_from);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    image.write_at(seal * BLOCK as u64, &bytes).unwrap();
}

/// The last blocks of each segment of a chain through four, which end with an inode or with a seal.
#[test]
fn the_log_is_found_again_in_whichever_segment() {
    for others in 0..2 {
        log_is_found_again(others);
    }
}

fn log_is_found_again(others: usize) {
    const FILES: usize = 900;
    let (device, fs) = volume();
    // Each is a node in front of the chain.
    for other in 0..others {
        make(&fs, &format!("other{other}"));
    }
    fs.sync().unwrap();
    let name = |file: usize| format!("file-{file:04}");
    (0..FILES).for_each(|file| small(&fs, &name(file)));
    let image = device.snapshot();
    let mut segments: Vec<u64> =
        blocks_with(&image, |bytes| bytes.starts_with(b"BSEL")).iter().map(|block| block / 512).collect();
    segments.dedup();
    assert!(segments.len() > 3, "{segments:?}");
    for segment in &segments[..segments.len() - 1] {
        for blocks in [1, 2, 5] {
            let copy = image.snapshot();
            let first = (segment + 1) * 512 - blocks;
            copy.write_at(first * BLOCK as u64, &vec![0; blocks as usize * BLOCK]).unwrap();
            let report = check(&copy, &CheckOptions::default(), &mut |_| ()).unwrap();
            let is_told = report.faults.iter().any(|fault| fault.kind == FaultKind::FsyncLost);
            assert!(is_told, "{others}, {segment}, {blocks}: {report:?}");
            let fs = open(&Arc::new(copy));
            assert!(!fs.is_writable(), "{others}, segment {segment}, {blocks}");
        }
    }
}

/// A node in front of an fsync's seal leads astray: one that no mark is on.
#[test]
fn a_damaged_link_hides_nothing() {
    let (device, fs) = volume();
    let large = make(&fs, "large");
    fs.write(large, 0, &[7; 6 << 20], false).unwrap();
    fs.sync_file(large, false).unwrap();
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| small(&fs, name));
    let image = device.snapshot();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let is_direct = |bytes: &[u8]| u64::from(word(bytes, 4076)) == large && word(bytes, 4072) != word(bytes, 4076);
    let mut damaged = 0;
    for node in blocks_with(&image, is_direct) {
        let mut link = [0; 4];
        let place = node * BLOCK as u64 + 4092;
        image.read_at(place, &mut link).unwrap();
        if u64::from(u32::from_le_bytes(link)) != node + 1 {
            continue;
        }
        for astray in [0, node as u32 + 701, u32::MAX] {
            damaged += 1;
            let copy = image.snapshot();
            copy.write_at(place, &astray.to_le_bytes()).unwrap();
            let report = check(&copy, &CheckOptions::default(), &mut |_| ()).unwrap();
            let is_told = report.faults.iter().any(|fault| fault.kind == FaultKind::FsyncLost);
            let fs = open(&Arc::new(copy));
            let there = names.iter().filter(|name| fs.lookup(fs.root(), name.as_bytes()).is_ok()).count();
            assert!(is_told && !fs.is_writable() || there == names.len(), "node at {node}, to {astray}: {there} there");
        }
    }
    assert!(damaged > 0);
}
