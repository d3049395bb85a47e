//! Shared, writable mappings of files, touched by copies only; and another process that writes through them.
//!
//! A process that serves a mount must not touch a mapping of a file on it: the fault waits for the server, and the server for the fault.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A mapped piece of a file. Touching it behind the file's last page is a SIGBUS.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes, more than none, from a page's beginning on.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(file: &File, offset: u64, len: usize) -> rustix::io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes overlaps nothing that exists.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset)? };
        Ok(Mapping { start: NonNull::new(start.cast()).expect("mmap never maps page zero unasked"), len })
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they are not all within the mapping.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: within the mapping, by the assertion; `bytes` is not part of it.
        unsafe { self.start.as_ptr().add(at).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they are not all within the mapping.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: within the mapping, by the assertion; `bytes` is not part of it.
        unsafe { self.start.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Waits until what was written is in the file.
    ///
    /// # Errors
    /// As msync(2).
    pub fn sync(&self) -> rustix::io::Result<()> {
        // SAFETY: exactly the mapping.
        unsafe { msync(self.start.as_ptr().cast(), self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping, which nobody refers to any more.
        unsafe { munmap(self.start.as_ptr().cast(), self.len) }.expect("unmapping what was mapped");
    }
}

/// A process (`basalt-testkit map FILE`) that writes through mappings of one file.
pub struct Mapper {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
}

impl Mapper {
    /// Starts it.
    ///
    /// # Errors
    /// When the program cannot be built or started.
    pub fn start(path: &Path) -> crate::Result<Mapper> {
        let mut command = Command::new(crate::helper::path()?);
        command.arg("map").arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |source| crate::Error::Io { doing: "start basalt-testkit map".to_owned(), source };
        let mut child = command.spawn().map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(answers)) => Ok(Mapper { child, requests, answers }),
            _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Maps as many bytes of the file as these are, from a page's beginning on, writes them, waits until they are in the file if that is
    /// wanted, and unmaps.
    ///
    /// # Errors
    /// When one of that fails.
    pub fn write(&mut self, offset: u64, bytes: &[u8], sync: bool) -> io::Result<()> {
        writeln!(self.requests, "{offset} {} {}", bytes.len(), u8::from(sync))?;
        self.requests.write_all(bytes)?;
        self.requests.flush()?;
        self.answers.read_exact(&mut [0])
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // It keeps the file open, and what it did is done.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What that process does, until its input ends.
///
/// # Errors
/// When the file cannot be mapped or synced, or a request is none.
pub fn serve(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let (mut requests, mut answers) = (BufReader::new(io::stdin()), io::stdout());
    let mut line = String::new();
    while requests.read_line(&mut line)? > 0 {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [offset, len, sync] = numbers[..] else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut bytes = vec![0; len as usize];
        requests.read_exact(&mut bytes)?;
        let mapping = Mapping::new(&file, offset, bytes.len())?;
        mapping.write(0, &bytes);
        if sync != 0 {
            mapping.sync()?;
        }
        drop(mapping);
        answers.write_all(b".")?;
        answers.flush()?;
        line.clear();
    }
    Ok(())
}
