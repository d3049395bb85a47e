//! A host that keeps a number of requests under way.

use std::sync::Arc;

use basalt_device::RequestKind;
use basalt_flash::DeviceModel;
use basalt_flash::device::Queue;

/// Makes requests in their order, each as soon as fewer than a number of them are under way. A flush is a barrier: it begins when all
/// before it are done, and what comes behind it begins at its end.
pub(super) struct ClosedLoop {
    queue: Queue,
    /// When the last request was made, or the last flush was done.
    now: u64,
    /// When everything is done.
    end: u64,
    /// When measuring began.
    started: u64,
}

impl ClosedLoop {
    pub(super) fn new(model: &Arc<DeviceModel>, depth: u32) -> ClosedLoop {
        ClosedLoop { queue: Queue::new(Arc::clone(model), depth), now: 0, end: 0, started: 0 }
    }

    /// Makes a request for which the device works on itself for `inside` nanoseconds; returns how long it takes.
    pub(super) fn request(&mut self, kind: RequestKind, offset: u64, length: u64, inside: u64) -> u64 {
        let is_flush = kind == RequestKind::Flush;
        let submitted = if is_flush { self.end.max(self.now) } else { self.queue.admits(self.now) };
        let mut served = self.queue.submit(submitted, kind, offset, length);
        self.queue.prolong(&mut served, inside);
        self.end = self.end.max(served.end);
        self.now = if is_flush { served.end } else { submitted };
        self.queue.forget_before(self.now);
        served.end - submitted
    }

    /// Waits for everything, and counts time from there.
    pub(super) fn begin_measuring(&mut self) {
        self.now = self.end.max(self.now);
        self.started = self.now;
    }

    /// Nanoseconds until everything is done since measuring began.
    pub(super) fn elapsed(&self) -> u64 {
        self.end.saturating_sub(self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_requests_are_under_way_and_a_flush_waits_for_them() {
        // Stripes of 16 KiB on eight units: 57 us and 16384 bytes at 425 MB/s for each request.
        let model = Arc::new(basalt_flash::preset("nvme").unwrap());
        let mut host = ClosedLoop::new(&model, 2);
        let one = 57_000 + 38_551;
        let read = |host: &mut ClosedLoop, stripe: u64| host.request(RequestKind::Read, stripe << 14, 16384, 0);
        assert_eq!([read(&mut host, 1), read(&mut host, 3), read(&mut host, 5)], [one; 3]);
        assert_eq!(host.elapsed(), 2 * one);
        // The same unit as the one before: it is made when the second is done, and waits for the third.
        assert_eq!(read(&mut host, 13), 2 * one);
        assert_eq!(host.elapsed(), 3 * one);
        // 7 us and 16384 bytes at 312.5 MB/s; then the flush, and behind that the next request.
        let write = 7_000 + 52_429;
        assert_eq!(host.request(RequestKind::Write, 0, 16384, 0), write);
        assert_eq!(host.request(RequestKind::Flush, 0, 0, 0), 800_000);
        assert_eq!(host.elapsed(), 3 * one + 800_000);
        host.begin_measuring();
        assert_eq!(host.request(RequestKind::Read, 7 << 14, 16384, 1_000), one + 1_000);
        assert_eq!(host.elapsed(), one + 1_000);
    }
}
