//! Repair of volumes so full that the recovery which comes first has to clean.

use std::sync::Arc;

use basalt_device::power::{Change, Fate};
use basalt_device::{BlockDevice, MemoryDevice, PowerCutDevice, Replay};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_segments::cleaning::KeepFree;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const BLOCK: u64 = 4096;
const SIZE: u64 = 256 << 10;
/// Longer than an inode has pointers for: 923 blocks.
const LONG: u64 = 5 << 20;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn open(device: Arc<MemoryDevice>) -> F2fs {
    // All of the reserve is kept free, and fsyncs write more blocks, so recovery has to clean.
    let options = OpenOptions { keep_free: KeepFree::Reserve, inside_seals: false, ..OpenOptions::default() };
    let options = OpenOptions { background_cleaning: false, ..options };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

/// A volume that is filled to 70 % with files of so many bytes, overwritten at random from a block on, with many fsyncs, and cut off.
fn cut_off(seed: u64, size: u64, first: u64) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(80 << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let fs = open(device.clone());
    let stat = fs.stat_fs().unwrap();
    let files = stat.available * u64::from(stat.block_size) / 100 * 70 / size;
    let make = |number: u64| {
        let ino = fs.create(fs.root(), format!("file{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &vec![number as u8; size as usize], false).unwrap();
        ino
    };
    let inos: Vec<u64> = (0..files).map(make).collect();
    fs.sync().unwrap();
    let mut rng = Rng::new(seed);
    for step in 0..2881 {
        let ino = inos[rng.index(inos.len())];
        let offset = (first + rng.below(size / BLOCK - first)) * BLOCK;
        fs.write(ino, offset, &[(step % 251) as u8; BLOCK as usize], false).unwrap();
        if step % 500 == 499 {
            fs.sync().unwrap();
        }
        if rng.below(4) == 0 {
            fs.sync_file(ino, false).unwrap();
        }
    }
    device.snapshot()
}

/// How many files there are, and how many of them are as on `right`.
fn as_on(right: &MemoryDevice, image: &MemoryDevice) -> (usize, usize) {
    let [right, image] = [right, image].map(|device| open(Arc::new(device.snapshot())));
    let content = |fs: &F2fs, name: &str| {
        let mut bytes = vec![0; SIZE as usize];
        let found = fs.lookup(fs.root(), name.as_bytes()).ok()?;
        fs.read(found.ino, 0, &mut bytes).ok().map(|_| bytes)
    };
    let names = (0..).map(|number| format!("file{number}"));
    let (mut all, mut same) = (0, 0);
    for name in names {
        let Some(expected) = content(&right, &name) else { return (all, same) };
        all += 1;
        same += usize::from(content(&image, &name) == Some(expected));
    }
    (all, same)
}

#[test]
fn the_checkpoint_that_counts_is_not_written_over() {
    let mut ahead = Vec::new();
    for seed in [32, 3, 37] {
        let image = cut_off(seed, SIZE, 0);
        let geometry = Geometry::read(&image).unwrap().0;
        let before = choose_pack(&image, &geometry).unwrap().0;
        let device = Arc::new(image.snapshot());
        plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        let after = choose_pack(&*device, &geometry).unwrap().0;
        assert_ne!(before.index, after.index, "seed {seed}");
        let mounted = Arc::new(image.snapshot());
        F2fs::open(mounted.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap().close().unwrap();
        let recovered = choose_pack(&*mounted, &geometry).unwrap().0;
        ahead.push(recovered.raw.checkpoint_ver.get() - before.raw.checkpoint_ver.get());
        assert_eq!(after.raw.checkpoint_ver.get() - before.raw.checkpoint_ver.get(), 1, "seed {seed}");
        // A byte of its first block goes bad: the last block tells that it counts.
        let at = u64::from(after.start) * BLOCK + 99;
        let mut byte = [0];
        device.read_at(at, &mut byte).unwrap();
        device.write_at(at, &[byte[0] ^ 0x40]).unwrap();
        let (all, same) = as_on(&image, &device.snapshot());
        assert!(all > 20 && all == same, "seed {seed}: {same} of {all}");
    }
    // Recovery and closing write two; else nothing had to be cleaned, and nothing was shown.
    assert!(ahead.iter().any(|&ahead| ahead > 2), "{ahead:?}");
}

/// Cleaning wrote nodes behind checkpoints that are only staged. Power goes while the first block of the repair's checkpoint is written and
/// leaves a part of it: the next repair does not take those nodes for what is left of a lost checkpoint.
#[test]
fn a_repair_whose_checkpoint_is_torn_restores_nothing() {
    for seed in [32, 37] {
        let image = cut_off(seed, SIZE, 0);
        let geometry = Geometry::read(&image).unwrap().0;
        let packs = u64::from(geometry.checkpoint) * BLOCK..u64::from(geometry.sit) * BLOCK;
        let device = Arc::new(PowerCutDevice::new(image.snapshot()));
        plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        let history = device.history();
        let is_pack = |change: &Change| matches!(change, Change::Write { offset, .. } if packs.contains(offset));
        let first = history.changes.iter().position(is_pack).unwrap();
        for sectors in [1, 4, 7] {
            let torn = Replay::new(&history).cut(first + 1, |cached| {
                let keep = |change: &Change| (0..change.sectors()).map(|sector| sector < sectors).collect();
                let fate = |change: &Change| if is_pack(change) { Fate::Torn(keep(change)) } else { Fate::Kept };
                cached.iter().map(fate).collect()
            });
            let torn = Arc::new(torn);
            let report = plan(torn.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
            let what = format!("seed {seed}, {sectors} sectors");
            assert!(report.clean, "{what}");
            assert!(!report.restored_nodes, "{what}: {} repairs", report.repairs.len());
            let (all, same) = as_on(&image, &torn.snapshot());
            assert!(all > 20 && all == same, "{what}: {same} of {all}");
        }
    }
}

/// Cleaning wrote direct nodes, too, behind checkpoints that are only staged.
#[test]
fn direct_nodes_of_a_repair_that_is_torn_restore_nothing() {
    let mut shown = 0;
    // Those of 60 whose recovery had to clean.
    for seed in [2, 42] {
        let image = cut_off(seed, LONG, 923);
        let geometry = Geometry::read(&image).unwrap().0;
        let packs = u64::from(geometry.checkpoint) * BLOCK..u64::from(geometry.sit) * BLOCK;
        let before = choose_pack(&image, &geometry).unwrap().0.raw.checkpoint_ver.get();
        let mounted = Arc::new(image.snapshot());
        F2fs::open(mounted.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap().close().unwrap();
        let ahead = choose_pack(&*mounted, &geometry).unwrap().0.raw.checkpoint_ver.get() - before;
        if ahead < 3 {
            continue;
        }
        shown += 1;
        let device = Arc::new(PowerCutDevice::new(image.snapshot()));
        plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        let history = device.history();
        let is_pack = |change: &Change| matches!(change, Change::Write { offset, .. } if packs.contains(offset));
        let first = history.changes.iter().position(is_pack).unwrap();
        let torn = Replay::new(&history).cut(first + 1, |cached| {
            let keep = |change: &Change| (0..change.sectors()).map(|sector| sector < 4).collect();
            let fate = |change: &Change| if is_pack(change) { Fate::Torn(keep(change)) } else { Fate::Kept };
            cached.iter().map(fate).collect()
        });
        let torn = Arc::new(torn);
        let report = plan(torn.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert!(report.clean && !report.restored_nodes, "seed {seed}: {} repairs", report.repairs.len());
    }
    assert!(shown > 0, "nothing had to be cleaned");
}
