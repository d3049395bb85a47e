//! A live journal, and a SIT that is damaged: nothing in use is written over, and a repair recovers all of it.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, FaultKind};
use basalt_f2fs::journal::guard;
use basalt_f2fs::repair::{RepairOptions, check_recovered, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Clock, F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileSystem, InodeNumber, SetAttributes};

use super::{
    BLOCK, FILE, Files, assert_same, eager, expect_clean, is_guarded, left_alive, left_alive_behind, open, volume,
};

const SECTOR: usize = 512;
/// Bytes of an entry of the SIT.
const ENTRY: usize = 74;

/// The volume with each sector of the SIT's first blocks damaged that has anything, in either copy.
fn damaged(device: &MemoryDevice, is_garbage: bool) -> Vec<(String, Arc<MemoryDevice>)> {
    let geometry = guard::read(device).unwrap().geometry;
    let mut rng = Rng::new(5);
    let mut images = Vec::new();
    for second in [false, true] {
        let first = u64::from(geometry.sit_block(0, second)) * BLOCK;
        for sector in 0..BLOCK / SECTOR as u64 {
            let at = first + sector * SECTOR as u64;
            let mut bytes = [0; SECTOR];
            device.read_at(at, &mut bytes).unwrap();
            if bytes == [0; SECTOR] {
                continue;
            }
            bytes.fill(0);
            if is_garbage {
                rng.fill(&mut bytes);
            }
            let image = device.snapshot();
            image.write_at(at, &bytes).unwrap();
            images.push((format!("garbage {is_garbage}, copy {second}, sector {sector}"), Arc::new(image)));
        }
    }
    images
}

/// Who may write would find all that was lost in use by others.
fn expect_all_or_read_only(image: &Arc<MemoryDevice>, files: &Files, what: &str) -> bool {
    let before = image.snapshot();
    let Ok(fs) = F2fs::open(image.clone(), OpenOptions::default(), Arc::new(SystemClock)) else { return true };
    if !fs.is_writable() {
        assert_same(&before, image);
        assert!(fs.warnings().iter().any(|warning| warning.contains("read-only")), "{what}: {:?}", fs.warnings());
        return true;
    }
    let mut files = files.clone();
    files.expect(&fs, what);
    files.overwrite(&fs, &mut Rng::new(1), 1_000, false);
    fs.close().unwrap();
    files.expect(&open(image, OpenOptions::default()), what);
    false
}

#[test]
fn a_damaged_sit_behind_a_live_journal_costs_nothing() {
    let (device, files) = left_alive();
    let mut read_only = [0, 0];
    let mut repaired = 0;
    for is_garbage in [false, true] {
        for (what, image) in damaged(&device, is_garbage) {
            read_only[usize::from(is_garbage)] +=
                u32::from(expect_all_or_read_only(&Arc::new(image.snapshot()), &files, &what));
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let report = check_recovered(image.clone(), &CheckOptions::default(), &clock, &mut |_| ()).unwrap();
            let report_is_clean = report.is_clean();
            let planned = plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
            assert_eq!(planned.report().losses, [], "{what}: {:?}", planned.report().repairs);
            let done = planned.commit().unwrap();
            assert!(done.clean && done.repairs[0].action.contains("recovered"), "{what}: {:?}", done.repairs);
            let is_told = done.repairs.iter().any(|one| matches!(one.kind, FaultKind::SitMissing));
            assert!(!(is_told && report_is_clean), "{what}: {report:?}");
            repaired += u32::from(is_told);
            assert!(!is_guarded(&image));
            expect_clean(&image, &what);
            files.expect(&open(&image, OpenOptions::default()), &what);
        }
    }
    // In the copy that counts, eight sectors of 512 bytes have six entries each.
    assert!(read_only.iter().all(|count| *count >= 6) && repaired >= 6, "{read_only:?}, {repaired}");
}

/// Whole entries are zeros, each alone: no count and no type contradicts. One may be of a log's segment.
#[test]
fn a_lost_entry_behind_a_live_journal_costs_nothing() {
    for synced in [true, false] {
        let (device, files) = left_alive_behind(synced);
        let geometry = guard::read(&*device).unwrap().geometry;
        let mut lost = 0;
        for segment in 0..geometry.main_segments.min(55) {
            let image = Arc::new(device.snapshot());
            let mut entries = [[0; ENTRY]; 2];
            for (entry, second) in entries.iter_mut().zip([false, true]) {
                let at = u64::from(geometry.sit_block(0, second)) * BLOCK + u64::from(segment) * ENTRY as u64;
                image.read_at(at, entry).unwrap();
                image.write_at(at, &[0; ENTRY]).unwrap();
            }
            if entries == [[0; ENTRY]; 2] {
                continue;
            }
            lost += 1;
            let what = format!("synced {synced}, segment {segment}");
            expect_all_or_read_only(&Arc::new(image.snapshot()), &files, &what);
            let planned = plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
            assert_eq!(planned.report().losses, [], "{what}");
            assert!(planned.commit().unwrap().clean, "{what}");
            files.expect(&open(&image, OpenOptions::default()), &what);
        }
        assert!(lost > 20, "{lost}");
    }
}

/// Only the NAT has lost entries: the journal is recovered, and a search finds the nodes.
#[test]
fn a_journal_is_not_given_up_for_a_lost_nat_entry() {
    let (device, files) = left_alive();
    let geometry = guard::read(&*device).unwrap().geometry;
    for copy in [false, true] {
        device.write_at(u64::from(geometry.nat_block(0, copy)) * BLOCK, &[0; SECTOR]).unwrap();
    }
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    let losses = planned.report().losses.len();
    assert!(!planned.report().repairs[0].action.contains("given up"), "{:?}", planned.report());
    assert!(planned.commit().unwrap().clean);
    let wrong = files.wrong(&open(&device, OpenOptions::default()));
    assert!(wrong == 0 || losses > 0, "{wrong} wrong, {losses} losses");
}

/// The NAT has lost entries as well: what hangs on them is found by a search, and until then its blocks are not taken for free.
#[test]
fn nodes_that_the_nat_lacks_keep_their_blocks() {
    let (device, files) = left_alive();
    let geometry = guard::read(&*device).unwrap().geometry;
    let mut losses = 0;
    for (what, image) in damaged(&device, true) {
        for copy in [false, true] {
            let nat = u64::from(geometry.nat_block(0, copy)) * BLOCK;
            image.write_at(nat, &[0; SECTOR]).unwrap();
        }
        let clock = Arc::new(SystemClock);
        let rescued = Rescued::open(image.clone(), &RescueOptions::default(), clock, &mut |_| ()).unwrap();
        let readable = files.blocks.iter().map(Vec::len).sum::<usize>() - files.wrong(&rescued);
        drop(rescued);
        let planned = plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
        losses += usize::from(!planned.report().losses.is_empty());
        let is_told = !planned.report().losses.is_empty();
        let done = planned.commit().unwrap();
        assert!(done.clean, "{what}: {:?}", done.left);
        let fs = open(&image, OpenOptions::default());
        let left = files.blocks.iter().map(Vec::len).sum::<usize>() - files.wrong(&fs);
        assert!(left >= readable || is_told, "{what}: {left} of {readable} blocks");
    }
    println!("{losses} repairs with losses");
}

/// Inodes of small files, each with content of its own.
fn make_small_files(fs: &F2fs) -> Vec<InodeNumber> {
    let make = |number: u8| {
        let ino = fs.create(fs.root(), format!("small{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &[number; 100], false).unwrap();
        ino
    };
    (0..60).map(make).collect()
}

/// What was fsynced needs new nodes, and the NAT has lost entries: their ids are not the new nodes'.
#[test]
fn new_nodes_take_no_lost_ids() {
    const OLD_BLOCKS: usize = 855;
    const BLOCKS: usize = 875;
    let device = volume(256 << 10);
    let fs = open(&device, OpenOptions { sections_per_commit: Some(1), ..eager() });
    let grower = fs.create(fs.root(), b"grower", &FILE, &Caller::default()).unwrap().ino;
    fs.write(grower, 0, &vec![200; OLD_BLOCKS * BLOCK as usize], false).unwrap();
    let mut files = Files::fill(&fs);
    let small = make_small_files(&fs);
    fs.sync().unwrap();
    let mut rng = Rng::new(3);
    // It grows behind commits of the journal, and in front of the next checkpoint.
    let image = loop {
        let before = fs.statistics();
        let since = || fs.statistics().since(&before);
        while since().checkpoints.total() == 0 && since().cleaning.total().journal_commits <= 6 {
            files.overwrite(&fs, &mut rng, 20, true);
        }
        let data = vec![201; (BLOCKS - OLD_BLOCKS) * BLOCK as usize];
        fs.write(grower, OLD_BLOCKS as u64 * BLOCK, &data, false).unwrap();
        fs.sync_file(grower, false).unwrap();
        if since().checkpoints.total() == 0 {
            break device.snapshot();
        }
        fs.set_attributes(grower, &SetAttributes { size: Some(OLD_BLOCKS as u64 * BLOCK), ..SetAttributes::default() })
            .unwrap();
        fs.sync().unwrap();
    };
    let wrong = |fs: &dyn FileSystem| {
        let mut bytes = vec![0; BLOCKS * BLOCK as usize];
        let mut holds = |ino: InodeNumber, expected: &[u8]| {
            fs.read(ino, 0, &mut bytes).is_ok_and(|length| bytes[..length] == *expected)
        };
        let wrong = small.iter().zip(0_u8..).filter(|(ino, number)| !holds(**ino, &[*number; 100])).count();
        let grown =
            [vec![200; OLD_BLOCKS * BLOCK as usize], vec![201; (BLOCKS - OLD_BLOCKS) * BLOCK as usize]].concat();
        wrong + usize::from(!holds(grower, &grown)) + files.wrong(fs)
    };
    let geometry = guard::read(&image).unwrap().geometry;
    for sector in 1..4 {
        let image = Arc::new(image.snapshot());
        for copy in [false, true] {
            let nat = u64::from(geometry.nat_block(0, copy)) * BLOCK;
            image.write_at(nat + sector * SECTOR as u64, &[0; SECTOR]).unwrap();
        }
        let clock = Arc::new(SystemClock);
        let rescued = Rescued::open(image.clone(), &RescueOptions::default(), clock, &mut |_| ()).unwrap();
        let by_rescue = wrong(&rescued);
        drop(rescued);
        let planned = plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
        let is_told = !planned.report().losses.is_empty();
        assert!(planned.commit().unwrap().clean);
        let by_repair = wrong(&open(&image, OpenOptions::default()));
        assert!(by_repair <= by_rescue || is_told, "sector {sector}: {by_repair} wrong, {by_rescue} by rescue");
    }
}
