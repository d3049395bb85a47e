//! A device whose power goes, and a volume on it.

use std::sync::Arc;
use std::time::Duration;

use basalt_device::block::Result;
use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags};
use parking_lot::Mutex;

pub const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
pub const DIRECTORY: NewNode<'_> = NewNode { kind: FileKind::Directory, permissions: 0o755, ..FILE };
const SECTOR: usize = 512;

/// Remembers what a power cut would leave.
pub struct Powered {
    now: MemoryDevice,
    state: Mutex<State>,
}

struct State {
    durable: MemoryDevice,
    cached: Vec<(u64, Vec<u8>)>,
    flushes: u64,
    pause: Duration,
}

impl Powered {
    pub fn new(durable: MemoryDevice) -> Powered {
        let state = State { durable: durable.snapshot(), cached: Vec::new(), flushes: 0, pause: Duration::ZERO };
        Powered { now: durable, state: Mutex::new(state) }
    }

    /// What is left when everything since the last flush is lost.
    pub fn cut(&self) -> MemoryDevice {
        self.state.lock().durable.snapshot()
    }

    /// What is left when each sector since the last flush is lost with a chance of `percent`.
    pub fn cut_at_random(&self, rng: &mut Rng, percent: u64) -> MemoryDevice {
        let state = self.state.lock();
        let left = state.durable.snapshot();
        for (offset, bytes) in &state.cached {
            for (at, sector) in (*offset..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
                if !rng.chance(percent) {
                    left.write_at(at, sector).unwrap();
                }
            }
        }
        left
    }

    /// Makes each flush take so long.
    pub fn slow_down(&self, pause: Duration) {
        self.state.lock().pause = pause;
    }

    /// How often the cache was flushed.
    pub fn flushes(&self) -> u64 {
        self.state.lock().flushes
    }
}

impl DeviceLayer for Powered {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.now
    }

    /// What is written while it runs is left to the next.
    fn on_flush(&self) -> Result<()> {
        let (cached, pause) = {
            let mut state = self.state.lock();
            state.flushes += 1;
            (state.cached.len(), state.pause)
        };
        std::thread::sleep(pause);
        let mut state = self.state.lock();
        let rest = state.cached.split_off(cached);
        for (offset, bytes) in std::mem::replace(&mut state.cached, rest) {
            state.durable.write_at(offset, &bytes)?;
        }
        Ok(())
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        let mut state = self.state.lock();
        self.now.discard(offset, length)?;
        state.cached.push((offset, vec![0; length as usize]));
        Ok(())
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let mut state = self.state.lock();
        self.now.write_vectored_at(offset, slices)?;
        state.cached.push((offset, slices.concat()));
        Ok(())
    }
}

pub fn formatted(size: u64) -> MemoryDevice {
    let memory = MemoryDevice::new(size, 512);
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&memory, &options, &mut |_, _| {}).unwrap();
    memory
}

/// A volume on a device that can lose its power.
pub struct Bench {
    pub device: Arc<Powered>,
    pub fs: F2fs,
}

impl Bench {
    /// A volume of 64 MiB with a checkpoint of this mount, from which on fsyncs are rolled forward, and an empty file.
    pub fn new() -> Bench {
        let bench = Bench::open(formatted(64 << 20));
        bench.create("first");
        bench.fs.sync().unwrap();
        bench
    }

    pub fn open(memory: MemoryDevice) -> Bench {
        Bench::open_with(memory, OpenOptions::default())
    }

    /// A volume with little memory: see [`cut_behind_a_checkpoint_without_pages`](Bench::cut_behind_a_checkpoint_without_pages).
    pub fn with_little_memory() -> Bench {
        let options = OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::default() };
        let bench = Bench::open_with(formatted(128 << 20), options);
        let ino = bench.create("overwritten");
        bench.fs.write(ino, 0, &[b'o'; 4096], false).unwrap();
        bench.fs.sync().unwrap();
        bench
    }

    /// Makes so many files that memory runs short and a checkpoint is taken for its sake, as cleaning takes them, too: it leaves dirty
    /// pages in memory. Then the power goes, and all that was not flushed is lost.
    pub fn cut_behind_a_checkpoint_without_pages(&self) -> Bench {
        self.fs.write(self.ino("overwritten").unwrap(), 0, &[b'n'; 4096], false).unwrap();
        let checkpoints = || self.fs.statistics().written.checkpoints;
        let before = checkpoints();
        for number in 0..8192 {
            self.fs.forget(self.create(&format!("crowd {before} {number}")), 1);
            if checkpoints() > before {
                let after = self.after_cut();
                assert!(after.read("overwritten") == Some(vec![b'o'; 4096]), "the checkpoint wrote all pages");
                return after;
            }
        }
        panic!("no checkpoint for the sake of memory");
    }

    pub fn open_with(memory: MemoryDevice, options: OpenOptions) -> Bench {
        let device = Arc::new(Powered::new(memory));
        let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
        Bench { device, fs }
    }

    /// The volume after a power cut that loses all that was not flushed.
    pub fn after_cut(&self) -> Bench {
        Bench::open(self.device.cut())
    }

    pub fn create(&self, path: &str) -> InodeNumber {
        let (parent, name) = self.parent(path);
        self.fs.create(parent, name, &FILE, &Caller::default()).unwrap().ino
    }

    pub fn mkdir(&self, path: &str) -> InodeNumber {
        let (parent, name) = self.parent(path);
        self.fs.create(parent, name, &DIRECTORY, &Caller::default()).unwrap().ino
    }

    pub fn unlink(&self, path: &str) {
        let (parent, name) = self.parent(path);
        self.fs.unlink(parent, name).unwrap();
    }

    pub fn rename(&self, from: &str, to: &str) {
        let ((parent, name), (new_parent, new_name)) = (self.parent(from), self.parent(to));
        self.fs.rename(parent, name, new_parent, new_name, RenameFlags::empty(), &Caller::default()).unwrap();
    }

    pub fn ino(&self, path: &str) -> Option<InodeNumber> {
        let mut at = self.fs.root();
        for name in path.split('/') {
            at = self.fs.lookup(at, name.as_bytes()).ok()?.ino;
        }
        Some(at)
    }

    fn parent<'p>(&self, path: &'p str) -> (InodeNumber, &'p [u8]) {
        match path.rsplit_once('/') {
            Some((parent, name)) => (self.ino(parent).unwrap(), name.as_bytes()),
            None => (self.fs.root(), path.as_bytes()),
        }
    }

    /// A file's bytes, or nothing if it is not there.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let ino = self.ino(path)?;
        let mut bytes = vec![0; self.fs.attributes(ino).unwrap().size as usize];
        let got = self.fs.read(ino, 0, &mut bytes).unwrap();
        assert_eq!(got, bytes.len(), "{path}");
        Some(bytes)
    }

    /// Closes the volume, and lets the check find nothing.
    pub fn close_clean(self, what: &str) {
        self.fs.close().unwrap();
        let left = self.device.cut();
        let report = check(&left, &CheckOptions::default(), &mut |_| ()).unwrap();
        let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
        assert!(report.is_clean() && report.complete, "{what}: {faults:#?}");
    }
}

/// Bytes that differ from one seed to the next.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::new(seed).fill(&mut bytes);
    bytes
}
