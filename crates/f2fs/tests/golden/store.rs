//! Where golden volumes are kept, and how.
//!
//! A file is gzip of: size of the device in bytes (u64); then for each block that is not zero its number (u32) and its 4,096 bytes. Numbers
//! are little-endian.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

const BLOCK: usize = 4096;
const SECTOR: u32 = 512;

/// A volume, and what its tree is to be.
pub struct Golden {
    pub name: String,
    pub device: Arc<MemoryDevice>,
    pub expected: String,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn contents_file() -> PathBuf {
    directory().join("contents.txt")
}

fn volume_file(name: &str) -> PathBuf {
    directory().join("volumes").join(format!("{name}.gz"))
}

/// All golden volumes.
pub fn all() -> Vec<Golden> {
    let lines = fs::read_to_string(contents_file()).unwrap_or_default();
    let golden = |line: &str| {
        let (name, expected) = line.split_once(' ').unwrap();
        Golden { name: name.to_owned(), device: Arc::new(read(name)), expected: expected.to_owned() }
    };
    lines.lines().map(golden).collect()
}

/// Whether there is one of this name.
pub fn has(name: &str) -> bool {
    volume_file(name).exists()
}

/// Keeps a volume, and what its tree is.
pub fn keep(name: &str, device: &MemoryDevice, contents: &str) {
    fs::create_dir_all(directory().join("volumes")).unwrap();
    let file = fs::File::create_new(volume_file(name)).unwrap();
    let mut file = GzEncoder::new(file, Compression::best());
    file.write_all(&device.size().to_le_bytes()).unwrap();
    let mut block = [0; BLOCK];
    for number in 0..device.size() / BLOCK as u64 {
        device.read_at(number * BLOCK as u64, &mut block).unwrap();
        if block != [0; BLOCK] {
            file.write_all(&(number as u32).to_le_bytes()).unwrap();
            file.write_all(&block).unwrap();
        }
    }
    file.finish().unwrap();
    let mut list = fs::File::options().append(true).create(true).open(contents_file()).unwrap();
    writeln!(list, "{name} {contents}").unwrap();
}

fn read(name: &str) -> MemoryDevice {
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(volume_file(name)).unwrap()).read_to_end(&mut bytes).unwrap();
    let (size, blocks) = bytes.split_first_chunk::<8>().unwrap();
    let device = MemoryDevice::new(u64::from_le_bytes(*size), SECTOR);
    for entry in blocks.chunks_exact(4 + BLOCK) {
        let (number, block) = entry.split_first_chunk::<4>().unwrap();
        device.write_at(u64::from(u32::from_le_bytes(*number)) * BLOCK as u64, block).unwrap();
    }
    device
}
