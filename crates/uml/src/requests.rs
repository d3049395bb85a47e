//! The requests that a machine made to one of its images.
//!
//! The kernel's block driver makes them in a thread of the host, where a preloaded library writes them down
//! (`src/preload/requests.c`), one record of 32 bytes each, in the order in which they were made. Flushes are among them,
//! although the driver of Linux 6.1 answers them without doing anything. [`RequestsWriter`] makes the same files for devices that
//! are no machine's.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};

/// Bytes of a record: time, offset, length and kind, each 8 bytes in the computer's own order.
pub const RECORD_BYTES: u64 = 32;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// To read a range.
    Read,
    /// To write a range.
    Write,
    /// To forget a range.
    Discard,
    /// To fill a range with zeros without sending them (write-zeroes).
    Zero,
    /// To make everything durable that was written before.
    Flush,
}

impl RequestKind {
    /// All kinds, in the order of their numbers in records.
    const ALL: [RequestKind; 5] =
        [RequestKind::Read, RequestKind::Write, RequestKind::Discard, RequestKind::Zero, RequestKind::Flush];
}

/// One request to the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was done, in nanoseconds of the host's monotonic clock.
    pub time_ns: u64,
    /// What it asked for.
    pub kind: RequestKind,
    /// Its first byte; 0 for a flush.
    pub offset: u64,
    /// Its bytes; 0 for a flush.
    pub length: u64,
}

/// Reads recorded requests in order, in bounded memory.
pub struct Requests {
    path: PathBuf,
    file: BufReader<File>,
    ended: bool,
}

impl Requests {
    /// Opens a file that [`crate::Uml::record`] named.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Requests> {
        let file = File::open(path).doing("open", path)?;
        Ok(Requests { path: path.to_owned(), file: BufReader::with_capacity(1 << 16, file), ended: false })
    }

    /// How many whole requests the file has now: while a machine runs, how many it has made.
    ///
    /// # Errors
    /// When the file cannot be looked at.
    pub fn count(path: &Path) -> Result<u64> {
        Ok(std::fs::metadata(path).doing("look at", path)?.len() / RECORD_BYTES)
    }

    fn read(&mut self) -> Result<Option<Request>> {
        let mut record = [[0_u8; 8]; 4];
        // A record is written at once: only a machine that was killed in the middle leaves a part, and there is none for pipes.
        match self.file.read_exact(record.as_flattened_mut()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error).doing("read", &self.path),
        }
        let [time_ns, offset, length, kind] = record.map(u64::from_ne_bytes);
        let known = usize::try_from(kind).ok().and_then(|number| RequestKind::ALL.get(number));
        let Some(&kind) = known else {
            let path = self.path.display().to_string();
            return Err(Error::Recording { path, reason: format!("{kind} is no kind of request") });
        };
        Ok(Some(Request { time_ns, kind, offset, length }))
    }
}

impl Iterator for Requests {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Writes requests down as a machine's library does.
pub struct RequestsWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl RequestsWriter {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<RequestsWriter> {
        let file = File::create(path).doing("create", path)?;
        Ok(RequestsWriter { path: path.to_owned(), file: BufWriter::with_capacity(1 << 16, file) })
    }

    /// Appends a request.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, request: &Request) -> Result<()> {
        let Request { time_ns, kind, offset, length } = *request;
        let record = [time_ns, offset, length, kind as u64].map(u64::to_ne_bytes);
        self.file.write_all(record.as_flattened()).doing("write", &self.path)
    }

    /// Hands everything over to the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.file.flush().doing("write", &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(words: &[u64]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn whole_records_are_read_and_a_torn_one_is_not() {
        let file = file_of(&[7, 4096, 512, 1, 9, 0, 0, 4, 11, 0]);
        let requests: Vec<Request> = Requests::open(file.path()).unwrap().map(Result::unwrap).collect();
        let write = Request { time_ns: 7, kind: RequestKind::Write, offset: 4096, length: 512 };
        assert_eq!(requests, [write, Request { time_ns: 9, kind: RequestKind::Flush, offset: 0, length: 0 }]);
        assert_eq!(Requests::count(file.path()).unwrap(), 2);
    }

    #[test]
    fn what_is_written_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let requests = RequestKind::ALL.map(|kind| Request { time_ns: 1, kind, offset: 2 << kind as u64, length: 3 });
        let mut writer = RequestsWriter::create(file.path()).unwrap();
        requests.iter().for_each(|request| writer.write(request).unwrap());
        writer.finish().unwrap();
        assert_eq!(Requests::open(file.path()).unwrap().map(Result::unwrap).collect::<Vec<_>>(), requests);
    }

    #[test]
    fn an_unknown_kind_ends_the_reading() {
        let file = file_of(&[7, 4096, 512, 5, 9, 0, 0, 4]);
        let mut requests = Requests::open(file.path()).unwrap();
        assert!(requests.next().unwrap().unwrap_err().to_string().contains("5 is no kind of request"));
        assert!(requests.next().is_none());
    }
}
