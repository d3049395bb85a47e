//! The chain as Linux writes it, without seals, and power cut while an inode of it was written: its footer is there, the rest is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::crc::crc_from;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileSystem};

use super::power::{FILE, formatted};

const BLOCK: u64 = 4096;
const SECTOR: usize = 512;
/// Where a node's footer is; it begins with two ids.
const FOOTER: u64 = 4072;
/// Fsyncs behind the checkpoint, in order: a file, and what it holds from then on.
const FSYNCS: [(&str, u8); 4] = [("first", 1), ("last", 2), ("other", 3), ("last", 4)];

fn open(device: &Arc<MemoryDevice>) -> F2fs {
    let options = OpenOptions { background_cleaning: false, inside_seals: false, ..OpenOptions::default() };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

/// A volume with a chain, and where the inode of each fsync is. Seals are nodes of no file.
fn chain_without_seals() -> (MemoryDevice, Vec<u64>) {
    chain_on(formatted(64 << 20))
}

/// The same on a new volume.
fn chain_on(volume: MemoryDevice) -> (MemoryDevice, Vec<u64>) {
    let device = Arc::new(volume);
    let fs = open(&device);
    for (name, _) in &FSYNCS[..3] {
        fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap();
    }
    fs.sync().unwrap();
    for (name, content) in FSYNCS {
        let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
        fs.write(ino, 0, &[content; 9000], false).unwrap();
        fs.sync_file(ino, false).unwrap();
    }
    let image = device.snapshot();
    let mut head = [0; 4];
    let mut is_seal = |block: &u64| image.read_at(block * BLOCK, &mut head).is_ok() && head == *b"BSEL";
    let seals: Vec<u64> = (0..image.size() / BLOCK).filter(&mut is_seal).collect();
    assert_eq!(seals.len(), FSYNCS.len());
    seals.iter().for_each(|seal| forget_seal(&image, *seal));
    (image, seals.iter().map(|seal| seal + 1).collect())
}

/// Makes a node of no file of a seal.
pub(super) fn forget_seal(image: &MemoryDevice, seal: u64) {
    image.write_at(seal * BLOCK, &[0; SECTOR]).unwrap();
    image.write_at(seal * BLOCK + FOOTER, &[9, 9, 0, 0, 9, 9, 0, 0]).unwrap();
}

pub(super) fn tear(image: &MemoryDevice, inode: u64) -> Arc<MemoryDevice> {
    let torn = image.snapshot();
    torn.write_at(inode * BLOCK, &[0; BLOCK as usize - SECTOR]).unwrap();
    Arc::new(torn)
}

/// A volume whose inode at this block says that its name has 300 bytes, with the right checksum.
fn misname(image: &MemoryDevice, inode: u64) -> Arc<MemoryDevice> {
    const GENERATION: usize = 68;
    const NAME_LENGTH: usize = 88;
    const CHECKSUM: usize = 368;
    const INO: usize = FOOTER as usize + 4;
    let odd = image.snapshot();
    let seed = Geometry::read(&odd).unwrap().0.checksum_seed;
    let mut bytes = [0; BLOCK as usize];
    odd.read_at(inode * BLOCK, &mut bytes).unwrap();
    bytes[NAME_LENGTH..][..4].copy_from_slice(&300_u32.to_le_bytes());
    bytes[CHECKSUM..][..4].fill(0);
    let sum = [&bytes[INO..][..4], &bytes[GENERATION..][..4], &bytes[..]].into_iter().fold(seed, crc_from);
    bytes[CHECKSUM..][..4].copy_from_slice(&sum.to_le_bytes());
    odd.write_at(inode * BLOCK, &bytes).unwrap();
    Arc::new(odd)
}

/// What a file holds: the same in each byte.
fn content(fs: &F2fs, name: &str) -> u8 {
    let mut bytes = [0; 10_000];
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), 9000, "{name}");
    assert!(bytes[..9000].iter().all(|byte| *byte == bytes[0]), "{name}");
    bytes[0]
}

#[test]
fn the_chain_counts_without_seals() {
    let (image, _) = chain_without_seals();
    let fs = open(&Arc::new(image));
    assert_eq!(["first", "other", "last"].map(|name| content(&fs, name)), [1, 3, 4]);
}

#[test]
fn a_torn_inode_at_the_end_is_left_out() {
    let (image, inodes) = chain_without_seals();
    let device = tear(&image, inodes[3]);
    let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean() && report.faults.iter().any(|fault| fault.found.contains("cut off")), "{report:?}");
    let fs = open(&device);
    assert!(fs.is_writable(), "{:?}", fs.warnings());
    assert!(fs.warnings().iter().any(|warning| warning.contains("left out")), "{:?}", fs.warnings());
    assert_eq!(["first", "other", "last"].map(|name| content(&fs, name)), [1, 3, 2]);
    fs.close().unwrap();
    drop(fs);
    let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

/// Without checksums, too: nothing says that such an inode is whole.
#[test]
fn one_without_a_checksum_is_left_out() {
    let volume = MemoryDevice::new(64 << 20, 512);
    let features = FormatOptions::DEFAULT_FEATURES - Features::INODE_CHECKSUM;
    let options = FormatOptions { features, discard_reads_zeros: true, ..FormatOptions::default() };
    format(&volume, &options, &mut |_, _| ()).unwrap();
    let (image, inodes) = chain_on(volume);
    let fs = open(&tear(&image, inodes[3]));
    assert!(fs.is_writable(), "{:?}", fs.warnings());
    assert_eq!(["first", "other", "last"].map(|name| content(&fs, name)), [1, 3, 2]);
}

#[test]
fn a_repair_leaves_it_out_too() {
    let (image, inodes) = chain_without_seals();
    let device = tear(&image, inodes[3]);
    let shared: Arc<dyn BlockDevice> = device.clone();
    let report = plan(shared, &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean && report.losses.is_empty(), "{report:?}");
    let fs = open(&device);
    assert_eq!(["first", "other", "last"].map(|name| content(&fs, name)), [1, 3, 2]);
}

/// All of it is there: what a newer Linux may have fsynced is not given up.
#[test]
fn one_that_is_whole_is_not_torn() {
    let (image, inodes) = chain_without_seals();
    let fs = open(&misname(&image, inodes[3]));
    assert!(!fs.is_writable() && fs.warnings().iter().any(|warning| warning.contains("300")), "{:?}", fs.warnings());
}

/// That fsync had returned: it is damage, and nothing is given up for it.
#[test]
fn one_that_is_followed_is_not_given_up() {
    let (image, inodes) = chain_without_seals();
    for inode in [inodes[0], inodes[2]] {
        let device = tear(&image, inode);
        let before = device.snapshot();
        let fs = open(&device);
        assert!(!fs.is_writable(), "{inode}: {:?}", fs.warnings());
        drop(fs);
        let (mut old, mut new) = (vec![0; before.size() as usize], vec![0; before.size() as usize]);
        before.read_at(0, &mut old).unwrap();
        device.read_at(0, &mut new).unwrap();
        assert!(old == new, "{inode}: something was written");
    }
    // The block between is lost, and what was fsynced behind it is there.
    let device = tear(&image, inodes[2]);
    device.write_at((inodes[2] + 1) * BLOCK, &[0; BLOCK as usize]).unwrap();
    assert!(!open(&device).is_writable());
}

/// A block in the middle of Linux's chain cannot be read: what is in front of it is shown, and a repair has what is behind it.
#[test]
fn an_unreadable_block_of_linuxs_chain_hides_nothing_in_front_of_it() {
    let (image, inodes) = chain_without_seals();
    let bad = inodes[1];
    let device = Arc::new(FaultyDevice::new(image));
    let healed = AtomicBool::new(false);
    device.fail_when(move |request| {
        let covers = request.offset <= bad * BLOCK && request.end() >= (bad + 1) * BLOCK;
        let hits = request.offset < (bad + 1) * BLOCK && request.end() > bad * BLOCK;
        if request.kind == RequestKind::Write && covers {
            healed.store(true, Ordering::Relaxed);
        }
        let fails = hits && request.kind == RequestKind::Read && !healed.load(Ordering::Relaxed);
        fails.then_some(std::io::ErrorKind::Other)
    });
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options.clone(), Arc::new(SystemClock)).unwrap();
    assert!(!fs.is_writable(), "{:?}", fs.warnings());
    assert_eq!(content(&fs, "first"), 1);
    drop(fs);
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(planned.report().restored_nodes, "{:?}", planned.report());
    assert!(planned.commit().unwrap().clean);
    let fs = F2fs::open(device, options, Arc::new(SystemClock)).unwrap();
    assert_eq!(["first", "other", "last"].map(|name| content(&fs, name)), [1, 3, 4]);
}
