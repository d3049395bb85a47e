//! Image files and block devices.
//!
//! | module | what |
//! |---|---|
//! | `open` | opening and creating, and every reason why not, in words |
//! | `lock` | keeping others off: flock, locks of what lies behind, exclusive claim, loop devices |
//! | `behind` | the disk of a partition, the file of a loop device, and so on down |
//! | `hardware` | whether a disk, a card or something else stores the bytes |
//! | `in_use` | who has a file or device, for the message |
//! | `reach` | which paths can be looked at without asking a FUSE server that may hang |
//! | `transfer` | reading and writing all of a request |
//! | `direct` | aligned buffers for direct I/O |
//! | `ioctl` | what the kernel tells about block devices |
//! | `early` | image files: what was written is on its way before somebody waits for it |

mod behind;
mod direct;
mod early;
mod hardware;
mod in_use;
mod ioctl;
mod lock;
mod open;
mod reach;
mod transfer;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::block::{BlockDevice, DeviceError, Result};
use crate::range::{self, total_length};

pub use hardware::Hardware;
pub use in_use::{left_behind_by, mounted_over, process_state};
pub use lock::Lock;
pub use open::OpenOptions;
pub use reach::Reach;

/// What a path turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Image,
    BlockDevice,
}

/// An image file, read and written through the page cache, or a block device, read and written with direct I/O.
///
/// Any request may have any size and alignment; on a block device those that are multiples of the sector size in
/// memory, offset and length go to the device as they are, all others through a buffer.
///
/// ```
/// use basalt_device::{BlockDevice, DeviceError, FileDevice, OpenOptions};
///
/// # let path = std::env::temp_dir().join(format!("basalt-file-device-{}", std::process::id()));
/// let device = FileDevice::create(&path, 1 << 20)?;
/// device.write_at(4096, &[7; 512])?;
/// device.flush()?;
/// // The lock is the device's: nobody else opens the image to write until it is dropped.
/// assert!(matches!(FileDevice::open(&path, &OpenOptions::default()), Err(DeviceError::InUse { .. })));
/// drop(device);
/// assert_eq!(FileDevice::open(&path, &OpenOptions::default())?.size(), 1 << 20);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FileDevice {
    name: String,
    path: PathBuf,
    kind: Kind,
    /// Carries the flock, for as long as the device is open.
    file: File,
    /// The exclusive claim on a block device, until [`FileDevice::release_exclusive`].
    claim: Mutex<Option<OwnedFd>>,
    /// What lies behind a partition or loop device, locked.
    _behind: Vec<File>,
    size: u64,
    sector_size: u32,
    read_only: bool,
    direct: bool,
    /// Cleared when the first discard is refused as not supported.
    can_discard: AtomicBool,
    bounce: direct::Pool,
    early: early::EarlyWriteback,
    /// Held while a sector is read, changed in part and written.
    partial_sectors: Mutex<()>,
}

impl FileDevice {
    /// Opens an image file or block device.
    ///
    /// # Errors
    /// [`DeviceError::Open`] says in words why `path` cannot be used as a device; [`DeviceError::InUse`] who
    /// else has it, as far as the lock asked for forbids that.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open::open(path.as_ref(), options)
    }

    /// Makes a new sparse image file of `size` bytes, which must not exist yet, and locks it exclusively.
    ///
    /// # Errors
    /// [`DeviceError::Open`] if the file exists, cannot be made or cannot be that large; no file is left behind.
    pub fn create(path: impl AsRef<Path>, size: u64) -> Result<Self> {
        open::create(path.as_ref(), size)
    }

    /// The path it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What stores the bytes, as far as the kernel tells: of an image file, what its file system is on.
    pub fn hardware(&self) -> Option<Hardware> {
        Hardware::of(behind::Identity::of(&self.file.metadata().ok()?), &self.path)
    }

    /// Bytes of the disk in front of a partition, or of the image in front of what a loop device takes of it. 0 for anything else.
    pub fn disk_offset(&self) -> u64 {
        self.place().map_or(0, |place| place.offset)
    }

    /// Bytes that the disk erases together, where the kernel tells: of SD cards and eMMC (`preferred_erase_size`).
    pub fn erase_unit(&self) -> Option<u64> {
        self.place()?.erase_unit
    }

    fn place(&self) -> Option<hardware::Place> {
        hardware::Place::of(behind::Identity::of(&self.file.metadata().ok()?), &self.path)
    }

    /// Whether it is a block device, not an image file.
    pub fn is_block_device(&self) -> bool {
        self.kind == Kind::BlockDevice
    }

    /// Whether requests bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Gives up the kernel's exclusive claim on a block device, so that mount(2) can claim it; the flock stays. From
    /// then on until the mount, only programs that respect flocks are kept off. Does nothing on an image file or the
    /// second time.
    pub fn release_exclusive(&self) {
        drop(self.claim.lock().take());
    }

    fn check(&self, operation: &'static str, offset: u64, length: u64) -> Result<()> {
        range::check(&self.name, operation, offset, length, self.size)
    }

    fn check_writable(&self, operation: &'static str, offset: u64, length: u64) -> Result<()> {
        if self.read_only {
            return Err(self.io_error(operation, offset, length, io::ErrorKind::ReadOnlyFilesystem));
        }
        self.check(operation, offset, length)
    }

    fn io_error(&self, operation: &'static str, offset: u64, length: u64, source: impl Into<io::Error>) -> DeviceError {
        range::io_error(&self.name, operation, offset, length, source)
    }

    fn discard_range(&self, offset: u64, length: u64) -> rustix::io::Result<()> {
        match self.kind {
            Kind::Image => rustix::fs::fallocate(
                &self.file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                offset,
                length,
            ),
            Kind::BlockDevice => {
                // Only whole sectors can be discarded; the edges keep their content, which is as good as undefined.
                let sector = u64::from(self.sector_size);
                let start = offset.next_multiple_of(sector);
                let end = (offset + length) / sector * sector;
                if start < end { ioctl::discard(&self.file, start, end - start) } else { Ok(()) }
            }
        }
    }
}

impl AsFd for FileDevice {
    /// The descriptor that requests go through; it is opened with `O_DIRECT` if [`is_direct`](FileDevice::is_direct).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl BlockDevice for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let length = buf.len() as u64;
        self.check("read", offset, length)?;
        let filled = self.read_request(offset, buf).map_err(|error| self.io_error("read", offset, length, error))?;
        if filled < length {
            // The file was cut short while it was open.
            return range::check(&self.name, "read", offset, length, offset + filled);
        }
        Ok(())
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if let Some(length) = std::num::NonZeroU64::new(length).filter(|_| !self.direct) {
            // Into the page cache, in the background; whether it comes in time does not matter.
            let _ = rustix::fs::fadvise(&self.file, offset, Some(length), rustix::fs::Advice::WillNeed);
        }
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let found = match self.kind {
            // Requests name their offsets, so it does not matter that this moves the file's position.
            Kind::Image => rustix::fs::seek(&self.file, SeekFrom::Data(offset)),
            Kind::BlockDevice => Ok(offset),
        };
        match found {
            Ok(at) => (at < self.size).then_some(at.max(offset)),
            Err(Errno::NXIO) => None,
            // The file system does not tell.
            Err(_) => Some(offset),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_vectored_at(offset, &[buf])
    }

    fn write_vectored_at(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let length = total_length(slices);
        self.check_writable("write", offset, length)?;
        self.write_request(offset, slices).map_err(|error| self.io_error("write", offset, length, error))?;
        if !self.direct {
            self.early.note_write(&self.file, offset, length);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.early.note_flush();
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.file))
            .map_err(|error| self.io_error("flush", 0, self.size, error))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.check_writable("discard", offset, length)?;
        if length == 0 || !self.can_discard.load(Ordering::Relaxed) {
            return Ok(());
        }
        match rustix::io::retry_on_intr(|| self.discard_range(offset, length)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => {
                self.can_discard.store(false, Ordering::Relaxed);
                Ok(())
            }
            result => result.map_err(|error| self.io_error("discard", offset, length, error)),
        }
    }
}
