//! A wrapper that makes requests fail.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::DeviceLayer;
use crate::block::{BlockDevice, Result};
use crate::range::total_length;
use crate::request::{Request, RequestKind};

type Predicate = dyn Fn(&Request) -> Option<io::ErrorKind> + Send + Sync;

/// What shall fail.
enum Rule {
    /// The request of this kind after `remaining` others of it; then the rule is spent.
    Nth { kind: RequestKind, remaining: u64, error: io::ErrorKind },
    /// Every request after `remaining` more.
    After { remaining: u64, error: io::ErrorKind },
    /// Every request for which the closure names an error.
    When(Box<Predicate>),
}

impl Rule {
    /// Counts the request; the error it shall get, and whether the rule is spent.
    fn decide(&mut self, request: &Request) -> (Option<io::ErrorKind>, bool) {
        match self {
            Rule::Nth { kind, .. } if *kind != request.kind => (None, false),
            Rule::Nth { remaining: 0, error, .. } => (Some(*error), true),
            Rule::After { remaining: 0, error } => (Some(*error), false),
            Rule::Nth { remaining, .. } | Rule::After { remaining, .. } => {
                *remaining -= 1;
                (None, false)
            }
            Rule::When(predicate) => (predicate(request), false),
        }
    }
}

/// Wraps a device and makes requests fail as told. A request made to fail does not reach the device within.
///
/// Several rules may hold at once; each counts every request, and the first one set that names an error wins.
///
/// ```
/// use std::io::ErrorKind;
///
/// use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RequestKind};
///
/// let device = FaultyDevice::new(MemoryDevice::new(1 << 20, 512));
/// device.fail_nth(RequestKind::Flush, 2, ErrorKind::Other);
/// assert!(device.flush().is_ok());
/// assert!(device.flush().is_err());
/// assert!(device.flush().is_ok());
/// ```
pub struct FaultyDevice<D> {
    inner: D,
    rules: Mutex<Vec<Rule>>,
    next: AtomicU64,
    injected: AtomicU64,
}

impl<D: BlockDevice> FaultyDevice<D> {
    /// A device without faults yet.
    pub fn new(inner: D) -> Self {
        FaultyDevice { inner, rules: Mutex::default(), next: AtomicU64::new(0), injected: AtomicU64::new(0) }
    }

    /// Makes one request fail: the `nth` of this kind from now, 1 (or 0) being the next.
    pub fn fail_nth(&self, kind: RequestKind, nth: u64, error: io::ErrorKind) {
        self.rules.lock().push(Rule::Nth { kind, remaining: nth.saturating_sub(1), error });
    }

    /// Lets `count` more requests of any kind pass, then makes all fail.
    pub fn fail_after(&self, count: u64, error: io::ErrorKind) {
        self.rules.lock().push(Rule::After { remaining: count, error });
    }

    /// Makes every request fail for which `predicate` names an error. It is called under a lock and must not use this
    /// device; [`Request::data`] is not filled in.
    pub fn fail_when(&self, predicate: impl Fn(&Request) -> Option<io::ErrorKind> + Send + Sync + 'static) {
        self.rules.lock().push(Rule::When(Box::new(predicate)));
    }

    /// Removes every fault.
    pub fn heal(&self) {
        self.rules.lock().clear();
    }

    /// How many requests were made to fail.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    /// The device within; requests to it never fail by this wrapper.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Gives the device back.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Fails if a rule says so.
    fn admit(&self, kind: RequestKind, offset: u64, length: u64) -> Result<()> {
        let mut rules = self.rules.lock();
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let request = Request { sequence, kind, offset, length, data: None, failed: false };
        let mut fault = None;
        rules.retain_mut(|rule| {
            let (error, spent) = rule.decide(&request);
            fault = fault.or(error);
            !spent
        });
        let Some(error) = fault else { return Ok(()) };
        self.injected.fetch_add(1, Ordering::Relaxed);
        Err(request.error(self.inner.name(), error.into()))
    }
}

impl<D: BlockDevice> DeviceLayer for FaultyDevice<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.admit(RequestKind::Read, offset, buf.len() as u64)?;
        self.inner.read_at(offset, buf)
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        self.admit(RequestKind::Write, offset, total_length(slices))?;
        self.inner.write_vectored_at(offset, slices)
    }

    fn on_flush(&self) -> Result<()> {
        self.admit(RequestKind::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.admit(RequestKind::Discard, offset, length)?;
        self.inner.discard(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceError, MemoryDevice};
    use std::io::ErrorKind;

    fn device() -> FaultyDevice<MemoryDevice> {
        FaultyDevice::new(MemoryDevice::new(1 << 16, 512))
    }

    #[test]
    fn the_nth_of_a_kind_fails_once_and_reaches_nothing() {
        let device = device();
        device.fail_nth(RequestKind::Write, 2, ErrorKind::Other);
        device.write_at(0, &[1; 8]).unwrap();
        device.flush().unwrap();
        device.read_at(0, &mut [0; 8]).unwrap();
        let error = device.write_vectored_at(0, &[&[2; 4], &[2; 4]]).unwrap_err();
        assert!(matches!(error, DeviceError::Io { operation: "write", offset: 0, length: 8, .. }));
        device.write_at(100, &[3; 8]).unwrap();
        let mut bytes = [0; 8];
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 8]);
        assert_eq!(device.injected(), 1);
        assert_eq!(device.inner().counters().writes, 2);
    }

    #[test]
    fn all_fail_after_a_countdown_until_healed() {
        let device = device();
        device.fail_after(2, ErrorKind::TimedOut);
        device.flush().unwrap();
        device.write_at(0, &[1]).unwrap();
        for _ in 0..3 {
            assert!(device.flush().is_err());
            assert!(device.read_at(0, &mut [0]).is_err());
            assert!(device.discard(0, 512).is_err());
        }
        device.heal();
        device.flush().unwrap();
        assert_eq!(device.injected(), 9);
    }

    #[test]
    fn a_predicate_picks_by_place() {
        let device = device();
        device.fail_when(|request| {
            let bad_sector = 4096..4608;
            (request.offset < bad_sector.end && request.end() > bad_sector.start).then_some(ErrorKind::InvalidData)
        });
        device.read_at(0, &mut [0; 4096]).unwrap();
        device.read_at(4608, &mut [0; 4096]).unwrap();
        for (offset, length) in [(0, 4097), (4607, 10), (4200, 1)] {
            let Err(DeviceError::Io { source, .. }) = device.read_at(offset, &mut vec![0; length]) else {
                unreachable!("{length} bytes at {offset} were read");
            };
            assert_eq!(source.kind(), ErrorKind::InvalidData);
        }
        device.flush().unwrap();
    }

    #[test]
    fn each_rule_counts_every_request() {
        let device = device();
        device.fail_nth(RequestKind::Flush, 1, ErrorKind::Other);
        device.fail_nth(RequestKind::Flush, 2, ErrorKind::Other);
        device.fail_nth(RequestKind::Flush, 4, ErrorKind::Other);
        let failed: Vec<bool> = (0..5).map(|_| device.flush().is_err()).collect();
        assert_eq!(failed, [true, true, false, true, false]);
    }
}
