//! Damage inside the newest checkpoint pack, and in what else could say what that had: the table, the older pack's journal, what lies where
//! that leads.

#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::sync::Arc;

use basalt_device::power::{Fate, Replay};
use basalt_device::{BlockDevice, MemoryDevice, PowerCutDevice};
use basalt_f2fs::checkpoint::pack::Pack;
use basalt_f2fs::layout::checkpoint::CheckpointFlags;
use basalt_f2fs::layout::summary::{JOURNAL_SIZE, nat_journal};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, Geometry};
use basalt_vfs::{Caller, FileSystem};
use packs::{BLOCK, FILE, FILES, Outcome, both, edit_ends, files, fill, fresh, last, make, open};

/// Where a pack's first block says whether the logs of nodes fill holes, and how far the one of files' nodes has come in its segment.
const NODE_LOGS_MODE: std::ops::Range<usize> = 179..182;
const WARM_NODE_OFFSET: std::ops::Range<usize> = 70..72;
/// Parts of a node's footer.
const NID: std::ops::Range<usize> = 4072..4076;
const INO: std::ops::Range<usize> = 4076..4080;
const CP_VER: std::ops::Range<usize> = 4084..4092;
/// Bytes of the owners in a summary.
const OWNERS: u64 = 512 * 7;

fn ino(fs: &F2fs, number: u64) -> u64 {
    fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino
}

fn rewrite(fs: &F2fs, number: u64, value: u8) {
    assert_eq!(fs.write(ino(fs, number), 0, &[value; 9_000], false).unwrap(), 9_000);
}

fn make_empty(fs: &F2fs, count: u64) {
    for number in 0..count {
        fs.create(fs.root(), format!("empty{number}").as_bytes(), &FILE, &Caller::default()).unwrap();
    }
}

/// Where the journal of the NAT of a pack is, in bytes.
fn journal_of(pack: &Pack) -> u64 {
    let is_compact = pack.raw.flags().contains(CheckpointFlags::COMPACT_SUMMARY);
    let behind_owners = if is_compact { 0 } else { OWNERS };
    u64::from(pack.start + pack.raw.cp_pack_start_sum.get()) * BLOCK + behind_owners
}

fn read<const N: usize>(image: &MemoryDevice, at: u64) -> [u8; N] {
    let mut block = [0; BLOCK as usize];
    image.read_at(at / BLOCK * BLOCK, &mut block).unwrap();
    block[(at % BLOCK) as usize..][..N].try_into().unwrap()
}

/// Sets how many entries a journal has.
fn set_count(image: &MemoryDevice, at: u64, count: u16) {
    let mut block: [u8; BLOCK as usize] = read(image, at / BLOCK * BLOCK);
    block[(at % BLOCK) as usize..][..2].copy_from_slice(&count.to_le_bytes());
    image.write_at(at / BLOCK * BLOCK, &block).unwrap();
}

#[track_caller]
fn expect_found(image: &MemoryDevice, what: &str) -> Outcome {
    let found = Outcome::of(image, files);
    let is_found = found.rescued == Some(FILES) && found.repaired == Some(FILES) && found.is_mended;
    assert!(is_found && (!found.is_writable || found.mounted == Some(FILES)), "{what}: {found:?}");
    found
}

/// All nodes are in journals only: the table has what mkfs wrote, under the same version as the first session.
#[test]
fn the_root_of_mkfs_is_not_the_one_before() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES / 2);
    fs.sync().unwrap();
    for _ in 0..3 {
        rewrite(&fs, 0, 0);
        fs.sync().unwrap();
    }
    let image = device.snapshot();
    drop(fs);
    let whole = |fs: &dyn FileSystem| files(fs) + FILES / 2;
    for (what, packs) in [("newest", 1), ("both", 2)] {
        let broken = image.snapshot();
        both(&image)[..packs].iter().for_each(|pack| fill(&broken, journal_of(pack) / BLOCK, 1, 0x5A));
        let found = Outcome::of(&broken, whole);
        assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES), "{what}: {found:?}");
        assert_eq!(found.losses > 0, packs == 2, "{what}: {found:?}");
    }
}

/// The table has forty files. Ten more are in the journal of the older checkpoint too, and `file0` is written once more in the newest.
fn in_the_journal_before() -> (MemoryDevice, u32) {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES - 10);
    make_empty(&fs, 30);
    fs.sync().unwrap();
    make(&fs, FILES - 10, FILES);
    fs.sync().unwrap();
    for _ in 0..3 {
        rewrite(&fs, 0, 0);
        fs.sync().unwrap();
    }
    let nid = u32::try_from(ino(&fs, 0)).unwrap();
    let image = device.snapshot();
    drop(fs);
    (image, nid)
}

#[test]
fn a_block_in_other_use_says_nothing_against_the_journal_before() {
    let (image, nid) = in_the_journal_before();
    let [newest, older] = both(&image);
    let journal: [u8; JOURNAL_SIZE] = read(&image, journal_of(&older));
    let freed = nat_journal(&journal).unwrap().iter().find(|one| one.nid.get() == nid).unwrap().entry.block_addr.get();
    fill(&image, journal_of(&newest) / BLOCK, 1, 0x5A);
    let broken = image.snapshot();
    fill(&broken, freed.into(), 1, 0x77);
    for (what, image) in [("freed", image), ("in other use", broken)] {
        assert_eq!(expect_found(&image, what).losses, 0, "{what}");
    }
}

/// Without either journal the newest versions count, and the table that is older than they does not; who repairs is asked.
#[test]
fn without_both_journals_the_newest_versions_count() {
    let (image, _) = in_the_journal_before();
    both(&image).iter().for_each(|pack| fill(&image, journal_of(pack) / BLOCK, 1, 0x5A));
    let found = expect_found(&image, "both");
    assert!(found.losses > 1 && found.is_warned, "{found:?}");
}

/// A block of the table was written anew and is damaged since; what it was before has the nodes that were not written between.
#[test]
fn a_block_of_the_table_that_was_written_anew_is_not_needed() {
    for is_unmounted in [false, true] {
        let device = Arc::new(fresh());
        let fs = open(device.clone());
        make(&fs, 0, FILES);
        make_empty(&fs, 60);
        fs.close().unwrap();
        drop(fs);
        let fs = open(device.clone());
        for number in 0..50 {
            let ino = fs.lookup(fs.root(), format!("empty{number}").as_bytes()).unwrap().ino;
            fs.write(ino, 0, &[7; 9_000], false).unwrap();
        }
        if is_unmounted {
            fs.close().unwrap()
        } else {
            fs.sync().unwrap()
        }
        let image = device.snapshot();
        drop(fs);
        let geometry = Geometry::read(&image).unwrap().0;
        let newest = both(&image)[0].clone();
        for byte in [0, 0x5A] {
            for copies in [&[false][..], &[true], &[false, true]] {
                let broken = image.snapshot();
                copies.iter().for_each(|copy| fill(&broken, geometry.nat_block(0, *copy).into(), 1, byte));
                let first = u64::from(newest.start) + 1;
                fill(&broken, first, last(&newest) - first, byte);
                let found = Outcome::of(&broken, files);
                let what = format!("unmounted {is_unmounted}, copies {copies:?} of {byte:#x}: {found:?}");
                assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES), "{what}");
            }
        }
    }
}

/// The journal of the NAT is damaged alone, and something was fsynced behind the checkpoint: the SIT still knows the segment where that lies.
#[test]
fn what_was_fsynced_takes_nothing_from_the_segment_it_is_in() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 20);
    fs.sync().unwrap();
    rewrite(&fs, 7, 7);
    fs.sync_file(ino(&fs, 7), false).unwrap();
    let image = device.snapshot();
    drop(fs);
    let at = journal_of(&both(&image)[0]);
    for count in [0xFFFF_u16, 39] {
        let broken = image.snapshot();
        set_count(&broken, at, count);
        let found = Outcome::of(&broken, files);
        assert!(found.rescued == Some(20) && found.repaired == Some(20), "{count}: {found:?}");
    }
}

/// One bit of the number of entries is enough: nodes that the log wrote are in neither journal nor table then.
#[test]
fn a_journal_with_too_few_entries_is_not_believed() {
    for is_unmounted in [false, true] {
        for changed in [2_u64, 4, 8, 12, 20, 30] {
            let device = Arc::new(fresh());
            let fs = open(device.clone());
            make(&fs, 0, FILES);
            make_empty(&fs, 45);
            (0..changed).for_each(|number| rewrite(&fs, number, 0xEE));
            fs.close().unwrap();
            drop(fs);
            let fs = open(device.clone());
            for number in 0..changed {
                rewrite(&fs, number, number as u8);
                fs.sync_file(ino(&fs, number), false).unwrap();
            }
            if is_unmounted {
                fs.close().unwrap()
            } else {
                fs.sync().unwrap()
            }
            let image = device.snapshot();
            drop(fs);
            let at = journal_of(&both(&image)[0]);
            let count = u16::from_le_bytes(read(&image, at));
            for less in (0..6).map(|bit| count ^ (1 << bit)).filter(|less| *less < count) {
                let broken = image.snapshot();
                set_count(&broken, at, less);
                expect_found(&broken, &format!("unmounted {is_unmounted}, {count} to {less}"));
            }
        }
    }
}

/// A repair that power cut is done again, the volume is used, and then its newest checkpoint is damaged: nothing takes what was fsynced behind
/// that for what was lost before.
#[test]
fn a_repair_that_was_cut_off_hides_nothing_that_comes_after() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    rewrite(&fs, 3, 0xEE);
    fs.sync().unwrap();
    rewrite(&fs, 1, 1);
    fs.sync().unwrap();
    let lost = device.snapshot();
    drop(fs);
    fill(&lost, both(&lost)[0].start.into(), 10, 0x5A);
    let repair = |device: Arc<dyn BlockDevice>| {
        plan(device, &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    };
    let device = Arc::new(PowerCutDevice::new(lost));
    repair(device.clone());
    let history = device.history();
    for at in 0..=history.changes.len() {
        let cut = Arc::new(Replay::new(&history).cut(at, |cached| cached.iter().map(|_| Fate::Kept).collect()));
        repair(cut.clone());
        let fs = open(cut.clone());
        rewrite(&fs, 3, 3);
        fs.sync_file(ino(&fs, 3), false).unwrap();
        let image = cut.snapshot();
        drop(fs);
        fill(&image, both(&image)[0].start.into(), 1, 0x5A);
        let found = Outcome::of(&image, files);
        let is_found = found.rescued == Some(FILES) && found.repaired == Some(FILES) && found.losses == 0;
        assert!(is_found && found.mounted == Some(FILES), "cut before {at} of {}: {found:?}", history.changes.len());
    }
}

/// The logs of nodes fill holes, so that nothing tells what they wrote, and what the older journal leads to is in other use: then only the
/// count of nodes contradicts an empty journal.
#[test]
fn the_count_of_nodes_contradicts_a_journal_where_nothing_else_can() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES - 1);
    make_empty(&fs, 30);
    fs.sync().unwrap();
    rewrite(&fs, 0, 0);
    fs.sync().unwrap();
    rewrite(&fs, 0, 0);
    make(&fs, FILES - 1, FILES);
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    let [newest, older] = both(&image);
    edit_ends(&image, &newest, |block| block[NODE_LOGS_MODE].fill(1));
    let journal: [u8; JOURNAL_SIZE] = read(&image, journal_of(&older));
    let entries = nat_journal(&journal).unwrap().to_vec();
    for is_reused in [false, true] {
        let broken = image.snapshot();
        if is_reused {
            entries.iter().for_each(|one| fill(&broken, one.entry.block_addr.get().into(), 1, 0x77));
        }
        let whole = Outcome::of(&broken, files);
        assert!(whole.is_clean && whole.is_writable && whole.mounted == Some(FILES), "{whole:?}");
        set_count(&broken, journal_of(&newest), 0);
        let found = Outcome::of(&broken, files);
        assert!(!found.is_writable && found.rescued == Some(FILES), "reused {is_reused}: {found:?}");
    }
}

/// `mode=fragment:block` of Linux leaves holes in its logs, with what power cut earlier under the same version. They say nothing against a
/// journal.
#[test]
fn nodes_in_the_holes_of_a_log_contradict_nothing() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    make_empty(&fs, 60);
    fs.sync().unwrap();
    for _ in 0..8 {
        rewrite(&fs, 0, 0);
        fs.sync_file(ino(&fs, 0), false).unwrap();
    }
    fs.sync().unwrap();
    let image = device.snapshot();
    let inos: Vec<u32> = (10..26).map(|number| u32::try_from(ino(&fs, number)).unwrap()).collect();
    drop(fs);
    let [newest, older] = both(&image);
    let main = u64::from(Geometry::read(&image).unwrap().0.main);
    let end =
        main + u64::from(newest.raw.cur_node_segno[1].get()) * 512 + u64::from(newest.raw.cur_node_blkoff[1].get());
    let mut node = [0; BLOCK as usize];
    for (at, ino) in (end..).zip(&inos) {
        image.read_at((end - 2) * BLOCK, &mut node).unwrap();
        node[NID].copy_from_slice(&ino.to_le_bytes());
        node[INO].copy_from_slice(&ino.to_le_bytes());
        node[CP_VER].copy_from_slice(&older.raw.node_version(older.checksum).to_le_bytes());
        image.write_at(at * BLOCK, &node).unwrap();
    }
    let offset = newest.raw.cur_node_blkoff[1].get() + inos.len() as u16;
    edit_ends(&image, &newest, |block| block[WARM_NODE_OFFSET].copy_from_slice(&offset.to_le_bytes()));
    let found = Outcome::of(&image, files);
    assert!(found.is_clean && found.is_writable && found.mounted == Some(FILES), "{found:?}");
}
