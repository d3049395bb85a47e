//! For tests of what no caller sees: a volume in memory, and files on it.

use std::ops::Range;
use std::sync::Arc;

use basalt_device::MemoryDevice;
use basalt_segments::MainBlock;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

use crate::clock::SystemClock;
use crate::format::{FormatOptions, format};
use crate::layout::{BLOCK_SIZE, FileBlock, Ino};
use crate::lock::F2fs;
use crate::options::OpenOptions;

/// A new volume of so many MiB, with a journal of so many bytes. Nothing is cleaned in the background.
pub(crate) fn open_new(mib: u64, journal_bytes: u64, options: OpenOptions) -> (Arc<MemoryDevice>, F2fs) {
    let device = Arc::new(MemoryDevice::new(mib << 20, 512));
    let how = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&*device, &how, &mut |_, _| ()).unwrap();
    let fs = open(&device, options);
    (device, fs)
}

/// Opens a volume. Nothing is cleaned in the background.
pub(crate) fn open(device: &Arc<MemoryDevice>, options: OpenOptions) -> F2fs {
    let options = OpenOptions { background_cleaning: false, ..options };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

/// Makes an empty file in the root directory.
pub(crate) fn create(fs: &F2fs, name: &str) -> InodeNumber {
    let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
    fs.create(fs.root(), name.as_bytes(), &file, &Caller::default()).unwrap().ino
}

/// Fills these blocks of a file with a byte, in one call.
pub(crate) fn write(fs: &F2fs, ino: InodeNumber, blocks: Range<u64>, byte: u8) {
    let bytes = vec![byte; (blocks.end - blocks.start) as usize * BLOCK_SIZE];
    assert_eq!(fs.write(ino, blocks.start * BLOCK_SIZE as u64, &bytes, false).unwrap(), bytes.len());
}

/// Where these blocks of a file are.
pub(crate) fn places(fs: &F2fs, ino: InodeNumber, blocks: Range<u64>) -> Vec<MainBlock> {
    let mut volume = fs.volume.lock();
    let place = |index: u64| {
        let address = volume.address(Ino::new(ino as u32), FileBlock::new(index as u32)).unwrap();
        volume.geometry.main_block(address)
    };
    blocks.map(place).collect()
}
