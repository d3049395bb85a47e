//! A volume with a random past, and what its files are.

use std::collections::BTreeMap;
use std::sync::Arc;

use basalt_device::power::{Change, Fate, Replay};
use basalt_device::{BlockDevice, MemoryDevice, PowerCutDevice};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::pack::Pack;
use basalt_f2fs::{F2fs, Geometry};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileSystem, RenameFlags, SetAttributes};

use crate::packs::{BLOCK, FILE, both, fresh, open};

/// Of each file its size in bytes, and the byte it is full of.
pub type Files = BTreeMap<String, (usize, u8)>;

/// Bytes of files: inline, in the inode's own addresses, in a node below it.
const SIZES: [usize; 4] = [40, 3_000, 9_000, 60_000];
const SEGMENT: u64 = 512;
/// The log of files' nodes, of those of nodes.
const WARM: usize = 1;
/// Where a node's footer has `cp_ver`.
const CP_VER: std::ops::Range<usize> = 4084..4092;
const LARGE: usize = 5_000_000;
const SESSIONS: u64 = 3;

/// A volume with a past.
pub struct Past {
    pub image: MemoryDevice,
    pub files: Files,
    /// The place of the newest pack as it was two checkpoints before.
    pub stale: Vec<u8>,
}

impl Past {
    pub fn of(seed: u64) -> Past {
        Past::of_mounts(seed, false)
    }

    /// As Linux leaves a volume: where power cut a checkpoint, the next mount goes on behind the one before without one of its own, and what is
    /// written then has the version of what was given up.
    pub fn mounted_by_linux(seed: u64) -> Past {
        Past::of_mounts(seed, true)
    }

    fn of_mounts(seed: u64, by_linux: bool) -> Past {
        let mut rng = Rng::new(seed);
        let mut files = Files::new();
        let mut image = fresh();
        for session in 0..SESSIONS {
            image = session_of(image, &mut files, &mut rng, session + 1 < SESSIONS);
            if session + 1 < SESSIONS && rng.next_u64().is_multiple_of(2) {
                image = cut_checkpoint(&image, &files, &mut rng);
            }
        }
        let newest = both(&image)[0].clone();
        let mut stale = vec![0; 512 * BLOCK as usize];
        image.read_at(u64::from(newest.start) * BLOCK, &mut stale).unwrap();
        // Two more checkpoints: the second is in the place of the one that was just kept.
        image = checkpoint(image, &mut files, &mut rng, false);
        let before = image.snapshot();
        if by_linux || rng.next_u64().is_multiple_of(2) {
            image = cut_checkpoint(&image, &files, &mut rng);
        }
        let cut = image.snapshot();
        let unmount = rng.next_u64().is_multiple_of(2);
        image = checkpoint(image, &mut files, &mut rng, unmount);
        if by_linux {
            give_up_behind_newest_but_one(&image, &before, &cut);
        }
        Past { image, files, stale }
    }

    /// Then power goes while the next pack is written, of which all but the first block arrives, or any part of that.
    pub fn torn(seed: u64) -> Past {
        let mut past = Past::of(seed);
        let mut rng = Rng::new(!seed);
        let is_whole = rng.next_u64().is_multiple_of(2);
        let may_lose = rng.next_u64().is_multiple_of(3);
        let files = past.files.clone();
        past.image = cut(&past.image, &files, &mut rng, &mut |change, is_pack, rng| match is_pack {
            true => {
                let mut keep = |sector: usize| sector >= 8 && (is_whole || rng.next_u64().is_multiple_of(2));
                Fate::Torn((0..change.sectors()).map(&mut keep).collect())
            }
            false if may_lose && rng.next_u64().is_multiple_of(2) => Fate::Lost,
            false => Fate::Kept,
        });
        past
    }
}

/// Gives nodes that power cut, those of `cut` that `before` has not, the version of what was written between the last two checkpoints, and puts
/// them behind the newest in the log too: Basalt has gone on in another segment, Linux would not have.
fn give_up_behind_newest_but_one(image: &MemoryDevice, before: &MemoryDevice, cut: &MemoryDevice) {
    let [newest, older] = both(image);
    let given_up = both(cut)[0].clone();
    let behind = |pack: &Pack| pack.raw.node_version(pack.checksum).to_le_bytes();
    let (version, was) = (behind(&older), behind(&given_up));
    let main = u64::from(Geometry::read(image).unwrap().0.main);
    let log = |pack: &Pack| main + u64::from(pack.raw.cur_node_segno[WARM].get()) * SEGMENT;
    let (from, to, end) = (log(&given_up), log(&newest), u64::from(newest.raw.cur_node_blkoff[WARM].get()));
    let mut blocks = [[0; BLOCK as usize]; 3];
    for at in main..image.size() / BLOCK {
        let images = [image, before, cut].into_iter().zip(&mut blocks);
        images.for_each(|(from, block)| from.read_at(at * BLOCK, block).unwrap());
        let [block, before, cut] = &mut blocks;
        if block != cut || cut == before || block[CP_VER] != was {
            continue;
        }
        block[CP_VER].copy_from_slice(&version);
        image.write_at(at * BLOCK, block).unwrap();
        if (from + end..from + SEGMENT).contains(&at) && to != from {
            image.write_at((to + at - from) * BLOCK, block).unwrap();
        }
    }
}

/// A few changes, and a checkpoint.
fn checkpoint(image: MemoryDevice, files: &mut Files, rng: &mut Rng, unmount: bool) -> MemoryDevice {
    let device = Arc::new(image);
    let fs = open(device.clone());
    (0..8).for_each(|_| step(&fs, files, rng, false));
    if unmount {
        fs.close().unwrap()
    } else {
        fs.sync().unwrap()
    }
    device.snapshot()
}

/// One mount, with a checkpoint at its end.
fn session_of(image: MemoryDevice, files: &mut Files, rng: &mut Rng, may_unmount: bool) -> MemoryDevice {
    let device = Arc::new(image);
    let fs = open(device.clone());
    assert!(fs.is_writable(), "{:?}", fs.warnings());
    for _ in 0..5 + rng.next_u64() % 120 {
        step(&fs, files, rng, true);
    }
    fs.sync().unwrap();
    if may_unmount && rng.next_u64().is_multiple_of(2) {
        fs.close().unwrap();
    }
    device.snapshot()
}

/// A mount of which nothing is made durable: power goes when all but the pack of its checkpoint is written.
fn cut_checkpoint(image: &MemoryDevice, files: &Files, rng: &mut Rng) -> MemoryDevice {
    cut(image, files, rng, &mut |_, is_pack, _| if is_pack { Fate::Lost } else { Fate::Kept })
}

/// What becomes of a write, and whether it is one of the pack.
type Fates<'a> = &'a mut dyn FnMut(&Change, bool, &mut Rng) -> Fate;

/// A mount of which nothing is made durable: power goes when the pack of its checkpoint is being written.
fn cut(image: &MemoryDevice, files: &Files, rng: &mut Rng, fate: Fates<'_>) -> MemoryDevice {
    let device = Arc::new(PowerCutDevice::new(image.snapshot()));
    let fs = open(device.clone());
    let geometry = Geometry::read(&*device).unwrap().0;
    let newest = || choose_pack(&*device, &geometry).unwrap().0;
    let was = newest().raw.checkpoint_ver;
    let mut files = files.clone();
    for _ in 0..5 + rng.next_u64() % 60 {
        step(&fs, &mut files, rng, false);
    }
    if newest().raw.checkpoint_ver != was {
        return image.snapshot();
    }
    let from = device.position();
    let other = u64::from(geometry.checkpoint + (1 - newest().index) * 512) * BLOCK;
    fs.sync().unwrap();
    drop(fs);
    let history = device.history();
    let is_pack = |change: &Change| matches!(change, Change::Write { offset, .. } if (other..other + 512 * BLOCK).contains(offset));
    let at = (from..history.changes.len()).find(|at| is_pack(&history.changes[*at])).unwrap();
    Replay::new(&history).cut(at, |cached| cached.iter().map(|change| fate(change, is_pack(change), rng)).collect())
}

/// One change; with `durable`, perhaps an fsync or a checkpoint too.
fn step(fs: &F2fs, files: &mut Files, rng: &mut Rng, durable: bool) {
    let name = format!("f{}", rng.next_u64() % 60);
    let value = (rng.next_u64() % 255 + 1) as u8;
    let size = if rng.next_u64().is_multiple_of(100) { LARGE } else { SIZES[(rng.next_u64() % 4) as usize] };
    match rng.next_u64() % 10 {
        0..=4 => {
            let ino = write(fs, files, &name, size, value);
            if durable && rng.next_u64().is_multiple_of(3) {
                fs.sync_file(ino, false).unwrap();
            }
        }
        5 if files.remove(&name).is_some() => fs.unlink(fs.root(), name.as_bytes()).unwrap(),
        6 | 7 => {
            let ino = write(fs, files, "new", size, value);
            rename(fs, files, "new", &name);
            if durable {
                fs.sync_file(ino, false).unwrap();
            }
        }
        8 if durable && rng.next_u64().is_multiple_of(4) => fs.sync().unwrap(),
        _ => {
            let last = files.keys().next_back().filter(|last| **last != name).cloned();
            if let Some(last) = last {
                rename(fs, files, &last, &name);
            }
        }
    }
}

fn write(fs: &F2fs, files: &mut Files, name: &str, size: usize, value: u8) -> u64 {
    let ino = match fs.lookup(fs.root(), name.as_bytes()) {
        Ok(found) => {
            fs.set_attributes(found.ino, &SetAttributes { size: Some(0), ..Default::default() }).unwrap();
            found.ino
        }
        Err(_) => fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino,
    };
    assert_eq!(fs.write(ino, 0, &vec![value; size], false).unwrap(), size);
    files.insert(name.to_owned(), (size, value));
    ino
}

fn rename(fs: &F2fs, files: &mut Files, from: &str, to: &str) {
    let flags = RenameFlags::empty();
    fs.rename(fs.root(), from.as_bytes(), fs.root(), to.as_bytes(), flags, &Caller::default()).unwrap();
    if let Some(file) = files.remove(from) {
        files.insert(to.to_owned(), file);
    }
}

/// Files that are not there, or not as they should be.
pub fn wrong<'a>(fs: &dyn FileSystem, files: &'a Files) -> Vec<&'a str> {
    let is_wrong = |name: &str, size: usize, value: u8| {
        let Ok(found) = fs.lookup(fs.root(), name.as_bytes()) else { return true };
        let mut bytes = vec![0; size];
        let is_read = fs.read(found.ino, 0, &mut bytes).is_ok();
        !is_read || found.size != size as u64 || bytes.iter().any(|byte| *byte != value)
    };
    let all = files.iter().filter(|(name, (size, value))| is_wrong(name, *size, *value));
    all.map(|(name, _)| name.as_str()).collect()
}
