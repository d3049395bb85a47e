//! Both copies of the superblock damaged, each elsewhere: what is whole in either makes one, for repair and for rescue.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;
#[allow(dead_code)]
mod repaired;

use std::io::ErrorKind;
use std::sync::Arc;

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::layout::BLOCK_SIZE;
use basalt_f2fs::layout::superblock::{Features, SUPERBLOCK_OFFSET};
use basalt_f2fs::rescue::{GeometrySource, RescueOptions, Rescued};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use editor::Editor;
use repaired::{checked, differences, repair, repair_fully, tree};

const SEEDS: u64 = 60;

/// Bytes of the superblock that say where things are or what they are; the rest is names and zeros.
const FIELDS: usize = 124;

fn copies(device: &MemoryDevice) -> Vec<u8> {
    let mut blocks = vec![0; 2 * BLOCK_SIZE];
    device.read_at(0, &mut blocks).unwrap();
    blocks
}

/// The features: of what is damaged there, the checksum's may be one.
const FEATURES: std::ops::Range<usize> = 2180..2184;

/// Changes up to `most` bytes of each copy from `places` on, none twice.
fn damage(device: &MemoryDevice, rng: &mut Rng, places: [std::ops::Range<usize>; 2], most: usize) {
    let mut blocks = copies(device);
    for (copy, range) in (0..).zip(places) {
        let length = rng.between(1, most as u64) as usize;
        let first = rng.between(range.start as u64, (range.end - length) as u64) as usize;
        for byte in &mut blocks[copy * BLOCK_SIZE + SUPERBLOCK_OFFSET..][first..first + length] {
            *byte ^= rng.between(1, 255) as u8;
        }
    }
    device.write_at(0, &blocks).unwrap();
}

/// A volume whose superblocks have checksums, and one as `mkfs.f2fs` makes it, without.
fn bases() -> [MemoryDevice; 2] {
    let with = editor::filled_volume();
    let plain = Editor::new(&with);
    for copy in 0..2 {
        plain.superblock(copy, |superblock| {
            superblock.feature.set((superblock.features() - Features::SB_CHECKSUM).bits());
            superblock.checksum_offset.set(0);
            superblock.crc.set(0);
        });
    }
    assert!(checked(&plain.device).is_clean());
    [with, plain.device.snapshot()]
}

#[test]
fn what_is_whole_in_either_copy_makes_one() {
    let [with, plain] = bases();
    for seed in 0..SEEDS {
        let rng = &mut Rng::new(seed);
        // Without a checksum, fields that disagree are all there is to see.
        let base = if seed % 4 == 0 { &plain } else { &with };
        let device = Arc::new(base.snapshot());
        let half = FIELDS / 2;
        // A byte between them is whole: where both copies were damaged, none is.
        let mut places = match seed % 8 {
            0 | 4 => [56..72, 0..4],
            1 | 2 => [FEATURES, 0..4],
            _ => [4..half, half + 1..FIELDS],
        };
        if seed % 2 == 1 {
            places.reverse();
        }
        damage(&device, rng, places, if seed % 8 > 2 && seed % 4 != 0 { 8 } else { 4 });
        let shared: Arc<dyn BlockDevice> = device.clone();
        let before = tree(Arc::new(base.snapshot()));
        let what = format!("seed {seed}");
        let clock = Arc::new(SystemClock);
        let found = Rescued::open(shared.clone(), &RescueOptions::default(), clock, &mut |_| ()).unwrap();
        assert_eq!(found.report().geometry, GeometrySource::Superblock, "{what}");
        let report = repair_fully(&shared, &what);
        assert!(report.losses.is_empty(), "{what}: {:?}", report.losses);
        assert!(copies(&device) == copies(base), "{what}: other superblocks than before");
        assert_eq!(differences(&before, &tree(shared)), Vec::<String>::new(), "{what}");
    }
}

/// Features without the checksum's, in one copy: the other one is right, and the volume is used.
#[test]
fn damaged_features_of_one_copy_do_not_count() {
    let base = editor::filled_volume();
    let before = tree(Arc::new(base.snapshot()));
    for seed in 0..32 {
        let device = Arc::new(base.snapshot());
        let rng = &mut Rng::new(seed);
        let mut blocks = copies(&device);
        let place = (seed % 2) as usize * BLOCK_SIZE + SUPERBLOCK_OFFSET + FEATURES.start;
        let features = rng.next_u64() as u32 & !Features::SB_CHECKSUM.bits();
        blocks[place..place + 4].copy_from_slice(&features.to_le_bytes());
        device.write_at(0, &blocks).unwrap();
        let shared: Arc<dyn BlockDevice> = device.clone();
        let what = format!("seed {seed}, features {features:#x}");
        assert_eq!(differences(&before, &tree(shared.clone())), Vec::<String>::new(), "{what}");
        let report = checked(&*device);
        assert!(report.complete && !report.is_clean(), "{what}: {:?}", report.faults);
        repair_fully(&shared, &what);
        assert!(copies(&device) == copies(&base), "{what}: other superblocks than before");
    }
}

/// The same where the other copy cannot be read: nothing says that the volume has no checksums.
#[test]
fn damaged_features_beside_a_copy_that_cannot_be_read_are_refused() {
    let image = editor::filled_volume();
    let mut blocks = copies(&image);
    let place = SUPERBLOCK_OFFSET + FEATURES.start;
    let features = u32::from_le_bytes(blocks[place..place + 4].try_into().unwrap());
    let damaged = features & !(Features::SB_CHECKSUM | Features::INODE_CHECKSUM).bits();
    blocks[place..place + 4].copy_from_slice(&damaged.to_le_bytes());
    image.write_at(0, &blocks).unwrap();
    let device = FaultyDevice::new(image);
    device.fail_when(|request| {
        let is_second = request.kind == RequestKind::Read && request.offset < 8192 && request.end() > 4096;
        is_second.then_some(ErrorKind::Other)
    });
    assert!(F2fs::open(Arc::new(device), OpenOptions::default(), Arc::new(SystemClock)).is_err());
}

/// Without checksums several superblocks fit what is left: none is chosen, and nothing is written.
#[test]
fn nothing_is_guessed() {
    let [_, image] = bases();
    let mut blocks = copies(&image);
    // A wrong field and wrong features in the first, no magic in the second.
    blocks[SUPERBLOCK_OFFSET + 60] ^= 0x40;
    blocks[SUPERBLOCK_OFFSET + FEATURES.start] ^= 0x08;
    blocks[BLOCK_SIZE + SUPERBLOCK_OFFSET] ^= 0x01;
    image.write_at(0, &blocks).unwrap();
    let device = Arc::new(image);
    let shared: Arc<dyn BlockDevice> = device.clone();
    let report = repair(&shared).unwrap();
    assert!(!report.clean);
    assert!(copies(&device) == blocks, "superblocks were written");
}
