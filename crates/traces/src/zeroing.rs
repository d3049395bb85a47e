//! A file or block device on which discarded ranges read as zeros.

use basalt_device::{BlockDevice, DeviceError, DeviceLayer, FileDevice, Result};
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

impl DeviceLayer for ZeroingDevice {
    type Below = FileDevice;

    fn below(&self) -> &FileDevice {
        &self.inner
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        let size = self.inner.size();
        if offset.checked_add(length).is_none_or(|end| end > size) || self.inner.is_read_only() || length == 0 {
            // Has the words for what is wrong with it.
            return self.inner.discard(offset, length);
        }
        for mode in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            match self.fallocate(mode, offset, length) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(errno) => {
                    let name = self.inner.name().to_owned();
                    return Err(DeviceError::Io { name, operation: "discard", offset, length, source: errno.into() });
                }
            }
        }
        self.write_zeros(offset, length)
    }
}
