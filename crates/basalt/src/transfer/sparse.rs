//! The data in a file, holes left out.

use std::fs::File;

use basalt_vfs::{FileSystem, InodeNumber, Seek};
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

/// The next piece of data at or behind `from` in a file of a volume, likewise.
///
/// # Errors
/// When the volume cannot tell.
pub fn volume_data(
    fs: &dyn FileSystem,
    ino: InodeNumber,
    from: u64,
    size: u64,
) -> basalt_vfs::Result<Option<(u64, u64)>> {
    use basalt_vfs::Error;
    if from >= size {
        return Ok(None);
    }
    let start = match fs.seek(ino, from, Seek::Data) {
        Ok(start) => start,
        Err(Error::NoData) => return Ok(None),
        Err(error) => return Err(error),
    };
    let end = match fs.seek(ino, start, Seek::Hole) {
        Ok(end) => end,
        Err(Error::NoData) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(range(start.max(from), end, size))
}

/// Cuts a piece off at the size that the file had when the copy began; an empty piece is none.
fn range(start: u64, end: u64, size: u64) -> Option<(u64, u64)> {
    let end = end.min(size);
    (start < end).then_some((start, end))
}
