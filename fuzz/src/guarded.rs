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
    /// What follows it.
    tail: Option<MemoryDevice>,
    size: u64,
    writable: bool,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl GuardedDevice {
    /// The first `size` bytes of `inner`. A write to a device that is not `writable` is a failure of the run.
    pub fn new(inner: MemoryDevice, size: u64, writable: bool) -> GuardedDevice {
        let size = size.min(inner.size());
        GuardedDevice { inner, tail: None, size, writable, requests: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// A writable device of `room` bytes that begins with `inner`; cut short as [`new`](Self::new) if `size` is less than that.
    pub fn with_room(inner: MemoryDevice, size: u64, room: u64) -> GuardedDevice {
        if size < inner.size() {
            return GuardedDevice::new(inner, size, true);
        }
        let tail = MemoryDevice::new(room.saturating_sub(inner.size()), inner.sector_size());
        GuardedDevice { size: room, tail: Some(tail), ..GuardedDevice::new(inner, size, true) }
    }

    /// How many of `length` bytes from `offset` on come before the tail.
    fn in_front(&self, offset: u64, length: usize) -> usize {
        self.inner.size().saturating_sub(offset).min(length as u64) as usize
    }

    fn tail(&self) -> &MemoryDevice {
        self.tail.as_ref().expect("requests end at the device's end")
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
        let (front, back) = buf.split_at_mut(self.in_front(offset, buf.len()));
        if !front.is_empty() {
            self.inner.read_at(offset, front)?;
        }
        if back.is_empty() {
            Ok(())
        } else {
            self.tail().read_at(offset.max(self.inner.size()) - self.inner.size(), back)
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> basalt_device::Result<()> {
        self.admit("write", offset, buf.len() as u64)?;
        let (front, back) = buf.split_at(self.in_front(offset, buf.len()));
        if !front.is_empty() {
            self.inner.write_at(offset, front)?;
        }
        if back.is_empty() {
            Ok(())
        } else {
            self.tail().write_at(offset.max(self.inner.size()) - self.inner.size(), back)
        }
    }

    fn flush(&self) -> basalt_device::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> basalt_device::Result<()> {
        self.admit("discard", offset, length)?;
        // Behind it, a discard is a hint that is not taken.
        let front = self.inner.size().saturating_sub(offset).min(length);
        if front > 0 { self.inner.discard(offset, front) } else { Ok(()) }
    }
}
