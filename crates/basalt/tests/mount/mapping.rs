//! A shared, writable mapping of a file, touched by copies only.
#![allow(unsafe_code)]

use std::fs::File;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A mapped piece of a file. Touching it behind the file's last page is a SIGBUS.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes, more than none, from a page's beginning on.
    pub fn new(file: &File, offset: u64, len: usize) -> rustix::io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes overlaps nothing that exists.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset)? };
        Ok(Mapping { start: NonNull::new(start.cast()).expect("mmap never maps page zero unasked"), len })
    }

    /// Copies bytes out.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: within the mapping, by the assertion; `bytes` is not part of it.
        unsafe { self.start.as_ptr().add(at).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies bytes in.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: within the mapping, by the assertion; `bytes` is not part of it.
        unsafe { self.start.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Waits until what was written is in the file.
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
