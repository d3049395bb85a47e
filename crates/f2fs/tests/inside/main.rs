//! An inode that is its own seal: the blocks of each fsync, what cannot be told that way, and what is there after a power cut.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::inode::RawInode;
use basalt_f2fs::layout::inside::{Inside, marked_inode};
use basalt_f2fs::layout::node::RawNode;
use basalt_f2fs::layout::seal::Seal;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Deltas, F2fs, Geometry, OpenOptions, SystemClock};
use basalt_testkit::images::fsck_f2fs;
use basalt_testkit::rng::Rng;
use basalt_testkit::skip::find_program;
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, SetAttributes};
use zerocopy::{FromBytes, IntoBytes};

mod damaged;
mod moved;
mod under_way;

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn volume(features: Features, journal_bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20, 512));
    let options = FormatOptions { features, journal_bytes, discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>, delta: Deltas) -> F2fs {
    let options = OpenOptions { background_cleaning: false, delta, ..OpenOptions::default() };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn write_page(fs: &F2fs, ino: InodeNumber, page: u64, value: u8) {
    fs.write(ino, page * BLOCK, &[value; BLOCK as usize], false).unwrap();
}

fn sync(fs: &F2fs, ino: InodeNumber) {
    fs.sync_file(ino, false).unwrap();
}

/// The blocks of data and of nodes, seals among them, that something writes.
fn written(fs: &F2fs, work: impl FnOnce()) -> (u64, u64) {
    let before = fs.statistics();
    work();
    let done = fs.statistics().since(&before);
    assert_eq!(done.checkpoints.total(), 0);
    (done.written.data_blocks, done.written.node_blocks)
}

/// A volume whose chain has a seal, and a file on it that the checkpoint has.
fn sealed(features: Features, journal_bytes: u64, delta: Deltas) -> (Arc<MemoryDevice>, F2fs, InodeNumber) {
    let device = volume(features, journal_bytes);
    let fs = open(&device, delta);
    let ino = create(&fs, "file");
    fs.write(ino, 0, &[1; 20 * BLOCK as usize], false).unwrap();
    fs.sync().unwrap();
    let first = create(&fs, "first");
    assert_eq!(written(&fs, || sync(&fs, first)), (0, 2), "a seal and an inode: the first fsync behind a checkpoint");
    (device, fs, ino)
}

fn usual() -> (Arc<MemoryDevice>, F2fs, InodeNumber) {
    sealed(FormatOptions::DEFAULT_FEATURES, 0, Deltas::Auto)
}

fn contents(fs: &dyn FileSystem, ino: InodeNumber) -> Vec<u8> {
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
    fs.read(ino, 0, &mut bytes).unwrap();
    bytes
}

/// What is there after a power cut that lost nothing: for a mount, for one that only reads, for a rescue; checks find nothing.
fn expect_after_cut(device: &MemoryDevice, ino: InodeNumber, expected: &[u8], what: &str) {
    let left = Arc::new(device.snapshot());
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let shown = F2fs::open(left.clone(), read_only, Arc::new(SystemClock)).unwrap();
    assert!(contents(&shown, ino) == expected, "{what}: read-only");
    drop(shown);
    let rescued = Rescued::open(left.clone(), &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
    assert!(contents(&rescued, ino) == expected, "{what}: rescued");
    drop(rescued);
    let fs = open(&left, Deltas::Auto);
    assert!(fs.is_writable() && contents(&fs, ino) == expected, "{what}: mounted, {:?}", fs.warnings());
    fs.close().unwrap();
    drop(fs);
    let report = check(&*left, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.faults);
}

/// The inodes on a volume that are their own seals: their blocks.
fn insides(device: &MemoryDevice) -> Vec<u64> {
    let mut bytes = vec![0; BLOCK as usize];
    let mut is_one = |block: &u64| {
        device.read_at(block * BLOCK, &mut bytes).is_ok()
            && Inside::of_block(&bytes, Address::new(*block as u32)).is_some()
    };
    (0..device.size() / BLOCK).filter(&mut is_one).collect()
}

#[test]
fn an_fsync_writes_what_changed_and_the_inode() {
    let (device, fs, ino) = usual();
    let fsynced = |work: &dyn Fn()| {
        written(&fs, || {
            work();
            sync(&fs, ino);
        })
    };
    assert_eq!(fsynced(&|| write_page(&fs, ino, 3, 2)), (1, 1), "a page");
    assert_eq!(fsynced(&|| (4..9).for_each(|page| write_page(&fs, ino, page, 2))), (5, 1), "a run");
    assert_eq!(fsynced(&|| fs.write(ino, 20 * BLOCK, &[3; 200], false).map(|_| ()).unwrap()), (1, 1), "appended");
    let mode = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    assert_eq!(fsynced(&|| fs.set_attributes(ino, &mode).map(|_| ()).unwrap()), (0, 1), "attributes alone");
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    assert_eq!(fsynced(&|| fs.fallocate(ino, punch, 0, 2 * BLOCK).unwrap()), (0, 1), "a hole");
    expect_after_cut(&device, ino, &contents(&fs, ino), "one run each");
    // Two runs need a seal, and so does a file with a node of its own to write.
    assert_eq!(fsynced(&|| [3, 5].into_iter().for_each(|page| write_page(&fs, ino, page, 4))), (2, 2), "two runs");
    assert_eq!(fsynced(&|| write_page(&fs, ino, 2_000, 4)), (1, 3), "a direct node");
    assert_eq!(fsynced(&|| write_page(&fs, ino, 3, 5)), (1, 1), "a page again");
    expect_after_cut(&device, ino, &contents(&fs, ino), "with seals among them");
}

/// The loads of the measurements: small mails, and a file that grows by less than a block.
#[test]
fn small_files_cost_a_block_less_than_with_a_seal() {
    let (device, fs, _) = usual();
    for (bytes, cost) in [(1_000, (0, 1)), (8_192, (2, 1)), (16_384, (4, 1))] {
        for number in 0..5 {
            let ino = create(&fs, &format!("{bytes}-{number}"));
            let count = written(&fs, || {
                fs.write(ino, 0, &vec![7; bytes], false).unwrap();
                sync(&fs, ino);
            });
            assert_eq!(count, cost, "a new file of {bytes} bytes");
        }
    }
    let log = create(&fs, "log");
    for line in 0..60 {
        let count = written(&fs, || {
            fs.write(log, 200 * line, &[line as u8; 200], false).unwrap();
            fs.sync_file(log, true).unwrap();
        });
        // Inside the inode at first, then in the last page, or in two.
        assert!(count.1 == 1 && count.0 <= 2, "line {line}: {count:?}");
    }
    expect_after_cut(&device, log, &contents(&fs, log), "the log");
}

#[test]
fn inodes_without_room_have_seals_in_front() {
    let without =
        FormatOptions::DEFAULT_FEATURES - Features::EXTRA_ATTR - Features::INODE_CHECKSUM - Features::INODE_CRTIME;
    let (device, fs, ino) = sealed(without, 0, Deltas::Auto);
    for page in 0..3 {
        let count = written(&fs, || {
            write_page(&fs, ino, page, 2);
            sync(&fs, ino);
        });
        assert_eq!(count, (1, 2));
    }
    assert_eq!(insides(&device), []);
    expect_after_cut(&device, ino, &contents(&fs, ino), "no room");
}

/// With deltas, the inode is written where it can be its own seal; else the delta tells.
#[test]
fn deltas_tell_what_an_inode_cannot_vouch_for() {
    let (device, fs, ino) = sealed(FormatOptions::DEFAULT_FEATURES, 256 << 10, Deltas::On);
    let before = insides(&device).len();
    for (pages, is_inside) in [(&[3][..], 1), (&[3, 7], 0), (&[4, 5, 6], 1), (&[1, 9], 0), (&[1], 1)] {
        let known = insides(&device).len();
        let count = written(&fs, || {
            pages.iter().for_each(|page| write_page(&fs, ino, *page, 8));
            sync(&fs, ino);
        });
        assert_eq!(count, (pages.len() as u64, 1), "{pages:?}");
        assert_eq!(insides(&device).len() - known, is_inside, "{pages:?}");
    }
    assert!(insides(&device).len() > before);
    let left = Arc::new(device.snapshot());
    assert!(contents(&open(&left, Deltas::Auto), ino) == contents(&fs, ino));
}

/// A block that two other files wrote and have not fsynced stays with the next seal.
#[test]
fn what_others_wrote_is_not_vouched_for() {
    let (device, fs, ino) = usual();
    let other = create(&fs, "other");
    fs.write(other, 0, &[5; 64 << 10], false).unwrap();
    write_page(&fs, ino, 3, 2);
    sync(&fs, ino);
    let before = device.snapshot();
    fs.write(other, BLOCK * 20, &[6; BLOCK as usize], false).unwrap();
    sync(&fs, other);
    // Its first blocks have not arrived.
    let image = device.snapshot();
    let mut bytes = vec![0; BLOCK as usize];
    let lost: Vec<u64> = (0..image.size() / BLOCK)
        .filter(|block| image.read_at(block * BLOCK, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 5))
        .collect();
    assert_eq!(lost.len(), 16);
    image.write_at(lost[7] * BLOCK, &[0; BLOCK as usize]).unwrap();
    let fs = open(&Arc::new(image), Deltas::Auto);
    assert!(fs.lookup(fs.root(), b"other").is_err(), "the other one's fsync had not returned");
    assert_eq!(contents(&fs, ino)[3 * BLOCK as usize], 2);
    drop(before);
}

/// Each sector of the last fsync's blocks is lost in turn: the one before counts, and nothing is damaged.
#[test]
fn the_last_fsync_counts_whole_or_not_at_all() {
    for is_inline in [false, true] {
        let (device, fs, file) = usual();
        let ino = if is_inline { create(&fs, "inline") } else { file };
        let length = if is_inline { 3_000 } else { 2 * BLOCK as usize };
        fs.write(ino, 0, &vec![4; length], false).unwrap();
        sync(&fs, ino);
        let before = device.snapshot();
        let old = contents(&fs, ino);
        fs.write(ino, 0, &vec![5; length], false).unwrap();
        sync(&fs, ino);
        let new = contents(&fs, ino);
        let (mut was, mut is) = ([0; 512], [0; 512]);
        let mut lost = 0;
        for at in (0..device.size()).step_by(512) {
            before.read_at(at, &mut was).unwrap();
            device.read_at(at, &mut is).unwrap();
            if was == is {
                continue;
            }
            lost += 1;
            let image = Arc::new(device.snapshot());
            image.write_at(at, &was).unwrap();
            let left = open(&image, Deltas::Auto);
            assert!(left.is_writable(), "inline {is_inline}, byte {at}: {:?}", left.warnings());
            assert!(contents(&left, ino) == old, "inline {is_inline}, byte {at}");
        }
        assert!(lost >= if is_inline { 6 } else { 18 }, "{lost} sectors");
        expect_after_cut(&device, ino, &new, "whole");
    }
}

/// Of a file nothing was written but a node of its own lost a block: the inode alone does not tell that.
#[test]
fn a_hole_behind_what_the_inode_points_to_is_durable() {
    const FAR: u64 = 1_500;
    let (device, fs, ino) = usual();
    write_page(&fs, ino, FAR, 3);
    fs.sync().unwrap();
    write_page(&fs, ino, 0, 4);
    sync(&fs, ino);
    fs.fallocate(ino, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, FAR * BLOCK, BLOCK).unwrap();
    sync(&fs, ino);
    let expected = contents(&fs, ino);
    assert_eq!((expected[0], expected[(FAR * BLOCK) as usize]), (4, 0));
    expect_after_cut(&device, ino, &expected, "a hole");
}

fn change_mode(fs: &F2fs, ino: InodeNumber, number: u32) {
    let set = SetAttributes { permissions: Some(0o600 + number % 8), ..SetAttributes::default() };
    fs.set_attributes(ino, &set).unwrap();
    sync(fs, ino);
}

/// A seal in the last block of a segment says nothing of the next one.
#[test]
fn a_seal_at_the_end_of_a_segment_is_none_of_the_next() {
    let (device, fs, ino) = usual();
    let geometry = Geometry::read(&*device).unwrap().0;
    let last = |fs: &F2fs| {
        change_mode(fs, ino, 0);
        geometry.offset_in_segment(Address::new(insides(&device).into_iter().max().unwrap() as u32))
    };
    while last(&fs) < 510 {}
    let two_runs = written(&fs, || {
        [3, 7].into_iter().for_each(|page| write_page(&fs, ino, page, 9));
        sync(&fs, ino);
    });
    assert_eq!(two_runs, (2, 2), "a seal in the last block, its inode in the next segment");
    assert_eq!(written(&fs, || change_mode(&fs, ino, 5)), (0, 2), "no seal is in this segment yet");
    assert_eq!(written(&fs, || change_mode(&fs, ino, 6)), (0, 1));
}

/// The chain goes through several segments, and whoever has only one of them knows what is older: rescue finds a delta that is newer than an inode.
#[test]
fn each_segment_of_the_chain_begins_with_a_seal() {
    let (device, fs, ino) = sealed(FormatOptions::DEFAULT_FEATURES, 256 << 10, Deltas::On);
    let other = create(&fs, "other");
    sync(&fs, other);
    let count = written(&fs, || (0..600).for_each(|number| change_mode(&fs, ino, number)));
    assert!((601..=602).contains(&count.1), "{count:?}: an inode each, and a seal in each other segment");
    write_page(&fs, ino, 3, 5);
    change_mode(&fs, ino, 3);
    (0..600).for_each(|number| change_mode(&fs, other, number));
    [3, 7].into_iter().for_each(|page| write_page(&fs, ino, page, 9));
    sync(&fs, ino);
    let left = Arc::new(device.snapshot());
    let as_made = volume(FormatOptions::DEFAULT_FEATURES, 256 << 10);
    let packs = u64::from(Geometry::read(&*as_made).unwrap().0.checkpoint) * BLOCK;
    left.write_at(packs, &vec![0x33; 1024 * BLOCK as usize]).unwrap();
    let rescued = Rescued::open(left, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
    let found = contents(&rescued, ino);
    assert_eq!([3, 7].map(|page| found[page * BLOCK as usize]), [9, 9]);
}

/// Gives an inode something else to say, with the right checksums.
fn say(image: &MemoryDevice, block: u64, inside: &Inside) {
    let mut bytes = vec![0; BLOCK as usize];
    image.read_at(block * BLOCK, &mut bytes).unwrap();
    let mut raw = RawInode::read_from_bytes(&bytes).unwrap();
    inside.write(&mut raw, Address::new(block as u32));
    let sum = raw.expected_checksum(Geometry::read(image).unwrap().0.checksum_seed);
    raw.extra_mut().i_inode_checksum.set(sum);
    image.write_at(block * BLOCK, raw.as_bytes()).unwrap();
}

/// Whatever an inode says of its pages: it does not count, and nothing else breaks.
#[test]
fn an_inode_may_say_anything() {
    let (device, fs, ino) = usual();
    write_page(&fs, ino, 3, 2);
    sync(&fs, ino);
    let last = insides(&device)[0];
    let mut bytes = vec![0; BLOCK as usize];
    device.read_at(last * BLOCK, &mut bytes).unwrap();
    let said = Inside::of_block(&bytes, Address::new(last as u32)).unwrap();
    assert_eq!((said.first.get(), said.pages), (3, 1));
    for (first, pages) in [(3, 1_023), (1_023, 1), (1_023, 1_023), (30, 2), (2, 1), (3, 0)] {
        let image = device.snapshot();
        say(&image, last, &Inside { first: basalt_f2fs::layout::FileBlock::new(first), pages, ..said });
        let fs = open(&Arc::new(image), Deltas::Auto);
        assert!(fs.is_writable(), "{first} {pages}: {:?}", fs.warnings());
        assert_eq!(contents(&fs, ino)[3 * BLOCK as usize], 1, "{first} {pages}");
    }
    for undurable in [Some(1), Some(4_000), None] {
        let image = device.snapshot();
        say(&image, last, &Inside { undurable, ..said });
        assert_eq!(contents(&open(&Arc::new(image), Deltas::Auto), ino)[3 * BLOCK as usize], 2, "{undurable:?}");
    }
}

/// What was said once is gone when the inode is written again without a mark, and what others left there is, too.
#[test]
fn nothing_that_was_said_is_left_behind_a_checkpoint() {
    let (device, fs, ino) = usual();
    write_page(&fs, ino, 3, 2);
    sync(&fs, ino);
    write_page(&fs, ino, 4, 2);
    fs.close().unwrap();
    let fs = open(&device, Deltas::Auto);
    fs.set_attributes(ino, &SetAttributes { permissions: Some(0o600), ..SetAttributes::default() }).unwrap();
    fs.close().unwrap();
    let mut bytes = vec![0; BLOCK as usize];
    let mut last = None;
    for block in 0..device.size() / BLOCK {
        device.read_at(block * BLOCK, &mut bytes).unwrap();
        let raw = RawInode::ref_from_bytes(&bytes).unwrap();
        let is_it = raw.footer.is_inode() == Some(true) && u64::from(raw.footer.ino().get()) == ino;
        if is_it && raw.i_mode.get() & 0o777 == 0o600 {
            last = Some((Inside::is_set(raw), marked_inode(&bytes).is_some()));
        }
    }
    assert_eq!(last, Some((false, false)));
}

#[test]
fn fsck_f2fs_finds_nothing_in_these_bytes() {
    let (device, fs, ino) = usual();
    for page in 0..8 {
        write_page(&fs, ino, page, 2);
        sync(&fs, ino);
    }
    let left = Arc::new(device.snapshot());
    let opened = open(&left, Deltas::Auto);
    opened.close().unwrap();
    drop(opened);
    // The last inode as a checkpoint might have it, if Linux had written it with these bytes.
    let mut bytes = vec![0; BLOCK as usize];
    for block in 0..left.size() / BLOCK {
        left.read_at(block * BLOCK, &mut bytes).unwrap();
        let raw = RawInode::ref_from_bytes(&bytes).unwrap();
        if raw.footer.is_inode() == Some(true) && u64::from(raw.footer.ino().get()) == ino {
            say(&left, block, &Inside { pages: 3, ..Inside::default() });
        }
    }
    let report = check(&*left, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    if find_program("fsck.f2fs").is_none() {
        return;
    }
    let path = std::env::temp_dir().join(format!("basalt-inside-{}", std::process::id()));
    let mut all = vec![0; left.size() as usize];
    left.read_at(0, &mut all).unwrap();
    std::fs::write(&path, all).unwrap();
    let report = fsck_f2fs(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    report.expect_clean();
}

/// Everything that changes a file, at random, an fsync behind each, others beside it: what is there after a cut is what the fsync found.
#[test]
fn what_was_fsynced_is_there_after_a_cut_whoever_looks() {
    let seed = std::env::var("BASALT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in seed..seed + 3 {
        let mut rng = Rng::new(seed);
        let delta = [Deltas::Auto, Deltas::On][rng.index(2)];
        let (device, fs, ino) = sealed(FormatOptions::DEFAULT_FEATURES, 256 << 10, delta);
        let other = create(&fs, "other");
        for round in 0..60_u8 {
            if rng.chance(50) {
                write_page(&fs, other, rng.below(40), round);
            }
            change(&fs, ino, &mut rng, round);
            fs.sync_file(ino, rng.chance(30)).unwrap();
            if rng.chance(20) {
                sync(&fs, other);
            }
            if round % 12 == 11 {
                expect_after_cut(&device, ino, &contents(&fs, ino), &format!("BASALT_SEED={seed} round {round}"));
            }
            if rng.chance(5) {
                fs.sync().unwrap();
            }
        }
    }
}

fn change(fs: &F2fs, ino: InodeNumber, rng: &mut Rng, round: u8) {
    let (page, length) = (rng.below(20), rng.between(1, 3 * BLOCK));
    match rng.below(10) {
        0..4 => write_page(fs, ino, page, round),
        4..6 => fs.write(ino, page * BLOCK + 9, &vec![round; length as usize], false).map(|_| ()).unwrap(),
        6 => fs.fallocate(ino, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, page * BLOCK, length).unwrap(),
        7 => {
            // Down to what fits the inode, now and then.
            let size = [0, 500, page * BLOCK + 7][rng.index(3)];
            let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
            fs.set_attributes(ino, &set).map(|_| ()).unwrap();
        }
        8 => fs.write(ino, 1_500 * BLOCK, &vec![round; length as usize], false).map(|_| ()).unwrap(),
        _ => {
            let set = SetAttributes { permissions: Some(0o600 + u32::from(round % 8)), ..SetAttributes::default() };
            fs.set_attributes(ino, &set).map(|_| ()).unwrap();
        }
    }
}
