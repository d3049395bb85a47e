//! Damage to the newest checkpoint, and power cuts while one is written, which must not look like it.

#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use basalt_device::power::{Change, Fate};
use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, PowerCutDevice, Replay, RequestKind};
use basalt_f2fs::check::{CheckOptions, CheckReport, FaultKind, Severity, check};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::pack::read_pack;
use basalt_f2fs::layout::checkpoint::CheckpointFlags;
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_segments::slack::FlashPage;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileSystem};
use packs::{
    BLOCK, FILE, FILES, both, ends, files, flip, fresh, last, make, open, rescued, rescued_files, unmounted,
    written_behind_a_checkpoint,
};

fn look(device: &MemoryDevice) -> CheckReport {
    check(device, &CheckOptions::default(), &mut |_| ()).unwrap()
}

fn is_whole(device: &MemoryDevice) -> bool {
    let geometry = Geometry::read(device).unwrap().0;
    (0..2).all(|pack| read_pack(device, &geometry, pack).is_ok())
}

#[test]
fn a_flipped_byte_in_an_end_of_the_newest_checkpoint_loses_nothing() {
    let volume = unmounted();
    let mut rng = Rng::new(14);
    for (which, end) in ends(&volume).into_iter().enumerate() {
        // Every field, and a sample of the bitmaps and what is behind them.
        for byte in (0..192).chain((192..4096).step_by(61)).chain(4088..4096) {
            let device = volume.snapshot();
            let mask = 1 + rng.below(255) as u8;
            flip(&device, end * BLOCK + byte, mask);
            let what = format!("seed 14: end {which}, byte {byte} ^ {mask:#04x}");
            let report = look(&device);
            let kinds: Vec<FaultKind> = report.faults.iter().map(|fault| fault.kind).collect();
            // In the bitmaps of the last block it may be a sector of before.
            let is_known = kinds == [FaultKind::CheckpointEnd] || which == 1 && kinds == [FaultKind::CheckpointPack];
            assert!(is_known && report.counts.files == FILES, "{what}: {kinds:?}, {:?}", report.counts);
            assert_eq!(rescued_files(&device), FILES, "{what}");
            if byte % 5 == 0 {
                mend_both_ways(&device, &what);
            }
        }
    }
}

/// Where the flash page is known, each mount leaves the rest of a page out.
#[test]
fn a_volume_that_was_mounted_often_loses_nothing_either() {
    let volume = Arc::new(fresh());
    let flash_page = FlashPage::of_bytes(16 << 10).unwrap();
    for mount in 0..30 {
        let options = OpenOptions { background_cleaning: false, flash_page, ..OpenOptions::default() };
        let fs = F2fs::open(volume.clone(), options, Arc::new(SystemClock)).unwrap();
        if mount == 0 {
            make(&fs, 0, FILES);
            fs.create(fs.root(), b"again", &FILE, &Caller::default()).unwrap();
        }
        let again = fs.lookup(fs.root(), b"again").unwrap().ino;
        fs.write(again, 0, &[mount; BLOCK as usize], false).unwrap();
        fs.close().unwrap();
    }
    assert!(look(&volume).faults.is_empty());
    for (which, end) in ends(&volume).into_iter().enumerate() {
        for byte in (0..192).step_by(5) {
            let device = volume.snapshot();
            flip(&device, end * BLOCK + byte, 0x15);
            let report = look(&device);
            let kinds: Vec<FaultKind> = report.faults.iter().map(|fault| fault.kind).collect();
            // As above.
            let is_known = kinds == [FaultKind::CheckpointEnd] || which == 1 && kinds == [FaultKind::CheckpointPack];
            let counted = (report.counts.files, rescued_files(&device));
            assert!(is_known && counted == (FILES + 1, FILES), "end {which}, byte {byte}: {kinds:?}, {counted:?}");
        }
    }
}

/// A mount and a repair each leave a volume that Linux, too, sees whole.
fn mend_both_ways(damaged: &MemoryDevice, what: &str) {
    let device = Arc::new(damaged.snapshot());
    let fs = open(device.clone());
    assert!(
        fs.is_writable() && fs.warnings().iter().any(|line| line.contains("is damaged")),
        "{what}: {:?}",
        fs.warnings()
    );
    assert!(is_whole(&device), "{what}: before anything else");
    assert_eq!(files(&fs), FILES, "{what}");
    fs.close().unwrap();
    drop(fs);
    assert!(look(&device).faults.is_empty(), "{what}");
    let device = Arc::new(damaged.snapshot());
    let shared: Arc<dyn BlockDevice> = device.clone();
    let report = plan(shared, &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean && is_whole(&device), "{what}: {report:?}");
    assert_eq!(files(&open(device.clone())), FILES, "{what}");
    assert!(look(&device).faults.is_empty(), "{what}");
}

/// A whole block of it zeroed, or filled with something else.
#[test]
fn an_end_that_is_gone_is_known_from_the_other() {
    let volume = unmounted();
    for filling in [0, 0xFF, 0x5A] {
        let device = volume.snapshot();
        device.write_at(ends(&volume)[0] * BLOCK, &[filling; 4096]).unwrap();
        let report = look(&device);
        assert!(!report.is_clean() && report.counts.files == FILES, "{filling}: {:?}", report.faults);
        mend_both_ways(&device, &format!("filled with {filling}"));
    }
}

/// Power goes at any request of a checkpoint, sectors torn at random: what is left is clean, and one of the two states.
#[test]
fn a_cut_while_a_checkpoint_is_written_is_no_damage() {
    let mut rng = Rng::new(41);
    let mut states = [0; 2];
    for (round, mount_first) in [(0, false), (1, false), (2, true), (3, true)] {
        let device = Arc::new(PowerCutDevice::new(fresh()));
        let fs = open(device.clone());
        // Packs of other lengths and the same lengths, over what was there.
        for step in 0..round {
            make(&fs, step * 5, step * 5 + 5);
            fs.sync().unwrap();
        }
        let before = files(&fs);
        make(&fs, 20, FILES);
        let begin = device.position();
        fs.sync().unwrap();
        let after = files(&fs);
        let history = device.history();
        drop(fs);
        for at in begin..history.changes.len() {
            for _ in 0..12 {
                let image = Replay::new(&history).cut(at, |cached| {
                    let mut fate = |change: &Change| match rng.below(3) {
                        0 => Fate::Kept,
                        1 => Fate::Lost,
                        _ => Fate::Torn((0..change.sectors()).map(|_| rng.chance(60)).collect()),
                    };
                    cached.iter().map(&mut fate).collect()
                });
                let what = format!("seed 41: round {round}, request {at}");
                let report = look(&image);
                assert!(report.is_clean(), "{what}: {:?}", report.faults);
                let image = Arc::new(image);
                let fs = open(image.clone());
                let found = files(&fs);
                assert!(fs.is_writable() && (found == before || found == after), "{what}: {found} files");
                states[usize::from(found == after)] += 1;
                if mount_first {
                    fs.close().unwrap();
                    drop(fs);
                    let report = look(&image);
                    assert!(report.faults.is_empty(), "{what}: {:?}", report.faults);
                    assert!(is_whole(&image), "{what}");
                }
            }
        }
    }
    assert!(states.iter().all(|count| *count > 0), "{states:?}");
}

/// An end of each of both: the newer one counts, whichever pack it is in.
#[test]
fn of_two_checkpoints_with_a_damaged_end_the_newer_one_counts() {
    let device = Arc::new(fresh());
    for round in 1..=4 {
        let fs = open(device.clone());
        make(&fs, round * 10 - 10, round * 10);
        fs.close().unwrap();
        drop(fs);
        let geometry = Geometry::read(&*device).unwrap().0;
        let packs = [0, 1].map(|index| read_pack(&*device, &geometry, index).unwrap());
        for damaged in 0..4 {
            let image = device.snapshot();
            for (index, pack) in packs.iter().enumerate() {
                let last = pack.raw.cp_pack_total_block_count.get() - 1;
                let end = if damaged >> index & 1 == 1 { last } else { 0 };
                flip(&image, u64::from(pack.start + end) * BLOCK + 99, 0x40);
            }
            let what = format!("round {round}, ends {damaged:02b}");
            let found = files(&open(Arc::new(image.snapshot())));
            assert_eq!(found, round * 10, "{what}: mounted");
            let shared: Arc<dyn BlockDevice> = Arc::new(image);
            let report = plan(shared.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
            assert!(report.clean, "{what}: {report:?}");
            assert_eq!(files(&open(shared)), round * 10, "{what}: repaired");
        }
    }
}

/// `resize.f2fs` writes the second pack whatever the version: the next checkpoint leaves a version out, so that the first pack has odd ones.
#[test]
fn a_damaged_checkpoint_that_left_a_version_out_counts_too() {
    let device = Arc::new(fresh());
    let geometry = Geometry::read(&*device).unwrap().0;
    let start = |pack: u32| u64::from(geometry.checkpoint + pack * 512) * BLOCK;
    let newest = || choose_pack(&*device, &geometry).unwrap().0;
    let mut number = 0;
    while number == 0 || newest().index != 0 {
        let fs = open(device.clone());
        make(&fs, number, number + 1);
        fs.close().unwrap();
        number += 1;
    }
    let mut pack = vec![0; 512 * BLOCK as usize];
    device.read_at(start(0), &mut pack).unwrap();
    device.write_at(start(1), &pack).unwrap();
    device.write_at(start(0), &vec![0; pack.len()]).unwrap();
    let before = newest().raw.checkpoint_ver.get();
    let fs = open(device.clone());
    make(&fs, number, FILES);
    fs.sync().unwrap();
    let image = device.snapshot();
    assert_eq!((newest().index, newest().raw.checkpoint_ver.get()), (0, before + 2));
    for end in ends(&image) {
        let image = Arc::new(image.snapshot());
        flip(&image, end * BLOCK + 99, 0x40);
        let what = format!("end {end}");
        let found = rescued(&image);
        assert_eq!(files(&found), FILES, "{what}: rescued, {:?}", found.report());
        let fs = open(image.clone());
        assert_eq!(files(&fs), FILES, "{what}: mounted, {:?}", fs.warnings());
        fs.close().unwrap();
        assert!(look(&image).faults.is_empty(), "{what}");
    }
}

/// A repair writes the nodes of checkpoints that it makes on the way, and then only the last of these. What a power cut leaves of that is no
/// newer checkpoint that is gone, and what was not on the volume does not come to be.
#[test]
fn a_checkpoint_that_was_never_complete_makes_nothing_newer() {
    let device = Arc::new(unmounted());
    let geometry = Geometry::read(&*device).unwrap().0;
    let before = choose_pack(&*device, &geometry).unwrap().0;
    let start = |pack: u32| u64::from(geometry.checkpoint + pack * 512) * BLOCK;
    let mut kept = vec![0; 512 * BLOCK as usize];
    device.read_at(start(before.index), &mut kept).unwrap();
    // Three checkpoints, whose few changes are in their own journals.
    let fs = open(device.clone());
    let ino = fs.lookup(fs.root(), b"file7").unwrap().ino;
    for round in 1..=3 {
        fs.write(ino, 0, &[100 + round; 9_000], false).unwrap();
        fs.sync().unwrap();
    }
    let image = device.snapshot();
    let newest = choose_pack(&image, &geometry).unwrap().0;
    assert_eq!((newest.index, newest.raw.checkpoint_ver), (1 - before.index, before.raw.checkpoint_ver + 3));
    let last = u64::from(newest.start + newest.raw.cp_pack_total_block_count.get() - 1) * BLOCK;
    image.write_at(last, &[0; BLOCK as usize]).unwrap();
    image.write_at(start(before.index), &kept).unwrap();
    let found = rescued(&image);
    assert_eq!(files(&found), FILES, "rescued: {:?}", found.report());
    let image = Arc::new(image);
    let planned = plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(!planned.report().restored_nodes, "{:?}", planned.report());
    assert!(planned.commit().unwrap().clean);
    assert_eq!(files(&open(image)), FILES, "repaired");
}

/// Nor does an older checkpoint whose last block is damaged: what was written behind it, and is not in the newest, was deleted.
#[test]
fn a_damaged_older_checkpoint_brings_back_nothing() {
    let device = Arc::new(unmounted());
    let fs = open(device.clone());
    let ino = fs.create(fs.root(), b"gone", &FILE, &Caller::default()).unwrap().ino;
    fs.sync_file(ino, false).unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.sync().unwrap();
    let image = device.snapshot();
    let geometry = Geometry::read(&image).unwrap().0;
    let newest = choose_pack(&image, &geometry).unwrap().0;
    let older = read_pack(&image, &geometry, 1 - newest.index).unwrap();
    assert!(older.raw.checkpoint_ver < newest.raw.checkpoint_ver);
    flip(&image, u64::from(older.start + older.raw.cp_pack_total_block_count.get() - 1) * BLOCK + 99, 0x40);
    let found = rescued(&image);
    assert_eq!(files(&found), FILES);
    assert!(found.lookup(found.root(), b"gone").is_err(), "{:?}", found.report());
    assert_eq!(found.report().without_place, 0, "{:?}", found.report());
    let planned = plan(Arc::new(image), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(!planned.report().restored_nodes, "{:?}", planned.report());
}

/// Both ends of the newest checkpoint: then the one before is all there is, and it knows nothing of the files.
#[test]
fn rescue_finds_what_is_newer_than_the_only_checkpoint() {
    let device = unmounted();
    for end in ends(&device) {
        device.write_at(end * BLOCK, &[0x5A; 4096]).unwrap();
    }
    let found = rescued(&device);
    assert_eq!(files(&found), FILES, "{:?}", found.report());
    assert!(
        found.report().notes.iter().any(|note| note.contains("newer than checkpoint")),
        "{:?}",
        found.report().notes
    );
}

/// A repair goes back to no older version, whatever is left of the newest checkpoint.
#[test]
fn what_was_written_behind_a_lost_checkpoint_comes_back() {
    for (clean, filling, blocks) in
        [(false, 0x5A, 1), (false, 0, 1), (false, 0, 512), (true, 0x5A, 1), (true, 0, 1), (true, 0, 512)]
    {
        let what = format!("clean {clean}, {blocks} blocks of {filling:#04x}");
        let image = written_behind_a_checkpoint(clean);
        let ends = ends(&image);
        for end in &ends[..if blocks == 1 { 2 } else { 1 }] {
            image.write_at(end * BLOCK, &vec![filling; blocks * BLOCK as usize]).unwrap();
        }
        let found = rescued(&image);
        // What counts is how each was the last time.
        assert_eq!(files(&found), FILES, "{what}: {:?}", found.report());
        let shared: Arc<dyn BlockDevice> = Arc::new(image);
        let report = plan(shared.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert!(report.clean && report.losses.is_empty(), "{what}: {report:?}");
        assert_eq!(files(&open(shared)), FILES, "{what}: {report:?}");
    }
}

/// A block inside cannot be read, too: then it cannot be told what the pack was. The repair says so, and goes by what is found.
#[test]
fn a_lost_checkpoint_that_cannot_be_read_comes_back_and_is_told() {
    let image = written_behind_a_checkpoint(false);
    let ends = ends(&image);
    for end in ends {
        image.write_at(end * BLOCK, &[0x5A; 4096]).unwrap();
    }
    let unreadable = (ends[0] + 1) * BLOCK..(ends[0] + 2) * BLOCK;
    let device = Arc::new(FaultyDevice::new(image));
    let healed = AtomicBool::new(false);
    device.fail_when(move |request| {
        let touches = request.offset < unreadable.end && request.end() > unreadable.start;
        if request.kind == RequestKind::Write && touches {
            healed.store(true, Ordering::Relaxed);
        }
        let fails = request.kind == RequestKind::Read && touches && !healed.load(Ordering::Relaxed);
        fails.then_some(ErrorKind::Other)
    });
    let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
    let told: Vec<_> = report.faults.iter().filter(|fault| fault.kind == FaultKind::CheckpointUncertain).collect();
    assert!(told.len() == 1 && told[0].severity == Severity::Damage && !report.is_clean(), "{:?}", report.faults);
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(planned.report().uncertain_checkpoint, "{:?}", planned.report());
    let report = planned.commit().unwrap();
    assert!(report.clean && report.restored_nodes && report.losses.is_empty(), "{report:?}");
    assert_eq!(files(&open(device.clone())), FILES, "{report:?}");
    let again = plan(device, &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(!again.report().uncertain_checkpoint && again.report().clean, "{:?}", again.report());
}

/// Power goes while a repair is written; the next one comes to the same end, whatever the first has left.
#[test]
fn a_repair_that_was_cut_off_is_done_again() {
    let lost = written_behind_a_checkpoint(false);
    for end in ends(&lost) {
        lost.write_at(end * BLOCK, &[0x5A; 4096]).unwrap();
    }
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES / 2);
    fs.sync().unwrap();
    make(&fs, FILES / 2, FILES);
    for number in FILES / 2..FILES {
        let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
        fs.sync_file(ino, false).unwrap();
    }
    let fsynced = device.snapshot();
    drop(fs);
    let mut rng = Rng::new(7);
    for (what, image, restores) in [("a lost checkpoint", lost, true), ("fsynced files", fsynced, false)] {
        let device = Arc::new(PowerCutDevice::new(image));
        assert!(plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap().clean);
        mend_both_ways_at_each_end(&device.now(), what);
        let history = device.history();
        for at in (0..=history.changes.len()).flat_map(|at| [at; 6]) {
            let image = Replay::new(&history).cut(at, |cached| {
                let mut fate = |change: &Change| match rng.below(4) {
                    0 => Fate::Kept,
                    1 => Fate::Lost,
                    2 => Fate::Unreadable((0..change.sectors()).map(|sector| sector < 8).collect()),
                    _ => Fate::Torn((0..change.sectors()).map(|_| rng.chance(60)).collect()),
                };
                cached.iter().map(&mut fate).collect()
            });
            let what = format!("seed 7: {what}, request {at}");
            let image = Arc::new(image);
            let planned = plan(image.clone(), &RepairOptions::default(), &mut |_| ());
            let report = planned.and_then(|plan| plan.commit()).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(report.clean && (restores || !report.restored_nodes), "{what}: {report:?}");
            assert_eq!(files(&open(image)), FILES, "{what}: {report:?}");
        }
    }
}

/// The checkpoint that a repair writes counts as any other if an end of it is damaged.
fn mend_both_ways_at_each_end(repaired: &MemoryDevice, what: &str) {
    for end in ends(repaired) {
        let image = repaired.snapshot();
        flip(&image, end * BLOCK + 99, 0x40);
        mend_both_ways(&image, &format!("{what}, repaired, end {end}"));
    }
}

/// Nothing of this kind where both checkpoints are whole: what was never synced is not taken for more.
#[test]
fn rescue_goes_by_the_checkpoint_where_no_newer_one_is_damaged() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 20);
    fs.sync().unwrap();
    make(&fs, 20, FILES);
    let ino = fs.lookup(fs.root(), b"file20").unwrap().ino;
    fs.sync_file(ino, false).unwrap();
    let image = device.snapshot();
    drop(fs);
    let found = rescued(&image);
    assert_eq!(files(&found), 21, "{:?}", found.report());
    assert!(found.report().notes.iter().all(|note| !note.contains("newer than")), "{:?}", found.report().notes);
}

/// The other end of a checkpoint is whole, and what is between them is not: a mount that fails over that has written nothing.
#[test]
fn a_damaged_end_is_not_written_before_all_else_was_read() {
    let image = unmounted();
    let [newest, _] = both(&image);
    let raw = &newest.raw;
    let journal = if raw.flags().contains(CheckpointFlags::COMPACT_SUMMARY) {
        u64::from(newest.start + raw.cp_pack_start_sum.get()) * BLOCK
    } else {
        (last(&newest) - 6) * BLOCK + 3584
    };
    image.write_at(journal, &[0xFF; 2]).unwrap();
    flip(&image, u64::from(newest.start) * BLOCK + 99, 0x40);
    let digest = image.digest();
    let device = Arc::new(image);
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    let error = F2fs::open(device.clone(), options, Arc::new(SystemClock)).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("NAT journal")), "{error:?}");
    assert!(device.digest() == digest, "something was written");
}

/// Linux goes by the older checkpoint as long as the end is damaged: where it cannot be mended, nothing is written behind it.
#[test]
fn a_volume_whose_damaged_end_cannot_be_mended_is_only_read() {
    let image = unmounted();
    let end = ends(&image)[0] * BLOCK;
    flip(&image, end + 99, 0x40);
    let device = FaultyDevice::new(image);
    device.fail_when(move |request| {
        (request.kind == RequestKind::Write && request.offset == end).then_some(ErrorKind::Other)
    });
    let device = Arc::new(device);
    let fs = open(device.clone());
    assert!(
        !fs.is_writable() && fs.warnings().iter().any(|line| line.contains("cannot be mended")),
        "{:?}",
        fs.warnings()
    );
    assert_eq!(files(&fs), FILES);
}
