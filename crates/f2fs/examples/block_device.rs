//! A block device of your own: flash behind a driver, a partition of a larger image, a network. This one is a plain vector.
//!
//! `cargo run -p basalt-f2fs --example block_device`

use std::error::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use basalt_device::block::Result;
use basalt_device::{BlockDevice, DeviceError};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::FileSystem;
use basalt_vfs::path::Files;

/// Bytes in memory, which counts what reaches it.
struct Vector {
    size: u64,
    bytes: Mutex<Vec<u8>>,
    written: AtomicU64,
    flushes: AtomicU64,
}

impl Vector {
    fn new(size: usize) -> Vector {
        let bytes = Mutex::new(vec![0; size]);
        Vector { size: size as u64, bytes, written: AtomicU64::new(0), flushes: AtomicU64::new(0) }
    }

    /// The place of a request. The engine stays within the device; a device that checks turns a mistake into an error.
    fn range(&self, operation: &'static str, offset: u64, length: usize) -> Result<Range<usize>> {
        let (length, size) = (length as u64, self.size);
        match offset.checked_add(length) {
            // The size is that of a vector, so both fit.
            Some(end) if end <= size => Ok(offset as usize..end as usize),
            _ => Err(DeviceError::OutOfRange { name: self.name().into(), operation, offset, length, size }),
        }
    }
}

impl BlockDevice for Vector {
    fn name(&self) -> &str {
        "vector"
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        512
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = self.range("read", offset, buf.len())?;
        buf.copy_from_slice(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)[range]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let range = self.range("write", offset, buf.len())?;
        self.written.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)[range].copy_from_slice(buf);
        Ok(())
    }

    /// A device with a write cache returns only when all that was written before is durable: all of F2FS's promises rest on it.
    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A hint: flash erases what is discarded. Doing nothing is right too.
    fn discard(&self, _offset: u64, _length: u64) -> Result<()> {
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let device = Arc::new(Vector::new(64 << 20));
    format(&*device, &FormatOptions::default(), &mut |_done, _total| ())?;
    let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock))?;
    let files = Files::new(&fs);

    let (written, flushes) = (device.written.load(Ordering::Relaxed), device.flushes.load(Ordering::Relaxed));
    files.write("/file", vec![1; 40_000])?;
    files.open("/file")?.sync_all()?;
    let written = device.written.load(Ordering::Relaxed) - written;
    let flushes = device.flushes.load(Ordering::Relaxed) - flushes;
    println!("a file of 40000 bytes and its fsync: {written} bytes written, {flushes} flushes");
    assert!(written >= 40_000 && flushes >= 1);
    Ok(fs.close()?)
}

#[test]
fn runs() {
    main().unwrap();
}
