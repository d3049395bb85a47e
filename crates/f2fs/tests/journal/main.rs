//! Cleaning committed by the journal, through the public door.

mod sit;
mod versions;

use std::collections::BTreeSet;
use std::sync::Arc;

use basalt_device::power::{Change, Fate};
use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, PowerCutDevice, Replay, RequestKind};
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::journal::area::Area;
use basalt_f2fs::journal::guard;
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::inside::marked_inode;
use basalt_f2fs::layout::journal::{DESCRIPTOR_BLOCK, KIND_DATA, RawDescriptor, RawJournalHeader};
use basalt_f2fs::repair::{RepairOptions, check_recovered, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Clock, Error, F2fs, Geometry, OpenOptions, SystemClock};
use basalt_segments::cleaning::KeepFree;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};
use zerocopy::FromBytes;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// A volume of 96 MiB with a journal of so many bytes.
fn volume(journal_bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(96 * MIB, 512));
    let options = FormatOptions {
        journal_bytes,
        overprovision_percent: Some(30.0),
        uuid: Some([9; 16]),
        discard_reads_zeros: true,
        ..FormatOptions::default()
    };
    format(&*device, &options, &mut |_, _| {}).unwrap();
    device
}

fn eager() -> OpenOptions {
    OpenOptions { pre_invalid_bytes: Some(1 << 30), cache_bytes: 1 << 20, ..OpenOptions::default() }
}

fn open(device: &Arc<MemoryDevice>, options: OpenOptions) -> F2fs {
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

/// Files of 1 MiB that fill the volume to 85 percent, and what is in each block of each.
#[derive(Clone)]
struct Files {
    inodes: Vec<InodeNumber>,
    blocks: Vec<Vec<u8>>,
}

impl Files {
    fn fill(fs: &F2fs) -> Files {
        let count = fs.stat_fs().unwrap().available * BLOCK * 85 / 100 / MIB;
        let mut files = Files { inodes: Vec::new(), blocks: Vec::new() };
        for number in 0..count {
            let name = format!("file{number}");
            let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            fs.write(ino, 0, &vec![number as u8; MIB as usize], false).unwrap();
            files.inodes.push(ino);
            files.blocks.push(vec![number as u8; (MIB / BLOCK) as usize]);
        }
        fs.sync().unwrap();
        files
    }

    /// Overwrites single blocks; with `synced`, each is fsynced.
    fn overwrite(&mut self, fs: &F2fs, rng: &mut Rng, count: u32, synced: bool) {
        for _ in 0..count {
            let file = rng.index(self.inodes.len());
            let block = rng.index(self.blocks[file].len());
            let value = rng.next_u64() as u8;
            fs.write(self.inodes[file], block as u64 * BLOCK, &[value; BLOCK as usize], false).unwrap();
            self.blocks[file][block] = value;
            if synced {
                fs.sync_file(self.inodes[file], false).unwrap();
            }
        }
    }

    fn expect(&self, fs: &F2fs, context: &str) {
        assert_eq!(self.wrong(fs), 0, "{context}: blocks that are wrong");
    }

    /// Blocks that are not what they should be.
    fn wrong(&self, fs: &dyn FileSystem) -> usize {
        let mut bytes = vec![0; MIB as usize];
        let mut wrong = 0;
        for (&ino, blocks) in self.inodes.iter().zip(&self.blocks) {
            if fs.read(ino, 0, &mut bytes).is_err() {
                // Block by block: what cannot be read is wrong.
                bytes.fill(!0);
                for (at, block) in bytes.chunks_mut(BLOCK as usize).enumerate() {
                    let _ = fs.read(ino, at as u64 * BLOCK, block);
                }
            }
            let is_wrong = |(block, value): &(&[u8], &u8)| block.iter().any(|byte| byte != *value);
            wrong += bytes.chunks(BLOCK as usize).zip(blocks).filter(is_wrong).count();
        }
        wrong
    }
}

fn expect_clean(device: &MemoryDevice, context: &str) {
    let report = check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{context}: {:?}", report.faults);
}

fn is_guarded(device: &MemoryDevice) -> bool {
    guard::read(device).unwrap().is_set
}

fn journal_of(device: &MemoryDevice) -> Area {
    Area::find(device, &guard::read(device).unwrap().geometry).unwrap().unwrap()
}

/// A volume whose journal is live, as after a power cut that lost nothing; and what was fsynced there.
fn left_alive() -> (Arc<MemoryDevice>, Files) {
    left_alive_behind(true)
}

/// As [`left_alive`]; unless it is to be `synced`, all that counts is what the last checkpoint has.
fn left_alive_behind(synced: bool) -> (Arc<MemoryDevice>, Files) {
    let device = volume(256 << 10);
    // Where less is kept free, fsyncs write where blocks were moved away from, and nobody here could tell those places from free ones.
    let keep_free = KeepFree::Reserve;
    let fs = open(&device, OpenOptions { sections_per_commit: Some(1), keep_free, ..eager() });
    let mut files = Files::fill(&fs);
    let mut rng = Rng::new(3);
    // Synced, what was freed is in other use by the sixth commit.
    let least = if synced { 6 } else { 1 };
    for _ in 0..100 {
        if !synced {
            fs.sync().unwrap();
        }
        let durable = files.clone();
        let before = fs.statistics();
        while fs.statistics().since(&before).checkpoints.total() == 0 {
            files.overwrite(&fs, &mut rng, 20, synced);
            let done = fs.statistics().since(&before);
            if done.cleaning.total().journal_commits > least && done.checkpoints.total() == 0 {
                return (Arc::new(device.snapshot()), if synced { files } else { durable });
            }
        }
    }
    panic!("the journal was not used: {:?}", fs.statistics());
}

#[test]
fn cleaning_needs_few_checkpoints_and_leaves_a_volume_like_any_other() {
    let mut checkpoints = Vec::new();
    for journal in [false, true] {
        let device = volume(256 << 10);
        let fs = open(&device, OpenOptions { journal, ..eager() });
        let mut files = Files::fill(&fs);
        files.overwrite(&fs, &mut Rng::new(1), 20_000, false);
        let done = fs.statistics();
        let cleaning = done.cleaning.total();
        assert_eq!(cleaning.journal_commits > 0, journal, "{done:?}");
        assert_eq!(done.written.journal_blocks > 0, journal, "{done:?}");
        assert_eq!(cleaning.pre_invalid_copied > 0, journal, "{done:?}");
        assert_eq!(is_guarded(&device), journal);
        checkpoints.push(cleaning.checkpoints);
        files.expect(&fs, "open");
        fs.close().unwrap();
        assert!(!is_guarded(&device), "the guard is left behind");
        expect_clean(&device, "closed");
        files.expect(&open(&device, OpenOptions::default()), "opened again");
    }
    assert!(checkpoints[1] * 3 < checkpoints[0], "checkpoints without and with a journal: {checkpoints:?}");
}

#[test]
fn a_live_journal_is_recovered_by_a_mount_and_seen_by_a_reader() {
    let (device, files) = left_alive();
    assert!(is_guarded(&device));
    assert!(matches!(check(&*device, &CheckOptions::default(), &mut |_| {}), Err(Error::Unsupported { .. })));
    let before = device.snapshot();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = check_recovered(device.clone(), &CheckOptions::default(), &clock, &mut |_| ()).unwrap();
    assert!(report.is_clean() && report.faults[0].found.contains("live cleaning journal"), "{:?}", report.faults);
    let fs = open(&device, OpenOptions { read_only: true, ..OpenOptions::default() });
    files.expect(&fs, "read only");
    fs.close().unwrap();
    assert_same(&before, &device);
    // Also by whoever does not want to use it.
    let fs = open(&device, OpenOptions { journal: false, logs: 4, ..OpenOptions::default() });
    files.expect(&fs, "recovered");
    assert!(!is_guarded(&device), "nothing is live after recovery");
    expect_clean(&device, "recovered");
    fs.close().unwrap();
    expect_clean(&device, "closed");
}

fn assert_same(before: &MemoryDevice, after: &MemoryDevice) {
    let (mut one, mut other) = (vec![0; MIB as usize], vec![0; MIB as usize]);
    for at in (0..before.size()).step_by(MIB as usize) {
        before.read_at(at, &mut one).unwrap();
        after.read_at(at, &mut other).unwrap();
        assert!(one == other, "something was written in the MiB at {at}");
    }
}

/// A cut while the guard was set has torn one copy of the superblock. While it is taken away, the other is all there is: it is written only
/// when the torn one is whole again, and a second cut leaves a volume.
#[test]
fn a_cut_while_the_guard_goes_never_leaves_two_torn_superblocks() {
    let (left, files) = left_alive();
    for copy in 0..2 {
        let torn = left.snapshot();
        torn.write_at(copy * BLOCK + 1024 + 512, &[0xA5; 512]).unwrap();
        let device = Arc::new(PowerCutDevice::new(torn));
        let fs = F2fs::open(device.clone(), eager(), Arc::new(SystemClock)).unwrap();
        files.expect(&fs, "the first mount");
        fs.close().unwrap();
        drop(fs);
        let history = device.history();
        let is_superblock = |change: &Change| matches!(change, Change::Write { offset, .. } if *offset < 2 * BLOCK);
        let writes: Vec<usize> = (0..history.changes.len()).filter(|&at| is_superblock(&history.changes[at])).collect();
        assert!(writes.len() > 1, "copy {copy}: {writes:?}");
        for at in writes {
            // Its first sector alone, all but that, and every other.
            for kept in [|sector| sector == 0, |sector| sector > 0, |sector| sector % 2 == 1] {
                let fate = |change: &Change| Fate::Torn((0..change.sectors()).map(kept).collect());
                let image = Replay::new(&history).cut(at + 1, |cached| cached.iter().map(fate).collect());
                let what = format!("copy {copy} was torn, cut behind request {at}");
                let fs = F2fs::open(Arc::new(image), eager(), Arc::new(SystemClock));
                let fs = fs.unwrap_or_else(|error| panic!("{what}: {error}"));
                files.expect(&fs, &what);
            }
        }
    }
}

#[test]
fn repair_recovers_a_live_journal_and_a_plan_alone_writes_nothing() {
    let (device, files) = left_alive();
    let before = device.snapshot();
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(planned.report().clean && planned.report().repairs.len() == 1, "{:?}", planned.report());
    assert!(planned.back_up(&mut Vec::new()).is_err(), "what recovery overwrites is in no backup");
    assert_same(&before, &device);
    let report = planned.commit().unwrap();
    assert!(report.clean && report.repairs[0].action.contains("recovered"), "{report:?}");
    expect_clean(&device, "repaired");
    files.expect(&open(&device, OpenOptions::default()), "repaired");
}

/// A commit that others follow was durable: if it cannot be read, that is damage, and not the end of the journal.
#[test]
fn a_hole_in_the_journal_is_damage_and_repair_uses_the_rest() {
    let (device, mut files) = left_alive_behind(false);
    spoil_old_places(&device);
    let lost = lose_first_block(&device);
    let error =
        F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).err().expect("damage is told");
    assert!(error.to_string().contains("journal at block"), "{error}");
    expect_damaged_journal(&device, "as far as it is whole");
    let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.repairs[0].action.contains("as far as it is whole"), "{report:?}");
    assert!(!is_guarded(&device));
    expect_clean(&device, "repaired with what is left of its journal");
    let fs = open(&device, OpenOptions::default());
    let wrong = files.wrong(&fs);
    assert!((1..=lost).contains(&wrong), "{wrong} blocks are wrong, and {lost} moves were lost");
    // And it works.
    files.overwrite(&fs, &mut Rng::new(8), 4_000, true);
    assert!(files.wrong(&fs) <= wrong);
    fs.close().unwrap();
    expect_clean(&device, "used again");
}

/// A live journal of which a block cannot be read, wherever it is: what follows the descriptor is found without it; where a commit may be
/// missing, nothing is written.
#[test]
fn a_live_journal_may_have_a_bad_block() {
    let (device, files) = left_alive();
    let area = journal_of(&device);
    let geometry = guard::read(&*device).unwrap().geometry;
    let (pack, _) = choose_pack(&*device, &geometry).unwrap();
    let version = pack.raw.node_version(pack.checksum);
    let replay = area.read_moves(&*device, &geometry, version).unwrap();
    let copies: Vec<Address> =
        replay.moves.iter().rev().filter(|one| one.kind == KIND_DATA).take(3).map(|one| one.new).collect();
    let journal = Address::all(area.first..area.first + 9);
    let mut counts = [0; 2];
    for block in [DESCRIPTOR_BLOCK, area.first + area.blocks - 1].into_iter().chain(journal).chain(copies.clone()) {
        let bad = u64::from(block) * BLOCK;
        let faulty = Arc::new(FaultyDevice::new(device.snapshot()));
        faulty.fail_when(move |request| {
            let is_hit = (request.offset..request.end()).contains(&bad);
            (request.kind == RequestKind::Read && is_hit).then_some(std::io::ErrorKind::Other)
        });
        let fs = F2fs::open(faulty.clone(), OpenOptions::default(), Arc::new(SystemClock))
            .unwrap_or_else(|error| panic!("block {block}: {error}"));
        counts[usize::from(fs.is_writable())] += 1;
        if fs.is_writable() {
            let wrong = files.wrong(&fs);
            assert!(wrong <= usize::from(copies.contains(&block)), "block {block}: {wrong} blocks are wrong");
        } else {
            assert!(fs.warnings().iter().any(|warning| warning.contains("read-only")), "{:?}", fs.warnings());
        }
        fs.close().unwrap();
    }
    let [read_only, writable] = counts;
    assert!(writable >= 2 && read_only >= 6, "{writable} writable, {read_only} read-only");
}

/// A check that writes nothing must not call a volume clean that cannot be mounted.
fn expect_damaged_journal(device: &Arc<MemoryDevice>, what: &str) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = check_recovered(device.clone(), &CheckOptions::default(), &clock, &mut |_| ()).unwrap();
    assert!(!report.is_clean(), "{:?}", report.faults);
    assert_eq!(report.faults[0].kind, FaultKind::CleaningJournal);
    assert!(report.faults[0].found.contains(what), "{:?}", report.faults);
}

/// A block in the middle of what was fsynced cannot be read, and the journal is live: a repair recovers what is in front of it and behind, and
/// asks before.
#[test]
fn what_was_fsynced_behind_a_bad_block_is_recovered_with_the_journal() {
    let (device, files) = left_alive();
    let geometry = guard::read(&*device).unwrap().geometry;
    let (pack, _) = choose_pack(&*device, &geometry).unwrap();
    let version = pack.raw.node_version(pack.checksum).to_le_bytes();
    let mut bytes = [0; BLOCK as usize];
    // With the version of the checkpoint in its footer. Each of the few files is fsynced again behind the first inodes.
    let is_marked = |block: &u64| {
        let is_read = device.read_at(block * BLOCK, &mut bytes).is_ok();
        is_read && marked_inode(&bytes).is_some() && bytes[4084..4092] == version
    };
    let marked: Vec<u64> = (0..device.size() / BLOCK).filter(is_marked).collect();
    let fails_at = |bad: u64| {
        let faulty = Arc::new(FaultyDevice::new(device.snapshot()));
        faulty.fail_when(move |request| {
            let hits = request.offset < (bad + 1) * BLOCK && request.end() > bad * BLOCK;
            (hits && request.kind == RequestKind::Read).then_some(std::io::ErrorKind::Other)
        });
        faulty
    };
    let is_broken = |faulty: &Arc<FaultyDevice<MemoryDevice>>| {
        let fs = F2fs::open(faulty.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        !fs.is_writable()
    };
    let faulty = marked.into_iter().map(fails_at).find(is_broken).expect("an inode that others follow");
    let planned = plan(faulty.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    assert!(planned.report().restored_nodes && planned.report().losses.is_empty(), "{:?}", planned.report());
    assert!(planned.commit().unwrap().clean);
    let device = Arc::new(faulty.inner().snapshot());
    files.expect(&open(&device, OpenOptions::default()), "repaired");
}

#[test]
fn a_journal_that_is_gone_is_given_up_by_repair() {
    let (device, _) = left_alive();
    device.write_at(u64::from(DESCRIPTOR_BLOCK) * BLOCK, &[0; BLOCK as usize]).unwrap();
    expect_damaged_journal(&device, "given up");
    let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.repairs[0].action.contains("given up"), "{report:?}");
    assert!(!is_guarded(&device));
    expect_clean(&device, "repaired without its journal");
}

/// The journal is whole, but the checkpoint is damaged inside: rescue still reads what was moved, so a repair that cannot says so.
#[test]
fn a_journal_is_not_given_up_for_a_damaged_checkpoint_without_a_word() {
    let (device, files) = left_alive_behind(false);
    spoil_old_places(&device);
    let geometry = guard::read(&*device).unwrap().geometry;
    let (pack, _) = choose_pack(&*device, &geometry).unwrap();
    for at in 1..pack.raw.cp_pack_total_block_count.get() - 1 {
        let image = Arc::new(device.snapshot());
        image.write_at(u64::from(pack.start + at) * BLOCK, &[0x5A; BLOCK as usize]).unwrap();
        let wrong = files.wrong(&rescue(&image).fs);
        let plan = plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
        let losses = plan.report().losses.clone();
        plan.commit().unwrap();
        let after = files.wrong(&open(&image, OpenOptions::default()));
        assert!(
            wrong == 0 && (after == 0 || losses.iter().any(|loss| loss.what.contains("cleaned since"))),
            "block {at}: {wrong}, {after} wrong, {losses:?}"
        );
    }
}

/// Old places may be in other use: who reads a volume without recovering it has to know where things went.
#[test]
fn rescue_follows_a_live_journal() {
    let (device, files) = left_alive();
    rescue(&device).expect(&files, "searched, with what was fsynced");
    // As the checkpoint has it: nothing was fsynced since.
    let (device, files) = left_alive_behind(false);
    spoil_old_places(&device);
    rescue(&device).expect(&files, "searched");
    let options = OpenOptions { rescue: true, ..OpenOptions::default() };
    files.expect(&open(&device, options), "read from the checkpoint");
    // With a block of the NAT gone, the moves and the nodes themselves tell.
    let geometry = guard::read(&*device).unwrap().geometry;
    for copy in [false, true] {
        device.write_at(u64::from(geometry.nat_block(0, copy)) * BLOCK, &[0; BLOCK as usize]).unwrap();
    }
    rescue(&device).expect(&files, "searched without NAT");
}

/// The journal has freed a segment of data without a checkpoint, and fsync goes on in it: the checkpoint knows nothing of nodes there.
#[test]
fn rescue_follows_fsync_into_a_segment_that_was_cleaned() {
    let device = volume(1 << 20);
    let fs = open(&device, OpenOptions { sections_per_commit: Some(1), ..eager() });
    let mut files = Files::fill(&fs);
    let mut rng = Rng::new(3);
    let (mut before, mut examined) = (fs.statistics(), 0);
    for _ in 0..600 {
        files.overwrite(&fs, &mut rng, 10, true);
        let done = fs.statistics().since(&before);
        if done.checkpoints.total() > 0 {
            before = fs.statistics();
        } else if done.cleaning.total().journal_commits >= 2 && is_elsewhere(&device) {
            let image = Arc::new(device.snapshot());
            rescue(&image).expect(&files, "fsynced in a segment that was cleaned");
            examined += 1;
            if examined == 40 {
                return;
            }
        }
    }
    panic!("{examined} volumes");
}

/// Whether nodes of the newest version begin a segment that the checkpoint has for data.
fn is_elsewhere(device: &MemoryDevice) -> bool {
    let geometry = guard::read(device).unwrap().geometry;
    let (pack, _) = choose_pack(device, &geometry).unwrap();
    let version = pack.raw.node_version(pack.checksum).to_le_bytes();
    let mut bytes = [0; BLOCK as usize];
    (0..geometry.main_segments).filter(|segment| *segment != pack.raw.cur_node_segno[1].get()).any(|segment| {
        let first = u64::from(geometry.main) + u64::from(segment) * 512;
        device.read_at(first * BLOCK, &mut bytes).is_ok() && bytes[4084..4092] == version
    })
}

#[test]
fn rescue_uses_what_is_left_of_a_journal() {
    let (device, files) = left_alive_behind(false);
    spoil_old_places(&device);
    let before = files.wrong(&rescue(&device).fs);
    let lost = lose_first_block(&device);
    let rescued = rescue(&device);
    assert!(rescued.notes.iter().any(|note| note.contains("what else the journal says")), "{:?}", rescued.notes);
    let wrong = files.wrong(&rescued.fs);
    assert!(before == 0 && (1..=lost).contains(&wrong), "{wrong} blocks are wrong, and {lost} moves were lost");
}

/// Writes over the first block of a live journal; how many moves were in it.
fn lose_first_block(device: &MemoryDevice) -> usize {
    let mut block = vec![0; BLOCK as usize];
    let at = u64::from(journal_of(device).first) * BLOCK;
    device.read_at(at, &mut block).unwrap();
    device.write_at(at, &[0x5A; BLOCK as usize]).unwrap();
    RawJournalHeader::read_from_prefix(&block).unwrap().0.count.get() as usize
}

/// Writes over every place that a block was moved away from, and none was moved to: they are free.
fn spoil_old_places(device: &MemoryDevice) {
    let (geometry, area) = (guard::read(device).unwrap().geometry, journal_of(device));
    // Its version, and the checksum of the checkpoint above it.
    let mut block = vec![0; BLOCK as usize];
    device.read_at(u64::from(area.first) * BLOCK, &mut block).unwrap();
    let version = RawJournalHeader::read_from_prefix(&block).unwrap().0.checkpoint_version.get();
    let moves = area.read_moves(device, &geometry, version).unwrap().moves;
    let places: BTreeSet<u32> = moves.iter().map(|one| one.new.get()).collect();
    let free: Vec<u32> = moves.iter().map(|one| one.old.get()).filter(|old| !places.contains(old)).collect();
    assert!(free.len() > 500, "{} blocks were moved", free.len());
    free.iter().for_each(|&at| device.write_at(u64::from(at) * BLOCK, &[0x5A; BLOCK as usize]).unwrap());
}

struct Found {
    fs: Rescued,
    notes: Vec<String>,
}

fn rescue(device: &Arc<MemoryDevice>) -> Found {
    let fs = Rescued::open(device.clone(), &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
    let notes = fs.report().notes.clone();
    Found { fs, notes }
}

impl Found {
    fn expect(&self, files: &Files, context: &str) {
        assert!(self.notes.iter().any(|note| note.contains("journal is live")), "{context}: {:?}", self.notes);
        assert_eq!(files.wrong(&self.fs), 0, "{context}: {:?}", self.notes);
    }
}

#[test]
fn a_journal_of_another_version_is_left_alone_and_said_so() {
    let device = volume(256 << 10);
    let at = u64::from(DESCRIPTOR_BLOCK) * BLOCK + std::mem::offset_of!(RawDescriptor, version) as u64;
    device.write_at(at, &9u32.to_le_bytes()).unwrap();
    let fs = open(&device, eager());
    assert!(fs.warnings().iter().any(|warning| warning.contains("journal of version 9")), "{:?}", fs.warnings());
    let mut files = Files::fill(&fs);
    files.overwrite(&fs, &mut Rng::new(6), 4_000, true);
    assert_eq!(fs.statistics().cleaning.total().journal_commits, 0);
    assert!(fs.statistics().cleaning.total().checkpoints > 0);
    fs.close().unwrap();
    let mut version = [0; 4];
    device.read_at(at, &mut version).unwrap();
    assert_eq!(version, 9u32.to_le_bytes());
}

#[test]
fn a_journal_can_be_had_where_there_is_room() {
    let device = volume(0);
    let (geometry, _) = Geometry::read(&*device).unwrap();
    assert_eq!(Area::find(&*device, &geometry).unwrap(), None);
    let most = Area::capacity(&geometry);
    assert!(Area::write(&*device, &geometry, most + 1).is_err());
    Area::write(&*device, &geometry, most).unwrap();
    assert_eq!(Area::find(&*device, &geometry).unwrap().unwrap().blocks, most);
    let fs = open(&device, eager());
    let mut files = Files::fill(&fs);
    files.overwrite(&fs, &mut Rng::new(5), 4_000, true);
    assert!(fs.statistics().cleaning.total().journal_commits > 0);
    fs.close().unwrap();
    Area::write(&*device, &geometry, 0).unwrap();
    assert_eq!(Area::find(&*device, &geometry).unwrap(), None);
    expect_clean(&device, "the journal was removed");
    files.expect(&open(&device, OpenOptions::default()), "the journal was removed");
}
