//! The checks and errors that all devices share.

use std::io;

use crate::block::{DeviceError, Result};

/// Fails unless `length` bytes at `offset` lie within a device of `size` bytes.
pub(crate) fn check(name: &str, operation: &'static str, offset: u64, length: u64, size: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::OutOfRange { name: name.to_owned(), operation, offset, length, size }),
    }
}

/// The error of a request that the operating system, or an injected fault, made fail.
pub(crate) fn io_error(
    name: &str,
    operation: &'static str,
    offset: u64,
    length: u64,
    source: impl Into<io::Error>,
) -> DeviceError {
    DeviceError::Io { name: name.to_owned(), operation, offset, length, source: source.into() }
}

/// Bytes in all slices together.
pub(crate) fn total_length(slices: &[&[u8]]) -> u64 {
    slices.iter().map(|slice| slice.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_at_the_device_end() {
        for (offset, length, fits) in [
            (0, 0, true),
            (0, 100, true),
            (99, 1, true),
            (100, 0, true),
            (100, 1, false),
            (101, 0, false),
            (0, 101, false),
            (u64::MAX, 1, false),
            (1, u64::MAX, false),
            (u64::MAX, u64::MAX, false),
        ] {
            let checked = check("disk", "read", offset, length, 100);
            assert_eq!(checked.is_ok(), fits, "{length} bytes at {offset}");
            if let Err(error) = checked {
                assert!(matches!(error, DeviceError::OutOfRange { size: 100, .. }));
            }
        }
    }
}
