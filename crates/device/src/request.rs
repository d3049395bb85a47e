//! One device request as a value.

use crate::block::DeviceError;

/// What a request asks the device to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Fill a buffer.
    Read,
    /// Write bytes; a vectored write is one request.
    Write,
    /// Make earlier writes durable.
    Flush,
    /// Tell that a range holds nothing of value.
    Discard,
}

impl RequestKind {
    /// The word that error messages use.
    pub const fn operation(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Flush => "flush",
            RequestKind::Discard => "discard",
        }
    }
}

/// A request to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Position in the order of all requests to the wrapper, counted from 0.
    pub sequence: u64,
    /// What it asked for.
    pub kind: RequestKind,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
    /// The bytes written, where they are kept.
    pub data: Option<Vec<u8>>,
    /// Whether the device reported an error; what is on the medium is then unknown.
    pub failed: bool,
}

impl Request {
    /// One past the last byte.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// The error that this request ends with when `source` happens to it on the device `name`.
    pub(crate) fn error(&self, name: &str, source: std::io::Error) -> DeviceError {
        crate::range::io_error(name, self.kind.operation(), self.offset, self.length, source)
    }
}
