//! Replaying recordings: the bytes written, in order, onto another device.

use std::io::Read;

use basalt_device::{BlockDevice, RequestKind};

use crate::error::{Result, TraceError};
use crate::recording::{Recording, Totals};
use crate::request::TraceRequest;

/// The longest piece in which a write is replayed, in bytes.
const PIECE: usize = 4 << 20;

/// Replays the writes, discards and flushes of a recording, all or the first `upto` requests (reads count, but do nothing).
///
/// The device must hold what the recorded one held at the start, and [discards must read as zeros](crate::ZeroingDevice) if they
/// did there; then its content is, byte for byte, what the recorded one held after the same requests. `progress` is
/// told how many requests are done.
///
/// # Errors
/// When the recording cannot be read, has no content, is damaged or does not fit the device; and when the device fails. The
/// device then holds a beginning.
pub fn replay(
    recording: &Recording,
    device: &dyn BlockDevice,
    upto: Option<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<Totals> {
    let description = recording.description();
    let wrong = |reason: String| TraceError::Recording { path: recording.directory().to_owned(), reason };
    if device.size() < description.size {
        let (size, needed) = (device.size(), description.size);
        return Err(wrong(format!("{} has {size} bytes, and the recorded device {needed}", device.name())));
    }
    let mut content = recording.content()?;
    let mut buffer = vec![0; PIECE];
    let mut totals = Totals::default();
    for request in recording.requests()? {
        if upto.is_some_and(|upto| totals.requests() >= upto) {
            break;
        }
        let request = request?;
        if request.end() > description.size {
            let (length, offset) = (request.length, request.offset);
            return Err(wrong(format!("a request of {length} bytes at {offset} is behind the end of the device")));
        }
        match request.kind {
            RequestKind::Read => {}
            RequestKind::Write => {
                write(&request, &mut content, &mut buffer, device).map_err(|failed| match failed {
                    Failed::Content(error) => wrong(format!("content.lz4: {error}")),
                    Failed::Device(error) => error.into(),
                })?
            }
            RequestKind::Flush => device.flush()?,
            RequestKind::Discard => device.discard(request.offset, request.length)?,
        }
        totals.add(&request);
        progress(totals.requests());
    }
    device.flush()?;
    Ok(totals)
}

enum Failed {
    Content(std::io::Error),
    Device(basalt_device::DeviceError),
}

fn write(
    request: &TraceRequest,
    content: &mut impl Read,
    buffer: &mut [u8],
    device: &dyn BlockDevice,
) -> std::result::Result<(), Failed> {
    let mut at = request.offset;
    while at < request.end() {
        // Within the buffer's length, which is a usize.
        let length = (request.end() - at).min(buffer.len() as u64) as usize;
        let piece = &mut buffer[..length];
        content.read_exact(piece).map_err(Failed::Content)?;
        device.write_at(at, piece).map_err(Failed::Device)?;
        at += length as u64;
    }
    Ok(())
}
