//! Volumes whose checkpoint packs are to be damaged: forty files, each of which is whole or not.

use std::io::ErrorKind;
use std::sync::Arc;

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::checkpoint::block::expected_checksum;
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::pack::{Pack, read_pack};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

pub const BLOCK: u64 = 4096;
pub const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
pub const FILES: u64 = 40;

pub fn open(device: Arc<dyn BlockDevice>) -> F2fs {
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

pub fn make(fs: &F2fs, from: u64, to: u64) {
    for number in from..to {
        let ino = fs.create(fs.root(), format!("file{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &[number as u8; 9_000], false).unwrap();
    }
}

/// How many of the files are there, each whole.
pub fn files(fs: &dyn FileSystem) -> u64 {
    let is_there = |number: &u64| {
        let Ok(found) = fs.lookup(fs.root(), format!("file{number}").as_bytes()) else { return false };
        let mut bytes = vec![0; 9_000];
        fs.read(found.ino, 0, &mut bytes).is_ok() && bytes.iter().all(|byte| u64::from(*byte) == *number)
    };
    (0..FILES).filter(is_there).count() as u64
}

pub fn fresh() -> MemoryDevice {
    let device = MemoryDevice::new(80 << 20, 512);
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&device, &options, &mut |_, _| ()).unwrap();
    device
}

pub fn flip(device: &dyn BlockDevice, at: u64, mask: u8) {
    let mut byte = [0];
    device.read_at(at, &mut byte).unwrap();
    device.write_at(at, &[byte[0] ^ mask]).unwrap();
}

/// First and last block of the newest pack.
pub fn ends(device: &MemoryDevice) -> [u64; 2] {
    let geometry = Geometry::read(device).unwrap().0;
    let (pack, _) = choose_pack(device, &geometry).unwrap();
    [pack.start, pack.start + pack.raw.cp_pack_total_block_count.get() - 1].map(u64::from)
}

pub fn unreadable(device: &FaultyDevice<MemoryDevice>, range: std::ops::Range<u64>) {
    device.fail_when(move |request| {
        let touches = request.offset < range.end && request.end() > range.start;
        (request.kind == RequestKind::Read && touches).then_some(ErrorKind::Other)
    });
}

/// What rescue finds on a copy of a volume.
pub fn rescued(image: &MemoryDevice) -> Rescued {
    let copy: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    Rescued::open(copy, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap()
}

/// How many of the files rescue has, each whole.
pub fn rescued_files(image: &MemoryDevice) -> u64 {
    files(&rescued(image))
}

/// A volume of which the first checkpoint with the files is that of its end.
pub fn unmounted() -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    fs.close().unwrap();
    drop(fs);
    device.snapshot()
}

/// What checkers, a mount, rescue and a repair make of a volume, in numbers of whole files.
#[derive(Debug)]
pub struct Outcome {
    pub is_clean: bool,
    pub is_writable: bool,
    /// `None` where the volume cannot be mounted.
    pub mounted: Option<u64>,
    pub rescued: Option<u64>,
    /// Whether rescue says that files may be of before.
    pub is_warned: bool,
    /// What is there after a repair, whatever that says it would lose.
    pub repaired: Option<u64>,
    /// Whether the repair came to its end: both a check and a mount say that all is well.
    pub is_mended: bool,
    pub losses: usize,
}

impl Outcome {
    /// Of copies of a volume. `whole` says how many files are.
    pub fn of(image: &MemoryDevice, whole: impl Fn(&dyn FileSystem) -> u64) -> Outcome {
        let copy = || -> Arc<dyn BlockDevice> { Arc::new(image.snapshot()) };
        let mount = |device| {
            let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
            F2fs::open(device, options, Arc::new(SystemClock)).ok()
        };
        let clock = Arc::new(SystemClock);
        let rescued = Rescued::open(copy(), &RescueOptions::default(), clock, &mut |_| ()).ok();
        let mounted = mount(copy());
        let device = copy();
        let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).and_then(|plan| plan.commit());
        let is_clean = |device: &dyn BlockDevice| {
            check(device, &CheckOptions::default(), &mut |_| ()).is_ok_and(|report| report.is_clean())
        };
        let after = report.as_ref().ok().and_then(|_| mount(device.clone()));
        Outcome {
            is_clean: is_clean(image),
            is_writable: mounted.as_ref().is_some_and(F2fs::is_writable),
            mounted: mounted.map(|fs| whole(&fs)),
            is_warned: rescued
                .as_ref()
                .is_some_and(|found| found.report().notes.iter().any(|note| note.contains("may be of before"))),
            rescued: rescued.map(|fs| whole(&fs)),
            is_mended: is_clean(&*device) && after.as_ref().is_some_and(F2fs::is_writable),
            repaired: after.map(|fs| whole(&fs)),
            losses: report.map_or(0, |report| report.losses.len()),
        }
    }

    /// Whether somebody could go on with less than `files` without having been told.
    pub fn is_silent(&self, files: u64) -> bool {
        self.is_clean && self.is_writable && self.mounted.is_none_or(|mounted| mounted < files)
    }
}

/// Writes the same byte over `count` blocks from block `first` on.
pub fn fill(image: &MemoryDevice, first: u64, count: u64, byte: u8) {
    image.write_at(first * BLOCK, &vec![byte; (count * BLOCK) as usize]).unwrap();
}

/// The newest pack, and the older one.
pub fn both(image: &MemoryDevice) -> [Pack; 2] {
    let geometry = Geometry::read(image).unwrap().0;
    let newest = choose_pack(image, &geometry).unwrap().0;
    let older = read_pack(image, &geometry, 1 - newest.index).unwrap();
    [newest, older]
}

/// The last block of a pack.
pub fn last(pack: &Pack) -> u64 {
    u64::from(pack.start + pack.raw.cp_pack_total_block_count.get() - 1)
}

/// Changes both ends of a pack, and gives them the right checksum.
pub fn edit_ends(device: &MemoryDevice, pack: &Pack, edit: impl FnOnce(&mut [u8])) {
    let mut block = pack.bytes[..BLOCK as usize].to_vec();
    edit(&mut block);
    let at = pack.raw.checksum_offset.get() as usize;
    let checksum = expected_checksum(&block, at);
    block[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    [pack.start.into(), last(pack)].into_iter().for_each(|end| device.write_at(end * BLOCK, &block).unwrap());
}

/// Gives both ends of a pack another version.
pub fn set_version(device: &MemoryDevice, pack: &Pack, version: u64) {
    edit_ends(device, pack, |block| block[..8].copy_from_slice(&version.to_le_bytes()));
}

/// A volume of which something of `file3` and `file5` is in the newest checkpoint, and something of `file3` was fsynced behind it. `clean`:
/// the checkpoint before is that of an unmounted volume.
pub fn written_behind_a_checkpoint(clean: bool) -> MemoryDevice {
    let device = Arc::new(fresh());
    let mut fs = open(device.clone());
    make(&fs, 0, FILES);
    let [ino, other] = [&b"file3"[..], b"file5"].map(|name| fs.lookup(fs.root(), name).unwrap().ino);
    fs.write(other, 0, &[0; 9_000], false).unwrap();
    fs.sync().unwrap();
    if clean {
        fs.close().unwrap();
        drop(fs);
        fs = open(device.clone());
    }
    fs.write(ino, 0, &[0; 9_000], false).unwrap();
    fs.write(other, 0, &[5; 9_000], false).unwrap();
    fs.sync().unwrap();
    fs.write(ino, 0, &[3; 9_000], false).unwrap();
    fs.sync_file(ino, false).unwrap();
    let image = device.snapshot();
    drop(fs);
    image
}

/// The same, of a volume in use.
pub fn written_behind() -> MemoryDevice {
    written_behind_a_checkpoint(false)
}
