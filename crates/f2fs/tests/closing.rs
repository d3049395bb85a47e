//! Closing a volume while others still use it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use basalt_device::block::Result as DeviceResult;
use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::superblock::SUPERBLOCK_OFFSET;
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Error, FileKind, FileSystem, InodeNumber, NewNode, SetAttributes, Time};
use parking_lot::Mutex;

const MIB: u64 = 1 << 20;
/// Bytes of one write.
const PIECE: u64 = 65_536;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
const LINK: NewNode<'_> = NewNode { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target: b"elsewhere" };

type Hook = Box<dyn FnOnce() + Send>;

/// Does something when the superblock is written, and panics when it is told to.
struct Hooked {
    inner: Arc<MemoryDevice>,
    hook: Mutex<Option<Hook>>,
    /// Requests, reads left out, until one panics.
    panics_in: AtomicU64,
    /// Something was written after the panic.
    written_after: AtomicBool,
}

impl Hooked {
    fn new(inner: &Arc<MemoryDevice>) -> Arc<Hooked> {
        Arc::new(Hooked {
            inner: inner.clone(),
            hook: Mutex::default(),
            panics_in: AtomicU64::new(u64::MAX),
            written_after: AtomicBool::new(false),
        })
    }

    fn count(&self) {
        match self.panics_in.load(SeqCst) {
            0 => self.written_after.store(true, SeqCst),
            u64::MAX => {}
            left => {
                self.panics_in.store(left - 1, SeqCst);
                assert!(left > 1, "a planted panic");
            }
        }
    }
}

impl DeviceLayer for Hooked {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.inner
    }

    fn on_flush(&self) -> DeviceResult<()> {
        self.count();
        self.inner.flush()
    }

    fn on_discard(&self, offset: u64, length: u64) -> DeviceResult<()> {
        self.count();
        self.inner.discard(offset, length)
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> DeviceResult<()> {
        self.count();
        let hook = if offset == SUPERBLOCK_OFFSET as u64 { self.hook.lock().take() } else { None };
        if let Some(hook) = hook {
            hook();
        }
        self.inner.write_vectored_at(offset, slices)
    }
}

/// Commits as much by the journal as it can.
fn eager() -> OpenOptions {
    OpenOptions {
        background_cleaning: false,
        cache_bytes: 1 << 20,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..OpenOptions::default()
    }
}

fn formatted(size: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(size, 512));
    let options = FormatOptions {
        overprovision_percent: Some(50.0),
        journal_bytes: 1 << 20,
        discard_reads_zeros: true,
        ..FormatOptions::default()
    };
    format(&*device, &options, &mut |_, _| {}).unwrap();
    device
}

fn open(device: Arc<dyn BlockDevice>) -> F2fs {
    F2fs::open(device, eager(), Arc::new(SystemClock)).unwrap()
}

fn make(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn expect_clean(device: &MemoryDevice) {
    let report = check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

/// Files that stay and files that are overwritten, side by side, so that cleaning has to copy.
struct Files {
    kept: Vec<InodeNumber>,
    hot: Vec<InodeNumber>,
    rng: Rng,
}

impl Files {
    fn fill(fs: &F2fs) -> Files {
        let mut files = Files { kept: Vec::new(), hot: Vec::new(), rng: Rng::new(5) };
        for number in 0..24_u8 {
            files.kept.push(make(fs, &format!("kept{number}")));
            files.hot.push(make(fs, &format!("hot{number}")));
            for piece in 0..4 {
                let (kept, hot) = (files.kept[usize::from(number)], files.hot[usize::from(number)]);
                fs.write(kept, piece * PIECE, &vec![0x40 + number; PIECE as usize], false).unwrap();
                fs.write(hot, piece * PIECE, &vec![0x80 + number; PIECE as usize], false).unwrap();
            }
        }
        fs.sync().unwrap();
        files
    }

    /// Overwrites a piece of a hot file with what it holds already.
    fn overwrite(&mut self, fs: &F2fs) -> basalt_vfs::Result<usize> {
        let number = self.rng.index(self.hot.len());
        fs.write(self.hot[number], self.rng.below(4) * PIECE, &vec![0x80 + number as u8; PIECE as usize], false)
    }

    fn expect_all(fs: &F2fs) {
        let mut bytes = vec![0; 4 * PIECE as usize];
        for (prefix, first) in [("kept", 0x40), ("hot", 0x80)] {
            for number in 0..24_u8 {
                let name = format!("{prefix}{number}");
                let found = fs.lookup(fs.root(), name.as_bytes()).unwrap();
                assert_eq!(fs.read(found.ino, 0, &mut bytes).unwrap(), bytes.len(), "{name}");
                assert!(bytes.iter().all(|byte| *byte == first + number), "{name}");
            }
        }
    }
}

/// A volume whose journal was used, so that closing has to take the guard away.
fn guarded(fs: &F2fs) -> Files {
    let mut files = Files::fill(fs);
    let used = |fs: &F2fs| fs.statistics().written.journal_blocks;
    for _ in 0..8000 {
        files.overwrite(fs).unwrap();
        if used(fs) > 2 {
            return files;
        }
    }
    panic!("the journal was not used: {:?}", fs.statistics());
}

/// Writers that go on while the guard is taken away do not get anything onto the volume: it would be committed by a journal that nobody
/// looks at.
#[test]
fn nothing_changes_once_closing_has_begun() {
    let memory = formatted(88 * MIB);
    let device = Hooked::new(&memory);
    let fs = Arc::new(open(device.clone()));
    let mut files = guarded(&fs);
    let inside = fs.clone();
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = accepted.clone();
    *device.hook.lock() = Some(Box::new(move || {
        for _ in 0..1500 {
            counted.fetch_add(u64::from(files.overwrite(&inside).is_ok()), SeqCst);
        }
        let _ = inside.tick(Time { seconds: i64::from(u32::MAX), nanoseconds: 0 });
    }));
    fs.close().unwrap();
    assert!(device.hook.lock().is_none(), "closing did not write the superblock");
    assert_eq!(accepted.load(SeqCst), 0, "writes that were accepted");
    expect_clean(&memory);
    Files::expect_all(&open(Arc::new(memory.snapshot())));
}

#[test]
fn a_closed_volume_can_be_looked_at_and_takes_no_changes() {
    let memory = formatted(64 * MIB);
    let fs = open(memory.clone());
    let (file, root) = (make(&fs, "file"), fs.root());
    fs.write(file, 0, b"content", false).unwrap();
    let link = fs.create(root, b"link", &LINK, &Caller::default()).unwrap().ino;
    fs.close().unwrap();
    let before = memory.snapshot();

    assert!(matches!(fs.write(file, 0, b"more", false), Err(Error::Io(_))));
    assert!(matches!(fs.create(root, b"new", &FILE, &Caller::default()), Err(Error::Io(_))));
    assert!(matches!(fs.unlink(root, b"file"), Err(Error::Io(_))));
    assert!(matches!(fs.set_attributes(file, &SetAttributes::default()), Err(Error::Io(_))));
    assert!(matches!(fs.trim(0, u64::MAX, 0), Err(Error::Io(_))));
    let mut bytes = [0; 7];
    assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), 7);
    assert_eq!(&bytes, b"content");
    assert_eq!(fs.read_link(link).unwrap(), b"elsewhere");
    fs.read_directory(root, 0, &mut |_| true).unwrap();
    fs.forget(file, 2);
    let _ = fs.tick(Time { seconds: i64::from(u32::MAX), nanoseconds: 0 });
    // Everything is durable.
    fs.sync_file(file, false).unwrap();
    fs.sync().unwrap();
    fs.close().unwrap();
    let (mut was, mut is) = (vec![0; MIB as usize], vec![0; MIB as usize]);
    for offset in (0..memory.size()).step_by(MIB as usize) {
        before.read_at(offset, &mut was).unwrap();
        memory.read_at(offset, &mut is).unwrap();
        assert!(was == is, "something was written within a MiB from {offset}");
    }
}

#[test]
fn a_second_close_tells_how_the_first_one_ended() {
    let memory = formatted(64 * MIB);
    let device = Arc::new(basalt_device::FaultyDevice::new(memory.snapshot()));
    let fs = open(device.clone());
    let file = make(&fs, "file");
    fs.write(file, 0, b"content", false).unwrap();
    device.fail_nth(basalt_device::RequestKind::Flush, 1, std::io::ErrorKind::Other);
    let first = fs.close().unwrap_err().to_string();
    assert_eq!(fs.close().unwrap_err().to_string(), first);
    assert_eq!(fs.sync_file(file, false).unwrap_err().to_string(), first);
}

/// A panic at any request of a change fails the volume: memory may be half-changed, and nothing of it is written.
#[test]
fn a_panic_half_way_leaves_the_last_checkpoint() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(|| {
        for nth in 1.. {
            if !panic_at(nth) {
                assert!(nth > 20, "{nth} requests");
                return;
            }
        }
    });
    std::panic::set_hook(told);
    outcome.unwrap();
}

/// Whether so many requests are made by a story whose `nth` one panics.
fn panic_at(nth: u64) -> bool {
    let memory = formatted(64 * MIB);
    let device = Hooked::new(&memory);
    let fs = open(device.clone());
    let file = make(&fs, "file");
    fs.write(file, 0, &[1; 100_000], false).unwrap();
    fs.sync().unwrap();
    device.panics_in.store(nth + 1, SeqCst);
    let story = || -> basalt_vfs::Result<()> {
        for value in 2..5 {
            fs.write(file, 0, &vec![value; 3 << 20], false)?;
            fs.sync_file(file, false)?;
            fs.create(fs.root(), &[value], &FILE, &Caller::default())?;
            fs.write(file, 0, &[value; 100_000], false)?;
            fs.sync_file(file, false)?;
            fs.sync()?;
        }
        fs.close()
    };
    if let Ok(result) = catch_unwind(AssertUnwindSafe(story)) {
        result.unwrap();
        return false;
    }
    let context = format!("request {nth}");
    assert!(fs.failure().is_some_and(|reason| reason.contains("panic")), "{context}: {:?}", fs.failure());
    assert!(fs.write(file, 0, b"x", false).is_err(), "{context}");
    assert!(fs.sync_file(file, false).is_err(), "{context}: fsync");
    assert!(fs.sync().is_err(), "{context}: sync");
    let _ = fs.tick(Time { seconds: i64::from(u32::MAX), nanoseconds: 0 });
    assert!(fs.close().is_err(), "{context}: close");
    assert!(!device.written_after.load(SeqCst), "{context}: something was written");
    let left = Arc::new(memory.snapshot());
    let fs = open(left.clone());
    let found = fs.lookup(fs.root(), b"file").unwrap();
    let mut bytes = vec![0; found.size as usize];
    assert_eq!(fs.read(found.ino, 0, &mut bytes).unwrap(), bytes.len());
    fs.close().unwrap();
    expect_clean(&left);
    true
}
