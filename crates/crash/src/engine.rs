//! What the simulator asks of a file system: make a volume, open it, check it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use basalt_device::{BlockDevice, FlashPages, MemoryDevice};
use basalt_vfs::{FileSystem, Time};

/// Opens a volume for threads whose every turn a scheduler chooses, with a device and a clock.
pub type Opener = dyn Fn(Arc<dyn BlockDevice>, Box<dyn Fn() -> Time + Send + Sync>) -> Result<Arc<dyn ThreadedFileSystem>, String>
    + Send
    + Sync;

/// A file system that threads use at once.
pub trait ThreadedFileSystem: FileSystem {
    /// Asks for all that can be asked about an open volume.
    fn look_around(&self);
}

/// A file system under test, with all the choices that belong to a volume of it made.
pub trait Engine: Send + Sync {
    /// A short name that tells it from others: what scripts say.
    fn name(&self) -> &str;

    /// Bytes of the devices it wants.
    fn device_size(&self) -> u64;

    /// The flash pages of a device with this volume, where the file system is told of them: a power cut may tear them whole.
    fn flash_pages(&self, volume: &MemoryDevice) -> Option<FlashPages> {
        let _ = volume;
        None
    }

    /// Makes an empty volume.
    fn format(&self, device: &MemoryDevice) -> Result<(), String>;

    /// Opens a volume for writing and recovers it first where that is needed. Time and randomness come from nowhere else than
    /// `clock`: the same calls leave the same requests.
    fn open(&self, device: Arc<dyn BlockDevice>, clock: Arc<StepClock>) -> Result<Box<dyn FileSystem>, String>;

    /// Opens a volume for looking, or for writing if that can be done: one that cannot be recovered may be read-only, with a reason.
    fn open_to_look(&self, device: Arc<dyn BlockDevice>, clock: Arc<StepClock>) -> Result<Box<dyn FileSystem>, String>;

    /// What is found on a volume that can only be opened read-only, by the means that the volume's warnings name. `None` if they name none.
    fn open_as_told(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<StepClock>,
    ) -> Option<Result<Box<dyn FileSystem>, String>> {
        let _ = (device, clock);
        None
    }

    /// Checks a volume that is not open; the error lists what is wrong.
    fn check(&self, device: &MemoryDevice) -> Result<(), String>;

    /// As [`check`](Engine::check), of a volume that was closed: nothing is left to recover.
    fn check_closed(&self, device: &MemoryDevice) -> Result<(), String> {
        self.check(device)
    }

    /// As [`check`](Engine::check), by somebody else's program, on an image file. `None` if there is none.
    fn check_elsewhere(&self, image: &Path) -> Option<Result<(), String>> {
        let _ = image;
        None
    }

    /// Opens it with the locks of a scheduler ([`crate::threads`]). `None` if it cannot be.
    fn for_threads(&self) -> Option<Arc<Opener>> {
        None
    }

    /// Whether fsync of a directory makes everything durable, as sync does.
    fn directory_fsync_is_sync(&self) -> bool;

    /// After this long, what was done is durable by itself once background work has been called.
    fn commit_interval(&self) -> Duration;
}

/// A clock that goes on by a microsecond each time it is read, and by more when told to.
#[derive(Debug)]
pub struct StepClock(AtomicU64);

/// When runs begin: microseconds since the epoch.
const BEGINNING: u64 = 1_700_000_000_000_000;

impl StepClock {
    /// A clock at so many microseconds since the epoch, not before the beginning of all runs.
    pub fn starting(at: u64) -> Arc<StepClock> {
        Arc::new(StepClock(AtomicU64::new(at.max(BEGINNING))))
    }

    /// Microseconds since the epoch, without going on.
    pub fn stands_at(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The current time.
    pub fn read(&self) -> Time {
        let now = self.0.fetch_add(1, Ordering::Relaxed);
        Time { seconds: (now / 1_000_000) as i64, nanoseconds: (now % 1_000_000) as u32 * 1_000 }
    }

    /// Goes on by so many seconds.
    pub fn wait(&self, seconds: u32) {
        self.0.fetch_add(u64::from(seconds) * 1_000_000, Ordering::Relaxed);
    }
}
