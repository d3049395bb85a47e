//! The block device interface.

use std::io;

/// What went wrong on a device, where and during which request.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device reported an error.
    #[error("{name}: {operation} of {length} bytes at offset {offset}: {source}")]
    Io {
        /// The device, as the user named it.
        name: String,
        /// `read`, `write`, `flush` or `discard`.
        operation: &'static str,
        /// First byte of the request.
        offset: u64,
        /// Bytes requested.
        length: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The request reaches past the end of the device.
    #[error("{name}: {operation} of {length} bytes at offset {offset} reaches past the device's end at {size}")]
    OutOfRange {
        /// The device, as the user named it.
        name: String,
        /// `read`, `write` or `discard`.
        operation: &'static str,
        /// First byte of the request.
        offset: u64,
        /// Bytes requested.
        length: u64,
        /// Size of the device in bytes.
        size: u64,
    },
    /// The device cannot be opened, or is no device.
    #[error("{name}: {reason}")]
    Open {
        /// The path the user gave.
        name: String,
        /// Why, in words for the user.
        reason: String,
        /// What the operating system said, when it said something.
        source: Option<io::Error>,
    },
    /// Somebody else has the device: mounted, being checked, or locked by another Basalt.
    #[error("{name} is in use: {reason}")]
    InUse {
        /// The path the user gave.
        name: String,
        /// By whom, as far as known.
        reason: String,
    },
}

/// Result of a device request.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// A random-access device of bytes with a volatile write cache.
///
/// Requests may come from several threads at once; two concurrent requests that overlap have no defined order. A write is
/// durable only after a later [`flush`](BlockDevice::flush) has returned `Ok`.
pub trait BlockDevice: Send + Sync {
    /// The device as the user named it, for messages.
    fn name(&self) -> &str;

    /// Size in bytes; constant while open.
    fn size(&self) -> u64;

    /// Logical sector size in bytes (512 or 4096): the alignment of direct requests and the unit of a torn write.
    fn sector_size(&self) -> u32;

    /// Whether writes and discards are refused.
    fn is_read_only(&self) -> bool;

    /// Fills `buf` from byte `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Says that the range will be read soon, so that the device can begin: a hint that costs little and cannot fail.
    fn prefetch(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// The first byte at or behind `offset` that may be other than zero; `None` if all from there on is known to read as zeros. It costs
    /// little and cannot fail: a device that does not know answers `offset`, as long as that is within it.
    fn next_data(&self, offset: u64) -> Option<u64> {
        (offset < self.size()).then_some(offset)
    }

    /// Writes all of `buf` at byte `offset`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;

    /// Writes the slices one after the other from byte `offset`, as one request where the device can.
    fn write_vectored_at(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let mut at = offset;
        for slice in slices {
            self.write_at(at, slice)?;
            at += slice.len() as u64;
        }
        Ok(())
    }

    /// Makes every write that returned before this call durable.
    fn flush(&self) -> Result<()>;

    /// Tells the device that the range holds nothing of value; its content is undefined until written.
    /// A device without discard returns `Ok` and does nothing.
    fn discard(&self, offset: u64, length: u64) -> Result<()>;
}
