//! Damage in a chain that runs through several segments: what the log wrote in others counts, in the order in which it was written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice, RecordingDevice, RequestKind};
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::{FallocateMode, FileSystem, InodeNumber};

use super::power::formatted;
use super::resumed::{BLOCK, LARGE, blocks_with, content, make, open, small, volume};

const FILES: usize = 900;

fn name(file: usize) -> String {
    format!("file-{file:04}")
}

fn make_others(fs: &F2fs, count: usize) {
    for other in 0..count {
        make(fs, &format!("other{other}"));
    }
}

fn seals(image: &MemoryDevice) -> Vec<u64> {
    blocks_with(image, |bytes| bytes.starts_with(b"BSEL"))
}

/// The segments that have seals, which are the chain's, in order of their place.
fn segments_of_chain(image: &MemoryDevice) -> Vec<u64> {
    let segments: BTreeSet<u64> = seals(image).iter().map(|block| block / 512).collect();
    segments.into_iter().collect()
}

/// What `look` sees of a volume by rescue, and once it was repaired.
fn by_rescue_and_repair<T>(image: &MemoryDevice, look: impl Fn(&dyn FileSystem) -> T) -> [T; 2] {
    let copy = Arc::new(image.snapshot());
    let rescued = Rescued::open(copy.clone(), &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
    let by_rescue = look(&rescued);
    drop(rescued);
    assert!(plan(copy.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap().clean);
    [by_rescue, look(&open(&copy))]
}

/// Fills a volume but for places that do not lie side by side, so that logs have only these to go on in.
fn scatter(fs: &F2fs) {
    const SEGMENT: u64 = 2 << 20;
    let large = make(fs, "scattered");
    let segments = fs.stat_fs().unwrap().available / 512 - 2;
    fs.write(large, 0, &vec![1; (segments * SEGMENT) as usize], false).unwrap();
    fs.sync().unwrap();
    for piece in (1..segments - 2).step_by(4) {
        // Wherever the log's segments begin, one of them lies within.
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        fs.fallocate(large, mode, piece * SEGMENT, 2 * SEGMENT).unwrap();
    }
    fs.sync().unwrap();
}

/// Whether segments lie apart from each other.
fn lie_apart(segments: &[u64]) -> bool {
    segments.windows(2).filter(|pair| pair[1] - pair[0] > 1).count() >= 2
}

/// Of files that are fsynced once, those are gone that were in the damaged blocks.
#[test]
fn behind_the_end_of_a_segment() {
    for (others, is_scattered) in [(0, false), (1, false), (0, true)] {
        let (device, fs) = volume();
        make_others(&fs, others);
        if is_scattered {
            scatter(&fs);
        }
        fs.sync().unwrap();
        (0..FILES).for_each(|file| small(&fs, &name(file)));
        let image = device.snapshot();
        let missing = |fs: &dyn FileSystem| {
            let mut bytes = vec![0; BLOCK];
            let mut is_there = |file: &usize| {
                let found = fs.lookup(fs.root(), name(*file).as_bytes());
                found.is_ok_and(|found| fs.read(found.ino, 0, &mut bytes).unwrap() == BLOCK && bytes == [7; BLOCK])
            };
            (0..FILES).filter(|file| !is_there(file)).count()
        };
        let segments = segments_of_chain(&image);
        assert!(segments.len() >= 3 && (lie_apart(&segments) || !is_scattered), "{segments:?}");
        for segment in &segments {
            let end = (segment + 1) * 512;
            let last_seal = seals(&image).into_iter().filter(|seal| seal / 512 == *segment).max().unwrap();
            // One block, two blocks, or the head of a seal.
            for (at, length) in [(end - 1, BLOCK), (end - 2, 2 * BLOCK), (last_seal, 5)] {
                let copy = image.snapshot();
                copy.write_at(at * BLOCK as u64, &vec![0; length]).unwrap();
                let missing = by_rescue_and_repair(&copy, missing);
                let most = length.div_ceil(BLOCK);
                assert!(missing.iter().all(|gone| *gone <= most), "{segments:?}, {length} bytes at {at}: {missing:?}");
            }
        }
    }
}

/// Of files that are fsynced twice, the second version counts, unless it is damaged itself.
#[test]
fn last_versions_behind_the_end_of_a_segment() {
    for (others, is_scattered) in [(0, false), (1, false), (0, true), (1, true)] {
        let (device, fs) = volume();
        make_others(&fs, others);
        if is_scattered {
            scatter(&fs);
        }
        let inodes: Vec<InodeNumber> = (0..FILES / 2).map(|file| make(&fs, &name(file))).collect();
        fs.sync().unwrap();
        for version in [1, 2] {
            for ino in &inodes {
                fs.write(*ino, 0, &[version; BLOCK], false).unwrap();
                fs.sync_file(*ino, false).unwrap();
            }
        }
        let image = device.snapshot();
        let segments = segments_of_chain(&image);
        assert!(segments.len() >= 3 && (lie_apart(&segments) || !is_scattered), "{segments:?}");
        for segment in &segments {
            let copy = image.snapshot();
            copy.write_at(((segment + 1) * 512 - 1) * BLOCK as u64, &[0; BLOCK]).unwrap();
            let old = by_rescue_and_repair(&copy, |fs| {
                let mut bytes = vec![0; BLOCK];
                let mut is_new =
                    |ino: &&InodeNumber| fs.read(**ino, 0, &mut bytes).unwrap() == BLOCK && bytes == [2; BLOCK];
                inodes.iter().filter(|ino| !is_new(ino)).count()
            });
            assert!(old.iter().all(|old| *old <= 1), "{segments:?}, end of {segment}: {old:?} are not of version 2");
        }
    }
}

/// The link of a segment's last node leads to a place that no chain was at: what follows is found, or its loss is told.
#[test]
fn a_damaged_link_at_the_end_of_a_segment() {
    for (size, astray) in [(128_u64, 40_u32), (128, 13), (2048, 500), (2048, 13), (2048, u32::MAX)] {
        for others in 0..2 {
            let device = Arc::new(formatted(size << 20));
            let fs = open(&device);
            make(&fs, "first");
            make_others(&fs, others);
            fs.sync().unwrap();
            (0..FILES).for_each(|file| small(&fs, &name(file)));
            let copy = device.snapshot();
            // The first segments are those of the logs.
            let mut bytes = vec![0; BLOCK];
            let mut is_seal = |block: &u64| {
                copy.read_at(block * BLOCK as u64, &mut bytes).unwrap();
                bytes.starts_with(b"BSEL")
            };
            let segment = (0..20_480).find(&mut is_seal).unwrap() / 512;
            let end = (segment + 1) * 512 - 1;
            let link = if astray == u32::MAX { astray } else { (segment as u32 + astray) * 512 };
            copy.write_at(end * BLOCK as u64 + 4092, &link.to_le_bytes()).unwrap();
            let report = check(&copy, &CheckOptions::default(), &mut |_| ()).unwrap();
            let is_told = report.faults.iter().any(|fault| fault.kind == FaultKind::FsyncLost);
            let fs = open(&Arc::new(copy));
            let there = (0..FILES).filter(|file| fs.lookup(fs.root(), name(*file).as_bytes()).is_ok()).count();
            assert!(
                is_told && !fs.is_writable() || there == FILES,
                "{size} MiB, link to {link}, {others}: {there} there"
            );
        }
    }
}

/// Of one fsync that had returned, two blocks are damaged: one of data, and the direct node, whose footer is whole. Neither counts.
#[test]
fn two_damaged_blocks_of_one_fsync() {
    let (device, fs) = volume();
    let large = make(&fs, "large");
    fs.write(large, 0, &[1; LARGE * BLOCK], false).unwrap();
    fs.sync().unwrap();
    let names = ["a", "b", "c", "d", "e", "f"];
    names[..3].iter().for_each(|name| small(&fs, name));
    fs.write(large, 950 * BLOCK as u64, &[2; 10 * BLOCK], false).unwrap();
    fs.sync_file(large, false).unwrap();
    names[3..].iter().for_each(|name| small(&fs, name));
    let image = device.snapshot();
    let seal = seals(&image)[3];
    let mut entry = [0; 4];
    image.read_at(seal * BLOCK as u64 + 24, &mut entry).unwrap();
    image.write_at((seal + 1) * BLOCK as u64, &[0; 3584]).unwrap();
    image.write_at(u64::from(u32::from_le_bytes(entry)) * BLOCK as u64, &[0xCC; BLOCK]).unwrap();
    for large in by_rescue_and_repair(&image, |fs| {
        assert!(names.iter().all(|name| fs.lookup(fs.root(), name.as_bytes()).is_ok()));
        content(fs, "large", LARGE)
    }) {
        let holes = large.iter().filter(|byte| ![1, 2].contains(byte)).count();
        assert!(holes <= 1, "{holes} blocks of the file are neither of the one version nor of the other");
    }
}

/// Linux's chains have no seals. That of a chain through several segments ends in a torn inode: the rest of it counts.
#[test]
fn a_torn_inode_at_the_end_of_a_long_chain() {
    for fsyncs in [200, 700] {
        let device = Arc::new(formatted(256 << 20));
        let fs = open(&device);
        let (first, last) = (make(&fs, "first"), make(&fs, "last"));
        fs.sync().unwrap();
        for at in 0..fsyncs {
            let (ino, byte) = match at {
                3 => (last, 2),
                _ if at == fsyncs - 1 => (last, 4),
                _ => (first, 1),
            };
            fs.write(ino, 0, &[byte; 2 * BLOCK], false).unwrap();
            fs.sync_file(ino, false).unwrap();
        }
        let image = device.snapshot();
        let seals = seals(&image);
        assert_eq!(seals.len(), fsyncs);
        for seal in &seals {
            super::torn::forget_seal(&image, *seal);
        }
        let fs = open(&super::torn::tear(&image, seals.iter().copied().max().unwrap() + 1));
        assert!(fs.is_writable(), "{fsyncs} fsyncs: {:?}", fs.warnings());
        assert_eq!(["first", "last"].map(|name| content(&fs, name, 2)), [[1, 1], [2, 2]], "{fsyncs} fsyncs");
    }
}

/// A chain that ends as power left it, on a volume of 1,000 segments: mounting looks for more of it behind its end, once.
#[test]
fn a_chain_is_searched_behind_its_end_once() {
    let device = Arc::new(formatted(2 << 30));
    let fs = open(&device);
    make(&fs, "first");
    fs.sync().unwrap();
    (0..20).for_each(|file| small(&fs, &name(file)));
    let device = Arc::new(RecordingDevice::new(device.snapshot(), false));
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    let mut reads: BTreeMap<u64, u32> = BTreeMap::new();
    for request in device.take().iter().filter(|request| request.kind == RequestKind::Read) {
        *reads.entry(request.offset / BLOCK as u64).or_default() += 1;
    }
    fs.close().unwrap();
    let main = u64::from(Geometry::read(&*device).unwrap().0.main);
    let firsts = reads.iter().filter(|(block, _)| **block >= main && **block % 512 == 0);
    let total: u32 = firsts.map(|(_, count)| count).sum();
    assert!((200..400).contains(&total), "{total} reads of first blocks of segments");
}

/// Where a block of the chain leads: to the one behind it, or from the end of a segment to another.
fn next(image: &MemoryDevice, block: u64) -> u64 {
    let mut bytes = [0; 4];
    image.read_at(block * BLOCK as u64 + 4092, &mut bytes).unwrap();
    u32::from_le_bytes(bytes).into()
}

/// The inode that a block is of.
fn ino_of(image: &MemoryDevice, block: u64) -> u32 {
    let mut bytes = [0; 4];
    image.read_at(block * BLOCK as u64 + 4072, &mut bytes).unwrap();
    u32::from_le_bytes(bytes)
}

/// The last fsync that is known to be durable has its damaged seal at the end of a segment, and its node in the next. One more follows.
#[test]
fn a_damaged_seal_at_the_end_of_a_segment() {
    let fill = |others: usize, files: usize| {
        let (device, fs) = volume();
        make_others(&fs, others);
        fs.sync().unwrap();
        (0..files).for_each(|file| small(&fs, &name(file)));
        device.snapshot()
    };
    let mut tried = 0;
    // A seal and a node are two blocks: the end of a segment is a seal for one of these.
    for others in 0..2 {
        let image = fill(others, FILES);
        let all = seals(&image);
        let ends = segments_of_chain(&image).into_iter().map(|segment| segment * 512 + 511);
        for end in ends.filter(|end| all.contains(end)) {
            // Files have ascending inode numbers.
            let ino = |seal: u64| ino_of(&image, next(&image, seal));
            let count = all.iter().filter(|seal| ino(**seal) <= ino(end)).count();
            let short = fill(others, count + 1);
            assert!(seals(&short).contains(&end) && seals(&short).len() == count + 1);
            short.write_at(end * BLOCK as u64, &[0; BLOCK]).unwrap();
            let missing = by_rescue_and_repair(&short, |fs| {
                (0..=count).filter(|file| fs.lookup(fs.root(), name(*file).as_bytes()).is_err()).count()
            });
            assert_eq!(missing, [0, 0], "others {others}, seal at {end}");
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// The chain breaks at its second fsync, and ends with a node that is alone in its segment, without a seal there: it is the last all the same.
#[test]
fn the_last_node_alone_in_its_segment() {
    let fill = |others: usize, fsyncs: usize| {
        let (device, fs) = volume();
        make_others(&fs, others);
        let [p, x, rest] = ["p", "x", "rest"].map(|name| make(&fs, name));
        fs.sync().unwrap();
        let write = |ino: InodeNumber, byte: u8| {
            fs.write(ino, 0, &[byte; BLOCK], false).unwrap();
            fs.sync_file(ino, false).unwrap();
        };
        write(p, 1);
        write(p, 2);
        write(x, 1);
        (0..fsyncs).for_each(|_| write(rest, 1));
        write(x, 2);
        device.snapshot()
    };
    let mut tried = 0;
    for others in 0..2 {
        // The chain does not begin at the front of its first segment.
        let all = seals(&fill(others, 600));
        let first_of = |segment: u64| all.iter().copied().filter(|seal| seal / 512 == segment).min();
        let first =
            segments_of_chain(&fill(others, 600)).into_iter().max_by_key(|one| first_of(*one).map(|seal| seal % 512));
        let here: Vec<u64> = all.iter().copied().filter(|seal| Some(seal / 512) == first).collect();
        let (Some(last), true) = (here.last().copied().filter(|last| last % 512 == 511), here.len() > 5) else {
            continue;
        };
        let image = fill(others, here.len() - 4);
        assert!(seals(&image).contains(&last) && seals(&image).len() == here.len());
        image.write_at(here[1] * BLOCK as u64, &[0; BLOCK]).unwrap();
        assert_eq!(by_rescue_and_repair(&image, |fs| content(fs, "x", 1)), [[2], [2]], "others {others}");
        tried += 1;
    }
    assert!(tried > 0);
}
