//! What the operations of a run are done on: the files, those of them that are open, and what they must hold.

use crate::content::Content;
use crate::error::{Error, Result};
use crate::files::{Files, Handle};
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Contents, Settings};
use crate::shadow::Shadow;

/// Files open at once at most; a workload that wants more is defective.
const OPEN_FILES: usize = 65_536;

/// The number for the runner's own files: the one a workload is least likely to have open.
pub(super) const OWN_FILE: File = File(OPEN_FILES as u32 - 1);

/// A file the workload has open.
#[derive(Debug)]
struct OpenFile {
    handle: Handle,
    path: String,
    /// Its number in the shadow, if there is one.
    shadow: Option<u64>,
}

/// The files of a target, as the runner uses them.
pub(super) struct Target<'r> {
    pub(super) files: &'r mut dyn Files,
    content: Content,
    open: Vec<Option<OpenFile>>,
    shadow: Option<Shadow>,
    buffer: Vec<u8>,
    writes: u64,
}

impl<'r> Target<'r> {
    pub(super) fn new(files: &'r mut dyn Files, settings: &Settings) -> Target<'r> {
        Target {
            files,
            content: Content::new(settings.seed, settings.contents.unwrap_or(Contents::Random)),
            open: Vec::new(),
            shadow: settings.verify.then(Shadow::default),
            buffer: Vec::new(),
            writes: 0,
        }
    }

    /// Compares every file with its shadow; returns how many bytes.
    pub(super) fn verify(&mut self) -> Result<u64> {
        let Some(shadow) = &self.shadow else { return Ok(0) };
        self.buffer.resize(MAX_REQUEST as usize, 0);
        let mut total = 0;
        for (path, file, size) in shadow.files() {
            let handle = self.files.open(&path)?;
            let mut offset = 0;
            // One read at the end as well: it must find nothing.
            while offset <= size {
                let count = self.files.read(handle, offset, &mut self.buffer)?;
                shadow.check(file, &path, offset, &self.buffer[..count], self.buffer.len(), &self.content)?;
                if count == 0 {
                    break;
                }
                offset += count as u64;
                total += count as u64;
            }
            self.files.close(handle);
        }
        Ok(total)
    }
    /// Hands an operation to the target; returns how many bytes were read or written.
    pub(super) fn perform(&mut self, operation: &Operation) -> Result<u64> {
        match operation {
            Operation::MakeDirectory(path) => self.files.make_directory(path)?,
            Operation::RemoveDirectory(path) => self.files.remove_directory(path)?,
            Operation::Create(file, path) => {
                let handle = self.files.create(path)?;
                let shadow = self.shadow.as_mut().map(|shadow| shadow.create(path));
                self.opened(*file, OpenFile { handle, path: path.clone(), shadow })?;
            }
            Operation::Open(file, path) => {
                let handle = self.files.open(path)?;
                let shadow = self.shadow.as_ref().and_then(|shadow| shadow.open(path));
                self.opened(*file, OpenFile { handle, path: path.clone(), shadow })?;
            }
            Operation::Close(file) => {
                let handle = self.file(*file)?.handle;
                self.open[file.0 as usize] = None;
                self.files.close(handle);
            }
            Operation::Read { file, offset, length } => {
                let handle = self.file(*file)?.handle;
                let length = self.length(*length)?;
                if self.buffer.len() < length {
                    self.buffer.resize(length, 0);
                }
                return Ok(self.files.read(handle, *offset, &mut self.buffer[..length])? as u64);
            }
            Operation::Write { file, offset, length } => {
                let handle = self.file(*file)?.handle;
                let length = self.length(*length)?;
                self.files.write(handle, *offset, self.content.of(self.writes, length))?;
                return Ok(length as u64);
            }
            Operation::Truncate(file, size) => {
                let handle = self.file(*file)?.handle;
                self.files.truncate(handle, *size)?;
            }
            Operation::Sync(file) => {
                let handle = self.file(*file)?.handle;
                self.files.sync(handle, false)?;
            }
            Operation::SyncData(file) => {
                let handle = self.file(*file)?.handle;
                self.files.sync(handle, true)?;
            }
            Operation::Stat(path) => {
                self.files.stat(path)?;
            }
            Operation::List(path) => {
                self.files.list(path)?;
            }
            Operation::Unlink(path) => self.files.unlink(path)?,
            Operation::Rename(from, to) => self.files.rename(from, to)?,
            Operation::SyncAll => self.files.sync_all()?,
        }
        Ok(0)
    }

    /// Keeps the shadow in step with the target, and compares what was read with it.
    pub(super) fn remember(&mut self, operation: Operation, bytes: u64) -> Result<()> {
        let write = self.writes;
        if matches!(operation, Operation::Write { .. }) {
            self.writes += 1;
        }
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        let shadow_of = |file: File| {
            let open = self.open.get(file.0 as usize)?.as_ref()?;
            Some((open.shadow?, &open.path))
        };
        match operation {
            Operation::Write { file, offset, .. } => {
                if let Some((number, _)) = shadow_of(file) {
                    shadow.write(number, offset, bytes, write);
                }
            }
            Operation::Read { file, offset, length } => {
                if let Some((number, path)) = shadow_of(file) {
                    let found = &self.buffer[..bytes as usize];
                    shadow.check(number, path, offset, found, length as usize, &self.content)?;
                }
            }
            Operation::Truncate(file, size) => {
                if let Some((number, _)) = shadow_of(file) {
                    shadow.truncate(number, size);
                }
            }
            Operation::Unlink(path) => shadow.unlink(&path),
            Operation::Rename(from, to) => shadow.rename(&from, &to),
            _ => {}
        }
        Ok(())
    }

    fn opened(&mut self, file: File, open: OpenFile) -> Result<()> {
        let index = file.0 as usize;
        if index >= OPEN_FILES || self.open.get(index).is_some_and(Option::is_some) {
            return Err(defect(format!("file number {index} is in use or too high")));
        }
        if self.open.len() <= index {
            self.open.resize_with(index + 1, || None);
        }
        self.open[index] = Some(open);
        Ok(())
    }

    fn file(&self, file: File) -> Result<&OpenFile> {
        let open = self.open.get(file.0 as usize).and_then(Option::as_ref);
        open.ok_or_else(|| defect(format!("file number {} is not open", file.0)))
    }

    fn length(&self, length: u32) -> Result<usize> {
        if length > MAX_REQUEST {
            return Err(defect(format!("a request of {length} bytes is over {MAX_REQUEST}")));
        }
        Ok(length as usize)
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        for open in self.open.drain(..).flatten() {
            self.files.close(open.handle);
        }
    }
}

fn defect(reason: String) -> Error {
    Error::Defect(reason)
}
