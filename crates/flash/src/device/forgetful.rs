//! A device that keeps no file data, only what a file system needs to find its way.

use std::sync::atomic::{AtomicU64, Ordering};

use basalt_device::{BlockDevice, DeviceError, Result};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// Bytes of a block, the unit that is kept or forgotten.
const BLOCK: usize = 4096;

/// What file data begins with, for a [`ForgetfulDevice`] to know it. 16 bytes that no metadata begins with.
pub const FORGETTABLE: [u8; 16] = *b"forget me \xf0\x9f\x8c\x80\x00\x01";

/// A device for measuring what an engine itself costs: writing a block of file data to it costs neither memory nor a
/// copy. A 4 KiB block that begins with [`FORGETTABLE`] is not kept; it reads as that mark followed by zeros. Every other
/// block is kept as written, so that a file system reads back its own metadata. What was never written, or discarded,
/// reads as zeros.
///
/// Writes need not be aligned: a block written in part is kept unless it begins with the mark after the write.
pub struct ForgetfulDevice {
    size: u64,
    kept: RwLock<FxHashMap<u64, Box<[u8; BLOCK]>>>,
    /// Two bits a block, 32 blocks a word: whether it is kept, whether it was forgotten.
    states: Vec<AtomicU64>,
    forgotten: AtomicU64,
}

const KEPT: u64 = 1;
const FORGOTTEN: u64 = 2;

impl ForgetfulDevice {
    /// A device of `size` bytes, rounded down to blocks of 4 KiB, that reads as zeros. It takes a bit of memory for every
    /// 2 KiB, and 4 KiB for every block kept.
    pub fn new(size: u64) -> ForgetfulDevice {
        let blocks = size / BLOCK as u64;
        let states = (0..blocks.div_ceil(32)).map(|_| AtomicU64::new(0)).collect();
        ForgetfulDevice { size: blocks * BLOCK as u64, kept: RwLock::default(), states, forgotten: AtomicU64::new(0) }
    }

    /// Blocks that are kept now.
    pub fn kept_blocks(&self) -> u64 {
        self.kept.read().len() as u64
    }

    /// Blocks written so far that were not kept.
    pub fn forgotten_writes(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    fn state(&self, block: u64) -> u64 {
        (self.states[(block / 32) as usize].load(Ordering::Acquire) >> (block % 32 * 2)) & 3
    }

    fn set_state(&self, block: u64, state: u64) {
        let (word, shift) = (&self.states[(block / 32) as usize], block % 32 * 2);
        // Two concurrent writes to a block have no order; those to its neighbours must not be lost.
        word.fetch_and(!(3 << shift), Ordering::AcqRel);
        word.fetch_or(state << shift, Ordering::AcqRel);
    }

    fn read_block(&self, block: u64, out: &mut [u8; BLOCK]) {
        match self.state(block) {
            KEPT => match self.kept.read().get(&block) {
                Some(kept) => out.copy_from_slice(kept.as_slice()),
                None => out.fill(0),
            },
            FORGOTTEN => {
                out.fill(0);
                out[..FORGETTABLE.len()].copy_from_slice(&FORGETTABLE);
            }
            _ => out.fill(0),
        }
    }

    fn write_block(&self, block: u64, bytes: &[u8; BLOCK]) {
        if bytes.starts_with(&FORGETTABLE) {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
            match self.state(block) {
                FORGOTTEN => {}
                state => {
                    self.set_state(block, FORGOTTEN);
                    if state == KEPT {
                        self.kept.write().remove(&block);
                    }
                }
            }
            return;
        }
        let mut kept = self.kept.write();
        match kept.get_mut(&block) {
            Some(place) => place.copy_from_slice(bytes),
            None => {
                kept.insert(block, Box::new(*bytes));
            }
        }
        self.set_state(block, KEPT);
    }

    fn check(&self, operation: &'static str, offset: u64, length: u64) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(DeviceError::OutOfRange {
                name: self.name().to_owned(),
                operation,
                offset,
                length,
                size: self.size,
            }),
        }
    }
}

/// Cuts a range into (block, first byte in it, bytes).
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        // Both below BLOCK.
        let start = (at % BLOCK as u64) as usize;
        let bytes = (BLOCK - start).min(length - done);
        done += bytes;
        (bytes > 0).then_some((at / BLOCK as u64, start, bytes))
    })
}

impl BlockDevice for ForgetfulDevice {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        BLOCK as u32
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check("read", offset, buf.len() as u64)?;
        let mut rest = buf;
        let mut content = [0; BLOCK];
        for (block, start, bytes) in pieces(offset, rest.len()) {
            let (now, later) = rest.split_at_mut(bytes);
            match <&mut [u8; BLOCK]>::try_from(&mut *now) {
                Ok(whole) => self.read_block(block, whole),
                Err(_) => {
                    self.read_block(block, &mut content);
                    now.copy_from_slice(&content[start..start + bytes]);
                }
            }
            rest = later;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check("write", offset, buf.len() as u64)?;
        let mut rest = buf;
        for (block, start, bytes) in pieces(offset, buf.len()) {
            let (now, later) = rest.split_at(bytes);
            match <&[u8; BLOCK]>::try_from(now) {
                Ok(whole) => self.write_block(block, whole),
                Err(_) => {
                    let mut content = [0; BLOCK];
                    self.read_block(block, &mut content);
                    content[start..start + bytes].copy_from_slice(now);
                    self.write_block(block, &content);
                }
            }
            rest = later;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.check("discard", offset, length)?;
        let first = offset.div_ceil(BLOCK as u64);
        let end = (offset + length) / BLOCK as u64;
        let mut kept = self.kept.write();
        for block in first..end {
            if self.state(block) == KEPT {
                kept.remove(&block);
            }
            if self.state(block) != 0 {
                self.set_state(block, 0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_blocks_are_forgotten_and_others_kept() {
        let device = ForgetfulDevice::new(64 * BLOCK as u64 + 5);
        assert_eq!(device.size(), 64 * BLOCK as u64);
        let mut data = [7; 2 * BLOCK];
        data[..16].copy_from_slice(&FORGETTABLE);
        device.write_at(BLOCK as u64, &data).unwrap();
        assert_eq!((device.kept_blocks(), device.forgotten_writes()), (1, 1));
        let mut read = [1; 4 * BLOCK];
        device.read_at(0, &mut read).unwrap();
        assert!(read[..BLOCK].iter().all(|&byte| byte == 0));
        assert_eq!(read[BLOCK..BLOCK + 16], FORGETTABLE);
        assert!(read[BLOCK + 16..2 * BLOCK].iter().all(|&byte| byte == 0));
        assert!(read[2 * BLOCK..3 * BLOCK].iter().all(|&byte| byte == 7));
        // A kept block becomes data, data becomes a kept block, and a part is written into one.
        device.write_at(2 * BLOCK as u64, &data[..BLOCK]).unwrap();
        device.write_at(BLOCK as u64, &[9; BLOCK]).unwrap();
        device.write_at(BLOCK as u64 + 10, &[8; 3]).unwrap();
        device.read_at(BLOCK as u64 + 8, &mut read[..8]).unwrap();
        assert_eq!(read[..8], [9, 9, 8, 8, 8, 9, 9, 9]);
        assert_eq!(device.kept_blocks(), 1);
        device.discard(0, 4 * BLOCK as u64).unwrap();
        device.read_at(0, &mut read).unwrap();
        assert!(device.kept_blocks() == 0 && read.iter().all(|&byte| byte == 0));
        assert!(device.write_at(device.size() - 1, &[1, 2]).is_err() && device.read_at(u64::MAX, &mut [0]).is_err());
    }
}
