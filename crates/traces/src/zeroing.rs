//! A file or block device on which discarded ranges read as zeros.

use basalt_device::{BlockDevice, DeviceError, FileDevice, Result};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// What is written where nothing cheaper makes zeros, at once.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Wraps a [`FileDevice`] so that a discarded range reads as zeros, as a hole in a file does: it is punched out of an image file,
/// zeroed by the device itself, or, where neither works, written. Nothing is ever read for that.
///
/// Recorded and replayed devices need it: what a plain discard leaves behind is undefined, and no two devices need to agree.
pub struct ZeroingDevice {
    inner: FileDevice,
}

impl ZeroingDevice {
    /// Wraps a device.
    pub fn new(inner: FileDevice) -> ZeroingDevice {
        ZeroingDevice { inner }
    }

    /// The device within.
    pub fn inner(&self) -> &FileDevice {
        &self.inner
    }

    /// Zeroes by one call, if the file system or device can.
    fn fallocate(&self, mode: FallocateFlags, offset: u64, length: u64) -> rustix::io::Result<bool> {
        let mode = mode | FallocateFlags::KEEP_SIZE;
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.inner, mode, offset, length)) {
            Ok(()) => Ok(true),
            // INVAL: a range that is not made of whole sectors, on a block device.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn write_zeros(&self, offset: u64, length: u64) -> Result<()> {
        let mut at = offset;
        while at < offset + length {
            // At most the length of the array.
            let piece = (offset + length - at).min(ZEROS.len() as u64) as usize;
            self.inner.write_at(at, &ZEROS[..piece])?;
            at += piece as u64;
        }
        Ok(())
    }
}

impl BlockDevice for ZeroingDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.inner.prefetch(offset, length);
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.inner.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.inner.write_vectored_at(offset, slices)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let size = self.size();
        if offset.checked_add(length).is_none_or(|end| end > size) || self.is_read_only() || length == 0 {
            // Has the words for what is wrong with it.
            return self.inner.discard(offset, length);
        }
        for mode in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            match self.fallocate(mode, offset, length) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(errno) => {
                    let name = self.name().to_owned();
                    return Err(DeviceError::Io { name, operation: "discard", offset, length, source: errno.into() });
                }
            }
        }
        self.write_zeros(offset, length)
    }
}
