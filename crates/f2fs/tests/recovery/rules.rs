//! What an fsync costs: one flush where the chain can carry it.

use std::sync::Arc;
use std::time::Duration;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::layout::crc::crc_from;
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{FileSystem, SetAttributes, SetTime, Time};

use crate::power::Bench;

/// Flushes, and checkpoints, that some work takes.
fn cost(bench: &Bench, work: impl FnOnce()) -> (u64, u64) {
    let checkpoints = || bench.fs.info().counters.checkpoints;
    let (flushes, before) = (bench.device.flushes(), checkpoints());
    work();
    (bench.device.flushes() - flushes, checkpoints() - before)
}

#[test]
fn one_flush_for_data_size_and_name() {
    let bench = Bench::new();
    for number in 0..50 {
        let ino = bench.create(&format!("file {number}"));
        bench.fs.write(ino, 0, &[1; 8192], false).unwrap();
        assert_eq!(cost(&bench, || bench.fs.sync_file(ino, false).unwrap()), (1, 0), "new");
        bench.fs.write(ino, 8192, &[2; 4096], false).unwrap();
        assert_eq!(cost(&bench, || bench.fs.sync_file(ino, true).unwrap()), (1, 0), "longer");
        assert_eq!(cost(&bench, || bench.fs.sync_file(ino, false).unwrap()), (0, 0), "unchanged");
    }
}

/// Eight threads with a file each: whoever comes while a flush runs shares the next, and is told when it is done, not before.
#[test]
fn flushes_are_shared() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 25;
    let bench = Bench::new();
    let files: Vec<_> = (0..THREADS).map(|number| bench.create(&format!("file {number}"))).collect();
    bench.fs.sync().unwrap();
    bench.device.slow_down(Duration::from_millis(3));
    let (flushes, _) = cost(&bench, || {
        std::thread::scope(|scope| {
            for &ino in &files {
                let first = ino == files[0];
                let bench = &bench;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        bench.fs.write(ino, round * 4096, &[round as u8 + 1; 4096], false).unwrap();
                        bench.fs.sync_file(ino, true).unwrap();
                        if round == ROUNDS / 2 && first {
                            let found = bench.after_cut().read("file 0").unwrap();
                            assert_eq!(found.len() as u64, (round + 1) * 4096);
                            assert_eq!(found[(round * 4096) as usize..], [round as u8 + 1; 4096]);
                        }
                    }
                });
            }
        });
    });
    assert!(flushes < THREADS * ROUNDS / 2, "{flushes} flushes for {} fsyncs", THREADS * ROUNDS);
    let after = bench.after_cut();
    for number in 0..THREADS {
        let expected: Vec<u8> = (0..ROUNDS).flat_map(|round| [round as u8 + 1; 4096]).collect();
        assert_eq!(after.read(&format!("file {number}")), Some(expected), "file {number}");
    }
    after.close_clean("shared flushes");
}

#[test]
fn the_first_after_a_mount_is_one_flush_too() {
    let bench = Bench::new().after_cut();
    let ino = bench.create("file");
    assert_eq!(cost(&bench, || bench.fs.sync_file(ino, false).unwrap()), (1, 0), "after an unclean end");
    bench.fs.close().unwrap();
    for round in 0..3 {
        let bench = Bench::open(bench.device.cut());
        let ino = bench.ino("file").unwrap();
        for length in 0..4 {
            bench.fs.write(ino, length * 4096, &[round + 1; 4096], false).unwrap();
            assert_eq!(cost(&bench, || bench.fs.sync_file(ino, false).unwrap()), (1, 0), "after a clean end");
            let after = bench.after_cut();
            assert_eq!(after.read("file"), Some(vec![round + 1; (length as usize + 1) * 4096]));
            after.close_clean("a chain behind a clean end");
        }
    }
}

/// The segment behind the checkpoint ends: nobody knows what the next one holds, and fsync is a checkpoint once.
#[test]
fn the_first_chain_after_a_mount_ends_with_its_segment() {
    let bench = Bench::new();
    let ino = bench.create("file");
    bench.fs.close().unwrap();
    let bench = Bench::open(bench.device.cut());
    let mut checkpoints = Vec::new();
    for round in 0..700_u32 {
        bench.fs.write(ino, 0, &round.to_le_bytes(), false).unwrap();
        let (_, taken) = cost(&bench, || bench.fs.sync_file(ino, false).unwrap());
        if taken > 0 {
            checkpoints.push(round);
        }
        if round % 16 == 0 || taken > 0 {
            assert_eq!(bench.after_cut().read("file"), Some(round.to_le_bytes().to_vec()), "round {round}");
        }
    }
    assert_eq!(checkpoints.len(), 1, "{checkpoints:?}");
}

/// An fsync was cut off such that its later blocks are there and its first is not. The next session's chain must not lead into them.
#[test]
fn a_chain_does_not_lead_into_what_an_interrupted_fsync_left() {
    let bench = Bench::new();
    let ino = bench.create("file");
    bench.fs.write(ino, 0, b"one", false).unwrap();
    bench.fs.close().unwrap();
    let clean = bench.device.cut();

    // Two fsyncs behind the clean end. Of the chain everything but its first block reaches the device, and none of them had returned.
    let bench = with_seals(clean.snapshot());
    let first = bench.device.cut();
    for content in [b"two", b"six"] {
        bench.fs.write(ino, 0, content, false).unwrap();
        bench.fs.sync_file(ino, false).unwrap();
    }
    let last = bench.device.cut();
    let (start, mut was, mut is) = (first_difference(&first, &last), [0; 4096], [0; 4096]);
    let left = last.snapshot();
    first.read_at(start, &mut was).unwrap();
    left.write_at(start, &was).unwrap();
    as_if_not_flushed(&left, &differences(&first, &left));

    let bench = Bench::open(left);
    assert_eq!(bench.read("file").as_deref(), Some(&b"one"[..]), "the chain has no beginning");
    let other = bench.create("other");
    let (_, checkpoints) = cost(&bench, || bench.fs.sync_file(other, false).unwrap());
    assert_eq!(checkpoints, 1, "its beginning is not free");
    bench.device.cut().read_at(start, &mut is).unwrap();
    assert_eq!(was, is, "a block was written in front of the old chain");
    let after = bench.after_cut();
    assert_eq!(after.read("file").as_deref(), Some(&b"one"[..]));
    assert!(after.ino("other").is_some());
    after.close_clean("an old chain behind the checkpoint");
}

/// The same, where what is left lies far behind the checkpoint: the last of many fsyncs, of which none had returned.
#[test]
fn a_chain_does_not_lead_into_what_lies_far_behind_the_checkpoint() {
    for fsyncs in [1, 10, 40, 120_u32] {
        let bench = Bench::new();
        bench.create("other");
        let ino = bench.create("file");
        bench.fs.write(ino, 0, b"one", false).unwrap();
        bench.fs.close().unwrap();

        // Each is a seal and an inode. All but the last of them are lost.
        let bench = with_seals(bench.device.cut());
        let (ino, first) = (bench.ino("file").unwrap(), bench.device.cut());
        for round in 0..=fsyncs {
            bench.fs.write(ino, 0, &round.to_le_bytes(), false).unwrap();
            bench.fs.sync_file(ino, false).unwrap();
        }
        let left = bench.device.cut();
        let chain = differences(&first, &left);
        assert_eq!(chain.len(), 2 * (fsyncs as usize + 1), "blocks of the chain");
        let mut was = [0; 4096];
        for &start in &chain[..chain.len() - 2] {
            first.read_at(start, &mut was).unwrap();
            left.write_at(start, &was).unwrap();
        }
        as_if_not_flushed(&left, &chain[chain.len() - 2..]);

        // As many more, up to what is left.
        let bench = Bench::open(left);
        assert_eq!(bench.read("file").as_deref(), Some(&b"one"[..]), "{fsyncs}: the chain has no beginning");
        let (ino, other) = (bench.ino("file").unwrap(), bench.ino("other").unwrap());
        bench.fs.write(ino, 0, b"newest", false).unwrap();
        bench.fs.sync_file(ino, false).unwrap();
        for round in 1..fsyncs {
            bench.fs.write(other, 0, &round.to_le_bytes(), false).unwrap();
            bench.fs.sync_file(other, false).unwrap();
        }
        let after = bench.after_cut();
        assert_eq!(after.read("file").as_deref(), Some(&b"newest"[..]), "{fsyncs}: what was fsynced");
        after.close_clean("an old chain far behind the checkpoint");
    }
}

/// An fsync of this session has a seal, also where the inode could be its own.
fn with_seals(memory: MemoryDevice) -> Bench {
    Bench::open_with(memory, OpenOptions { inside_seals: false, ..OpenOptions::default() })
}

/// Makes the seals among these blocks say that nothing in front of them was durable.
fn as_if_not_flushed(image: &MemoryDevice, blocks: &[u64]) {
    let mut bytes = [0; 4096];
    for &at in blocks {
        image.read_at(at, &mut bytes).unwrap();
        if bytes.starts_with(b"BSEL") {
            let entries = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
            bytes[16..20].fill(0);
            let covered = [&bytes[..12], &bytes[16..24 + 8 * entries], &bytes[4072..]];
            let sum = covered.into_iter().fold(u32::from_le_bytes(*b"BSEA"), crc_from);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            image.write_at(at, &bytes).unwrap();
        }
    }
}

/// The first block that differs, behind the metadata at the front.
fn first_difference(one: &MemoryDevice, other: &MemoryDevice) -> u64 {
    *differences(one, other).first().expect("they differ")
}

/// The blocks that differ.
fn differences(one: &MemoryDevice, other: &MemoryDevice) -> Vec<u64> {
    let (mut a, mut b) = ([0; 4096], [0; 4096]);
    let differs = |at: &u64| {
        one.read_at(*at, &mut a).unwrap();
        other.read_at(*at, &mut b).unwrap();
        a != b
    };
    (0..one.size()).step_by(4096).filter(differs).collect()
}

#[test]
fn large_files_take_two() {
    let bench = Bench::new();
    let ino = bench.create("file");
    bench.fs.write(ino, 0, &vec![1; 9 << 20], false).unwrap();
    assert_eq!(cost(&bench, || bench.fs.sync_file(ino, false).unwrap()), (2, 0));
    assert_eq!(bench.after_cut().read("file"), Some(vec![1; 9 << 20]));
}

#[test]
fn times_alone_are_left_to_fsync() {
    let bench = Bench::new();
    let ino = bench.create("file");
    bench.fs.sync_file(ino, false).unwrap();
    let time = Time { seconds: 77, nanoseconds: 0 };
    let changes = SetAttributes { mtime: Some(SetTime::To(time)), ..SetAttributes::default() };
    bench.fs.set_attributes(ino, &changes).unwrap();
    assert_eq!(cost(&bench, || bench.fs.sync_file(ino, true).unwrap()), (0, 0));
    assert_eq!(cost(&bench, || bench.fs.sync_file(ino, false).unwrap()), (1, 0));
    let after = bench.after_cut();
    assert_eq!(after.fs.attributes(after.ino("file").unwrap()).unwrap().mtime, time);
}

#[test]
fn a_checkpoint_where_the_chain_does_not_do() {
    let bench = Bench::new();
    let directory = bench.mkdir("d");
    let one = |ino| cost(&bench, || bench.fs.sync_file(ino, false).unwrap()).1;
    assert_eq!(one(directory), 1, "a directory");
    bench.mkdir("new");
    assert_eq!(one(bench.create("new/file")), 1, "in a new directory");
    let ino = bench.create("file");
    bench.fs.link(ino, bench.fs.root(), b"link").unwrap();
    assert_eq!(one(ino), 1, "two links");
    bench.unlink("link");
    // Whether the other name is gone after a cut is open, as long as the count of links agrees.
    assert_eq!(one(ino), 0, "a link less than the checkpoint has");
    bench.rename("file", "renamed");
    assert_eq!(one(ino), 1, "renamed");
    bench.fs.write(ino, 0, &vec![1; 9 << 20], false).unwrap();
    assert_eq!(one(ino), 0, "large");
    let size = SetAttributes { size: Some(5), ..SetAttributes::default() };
    bench.fs.set_attributes(ino, &size).unwrap();
    assert_eq!(one(ino), 1, "lost its nodes");
    bench.unlink("renamed");
    assert_eq!(one(ino), 1, "no link");
}

#[test]
fn a_read_only_open_recovers_in_memory() {
    let bench = Bench::new();
    let ino = bench.create("file");
    bench.fs.write(ino, 0, &[5; 10_000], false).unwrap();
    bench.fs.sync_file(ino, false).unwrap();
    let left = bench.device.cut();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let looked = Bench::open_with(left.snapshot(), options);
    assert_eq!(looked.read("file"), Some(vec![5; 10_000]));
    looked.fs.close().unwrap();
    let after = looked.device.cut();
    assert_eq!(after.counters().writes, 0, "a read-only open wrote");
    let fs = F2fs::open(Arc::new(after), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    assert!(fs.warnings().iter().any(|warning| warning.contains("1 file fsynced")), "{:?}", fs.warnings());
}
