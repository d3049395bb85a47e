//! Checkpoint packs that are damaged or cannot be read at both ends: what counts then, what is only read, and what a repair leaves alone.

#[allow(dead_code)]
mod editor;
#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::sync::Arc;

use basalt_device::power::{Change, Fate};
use basalt_device::{
    BlockDevice, FaultyDevice, FileDevice, MemoryDevice, OpenOptions as DeviceOptions, PowerCutDevice, Replay,
};
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::pack::read_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::inode::RawInode;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Geometry, SystemClock};
use basalt_testkit::images::{TOOLS, grow_f2fs, mkfs_f2fs};
use basalt_testkit::scratch;
use basalt_testkit::skip::tools_or_skip;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
use editor::Editor;
use packs::{
    BLOCK, FILE, FILES, Outcome, both, ends, files, fill, flip, fresh, make, open, rescued_files, set_version,
    unmounted, unreadable, written_behind,
};
use zerocopy::FromBytes;

/// Of the older checkpoint one end is damaged, of the newest both ends are, and it cannot be read in the middle: nothing is written.
fn beside_one_that_cannot_be_read(has_stale: bool) {
    let image = written_behind();
    let geometry = Geometry::read(&image).unwrap().0;
    let [first, last] = ends(&image);
    let newest = choose_pack(&image, &geometry).unwrap().0;
    let older = read_pack(&image, &geometry, 1 - newest.index).unwrap();
    for end in [first, last] {
        image.write_at(end * BLOCK, &[0x5A; 4096]).unwrap();
    }
    if !has_stale {
        // The last blocks of longer packs that were here before.
        image.write_at((last + 1) * BLOCK, &vec![0; (511 - (last - first)) as usize * BLOCK as usize]).unwrap();
    }
    flip(&image, u64::from(older.start) * BLOCK + 99, 0x40);
    let device = FaultyDevice::new(image);
    unreadable(&device, (first + 1) * BLOCK..(first + 2) * BLOCK);
    let device = Arc::new(device);
    let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    let fs = open(device);
    assert!(!fs.is_writable(), "{:?}, {:?}", fs.warnings(), report.faults);
    let told = |kind| report.faults.iter().filter(|fault| fault.kind == kind).count();
    assert_eq!(told(FaultKind::CheckpointUncertain), 1, "{:?}", report.faults);
    assert!(planned.report().uncertain_checkpoint, "{:?}", planned.report());
}

#[test]
fn a_checkpoint_with_a_damaged_end_beside_one_that_cannot_be_read_is_only_read() {
    beside_one_that_cannot_be_read(false);
}

/// The same where a longer, older pack has left its last block behind: that is not what the pack was.
#[test]
fn a_last_block_of_before_hides_no_checkpoint_that_cannot_be_read() {
    beside_one_that_cannot_be_read(true);
}

/// One pack is gone, of the other both ends are; the last block of a longer pack that was there before makes none of what is left.
#[test]
fn a_last_block_of_before_is_no_checkpoint() {
    let image = written_behind();
    let geometry = Geometry::read(&image).unwrap().0;
    let [first, last] = ends(&image);
    let newest = choose_pack(&image, &geometry).unwrap().0;
    let start = |index: u32| u64::from(geometry.checkpoint + index * 512) * BLOCK;
    image.write_at(start(1 - newest.index), &vec![0; 512 * BLOCK as usize]).unwrap();
    for end in [first, last] {
        image.write_at(end * BLOCK, &[0x5A; 4096]).unwrap();
    }
    let found = rescued_files(&image);
    let shared: Arc<dyn BlockDevice> = Arc::new(image);
    let report = plan(shared.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert_eq!((found, files(&open(shared))), (FILES, FILES), "losses {:?}", report.losses);
}

/// One pack is damaged, the other cannot be read: no checkpoint is made anew over one that may be readable tomorrow.
#[test]
fn a_lone_checkpoint_that_cannot_be_read_is_not_made_anew() {
    for damaged in 0..2 {
        let image = written_behind();
        let geometry = Geometry::read(&image).unwrap().0;
        let start = |index: u32| u64::from(geometry.checkpoint + index * 512) * BLOCK;
        image.write_at(start(damaged), &vec![0x5A; 512 * BLOCK as usize]).unwrap();
        let device = FaultyDevice::new(image);
        unreadable(&device, start(1 - damaged)..start(1 - damaged) + 512 * BLOCK);
        let device = Arc::new(device);
        let checked = check(&*device, &CheckOptions::default(), &mut |_| ());
        let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ());
        let planned = planned.map(|plan| plan.report().repairs.clone());
        assert!(planned.is_err(), "damaged {damaged}: plan: {planned:?}");
        assert!(checked.is_err(), "damaged {damaged}: check: {checked:?}");
    }
}

/// A repair from the checkpoint beside one that cannot be read leaves that as it is, until its own is durable and behind it.
#[test]
fn a_repair_beside_a_checkpoint_that_cannot_be_read_leaves_the_other_alone() {
    let image = written_behind();
    let geometry = Geometry::read(&image).unwrap().0;
    let [first, last] = ends(&image);
    let newest = choose_pack(&image, &geometry).unwrap().0;
    let older = u64::from(read_pack(&image, &geometry, 1 - newest.index).unwrap().start) * BLOCK;
    for end in [first, last] {
        image.write_at(end * BLOCK, &[0x5A; 4096]).unwrap();
    }
    let pack = |device: &dyn BlockDevice| {
        let mut bytes = vec![0; 512 * BLOCK as usize];
        device.read_at(older, &mut bytes).unwrap();
        bytes
    };
    let before = pack(&image);
    let device = FaultyDevice::new(image);
    unreadable(&device, (first + 1) * BLOCK..(first + 2) * BLOCK);
    let device = Arc::new(device);
    plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    device.heal();
    assert!(pack(&*device) == before, "the checkpoint that counted was written over");
    assert_eq!(files(&open(device)), FILES);
}

/// A node of a lost checkpoint is damaged, too, and mended: a repair that power cuts leaves it as one of that checkpoint.
#[test]
fn a_mended_node_of_a_lost_checkpoint_comes_back_after_a_cut() {
    let image = written_behind();
    let geometry = Geometry::read(&image).unwrap().0;
    // The inode of `file3` as it was fsynced behind the newest checkpoint: what tells that there was one.
    let editor = Editor::new(&image);
    let ino = editor.path(&["file3"]);
    let newest = Address::all(geometry.main..Address::new((image.size() / BLOCK) as u32))
        .filter_map(|address| RawInode::read_from_bytes(&editor.block(address)).ok().map(|inode| (address, inode)))
        .filter(|(_, inode)| inode.footer.nid.get() == ino && inode.footer.ino.get() == ino)
        .max_by_key(|(_, inode)| inode.footer.cp_ver.get() as u32)
        .unwrap();
    assert_ne!(newest.0, editor.node_address(ino));
    editor.edit((newest.0, 0), |inode: &mut RawInode| {
        let blocks = inode.i_blocks.get() + 3;
        inode.i_blocks.set(blocks);
        let checksum = inode.expected_checksum(editor.geometry.checksum_seed);
        inode.extra_mut().i_inode_checksum.set(checksum);
    });
    let image = editor.device.snapshot();
    for end in ends(&image) {
        image.write_at(end * BLOCK, &[0x5A; 4096]).unwrap();
    }
    let packs = u64::from(geometry.checkpoint) * BLOCK..u64::from(geometry.sit) * BLOCK;
    let device = Arc::new(PowerCutDevice::new(image));
    let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean && report.restored_nodes, "{report:?}");
    assert_eq!(files(&open(Arc::new(device.now()))), FILES);
    let history = device.history();
    let is_pack = |change: &Change| matches!(change, Change::Write { offset, .. } if packs.contains(offset));
    let first = history.changes.iter().position(is_pack).unwrap();
    let cut = Replay::new(&history).cut(first, |cached| cached.iter().map(|_| Fate::Kept).collect());
    let cut = Arc::new(cut);
    let report = plan(cut.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean, "{report:?}");
    assert_eq!(files(&open(cut)), FILES, "{report:?}");
}

/// More was written behind the only checkpoint that is left than a segment of nodes.
#[test]
fn a_lone_older_checkpoint_tells_the_layout_whatever_was_written_behind_it() {
    for (directories, count) in [(600, 1500), (600, 2500), (1200, 3000), (2600, 4000)] {
        let device = Arc::new(MemoryDevice::new(256 << 20, 512));
        let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
        let fs = open(device.clone());
        let directory = NewNode { kind: FileKind::Directory, permissions: 0o755, ..FILE };
        let name = |what: &str, number: u32| format!("{what}{number}");
        for number in 0..directories {
            fs.create(fs.root(), name("directory", number).as_bytes(), &directory, &Caller::default()).unwrap();
        }
        for number in 0..300 {
            fs.create(fs.root(), name("early", number).as_bytes(), &FILE, &Caller::default()).unwrap();
        }
        fs.sync().unwrap();
        for number in 0..count {
            fs.create(fs.root(), name("file", number).as_bytes(), &FILE, &Caller::default()).unwrap();
        }
        fs.sync().unwrap();
        let image = device.snapshot();
        drop(fs);
        let geometry = Geometry::read(&image).unwrap().0;
        for end in ends(&image) {
            image.write_at(end * BLOCK, &[0; 4096]).unwrap();
        }
        image.write_at(0, &[0; 2 * BLOCK as usize]).unwrap();
        let found = Rescued::open(Arc::new(image), &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ());
        let found = found.unwrap();
        assert_eq!(found.report().main_block, geometry.main.get(), "{directories}, {count}: {:?}", found.report());
    }
}

/// A volume that was unmounted after everything was written: no node tells of the checkpoint that is lost, but nodes that the other one does
/// not know, although no fsync wrote them.
#[test]
fn what_a_lost_checkpoint_of_an_unmounted_volume_had_comes_back() {
    for filled in [0, 0x5A, 0xFF] {
        let image = unmounted();
        let [first, _] = ends(&image);
        image.write_at(first * BLOCK, &vec![filled; 10 * BLOCK as usize]).unwrap();
        let report = check(&image, &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::CheckpointLost), "{:?}", report.faults);
        let copy = Arc::new(image.snapshot());
        let fs = open(copy.clone());
        assert!(!fs.is_writable(), "{:?}", fs.warnings());
        drop(fs);
        assert_eq!(rescued_files(&image), FILES);
        let report = plan(copy.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert!(report.clean && report.restored_nodes, "{report:?}");
        assert_eq!(files(&open(copy)), FILES, "{filled:#x}: {:?}", report.repairs);
    }
}

/// A checkpoint is lost: `check` tells, a mount is read-only, and a repair brings all files back, but asks a user before.
fn expect_told_and_repaired(image: MemoryDevice) {
    let report = check(&image, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::CheckpointLost), "{:?}", report.faults);
    let device = Arc::new(image);
    assert!(!open(device.clone()).is_writable());
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    // Not without a user.
    assert!(planned.report().restored_nodes, "{:?}", planned.report());
    assert!(planned.commit().unwrap().clean);
    assert_eq!(files(&open(device)), FILES);
}

/// Only the rear halves of its blocks are damaged: the versions are what a power cut could leave, but between the bitmaps and the checksum
/// neither checkpoint has anything.
#[test]
fn garbage_where_no_checkpoint_has_anything_is_no_power_cut() {
    let image = unmounted();
    let [first, last] = ends(&image);
    for block in first..=last {
        image.write_at(block * BLOCK + 2048, &[0xB7; 2048]).unwrap();
    }
    expect_told_and_repaired(image);
}

/// A volume that was cut off behind fsyncs of half of its files.
fn cut_behind_fsyncs() -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES / 2);
    fs.sync().unwrap();
    for number in FILES / 2..FILES {
        make(&fs, number, number + 1);
        let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
        fs.sync_file(ino, false).unwrap();
    }
    device.snapshot()
}

/// What was fsynced behind a checkpoint was durable, so the checkpoint was: its last block was not about to be written.
#[test]
fn a_checkpoint_that_fsyncs_follow_is_complete() {
    let image = cut_behind_fsyncs();
    let [_, last] = ends(&image);
    for filled in [0, 0x5A, 0xFF] {
        let damaged = image.snapshot();
        damaged.write_at(last * BLOCK, &[filled; 4096]).unwrap();
        let fs = open(Arc::new(damaged));
        assert!(fs.is_writable() && files(&fs) == FILES, "{filled:#x}: {:?}", fs.warnings());
    }
}

/// The same where both ends are damaged: it is not written over without a user.
#[test]
fn a_lost_checkpoint_that_fsyncs_follow_is_told() {
    let image = cut_behind_fsyncs();
    let [first, last] = ends(&image);
    for block in [first, last] {
        flip(&image, block * BLOCK + 99, 0x40);
    }
    expect_told_and_repaired(image);
}

/// No checkpoint is left, and no SIT that could say where there is room: all of it is in the NAT and the nodes.
#[test]
fn both_checkpoints_and_the_sit_are_made_anew() {
    for filled in [0, 0x5A, 0xFF] {
        let image = unmounted();
        let geometry = Geometry::read(&image).unwrap().0;
        let (first, blocks) = (u64::from(geometry.checkpoint), (geometry.nat - geometry.checkpoint) as usize);
        image.write_at(first * BLOCK, &vec![filled; blocks * BLOCK as usize]).unwrap();
        let device = Arc::new(image);
        let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert!(report.clean && report.losses.is_empty(), "{filled:#x}: {report:?}");
        let fs = open(device);
        assert!(fs.is_writable(), "{filled:#x}: {:?}", fs.warnings());
        assert_eq!(files(&fs), FILES, "{filled:#x}");
    }
}

/// The older one is lost the same way: nothing is missing, and the repair brings nothing up.
#[test]
fn a_lost_older_checkpoint_takes_nothing_with_it() {
    let image = unmounted();
    let geometry = Geometry::read(&image).unwrap().0;
    let older = 1 - choose_pack(&image, &geometry).unwrap().0.index;
    let start = u64::from(geometry.checkpoint + older * 512) * BLOCK;
    image.write_at(start, &vec![0x5A; 10 * BLOCK as usize]).unwrap();
    let device = Arc::new(image);
    assert!(!open(device.clone()).is_writable());
    let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean && !report.restored_nodes && report.losses.is_empty(), "{report:?}");
    let fs = open(device);
    assert!(fs.is_writable() && files(&fs) == FILES);
}

/// Either end tells of the first checkpoint of a new volume, and so of what was fsynced behind it.
#[test]
fn either_end_of_the_first_checkpoint_will_do() {
    for version_of_second in [None, Some(0)] {
        let device = Arc::new(fresh());
        let geometry = Geometry::read(&*device).unwrap().0;
        if let Some(version) = version_of_second {
            // As mkfs.f2fs makes it.
            set_version(&device, &read_pack(&*device, &geometry, 1).unwrap(), version);
        }
        let fs = open(device.clone());
        make(&fs, 0, 1);
        let ino = fs.lookup(fs.root(), b"file0").unwrap().ino;
        fs.sync_file(ino, false).unwrap();
        let image = device.snapshot();
        drop(fs);
        let pack = read_pack(&image, &geometry, 0).unwrap();
        for end in [0, pack.raw.cp_pack_total_block_count.get() - 1] {
            let damaged = image.snapshot();
            flip(&damaged, u64::from(pack.start + end) * BLOCK + 99, 0x40);
            assert_eq!(files(&open(Arc::new(damaged.snapshot()))), 1, "{version_of_second:?}, end {end}: mounted");
            assert_eq!(rescued_files(&damaged), 1, "{version_of_second:?}, end {end}: rescued");
            let damaged: Arc<dyn BlockDevice> = Arc::new(damaged);
            plan(damaged.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
            assert_eq!(files(&open(damaged)), 1, "{version_of_second:?}, end {end}: repaired");
        }
    }
}

/// `fsck.f2fs` goes on in one pack, so the other one gets far behind. A cut while that is written leaves sectors of long ago.
#[test]
fn a_pack_of_long_ago_that_is_cut_off_is_no_damage() {
    let image = unmounted();
    let geometry = Geometry::read(&image).unwrap().0;
    let newest = choose_pack(&image, &geometry).unwrap().0;
    let older = read_pack(&image, &geometry, 1 - newest.index).unwrap();
    set_version(&image, &older, newest.raw.checkpoint_ver.get() - 40);
    let last = older.start + older.raw.cp_pack_total_block_count.get() - 1;
    // Where either pack has something: of the first block, its last sector is of the other checkpoint.
    image.write_at((u64::from(older.start) + 1) * BLOCK - 4, &[0x5A; 4]).unwrap();
    image.write_at(u64::from(last) * BLOCK, &[0x5A; 512]).unwrap();
    let report = check(&image, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    let fs = open(Arc::new(image));
    assert!(fs.is_writable() && files(&fs) == FILES, "{:?}", fs.warnings());
}

/// An earlier volume on the device, whose nodes have versions far ahead of this one's: formatting discarded nothing.
#[test]
fn nodes_of_an_earlier_volume_are_not_what_a_lost_checkpoint_had() {
    let volume = |uuid: u8, content: u8| {
        let device = Arc::new(MemoryDevice::new(80 << 20, 512));
        // As mkfs.f2fs makes it: no checksum tells whose an inode is.
        let features = Features::EXTRA_ATTR | Features::LOST_FOUND;
        let uuid = Some([uuid; 16]);
        let options = FormatOptions { uuid, features, discard_reads_zeros: true, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
        let fs = open(device.clone());
        for number in 0..FILES {
            let ino = fs.create(fs.root(), format!("file{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            fs.write(ino, 0, &[content; 9_000], false).unwrap();
        }
        // The earlier one's nodes lie farther than the later one's.
        for _ in 0..4 * u8::from(content == 1) {
            fs.sync().unwrap();
            for number in 0..FILES {
                let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
                fs.write(ino, 0, &[content; 9_000], false).unwrap();
            }
        }
        fs.close().unwrap();
        drop(fs);
        let geometry = Geometry::read(&*device).unwrap().0;
        let version = choose_pack(&*device, &geometry).unwrap().0.raw.checkpoint_ver.get();
        (device.snapshot(), version)
    };
    let later = volume(7, 2);
    // One of them is further.
    let earlier = (1..40).map(|uuid| volume(uuid, 1)).find(|earlier| earlier.1 > later.1 + 1000).unwrap().0;
    let image = later.0;
    let geometry = Geometry::read(&image).unwrap().0;
    let (mut here, mut there) = ([0; BLOCK as usize], [0; BLOCK as usize]);
    for address in Address::all(geometry.main..geometry.main + geometry.main_blocks()) {
        image.read_at(u64::from(address) * BLOCK, &mut here).unwrap();
        earlier.read_at(u64::from(address) * BLOCK, &mut there).unwrap();
        if here == [0; BLOCK as usize] {
            image.write_at(u64::from(address) * BLOCK, &there).unwrap();
        }
    }
    let older = 1 - choose_pack(&image, &geometry).unwrap().0.index;
    let start = u64::from(geometry.checkpoint + older * 512) * BLOCK;
    image.write_at(start, &[0x5A; 10 * BLOCK as usize]).unwrap();
    let is_later = |fs: &dyn FileSystem| {
        (0..FILES).all(|number| {
            let mut bytes = vec![0; 9_000];
            let found = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap();
            fs.read(found.ino, 0, &mut bytes).unwrap() == 9_000 && bytes == [2; 9_000]
        })
    };
    let copy: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    assert!(is_later(&Rescued::open(copy, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap()));
    let shared: Arc<dyn BlockDevice> = Arc::new(image);
    let report = plan(shared.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean && !report.restored_nodes, "{report:?}");
    assert!(is_later(&open(shared)));
}

/// resize.f2fs leaves zeros in place of the first block of the pack that counted, whichever that was.
#[test]
fn a_volume_that_others_have_grown_lost_nothing() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, 128 << 20, &[]).unwrap();
    for size in [256, 384, 512] {
        grow_f2fs(&image, size << 20).unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&image, &DeviceOptions::default()).unwrap());
        let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{size} MiB: {:?}", report.faults);
        let fs = open(device);
        assert!(fs.is_writable(), "{size} MiB: {:?}", fs.warnings());
    }
}

/// At the place of the newest checkpoint the last block of the one before that is still there, behind its end: that was a longer pack, of an
/// unmounted volume.
#[test]
fn a_last_block_behind_a_lost_checkpoint_does_not_hide_it() {
    let device = Arc::new(unmounted());
    let fs = open(device.clone());
    fs.unlink(fs.root(), b"file0").unwrap();
    fs.sync().unwrap();
    make(&fs, 0, 1);
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    let geometry = Geometry::read(&image).unwrap().0;
    let newest = choose_pack(&image, &geometry).unwrap().0;
    let total = newest.raw.cp_pack_total_block_count.get();
    assert!(total < 6);
    for end in [0, total - 1] {
        image.write_at(u64::from(newest.start + end) * BLOCK, &[0x5A; BLOCK as usize]).unwrap();
    }
    let report = check(&image, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::CheckpointLost), "{:?}", report.faults);
    let shared: Arc<dyn BlockDevice> = Arc::new(image);
    assert!(!open(shared.clone()).is_writable());
    plan(shared.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert_eq!(files(&open(shared)), FILES);
}

/// A repair that leaves versions out has both packs next to each other afterwards: either end of the newer one will do, as always.
#[test]
fn a_repair_that_leaves_versions_out_is_known_by_either_end() {
    let image = written_behind();
    let geometry = Geometry::read(&image).unwrap().0;
    let newest = choose_pack(&image, &geometry).unwrap().0;
    let [first, last] = ends(&image);
    let claimed = newest.raw.checkpoint_ver.get() + 32;
    image.write_at(first * BLOCK, &claimed.to_le_bytes()).unwrap();
    image.write_at(last * BLOCK, &[0x5A; BLOCK as usize]).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    let packs = [0, 1].map(|index| read_pack(&*device, &geometry, index).unwrap().raw.checkpoint_ver.get());
    assert!(packs.iter().all(|version| *version >= claimed), "{packs:?}, {claimed}");
    assert_eq!(packs[0].abs_diff(packs[1]), 1, "{packs:?}");
    let repaired = choose_pack(&*device, &geometry).unwrap().0;
    flip(&*device, u64::from(repaired.start) * BLOCK + 99, 0x40);
    assert_eq!(choose_pack(&*device, &geometry).unwrap().0.raw.checkpoint_ver, repaired.raw.checkpoint_ver);
    assert_eq!(files(&open(device)), FILES);
}

/// A file is replaced by another of the same name, which is fsynced, behind a checkpoint that knows the first: the name is the second one's,
/// also where a search or a repair has to find that out, beside a pack that cannot be read, or a damaged end and no other pack.
#[test]
fn a_name_is_of_the_file_that_fsync_gave_it_to() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let old = fs.lookup(fs.root(), b"file3").unwrap().ino;
    fs.write(old, 0, &[0; 9_000], false).unwrap();
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"file3").unwrap();
    make(&fs, 3, 4);
    let new = fs.lookup(fs.root(), b"file3").unwrap().ino;
    fs.sync_file(new, false).unwrap();
    let image = device.snapshot();
    drop(fs);
    assert_eq!(rescued_files(&image), FILES);
    let [newest, older] = both(&image);
    let spoilt = image.snapshot();
    spoilt.spoil(u64::from(older.start) * BLOCK, 3 * BLOCK).unwrap();
    let alone = image.snapshot();
    fill(&alone, older.start.into(), 8, 0);
    flip(&alone, u64::from(newest.start) * BLOCK, 0x40);
    for (name, image) in [("a pack that cannot be read", spoilt), ("one end, and no other pack", alone)] {
        let found = Outcome::of(&image, files);
        assert!(found.repaired == Some(FILES) && found.rescued == Some(FILES), "{name}: {found:?}");
    }
}
