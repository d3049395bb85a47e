//! Devices that fail while several callers wait for them, and damage that shows while the volume is in use.

use std::io::{Error as IoError, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use basalt_device::block::Result as DeviceResult;
use basalt_device::{BlockDevice, DeviceError, DeviceLayer, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::node::RawNodeFooter;
use basalt_f2fs::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::{Caller, Error, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags, SetAttributes};

const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
const DIRECTORY: NewNode<'_> = NewNode { kind: FileKind::Directory, permissions: 0o755, ..FILE };
const PATIENCE: Duration = Duration::from_secs(30);

fn fresh() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(64 << 20, 512);
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&device, &options, &mut |_, _| {}).unwrap();
    Arc::new(device)
}

fn open(device: Arc<dyn BlockDevice>) -> F2fs {
    F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap()
}

fn make(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn read(fs: &F2fs, name: &str) -> basalt_vfs::Result<Vec<u8>> {
    let found = fs.lookup(fs.root(), name.as_bytes())?;
    let mut bytes = vec![0; found.size as usize];
    let got = fs.read(found.ino, 0, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// A device whose flushes wait until they are let go, and fail then.
struct Stalling {
    inner: Arc<MemoryDevice>,
    stalls: AtomicBool,
    waiting: AtomicU64,
    gate: (Mutex<bool>, Condvar),
}

impl Stalling {
    fn new(inner: Arc<MemoryDevice>) -> Arc<Stalling> {
        let gate = (Mutex::new(false), Condvar::new());
        Arc::new(Stalling { inner, stalls: AtomicBool::new(false), waiting: AtomicU64::new(0), gate })
    }

    fn let_go(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

impl DeviceLayer for Stalling {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.inner
    }

    fn on_flush(&self) -> DeviceResult<()> {
        if !self.stalls.swap(false, SeqCst) {
            return self.inner.flush();
        }
        // Only this one fails; those that come later would succeed.
        self.waiting.fetch_add(1, SeqCst);
        let mut open = self.gate.0.lock().unwrap();
        while !*open {
            open = self.gate.1.wait(open).unwrap();
        }
        let source = IoError::from(ErrorKind::Other);
        Err(DeviceError::Io { name: "memory".into(), operation: "flush", offset: 0, length: 0, source })
    }
}

#[test]
fn a_failed_flush_is_told_to_everybody_who_waits_for_it_and_to_all_later() {
    let memory = fresh();
    let device = Stalling::new(memory.clone());
    let fs = open(device.clone());
    let files: Vec<InodeNumber> = (0..8).map(|number| make(&fs, &format!("file{number}"))).collect();
    for &ino in &files {
        fs.write(ino, 0, &[1; 10_000], false).unwrap();
        fs.sync_file(ino, false).unwrap();
    }
    device.stalls.store(true, SeqCst);
    files.iter().for_each(|&ino| assert_eq!(fs.write(ino, 5_000, &[2; 10_000], false).unwrap(), 10_000));
    let outcomes: Vec<basalt_vfs::Result<()>> = std::thread::scope(|scope| {
        let fs = &fs;
        let waiting: Vec<_> = files.iter().map(|&ino| scope.spawn(move || fs.sync_file(ino, ino % 2 == 0))).collect();
        let start = Instant::now();
        while device.waiting.load(SeqCst) == 0 {
            assert!(start.elapsed() < PATIENCE, "nobody flushes");
            std::thread::sleep(Duration::from_millis(1));
        }
        // The others reach their turn meanwhile.
        std::thread::sleep(Duration::from_millis(50));
        device.let_go();
        waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Error::Io(_))), "{outcome:?}");
    }
    for &ino in &files {
        assert!(matches!(fs.sync_file(ino, true), Err(Error::Io(_))), "the second time too");
        assert!(matches!(fs.write(ino, 0, &[3], false), Err(Error::ReadOnly)));
    }
    assert!(matches!(fs.sync(), Err(Error::Io(_))));
    assert!(fs.failure().is_some_and(|reason| reason.contains("flush")), "{:?}", fs.failure());
    assert!(fs.close().is_err(), "the volume was not closed cleanly");
    let fs = open(memory);
    for number in 0..files.len() {
        let found = read(&fs, &format!("file{number}")).unwrap();
        assert!(found.len() >= 10_000 && found[..5_000] == [1; 5_000], "what was durable before");
    }
}

#[test]
fn an_error_that_nobody_saw_is_told_to_whoever_asks_next() {
    let device = Arc::new(FaultyDevice::new(fresh()));
    let fs = open(device.clone());
    let ino = make(&fs, "file");
    fs.write(ino, 0, &[1; 100_000], false).unwrap();
    device.fail_nth(RequestKind::Write, 1, ErrorKind::Other);
    // Background work has nobody to tell.
    let later = basalt_vfs::Time { seconds: i64::MAX / 2, nanoseconds: 0 };
    for _ in 0..100 {
        let _ = fs.tick(later);
    }
    assert_eq!(device.injected(), 1);
    for _ in 0..2 {
        assert!(matches!(fs.sync_file(ino, true), Err(Error::Io(_))));
    }
    assert!(fs.close().is_err());
}

#[test]
fn a_device_that_vanishes_leaves_errors_and_no_hang() {
    let memory = fresh();
    let device = Arc::new(FaultyDevice::new(memory.clone()));
    let fs = open(device.clone());
    let kept = make(&fs, "kept");
    fs.write(kept, 0, &[7; 50_000], false).unwrap();
    fs.sync().unwrap();
    device.fail_after(0, ErrorKind::NotConnected);
    assert!(fs.stat_fs().is_ok() && fs.attributes(kept).is_ok(), "what is in memory");
    assert!(matches!(fs.read(kept, 0, &mut [0; 4096]), Err(Error::Io(_))));
    assert!(fs.is_writable(), "nothing has changed");
    fs.write(kept, 0, &[8; 10], false).expect_err("the rest of the block cannot be read");
    let fresh = make(&fs, "fresh");
    fs.write(fresh, 0, &[9; 9_000], false).unwrap();
    assert!(matches!(fs.sync_file(fresh, false), Err(Error::Io(_))));
    assert!(matches!(fs.write(fresh, 0, &[9], false), Err(Error::ReadOnly)));
    assert!(fs.stat_fs().is_ok());
    assert!(fs.close().is_err());
    let fs = open(memory);
    assert_eq!(read(&fs, "kept").unwrap(), [7; 50_000]);
}

/// Blocks of a device whose node footer names this node.
fn copies_of_node(device: &MemoryDevice, nid: u32) -> Vec<u64> {
    let footer = BLOCK_SIZE - size_of::<RawNodeFooter>();
    let mut block = vec![0; BLOCK_SIZE];
    let is_copy = |offset: &u64| {
        device.read_at(*offset, &mut block).unwrap();
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
        word(footer) == nid && word(footer + 4) == nid
    };
    (0..device.size()).step_by(BLOCK_SIZE).filter(is_copy).collect()
}

/// A volume that was closed with three files and a directory, opened again with a damaged inode of the first.
fn with_damaged_inode() -> (F2fs, u32) {
    let memory = fresh();
    let fs = open(memory.clone());
    let broken = make(&fs, "broken");
    fs.write(broken, 0, &[1; 100_000], false).unwrap();
    let well = make(&fs, "well");
    fs.write(well, 0, &[2; 100_000], false).unwrap();
    fs.create(fs.root(), b"directory", &DIRECTORY, &Caller::default()).unwrap();
    fs.close().unwrap();
    drop(fs);
    let copies = copies_of_node(&memory, broken as u32);
    assert!(!copies.is_empty());
    for offset in copies {
        // One bit of the size: only the checksum tells.
        let mut byte = [0];
        memory.read_at(offset + 18, &mut byte).unwrap();
        memory.write_at(offset + 18, &[byte[0] ^ 0x10]).unwrap();
    }
    (open(memory), broken as u32)
}

#[test]
fn damage_met_before_anything_changed_concerns_only_that_operation() {
    let (fs, broken) = with_damaged_inode();
    let (root, caller, broken) = (fs.root(), Caller::default(), InodeNumber::from(broken));
    let directory = fs.lookup(root, b"directory").unwrap().ino;
    let is_damage = |result: basalt_vfs::Result<()>| match result {
        Err(Error::Corrupted(reason)) => assert!(reason.contains("checksum"), "{reason}"),
        other => panic!("{other:?}"),
    };
    for _ in 0..2 {
        is_damage(fs.lookup(root, b"broken").map(drop));
        is_damage(fs.attributes(broken).map(drop));
        is_damage(fs.read(broken, 0, &mut [0; 10]).map(drop));
        is_damage(fs.write(broken, 0, b"x", false).map(drop));
        is_damage(fs.set_attributes(broken, &SetAttributes { size: Some(0), ..Default::default() }).map(drop));
        is_damage(fs.sync_file(broken, false));
        is_damage(fs.sync_file(broken, true));
        is_damage(fs.unlink(root, b"broken"));
        is_damage(fs.link(broken, directory, b"another").map(drop));
        is_damage(fs.rename(root, b"broken", directory, b"moved", RenameFlags::empty(), &caller));
        is_damage(fs.rename(root, b"well", root, b"broken", RenameFlags::empty(), &caller));
        assert!(fs.is_writable(), "{:?}", fs.failure());
    }
    let well = fs.lookup(root, b"well").unwrap().ino;
    fs.write(well, 0, &[3; 10], false).unwrap();
    fs.sync_file(well, false).unwrap();
    let new = make(&fs, "new");
    fs.write(new, 0, &[4; 10], false).unwrap();
    fs.unlink(root, b"new").unwrap();
    fs.sync().unwrap();
    assert_eq!(read(&fs, "well").unwrap()[..11], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2]);
    assert_eq!(fs.failure(), None);
    fs.close().unwrap();
}

#[test]
fn a_bad_sector_concerns_only_what_lies_there() {
    let memory = fresh();
    let fs = open(memory.clone());
    for number in 0_u8..10 {
        let ino = make(&fs, &format!("file{number}"));
        fs.write(ino, 0, &vec![number + 1; 40_000], false).unwrap();
    }
    fs.close().unwrap();
    let mut block = vec![0; BLOCK_SIZE];
    let bad = (0..memory.size()).step_by(BLOCK_SIZE).find(|offset| {
        memory.read_at(*offset, &mut block).unwrap();
        block.iter().all(|byte| *byte == 5)
    });
    let bad = bad.expect("a block of file4");
    let device = Arc::new(FaultyDevice::new(memory));
    device.fail_when(move |request| {
        let hit = request.kind == RequestKind::Read && (request.offset..request.end()).contains(&bad);
        hit.then_some(ErrorKind::Other)
    });
    let fs = open(device.clone());
    for round in 0..2 {
        for number in 0_u8..10 {
            let found = read(&fs, &format!("file{number}"));
            match found {
                Err(Error::Io(reason)) => assert!(number == 4 && reason.contains("read"), "{number}: {reason}"),
                found => assert!(number != 4 && found.unwrap() == vec![number + 1; 40_000], "{round}: {number}"),
            }
        }
        // A part of the bad block cannot be written, all of it can: the device gets another place for it.
        let ino = fs.lookup(fs.root(), b"file4").unwrap().ino;
        let written = fs.write(ino, 100, b"part", false);
        assert!(matches!(written, Err(Error::Io(_))), "{written:?}");
        assert!(fs.is_writable() && fs.sync().is_ok());
    }
    let ino = fs.lookup(fs.root(), b"file4").unwrap().ino;
    fs.write(ino, 0, &[6; 40_000], false).unwrap();
    fs.sync().unwrap();
    assert_eq!(read(&fs, "file4").unwrap(), [6; 40_000]);
    fs.close().unwrap();
}

/// Overwrites most of a volume again and again, beside a file with a block that can no longer be read.
fn clean_around_a_bad_block(journal_bytes: u64) {
    let memory = Arc::new(MemoryDevice::new(128 << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&*memory, &options, &mut |_, _| {}).unwrap();
    let fs = open(memory.clone());
    // Of 64 blocks in a row, eight belong to the file that stays.
    let (churned, kept) = (make(&fs, "churned"), make(&fs, "kept"));
    let pieces = fs.stat_fs().unwrap().available * 9 / 10 / 64;
    for piece in 0..pieces {
        fs.write(churned, piece * 56 * BLOCK_SIZE as u64, &[1; 56 * BLOCK_SIZE], false).unwrap();
        fs.write(kept, piece * 8 * BLOCK_SIZE as u64, &[piece as u8 | 0x80; 8 * BLOCK_SIZE], false).unwrap();
        fs.sync_file(kept, true).unwrap();
    }
    fs.close().unwrap();
    let mut block = vec![0; BLOCK_SIZE];
    let bad = (0..memory.size()).step_by(BLOCK_SIZE).find(|offset| {
        memory.read_at(*offset, &mut block).unwrap();
        block.iter().all(|byte| *byte == 0x85)
    });
    let bad = bad.expect("a block of kept");
    let met = Arc::new(AtomicBool::new(false));
    let device = Arc::new(FaultyDevice::new(memory));
    let seen = met.clone();
    device.fail_when(move |request| {
        let hit = request.kind == RequestKind::Read && (request.offset..request.end()).contains(&bad);
        seen.fetch_or(hit, SeqCst);
        hit.then_some(ErrorKind::Other)
    });
    let fs = open(device);
    for number in 0..3000 {
        let at = number * 7919 % (pieces * 56 - 16) * BLOCK_SIZE as u64;
        let written = fs.write(churned, at, &[3; 16 * BLOCK_SIZE], false);
        assert!(written.is_ok(), "write {number} to another file: {written:?}, {:?}", fs.failure());
    }
    fs.sync().unwrap();
    assert!(met.load(SeqCst) && fs.statistics().written.sections_cleaned > 10, "cleaning met the block");
    let content = |piece: u64| {
        let mut bytes = vec![0; 8 * BLOCK_SIZE];
        fs.read(kept, piece * 8 * BLOCK_SIZE as u64, &mut bytes).map(|_| bytes)
    };
    for piece in 0..pieces {
        match content(piece) {
            Err(Error::Io(_)) => assert_eq!(piece, 5),
            found => assert!(found.unwrap() == vec![piece as u8 | 0x80; 8 * BLOCK_SIZE], "{piece}"),
        }
    }
    fs.close().unwrap();
}

#[test]
fn cleaning_leaves_a_block_that_cannot_be_read_where_it_is() {
    clean_around_a_bad_block(0);
    clean_around_a_bad_block(FormatOptions::DEFAULT_JOURNAL_BYTES);
}

/// Either head, and the device cannot write there either. That of the newer checkpoint is known from its other end, but Linux would go
/// back to the older one: nothing is written. That of the older one is of no interest until the next checkpoint takes its place.
#[test]
fn with_the_head_of_a_checkpoint_gone_for_good_nothing_that_was_synced_is_missing() {
    let memory = fresh();
    let fs = open(memory.clone());
    let ino = make(&fs, "file");
    fs.write(ino, 0, &[1; 9_000], false).unwrap();
    fs.sync().unwrap();
    fs.write(ino, 9_000, &[2; 100], false).unwrap();
    fs.sync().unwrap();
    fs.close().unwrap();
    drop(fs);
    let geometry = Geometry::read(&*memory).unwrap().0;
    let newest = choose_pack(&*memory, &geometry).unwrap().0.index;
    for pack in 0..2 {
        let head = u64::from(geometry.checkpoint + pack * BLOCKS_PER_SEGMENT) * BLOCK_SIZE as u64;
        let device = Arc::new(FaultyDevice::new(memory.snapshot()));
        device.fail_when(move |request| {
            let hit = (request.offset..request.end()).contains(&head);
            (hit && matches!(request.kind, RequestKind::Read | RequestKind::Write)).then_some(ErrorKind::Other)
        });
        let fs = open(device);
        let warnings = fs.warnings().join("\n");
        assert_eq!(read(&fs, "file").unwrap().len(), 9_100);
        assert_eq!(fs.is_writable(), pack != newest, "{warnings}");
        if pack == newest {
            assert!(warnings.contains("read-only") && warnings.contains("cannot be mended"), "{warnings}");
            assert!(matches!(fs.write(ino, 0, b"x", false), Err(Error::ReadOnly)));
            fs.close().unwrap();
        } else {
            fs.write(ino, 0, b"x", false).unwrap();
            assert!(fs.sync().is_err());
        }
    }
}

/// A write that was left to the thread that writes behind: its caller has gone on, and the next who wants it durable hears of it.
#[test]
fn an_error_of_a_write_that_was_left_to_others_is_told_by_fsync_and_closing() {
    let memory = fresh();
    let device = Arc::new(FaultyDevice::new(memory.snapshot()));
    let fs = open(device.clone());
    let ino = make(&fs, "file");
    fs.write(ino, 0, &[1; 1 << 20], false).unwrap();
    fs.sync_file(ino, false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| fs.write_behind());
        device.fail_when(|request| {
            // A request that takes its time: the caller is not the one who meets the error.
            std::thread::sleep(Duration::from_millis(5));
            (request.kind == RequestKind::Write).then_some(ErrorKind::Other)
        });
        let mut told = (0..4).filter(|_| fs.write(ino, 0, &[2; 1 << 20], false).is_err()).count();
        told += usize::from(fs.sync_file(ino, false).is_err());
        assert!(told > 0);
        assert!(matches!(fs.sync_file(ino, false), Err(Error::Io(_))));
        assert!(fs.failure().is_some() && !fs.is_writable());
        // It ends by itself.
    });
    assert!(fs.close().is_err());
    drop(fs);
    device.heal();
    let fs = open(device);
    let found = read(&fs, "file").unwrap();
    assert!(found.len() == 1 << 20 && found.iter().all(|byte| *byte == found[0]) && (1..=2).contains(&found[0]));
}
