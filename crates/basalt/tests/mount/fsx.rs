//! One file, exercised by random system calls, beside a copy in memory: what fsx does.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use basalt_testkit::mapping::Mapping;
use basalt_testkit::rng::Rng;
use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek};
use rustix::io::Errno;

const PAGE: usize = 4096;
/// The file stays about this long: small enough that operations meet, large enough for several node blocks' worth of pages.
const LONGEST: usize = 400_000;

/// Makes a file, does random things to it and compares after each; returns what is in it at the end. A file system that does not
/// preallocate refuses that, and does not change the file.
///
/// # Panics
/// When the file is not as the copy, saying after which operations of which seed.
pub fn exercise(path: &Path, seed: u64, operations: u32, preallocates: bool) -> Vec<u8> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("creating");
    let rng = Rng::new(seed);
    let mut state = Exercise { path, file, copy: Vec::new(), rng, recent: Vec::new(), seed, preallocates };
    for number in 0..operations {
        state.step(number);
    }
    state.read(0, state.copy.len() + 1);
    state.copy
}

struct Exercise<'a> {
    path: &'a Path,
    file: File,
    copy: Vec<u8>,
    rng: Rng,
    /// The last operations, to be shown.
    recent: Vec<String>,
    seed: u64,
    preallocates: bool,
}

impl Exercise<'_> {
    fn step(&mut self, number: u32) {
        let (at, len) = self.place();
        let kind = self.rng.below(100);
        self.recent.push(format!("{number}: {kind} at {at}, {len} bytes; size {}", self.copy.len()));
        if self.recent.len() > 12 {
            self.recent.remove(0);
        }
        match kind {
            0..22 => self.write(at, len),
            22..40 => self.read(at, len),
            40..52 => self.write_mapped(at, len),
            52..62 => self.read_mapped(at, len),
            62..70 => self.truncate(at),
            70..77 => self.change(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len),
            77..82 => self.change(FallocateFlags::ZERO_RANGE, at, len),
            82..84 => self.change(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, len),
            84..87 => self.change(FallocateFlags::empty(), at, len),
            87..88 => self.change(FallocateFlags::KEEP_SIZE, at, len),
            88..92 => self.check_holes(at),
            92..94 => self.copy_range(at, len),
            94..96 => self.ok(self.file.sync_all(), "fsync"),
            96..98 => self.forget(),
            _ => self.reopen(),
        }
        let size = self.file.metadata().map(|metadata| metadata.len());
        assert_eq!(size.unwrap(), self.copy.len() as u64, "size: {}", self.context());
    }

    /// Where to do something: often at a page's beginning.
    fn place(&mut self) -> (usize, usize) {
        let at = self.rng.index(LONGEST);
        let at = if self.rng.chance(30) { at / PAGE * PAGE } else { at };
        let len = self.rng.size((LONGEST / 6) as u64) as usize;
        let len = if self.rng.chance(20) { len.next_multiple_of(PAGE) } else { len };
        (at, len.clamp(1, LONGEST - at))
    }

    fn context(&self) -> String {
        format!("seed {}, after\n{}", self.seed, self.recent.join("\n"))
    }

    #[track_caller]
    fn ok<T, E: std::fmt::Display>(&self, result: Result<T, E>, what: &str) -> T {
        result.unwrap_or_else(|error| panic!("{what}: {error}: {}", self.context()))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn grow(&mut self, size: usize) {
        self.copy.resize(self.copy.len().max(size), 0);
    }

    fn write(&mut self, at: usize, len: usize) {
        let bytes = self.bytes(len);
        self.ok(self.file.write_all_at(&bytes, at as u64), "write");
        self.grow(at + len);
        self.copy[at..at + len].copy_from_slice(&bytes);
    }

    fn read(&mut self, at: usize, len: usize) {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match self.ok(self.file.read_at(&mut bytes[done..], (at + done) as u64), "read") {
                0 => break,
                read => done += read,
            }
        }
        self.compare(at, &bytes[..done]);
        let end = self.copy.len().min(at + len);
        assert_eq!(done, end.saturating_sub(at), "length read: {}", self.context());
    }

    fn compare(&self, at: usize, bytes: &[u8]) {
        let wanted = &self.copy[at.min(self.copy.len())..][..bytes.len()];
        if let Some(index) = bytes.iter().zip(wanted).position(|(read, wanted)| read != wanted) {
            let (read, wanted) = (bytes[index], wanted[index]);
            panic!("byte {} is {read}, not {wanted}: {}", at + index, self.context());
        }
    }

    /// The part of a place that is within the file, if any, and its mapping from a page's beginning on.
    fn map(&self, at: usize, len: usize) -> Option<(Mapping, usize, usize)> {
        let end = self.copy.len().min(at + len);
        if at >= end {
            return None;
        }
        let start = at / PAGE * PAGE;
        let mapping = self.ok(Mapping::new(&self.file, start as u64, end - start), "mmap");
        Some((mapping, at - start, end - at))
    }

    fn write_mapped(&mut self, at: usize, len: usize) {
        let Some((mapping, within, len)) = self.map(at, len) else { return };
        let bytes = self.bytes(len);
        mapping.write(within, &bytes);
        self.copy[at..at + len].copy_from_slice(&bytes);
        if self.rng.chance(30) {
            self.ok(mapping.sync(), "msync");
        }
    }

    fn read_mapped(&mut self, at: usize, len: usize) {
        let Some((mapping, within, len)) = self.map(at, len) else { return };
        let mut bytes = vec![0; len];
        mapping.read(within, &mut bytes);
        self.compare(at, &bytes);
    }

    fn truncate(&mut self, size: usize) {
        self.ok(self.file.set_len(size as u64), "truncate");
        self.copy.resize(size, 0);
    }

    fn change(&mut self, mode: FallocateFlags, at: usize, len: usize) {
        let changed = fallocate(&self.file, mode, at as u64, len as u64);
        let only_reserves = !mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        if only_reserves && !self.preallocates {
            assert_eq!(changed, Err(Errno::OPNOTSUPP), "{}", self.context());
            return;
        }
        self.ok(changed, "fallocate");
        if !mode.contains(FallocateFlags::KEEP_SIZE) {
            self.grow(at + len);
        }
        if mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            let size = self.copy.len();
            self.copy[at.min(size)..size.min(at + len)].fill(0);
        }
    }

    /// From here on: what is called a hole reads as zeroes, and data and holes take turns up to the end.
    fn check_holes(&mut self, at: usize) {
        let size = self.copy.len();
        let mut at = at;
        if at >= size {
            assert_eq!(seek(&self.file, SeekFrom::Data(at as u64)), Err(Errno::NXIO), "{}", self.context());
            return;
        }
        while at < size {
            let data = match seek(&self.file, SeekFrom::Data(at as u64)) {
                Ok(data) => data as usize,
                Err(Errno::NXIO) => size,
                Err(errno) => panic!("SEEK_DATA: {errno}: {}", self.context()),
            };
            assert!(data >= at && data <= size, "data at {data} from {at}: {}", self.context());
            assert!(self.copy[at..data].iter().all(|&byte| byte == 0), "hole {at}..{data}: {}", self.context());
            if data == size {
                return;
            }
            let hole = self.ok(seek(&self.file, SeekFrom::Hole(data as u64)), "SEEK_HOLE") as usize;
            assert!(hole > data && hole <= size, "hole at {hole} from {data}: {}", self.context());
            at = hole;
        }
    }

    /// Copies a piece to another place that it does not reach.
    fn copy_range(&mut self, at: usize, len: usize) {
        let end = self.copy.len().min(at + len);
        let to = self.rng.index(LONGEST);
        if at >= end || (to < end && at < to + (end - at)) {
            return;
        }
        let (mut from, mut target) = (at as u64, to as u64);
        while from < end as u64 {
            let left = end - from as usize;
            let copied = rustix::fs::copy_file_range(&self.file, Some(&mut from), &self.file, Some(&mut target), left);
            assert!(self.ok(copied, "copy_file_range") > 0, "nothing copied: {}", self.context());
        }
        self.grow(to + (end - at));
        self.copy.copy_within(at..end, to);
    }

    /// Makes the kernel forget the file's pages, so that they are read again.
    fn forget(&mut self) {
        self.ok(self.file.sync_data(), "fdatasync");
        self.ok(fadvise(&self.file, 0, None, Advice::DontNeed), "fadvise");
    }

    fn reopen(&mut self) {
        let opened = OpenOptions::new().read(true).write(true).open(self.path);
        self.file = self.ok(opened, "open");
    }
}
