//! The volumes that are damaged: small, with something of everything, and old versions of nodes lying about.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::{Clock, F2fs, OpenOptions};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, RenameFlags, Time, XattrFlags};

const SIZE: u64 = 64 << 20;
const BLOCK: u64 = 4096;
/// First blocks that the first indirect node and the double indirect node lead to, with the addresses that an inode has itself.
const INDIRECT: u64 = 923 + 2 * 1018;
const DOUBLE_INDIRECT: u64 = INDIRECT + 2 * 1018 * 1018;

/// A clock that goes on by itself, so that every run makes the same volume.
#[derive(Default)]
pub struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Time {
        Time { seconds: 1_700_000_000 + self.0.fetch_add(1, Ordering::Relaxed), nanoseconds: 0 }
    }
}

/// Which volume is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// Cleanly unmounted.
    Clean,
    /// As a power cut leaves it: with fsynced files behind the checkpoint.
    Cut,
    /// Cleanly unmounted, with the room for attributes kept in each inode.
    Flexible,
}

impl Base {
    /// All of them.
    pub const ALL: [Base; 3] = [Base::Clean, Base::Cut, Base::Flexible];

    /// Makes the volume.
    pub fn make(self) -> MemoryDevice {
        let device = Arc::new(MemoryDevice::new(SIZE, 512));
        let mut features = FormatOptions::DEFAULT_FEATURES;
        if self == Base::Flexible {
            features |= Features::FLEXIBLE_INLINE_XATTR;
        }
        let options =
            FormatOptions { features, uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
        let clock = Arc::new(Ticking::default());
        let shared: Arc<dyn BlockDevice> = device.clone();
        let fs = F2fs::open(shared, OpenOptions::default(), clock).unwrap();
        let mut filler = Filler { fs: &fs, rng: Rng::new(1) };
        filler.fill();
        match self {
            Base::Cut => {
                filler.fsync_some();
                let left = device.snapshot();
                fs.close().unwrap();
                left
            }
            Base::Clean | Base::Flexible => {
                fs.close().unwrap();
                device.snapshot()
            }
        }
    }
}

struct Filler<'a> {
    fs: &'a F2fs,
    rng: Rng,
}

impl Filler<'_> {
    fn make(&self, parent: u64, name: &str, kind: FileKind, target: &[u8]) -> u64 {
        let node = NewNode { kind, permissions: 0o644, rdev: 0x0103, target };
        let caller = Caller { uid: 7, gid: 8, umask: 0 };
        let ino = self.fs.create(parent, name.as_bytes(), &node, &caller).unwrap().ino;
        self.fs.forget(ino, 1);
        ino
    }

    fn directory(&self, parent: u64, name: &str) -> u64 {
        self.make(parent, name, FileKind::Directory, b"")
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn file(&mut self, parent: u64, name: &str, length: u64) -> u64 {
        let ino = self.make(parent, name, FileKind::Regular, b"");
        let bytes = self.bytes(length);
        self.fs.write(ino, 0, &bytes, false).unwrap();
        ino
    }

    fn fill(&mut self) {
        let root = self.fs.root();
        self.special(root);
        // Small files, many in one directory: more than an inode and than the first blocks have room for.
        let crowd = self.directory(root, "crowd");
        for number in 0..260 {
            let length = [0, 40, 3000, 5000, 13_000][number % 5];
            self.file(crowd, &format!("a file with a rather long name {number}"), length);
        }
        let mut nested = root;
        for depth in 0..6 {
            nested = self.directory(nested, &format!("level {depth}"));
            for number in 0..8 {
                let length = self.rng.below(20_000);
                self.file(nested, &format!("file {depth}.{number}"), length);
            }
            self.fs.sync().unwrap();
        }
        self.large(root);
        self.age(root, crowd);
    }

    fn special(&mut self, root: u64) {
        for number in 0..4 {
            self.make(root, &format!("short link {number}"), FileKind::Symlink, b"../somewhere");
            let target = vec![b'x'; 200 + 900 * number];
            self.make(root, &format!("long link {number}"), FileKind::Symlink, &target);
            self.make(root, &format!("pipe {number}"), FileKind::Fifo, b"");
            self.make(root, &format!("device {number}"), FileKind::CharDevice, b"");
            let short = self.file(root, &format!("attributes {number}"), 100);
            self.fs.set_xattr(short, b"user.short", b"inline", XattrFlags::empty()).unwrap();
            let long = self.file(root, &format!("more attributes {number}"), 9000);
            self.fs.set_xattr(long, b"user.long", &vec![number as u8; 2000], XattrFlags::empty()).unwrap();
            let linked = self.file(root, &format!("linked {number}"), 6000);
            self.fs.link(linked, root, format!("second name {number}").as_bytes()).unwrap();
            self.fs.forget(linked, 1);
        }
    }

    /// Files with nodes below their inode, down to three levels.
    fn large(&mut self, root: u64) {
        let large = self.directory(root, "large");
        for number in 0..3 {
            let ino = self.file(large, &format!("long {number}"), (923 + 40) * BLOCK);
            let bytes = self.bytes(3 * BLOCK);
            for block in [923 + 1018 + 3, INDIRECT + 5, INDIRECT + 1018 * 1018 + 9, DOUBLE_INDIRECT + 7] {
                self.fs.write(ino, block * BLOCK, &bytes, false).unwrap();
            }
        }
        self.fs.sync().unwrap();
    }

    /// Deletes, overwrites and renames, so that old versions lie about.
    fn age(&mut self, root: u64, crowd: u64) {
        for round in 0..3u64 {
            for number in (0..260).filter(|number| number % 7 == round) {
                let name = format!("a file with a rather long name {number}");
                match number % 3 {
                    0 => self.fs.unlink(crowd, name.as_bytes()).unwrap(),
                    1 => {
                        let ino = self.fs.lookup(crowd, name.as_bytes()).unwrap().ino;
                        let bytes = self.bytes(7000);
                        self.fs.write(ino, 0, &bytes, false).unwrap();
                        self.fs.forget(ino, 1);
                    }
                    _ => {
                        let new = format!("renamed {number}");
                        let caller = Caller { uid: 7, gid: 8, umask: 0 };
                        let flags = RenameFlags::empty();
                        self.fs.rename(crowd, name.as_bytes(), root, new.as_bytes(), flags, &caller).unwrap();
                    }
                }
            }
            for number in 0..30 {
                self.file(root, &format!("new {round}.{number}"), 100 * number);
            }
            self.fs.sync().unwrap();
        }
    }

    /// Files behind the last checkpoint.
    fn fsync_some(&mut self) {
        let root = self.fs.root();
        for number in 0..12 {
            let ino = self.file(root, &format!("fsynced {number}"), 500 + 3000 * number);
            self.fs.sync_file(ino, false).unwrap();
        }
    }
}
