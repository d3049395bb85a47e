//! Several fsyncs at once: what one of them has handed to a flush is not durable for the others before that flush has ended.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use basalt_device::block::Result;
use basalt_device::power::{Change, Fate};
use basalt_device::{BlockDevice, DeviceLayer, PowerCutDevice, Replay};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileSystem};
use parking_lot::Mutex;

use super::power::{Bench, FILE};

/// How long another thread gets to write something while a flush runs. It writes nothing if all is well.
const PATIENCE: Duration = Duration::from_millis(500);

type Hook = Box<dyn FnOnce() + Send>;

/// Does something at the beginning of its next flush.
struct Hooked {
    inner: PowerCutDevice,
    hook: Mutex<Option<Hook>>,
}

impl DeviceLayer for Hooked {
    type Below = PowerCutDevice;

    fn below(&self) -> &PowerCutDevice {
        &self.inner
    }

    fn on_flush(&self) -> Result<()> {
        let hook = self.hook.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        self.inner.flush()
    }
}

fn is_of(change: &Change, value: u8) -> bool {
    matches!(change, Change::Write { data, .. } if data.first() == Some(&value) && data.iter().all(|byte| *byte == value))
}

/// A large fsync flushes what no seal can list. A small one meanwhile must not count that as durable: after a cut in which it is lost,
/// the small file has the version that its last fsync made durable.
#[test]
fn a_small_fsync_waits_for_what_a_large_one_flushes() {
    let (old, new) = (vec![0x11; 65_536], vec![0x22; 65_536]);
    let device = Arc::new(Hooked { inner: PowerCutDevice::new(Bench::new().device.cut()), hook: Mutex::default() });
    let fs = Arc::new(F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap());
    let make = |name: &[u8]| fs.create(fs.root(), name, &FILE, &Caller::default()).unwrap().ino;
    let (large, small) = (make(b"large"), make(b"small"));
    fs.sync().unwrap();
    fs.write(small, 0, &old, false).unwrap();
    fs.sync_file(small, false).unwrap();
    fs.write(small, 0, &new, false).unwrap();
    fs.write(large, 0, &vec![0x33; 3 << 20], false).unwrap();
    let (tell, threads) = mpsc::channel();
    let (inside, watched) = (fs.clone(), device.clone());
    *device.hook.lock() = Some(Box::new(move || {
        let before = watched.inner.position();
        tell.send(std::thread::spawn(move || inside.sync_file(small, false))).unwrap();
        let start = Instant::now();
        while watched.inner.position() == before && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }));
    fs.sync_file(large, false).unwrap();
    threads.recv().unwrap().join().unwrap().unwrap();
    let history = device.inner.history();
    let written = history.changes.iter().position(|change| is_of(change, 0x22)).unwrap();
    let flush = written + history.changes[written..].iter().position(|change| *change == Change::Flush).unwrap();
    // While the flush ran, the device had everything but the small file's new data.
    let fate = |change: &Change| if is_of(change, 0x22) { Fate::Lost } else { Fate::Kept };
    let left = Replay::new(&history).cut(flush, |cached| cached.iter().map(fate).collect());
    let found = Bench::open(left).read("small").unwrap();
    assert!(found == old || found == new, "neither version, but {} bytes of {:02x?}", found.len(), found.first());
}

/// Two fsync one file. The second finds nothing to write, but what the first has written is durable only when its flush is over.
#[test]
fn an_fsync_with_nothing_to_write_waits_for_the_one_that_wrote() {
    for data_only in [false, true] {
        let device = Arc::new(Hooked { inner: PowerCutDevice::new(Bench::new().device.cut()), hook: Mutex::default() });
        let fs = Arc::new(F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap());
        let ino = fs.create(fs.root(), b"file", &FILE, &Caller::default()).unwrap().ino;
        fs.sync().unwrap();
        fs.write(ino, 0, &[0x22; 65_536], false).unwrap();
        let (tell, told) = mpsc::channel();
        let inside = fs.clone();
        *device.hook.lock() = Some(Box::new(move || {
            let second = std::thread::spawn(move || inside.sync_file(ino, data_only));
            let start = Instant::now();
            while !second.is_finished() && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            tell.send((second.is_finished(), second)).unwrap();
        }));
        fs.sync_file(ino, false).unwrap();
        let (is_early, second) = told.recv().unwrap();
        second.join().unwrap().unwrap();
        assert!(!is_early, "data only {data_only}: the second fsync returned before the device had flushed anything");
    }
}
