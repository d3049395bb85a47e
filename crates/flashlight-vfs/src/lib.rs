//! FlashLight behind the interface that mounts, the lab and tests drive.
//!
//! | module | what |
//! |---|---|
//! | `files` | [`FileSystem`](basalt_vfs::FileSystem): one lock around the volume, references of inodes, `.` and `..` |
//! | `rescue` | [`Rescued`]: what is left of a volume whose roots or checkpoints are gone |
//! | `content` | writes where there is little room, `fallocate`, where holes are |
//! | `engine` | [`Engine`](basalt_vfs::Engine): counters, usage |
//!
//! The engine itself knows no threads, no references and no clock. Inode numbers are those of the volume plus one: the root's is 1.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

mod content;
mod engine;
mod files;
mod rescue;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use basalt_flashlight::FlashLight;
use basalt_nand::NandDevice;
use basalt_vfs::{Error, Time};
use parking_lot::Mutex;

pub use engine::{label_text, uuid_text};
pub use rescue::{RescueError, RescueReport, Rescued};

/// Says what time it is.
pub type Clock = Box<dyn Fn() -> Time + Send + Sync>;

/// How long changes wait at most, where nobody says otherwise: as on F2FS volumes.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// A FlashLight volume that several threads can use.
pub struct FlashFs<D> {
    inner: Mutex<Inner<D>>,
    clock: Clock,
    /// The kernel keeps the times of files while they are written.
    times_are_callers: AtomicBool,
    read_only: bool,
    /// It was not unmounted the last time.
    recovered: bool,
    /// How long changes wait at most until they outlast a power cut by themselves.
    commit_interval: Duration,
}

struct Inner<D> {
    volume: FlashLight<Vec<u8>, D>,
    /// References that the caller holds, by inode number.
    references: HashMap<u32, u64>,
    /// Something was changed since the last checkpoint that this side asked for.
    changed: bool,
    closed: bool,
}

impl<D: NandDevice + Send> FlashFs<D> {
    /// A volume that is mounted.
    pub fn new(volume: FlashLight<Vec<u8>, D>, clock: Clock) -> FlashFs<D> {
        let recovered = !volume.is_clean();
        let inner = Inner { volume, references: HashMap::new(), changed: false, closed: false };
        FlashFs {
            inner: Mutex::new(inner),
            clock,
            times_are_callers: AtomicBool::new(false),
            read_only: false,
            recovered,
            commit_interval: COMMIT_INTERVAL,
        }
    }

    /// With another time that changes wait at most until [`FileSystem::tick`](basalt_vfs::FileSystem::tick) makes them durable; 5 seconds without.
    #[must_use]
    pub fn with_commit_interval(self, commit_interval: Duration) -> FlashFs<D> {
        FlashFs { commit_interval, ..self }
    }

    /// A volume that is only looked at: every change is refused. Mounting may have written to the chip.
    pub fn read_only(volume: FlashLight<Vec<u8>, D>, clock: Clock) -> FlashFs<D> {
        FlashFs { read_only: true, ..FlashFs::new(volume, clock) }
    }

    /// What the chip and the volume are asked under the lock: for what the interface does not have.
    pub fn with_volume<R>(&self, ask: impl FnOnce(&mut FlashLight<Vec<u8>, D>) -> R) -> R {
        ask(&mut self.inner.lock().volume)
    }

    /// The volume, when nobody uses it any more.
    pub fn into_volume(self) -> FlashLight<Vec<u8>, D> {
        self.inner.into_inner().volume
    }
}

/// The error of a system call.
fn error(error: basalt_flashlight::Error) -> Error {
    use basalt_flashlight::Error as Of;
    match error {
        Of::NotFound => Error::NotFound,
        Of::Exists => Error::Exists,
        Of::NotADirectory => Error::NotDirectory,
        Of::IsADirectory => Error::IsDirectory,
        Of::NotEmpty => Error::NotEmpty,
        Of::NoSpace => Error::NoSpace,
        Of::NameTooLong => Error::NameTooLong,
        Of::FileTooLarge => Error::FileTooLarge,
        Of::Invalid => Error::Invalid("a name that cannot be, or a directory below itself"),
        Of::Unsupported(what) => Error::NotSupported(what),
        Of::NotFlashLight | Of::Damaged { .. } => Error::Corrupted(error.to_string()),
        Of::Nand(_) | Of::Stopped => Error::Io(error.to_string()),
    }
}
