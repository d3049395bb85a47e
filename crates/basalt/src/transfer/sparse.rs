//! The data in a file of the host, holes left out.

use std::fs::File;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Bytes copied at a time.
pub(super) const CHUNK: usize = 1 << 20;

/// The next piece of data at or behind `from` in a file of the host: its first byte and the first byte behind it.
/// A file system that does not tell has data everywhere.
pub(super) fn host_data(file: &File, from: u64, size: u64) -> rustix::io::Result<Option<(u64, u64)>> {
    if from >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => from,
        Err(errno) => return Err(errno),
    };
    let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
        Ok(end) => end,
        // It became shorter meanwhile.
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => size,
        Err(errno) => return Err(errno),
    };
    Ok(range(start, end, size))
}

/// Cuts a piece off at the size that the file had when the copy began; an empty piece is none.
fn range(start: u64, end: u64, size: u64) -> Option<(u64, u64)> {
    let end = end.min(size);
    (start < end).then_some((start, end))
}
