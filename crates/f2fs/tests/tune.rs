//! A cleaning journal is added to an existing volume, and removed from it.

use std::sync::Arc;

use basalt_device::{BlockDevice, DeviceError, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::journal::guard;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::resize::resize;
use basalt_f2fs::tune::{force_journal, journal, set_journal};
use basalt_f2fs::{Clock, Error, F2fs, Geometry, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const BLOCK: u64 = 4096;
/// What segment 0 leaves of its 512 blocks: 16 for the superblocks, 1 for the descriptor.
const ROOM: u64 = 495 * BLOCK;

fn options() -> FormatOptions {
    FormatOptions { discard_reads_zeros: true, uuid: Some([7; 16]), ..FormatOptions::default() }
}

fn volume_with(size: u64, options: &FormatOptions) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(size, 512));
    format(&*device, options, &mut |_, _| {}).unwrap();
    device
}

fn volume() -> Arc<MemoryDevice> {
    volume_with(64 << 20, &options())
}

fn open(device: &Arc<MemoryDevice>, options: OpenOptions) -> F2fs {
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

fn expect_clean(device: &dyn BlockDevice) {
    let report = check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

fn everything(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn reason(error: Error) -> String {
    match error {
        Error::Unsupported { reason, .. } => reason,
        error => panic!("{error:?}"),
    }
}

#[test]
fn a_journal_comes_changes_its_size_and_goes() {
    let device = volume();
    let none = journal(&*device).unwrap();
    assert_eq!((none.bytes, none.live, none.room_bytes), (0, false, ROOM));
    let before = everything(&*device);
    for (asked, given) in [(256 << 10, 256 << 10), (5000, 8192), (ROOM, ROOM), (1, BLOCK), (0, 0)] {
        let set = set_journal(&*device, asked).unwrap();
        assert_eq!((set.bytes, set), (given, journal(&*device).unwrap()), "{asked}");
        expect_clean(&*device);
        let fs = open(&device, OpenOptions { read_only: true, ..OpenOptions::default() });
        assert_eq!((fs.info().journal_bytes, fs.info().journal_live), (given, false));
    }
    assert!(everything(&*device) == before, "what is left differs from the volume before");
}

#[test]
fn what_does_not_fit_is_refused_with_the_room_there_is() {
    let device = volume();
    set_journal(&*device, 8192).unwrap();
    let before = everything(&*device);
    for bytes in [ROOM + 1, 1 << 32, 1 << 45, u64::MAX] {
        let reason = reason(set_journal(&*device, bytes).unwrap_err());
        assert!(reason.contains("512 blocks") && reason.contains("have 495 (2027520 bytes)"), "{reason}");
    }
    assert!(everything(&*device) == before);
    // Larger sections leave more.
    let sections = volume_with(256 << 20, &FormatOptions { segments_per_section: 4, ..options() });
    assert_eq!(set_journal(&*sections, 8 << 20).map_err(reason).unwrap_err().matches("2031").count(), 1);
    assert_eq!(set_journal(&*sections, 7 << 20).unwrap().bytes, 7 << 20);
    expect_clean(&*sections);
}

/// Overwrites at random until cleaning was committed by the journal; the volume is left open.
fn clean_by_journal(fs: &F2fs) {
    overwrite_until(fs, |fs| fs.statistics().written.journal_blocks > 0);
}

fn overwrite_until(fs: &F2fs, is_enough: impl Fn(&F2fs) -> bool) {
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"file", &node, &Caller::default()).unwrap().ino;
    let usage = fs.info().usage;
    let blocks = usage.user_blocks * 3 / 4;
    let mut rng = Rng::new(9);
    for number in 0..20 * blocks {
        if number == blocks {
            // Moves of what no checkpoint knows need no journal.
            fs.sync().unwrap();
        }
        let block = if number < blocks { number } else { rng.below(blocks) };
        fs.write(ino, block * BLOCK, &[number as u8; BLOCK as usize], false).unwrap();
        if is_enough(fs) {
            return;
        }
    }
    panic!("cleaned too little: {:?}", fs.statistics());
}

#[test]
fn a_journal_that_was_added_is_used_and_while_it_is_live_nobody_changes_it() {
    let device = volume();
    set_journal(&*device, 256 << 10).unwrap();
    let fs = open(&device, OpenOptions::default());
    clean_by_journal(&fs);
    assert!(fs.info().journal_live && fs.info().journal_bytes == 256 << 10);
    let cut = Arc::new(device.snapshot());
    fs.close().unwrap();
    assert!(!journal(&*device).unwrap().live, "closed, and the guard is still there");
    assert_eq!(set_journal(&*device, 0).unwrap().bytes, 0);

    assert!(journal(&*cut).unwrap().live);
    let before = everything(&*cut);
    for bytes in [0, 4096, 256 << 10] {
        assert!(reason(set_journal(&*cut, bytes).unwrap_err()).contains("live"));
    }
    assert!(everything(&*cut) == before);
    let recovered = open(&cut, OpenOptions::default());
    recovered.close().unwrap();
    assert_eq!(set_journal(&*cut, 0).unwrap().bytes, 0);
    expect_clean(&*cut);
}

#[test]
fn a_guard_in_one_copy_is_enough_to_refuse() {
    for copy in [0, 1] {
        let device = volume();
        let mut sound = vec![0; BLOCK as usize];
        device.read_at(0, &mut sound).unwrap();
        let (geometry, _) = Geometry::read(&*device).unwrap();
        guard::set(&*device, &geometry, false).unwrap();
        device.write_at(copy * BLOCK, &sound).unwrap();
        assert!(journal(&*device).unwrap().live, "{copy}");
        assert!(reason(set_journal(&*device, 4096).unwrap_err()).contains("live"), "{copy}");
    }
}

#[test]
fn a_resize_commits_without_the_journal_and_keeps_it() {
    let device = volume_with(128 << 20, &FormatOptions { journal_bytes: 64 << 10, ..options() });
    let fs = open(&device, OpenOptions::default());
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"file", &node, &Caller::default()).unwrap().ino;
    fs.write(ino, 0, &vec![3; 8 << 20], false).unwrap();
    fs.close().unwrap();
    drop(fs);
    let shared: Arc<dyn BlockDevice> = device.clone();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    resize(&shared, 64 << 20, &OpenOptions::default(), &clock, &mut |_, _, _| ()).unwrap();
    let found = journal(&*device).unwrap();
    assert_eq!((found.bytes, found.live), (64 << 10, false));
    expect_clean(&*device);
}

#[test]
fn what_was_there_before_cannot_be_taken_for_a_journal() {
    let device = volume();
    device.write_at(17 * BLOCK, &[0xA5; 64 * BLOCK as usize]).unwrap();
    force_journal(&*device, 16 * BLOCK).unwrap();
    let mut place = vec![1; 17 * BLOCK as usize];
    device.read_at(17 * BLOCK, &mut place).unwrap();
    assert!(place[..16 * BLOCK as usize].iter().all(|&byte| byte == 0), "the journal is not empty");
    assert!(place[16 * BLOCK as usize..].iter().all(|&byte| byte == 0xA5), "more than the journal was written");
}

#[test]
fn what_is_not_basalts_stays_unless_forced() {
    // The descriptor's block, the first and the last of the journal; then one behind it.
    for (block, stays) in [(16, true), (17, true), (32, true), (33, false)] {
        let device = volume();
        device.write_at(block * BLOCK + 9, b"boot loader").unwrap();
        let before = device.snapshot();
        match set_journal(&*device, 16 * BLOCK) {
            Err(error) => assert!(stays && reason(error).contains(&format!("block {block} in front")), "{block}"),
            Ok(_) => assert!(!stays, "{block}"),
        }
        let read = |device: &MemoryDevice| {
            let mut bytes = vec![0; 512 * BLOCK as usize];
            device.read_at(0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(read(&before) == read(&device), stays, "{block}");
        assert_eq!(force_journal(&*device, 16 * BLOCK).unwrap().bytes, 16 * BLOCK);
        // A journal that is there, and what it left, is in nobody's way.
        set_journal(&*device, 0).unwrap();
        assert_eq!(set_journal(&*device, 8 * BLOCK).unwrap().bytes, 8 * BLOCK);
    }
}

/// Somebody puts a boot loader where the journal already is. A block that a power cut has torn is no boot loader.
#[test]
fn a_journal_leaves_alone_what_somebody_put_there() {
    for (block, at, is_others) in [(17, 0, true), (80, 9, true), (40, 512, false), (81, 0, false)] {
        let device = volume_with(64 << 20, &FormatOptions { journal_bytes: 64 * BLOCK, ..options() });
        device.write_at(block * BLOCK + at, b"boot loader").unwrap();
        let fs = open(&device, OpenOptions { discard: false, ..OpenOptions::default() });
        let warned = fs.warnings().iter().any(|line| line.contains(&format!("block {block} in front of segment 0")));
        assert_eq!(warned, is_others, "{block}: {:?}", fs.warnings());
        if !is_others {
            clean_by_journal(&fs);
            continue;
        }
        let before = everything(&*device);
        overwrite_until(&fs, |fs| fs.statistics().cleaning.total().victims > 20);
        assert_eq!(fs.statistics().written.journal_blocks, 0);
        fs.close().unwrap();
        let there = (16 * BLOCK) as usize..(81 * BLOCK) as usize;
        assert!(before[there.clone()] == everything(&*device)[there], "{block}");
        assert_eq!(open(&device, OpenOptions { journal: false, ..OpenOptions::default() }).warnings(), [""; 0]);
    }
}

#[test]
fn volumes_that_are_only_read_get_none_but_lose_one() {
    let device = volume_with(64 << 20, &FormatOptions { journal_bytes: 8192, ..options() });
    let (mut geometry, _) = Geometry::read(&*device).unwrap();
    geometry.superblock.feature.set(geometry.superblock.feature.get() | Features::CASEFOLD.bits());
    geometry.superblock.crc.set(geometry.superblock.expected_crc());
    guard::clear(&*device, &geometry).unwrap();
    let said = reason(set_journal(&*device, 4096).unwrap_err());
    assert!(said.contains("casefold"), "{said}");
    assert_eq!(set_journal(&*device, 0).unwrap().bytes, 0);
}

#[test]
fn a_device_that_fails_is_said_to_fail_and_the_journal_is_the_old_one() {
    let device = FaultyDevice::new(volume().snapshot());
    set_journal(&device, 8192).unwrap();
    for kind in [RequestKind::Write, RequestKind::Flush] {
        device.fail_when(move |request| (request.kind == kind).then_some(std::io::ErrorKind::Other));
        let error = set_journal(&device, 64 << 10).unwrap_err();
        assert!(matches!(error, Error::Device(DeviceError::Io { .. })), "{error:?}");
        device.heal();
        assert_eq!(journal(&device).unwrap().bytes, 8192);
    }
    assert!(matches!(journal(&MemoryDevice::new(64 << 20, 512)), Err(Error::NotF2fs { .. })));
    assert!(matches!(set_journal(&MemoryDevice::new(64 << 20, 512), 4096), Err(Error::NotF2fs { .. })));
}
