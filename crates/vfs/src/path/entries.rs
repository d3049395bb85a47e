//! The entries of a directory.

use super::SharedFs;
use crate::error::{Error, Result};
use crate::fs::FileSystem;
use crate::types::{FileKind, InodeNumber};

/// How many entries are held in memory at a time by [`Entries`].
const BATCH: usize = 1024;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// Its inode. The entry is no reference on it.
    pub ino: InodeNumber,
    /// What it is, as the directory says.
    pub kind: FileKind,
}

/// All entries of a directory but `.` and `..`, a batch in memory at a time; an error comes behind all that could be read.
///
/// The caller keeps a [`Reference`](super::Reference) on the directory meanwhile, or its inode may go.
#[derive(Debug)]
pub struct Entries<F> {
    fs: F,
    directory: InodeNumber,
    /// Entries read, the next one last.
    batch: Vec<Entry>,
    /// Where to go on reading; `None` at the end.
    cursor: Option<u64>,
    /// Why there are no more than those that were read.
    error: Option<Error>,
}

impl<F: SharedFs> Entries<F> {
    /// The entries of `directory`.
    pub fn new(fs: &F, directory: InodeNumber) -> Entries<F> {
        Entries { fs: fs.clone(), directory, batch: Vec::new(), cursor: Some(0), error: None }
    }

    fn fill(&mut self, from: u64) {
        let mut read = 0;
        let mut cursor = None;
        let batch = &mut self.batch;
        let result = self.fs.read_directory(self.directory, from, &mut |entry| {
            if read == BATCH {
                return false;
            }
            read += 1;
            cursor = Some(entry.next);
            if !matches!(entry.name, b"." | b"..") {
                batch.push(Entry { name: entry.name.to_vec(), ino: entry.ino, kind: entry.kind });
            }
            true
        });
        // An answer shorter than asked for was the last one.
        self.cursor = cursor.filter(|_| read == BATCH && result.is_ok());
        self.error = result.err();
        self.batch.reverse();
    }
}

impl<F: SharedFs> Iterator for Entries<F> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        loop {
            if let Some(entry) = self.batch.pop() {
                return Some(Ok(entry));
            }
            if let Some(error) = self.error.take() {
                return Some(Err(error));
            }
            // Where reading failed, it does not begin again.
            let from = self.cursor.take()?;
            self.fill(from);
        }
    }
}
