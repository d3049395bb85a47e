//! fsync by deltas, through the public door: what it writes, what it leaves to nodes, and what is there after a power cut.

mod cuts;
mod hostile;
mod told;

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::node::RawNode;
use basalt_f2fs::layout::seal::Seal;
use basalt_f2fs::layout::superblock::{DELTA_GUARD, JOURNAL_GUARD, RawSuperblock, SUPERBLOCK_OFFSET};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Deltas, F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, SetAttributes};
use zerocopy::FromBytes;

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
/// Pages of a file: in its inode and behind, up to its second direct node.
const PAGES: u64 = 2_100;

fn options(delta: Deltas) -> OpenOptions {
    OpenOptions { delta, ..OpenOptions::default() }
}

fn open(device: &Arc<MemoryDevice>, options: OpenOptions) -> F2fs {
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

/// A volume with a journal of so many bytes.
fn volume(journal_bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(96 << 20, 512));
    let options = FormatOptions { journal_bytes, discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| {}).unwrap();
    device
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

/// A volume with a file of many pages that a checkpoint has.
fn with_file(delta: Deltas) -> (Arc<MemoryDevice>, F2fs, InodeNumber) {
    let device = volume(256 << 10);
    let fs = open(&device, options(delta));
    let ino = create(&fs, "file");
    fs.write(ino, 0, &vec![1; (PAGES * BLOCK) as usize], false).unwrap();
    fs.sync().unwrap();
    (device, fs, ino)
}

fn write_page(fs: &F2fs, ino: InodeNumber, page: u64, value: u8) {
    fs.write(ino, page * BLOCK, &[value; BLOCK as usize], false).unwrap();
}

/// The blocks of data and of nodes that something writes.
fn written(fs: &F2fs, work: impl FnOnce()) -> (u64, u64) {
    let before = fs.statistics();
    work();
    let done = fs.statistics().since(&before);
    assert_eq!(done.checkpoints.total(), 0);
    (done.written.data_blocks, done.written.node_blocks)
}

/// The kind of guard that stands, by both copies of the superblock.
fn guard_value(device: &MemoryDevice) -> u32 {
    let mut bytes = vec![0; 2 * BLOCK as usize];
    device.read_at(0, &mut bytes).unwrap();
    let [first, second] = [0, 1].map(|copy| {
        let (superblock, _) =
            RawSuperblock::read_from_prefix(&bytes[copy * BLOCK as usize + SUPERBLOCK_OFFSET..]).unwrap();
        superblock.log_sectors_per_block.get() & !0xFF
    });
    assert_eq!(first, second);
    first
}

fn contents(fs: &dyn FileSystem, ino: InodeNumber) -> Vec<u8> {
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
    fs.read(ino, 0, &mut bytes).unwrap();
    bytes
}

/// What is there after a power cut that lost nothing, with a mount, a mount that reads only, a rescue and a repair.
fn expect_after_cut(device: &MemoryDevice, ino: InodeNumber, expected: &[u8], context: &str) {
    let same = |found: Vec<u8>, who: &str| {
        let wrong =
            found.chunks(BLOCK as usize).zip(expected.chunks(BLOCK as usize)).position(|(one, other)| one != other);
        assert_eq!((found.len(), wrong), (expected.len(), None), "{context}, {who}: size, and the first wrong page");
    };
    for read_only in [true, false] {
        let left = Arc::new(device.snapshot());
        let fs = open(&left, OpenOptions { read_only, ..options(Deltas::Off) });
        assert_eq!(fs.is_writable(), !read_only, "{context}: {:?}", fs.warnings());
        same(contents(&fs, ino), if read_only { "read-only" } else { "mounted" });
        fs.close().unwrap();
        if !read_only {
            assert_eq!(guard_value(&left), 0, "{context}");
            let report = check(&*left, &CheckOptions::default(), &mut |_| {}).unwrap();
            assert!(report.is_clean(), "{context}: {:?}", report.faults);
            same(contents(&open(&left, OpenOptions::default()), ino), "mounted again");
        }
    }
    same(contents(&rescue(device).unwrap(), ino), "rescued");
    let repaired = Arc::new(device.snapshot());
    assert!(plan(repaired.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap().clean);
    same(contents(&open(&repaired, OpenOptions::default()), ino), "repaired");
}

/// What a mount finds after a power cut that lost nothing: everything of a file but its bytes.
fn expect_said(device: &MemoryDevice, fs: &F2fs, ino: InodeNumber, context: &str) {
    let said = |fs: &F2fs| {
        let of = fs.attributes(ino).unwrap();
        let xattrs = [&b"user.a"[..], b"user.b"].map(|name| fs.get_xattr(ino, name).ok());
        (fs.is_writable(), of.size, of.sectors, of.mtime, of.ctime, of.permissions, xattrs)
    };
    let left = open(&Arc::new(device.snapshot()), options(Deltas::Off));
    assert_eq!(said(&left), said(fs), "{context}");
}

#[test]
fn one_page_costs_two_blocks_and_as_many_as_fit_one_more_than_they_are() {
    let (_, fs, ino) = with_file(Deltas::On);
    for pages in [1, 16, 256] {
        let count = written(&fs, || {
            (0..pages).for_each(|page| write_page(&fs, ino, page * 8 % PAGES, 2));
            fs.sync_file(ino, true).unwrap();
        });
        assert_eq!(count, (pages, 1), "{pages} pages");
    }
    // Nothing changed but times, and then nothing at all.
    write_page(&fs, ino, 5, 3);
    fs.sync_file(ino, true).unwrap();
    assert_eq!(written(&fs, || fs.sync_file(ino, true).unwrap()), (0, 0));
    assert_eq!(written(&fs, || fs.sync_file(ino, false).unwrap()), (0, 0));
    // More than a seal lists and tells: the few nodes of this file, with one flush. More than one tells at all: the direct node, and the rest by a
    // delta.
    for (pages, nodes) in [(332, 1), (333, 3), (600, 2)] {
        let count = written(&fs, || {
            (0..pages).for_each(|page| write_page(&fs, ino, page * 3, 4));
            fs.sync_file(ino, true).unwrap();
        });
        assert_eq!(count, (pages, nodes), "{pages} pages");
    }
}

#[test]
fn without_the_guard_nodes_are_written_and_with_it_none() {
    for (delta, guarded, nodes) in [(Deltas::Off, 0, 3), (Deltas::Auto, 0, 3), (Deltas::On, DELTA_GUARD, 1)] {
        let (device, fs, ino) = with_file(delta);
        assert_eq!(guard_value(&device), 0, "{delta:?}");
        let count = written(&fs, || {
            write_page(&fs, ino, 1_000, 2);
            fs.sync_file(ino, false).unwrap();
        });
        assert_eq!((count, guard_value(&device)), ((1, nodes), guarded), "{delta:?}");
        fs.close().unwrap();
        assert_eq!(guard_value(&device), 0, "{delta:?}");
    }
    // Without a journal there is nothing to keep others off with.
    let device = volume(0);
    let fs = open(&device, options(Deltas::On));
    assert!(
        fs.warnings().iter().any(|warning| warning.contains("delta=on: no cleaning journal")),
        "{:?}",
        fs.warnings()
    );
    let ino = create(&fs, "file");
    fs.write(ino, 0, &[1; 3 * BLOCK as usize], false).unwrap();
    fs.sync().unwrap();
    write_page(&fs, ino, 1, 2);
    fs.sync_file(ino, false).unwrap();
    assert_eq!(guard_value(&device), 0);
    expect_after_cut(
        &device,
        ino,
        &[[1; BLOCK as usize], [2; BLOCK as usize], [1; BLOCK as usize]].concat(),
        "no journal",
    );
}

/// A live journal without deltas has the guard that older versions know.
#[test]
fn the_guard_says_whether_there_may_be_deltas() {
    for (delta, expected) in [(Deltas::Off, JOURNAL_GUARD), (Deltas::Auto, DELTA_GUARD)] {
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        let how =
            FormatOptions { journal_bytes: 256 << 10, overprovision_percent: Some(40.0), ..FormatOptions::default() };
        format(&*device, &how, &mut |_, _| {}).unwrap();
        let fs = open(&device, OpenOptions { pre_invalid_bytes: Some(1 << 30), ..options(delta) });
        let ino = create(&fs, "file");
        let pages = fs.stat_fs().unwrap().available * 85 / 100;
        fs.write(ino, 0, &vec![1; (pages * BLOCK) as usize], false).unwrap();
        fs.sync().unwrap();
        let mut rng = Rng::new(7);
        while guard_value(&device) == 0 {
            (0..100).for_each(|_| write_page(&fs, ino, rng.below(pages), 2));
            fs.sync_file(ino, false).unwrap();
        }
        assert_eq!(guard_value(&device), expected, "{delta:?}");
        let nodes = written_nodes_of_an_fsync(&fs, ino);
        assert_eq!(nodes, if delta == Deltas::Off { 3 } else { 1 }, "{delta:?}");
    }
}

/// Nodes and seals of an fsync of one page.
fn written_nodes_of_an_fsync(fs: &F2fs, ino: InodeNumber) -> u64 {
    fs.sync_file(ino, false).unwrap();
    let before = fs.statistics();
    write_page(fs, ino, 1_000, 3);
    fs.sync_file(ino, false).unwrap();
    fs.statistics().since(&before).written.node_blocks
}

fn rescue(device: &MemoryDevice) -> Result<Rescued, basalt_f2fs::Error> {
    Rescued::open(Arc::new(device.snapshot()), &RescueOptions::default(), Arc::new(SystemClock), &mut |_| {})
}

/// Every change that a delta may tell or not, at random, an fsync behind each: what is there after a cut is what the fsync found.
#[test]
fn what_was_fsynced_is_there_after_a_cut_whoever_looks() {
    let seed = std::env::var("BASALT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in seed..seed + 4 {
        let mut rng = Rng::new(seed);
        let (device, fs, ino) = with_file(Deltas::On);
        for round in 0..40 {
            change(&fs, ino, &mut rng, round);
            fs.sync_file(ino, rng.chance(30)).unwrap();
            if round % 8 == 7 {
                let context = format!("BASALT_SEED={seed} round {round}");
                expect_after_cut(&device, ino, &contents(&fs, ino), &context);
                expect_said(&device, &fs, ino, &context);
            }
            if rng.chance(5) {
                fs.sync().unwrap();
            }
        }
    }
}

fn change(fs: &F2fs, ino: InodeNumber, rng: &mut Rng, round: u8) {
    let first = [0, 880, 1_930][rng.index(3)] + rng.below(60);
    let length = BLOCK * rng.between(1, 30);
    match rng.below(13) {
        0..5 => (0..rng.between(1, 40)).for_each(|_| write_page(fs, ino, rng.below(PAGES), round)),
        5 => fs.write(ino, first * BLOCK + 77, &vec![round; length as usize], false).map(|_| ()).unwrap(),
        6 => {
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            fs.fallocate(ino, mode, first * BLOCK, length).unwrap();
        }
        7 => fs.fallocate(ino, FallocateMode::empty(), first * BLOCK, length).unwrap(),
        // Within the last node.
        8 => {
            let size = BLOCK * (1_950 + rng.below(200)) + rng.below(BLOCK);
            fs.set_attributes(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() })
                .map(|_| ())
                .unwrap();
        }
        9 => fs.write(ino, PAGES * BLOCK, &vec![round; length as usize], false).map(|_| ()).unwrap(),
        10 => {
            let mode = SetAttributes { permissions: Some(0o600 + u32::from(round)), ..SetAttributes::default() };
            fs.set_attributes(ino, &mode).map(|_| ()).unwrap();
        }
        // Behind the last node there is, and the first indirect one.
        11 => fs.write(ino, (2_950 + rng.below(20)) * BLOCK, &vec![round; length as usize], false).map(|_| ()).unwrap(),
        // A node with more than one delta tells.
        _ => fs.write(ino, 900 * BLOCK, &vec![round; 900 * BLOCK as usize], false).map(|_| ()).unwrap(),
    }
}

fn set_size(fs: &F2fs, ino: InodeNumber, pages: u64) {
    fs.set_attributes(ino, &SetAttributes { size: Some(pages * BLOCK), ..SetAttributes::default() })
        .map(|_| ())
        .unwrap();
}

fn set_mode(fs: &F2fs, ino: InodeNumber, permissions: u32) {
    fs.set_attributes(ino, &SetAttributes { permissions: Some(permissions), ..SetAttributes::default() })
        .map(|_| ())
        .unwrap();
}

/// A node that the checkpoint does not have comes, goes with what was told of it, and comes again: told, or in full at last.
#[test]
fn what_a_new_node_held_does_not_come_back() {
    for in_full in [false, true] {
        let (device, fs, ino) = with_file(Deltas::On);
        write_page(&fs, ino, 3_000, 9);
        fs.sync_file(ino, false).unwrap();
        expect_after_cut(&device, ino, &contents(&fs, ino), "a new node");
        set_size(&fs, ino, PAGES);
        fs.sync_file(ino, false).unwrap();
        set_size(&fs, ino, 3_100);
        if in_full {
            write_page(&fs, ino, 3_001, 10);
            set_mode(&fs, ino, 0o600);
        }
        fs.sync_file(ino, false).unwrap();
        expect_after_cut(&device, ino, &contents(&fs, ino), if in_full { "written in full" } else { "told" });
    }
}

/// Nodes that deltas have told wait, also where the file's inode is written.
#[test]
fn an_fsync_in_full_leaves_out_what_deltas_have_told() {
    let (device, fs, ino) = with_file(Deltas::On);
    for page in [5, 1_000, 2_000] {
        write_page(&fs, ino, page, 2);
        fs.sync_file(ino, false).unwrap();
    }
    set_mode(&fs, ino, 0o600);
    write_page(&fs, ino, 1_001, 3);
    // A seal, the node of the page, and the inode.
    assert_eq!(written(&fs, || fs.sync_file(ino, false).unwrap()), (1, 3));
    expect_after_cut(&device, ino, &contents(&fs, ino), "in full");
}

/// A block that a delta lists goes bad behind a flush: a repair gives up that page, and nothing of the fsync behind, whose nodes stand in
/// front of its seal.
#[test]
fn repair_recovers_what_was_fsynced_behind_a_damaged_delta() {
    let (device, fs, ino) = with_file(Deltas::On);
    let other = create(&fs, "other");
    fs.write(other, 0, &vec![1; (PAGES * BLOCK) as usize], false).unwrap();
    fs.sync().unwrap();
    [1_000, 1_001, 1_002].into_iter().for_each(|page| write_page(&fs, ino, page, 2));
    fs.sync_file(ino, false).unwrap();
    let (_, seal, _) = last_delta(&device);
    set_mode(&fs, other, 0o600);
    (0..700).for_each(|page| write_page(&fs, other, page * 3, 5));
    fs.sync_file(other, false).unwrap();
    write_page(&fs, other, 7, 6);
    fs.sync_file(other, false).unwrap();
    let expected = contents(&fs, other);
    let hurt = Arc::new(device.snapshot());
    hurt.write_at(u64::from(seal.entries[0].address) * BLOCK, &[0x55; BLOCK as usize]).unwrap();
    let shown = open(&hurt, OpenOptions { read_only: true, ..options(Deltas::Off) });
    assert!(shown.warnings().iter().any(|warning| warning.contains("`basalt rescue` finds")), "{:?}", shown.warnings());
    drop(shown);
    assert!(plan(hurt.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap().clean);
    let fs = open(&hurt, OpenOptions::default());
    assert!(contents(&fs, other) == expected, "the other file");
    let found = contents(&fs, ino);
    assert_eq!([1_001, 1_002].map(|page| found[page * BLOCK as usize]), [2, 2], "what the damaged one told besides");
    assert_eq!(fs.attributes(other).unwrap().permissions, 0o600);
}

/// Without a checkpoint, the seals of the newest chain tell: also where nodes of the file are in it, and of which version they are.
#[test]
fn rescue_without_a_checkpoint_goes_by_the_seals() {
    let (device, fs, ino) = with_file(Deltas::On);
    let mut rng = Rng::new(5);
    for round in 0..60 {
        match rng.below(10) {
            0 => set_mode(&fs, ino, 0o600 + u32::from(round)),
            1 => (0..600).for_each(|page| write_page(&fs, ino, page * 3, round)),
            2 => fs.sync().unwrap(),
            3 => set_size(&fs, ino, PAGES - rng.below(100)),
            _ => {}
        }
        (0..rng.between(1, 9)).for_each(|_| write_page(&fs, ino, rng.below(PAGES - 100), round));
        fs.sync_file(ino, false).unwrap();
        if round % 6 != 5 {
            continue;
        }
        let expected = contents(&fs, ino);
        let lost = device.snapshot();
        lost.write_at(512 * BLOCK, &vec![0; 1024 * BLOCK as usize]).unwrap();
        for (what, nodes_only) in [("by nodes only", true), ("without checkpoints", false)] {
            let options = RescueOptions { nodes_only, ..RescueOptions::default() };
            let from = Arc::new(if nodes_only { device.snapshot() } else { lost.snapshot() });
            let rescued = Rescued::open(from, &options, Arc::new(SystemClock), &mut |_| {}).unwrap();
            let found = contents(&rescued, ino);
            let wrong = found.chunks(4096).zip(expected.chunks(4096)).filter(|(one, other)| one != other).count();
            assert_eq!((found.len(), wrong), (expected.len(), 0), "round {round}, {what}: size and wrong pages");
        }
    }
}

/// The last seal with a delta on a device, and its address.
fn last_delta(device: &MemoryDevice) -> (u64, Seal, RawNode) {
    let mut found = None;
    let mut bytes = vec![0; BLOCK as usize];
    for at in (0..device.size()).step_by(BLOCK as usize) {
        device.read_at(at, &mut bytes).unwrap();
        let seal = Seal::of_block(&bytes).filter(|seal| seal.delta.is_some());
        let position = |seal: &Seal| seal.position;
        if let Some(seal) =
            seal.filter(|seal| found.as_ref().is_none_or(|(_, best, _)| position(best) < position(seal)))
        {
            found = Some((at, seal, RawNode::read_from_bytes(&bytes).unwrap()));
        }
    }
    found.expect("a seal with a delta")
}
