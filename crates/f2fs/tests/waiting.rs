//! Whoever does not write waits for no request of those who do: the volume's lock is not held over requests to the device.
//!
//! The device here has a witness: a thread that uses the volume. During a request of somebody else, the witness must come through.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice, Result};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode, OpenFlags, Time};

const SIZE: u64 = 128 << 20;
const BLOCK: u64 = 4096;
/// A request that reads so much reads file content or a victim of cleaning, not one node.
const LARGE_READ: usize = 2 * BLOCK as usize;
/// How long a witness may take who does nothing but look into memory, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks the witness, and hears from him.
struct Line {
    ask: Sender<()>,
    answer: Receiver<()>,
    witness: ThreadId,
}

#[derive(Default)]
struct Findings {
    line: Option<Line>,
    asked: u64,
    waited_for: Vec<String>,
}

struct Witnessed {
    device: MemoryDevice,
    findings: Mutex<Findings>,
}

impl Witnessed {
    fn ask(&self, request: impl Fn() -> String) {
        // Requests of two threads at once: one is enough.
        let Ok(mut findings) = self.findings.try_lock() else { return };
        let Some(line) = &findings.line else { return };
        if thread::current().id() == line.witness {
            return;
        }
        line.ask.send(()).unwrap();
        let answer = line.answer.recv_timeout(PATIENCE);
        findings.asked += 1;
        if answer == Err(RecvTimeoutError::Timeout) {
            let trace = std::backtrace::Backtrace::force_capture().to_string();
            let ours: Vec<&str> = trace.lines().filter(|line| line.contains("basalt_f2fs::")).take(8).collect();
            findings.waited_for.push(format!("{}\n{}", request(), ours.join("\n")));
            findings.line = None;
        }
    }
}

impl DeviceLayer for Witnessed {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.device
    }
    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.len() >= LARGE_READ {
            self.ask(|| format!("read of {} bytes at {offset}", buf.len()));
        }
        self.device.read_at(offset, buf)
    }
    fn on_flush(&self) -> Result<()> {
        self.ask(|| "flush".to_owned());
        self.device.flush()
    }
    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.ask(|| format!("discard of {length} bytes at {offset}"));
        self.device.discard(offset, length)
    }
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.ask(|| format!("write of {} bytes at {offset}", slices.concat().len()));
        self.device.write_vectored_at(offset, slices)
    }
}

const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

/// What a program does that only looks, in a directory that nobody changes.
fn look(fs: &F2fs, directory: InodeNumber) {
    let ino = fs.lookup(directory, b"seen").unwrap().ino;
    fs.attributes(ino).unwrap();
    fs.open(ino, OpenFlags::default()).unwrap();
    let mut names = 0;
    fs.read_directory(directory, 0, &mut |_| {
        names += 1;
        true
    })
    .unwrap();
    assert!(names >= 3, "{names} names");
    fs.forget(ino, 1);
}

/// Lets the witness go, however the work ends.
struct HangUp<'a>(&'a Witnessed);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        self.0.findings.lock().unwrap().line = None;
    }
}

/// Has `work` done on a fresh volume with a witness, and says what he waited for.
fn witnessed(journal: bool, options: OpenOptions, work: impl FnOnce(&F2fs)) {
    let asked = witnessed_on(SIZE, journal, options, work);
    assert!(asked > 10, "asked {asked} times");
}

/// As [`witnessed`], on a volume of `size` bytes; how often the witness was asked.
fn witnessed_on(size: u64, journal: bool, options: OpenOptions, work: impl FnOnce(&F2fs)) -> u64 {
    let device = MemoryDevice::new(size, 512);
    let journal_bytes = if journal { FormatOptions::DEFAULT_JOURNAL_BYTES } else { 0 };
    let format_options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&device, &format_options, &mut |_, _| ()).unwrap();
    let device = Arc::new(Witnessed { device, findings: Mutex::default() });
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    let kind = NewNode { kind: FileKind::Directory, permissions: 0o755, ..FILE };
    let directory = fs.create(fs.root(), b"directory", &kind, &Caller::default()).unwrap().ino;
    fs.create(directory, b"seen", &FILE, &Caller::default()).unwrap();
    fs.sync().unwrap();
    // From here on, no access time is due.
    look(&fs, directory);
    thread::scope(|scope| {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let fs = &fs;
        let witness = scope.spawn(move || {
            while asked.recv().is_ok() {
                look(fs, directory);
                if answer.send(()).is_err() {
                    break;
                }
            }
        });
        let line = Line { ask, answer: answers, witness: witness.thread().id() };
        device.findings.lock().unwrap().line = Some(line);
        let _hang_up = HangUp(&device);
        work(fs);
    });
    let findings = device.findings.lock().unwrap();
    assert!(findings.waited_for.is_empty(), "waited for a {}", findings.waited_for.join("\nand for a "));
    findings.asked
}

#[test]
fn large_writes_and_reads() {
    witnessed(false, OpenOptions::default(), |fs| {
        let ino = create(fs, "large");
        let data = vec![7; 1 << 20];
        (0..24).for_each(|at| assert_eq!(fs.write(ino, at << 20, &data, false).unwrap(), data.len()));
        let mut back = vec![0; 1 << 20];
        (0..24).for_each(|at| assert_eq!(fs.read(ino, at << 20, &mut back).unwrap(), data.len()));
    });
}

#[test]
fn write_back_by_sync() {
    witnessed(false, OpenOptions::default(), |fs| {
        let ino = create(fs, "small pieces");
        let data = vec![7; BLOCK as usize];
        (0..8192).for_each(|at| assert_eq!(fs.write(ino, at * BLOCK, &data, false).unwrap(), data.len()));
        fs.sync().unwrap();
    });
}

#[test]
fn write_back_by_fsync() {
    witnessed(false, OpenOptions::default(), |fs| {
        let ino = create(fs, "small pieces");
        let data = vec![7; BLOCK as usize];
        (0..8192).for_each(|at| assert_eq!(fs.write(ino, at * BLOCK, &data, false).unwrap(), data.len()));
        fs.sync_file(ino, false).unwrap();
    });
}

/// Ends writing behind, however the work ends.
struct EndWriteBehind<'a>(&'a F2fs);

impl Drop for EndWriteBehind<'_> {
    fn drop(&mut self) {
        self.0.end_write_behind();
    }
}

#[test]
fn writing_behind() {
    let options = OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() };
    // Of requests that two threads make at once one asks: how many do is the machine's to say.
    let asked = witnessed_on(SIZE, false, options, |fs| {
        thread::scope(|scope| {
            scope.spawn(|| fs.write_behind());
            let _end = EndWriteBehind(fs);
            let ino = create(fs, "large");
            let data = vec![7; 1 << 20];
            (0..48).for_each(|at| assert_eq!(fs.write(ino, (at % 24) << 20, &data, false).unwrap(), data.len()));
            fs.sync().unwrap();
        });
    });
    assert!(asked > 0);
}

/// More nodes than may wait for the device at once.
#[test]
fn a_checkpoint_of_many_nodes() {
    let options = OpenOptions { cache_bytes: 1 << 30, ..OpenOptions::default() };
    let asked = witnessed_on(2 << 30, false, options, |fs| {
        for name in 0..20_000 {
            let ino = create(fs, &format!("file {name}"));
            fs.forget(ino, 1);
        }
        fs.sync().unwrap();
    });
    assert!(asked > 10, "asked {asked} times");
}

#[test]
fn a_trim() {
    let options = OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() };
    witnessed(true, options, |fs| {
        let data = vec![7; 1 << 20];
        for number in 0..12 {
            let ino = create(fs, &format!("file {number}"));
            assert_eq!(fs.write(ino, 0, &data, false).unwrap(), data.len());
        }
        let discarded = fs.trim(0, u64::MAX, 0).unwrap();
        assert!(discarded >= 32 << 20, "{discarded} bytes were free");
    });
}

#[test]
fn write_back_over_the_limit() {
    let options = OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() };
    witnessed(false, options, |fs| {
        let ino = create(fs, "small pieces");
        let data = vec![7; BLOCK as usize];
        (0..8192).for_each(|at| assert_eq!(fs.write(ino, at * BLOCK, &data, false).unwrap(), data.len()));
    });
}

/// Fills most of a volume, and overwrites that in pieces until it was cleaned a lot.
fn overwrite(fs: &F2fs, seed: u64) -> InodeNumber {
    let blocks = fs.stat_fs().unwrap().available * 4 / 5;
    let ino = create(fs, "overwritten");
    let data = vec![7; 1 << 20];
    (0..blocks / 256).for_each(|at| assert_eq!(fs.write(ino, at << 20, &data, false).unwrap(), data.len()));
    let mut rng = Rng::new(seed);
    while fs.statistics().cleaning.foreground.victims < 20 {
        let at = rng.below(blocks / 256 * 256);
        assert_eq!(fs.write(ino, at * BLOCK, &data[..BLOCK as usize], false).unwrap(), BLOCK as usize);
    }
    ino
}

/// Each reads what it cleans before it takes the lock, and nothing twice.
#[test]
fn cleaning_by_several_writers() {
    witnessed(true, OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() }, |fs| {
        let ino = overwrite(fs, 4);
        let before = fs.statistics().cleaning.foreground;
        let blocks = fs.attributes(ino).unwrap().size / BLOCK;
        thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    let mut rng = Rng::new(writer);
                    while fs.statistics().cleaning.foreground.victims < before.victims + 20 {
                        let at = rng.below(blocks) * BLOCK;
                        assert_eq!(fs.write(ino, at, &[9; BLOCK as usize], false).unwrap(), BLOCK as usize);
                    }
                });
            }
        });
    });
}

#[test]
fn cleaning_committed_by_checkpoints() {
    witnessed(false, OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() }, |fs| {
        overwrite(fs, 1);
    });
}

#[test]
fn cleaning_committed_by_the_journal() {
    witnessed(true, OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() }, |fs| {
        overwrite(fs, 2);
    });
}

#[test]
fn background_cleaning_and_discards() {
    let options = OpenOptions { idle_after: Duration::ZERO, cache_bytes: 8 << 20, ..OpenOptions::default() };
    witnessed(true, options, |fs| {
        overwrite(fs, 3);
        for seconds in 0..200 {
            fs.tick(Time { seconds, nanoseconds: 0 });
        }
    });
}

/// A device with one flush that lasts until somebody writes.
struct LongFlush {
    device: MemoryDevice,
    /// Who hears that it has begun, and who tells of a write.
    line: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    written: Mutex<Option<Sender<()>>>,
    was_written: Mutex<Option<bool>>,
}

impl DeviceLayer for LongFlush {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.device
    }
    fn on_flush(&self) -> Result<()> {
        let line = self.line.lock().unwrap().take();
        if let Some((begun, written)) = line {
            // What was written before is no news.
            while written.try_recv().is_ok() {}
            begun.send(()).unwrap();
            *self.was_written.lock().unwrap() = Some(written.recv_timeout(PATIENCE).is_ok());
        }
        self.device.flush()
    }
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.device.write_vectored_at(offset, slices)?;
        if let Some(written) = &*self.written.lock().unwrap() {
            let _ = written.send(());
        }
        Ok(())
    }
}

/// An fsync hands its writes to the device at once, though it waits for the next flush.
#[test]
fn an_fsync_writes_while_another_flushes() {
    let device = MemoryDevice::new(SIZE, 512);
    let format_options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&device, &format_options, &mut |_, _| ()).unwrap();
    let (line, written, was_written) = Default::default();
    let device = Arc::new(LongFlush { device, line, written, was_written });
    let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let (first, second) = (create(&fs, "first"), create(&fs, "second"));
    fs.sync().unwrap();
    for ino in [first, second] {
        assert_eq!(fs.write(ino, 0, &[7; BLOCK as usize], false).unwrap(), BLOCK as usize);
    }
    let (begin, begun) = channel();
    let (write, written) = channel();
    *device.written.lock().unwrap() = Some(write);
    *device.line.lock().unwrap() = Some((begin, written));
    thread::scope(|scope| {
        scope.spawn(|| fs.sync_file(first, false).unwrap());
        begun.recv().unwrap();
        fs.sync_file(second, false).unwrap();
    });
    assert_eq!(*device.was_written.lock().unwrap(), Some(true), "nothing was written during the flush");
}
