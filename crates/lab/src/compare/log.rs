//! A device that writes its requests down, for an engine of this process: what [`basalt_uml`]'s library does for machines.

use std::sync::atomic::{AtomicU64, Ordering};

use basalt_device::{BlockDevice, DeviceError, DeviceLayer, Result};
use basalt_flash::VirtualClock;
use basalt_uml::{Request, RequestKind, RequestsWriter};
use parking_lot::Mutex;

/// Wraps a device that need not survive the process: flushes are written down, and not handed on.
pub(super) struct LoggedDevice<D> {
    inner: D,
    clock: VirtualClock,
    log: Mutex<Log>,
    /// Requests so far.
    count: AtomicU64,
}

struct Log {
    writer: RequestsWriter,
    /// The first request that could not be written down.
    failed: Option<String>,
}

impl<D: BlockDevice> LoggedDevice<D> {
    /// Writes the requests to `inner` down.
    pub(super) fn new(inner: D, clock: VirtualClock, writer: RequestsWriter) -> LoggedDevice<D> {
        LoggedDevice { inner, clock, log: Mutex::new(Log { writer, failed: None }), count: AtomicU64::new(0) }
    }

    /// Requests so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Hands the log over to its file.
    ///
    /// # Errors
    /// When a request could not be written down, now or before.
    pub(super) fn finish(self) -> std::result::Result<(), String> {
        let Log { writer, failed } = self.log.into_inner();
        failed.map_or(Ok(()), Err)?;
        writer.finish().map_err(|error| error.to_string())
    }

    fn note(&self, kind: RequestKind, offset: u64, length: u64) -> Result<()> {
        let mut log = self.log.lock();
        let request = Request { time_ns: self.clock.now(), kind, offset, length };
        self.count.fetch_add(1, Ordering::Relaxed);
        log.writer.write(&request).map_err(|error| {
            log.failed.get_or_insert_with(|| error.to_string());
            let source = std::io::Error::other(error.to_string());
            DeviceError::Io { name: self.name().to_owned(), operation: "recording", offset, length, source }
        })
    }
}

impl<D: BlockDevice> DeviceLayer for LoggedDevice<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)?;
        self.note(RequestKind::Read, offset, buf.len() as u64)
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.inner.write_vectored_at(offset, slices)?;
        self.note(RequestKind::Write, offset, slices.iter().map(|slice| slice.len() as u64).sum())
    }

    fn on_flush(&self) -> Result<()> {
        self.note(RequestKind::Flush, 0, 0)
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.inner.discard(offset, length)?;
        self.note(RequestKind::Discard, offset, length)
    }
}

#[cfg(test)]
#[path = "../../../device/tests/probe/mod.rs"]
mod probe;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_flushes_is_handed_on() {
        let directory = tempfile::tempdir().unwrap();
        let writer = RequestsWriter::create(&directory.path().join("requests")).unwrap();
        probe::expect_forwards(|probe| LoggedDevice::new(probe, VirtualClock::new(), writer), &["flush"]);
    }
}
