//! Volumes with content that is known, on devices that have room for larger ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, DeviceLayer, FileDevice};
use basalt_f2fs::check::{CheckOptions, Severity, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::resize::{ResizeReport, resize};
use basalt_f2fs::{Clock, Error, F2fs, OpenOptions, SystemClock};
use basalt_testkit::images::TOOLS;
use basalt_testkit::rng::Rng;
use basalt_testkit::scratch;
use basalt_testkit::skip::tools_or_skip;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, XattrFlags};

pub const MIB: u64 = 1 << 20;
/// Sector size of every device here.
pub const SECTOR: u32 = 512;
const FILE: NewNode<'static> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// A volume and what is in it: the content of every file, by name.
pub struct Volume {
    pub device: Arc<dyn BlockDevice>,
    pub files: BTreeMap<String, Vec<u8>>,
}

/// A sparse image file of some length.
pub struct Image {
    pub device: Arc<dyn BlockDevice>,
    /// Goes away with this.
    directory: Box<dyn AsRef<Path>>,
}

impl Image {
    pub fn new(length: u64) -> Image {
        let directory = Box::new(scratch::directory().unwrap());
        let device = FileDevice::create(directory.path().join("image"), length).unwrap();
        Image { device: Arc::new(device), directory }
    }

    /// `fsck.f2fs` finds nothing either.
    pub fn expect_clean_for_linux(&self) {
        if tools_or_skip(TOOLS) {
            self.device.flush().unwrap();
            basalt_testkit::images::fsck_f2fs(&(*self.directory).as_ref().join("image")).unwrap().expect_clean();
        }
    }
}

/// The front of a device.
struct Front {
    device: Arc<dyn BlockDevice>,
    size: u64,
}

impl DeviceLayer for Front {
    type Below = dyn BlockDevice;
    fn below(&self) -> &Self::Below {
        &*self.device
    }
    fn layer_size(&self) -> u64 {
        self.size
    }
}

pub fn open(device: Arc<dyn BlockDevice>) -> Result<F2fs, Error> {
    // Small caches: what is moved must really be read again.
    F2fs::open(device, OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::default() }, clock())
}

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

pub fn resized(device: &Arc<dyn BlockDevice>, size: u64) -> Result<ResizeReport, Error> {
    resize(device, size, &OpenOptions::default(), &clock(), &mut |_, done, total| assert!(done <= total))
}

/// A volume of `size` bytes at the front of the device, with about `bytes` in `count` files, overwritten and deleted in parts, so that
/// no segment is of one piece.
pub fn filled(
    device: Arc<dyn BlockDevice>,
    size: u64,
    options: &FormatOptions,
    count: u32,
    bytes: u64,
    seed: u64,
) -> Volume {
    let front = Arc::new(Front { device: device.clone(), size });
    format(&*front, &FormatOptions { discard_reads_zeros: true, ..options.clone() }, &mut |_, _| ()).unwrap();
    let fs = open(device.clone()).unwrap();
    let mut rng = Rng::new(seed);
    let mut files = BTreeMap::new();
    let caller = Caller::default();
    let directory = NewNode { kind: FileKind::Directory, permissions: 0o755, ..FILE };
    let inner = fs.create(fs.root(), b"inner", &directory, &caller).unwrap().ino;
    for number in 0..count {
        let content = random(&mut rng, 2 * bytes / u64::from(count));
        let (parent, path) =
            if number % 2 == 0 { (fs.root(), format!("{number}")) } else { (inner, format!("inner/{number}")) };
        let name = number.to_string();
        let ino = fs.create(parent, name.as_bytes(), &FILE, &caller).unwrap().ino;
        fs.write(ino, 0, &content, false).unwrap();
        fs.set_xattr(ino, b"user.number", name.as_bytes(), XattrFlags::empty()).unwrap();
        if number % 5 == 4 {
            fs.sync().unwrap();
        }
        if number % 3 == 2 {
            fs.unlink(parent, name.as_bytes()).unwrap();
        } else {
            files.insert(path, content);
        }
        fs.forget(ino, 1);
    }
    for (path, content) in &mut files {
        let ino = look_up(&fs, path);
        if rng.chance(50) && content.len() > 20_000 {
            let patch = random(&mut rng, 10_000);
            let at = rng.size(content.len() as u64 - 10_000) as usize;
            content[at..at + patch.len()].copy_from_slice(&patch);
            fs.write(ino, at as u64, &patch, false).unwrap();
        }
        fs.forget(ino, 1);
    }
    fs.close().unwrap();
    Volume { device, files }
}

fn random(rng: &mut Rng, most: u64) -> Vec<u8> {
    let length = rng.size(most) as usize;
    let seed = rng.size(u64::MAX - 1);
    (0..length as u64).map(|at| (at.wrapping_mul(seed | 1) >> 13) as u8).collect()
}

fn look_up(fs: &F2fs, path: &str) -> u64 {
    let (parent, name) = match path.split_once('/') {
        Some((directory, name)) => (fs.lookup(fs.root(), directory.as_bytes()).unwrap().ino, name),
        None => (fs.root(), path),
    };
    fs.lookup(parent, name.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}")).ino
}

impl Volume {
    /// Resizes it, and expects that nothing else changed.
    pub fn resize(&self, size: u64) -> ResizeReport {
        let report = resized(&self.device, size).unwrap_or_else(|error| panic!("to {size}: {error}"));
        self.expect_whole(&format!("resized to {size}"));
        report
    }

    /// Every file is there, and nobody finds anything wrong.
    pub fn expect_whole(&self, context: &str) {
        expect_clean(&*self.device, context);
        let fs = open(self.device.clone()).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(fs.warnings(), Vec::<String>::new(), "{context}");
        expect_files(&fs, &self.files, context);
        fs.close().unwrap();
    }

    /// Writes, removes and syncs on the resized volume: all of its room can be used.
    pub fn use_all(&mut self) {
        let fs = open(self.device.clone()).unwrap();
        let free = fs.stat_fs().unwrap().free * 4096;
        let ino = fs.create(fs.root(), b"large", &FILE, &Caller::default()).unwrap().ino;
        let content = vec![7; 1 << 20];
        // At most 600 MiB: it takes time.
        for at in 0..((free * 9 / 10) >> 20).min(600) {
            fs.write(ino, at << 20, &content, false).unwrap_or_else(|error| panic!("MiB {at} of {free}: {error}"));
        }
        fs.forget(ino, 1);
        fs.sync().unwrap();
        fs.unlink(fs.root(), b"large").unwrap();
        fs.close().unwrap();
        self.expect_whole("filled and emptied");
    }
}

pub fn expect_files(fs: &F2fs, files: &BTreeMap<String, Vec<u8>>, context: &str) {
    for (path, content) in files {
        let ino = look_up(fs, path);
        let mut found = vec![0; content.len() + 1];
        let length = fs.read(ino, 0, &mut found).unwrap_or_else(|error| panic!("{context}: {path}: {error}"));
        assert!(found[..length] == content[..], "{context}: {path} has other content");
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(fs.get_xattr(ino, b"user.number").unwrap(), name.as_bytes(), "{context}: {path}");
        fs.forget(ino, 1);
    }
    let mut count = 0;
    fs.read_directory(fs.root(), 0, &mut |_| {
        count += 1;
        true
    })
    .unwrap();
    let expected = files.keys().filter(|path| !path.contains('/')).count();
    assert!(count >= expected, "{context}: {count} entries");
}

pub fn expect_clean(device: &dyn BlockDevice, context: &str) {
    let report = check(device, &CheckOptions::default(), &mut |_| ()).unwrap_or_else(|e| panic!("{context}: {e}"));
    let faults: Vec<String> =
        report.faults.iter().filter(|fault| fault.severity > Severity::Note).map(ToString::to_string).collect();
    assert!(report.complete && faults.is_empty(), "{context}: {faults:#?}");
}
