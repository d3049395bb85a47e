//! A device that tells how long its requests take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

use crate::DeviceLayer;
use crate::block::{BlockDevice, Result};
use crate::range::total_length;
use crate::request::RequestKind;

/// A request that has succeeded, and how long that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// What it asked for.
    pub kind: RequestKind,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
    /// From its call to its end.
    pub nanoseconds: u64,
    /// Whether no other request to this device was under way meanwhile.
    pub was_alone: bool,
}

/// A receiver of the times that requests take. Both methods are called by the threads that make requests, whatever locks those hold: they must be
/// quick, and make no request.
pub trait Stopwatch: Send + Sync {
    /// Nanoseconds since any moment, always the same.
    fn now(&self) -> u64;

    /// A request is over. Those that fail are not told.
    fn took(&self, request: Timed);
}

impl<S: Stopwatch> Stopwatch for Arc<S> {
    fn now(&self) -> u64 {
        (**self).now()
    }

    fn took(&self, request: Timed) {
        (**self).took(request);
    }
}

/// A device that changes nothing, and tells a [`Stopwatch`] of each request how long it took.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::sync::Mutex;
///
/// use basalt_device::{BlockDevice, MemoryDevice, RequestKind, Stopwatch, StopwatchDevice, Timed};
///
/// /// A clock that goes on by a nanosecond each time that somebody looks.
/// #[derive(Default)]
/// struct Looked(AtomicU64, Mutex<Vec<Timed>>);
///
/// impl Stopwatch for Looked {
///     fn now(&self) -> u64 {
///         self.0.fetch_add(1, Relaxed)
///     }
///     fn took(&self, request: Timed) {
///         self.1.lock().unwrap().push(request);
///     }
/// }
///
/// let device = StopwatchDevice::new(MemoryDevice::new(1 << 20, 512), Looked::default());
/// device.write_at(4096, &[1; 512])?;
/// let told = device.stopwatch().1.lock().unwrap()[0];
/// assert_eq!(told, Timed { kind: RequestKind::Write, offset: 4096, length: 512, nanoseconds: 1, was_alone: true });
/// # Ok::<(), basalt_device::DeviceError>(())
/// ```
pub struct StopwatchDevice<D, S> {
    inner: D,
    stopwatch: S,
    /// Requests under way, and above them how many began so far: one number, so that a request knows whether others began while it was under way.
    requests: AtomicU64,
}

/// One that began, in [`StopwatchDevice::requests`].
const BEGUN: u64 = 1 << 32;

/// A request under way, until this is dropped.
struct UnderWay<'a> {
    requests: &'a AtomicU64,
    /// What was so before it began.
    before: u64,
}

impl<'a> UnderWay<'a> {
    fn begin(requests: &'a AtomicU64) -> UnderWay<'a> {
        UnderWay { requests, before: requests.fetch_add(BEGUN + 1, AcqRel) }
    }

    fn is_alone(&self) -> bool {
        // Below `BEGUN`: as many as there can be threads.
        self.before.is_multiple_of(BEGUN) && self.requests.load(Acquire) == self.before.wrapping_add(BEGUN + 1)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.requests.fetch_sub(1, AcqRel);
    }
}

impl<D: BlockDevice, S: Stopwatch> StopwatchDevice<D, S> {
    /// Tells `stopwatch` of the requests to `inner`.
    pub fn new(inner: D, stopwatch: S) -> StopwatchDevice<D, S> {
        StopwatchDevice { inner, stopwatch, requests: AtomicU64::new(0) }
    }

    /// The receiver of the times.
    pub fn stopwatch(&self) -> &S {
        &self.stopwatch
    }

    fn time(&self, kind: RequestKind, offset: u64, length: u64, request: impl FnOnce() -> Result<()>) -> Result<()> {
        let under_way = UnderWay::begin(&self.requests);
        let begun = self.stopwatch.now();
        request()?;
        let nanoseconds = self.stopwatch.now().saturating_sub(begun);
        let was_alone = under_way.is_alone();
        drop(under_way);
        self.stopwatch.took(Timed { kind, offset, length, nanoseconds, was_alone });
        Ok(())
    }
}

impl<D: BlockDevice, S: Stopwatch> DeviceLayer for StopwatchDevice<D, S> {
    type Below = D;

    fn below(&self) -> &D {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.time(RequestKind::Read, offset, buf.len() as u64, || self.inner.read_at(offset, buf))
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.time(RequestKind::Write, offset, total_length(slices), || match slices {
            [only] => self.inner.write_at(offset, only),
            _ => self.inner.write_vectored_at(offset, slices),
        })
    }

    fn on_flush(&self) -> Result<()> {
        self.time(RequestKind::Flush, 0, 0, || self.inner.flush())
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.time(RequestKind::Discard, offset, length, || self.inner.discard(offset, length))
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::{FaultyDevice, MemoryDevice};

    /// A clock that somebody moves, and what was told.
    #[derive(Default)]
    struct Told(AtomicU64, Mutex<Vec<Timed>>);

    impl Stopwatch for Told {
        fn now(&self) -> u64 {
            self.0.load(Acquire)
        }

        fn took(&self, request: Timed) {
            self.1.lock().push(request);
        }
    }

    #[test]
    fn each_request_is_told_with_its_time() {
        let told = Arc::new(Told::default());
        let below = FaultyDevice::new(MemoryDevice::new(1 << 20, 512));
        let clock = told.clone();
        below.fail_when(move |request| {
            clock.0.fetch_add(7 + request.length, AcqRel);
            (request.offset == 8192).then_some(std::io::ErrorKind::Other)
        });
        let device = StopwatchDevice::new(below, told.clone());
        device.write_vectored_at(4096, &[&[1; 512], &[2; 512]]).unwrap();
        device.read_at(0, &mut [0; 512]).unwrap();
        device.flush().unwrap();
        assert!(device.write_at(8192, &[1; 512]).is_err());
        device.discard(0, 4096).unwrap();
        let seen: Vec<_> =
            told.1.lock().iter().map(|timed| (timed.kind, timed.offset, timed.nanoseconds, timed.was_alone)).collect();
        let expected = [
            (RequestKind::Write, 4096, 1031, true),
            (RequestKind::Read, 0, 519, true),
            (RequestKind::Flush, 0, 7, true),
            (RequestKind::Discard, 0, 4103, true),
        ];
        assert_eq!(seen, expected);
    }

    /// A device in whose writes something else happens.
    struct Meanwhile(MemoryDevice, Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl DeviceLayer for Meanwhile {
        type Below = MemoryDevice;

        fn below(&self) -> &MemoryDevice {
            &self.0
        }

        fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
            let meanwhile = self.1.lock().take();
            meanwhile.into_iter().for_each(|happens| happens());
            self.0.write_vectored_at(offset, slices)
        }
    }

    /// A request in which another began, or that began in another, is not alone; the next one is.
    #[test]
    fn requests_at_a_time_are_not_alone() {
        let told = Arc::new(Told::default());
        let below = Arc::new(Meanwhile(MemoryDevice::new(1 << 20, 512), Mutex::default()));
        let device = Arc::new(StopwatchDevice::new(below.clone(), told.clone()));
        let other = device.clone();
        *below.1.lock() = Some(Box::new(move || other.flush().unwrap()));
        device.write_at(0, &[1; 512]).unwrap();
        device.flush().unwrap();
        let seen: Vec<_> = told.1.lock().iter().map(|timed| (timed.kind, timed.was_alone)).collect();
        assert_eq!(seen, [(RequestKind::Flush, false), (RequestKind::Write, false), (RequestKind::Flush, true)]);
    }
}
