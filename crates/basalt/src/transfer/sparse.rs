//! The data in a file of the host, holes left out.

use std::fs::File;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Bytes copied at a time.
pub(super) const CHUNK: usize = 1 << 20;

/// The next piece of data at or behind `from` in a file of the host: its first byte and the first byte behind it. `None` where no data
/// follows. A file system that does not tell has data everywhere, up to the end of the file, wherever that is.
pub(super) fn host_data(file: &File, from: u64) -> rustix::io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((from, u64::MAX))),
        Err(errno) => return Err(errno),
    };
    let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
        Ok(end) => end,
        // It became shorter meanwhile.
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => u64::MAX,
        Err(errno) => return Err(errno),
    };
    Ok((start < end).then_some((start, end)))
}
