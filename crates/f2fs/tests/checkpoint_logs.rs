//! Damage inside the newest checkpoint pack, where between it and the one before the log of nodes went from one segment to another: only its
//! way says which nodes were written between the two.

#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::checkpoint::pack::Pack;
use basalt_f2fs::{F2fs, Geometry};
use basalt_segments::SegmentKind;
use basalt_vfs::FileSystem;
use packs::{BLOCK, FILES, Outcome, both, edit_ends, files, fill, fresh, make, open};

/// Blocks of a segment.
const SEGMENT: u64 = 512;
/// Where a pack says how a log chooses its blocks, and that it fills holes.
const ALLOC_TYPE: usize = 176;
const SLACK: u8 = 1;
/// Where an inode has its size, and parts of a node's footer.
const SIZE: std::ops::Range<usize> = 16..24;
const CP_VER: std::ops::Range<usize> = 4084..4092;
const NEXT: std::ops::Range<usize> = 4092..4096;

fn rewrite(fs: &F2fs, number: u64, value: u8) {
    let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
    assert_eq!(fs.write(ino, 0, &[value; 9_000], false).unwrap(), 9_000);
}

/// The log of files' nodes in a pack: its segment, and the block there that comes next.
fn log_of(pack: &Pack) -> (u64, u64) {
    (pack.raw.cur_node_segno[1].get().into(), pack.raw.cur_node_blkoff[1].get().into())
}

/// A volume in use with all the files, and with `left` blocks before its log of files' nodes needs a new segment.
fn near_the_end_of_a_segment(left: u64) -> (Arc<MemoryDevice>, F2fs) {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    fs.sync().unwrap();
    while log_of(&both(&device)[0]).1 != SEGMENT - left {
        rewrite(&fs, 1, 1);
        fs.sync().unwrap();
    }
    (device, fs)
}

/// Where the journals of the newest pack are.
fn journals(image: &MemoryDevice) -> u64 {
    let newest = both(image)[0].clone();
    u64::from(newest.start + newest.raw.cp_pack_start_sum.get())
}

/// Says in the newest pack that a log fills holes.
fn fills_holes(image: &MemoryDevice, kind: SegmentKind) {
    edit_ends(image, &both(image)[0], |block| block[ALLOC_TYPE + kind.index()] = SLACK);
}

#[track_caller]
fn expect_all(image: &MemoryDevice) -> Outcome {
    let whole = Outcome::of(image, files);
    assert!(whole.is_clean && whole.is_writable && whole.mounted == Some(FILES), "undamaged: {whole:?}");
    fill(image, journals(image), 1, 0);
    let found = Outcome::of(image, files);
    assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES) && found.is_mended, "{found:?}");
    found
}

/// `file0` is fsynced so often before the last checkpoint but one; then so often before and after `file5` gets what counts.
fn crossing(before: u32, between: u32, after: u32) -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    rewrite(&fs, 5, 0xEE);
    fs.sync().unwrap();
    let fsync = |number: u64| {
        rewrite(&fs, number, number as u8);
        fs.sync_file(fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino, false).unwrap();
    };
    (0..before).for_each(|_| fsync(0));
    (0..2).for_each(|_| fs.sync().unwrap());
    rewrite(&fs, 1, 1);
    fs.sync().unwrap();
    (0..between).for_each(|_| fsync(0));
    fsync(5);
    (0..after).for_each(|_| fsync(0));
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    image
}

/// The node that counts is in the segment where the log was, in one that was filled since, or in the newest.
#[test]
fn a_log_is_followed_from_segment_to_segment() {
    for (before, between, after) in [(440, 100, 3), (250, 245, 560), (250, 262, 540)] {
        let image = crossing(before, between, after);
        let [newest, older] = both(&image).map(|pack| log_of(&pack));
        assert_ne!(newest.0, older.0);
        assert_eq!(expect_all(&image).losses, 0, "{before} {between} {after}: {older:?} to {newest:?}");
    }
}

/// The last node of a segment says where the log went on. If that is damaged, or is of before, what may have been written counts.
#[test]
fn a_log_whose_way_is_lost_gives_nothing_up() {
    let image = crossing(250, 262, 540);
    let main = u64::from(Geometry::read(&image).unwrap().0.main);
    let [newest, older] = both(&image).map(|pack| main + log_of(&pack).0 * SEGMENT);
    let mut node = [0; BLOCK as usize];
    image.read_at((older + SEGMENT - 1) * BLOCK, &mut node).unwrap();
    let next = u32::try_from(newest).unwrap().to_le_bytes();
    for (version, next) in [([0; 8], &[0x5A; 4]), ([1; 8], &next)] {
        node[CP_VER].copy_from_slice(&version);
        node[NEXT].copy_from_slice(next);
        let broken = image.snapshot();
        broken.write_at((older + SEGMENT - 1) * BLOCK, &node).unwrap();
        fill(&broken, journals(&broken), 1, 0x5A);
        let found = Outcome::of(&broken, files);
        assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES) && found.is_mended, "{found:?}");
    }
}

/// Which blocks a log wrote that fills holes, nothing tells: what it may have written counts, and a repair asks.
#[test]
fn what_a_log_may_have_written_that_fills_holes_is_not_given_up() {
    let (device, fs) = near_the_end_of_a_segment(17);
    (5..35).for_each(|number| rewrite(&fs, number, 0xEE));
    fs.sync().unwrap();
    (5..35).for_each(|number| rewrite(&fs, number, number as u8));
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    fills_holes(&image, SegmentKind::WarmNode);
    assert!(expect_all(&image).losses > 0);
}

/// Nodes that power cut lie in a segment of which no log wrote the owners: they were given up, also where the way of another log is not known.
#[test]
fn what_lies_where_no_log_came_by_was_given_up() {
    let (device, fs) = near_the_end_of_a_segment(17);
    let (segment, offset) = log_of(&both(&device)[0]);
    (5..35).for_each(|number| rewrite(&fs, number, number as u8));
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    let (geometry, _) = Geometry::read(&image).unwrap();
    let main = u64::from(geometry.main);
    let (from, to) = (main + segment * SEGMENT, main + u64::from(geometry.main_segments - 1) * SEGMENT);
    for at in offset..SEGMENT {
        let mut node = [0; BLOCK as usize];
        image.read_at((from + at) * BLOCK, &mut node).unwrap();
        // Another version of the same node, in a log of its own.
        node[SIZE].copy_from_slice(&5_u64.to_le_bytes());
        node[NEXT].copy_from_slice(&u32::try_from(to + (at + 1) % SEGMENT).unwrap().to_le_bytes());
        image.write_at((to + at) * BLOCK, &node).unwrap();
    }
    fills_holes(&image, SegmentKind::ColdNode);
    assert_eq!(expect_all(&image).losses, 0);
}
