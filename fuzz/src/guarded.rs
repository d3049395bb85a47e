//! A device that ends a run which asks for too much: what would be a hang becomes a failure.

use std::sync::atomic::{AtomicU64, Ordering};

use basalt_device::{BlockDevice, DeviceError, MemoryDevice};

/// Requests that a run over a base volume may make; a sound one makes some thousands.
const REQUESTS: u64 = 400_000;
/// Bytes that a run may move.
const BYTES: u64 = 4 << 30;
/// Bytes of the largest request: nothing on a small volume is read in larger pieces.
const REQUEST: u64 = 16 << 20;

/// A memory device with limits, perhaps cut short.
pub struct GuardedDevice {
    inner: MemoryDevice,
    size: u64,
    writable: bool,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl GuardedDevice {
    /// The first `size` bytes of `inner`. A write to a device that is not `writable` is a failure of the run.
    pub fn new(inner: MemoryDevice, size: u64, writable: bool) -> GuardedDevice {
        let size = size.min(inner.size());
        GuardedDevice { inner, size, writable, requests: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Counts a request, and gives what is to be answered where it reaches past the end.
    fn admit(&self, operation: &'static str, offset: u64, length: u64) -> Result<(), DeviceError> {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed);
        assert!(requests < REQUESTS, "a hang: more than {REQUESTS} requests");
        if operation != "discard" {
            let bytes = self.bytes.fetch_add(length, Ordering::Relaxed);
            assert!(bytes < BYTES, "a hang: more than {BYTES} bytes moved");
            assert!(length <= REQUEST, "one {operation} of {length} bytes at {offset}");
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let name = self.name().to_owned();
            return Err(DeviceError::OutOfRange { name, operation, offset, length, size: self.size });
        }
        assert!(operation == "read" || self.writable, "{operation} at {offset} through a read-only mount");
        Ok(())
    }
}

impl BlockDevice for GuardedDevice {
    fn name(&self) -> &str {
        "guarded"
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> basalt_device::Result<()> {
        self.admit("read", offset, buf.len() as u64)?;
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> basalt_device::Result<()> {
        self.admit("write", offset, buf.len() as u64)?;
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> basalt_device::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> basalt_device::Result<()> {
        self.admit("discard", offset, length)?;
        self.inner.discard(offset, length)
    }
}
