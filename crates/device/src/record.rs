//! A wrapper that records every request.

use parking_lot::Mutex;

use crate::DeviceLayer;
use crate::block::{BlockDevice, Result};
use crate::range::total_length;
use crate::request::{Request, RequestKind};

/// Wraps a device and keeps a log of its requests, failed ones included.
///
/// The order is one that a power cut could have met. A write or discard is logged when it has returned, a flush when
/// it starts: every write that stands before a flush in the log had returned before the flush was asked for, and is
/// therefore durable once that flush has succeeded.
///
/// ```
/// use basalt_device::{BlockDevice, MemoryDevice, RecordingDevice, RequestKind};
///
/// let device = RecordingDevice::new(MemoryDevice::new(1 << 20, 512), false);
/// device.write_at(4096, &[1; 512])?;
/// device.flush()?;
/// let kinds: Vec<RequestKind> = device.take().iter().map(|request| request.kind).collect();
/// assert_eq!(kinds, [RequestKind::Write, RequestKind::Flush]);
/// # Ok::<(), basalt_device::DeviceError>(())
/// ```
pub struct RecordingDevice<D> {
    inner: D,
    keep_data: bool,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    next: u64,
    requests: Vec<Request>,
}

impl Log {
    fn push(&mut self, kind: RequestKind, offset: u64, length: u64) -> &mut Request {
        let sequence = self.next;
        self.next += 1;
        self.requests.push(Request { sequence, kind, offset, length, data: None, failed: false });
        let last = self.requests.len() - 1;
        &mut self.requests[last]
    }
}

impl<D: BlockDevice> RecordingDevice<D> {
    /// Records the requests to `inner`, with a copy of the bytes written if `keep_data`.
    pub fn new(inner: D, keep_data: bool) -> Self {
        RecordingDevice { inner, keep_data, log: Mutex::default() }
    }

    /// Takes the requests logged since the last call; sequence numbers go on. Call it while no flush runs: a flush
    /// whose entry was taken before it failed is not marked as failed.
    pub fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.log.lock().requests)
    }

    /// The device within; requests to it are not recorded.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Gives the device back.
    pub fn into_inner(self) -> D {
        self.inner
    }

    fn log(&self, kind: RequestKind, offset: u64, length: u64, data: Option<Vec<u8>>, result: &Result<()>) {
        let mut log = self.log.lock();
        let request = log.push(kind, offset, length);
        request.data = data;
        request.failed = result.is_err();
    }
}

impl<D: BlockDevice> DeviceLayer for RecordingDevice<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let result = self.inner.read_at(offset, buf);
        self.log(RequestKind::Read, offset, buf.len() as u64, None, &result);
        result
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let result = self.inner.write_vectored_at(offset, slices);
        let data = self.keep_data.then(|| slices.concat());
        self.log(RequestKind::Write, offset, total_length(slices), data, &result);
        result
    }

    fn on_flush(&self) -> Result<()> {
        let sequence = self.log.lock().push(RequestKind::Flush, 0, 0).sequence;
        let result = self.inner.flush();
        if result.is_err() {
            let mut log = self.log.lock();
            if let Some(entry) = log.requests.iter_mut().rfind(|request| request.sequence == sequence) {
                entry.failed = true;
            }
        }
        result
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        let result = self.inner.discard(offset, length);
        self.log(RequestKind::Discard, offset, length, None, &result);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultyDevice, MemoryDevice};
    use std::io::ErrorKind;

    #[test]
    fn records_in_order_with_data() {
        let device = RecordingDevice::new(MemoryDevice::new(4096, 512), true);
        device.write_at(0, b"one").unwrap();
        device.read_at(1, &mut [0; 2]).unwrap();
        device.flush().unwrap();
        device.write_vectored_at(8, &[b"tw", b"", b"o"]).unwrap();
        device.discard(512, 1024).unwrap();
        let entry = |sequence, kind, offset, length, data: Option<&[u8]>| Request {
            sequence,
            kind,
            offset,
            length,
            data: data.map(<[u8]>::to_vec),
            failed: false,
        };
        let expected = [
            entry(0, RequestKind::Write, 0, 3, Some(b"one")),
            entry(1, RequestKind::Read, 1, 2, None),
            entry(2, RequestKind::Flush, 0, 0, None),
            entry(3, RequestKind::Write, 8, 3, Some(b"two")),
            entry(4, RequestKind::Discard, 512, 1024, None),
        ];
        assert_eq!(device.take(), expected);
        assert_eq!(device.take(), []);
        device.flush().unwrap();
        assert_eq!(device.take()[0].sequence, 5);
    }

    #[test]
    fn the_log_replayed_gives_the_same_content() {
        let device = RecordingDevice::new(MemoryDevice::new(1 << 20, 512), true);
        for i in 0..100_u64 {
            device.write_at(i * 7_919 % (1 << 19), &[i as u8; 3_000]).unwrap();
            device.discard(i * 104_729 % (1 << 19), 5_000).unwrap();
        }
        let replayed = MemoryDevice::new(1 << 20, 512);
        for request in device.take() {
            match request.kind {
                RequestKind::Write => replayed.write_at(request.offset, &request.data.unwrap()).unwrap(),
                RequestKind::Discard => replayed.discard(request.offset, request.length).unwrap(),
                RequestKind::Read | RequestKind::Flush => unreachable!("neither was asked for"),
            }
        }
        let (mut recorded, mut again) = (vec![0; 1 << 20], vec![1; 1 << 20]);
        device.inner().read_at(0, &mut recorded).unwrap();
        replayed.read_at(0, &mut again).unwrap();
        assert!(recorded == again);
    }

    #[test]
    fn failures_are_marked_and_data_left_out_if_not_wanted() {
        let faulty = FaultyDevice::new(MemoryDevice::new(4096, 512));
        faulty.fail_when(|request| (request.kind != RequestKind::Read).then_some(ErrorKind::Other));
        let device = RecordingDevice::new(faulty, false);
        device.write_at(0, b"lost").unwrap_err();
        device.flush().unwrap_err();
        device.discard(0, 512).unwrap_err();
        device.read_at(0, &mut [0; 4]).unwrap();
        let log = device.take();
        assert_eq!(log.iter().map(|request| request.failed).collect::<Vec<_>>(), [true, true, true, false]);
        assert!(log.iter().all(|request| request.data.is_none()));
        let MemoryDevice { .. } = device.into_inner().into_inner();
    }
}
