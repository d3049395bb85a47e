//! The engine's locks under schedules that shuttle chooses: writing, fsync, checkpoints, reuse of blocks, closing. Every request to
//! the device is a point where another thread may go on; a deadlock is a failure.
//!
//! `BASALT_SCHEDULES=10` tries ten times as many as usual. A failing schedule is printed, to be replayed by `shuttle::replay`.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use basalt_device::block::Result as DeviceResult;
use basalt_device::{BlockDevice, DeviceLayer, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs_shuttled::format::{FormatOptions, format};
use basalt_f2fs_shuttled::{Clock, F2fs, OpenOptions};
use basalt_testkit::shuttled::shuttle::rand::Rng;
use basalt_testkit::shuttled::shuttle::scheduler::{PctScheduler, RandomScheduler};
use basalt_testkit::shuttled::shuttle::{self, Config, Runner, thread};
use basalt_vfs::{Caller, Error, FileKind, FileSystem, InodeNumber, NewNode, Time};

const BLOCK: usize = 4096;
/// Bytes of stack of a thread.
const STACK: usize = 1 << 20;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Time stands still.
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Time {
        Time { seconds: 1_700_000_000, nanoseconds: 0 }
    }
}

/// A device whose requests let other threads go on, and which knows what a power cut would leave at the least.
struct Watched {
    inner: FaultyDevice<MemoryDevice>,
    durable: Mutex<MemoryDevice>,
    /// A flush has failed.
    lost: AtomicBool,
}

impl Watched {
    fn new(memory: MemoryDevice) -> Arc<Watched> {
        let durable = Mutex::new(memory.snapshot());
        Arc::new(Watched { inner: FaultyDevice::new(memory), durable, lost: AtomicBool::new(false) })
    }

    /// What is durable now.
    fn durable(&self) -> MemoryDevice {
        self.durable.lock().unwrap().snapshot()
    }
}

impl DeviceLayer for Watched {
    type Below = FaultyDevice<MemoryDevice>;

    fn below(&self) -> &FaultyDevice<MemoryDevice> {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        thread::yield_now();
        self.inner.read_at(offset, buf)
    }

    fn on_flush(&self) -> DeviceResult<()> {
        // What others write while the flush runs is not covered.
        let covered = self.inner.inner().snapshot();
        thread::yield_now();
        let result = self.inner.flush();
        if result.is_err() {
            // What it was to make durable is gone, whatever flushes come later.
            self.lost.store(true, SeqCst);
        } else if !self.lost.load(SeqCst) {
            *self.durable.lock().unwrap() = covered;
        }
        // Who flushed meanwhile may hear of it first.
        thread::yield_now();
        result
    }

    fn on_discard(&self, offset: u64, length: u64) -> DeviceResult<()> {
        thread::yield_now();
        self.inner.discard(offset, length)
    }

    /// Others may go on after each slice.
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> DeviceResult<()> {
        let mut at = offset;
        for slice in slices {
            thread::yield_now();
            self.inner.write_at(at, slice)?;
            at += slice.len() as u64;
        }
        Ok(())
    }
}

/// An empty volume, formatted once.
fn fresh() -> MemoryDevice {
    static MADE: OnceLock<MemoryDevice> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let device = MemoryDevice::new(64 << 20, 512);
        let options = FormatOptions { discard_reads_zeros: true, uuid: Some([3; 16]), ..FormatOptions::default() };
        format(&device, &options, &mut |_, _| {}).unwrap();
        device
    });
    made.snapshot()
}

fn open(device: Arc<dyn BlockDevice>) -> F2fs {
    let options = OpenOptions { commit_interval: Duration::from_secs(1), ..OpenOptions::default() };
    F2fs::open(device, options, Arc::new(Noon)).unwrap()
}

fn make(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

/// Tries random schedules, and those with few changes of thread at the worst places.
fn explore(schedules: usize, test: fn()) {
    let times = std::env::var("BASALT_SCHEDULES").map_or(1, |text| text.parse().expect("a number"));
    let mut config = Config::new();
    config.stack_size = STACK;
    Runner::new(RandomScheduler::new(schedules * times), config.clone()).run(test);
    Runner::new(PctScheduler::new(3, schedules * times), config).run(test);
}

/// The version that fills a file, and how many bytes of it there are.
fn version_in(fs: &F2fs, name: &str) -> Option<(u8, usize)> {
    let found = fs.lookup(fs.root(), name.as_bytes()).ok()?;
    let mut bytes = vec![0; found.size as usize];
    let got = fs.read(found.ino, 0, &mut bytes).unwrap();
    let version = *bytes.first()?;
    assert!(got == bytes.len() && bytes.iter().all(|byte| *byte == version), "{name}: torn between versions");
    Some((version, got))
}

/// Writes versions 1 to `last` of a file and calls fsync after each. Returns the last acknowledged, with what was durable then.
fn write_versions(
    fs: &F2fs,
    device: &Watched,
    name: &str,
    last: u8,
    data_only: bool,
) -> Option<(u8, MemoryDevice, String)> {
    let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).ok()?.ino;
    let mut acknowledged = None;
    let mut failed = false;
    for version in 1..=last {
        if fs.write(ino, 0, &[version; 2 * BLOCK + 100], false).is_err() {
            assert!(device.inner.injected() > 0, "a write failed on a sound device");
        }
        match fs.sync_file(ino, data_only) {
            Ok(()) => {
                assert!(!failed, "{name}: fsync succeeded after it had failed");
                acknowledged = Some((version, device.durable(), name.to_owned()));
            }
            Err(Error::Io(_)) if device.inner.injected() > 0 => failed = true,
            Err(error) => panic!("{name}: {error}"),
        }
    }
    acknowledged
}

/// Writers with fsync, somebody who syncs, background work, a look around, and a thread that writes behind; every acknowledged version must be
/// in what was durable.
fn fsync_keeps_its_promise(failing: bool) {
    let device = Watched::new(fresh());
    let fs = Arc::new(open(device.clone()));
    if failing {
        let nth = shuttle::rand::thread_rng().gen_range(1..=6_u64);
        device.inner.fail_nth(RequestKind::Flush, nth, ErrorKind::Other);
    }
    let writers: Vec<_> = (0..3_u8)
        .map(|number| {
            let (fs, device) = (Arc::clone(&fs), Arc::clone(&device));
            thread::spawn(move || write_versions(&fs, &device, &format!("file{number}"), 2, number == 1))
        })
        .collect();
    let behind = {
        let fs = Arc::clone(&fs);
        thread::spawn(move || fs.write_behind())
    };
    let other = {
        let (fs, device) = (Arc::clone(&fs), Arc::clone(&device));
        thread::spawn(move || {
            let synced = fs.sync();
            assert!(synced.is_ok() || device.inner.injected() > 0, "{synced:?}");
            let _ = fs.tick(Time { seconds: 1_800_000_000, nanoseconds: 0 });
            let _ = fs.stat_fs().unwrap();
        })
    };
    let acknowledged: Vec<_> = writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect();
    other.join().unwrap();
    fs.end_write_behind();
    behind.join().unwrap();
    for (version, durable, name) in acknowledged {
        let recovered = open(Arc::new(durable));
        let found = version_in(&recovered, &name);
        assert!(found.is_some_and(|(found, _)| found >= version), "{name}: {found:?}, version {version} was durable");
    }
    assert_eq!(fs.failure().is_some(), device.inner.injected() > 0);
    // The flush that fails may be the last one.
    assert_eq!(fs.close().is_err(), device.inner.injected() > 0);
}

#[test]
fn what_fsync_acknowledged_is_durable() {
    explore(150, || fsync_keeps_its_promise(false));
}

#[test]
fn a_failed_flush_leaves_nobody_in_the_belief_that_all_is_well() {
    explore(150, || fsync_keeps_its_promise(true));
}

/// Bytes of a file that is written over and over: half a segment.
const LARGE: usize = 1 << 20;

/// Readers meet blocks that are freed, discarded and written anew by others.
fn readers_see_only_their_file() {
    let device = Watched::new(fresh());
    let fs = Arc::new(open(device));
    let (read, other) = (make(&fs, "read"), make(&fs, "other"));
    // Little stays free: what is given up is soon used again.
    let filler = make(&fs, "filler");
    let mut at = 0;
    while fs.stat_fs().unwrap().free > 5 * (LARGE / BLOCK) as u64 {
        fs.write(filler, at, &vec![0xFF; LARGE / 2], false).unwrap();
        at += LARGE as u64 / 2;
    }
    fs.write(read, 0, &vec![1; LARGE], false).unwrap();
    fs.write(other, 0, &vec![100; LARGE], false).unwrap();
    fs.sync().unwrap();
    let overwrite = |ino: InodeNumber, first: u8| {
        let fs = Arc::clone(&fs);
        thread::spawn(move || {
            for version in first..first + 4 {
                fs.write(ino, 0, &vec![version; LARGE], false).unwrap();
                fs.sync_file(ino, true).unwrap();
            }
        })
    };
    let writers = [overwrite(read, 2), overwrite(other, 101)];
    let reader = {
        let fs = Arc::clone(&fs);
        thread::spawn(move || {
            let mut bytes = vec![0; LARGE];
            for _ in 0..6 {
                assert_eq!(fs.read(read, 0, &mut bytes).unwrap(), LARGE);
                let foreign = bytes.chunks(BLOCK).find(|block| {
                    let version = block[0];
                    !(1..=5).contains(&version) || block.iter().any(|byte| *byte != version)
                });
                assert!(foreign.is_none(), "a block of another file, or of none: {:?}", foreign.map(|b| b[0]));
            }
        })
    };
    for thread in writers {
        thread.join().unwrap();
    }
    reader.join().unwrap();
    fs.close().unwrap();
}

#[test]
fn readers_never_see_blocks_that_others_got() {
    explore(15, readers_see_only_their_file);
}

/// Closing while others work: they get errors or succeed, and nothing waits for ever.
fn closing_ends_everything() {
    let device = Watched::new(fresh());
    let fs = Arc::new(open(device.clone()));
    let workers: Vec<_> = (0..2_u8)
        .map(|number| {
            let fs = Arc::clone(&fs);
            thread::spawn(move || {
                let name = format!("file{number}");
                let Ok(made) = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()) else { return };
                let _ = fs.write(made.ino, 0, &[number; 3 * BLOCK], false);
                let _ = fs.sync_file(made.ino, false);
                let _ = fs.unlink(fs.root(), name.as_bytes());
                fs.forget(made.ino, 1);
            })
        })
        .collect();
    let closers: Vec<_> = (0..2)
        .map(|_| {
            let fs = Arc::clone(&fs);
            thread::spawn(move || fs.close().unwrap())
        })
        .collect();
    workers.into_iter().for_each(|thread| thread.join().unwrap());
    closers.into_iter().for_each(|thread| thread.join().unwrap());
    let _ = fs.tick(Time { seconds: 1_800_000_000, nanoseconds: 0 });
    drop(open(Arc::new(device.durable())));
}

#[test]
fn closing_meets_everything_else() {
    explore(300, closing_ends_everything);
}
