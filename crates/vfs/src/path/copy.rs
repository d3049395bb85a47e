//! Copying a file, its holes left out.

use std::ops::Range;
use std::path::Path;

use super::error::Result;
use super::{File, FileOptions, Files, SharedFs};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::types::{FileKind, InodeNumber, Seek, SetAttributes};

/// Bytes copied at a time.
const CHUNK: u64 = 1 << 20;

/// The next bytes of a file at or behind byte `from` that are data, no hole, and lie below `size`; `None` if there are no more.
///
/// # Errors
/// Those of [`FileSystem::seek`].
pub fn data_range<F: FileSystem + ?Sized>(
    fs: &F,
    ino: InodeNumber,
    from: u64,
    size: u64,
) -> crate::Result<Option<Range<u64>>> {
    if from >= size {
        return Ok(None);
    }
    let seek = |from, whence| match fs.seek(ino, from, whence) {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoData) => Ok(None),
        Err(error) => Err(error),
    };
    let Some(start) = seek(from, Seek::Data)? else { return Ok(None) };
    let Some(end) = seek(start, Seek::Hole)? else { return Ok(None) };
    let range = start.max(from)..end.min(size);
    Ok((!range.is_empty()).then_some(range))
}

impl<F: SharedFs> Files<F> {
    /// Copies the content and the permission bits of a file to another one, which is made if it does not exist, else emptied first.
    /// Holes stay holes. Returns the size in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `from` is no regular file, or both paths name the same file; else see [`open_with`](Self::open_with).
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open(from)?;
        let attributes = source.metadata()?;
        if attributes.kind != FileKind::Regular {
            return Err(source.error(Error::Invalid("only a regular file can be copied")));
        }
        // Emptied only once it is known to be another file.
        let options = FileOptions::new().write(true).create(true).mode(attributes.permissions);
        let target = self.open_with(to, &options)?;
        if target.ino() == source.ino() {
            return Err(target.error(Error::Invalid("a file cannot be copied onto itself")));
        }
        target.set_len(0)?;
        copy_data(&source, &target, attributes.size)?;
        target.set_len(attributes.size)?;
        // Behind the content: writing it may clear set-uid and set-gid.
        let changes = SetAttributes { permissions: Some(attributes.permissions), ..SetAttributes::default() };
        let kept = self.file_system().set_attributes(target.ino(), &changes);
        kept.map_err(|reason| target.error(reason))?;
        Ok(attributes.size)
    }
}

fn copy_data<F: SharedFs>(source: &File<F>, target: &File<F>, size: u64) -> Result<()> {
    let mut buffer = vec![0; CHUNK.min(size) as usize];
    let mut end = 0;
    loop {
        let range = data_range_of(source, end, size)?;
        let Some(range) = range else { return Ok(()) };
        let mut at = range.start;
        while at < range.end {
            // At most CHUNK, or the size if that is less: the buffer's length.
            let wanted = (range.end - at).min(CHUNK) as usize;
            let length = source.read_at(&mut buffer[..wanted], at)?;
            if length == 0 {
                // Another handle has made it shorter: what is missing reads as zeros.
                return Ok(());
            }
            at += target.write_at(&buffer[..length], at)? as u64;
        }
        end = range.end;
    }
}

fn data_range_of<F: SharedFs>(file: &File<F>, from: u64, size: u64) -> Result<Option<Range<u64>>> {
    data_range(&**file.fs(), file.ino(), from, size).map_err(|reason| file.error(reason))
}
