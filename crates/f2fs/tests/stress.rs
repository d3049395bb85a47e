//! Many threads on one volume, each with files of its own and some in common, while others sync and work in the background.
//!
//! `BASALT_STRESS_SECONDS=300` goes on for so long (2 without it), `BASALT_SEED` changes what is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use basalt_device::MemoryDevice;
use basalt_f2fs::check::{CheckOptions, Severity, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Clock, F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Error, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags, SetAttributes};

const THREADS: u64 = 12;
/// Names that a thread uses.
const NAMES: u64 = 24;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
const DIRECTORY: NewNode<'_> = NewNode { kind: FileKind::Directory, permissions: 0o755, ..FILE };

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

/// One thread's directory, and what must be in it.
struct Worker {
    seed: u64,
    rng: Rng,
    home: InodeNumber,
    files: BTreeMap<String, Vec<u8>>,
}

impl Worker {
    fn new(fs: &F2fs, thread: u64, seed: u64) -> Worker {
        let name = format!("home{thread}");
        let home = fs.create(fs.root(), name.as_bytes(), &DIRECTORY, &Caller::default()).unwrap().ino;
        Worker { seed, rng: Rng::new(seed * 100 + thread), home, files: BTreeMap::new() }
    }

    fn step(&mut self, fs: &F2fs, common: InodeNumber) {
        let name = format!("name{}", self.rng.below(NAMES));
        match self.rng.below(20) {
            0..7 => self.write(fs, &name),
            7..9 => self.truncate(fs, &name),
            9..11 => self.rename(fs, &name),
            11..13 => self.unlink(fs, &name),
            13..16 => self.sync(fs, &name),
            16 => fs.sync().unwrap(),
            17..19 => self.contend(fs, common),
            _ => self.list(fs),
        }
        self.expect(fs, &name);
    }

    fn with<T>(&self, fs: &F2fs, name: &str, work: impl FnOnce(InodeNumber) -> T) -> Option<T> {
        let ino = fs.lookup(self.home, name.as_bytes()).ok()?.ino;
        let result = work(ino);
        fs.forget(ino, 1);
        Some(result)
    }

    fn write(&mut self, fs: &F2fs, name: &str) {
        if !self.files.contains_key(name) {
            let ino = fs.create(self.home, name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            fs.forget(ino, 1);
        }
        let content = self.files.entry(name.to_owned()).or_default();
        let mut data = vec![0; self.rng.size(120_000) as usize];
        self.rng.fill(&mut data);
        let offset = self.rng.below((content.len() as u64 + 5_000).min(200_000)) as usize;
        if !data.is_empty() {
            content.resize(content.len().max(offset + data.len()), 0);
            content[offset..offset + data.len()].copy_from_slice(&data);
        }
        self.with(fs, name, |ino| fs.write(ino, offset as u64, &data, false).unwrap());
    }

    fn truncate(&mut self, fs: &F2fs, name: &str) {
        let Some(content) = self.files.get_mut(name) else { return };
        let size = self.rng.below(content.len() as u64 + 10_000);
        content.resize(size as usize, 0);
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.with(fs, name, |ino| fs.set_attributes(ino, &changes).unwrap());
    }

    fn rename(&mut self, fs: &F2fs, name: &str) {
        let to = format!("name{}", self.rng.below(NAMES));
        let renamed =
            fs.rename(self.home, name.as_bytes(), self.home, to.as_bytes(), RenameFlags::empty(), &Caller::default());
        assert_eq!(renamed.is_ok(), self.files.contains_key(name), "{renamed:?}");
        if let Some(content) = self.files.remove(name) {
            self.files.insert(to, content);
        }
    }

    fn unlink(&mut self, fs: &F2fs, name: &str) {
        let removed = fs.unlink(self.home, name.as_bytes());
        assert_eq!(removed.is_ok(), self.files.remove(name).is_some(), "{removed:?}");
    }

    fn sync(&mut self, fs: &F2fs, name: &str) {
        let data_only = self.rng.chance(50);
        self.with(fs, name, |ino| fs.sync_file(ino, data_only).unwrap());
    }

    /// A few names in a directory of all: everything may happen but damage.
    fn contend(&mut self, fs: &F2fs, common: InodeNumber) {
        let names = [self.rng.below(5), self.rng.below(5)].map(|number| format!("common{number}"));
        let [from, to] = names.each_ref().map(|name| name.as_bytes());
        let result = match self.rng.below(4) {
            0 => fs.create(common, from, &FILE, &Caller::default()).and_then(|made| {
                let written = fs.write(made.ino, 0, &[7; 9_000], false).and_then(|_| fs.sync_file(made.ino, false));
                fs.forget(made.ino, 1);
                written
            }),
            1 => fs.unlink(common, from),
            2 => fs.rename(common, from, common, to, RenameFlags::empty(), &Caller::default()),
            _ => fs.lookup(common, from).and_then(|found| {
                let linked = fs.link(found.ino, common, to).map(|_| fs.forget(found.ino, 1));
                fs.forget(found.ino, 1);
                linked
            }),
        };
        if let Err(error) = result {
            assert!(matches!(error, Error::NotFound | Error::Exists), "seed {}: {error}", self.seed);
        }
    }

    fn list(&self, fs: &F2fs) {
        let mut names = Vec::new();
        fs.read_directory(self.home, 0, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        })
        .unwrap();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        assert!(names.iter().eq(self.files.keys()), "seed {}: {names:?}", self.seed);
    }

    fn expect(&self, fs: &F2fs, name: &str) {
        let found = self.with(fs, name, |ino| {
            let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
            let got = fs.read(ino, 0, &mut bytes).unwrap();
            assert_eq!(got, bytes.len());
            bytes
        });
        assert!(found.as_ref() == self.files.get(name), "seed {}: {name} in inode {}", self.seed, self.home);
    }

    fn expect_all(&self, fs: &F2fs) {
        self.list(fs);
        self.files.keys().for_each(|name| self.expect(fs, name));
    }
}

fn open(device: &Arc<MemoryDevice>) -> F2fs {
    // A small cache, so that much is written back and read again.
    let options = OpenOptions { cache_bytes: 2 << 20, ..OpenOptions::default() };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

#[test]
fn threads_find_what_they_wrote() {
    let (seconds, seed) = (number("BASALT_STRESS_SECONDS", 2), number("BASALT_SEED", 1));
    let device = Arc::new(MemoryDevice::new(192 << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| {}).unwrap();
    let fs = open(&device);
    let common = fs.create(fs.root(), b"common", &DIRECTORY, &Caller::default()).unwrap().ino;
    let mut workers: Vec<Worker> = (0..THREADS).map(|thread| Worker::new(&fs, thread, seed)).collect();
    let (over, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let (fs, over, steps) = (&fs, &over, &steps);
        let background = scope.spawn(move || {
            while !over.load(SeqCst) {
                let next = fs.tick(SystemClock.now()).next;
                std::thread::sleep(next.min(Duration::from_millis(20)));
            }
        });
        let working: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                scope.spawn(move || {
                    while Instant::now() < end && !over.load(SeqCst) {
                        worker.step(fs, common);
                        steps.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        let ended: Vec<bool> = working.into_iter().map(|thread| thread.join().is_ok()).collect();
        over.store(true, SeqCst);
        background.join().unwrap();
        assert!(ended.iter().all(|ended| *ended), "seed {seed}: see above");
    });
    workers.iter().for_each(|worker| worker.expect_all(&fs));
    assert_eq!(fs.failure(), None);
    fs.close().unwrap();
    drop(fs);
    let report = check(&*device, &CheckOptions { max_faults: 8 }, &mut |_| {}).unwrap();
    let faults: Vec<_> = report.faults.iter().filter(|fault| fault.severity != Severity::Note).collect();
    assert!(faults.is_empty(), "seed {seed}: {faults:?}");
    let fs = open(&device);
    workers.iter().for_each(|worker| worker.expect_all(&fs));
    let steps = steps.into_inner();
    println!("seed {seed}: {steps} operations by {THREADS} threads in {seconds} s");
    assert!(steps > 200, "only {steps} operations");
}
