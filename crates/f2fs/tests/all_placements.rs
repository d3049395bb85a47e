//! All placements that learn, on volumes: random changes, and what an earlier mount has left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use basalt_device::MemoryDevice;
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Clock, F2fs, OpenOptions, SystemClock};
use basalt_segments::placement::Policy;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Engine, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, SetAttributes, Time};

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn placement(name: &str) -> &'static Policy {
    basalt_schemes::placement_by_name(name).or_else(|| basalt_segments::placement::by_name(name)).unwrap()
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn write(fs: &F2fs, ino: InodeNumber, block: u64, blocks: usize, byte: u8) {
    let data = vec![byte; blocks * BLOCK as usize];
    let mut done = 0;
    while done < data.len() {
        done += fs.write(ino, block * BLOCK + done as u64, &data[done..], false).unwrap();
    }
}

fn truncate(fs: &F2fs, ino: InodeNumber, size: u64) {
    fs.set_attributes(ino, &SetAttributes { size: Some(size), ..Default::default() }).unwrap();
}

/// A second for 2500 blocks that are written.
struct Steps(AtomicU64);

impl Clock for Steps {
    fn now(&self) -> Time {
        let now = self.0.load(SeqCst);
        Time { seconds: 1_000_000 + (now / 2500) as i64, nanoseconds: 0 }
    }
}

/// What cleaning copies behind an open volume whose old sections are a fifth live, and are not written to any more.
fn copies(name: &str, remount: bool) -> u64 {
    let placement = placement(name);
    let victim = placement.victim.unwrap();
    let device = Arc::new(MemoryDevice::new(512 << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ()).unwrap();
    let options = || OpenOptions {
        placement,
        victim,
        cache_bytes: 16 << 20,
        background_cleaning: false,
        ..OpenOptions::default()
    };
    let clock = Arc::new(Steps(AtomicU64::new(0)));
    let mut fs = F2fs::open(device.clone(), options(), clock.clone()).unwrap();
    let all = fs.live().usage.user_blocks;
    let old = create(&fs, "old");
    let begun = all * 70 / 100;
    for at in 0..begun / 64 {
        write(&fs, old, at * 64, 64, 1);
        clock.0.fetch_add(64, SeqCst);
    }
    // Four of five blocks die, then an hour of nothing but mounted time.
    let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    (0..begun / 5).for_each(|at| fs.fallocate(old, mode, at * 5 * BLOCK, 4 * BLOCK).unwrap());
    fs.sync().unwrap();
    clock.0.fetch_add(3600 * 2500, SeqCst);
    if remount {
        fs.close().unwrap();
        drop(fs);
        fs = F2fs::open(device, options(), clock.clone()).unwrap();
    }
    let new = create(&fs, "new");
    let blocks = all * 50 / 100;
    let mut rng = Rng::new(5);
    let before = fs.statistics();
    (0..blocks / 64).for_each(|at| {
        write(&fs, new, at * 64, 64, 2);
        clock.0.fetch_add(64, SeqCst);
    });
    for step in 0..60_000 {
        let range = if rng.chance(90) { blocks / 5 } else { blocks };
        write(&fs, new, rng.below(range), 1, 3);
        clock.0.fetch_add(1, SeqCst);
        if step % 512 == 0 {
            fs.sync_file(new, false).unwrap();
        }
    }
    fs.sync().unwrap();
    let copied = fs.statistics().cleaning.total().data_blocks_copied - before.cleaning.total().data_blocks_copied;
    println!("{name} with {victim:?}{}: {copied} blocks copied", if remount { ", mounted again" } else { "" });
    copied
}

/// `sfs` knows nothing of them but that they are old.
#[test]
fn sections_that_were_there_before_are_cleaned_in_their_turn() {
    let [first, again] = [false, true].map(|remount| copies("sfs", remount));
    assert!(again < first * 3 / 2, "{again} blocks copied instead of {first}");
}

/// What was there, and what was written and copied since, is dead, moved or live.
fn tallies_hold(fs: &F2fs, live_before: u64, context: &str) {
    let live = fs.live();
    let (mut come, mut gone, mut there, mut written) = (live_before, 0, 0, 0);
    for (name, value) in live.counters.named.iter() {
        if let Some(log) = name.strip_suffix("/written_blocks") {
            let counted = |what: &str| live.counters.named.get(&format!("{log}/{what}")).unwrap();
            written += value + counted("copied_blocks");
            gone += counted("dead_blocks") + counted("moved_blocks");
            there += live.named.get(&format!("{log}/live_blocks")).unwrap();
        }
    }
    come += written;
    assert_eq!((there, come), (live.live_data_blocks, gone + there), "{context}");
    assert!(written <= fs.statistics().written.data_blocks, "{context}");
}

#[test]
fn random_changes_with_all_placements() {
    let names = ["sfs", "sfs-log", "sfs-sepbit", "page-cache", "mdc", "dac", "hazard", "auto"];
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let device = Arc::new(MemoryDevice::new(96 << 20, 512));
        let journal_bytes = if rng.chance(50) { FormatOptions::DEFAULT_JOURNAL_BYTES } else { 0 };
        let segments_per_section = if seed % 3 == 2 { 2 } else { 1 };
        let options = FormatOptions {
            discard_reads_zeros: true,
            journal_bytes,
            segments_per_section,
            ..FormatOptions::default()
        };
        format(&*device, &options, &mut |_, _| ()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut model: Vec<Option<Vec<u8>>> = vec![None; 12];
        for mount in 0..3 {
            let name = names[((seed + mount) % 8) as usize];
            let has_groups = !["page-cache", "hazard", "auto"].contains(&name);
            let groups = has_groups.then(|| 1 + rng.below(8) as u8);
            let placement = placement(name);
            let cache_bytes = [64 << 10, 1 << 20, 8 << 20][rng.below(3) as usize];
            let mut options = OpenOptions { placement, groups, cache_bytes, discard: false, ..OpenOptions::default() };
            options.victim = placement.victim.unwrap_or(options.victim);
            let context = format!("seed {seed}, {name}, groups {groups:?}, cache {cache_bytes}");
            let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
            let live_before = fs.live().live_data_blocks;
            let file = |number: usize| fs.lookup(fs.root(), format!("{number}").as_bytes()).map(|found| found.ino);
            for _ in 0..2500 {
                let number = rng.below(12) as usize;
                let Some(bytes) = &mut model[number] else {
                    let ino = create(&fs, &format!("{number}"));
                    fs.forget(ino, 1);
                    model[number] = Some(Vec::new());
                    continue;
                };
                let ino = file(number).unwrap();
                let blocks = bytes.len() as u64 / BLOCK;
                match rng.below(60) {
                    0 => fs.sync().unwrap(),
                    1..6 => fs.sync_file(ino, false).unwrap(),
                    6 => {
                        fs.unlink(fs.root(), format!("{number}").as_bytes()).unwrap();
                        model[number] = None;
                    }
                    7 | 8 => {
                        let to = rng.below(1200);
                        truncate(&fs, ino, to * BLOCK);
                        bytes.resize((to * BLOCK) as usize, 0);
                    }
                    9 | 10 if blocks > 0 => {
                        let from = rng.below(blocks);
                        let count = 1 + rng.below(blocks - from);
                        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                        fs.fallocate(ino, mode, from * BLOCK, count * BLOCK).unwrap();
                        bytes[(from * BLOCK) as usize..((from + count) * BLOCK) as usize].fill(0);
                    }
                    11 if blocks > 0 => {
                        let mut buffer = vec![0; 1 << 17];
                        _ = fs.read(ino, rng.below(blocks) * BLOCK, &mut buffer).unwrap();
                    }
                    _ => {
                        let most = if rng.chance(25) { 64 } else { 3 };
                        let count = 1 + rng.below(most);
                        let block = rng.below(1200 - count);
                        let byte = rng.below(255) as u8 + 1;
                        write(&fs, ino, block, count as usize, byte);
                        let end = ((block + count) * BLOCK) as usize;
                        bytes.resize(bytes.len().max(end), 0);
                        bytes[(block * BLOCK) as usize..end].fill(byte);
                    }
                }
                fs.forget(ino, 1);
            }
            tallies_hold(&fs, live_before, &context);
            if rng.chance(50) {
                fs.sync().unwrap();
                tallies_hold(&fs, live_before, &context);
            }
            fs.close().unwrap();
            drop(fs);
            let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
            assert!(report.is_clean(), "{context}: {:?}", report.faults);
        }
        let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        for (number, expected) in model.iter().enumerate() {
            let Some(expected) = expected else { continue };
            let ino = fs.lookup(fs.root(), format!("{number}").as_bytes()).unwrap().ino;
            let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
            let mut done = 0;
            while done < bytes.len() {
                done += fs.read(ino, done as u64, &mut bytes[done..]).unwrap();
            }
            assert!(bytes == *expected, "seed {seed}, file {number}");
        }
    }
}
