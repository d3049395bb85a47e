//! Power cuts at random: inside fsync, and inside recovery.

use basalt_testkit::rng::Rng;
use basalt_vfs::FileSystem;

use crate::power::{Bench, content};

const FILES: u64 = 6;

/// Files are overwritten in place and synced; after each cut every file holds one of the versions it may, block for block.
#[test]
fn cut_inside_fsync() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let bench = Bench::new();
        // What the last fsync left, and what has been written since.
        let mut states: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for file in 0..FILES {
            let ino = bench.create(&format!("file {file}"));
            let bytes = content(seed * 100 + file, 40_960);
            bench.fs.write(ino, 0, &bytes, false).unwrap();
            bench.fs.sync_file(ino, false).unwrap();
            states.push((bytes.clone(), bytes));
        }
        for step in 0..40_u64 {
            let file = rng.below(FILES);
            let ino = bench.ino(&format!("file {file}")).unwrap();
            let block = rng.below(10) * 4096;
            let bytes = content(rng.next_u64(), 4096);
            bench.fs.write(ino, block, &bytes, false).unwrap();
            states[file as usize].1[block as usize..][..4096].copy_from_slice(&bytes);
            // What an fsync sends before its flush is in the cache of the device already when others' fsyncs return.
            let percent = [0, 20, 50, 80, 100][rng.index(5)];
            if rng.chance(70) {
                bench.fs.sync_file(ino, rng.chance(50)).unwrap();
                let (synced, written) = &mut states[file as usize];
                synced.clone_from(written);
            }
            if step % 4 == 0 {
                expect(&bench, &states, &mut rng, percent);
            }
        }
    }
}

/// Opens what a cut leaves, with more cuts inside the recovery, and compares.
fn expect(bench: &Bench, states: &[(Vec<u8>, Vec<u8>)], rng: &mut Rng, percent: u64) {
    let mut left = bench.device.cut_at_random(rng, percent);
    for _ in 0..rng.below(3) {
        // Opened, its writes cut off, and opened again.
        left = Bench::open(left).device.cut_at_random(rng, percent);
    }
    let after = Bench::open(left);
    for (file, (synced, written)) in states.iter().enumerate() {
        let found = after.read(&format!("file {file}")).unwrap();
        assert_eq!(found.len(), synced.len());
        for (index, block) in found.chunks(4096).enumerate() {
            let at = index * 4096..(index + 1) * 4096;
            assert!(block == &synced[at.clone()] || block == &written[at], "file {file} block {index}");
        }
    }
    after.close_clean("after cuts");
}
