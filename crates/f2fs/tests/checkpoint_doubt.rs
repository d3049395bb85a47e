//! Which of two packs was the newest, where one is damaged: what longer packs have left, what other tools leave, and what cannot be told.

#[allow(dead_code)] // Likewise.
mod editor;
#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use basalt_device::power::{Change, Fate, Replay};
use basalt_device::{BlockDevice, MemoryDevice, PowerCutDevice};
use basalt_f2fs::checkpoint::block::expected_checksum;
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::pack::{Pack, read_pack};
use basalt_f2fs::layout::Address;
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, Geometry};
use basalt_testkit::images::{TOOLS, grow_f2fs, mkfs_f2fs};
use basalt_testkit::scratch;
use basalt_testkit::skip::tools_or_skip;
use basalt_vfs::{Caller, FileSystem};
use editor::Editor;
use packs::{BLOCK, FILE, FILES, Outcome, both, ends, files, fill, flip, fresh, last, make, open, set_version};

fn create(fs: &F2fs, name: &str, blocks: usize) -> u64 {
    let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
    fs.write(ino, 0, &vec![1; blocks * 4096], false).unwrap();
    ino
}

fn packs_of(image: &dyn BlockDevice) -> (Geometry, Pack) {
    let geometry = Geometry::read(image).unwrap().0;
    let newest = choose_pack(image, &geometry).unwrap().0;
    (geometry, newest)
}

/// The newest pack's own blocks are garbage: what longer packs have left behind them does not hide it.
fn is_found_lost(what: &str, image: &MemoryDevice) {
    let (_, newest) = packs_of(image);
    fill(image, newest.start.into(), newest.raw.cp_pack_total_block_count.get().into(), 0x5A);
    let found = Outcome::of(image, files);
    assert!(!found.is_clean && !found.is_writable, "{what}: {found:?}");
    assert_eq!((found.rescued, found.repaired), (Some(FILES), Some(FILES)), "{what}: {found:?}");
}

/// A file that was unlinked while it was open made earlier checkpoints a block longer.
#[test]
fn the_end_of_a_pack_with_orphans_hides_no_lost_one() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 1);
    let ino = create(&fs, "temporary", 3);
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"temporary").unwrap();
    fs.sync().unwrap();
    make(&fs, 1, 2);
    fs.sync().unwrap();
    fs.forget(ino, 1);
    make(&fs, 2, 3);
    fs.sync().unwrap();
    make(&fs, 3, FILES);
    fs.sync().unwrap();
    is_found_lost("orphans", &device.snapshot());
}

/// The volume was unmounted with many blocks in its data logs; later packs are four blocks shorter.
#[test]
fn the_end_of_an_unmounted_volume_hides_no_lost_one() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 1);
    let ino = create(&fs, "long", 480);
    fs.close().unwrap();
    drop(fs);
    let fs = open(device.clone());
    fs.write(ino, 0, &vec![2; 100 * 4096], false).unwrap();
    fs.sync().unwrap();
    make(&fs, 1, FILES);
    fs.sync().unwrap();
    is_found_lost("unmounted", &device.snapshot());
}

fn load(path: &Path) -> MemoryDevice {
    let bytes = std::fs::read(path).unwrap();
    let image = MemoryDevice::new(bytes.len() as u64, 512);
    for (at, block) in bytes.chunks(1 << 20).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
        image.write_at((at as u64) << 20, block).unwrap();
    }
    image
}

/// resize.f2fs has left zeros in place of the second pack's first block. Power cuts the first checkpoint behind it, which is longer than
/// what is there and whose first block did not arrive.
#[test]
fn a_cut_of_the_first_checkpoint_behind_resize_is_no_damage() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let path = directory.path().join("volume.img");
    mkfs_f2fs(&path, 100 << 20, &[]).unwrap();
    grow_f2fs(&path, 110 << 20).unwrap();
    grow_f2fs(&path, 120 << 20).unwrap();
    let image = load(&path);
    let (geometry, current) = packs_of(&image);
    assert_eq!(current.index, 0);
    let device = Arc::new(PowerCutDevice::new(image));
    let fs = open(device.clone());
    // Blocks of orphans make the pack long.
    for number in 0..3100 {
        let name = format!("open{number}");
        fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap();
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    drop(fs);
    let history = device.history();
    let start = u64::from(geometry.checkpoint + 512) * BLOCK;
    let is_pack = |change: &Change| matches!(change, Change::Write { offset, .. } if *offset == start);
    let at = history.changes.iter().position(is_pack).unwrap();
    for lost in 1..=8 {
        let cut = Replay::new(&history).cut(at, |cached| {
            let torn = |change: &Change| Fate::Torn((0..change.sectors()).map(|sector| sector >= lost).collect());
            cached.iter().map(|change| if is_pack(change) { torn(change) } else { Fate::Kept }).collect()
        });
        let found = Outcome::of(&cut, |_| 0);
        assert!(found.is_clean && found.is_writable, "{lost} sectors lost: {found:?}");
    }
}

/// The second pack of `mkfs.f2fs` has a last block of version 0. Shorter packs leave it where it is, so it does not show that what is lost in
/// front of it was no checkpoint.
#[test]
fn the_second_pack_of_others_hides_no_checkpoint() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let path = directory.path().join("volume.img");
    mkfs_f2fs(&path, 100 << 20, &[]).unwrap();
    let new = load(&path);
    let device = Arc::new(new.snapshot());
    let fs = open(device.clone());
    // The first checkpoint goes over it, and the third one.
    let make_some = |from| {
        make(&fs, from, from + FILES / 4);
        fs.sync().unwrap();
        device.snapshot()
    };
    let images = [0, 1, 2, 3].map(|quarter| make_some(quarter * FILES / 4));
    for (count, image) in [(0, &new), (FILES / 4, &images[0]), (FILES * 3 / 4, &images[2])] {
        let second = u64::from(packs_of(image).0.checkpoint) + 512;
        for (byte, blocks) in [(0, 1), (0x5A, 1), (0, 3), (0x5A, 3), (0xFF, 3)] {
            let image = image.snapshot();
            fill(&image, second, blocks, byte);
            let found = Outcome::of(&image, files);
            let what = format!("{count} files, {blocks} blocks of {byte:#x}: {found:?}");
            assert!(found.repaired == Some(count) && found.losses == 0, "{what}");
            assert!(!found.is_clean && !found.is_writable || found.mounted == Some(count), "{what}");
        }
    }
}

/// `mkfs.f2fs` over an earlier volume, nothing discarded, then fsyncs behind its first checkpoint, whose first block is damaged: the last
/// block of a longer pack of the earlier volume takes nothing with it.
#[test]
fn the_nearest_last_block_is_the_newest() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let path = directory.path().join("volume.img");
    mkfs_f2fs(&path, 100 << 20, &["-t", "0"]).unwrap();
    let image = load(&path);
    let (geometry, _) = packs_of(&image);
    let mut block = read_pack(&image, &geometry, 0).unwrap().bytes[..4096].to_vec();
    block[..8].copy_from_slice(&123_456_789u64.to_le_bytes());
    block[136..140].copy_from_slice(&8u32.to_le_bytes());
    let checksum = expected_checksum(&block, 4092);
    block[4092..].copy_from_slice(&checksum.to_le_bytes());
    image.write_at(u64::from(geometry.checkpoint + 7) * BLOCK, &block).unwrap();
    let device = Arc::new(image);
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    for number in 0..FILES {
        let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
        fs.sync_file(ino, false).unwrap();
    }
    let image = device.snapshot();
    drop(fs);
    fill(&image, geometry.checkpoint.into(), 1, 0x5A);
    let found = Outcome::of(&image, files);
    assert_eq!((found.mounted, found.rescued, found.repaired), (Some(FILES), Some(FILES), Some(FILES)), "{found:?}");
}

/// Both packs are gone but for last blocks of up to 200 checkpoints before: all that was written since counts.
#[test]
fn a_last_block_of_long_ago_hides_nothing() {
    for syncs in [20, 80, 200] {
        let device = Arc::new(fresh());
        let fs = open(device.clone());
        for number in 0..FILES {
            let ino = fs.create(fs.root(), format!("file{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            fs.write(ino, 0, &[0xEE; 9_000], false).unwrap();
        }
        let long = create(&fs, "long", 340);
        fs.sync().unwrap();
        fs.write(long, 0, &[3; 40], false).unwrap();
        fs.close().unwrap();
        drop(fs);
        let fs = open(device.clone());
        fs.write(long, 0, &vec![5; 80 * 4096], false).unwrap();
        for round in 0..syncs {
            create(&fs, &format!("more{round}"), 0);
            fs.sync().unwrap();
        }
        for number in 0..FILES {
            let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
            fs.write(ino, 0, &[number as u8; 9_000], false).unwrap();
        }
        fs.sync().unwrap();
        fs.sync().unwrap();
        let image = device.snapshot();
        drop(fs);
        let (geometry, _) = packs_of(&image);
        for index in 0..2 {
            let pack = read_pack(&image, &geometry, index).unwrap();
            fill(&image, pack.start.into(), pack.raw.cp_pack_total_block_count.get().into(), 0x5A);
        }
        let found = Outcome::of(&image, files);
        assert_eq!((found.rescued, found.repaired), (Some(FILES), Some(FILES)), "{syncs} checkpoints: {found:?}");
    }
}

/// The older pack is gone, and power cut the next checkpoint while it wrote nodes: that looks as if the newest one had been complete and
/// was lost. Neither can be told from the other, so that a repair asks first.
#[test]
fn what_may_never_have_been_durable_is_asked_about() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    fs.sync().unwrap();
    create(&fs, "one more", 0);
    fs.sync().unwrap();
    let device = Arc::new(PowerCutDevice::new(device.snapshot()));
    drop(fs);
    let fs = open(device.clone());
    fs.sync().unwrap();
    let (geometry, newest) = packs_of(&*device);
    for number in 0..FILES {
        let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
        fs.write(ino, 0, &[0xEE; 9_000], false).unwrap();
    }
    create(&fs, "new", 0);
    let from = device.position();
    fs.sync().unwrap();
    drop(fs);
    let history = device.history();
    let other = u64::from(geometry.checkpoint + (1 - newest.index) * 512) * BLOCK;
    let is_pack = |change: &Change| matches!(change, Change::Write { offset, .. } if *offset == other);
    let at = (from..history.changes.len()).find(|at| is_pack(&history.changes[*at])).unwrap();
    let cut = Replay::new(&history)
        .cut(at, |cached| cached.iter().map(|change| if is_pack(change) { Fate::Lost } else { Fate::Kept }).collect());
    assert_eq!(files(&open(Arc::new(cut.snapshot()))), FILES);
    fill(&cut, other / BLOCK, 10, 0x5A);
    let found = Outcome::of(&cut, files);
    assert!(found.mounted == Some(FILES) && !found.is_writable && !found.is_clean, "{found:?}");
    assert_eq!(found.losses as u64, FILES, "{found:?}");
}

/// The newest pack is gone, and all that it had are new versions of files that the older one has as well: a repair asks, and takes them.
#[test]
fn new_versions_of_known_files_are_asked_about() {
    for is_unmounted in [false, true] {
        let device = Arc::new(fresh());
        let fs = open(device.clone());
        for number in 0..FILES {
            let ino = fs.create(fs.root(), format!("file{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            fs.write(ino, 0, &[0xEE; 9_000], false).unwrap();
        }
        fs.sync().unwrap();
        for number in 0..FILES {
            let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
            fs.write(ino, 0, &[number as u8; 9_000], false).unwrap();
        }
        if is_unmounted {
            fs.close().unwrap();
        } else {
            fs.sync().unwrap();
        }
        let image = device.snapshot();
        drop(fs);
        let [first, last] = ends(&image);
        fill(&image, first, last - first + 1, 0x5A);
        let found = Outcome::of(&image, files);
        assert!(!found.is_clean && !found.is_writable, "{found:?}");
        assert_eq!((found.mounted, found.losses as u64), (Some(0), FILES), "{found:?}");
        assert_eq!((found.rescued, found.repaired), (Some(FILES), Some(FILES)), "{found:?}");
    }
}

/// The older pack is gone; a file was replaced by a new one and fsynced behind the newest: it is that one afterwards, and has its name.
#[test]
fn a_lost_older_pack_breaks_no_fsync() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let old = fs.lookup(fs.root(), b"file7").unwrap().ino;
    fs.write(old, 0, &[0xEE; 9_000], false).unwrap();
    fs.sync().unwrap();
    create(&fs, "one more", 0);
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"file7").unwrap();
    make(&fs, 7, 8);
    let new = fs.lookup(fs.root(), b"file7").unwrap().ino;
    fs.sync_file(new, false).unwrap();
    let image = device.snapshot();
    drop(fs);
    let (geometry, newest) = packs_of(&image);
    let older = read_pack(&image, &geometry, 1 - newest.index).unwrap();
    fill(&image, older.start.into(), 10, 0x5A);
    let device: Arc<dyn BlockDevice> = Arc::new(image);
    let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean && report.losses.is_empty(), "{report:?}");
    let fs = open(device);
    assert_eq!((files(&fs), fs.lookup(fs.root(), b"file7").unwrap().ino), (FILES, new));
}

/// Garbage up to the last block of the newest pack, which is whole, costs no more than garbage up to its end.
#[test]
fn a_last_block_alone_is_no_checkpoint() {
    for byte in [0, 0x5A, 0xFF] {
        let device = Arc::new(fresh());
        let fs = open(device.clone());
        make(&fs, 0, 3);
        fs.sync().unwrap();
        make(&fs, 3, FILES);
        fs.sync().unwrap();
        let image = device.snapshot();
        drop(fs);
        let [first, last] = ends(&image);
        fill(&image, first, last - first, byte);
        let found = Outcome::of(&image, files);
        assert!(!found.is_clean && !found.is_writable, "{byte:#x}: {found:?}");
        assert_eq!((found.rescued, found.repaired), (Some(FILES), Some(FILES)), "{byte:#x}: {found:?}");
    }
}

/// Volumes of a few checkpoints, of which only a last block of long ago is left: versions without a node lie between it and the newest.
#[test]
fn versions_without_a_node_are_no_end() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    for number in 0..FILES {
        let ino = fs.create(fs.root(), format!("file{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &[0xEE; 9_000], false).unwrap();
    }
    let long = create(&fs, "long", 340);
    fs.sync().unwrap();
    fs.write(long, 0, &[3; 40], false).unwrap();
    fs.close().unwrap();
    drop(fs);
    let base = both(&device.snapshot())[0].raw.checkpoint_ver.get() as u32;
    let fs = open(device.clone());
    fs.write(long, 0, &vec![5; 80 * 4096], false).unwrap();
    for round in 0..20 {
        if (1..13).contains(&round) {
            fs.write(long, 0, &[round as u8; 40], false).unwrap();
        } else {
            create(&fs, &format!("more{round}"), 0);
        }
        fs.sync().unwrap();
    }
    for number in 0..FILES {
        let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
        fs.write(ino, 0, &[number as u8; 9_000], false).unwrap();
    }
    fs.sync().unwrap();
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    let geometry = Geometry::read(&image).unwrap().0;
    let editor = Editor::new(&image);
    let current: BTreeSet<Address> = (3..200).map(|nid| editor.node_address(nid)).collect();
    for address in Address::all(geometry.main..geometry.main + 6 * 512) {
        let mut block = vec![0; 4096];
        image.read_at(u64::from(address) * BLOCK, &mut block).unwrap();
        let ver = u32::from_le_bytes(block[4084..4088].try_into().unwrap());
        if (3..=12).contains(&ver.wrapping_sub(base))
            && !current.contains(&address)
            && !block[..4084].iter().all(|b| *b == block[0])
        {
            fill(&image, address.into(), 1, 0);
        }
    }
    for index in 0..2 {
        let pack = read_pack(&image, &geometry, index).unwrap();
        fill(&image, pack.start.into(), pack.raw.cp_pack_total_block_count.get().into(), 0x5A);
    }
    let found = Outcome::of(&image, files);
    assert_eq!((found.rescued, found.repaired), (Some(FILES), Some(FILES)), "{found:?}");
}

/// fsck.f2fs and sload.f2fs give both packs the same version, and the first one counts, by either of its ends.
#[test]
fn of_two_packs_of_one_version_the_first_counts() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 3);
    fs.sync().unwrap();
    make(&fs, 3, FILES);
    fs.sync().unwrap();
    if both(&device.snapshot())[0].index != 0 {
        create(&fs, "x", 0);
        fs.sync().unwrap();
    }
    let ino = fs.lookup(fs.root(), b"file7").unwrap().ino;
    fs.write(ino, 0, &[9; 9000], false).unwrap();
    fs.sync().unwrap();
    fs.write(ino, 0, &[7; 9000], false).unwrap();
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    let [newest, older] = both(&image);
    assert_eq!(newest.index, 0);
    set_version(&image, &older, newest.raw.checkpoint_ver.get());
    assert_eq!(files(&open(Arc::new(image.snapshot()))), FILES);
    for end in [u64::from(newest.start), last(&newest)] {
        let image = image.snapshot();
        flip(&image, end * BLOCK + 99, 0x40);
        let found = Outcome::of(&image, files);
        assert_eq!(
            (found.mounted, found.rescued, found.repaired),
            (Some(FILES), Some(FILES), Some(FILES)),
            "{found:?}"
        );
    }
}

/// Seals of fsyncs have no owner in the summaries of an unmounted volume.
#[test]
fn seals_are_no_damage() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    for round in 0..3 {
        for number in 0..FILES {
            let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
            fs.write(ino, 0, &[number as u8; 9_000], false).unwrap();
            fs.sync_file(ino, false).unwrap();
        }
        if round < 2 {
            fs.sync().unwrap();
        }
    }
    fs.close().unwrap();
    drop(fs);
    let image = device.snapshot();
    let [newest, _] = both(&image);
    flip(&image, u64::from(newest.start) * BLOCK + 99, 0x40);
    let found = Outcome::of(&image, files);
    assert!(found.is_writable && found.mounted == Some(FILES), "{found:?}");
}

/// The older pack is gone, and an fsync behind the newest wrote several nodes, of which one is marked.
#[test]
fn a_lost_older_pack_breaks_no_fsync_of_several_nodes() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let old = fs.lookup(fs.root(), b"file7").unwrap().ino;
    fs.write(old, 0, &[0xEE; 9_000], false).unwrap();
    fs.sync().unwrap();
    create(&fs, "one more", 0);
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"file7").unwrap();
    make(&fs, 7, 8);
    let new = fs.lookup(fs.root(), b"file7").unwrap().ino;
    fs.write(new, 1200 * 4096, &[1; 4096], false).unwrap();
    fs.write(new, 3200 * 4096, &[1; 4096], false).unwrap();
    fs.sync_file(new, false).unwrap();
    let image = device.snapshot();
    drop(fs);
    let geometry = Geometry::read(&image).unwrap().0;
    let newest = choose_pack(&image, &geometry).unwrap().0;
    let older = read_pack(&image, &geometry, 1 - newest.index).unwrap();
    fill(&image, older.start.into(), 10, 0x5A);
    let device: Arc<dyn BlockDevice> = Arc::new(image);
    let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    let fs = open(device);
    assert!(report.clean && report.losses.is_empty() && !report.restored_nodes, "{report:?}");
    assert_eq!((files(&fs), fs.lookup(fs.root(), b"file7").unwrap().ino), (FILES, new));
}
