//! One request of a trace.

use basalt_device::RequestKind;

/// The longest read or write that a line may ask for, in bytes: what the kernel's block layer counts in 32 bits. Discards
/// may cover a whole device.
pub const LONGEST_TRANSFER: u64 = 1 << 32;

/// One request to a block device: when, what and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceRequest {
    /// Nanoseconds since the first request of the trace; 0 also for a request that the trace dates before its first one.
    /// Not always rising: traces keep the order of their lines.
    pub time_ns: u64,
    /// What it asks for.
    pub kind: RequestKind,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Bytes, never 0, except for a flush, where it is 0. At most [`LONGEST_TRANSFER`] for reads and writes, and
    /// `offset + length` is at most `i64::MAX`.
    pub length: u64,
}

impl TraceRequest {
    /// A request for no range: a flush.
    pub const fn flush(time_ns: u64) -> TraceRequest {
        TraceRequest { time_ns, kind: RequestKind::Flush, offset: 0, length: 0 }
    }

    /// One past the last byte.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// The pages of `page_size` bytes that the request touches, the first and one past the last. A request that is not
    /// aligned touches its first and last page as a whole. A `page_size` of 0 counts as 1.
    pub fn pages(&self, page_size: u64) -> std::ops::Range<u64> {
        let page_size = page_size.max(1);
        self.offset / page_size..self.end().div_ceil(page_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_touch_whole_pages() {
        let pages = |offset, length| TraceRequest { time_ns: 0, kind: RequestKind::Write, offset, length }.pages(4096);
        assert_eq!(pages(0, 4096), 0..1);
        assert_eq!(pages(4095, 2), 0..2);
        assert_eq!(pages(512, 512), 0..1);
        assert_eq!(pages(8192, 12288), 2..5);
        assert!(TraceRequest::flush(7).pages(4096).is_empty());
    }
}
