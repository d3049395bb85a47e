//! Volumes filled to the last block and emptied again, fifty times, with all that takes space: nothing is lost on the way, every
//! call returns, and deleting always works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Error, FileKind, FileSystem, InodeNumber, NewNode, XattrFlags};

/// Times a volume is filled and emptied.
const ROUNDS: u32 = 50;
/// Refusals after which a volume counts as full.
const REFUSALS: u32 = 8;
/// The longest that a call may take: far more than the slowest machine needs, far less than for ever.
const LONGEST: Duration = Duration::from_secs(20);

/// What fills the volume.
#[derive(Clone, Copy, Debug, PartialEq)]
enum With {
    Files,
    Directories,
    Xattrs,
    /// Files, each write followed by fsync.
    SyncedFiles,
}

struct Full {
    fs: F2fs,
    device: Arc<dyn BlockDevice>,
    with: With,
    rng: Rng,
    slowest: Duration,
}

impl Full {
    fn new(with: With, segments_per_section: u32, mib: u64) -> Full {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(mib << 20, 512));
        let options = FormatOptions {
            segments_per_section,
            discard_reads_zeros: true,
            uuid: Some([7; 16]),
            journal_bytes: FormatOptions::DEFAULT_JOURNAL_BYTES,
            ..FormatOptions::default()
        };
        format(&*device, &options, &mut |_, _| {}).unwrap();
        let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        Full { fs, device, with, rng: Rng::new(17), slowest: Duration::ZERO }
    }

    /// Runs one call and takes its time; `None` if the volume is full.
    fn call<T>(&mut self, what: &str, call: impl FnOnce(&F2fs) -> basalt_vfs::Result<T>) -> Option<T> {
        let start = Instant::now();
        let result = call(&self.fs);
        let took = start.elapsed();
        assert!(took < LONGEST, "{what} took {took:?}");
        self.slowest = self.slowest.max(took);
        match result {
            Ok(value) => Some(value),
            Err(Error::NoSpace) => None,
            Err(error) => panic!("{what} with {:?}: {error}", self.with),
        }
    }

    /// Makes things in a new directory until the volume has refused often enough; returns how many there are.
    fn fill(&mut self, round: u32) -> u32 {
        let root = self.fs.root();
        let name = format!("round {round}");
        let Some(top) = self.make(root, &name, FileKind::Directory) else { panic!("no room for a directory") };
        let (mut made, mut refusals) = (0, 0);
        while refusals < REFUSALS {
            let name = format!("{made} {}", "n".repeat(self.rng.index(100)));
            let kind = if self.with == With::Directories { FileKind::Directory } else { FileKind::Regular };
            let Some(ino) = self.make(top, &name, kind) else {
                refusals += 1;
                continue;
            };
            made += 1;
            let fits = kind == FileKind::Directory || self.put(ino).is_some();
            refusals += u32::from(!fits);
            self.fs.forget(ino, 1);
        }
        self.fs.forget(top, 1);
        made
    }

    fn make(&mut self, parent: InodeNumber, name: &str, kind: FileKind) -> Option<InodeNumber> {
        let node = NewNode { kind, permissions: 0o755, rdev: 0, target: b"" };
        let made = self.call("create", |fs| fs.create(parent, name.as_bytes(), &node, &Caller::default()))?;
        Some(made.ino)
    }

    /// Gives a file what it takes space with.
    fn put(&mut self, ino: InodeNumber) -> Option<()> {
        if self.with == With::Xattrs {
            let value = vec![1; self.rng.between(1_000, 3_000) as usize];
            return self.call("setxattr", |fs| fs.set_xattr(ino, b"user.filler", &value, XattrFlags::empty()));
        }
        let length = self.rng.between(1, 96 << 10) as usize;
        let data = vec![ino as u8; length];
        self.call("write", |fs| fs.write(ino, 0, &data, false))?;
        if self.with == With::SyncedFiles {
            self.call("fsync", |fs| fs.sync_file(ino, false))?;
        }
        Some(())
    }

    /// Removes everything that a round made: that always works.
    fn empty(&mut self, round: u32) {
        let root = self.fs.root();
        let name = format!("round {round}");
        let top = self.call("lookup", |fs| fs.lookup(root, name.as_bytes())).unwrap().ino;
        let mut names = Vec::new();
        self.fs
            .read_directory(top, 0, &mut |entry| {
                names.push((entry.name.to_vec(), entry.kind));
                true
            })
            .unwrap();
        for (name, kind) in names.iter().filter(|(name, _)| name != b"." && name != b"..") {
            let removed = match kind {
                FileKind::Directory => self.call("rmdir", |fs| fs.remove_directory(top, name)),
                _ => self.call("unlink", |fs| fs.unlink(top, name)),
            };
            assert!(removed.is_some(), "no space to delete {:?}", String::from_utf8_lossy(name));
        }
        self.call("rmdir", |fs| fs.remove_directory(root, name.as_bytes())).expect("no space to delete");
        self.fs.forget(top, 1);
    }
}

fn fill_and_empty(with: With, segments_per_section: u32, mib: u64) {
    let mut full = Full::new(with, segments_per_section, mib);
    let empty = full.fs.stat_fs().unwrap();
    let mut counts = Vec::new();
    for round in 0..ROUNDS {
        counts.push(full.fill(round));
        if round % 4 == 1 {
            full.call("sync", |fs| fs.sync()).expect("no space to sync");
        }
        full.empty(round);
        let now = full.fs.stat_fs().unwrap();
        assert_eq!((now.free, now.files_free), (empty.free, empty.files_free), "round {round} of {with:?}");
    }
    println!("{with:?}: {counts:?}, slowest call {:?}", full.slowest);
    let most = counts.iter().max().copied().unwrap();
    let least = counts.iter().min().copied().unwrap();
    // Sizes are random: the sum of many differs a little from round to round.
    assert!(least * 100 >= most * 85, "capacity changed: {counts:?}");
    full.fs.close().unwrap();
    let report = check(&*full.device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults.first());
}

#[test]
fn files() {
    fill_and_empty(With::Files, 1, 64);
    fill_and_empty(With::Files, 4, 160);
}

#[test]
fn directories() {
    fill_and_empty(With::Directories, 1, 64);
}

#[test]
fn xattrs() {
    fill_and_empty(With::Xattrs, 2, 96);
}

#[test]
fn files_with_fsync_after_each_write() {
    fill_and_empty(With::SyncedFiles, 1, 64);
}
