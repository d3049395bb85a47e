//! Power goes while a checkpoint is written, and leaves its journals between the ends of the pack before the last one: that says nothing against
//! the newest checkpoint, which is whole.

use std::sync::Arc;

use basalt_device::power::{Change, Fate, History, Replay};
use basalt_device::{BlockDevice, MemoryDevice, PowerCutDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const BLOCK: u64 = 4096;
/// Blocks of a database.
const BLOCKS: u64 = 16;
/// Of each number the nodes of the interrupted checkpoint lay where an older version of the same node was.
const SEEDS: [u64; 5] = [1, 4, 5, 8, 10];

fn open(device: Arc<dyn BlockDevice>) -> F2fs {
    let options = OpenOptions { background_cleaning: false, discard: false, ..OpenOptions::default() };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

fn make(fs: &F2fs, name: &str) -> u64 {
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    fs.create(fs.root(), name.as_bytes(), &file, &Caller::default()).unwrap().ino
}

/// One of a few databases is written to, and a checkpoint taken; at times so many files are made anew that the NAT itself is written.
fn round(fs: &F2fs, databases: &[u64], rng: &mut Rng, value: u8) {
    let database = databases[rng.index(databases.len())];
    for _ in 0..rng.below(20) {
        fs.write(database, rng.below(BLOCKS) * BLOCK, &[value; BLOCK as usize], false).unwrap();
    }
    if rng.below(4) == 0 {
        for number in 0..40 {
            let name = format!("new{number}");
            let _ = fs.unlink(fs.root(), name.as_bytes());
            let ino = make(fs, &name);
            fs.forget(ino, 1);
        }
    }
    fs.sync().unwrap();
}

/// What the device was written while a volume of hundreds of checkpoints was used.
fn history(seed: u64) -> History {
    let mut rng = Rng::new(seed);
    let device = Arc::new(MemoryDevice::new(80 << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ()).unwrap();
    let fs = open(device.clone());
    let databases: Vec<u64> = (0..1 + rng.below(4)).map(|number| make(&fs, &format!("database{number}"))).collect();
    for database in &databases {
        fs.write(*database, 0, &[1; (BLOCKS * BLOCK) as usize], false).unwrap();
    }
    fs.sync().unwrap();
    (0..1500_u32).for_each(|number| round(&fs, &databases, &mut rng, number as u8));
    let device = Arc::new(PowerCutDevice::new(device.snapshot()));
    drop(fs);
    let fs = open(device.clone());
    (0..60).for_each(|number| round(&fs, &databases, &mut rng, number));
    drop(fs);
    device.history()
}

#[test]
fn a_cut_of_the_next_checkpoint_contradicts_nothing() {
    for seed in SEEDS {
        let history = history(seed);
        let geometry = Geometry::read(&history.base).unwrap().0;
        let area = u64::from(geometry.checkpoint) * BLOCK..u64::from(geometry.checkpoint + 1024) * BLOCK;
        let is_pack = |change: &Change| matches!(change, Change::Write { offset, .. } if area.contains(offset));
        // Of the pack all but the first block arrives, and nothing else that was not flushed.
        let fate = |change: &Change| match is_pack(change) {
            true => Fate::Torn((0..change.sectors()).map(|sector| sector >= 8).collect()),
            false => Fate::Lost,
        };
        let mut replay = Replay::new(&history);
        for at in (0..history.changes.len()).filter(|&at| is_pack(&history.changes[at])) {
            let image = replay.cut(at, |cached| cached.iter().map(fate).collect());
            let fs = open(Arc::new(image));
            assert!(fs.is_writable(), "seed {seed}, cut at {at}: {:?}", fs.warnings());
        }
    }
}
