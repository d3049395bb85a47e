//! A block of an fsync that had returned is damaged: what was fsynced behind it is not given up as if power had cut it off.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileSystem};

use super::power::{FILE, formatted};

const BLOCK: usize = 4096;
/// Files, each fsynced once: their seals and inodes fill a segment of the log and go on in another.
const FILES: usize = 300;
/// Bytes of each; more than fits an inode.
const BYTES: usize = 3 * BLOCK;

fn open(device: &Arc<MemoryDevice>) -> F2fs {
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

fn content(file: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at + 7 * file) as u8 | 1).collect()
}

/// Blocks in which two devices differ.
fn changed(before: &MemoryDevice, after: &MemoryDevice) -> Vec<usize> {
    const PIECE: usize = 256 * BLOCK;
    let (mut old, mut new) = (vec![0; PIECE], vec![0; PIECE]);
    let mut blocks = Vec::new();
    for first in (0..before.size() as usize / BLOCK).step_by(256) {
        before.read_at((first * BLOCK) as u64, &mut old).unwrap();
        after.read_at((first * BLOCK) as u64, &mut new).unwrap();
        let pairs = old.chunks(BLOCK).zip(new.chunks(BLOCK));
        blocks.extend((first..).zip(pairs).filter(|(_, (old, new))| old != new).map(|(block, _)| block));
    }
    blocks
}

/// A volume that is cut off behind many fsyncs, and the blocks that each of them wrote.
fn fsynced() -> (MemoryDevice, Vec<Vec<usize>>) {
    let device = Arc::new(formatted(96 << 20));
    let fs = open(&device);
    // Behind the first checkpoint of a session the chain may go on in other segments.
    fs.create(fs.root(), b"first", &FILE, &Caller::default()).unwrap();
    fs.sync().unwrap();
    let mut blocks = Vec::new();
    let mut before = device.snapshot();
    for file in 0..FILES {
        let ino = fs.create(fs.root(), name(file).as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &content(file), false).unwrap();
        fs.sync_file(ino, false).unwrap();
        let after = device.snapshot();
        blocks.push(changed(&before, &after));
        before = after;
    }
    (before, blocks)
}

fn name(file: usize) -> String {
    format!("file-{file:03}")
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    Byte,
    Sector,
    Zeros,
    Garbage,
}

fn damaged(image: &MemoryDevice, block: usize, damage: Damage, rng: &mut Rng) -> Arc<MemoryDevice> {
    let copy = image.snapshot();
    let mut bytes = vec![0; BLOCK];
    copy.read_at((block * BLOCK) as u64, &mut bytes).unwrap();
    let before = bytes.clone();
    match damage {
        // Of a seal, one that its checksum covers.
        Damage::Byte if bytes.starts_with(b"BSEL") => bytes[0] ^= 0x55,
        Damage::Byte => bytes[rng.below(BLOCK as u64) as usize] ^= 0x55,
        Damage::Sector => bytes[..512].fill(0),
        Damage::Zeros => bytes.fill(0),
        Damage::Garbage => rng.fill(&mut bytes),
    }
    assert_ne!(bytes, before, "block {block}");
    copy.write_at((block * BLOCK) as u64, &bytes).unwrap();
    Arc::new(copy)
}

/// How many of the files are there with their content.
fn whole(fs: &dyn FileSystem) -> usize {
    let is_whole = |file: &usize| {
        let Ok(found) = fs.lookup(fs.root(), name(*file).as_bytes()) else { return false };
        let mut bytes = vec![0; BYTES + 1];
        fs.read(found.ino, 0, &mut bytes).is_ok_and(|length| bytes[..length] == content(*file))
    };
    (0..FILES).filter(is_whole).count()
}

fn judge(device: &Arc<MemoryDevice>, is_repaired: bool, what: &str) {
    let report = check(&**device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::FsyncLost), "{what}: {report:?}");
    let fs = open(device);
    assert!(!fs.is_writable(), "{what}");
    assert!(fs.warnings().iter().any(|warning| warning.contains("rescue")), "{what}: {:?}", fs.warnings());
    drop(fs);
    let clock = Arc::new(SystemClock);
    let rescued = Rescued::open(device.clone(), &RescueOptions::default(), clock, &mut |_| ()).unwrap();
    assert!(whole(&rescued) >= FILES - 1, "{what}: {} rescued", whole(&rescued));
    if !is_repaired {
        return;
    }
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    // Not without a user.
    assert!(planned.report().restored_nodes, "{what}: {:?}", planned.report());
    assert!(planned.commit().unwrap().clean, "{what}");
    let fs = open(device);
    assert!(fs.is_writable(), "{what}: {:?}", fs.warnings());
    assert!(whole(&fs) >= FILES - 1, "{what}: {} repaired", whole(&fs));
}

#[test]
fn what_was_fsynced_behind_a_damaged_block_is_not_given_up() {
    let seed = std::env::var("BASALT_SEED").ok().map_or(14, |text| text.parse().unwrap());
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let (image, blocks) = fsynced();
    assert_eq!(whole(&open(&Arc::new(image.snapshot()))), FILES);
    for round in 0..24 {
        let file = rng.below(FILES as u64 - 1) as usize;
        let block = blocks[file][rng.below(blocks[file].len() as u64) as usize];
        let damage = [Damage::Byte, Damage::Sector, Damage::Zeros, Damage::Garbage][round % 4];
        let device = damaged(&image, block, damage, &mut rng);
        judge(&device, round % 6 == 5, &format!("seed {seed}, round {round}, file {file}, block {block}, {damage:?}"));
    }
}

/// The block behind which the log goes on in another segment; its link is gone, too.
#[test]
fn nor_behind_the_last_block_of_a_segment() {
    let (image, blocks) = fsynced();
    let mut rng = Rng::new(1);
    let is_last = |block: &&usize| blocks.iter().flatten().any(|other| *other == **block - 1) && **block % 512 == 511;
    let lasts: Vec<usize> = blocks[..FILES - 1].iter().flatten().filter(is_last).copied().collect();
    assert!(!lasts.is_empty(), "{blocks:?}");
    for last in lasts {
        for damage in [Damage::Byte, Damage::Zeros, Damage::Garbage] {
            let device = damaged(&image, last, damage, &mut rng);
            judge(&device, true, &format!("block {last}, {damage:?}"));
        }
    }
}

/// The last fsync of all may be one that power cut off: nothing tells.
#[test]
fn the_last_one_may_have_been_cut_off() {
    let (image, blocks) = fsynced();
    for block in &blocks[FILES - 1] {
        let device = damaged(&image, *block, Damage::Zeros, &mut Rng::new(1));
        let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.is_clean(), "block {block}: {report:?}");
        let fs = open(&device);
        assert!(fs.is_writable(), "block {block}: {:?}", fs.warnings());
        assert_eq!(whole(&fs), FILES - 1, "block {block}");
    }
}
