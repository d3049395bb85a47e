//! Content: reading, writing, allocating, seeking.

use basalt_testkit::rng::Rng;
use basalt_vfs::{Bytes, Caller, Error, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, Seek};

use super::{Outcome, PLENTY, World, failed};
use crate::content::PAGE;

/// Blocks that a range touches.
fn blocks(offset: u64, length: u64) -> u64 {
    offset.saturating_add(length).div_ceil(PAGE) - offset / PAGE
}

impl World {
    /// Writes random bytes. `how`: from the kernel's cache, and clearing set-uid and set-gid.
    pub fn write_random(
        &mut self,
        ino: InodeNumber,
        offset: u64,
        length: usize,
        fill: u64,
        how: (bool, bool),
    ) -> Outcome<()> {
        let mut data = vec![0; length];
        Rng::new(fill).fill(&mut data);
        let (buffered, clear) = (how.0, how.1 && !how.0);
        let (free, now) = (self.free()?, self.now());
        // Half of what is written may be kept.
        let shared = || Bytes::copy_from_slice(&data);
        let count = match (buffered, fill.is_multiple_of(2)) {
            (true, false) => self.fs.write_back(ino, offset, &data).map(|()| length),
            (true, true) => self.fs.write_back_shared(ino, offset, shared()).map(|()| length),
            (false, false) => self.fs.write(ino, offset, &data, clear),
            (false, true) => self.fs.write_shared(ino, offset, shared(), clear),
        };
        // Fewer bytes than wanted are as good as the error that the next call would meet.
        let short = count.as_ref().ok().copied().filter(|&count| count < length);
        let answer = count.and_then(|_| if short.is_some() { Err(Error::NoSpace) } else { Ok(()) });
        let is_full = matches!(answer, Err(Error::NoSpace));
        let needed = (free, blocks(offset, length as u64));
        self.settle(answer, needed, |model| model.write(ino, offset, &data, buffered, clear, now))?;
        match short {
            Some(0) => Err("a write of no bytes is no success".into()),
            Some(count) => {
                self.model.write(ino, offset, &data[..count], buffered, clear, now).map_err(failed("model"))?;
                self.accept_beginning(ino, offset, &data[..count])
            }
            None if is_full => self.accept_beginning(ino, offset, &data),
            None => Ok(()),
        }
    }

    /// After a write that ran out of space: a beginning of the data may be there, and nothing else may have changed.
    fn accept_beginning(&mut self, ino: InodeNumber, offset: u64, data: &[u8]) -> Outcome<()> {
        let size = self.model.inodes[&ino].attributes.size;
        let mut found = vec![0; data.len()];
        let got = self.fs.read(ino, offset, &mut found).map_err(failed("read"))?;
        let attributes = self.fs.attributes(ino).map_err(failed("stat"))?;
        let same = found[..got].iter().zip(data).take_while(|(found, written)| found == written).count();
        // Writes stop at the end of a block, or not at all.
        let stop = offset + same as u64;
        let stop = if same == data.len() { stop } else { stop / PAGE * PAGE };
        let (buffered, clear) = (true, false);
        if stop > offset {
            let beginning = &data[..(stop - offset) as usize];
            let now = self.now();
            self.model.write(ino, offset, beginning, buffered, clear, now).map_err(failed("model"))?;
        }
        let model = &mut self.model.get(ino).map_err(failed("model"))?.attributes;
        if attributes.size > size.max(stop) || attributes.size < size {
            return Err(format!("size {} after a write that failed at {stop}; before: {size}", attributes.size));
        }
        model.size = attributes.size;
        // Times follow what was written, if anything was; so does a read just now.
        (model.mtime, model.ctime, model.atime) = (attributes.mtime, attributes.ctime, attributes.atime);
        self.same_inode(ino)
    }

    /// Reads and compares.
    pub fn read(&mut self, ino: InodeNumber, offset: u64, length: usize) -> Outcome<()> {
        let now = self.now();
        let mut found = vec![0xAA; length];
        let answer = self.fs.read(ino, offset, &mut found);
        let done = self.settle(answer, (PLENTY, 0), |model| model.read(ino, offset, length, now))?;
        let Some((got, expected)) = done else { return Ok(()) };
        if got != expected.len() {
            return Err(format!("read {got} of {length} bytes at {offset}, expected {}", expected.len()));
        }
        if let Some(at) = found.iter().zip(&expected).position(|(found, expected)| found != expected) {
            let wrong = found.iter().zip(&expected).filter(|(found, expected)| found != expected).count();
            return Err(format!(
                "inode {ino}: byte {} is {}, expected {}; {wrong} of {got} bytes at {offset} differ",
                offset + at as u64,
                found[at],
                expected[at]
            ));
        }
        Ok(())
    }

    /// Preallocates, punches or zeroes.
    pub fn allocate(&mut self, ino: InodeNumber, mode: FallocateMode, offset: u64, length: u64) -> Outcome<()> {
        let (free, now) = (self.free()?, self.now());
        let answer = self.fs.fallocate(ino, mode, offset, length);
        let needed = if mode.contains(FallocateMode::PUNCH_HOLE) { 0 } else { blocks(offset, length) };
        self.settle(answer, (free, needed), |model| model.allocate(ino, mode, offset, length, now))?;
        Ok(())
    }

    /// Takes all space but `leave` blocks, with one file.
    pub(super) fn fill(&mut self, leave: u64) -> Outcome<()> {
        let node = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let root = self.model.root;
        let Some(ino) = self.create(root, b"filler", &node, &Caller::default())? else { return Ok(()) };
        // A node for every thousand blocks comes on top.
        let free = self.free()?;
        let blocks = (free - free / 1018).saturating_sub(leave + 5);
        self.allocate(ino, FallocateMode::empty(), 0, (blocks * PAGE).max(1))
    }

    /// Seeks: between `offset` and the data there must be only zeros, and a hole must begin with zeros.
    pub fn seek(&mut self, ino: InodeNumber, offset: u64, whence: Seek) -> Outcome<()> {
        let answer = self.fs.seek(ino, offset, whence);
        let inode = self.model.get(ino).map_err(failed("model"))?;
        let size = inode.attributes.size;
        let found = match answer {
            Err(Error::NoData) if offset >= size => return Ok(()),
            Err(Error::NoData) if whence == Seek::Data && inode.content.is_zero(offset, size) => return Ok(()),
            Ok(found) if offset < size => found,
            other => return Err(format!("{other:?} in a file of {size} bytes")),
        };
        let right = match whence {
            Seek::Data => found >= offset && found < size && inode.content.is_zero(offset, found),
            Seek::Hole if found == size => true,
            Seek::Hole => {
                let end = (found / PAGE + 1) * PAGE;
                found >= offset && found < size && inode.content.is_zero(found, end.min(size))
            }
        };
        if right { Ok(()) } else { Err(format!("found {whence:?} at {found} in a file of {size} bytes")) }
    }
}
