//! The volumes that are tested: features, sections, logs, caches; and the clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::{Atime, Clock, F2fs, OpenOptions};
use basalt_testkit::rng::Rng;
use basalt_vfs::Time;

/// When every test begins.
const BEGINNING: Time = Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 };

/// A clock that stands still until it is told to go on.
#[derive(Debug)]
pub struct TestClock(Mutex<Time>);

impl TestClock {
    /// A clock at the beginning.
    pub fn new() -> Arc<TestClock> {
        Arc::new(TestClock(Mutex::new(BEGINNING)))
    }

    /// Goes on by this many nanoseconds.
    pub fn advance(&self, nanoseconds: u64) {
        let mut now = self.0.lock().unwrap();
        let total = u64::from(now.nanoseconds) + nanoseconds;
        now.seconds += (total / 1_000_000_000) as i64;
        now.nanoseconds = (total % 1_000_000_000) as u32;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        *self.0.lock().unwrap()
    }
}

/// What kind of volume, and how it is opened.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Features of the volume.
    pub features: Features,
    /// Segments in a section.
    pub segments_per_section: u32,
    /// MiB of the device.
    pub size_mib: u64,
    /// Active logs.
    pub logs: u8,
    /// Bytes of cache.
    pub cache_bytes: usize,
    /// Access times.
    pub atime: Atime,
    /// Tell the device what is free.
    pub discard: bool,
}

impl Shape {
    /// A random one, as small as a volume can be.
    pub fn random(rng: &mut Rng) -> Shape {
        let default = FormatOptions::DEFAULT_FEATURES;
        let all = FormatOptions::POSSIBLE_FEATURES - Features::COMPRESSION;
        let features = [Features::empty(), default, all, default | Features::FLEXIBLE_INLINE_XATTR];
        let (segments_per_section, size_mib) = [(1, 64), (2, 96), (4, 160)][rng.index(3)];
        Shape {
            features: features[rng.index(4)],
            segments_per_section,
            size_mib,
            logs: [2, 4, 6][rng.index(3)],
            cache_bytes: [1 << 12, 1 << 20, 64 << 20][rng.index(3)],
            atime: [Atime::Relatime, Atime::Noatime, Atime::Strict][rng.index(3)],
            discard: rng.chance(75),
        }
    }

    /// A new device with an empty volume. Formatted once for each layout; every call gets its own copy.
    pub fn device(&self) -> MemoryDevice {
        /// Devices by features, segments per section and size.
        type Made = HashMap<(u32, u32, u64), MemoryDevice>;
        static MADE: OnceLock<Mutex<Made>> = OnceLock::new();
        let mut made = MADE.get_or_init(Mutex::default).lock().unwrap();
        let key = (self.features.bits(), self.segments_per_section, self.size_mib);
        made.entry(key).or_insert_with(|| self.format()).snapshot()
    }

    fn format(&self) -> MemoryDevice {
        let device = MemoryDevice::new(self.size_mib << 20, 512);
        let options = FormatOptions {
            segments_per_section: self.segments_per_section,
            features: self.features,
            uuid: Some([7; 16]),
            discard_reads_zeros: true,
            // Used where there are six logs.
            journal_bytes: FormatOptions::DEFAULT_JOURNAL_BYTES,
            time: BEGINNING,
            ..FormatOptions::default()
        };
        format(&device, &options, &mut |_, _| {}).unwrap();
        device
    }

    /// Opens a volume of this shape.
    pub fn open(&self, device: Arc<dyn BlockDevice>, clock: &Arc<TestClock>) -> basalt_f2fs::Result<F2fs> {
        let options = OpenOptions {
            logs: self.logs,
            cache_bytes: self.cache_bytes,
            discard: self.discard,
            // Never a checkpoint if the journal will do, or when it is worth it.
            pre_invalid_bytes: self.discard.then_some(1 << 30),
            atime: self.atime,
            ..OpenOptions::default()
        };
        F2fs::open(device, options, clock.clone())
    }

    /// Whether the volume records when an inode was made.
    pub fn records_creation(&self) -> bool {
        self.features.contains(Features::INODE_CRTIME)
    }

    /// Whether the volume has project ids.
    pub fn has_projects(&self) -> bool {
        self.features.contains(Features::PROJECT_QUOTA)
    }
}
