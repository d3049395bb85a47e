//! How long those wait who only look, while others write to a slow device. Not a test: it measures.
//!
//! `cargo test --release -p basalt-f2fs --test latency -- --ignored --nocapture`

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice, Result};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, OpenFlags};

const SIZE: u64 = 256 << 20;
const BLOCK: u64 = 4096;
const BYTES_PER_SECOND: f64 = 10e6;

/// A memory card: one request at a time, 10 MB/s.
struct Card {
    device: MemoryDevice,
    is_slow: AtomicBool,
    busy: Mutex<()>,
}

impl Card {
    fn take(&self, length: usize) {
        if self.is_slow.load(SeqCst) {
            let _busy = self.busy.lock().unwrap();
            thread::sleep(Duration::from_secs_f64(length as f64 / BYTES_PER_SECOND));
        }
    }
}

impl DeviceLayer for Card {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.device
    }
    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.take(buf.len());
        self.device.read_at(offset, buf)
    }
    fn on_flush(&self) -> Result<()> {
        self.take(BLOCK as usize);
        self.device.flush()
    }
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.take(slices.iter().map(|slice| slice.len()).sum());
        self.device.write_vectored_at(offset, slices)
    }
}

const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// What stat, open and readdir of what is cached took, while `work` went on.
fn look_during(fs: &F2fs, work: impl FnOnce()) -> Vec<Duration> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut took = Vec::new();
            while !is_over.load(SeqCst) {
                let mut time = |look: &dyn Fn()| {
                    let start = Instant::now();
                    look();
                    took.push(start.elapsed());
                };
                let ino = fs.lookup(fs.root(), b"seen").unwrap().ino;
                time(&|| assert_eq!(fs.attributes(ino).unwrap().ino, ino));
                time(&|| fs.open(ino, OpenFlags::default()).unwrap());
                time(&|| fs.read_directory(fs.root(), 0, &mut |_| true).unwrap());
                fs.forget(ino, 1);
                thread::sleep(Duration::from_millis(1));
            }
            took
        });
        work();
        is_over.store(true, SeqCst);
        looker.join().unwrap()
    })
}

fn tell(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "{what}: {} operations, median {:?}, 99 % {:?}, 99.9 % {:?}, longest {:?}",
        took.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

#[test]
#[ignore = "measures"]
fn beside_a_slow_device() {
    for journal_bytes in [0, FormatOptions::DEFAULT_JOURNAL_BYTES] {
        let device = MemoryDevice::new(SIZE, 512);
        let options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
        format(&device, &options, &mut |_, _| ()).unwrap();
        let card = Arc::new(Card { device, is_slow: AtomicBool::new(false), busy: Mutex::new(()) });
        let fs = F2fs::open(card.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        fs.create(fs.root(), b"seen", &FILE, &Caller::default()).unwrap();
        let ino = fs.create(fs.root(), b"data", &FILE, &Caller::default()).unwrap().ino;
        let blocks = fs.stat_fs().unwrap().available * 4 / 5;
        let data = vec![7; 1 << 20];
        let write =
            |offset: u64, length: usize| assert_eq!(fs.write(ino, offset, &data[..length], false).unwrap(), length);
        (0..blocks / 256).for_each(|at| write(at << 20, data.len()));
        let mut rng = Rng::new(1);
        let mut overwrite = |pages: u64| (0..pages).for_each(|_| write(rng.below(blocks) * BLOCK, BLOCK as usize));
        // Every segment gets holes, so cleaning has work to do.
        overwrite(blocks / 2);
        fs.sync().unwrap();
        card.is_slow.store(true, SeqCst);
        let victims = fs.statistics().cleaning.total().victims;
        let took = look_during(&fs, || {
            overwrite((64 << 20) / BLOCK);
            fs.sync().unwrap();
        });
        let victims = fs.statistics().cleaning.total().victims - victims;
        tell(&format!("64 MiB written back, {victims} sections cleaned, journal of {journal_bytes} bytes"), took);
        let took = look_during(&fs, || {
            (0..32).for_each(|at| write(at << 20, data.len()));
            fs.sync_file(ino, false).unwrap();
        });
        tell("32 MiB in large writes, then fsync", took);
    }
}
