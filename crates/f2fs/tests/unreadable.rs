//! One block that cannot be read: what a mount makes of it.
//!
//! Each block that opening reads, and each of the metadata, fails in turn; a write heals it, as it does on real devices. The volume opens.
//! It may be written if nothing that was promised can be missing; if not, a warning says why.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, Request, RequestKind};
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::pack::read_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::inside::marked_inode;
use basalt_f2fs::layout::journal::DESCRIPTOR_BLOCK;
use basalt_f2fs::layout::{Address, BLOCK_SIZE};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Error, F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const BLOCK: u64 = BLOCK_SIZE as u64;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
static KEPT: [u8; 50_000] = [0x77; 50_000];
/// Bytes of the file that is fsynced again and again.
const SYNCED: usize = 5 * BLOCK_SIZE;
const ROUNDS: u8 = 4;

fn options() -> OpenOptions {
    OpenOptions { background_cleaning: false, ..OpenOptions::default() }
}

fn open(device: Arc<dyn BlockDevice>) -> Result<F2fs, Error> {
    F2fs::open(device, options(), Arc::new(SystemClock))
}

fn volume(journal: bool) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(96 << 20, 512));
    let journal_bytes = if journal { 256 << 10 } else { 0 };
    let options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    device
}

fn make(fs: &F2fs, name: &str, content: &[u8]) -> u64 {
    let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
    fs.write(ino, 0, content, false).unwrap();
    ino
}

fn read(fs: &F2fs, name: &str) -> basalt_vfs::Result<Vec<u8>> {
    let ino = fs.lookup(fs.root(), name.as_bytes())?.ino;
    let mut bytes = vec![0; fs.attributes(ino)?.size as usize];
    let length = fs.read(ino, 0, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Blocks in which two devices differ.
fn changed(before: &MemoryDevice, after: &MemoryDevice) -> BTreeSet<u64> {
    let (mut old, mut new) = (vec![0; BLOCK_SIZE], vec![0; BLOCK_SIZE]);
    let differ = |block: &u64| {
        before.read_at(block * BLOCK, &mut old).unwrap();
        after.read_at(block * BLOCK, &mut new).unwrap();
        old != new
    };
    (0..before.size() / BLOCK).filter(differ).collect()
}

fn hits(request: &Request, block: u64) -> bool {
    request.offset < (block + 1) * BLOCK && request.end() > block * BLOCK
}

/// The image with a block that cannot be read until all of it is written.
fn with_bad_block(image: &MemoryDevice, block: u64) -> Arc<FaultyDevice<MemoryDevice>> {
    let device = Arc::new(FaultyDevice::new(image.snapshot()));
    let healed = AtomicBool::new(false);
    device.fail_when(move |request| {
        let covers = request.offset <= block * BLOCK && request.end() >= (block + 1) * BLOCK;
        match request.kind {
            RequestKind::Write if covers => {
                healed.store(true, Ordering::Relaxed);
                None
            }
            // Part of a block that cannot be read cannot be written.
            RequestKind::Read | RequestKind::Write if hits(request, block) && !healed.load(Ordering::Relaxed) => {
                Some(ErrorKind::Other)
            }
            _ => None,
        }
    });
    device
}

/// The blocks that opening reads.
fn read_by_open(image: &MemoryDevice) -> BTreeSet<u64> {
    let seen: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
    let device = Arc::new(FaultyDevice::new(image.snapshot()));
    let noted = seen.clone();
    device.fail_when(move |request| {
        if request.kind == RequestKind::Read {
            noted.lock().unwrap().extend(request.offset / BLOCK..request.end().div_ceil(BLOCK));
        }
        None
    });
    drop(open(device).unwrap());
    Arc::into_inner(seen).map_or_else(BTreeSet::new, |seen| seen.into_inner().unwrap())
}

/// A volume with a checkpoint, a chain of fsyncs behind it, and the power gone.
struct Cut {
    image: MemoryDevice,
    geometry: Geometry,
    /// What the last fsync wrote, and what those before it did.
    last: BTreeSet<u64>,
    earlier: BTreeSet<u64>,
}

fn cut(journal: bool) -> Cut {
    let device = volume(journal);
    let fs = open(device.clone()).unwrap();
    make(&fs, "kept", &KEPT);
    let ino = make(&fs, "synced", b"");
    fs.sync().unwrap();
    let mut snapshots = vec![device.snapshot()];
    for round in 1..=ROUNDS {
        fs.write(ino, 0, &[round; SYNCED], false).unwrap();
        fs.sync_file(ino, false).unwrap();
        snapshots.push(device.snapshot());
    }
    let image = device.snapshot();
    drop(fs);
    let last = changed(&snapshots[ROUNDS as usize - 1], &image);
    let earlier = &changed(&snapshots[0], &image) - &last;
    let geometry = Geometry::read(&image).unwrap().0;
    Cut { image, geometry, last, earlier }
}

/// What a mount with this block unreadable comes to.
fn judge(cut: &Cut, block: u64, what: &str) {
    let device = with_bad_block(&cut.image, block);
    let what = format!("{what}: block {block}");
    let fs = match open(device.clone()) {
        Ok(fs) => fs,
        Err(error) => {
            // Without the root directory there is nothing to show; without the newest entries of the NAT, files would be missing.
            let nat = u64::from(cut.geometry.nat)..u64::from(cut.geometry.ssa);
            let (pack, _) = choose_pack(&cut.image, &cut.geometry).unwrap();
            let summaries = u64::from(pack.start + pack.raw.cp_pack_start_sum.get());
            let is_needed = nat.contains(&block) || block == summaries || block >= u64::from(cut.geometry.main);
            assert!(is_needed, "{what}: {error}");
            let found = Rescued::open(device, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
            assert!(found.report().inodes >= 2, "{what}: {:?}", found.report());
            return;
        }
    };
    let warnings = fs.warnings();
    let synced = read(&fs, "synced");
    let round = synced.as_ref().ok().and_then(|bytes| bytes.first().copied()).unwrap_or_default();
    if let Ok(bytes) = &synced {
        assert!(bytes.iter().all(|byte| *byte == round), "{what}: mixed");
    }
    if !fs.is_writable() {
        assert!(warnings.iter().any(|warning| warning.contains("read-only")), "{what}: {warnings:?}");
        match read(&fs, "kept") {
            Ok(bytes) => assert_eq!(bytes, KEPT, "{what}"),
            Err(error) => {
                let lies_there = matches!(error, basalt_vfs::Error::Io(_)) && block >= u64::from(cut.geometry.nat);
                assert!(lies_there, "{what}: {error} {warnings:?}");
            }
        }
        return;
    }
    // A page torn by the cut looks the same: then the fsync had not returned, and the one before it counts.
    let least = if cut.last.contains(&block) { ROUNDS - 1 } else { ROUNDS };
    let is_content = |bytes: &basalt_vfs::Result<Vec<u8>>| {
        let lies_there = matches!(bytes, Err(basalt_vfs::Error::Io(_))) && block >= u64::from(cut.geometry.nat);
        lies_there || bytes.is_ok()
    };
    assert!(
        is_content(&synced) && (synced.is_err() || round >= least),
        "{what}: round {round}, {synced:?} {warnings:?}"
    );
    match read(&fs, "kept") {
        Ok(bytes) => assert_eq!(bytes, KEPT, "{what}"),
        error => assert!(is_content(&error), "{what}: {error:?}"),
    }
    // And it works. A new file needs an entry of the NAT.
    let created = fs.create(fs.root(), b"after", &FILE, &Caller::default());
    let ino = match created {
        Err(basalt_vfs::Error::Io(_)) if (cut.geometry.nat..cut.geometry.ssa).contains(&Address::new(block as u32)) => {
            return;
        }
        created => created.unwrap_or_else(|error| panic!("{what}: {error}")).ino,
    };
    fs.write(ino, 0, &[9; 30_000], false).unwrap();
    fs.sync_file(ino, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(fs);
    let report = check(device.inner(), &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.faults);
    assert_eq!(read(&open(device).unwrap(), "after").unwrap(), [9; 30_000], "{what}");
}

fn is_writable_with(image: &MemoryDevice, block: u64) -> bool {
    open(with_bad_block(image, block)).is_ok_and(|fs| fs.is_writable())
}

#[test]
fn every_block_that_opening_reads_may_be_bad() {
    for journal in [false, true] {
        let cut = cut(journal);
        let blocks = read_by_open(&cut.image);
        assert!(blocks.len() > 80, "{}", blocks.len());
        for block in blocks {
            judge(&cut, block, &format!("journal {journal}"));
        }
    }
}

#[test]
fn every_block_of_the_metadata_may_be_bad() {
    let cut = cut(true);
    let packs = [0, 512].into_iter().flat_map(|pack: u64| (0..16).map(move |block| pack + block));
    let start = u64::from(cut.geometry.checkpoint);
    let front = 0..u64::from(DESCRIPTOR_BLOCK) + 4;
    // The first blocks of each table in both copies: those in use, and some that are not.
    let tables = [
        cut.geometry.sit,
        cut.geometry.sit + cut.geometry.sit_blocks,
        cut.geometry.nat,
        cut.geometry.nat + 512,
        cut.geometry.ssa,
    ];
    let tables = tables.into_iter().flat_map(|first| u64::from(first)..u64::from(first) + 4);
    for block in front.chain(packs.map(|block| start + block)).chain(tables) {
        judge(&cut, block, "metadata");
    }
}

#[test]
fn nothing_but_what_could_be_missed_makes_a_volume_read_only() {
    for journal in [false, true] {
        let cut = cut(journal);
        let (pack, _) = choose_pack(&cut.image, &cut.geometry).unwrap();
        let newest = u64::from(pack.start);
        let older = u64::from(2 * cut.geometry.checkpoint.get() + 512) - newest;
        let tail = newest + u64::from(pack.raw.cp_pack_total_block_count.get()) - 1;
        let harmless = [0, 1, u64::from(DESCRIPTOR_BLOCK), newest, tail, older, older + 1, older + 2];
        for block in harmless.into_iter().chain(cut.last.iter().copied()) {
            assert!(is_writable_with(&cut.image, block), "journal {journal}: block {block}");
        }
        // Behind the chain's end, nothing was promised.
        let end = cut.last.iter().max().copied().unwrap();
        assert!((end + 1..end + 64).all(|block| is_writable_with(&cut.image, block)));
        // What a later fsync vouches for was promised to be there: seals and nodes lead on, data is what they list.
        let refused = cut.earlier.iter().filter(|&&block| !is_writable_with(&cut.image, block)).count();
        assert_eq!(refused, cut.earlier.len(), "{:?}", cut.earlier);
    }
}

/// A superblock that cannot be read is written anew; where that fails, the volume serves all the same, without a journal.
#[test]
fn a_bad_superblock_is_written_anew_or_done_without() {
    for copy in 0..2 {
        for heals in [true, false] {
            let cut = cut(true);
            let device = Arc::new(FaultyDevice::new(cut.image.snapshot()));
            let healed = AtomicBool::new(false);
            device.fail_when(move |request| match request.kind {
                RequestKind::Write if hits(request, copy) => {
                    healed.store(heals, Ordering::Relaxed);
                    (!heals).then_some(ErrorKind::Other)
                }
                RequestKind::Read if hits(request, copy) && !healed.load(Ordering::Relaxed) => Some(ErrorKind::Other),
                _ => None,
            });
            let fs = open(device.clone()).unwrap();
            let warnings = fs.warnings().join("\n");
            assert!(fs.is_writable() && warnings.contains("cannot be read"), "{warnings}");
            assert_eq!(warnings.contains("written anew"), heals, "{warnings}");
            assert_eq!(read(&fs, "synced").unwrap(), [ROUNDS; SYNCED]);
            make(&fs, "more", &KEPT);
            fs.sync().unwrap();
            fs.close().unwrap();
            device.heal();
            let report = check(device.inner(), &CheckOptions::default(), &mut |_| ()).unwrap();
            assert!(report.is_clean(), "copy {copy}: {:?}", report.faults);
        }
    }
}

/// A check finds a superblock or an end of a checkpoint that cannot be read, and a repair writes it anew.
#[test]
fn what_has_a_copy_is_found_and_repaired() {
    let device = volume(true);
    let fs = open(device.clone()).unwrap();
    make(&fs, "kept", &KEPT);
    fs.close().unwrap();
    drop(fs);
    let geometry = Geometry::read(&device).unwrap().0;
    let (pack, _) = choose_pack(&device, &geometry).unwrap();
    let head = u64::from(pack.start);
    for (block, kind) in
        [(0, FaultKind::SuperblockUnreadable), (1, FaultKind::SuperblockUnreadable), (head, FaultKind::CheckpointEnd)]
    {
        let faulty = with_bad_block(&device.snapshot(), block);
        let report = check(&*faulty, &CheckOptions::default(), &mut |_| ()).unwrap();
        let kinds: Vec<FaultKind> = report.faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds, [kind], "block {block}");
        assert_eq!(report.counts.files, 1);
        let shared: Arc<dyn BlockDevice> = faulty.clone();
        let report = plan(shared, &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert!(report.clean, "block {block}: {report:?}");
        let report = check(&*faulty, &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.faults.is_empty(), "block {block}: {:?}", report.faults);
        assert_eq!(read(&open(faulty).unwrap(), "kept").unwrap(), KEPT);
    }
}

/// A read that fails once, and not again: nothing that was synced may be missing where the volume can be written.
#[test]
fn a_read_that_fails_once_loses_nothing() {
    for journal in [false, true] {
        let cut = cut(journal);
        for nth in 1..200 {
            let device = Arc::new(FaultyDevice::new(cut.image.snapshot()));
            device.fail_nth(RequestKind::Read, nth, ErrorKind::Other);
            let opened = open(device.clone());
            if device.injected() == 0 {
                assert!(nth > 10, "only {nth} reads");
                break;
            }
            let what = format!("journal {journal}, read {nth}");
            let fs = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(read(&fs, "kept").unwrap(), KEPT, "{what}");
            let synced = read(&fs, "synced").unwrap();
            let is_all = synced == [ROUNDS; SYNCED];
            assert!(is_all || !fs.is_writable(), "{what}: {:?}, {:?}", synced.first(), fs.warnings());
        }
    }
}

/// The same where the block behind the last fsync cannot be read at all, as a page that was being written when the power went: a block of
/// the chain that fails once is not another such page.
#[test]
fn a_read_that_fails_once_in_front_of_a_bad_block_loses_nothing() {
    for journal in [false, true] {
        let cut = cut(journal);
        let seal = *seals(&cut.image).last().unwrap();
        let behind = (seal + 1..).find(|block| !cut.last.contains(block)).unwrap();
        for nth in 1..200 {
            let device = with_bad_block(&cut.image, behind);
            device.fail_nth(RequestKind::Read, nth, ErrorKind::Other);
            let what = format!("journal {journal}, read {nth}");
            let fs = open(device).unwrap_or_else(|error| panic!("{what}: {error}"));
            // The read that fails may be this one.
            let synced = read(&fs, "synced").or_else(|_| read(&fs, "synced")).unwrap();
            assert!(synced == [ROUNDS; SYNCED] || !fs.is_writable(), "{what}: {:?}", fs.warnings());
        }
    }
}

#[test]
fn a_read_that_fails_once_behind_a_bad_block_hides_no_fsync() {
    let cut = cut(false);
    let bad = marked(&cut.image)[usize::from(ROUNDS) - 2];
    for nth in 1..200 {
        let device = with_bad_block(&cut.image, bad);
        device.fail_nth(RequestKind::Read, nth, ErrorKind::Other);
        assert!(!open(device).unwrap().is_writable(), "read {nth}");
    }
}

/// Where the inodes with an fsync mark are, in order.
fn marked(image: &MemoryDevice) -> Vec<u64> {
    let mut bytes = [0; BLOCK as usize];
    let is_marked = |block: &u64| image.read_at(block * BLOCK, &mut bytes).is_ok() && marked_inode(&bytes).is_some();
    (0..image.size() / BLOCK).filter(is_marked).collect()
}

/// Where the seals of the fsyncs behind the checkpoint are, in order.
fn seals(image: &MemoryDevice) -> Vec<u64> {
    let mut head = [0; 4];
    let is_seal = |block: &u64| image.read_at(block * BLOCK, &mut head).is_ok() && head == *b"BSEL";
    (0..image.size() / BLOCK).filter(is_seal).collect()
}

/// Files that are fsynced one after the other, the last one fsynced before with other content.
fn fsynced_files(is_clean: bool) -> MemoryDevice {
    let device = volume(false);
    let with_seals = OpenOptions { inside_seals: false, ..options() };
    let fs = F2fs::open(device.clone(), with_seals, Arc::new(SystemClock)).unwrap();
    if !is_clean {
        make(&fs, "first", &[0; 9000]);
        fs.sync().unwrap();
    }
    for (round, name) in (1..).zip(["first", "second", "third", "fourth"]) {
        let ino = fs.lookup(fs.root(), name.as_bytes()).map_or_else(|_| make(&fs, name, b""), |found| found.ino);
        fs.write(ino, 0, &[round; 9000], false).unwrap();
        fs.sync_file(ino, false).unwrap();
    }
    device.snapshot()
}

fn expect_fsynced_files(fs: &dyn FileSystem, what: &str) {
    for (round, name) in (1..).zip(["first", "second", "third", "fourth"]) {
        let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|error| panic!("{what}: {name}: {error}")).ino;
        let mut bytes = vec![0; 10_000];
        assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), 9000, "{what}: {name}");
        assert_eq!(bytes[..9000], [round; 9000], "{what}: {name}");
    }
}

/// The mount is read-only then, and says that something is missing. Whoever goes to rescue or repair gets all of it back, also where the
/// checkpoint is that of a clean end, and the fsyncs are the first of the next session.
#[test]
fn what_was_fsynced_behind_a_bad_block_is_rescued_and_repaired() {
    for is_clean in [true, false] {
        let image = fsynced_files(is_clean);
        let seals = seals(&image);
        assert_eq!(seals.len(), 4);
        for &bad in &seals[..3] {
            let what = format!("clean {is_clean}, {bad} of {seals:?}");
            let faulty = with_bad_block(&image, bad);
            assert!(!open(faulty.clone()).unwrap().is_writable(), "{what}");
            let clock = Arc::new(SystemClock);
            let rescued = Rescued::open(faulty.clone(), &RescueOptions::default(), clock, &mut |_| ()).unwrap();
            expect_fsynced_files(&rescued, &format!("{what}: rescued"));
            let planned = plan(faulty.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
            // Not without a user: what was searched for is not all that was checked.
            assert!(planned.report().restored_nodes, "{what}: {:?}", planned.report());
            assert_eq!(planned.report().losses, [], "{what}");
            assert!(planned.commit().unwrap().clean, "{what}");
            let fs = open(faulty).unwrap();
            assert!(fs.is_writable(), "{what}: {:?}", fs.warnings());
            expect_fsynced_files(&fs, &format!("{what}: repaired"));
        }
    }
}

/// A volume with a file in both checkpoints and one in the newest, the older of which has a damaged end; and where the newest begins.
fn with_damaged_older(end: usize) -> (MemoryDevice, u64) {
    let device = volume(false);
    let fs = open(device.clone()).unwrap();
    make(&fs, "kept", &KEPT);
    fs.sync().unwrap();
    make(&fs, "later", &KEPT);
    fs.close().unwrap();
    drop(fs);
    let geometry = Geometry::read(&device).unwrap().0;
    let newest = choose_pack(&device, &geometry).unwrap().0;
    let older = read_pack(&device, &geometry, 1 - newest.index).unwrap();
    let ends = [older.start, older.start + older.raw.cp_pack_total_block_count.get() - 1];
    let damaged = u64::from(ends[end]) * BLOCK + 100;
    let mut byte = [0];
    device.read_at(damaged, &mut byte).unwrap();
    device.write_at(damaged, &[!byte[0]]).unwrap();
    (device.snapshot(), u64::from(newest.start))
}

/// A device on which the first reads of a checkpoint fail, so many.
fn failing(image: &MemoryDevice, start: u64, reads: u64) -> Arc<FaultyDevice<MemoryDevice>> {
    let device = Arc::new(FaultyDevice::new(image.snapshot()));
    let left = Mutex::new(reads);
    device.fail_when(move |request| {
        let is_in = request.kind == RequestKind::Read && (start..start + 512).any(|block| hits(request, block));
        let mut left = left.lock().unwrap();
        let fails = is_in && *left > 0;
        *left -= u64::from(fails);
        fails.then_some(ErrorKind::Other)
    });
    device
}

/// Nothing of the newest checkpoint can be read, and the older one has a damaged end: it is shown, and not written over.
#[test]
fn an_older_checkpoint_with_a_damaged_end_does_not_replace_one_that_cannot_be_read() {
    for end in 0..2 {
        let (image, newest) = with_damaged_older(end);
        let faulty = failing(&image, newest, u64::MAX);
        let geometry = Geometry::read(&image).unwrap().0;
        // Tools, which write, take neither.
        assert!(matches!(choose_pack(&*faulty, &geometry), Err(Error::Device(_))), "end {end}");
        let report = check(&*faulty, &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(
            report.faults.iter().any(|fault| fault.kind == FaultKind::CheckpointUncertain),
            "end {end}: {report:?}"
        );
        let fs = open(faulty.clone()).unwrap();
        assert!(!fs.is_writable(), "end {end}: {:?}", fs.warnings());
        assert!(fs.warnings().iter().any(|warning| warning.contains("may be the newer")), "{:?}", fs.warnings());
        assert_eq!(read(&fs, "kept").unwrap(), KEPT, "end {end}");
        drop(fs);
        faulty.heal();
        assert_eq!(read(&open(faulty).unwrap(), "later").unwrap(), KEPT, "end {end}");
    }
}

/// The newest checkpoint has a damaged first block, and after some attempts the others can be read: it counts then.
#[test]
fn a_checkpoint_that_can_be_read_in_the_end_counts() {
    let mut later = 0;
    for end in 0..2 {
        let (image, newest) = with_damaged_older(end);
        image.write_at(newest * BLOCK + 100, &[0x5a; 8]).unwrap();
        for reads in (0..8).chain([100]).chain(510..520).chain(1020..1032) {
            let fs = open(failing(&image, newest, reads)).unwrap();
            let shown = read(&fs, "later");
            assert!(shown.is_ok() || !fs.is_writable(), "end {end}, {reads} reads fail: {:?}", fs.warnings());
            later += u32::from(shown.is_ok());
        }
    }
    assert!(later > 30, "{later}");
}
