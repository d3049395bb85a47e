//! Reading files: a plan made under the lock, carried out without it.

use crate::error::Result;
use crate::layout::{Address, BLOCK_SIZE, FileBlock, Ino};
use crate::node::path::Mapped;
use crate::volume::Volume;

/// Neighbouring blocks on the device that go to neighbouring bytes of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte on the device.
    pub device_offset: u64,
    /// First byte of the buffer.
    pub buffer_offset: usize,
    /// Bytes.
    pub length: usize,
}

impl Volume {
    /// Prepares a read of `buf.len()` bytes at `offset`: fills what is in memory or a hole, and returns how many bytes the
    /// file has there and which extents are left to read from the device.
    pub(crate) fn plan_read(&mut self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<(usize, Vec<Extent>)> {
        let size = self.inode(ino)?.i_size.get();
        let length = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..length];
        let mut extents = Vec::new();
        if length == 0 {
            return Ok((0, extents));
        }
        if self.has_inline_data(ino)? {
            self.read_inline(ino, offset as usize, buf)?;
            return Ok((length, extents));
        }
        if let Some(lists) = &mut self.page_lists {
            lists.note_read(ino, offset, length as u64);
        }
        let mut done = 0;
        while done < length {
            let index = FileBlock::of_byte(offset + done as u64);
            done = match self.map(ino, index, false)? {
                Mapped::Hole(next) => {
                    let end = next.byte().saturating_sub(offset).min(length as u64) as usize;
                    buf[done..end].fill(0);
                    // A dirty page always has its block reserved, so a hole has none.
                    end
                }
                Mapped::Slot(slot) => {
                    let mut at = done;
                    for step in 0..slot.count {
                        if at >= length {
                            break;
                        }
                        let address = self.node(slot.nid)?.address(slot.byte + 4 * step as usize);
                        at = self.plan_block(ino, index + step, address, offset, at, buf, &mut extents)?;
                    }
                    at
                }
            };
        }
        Ok((length, extents))
    }

    /// Plans one block; returns the buffer position behind it.
    #[allow(clippy::too_many_arguments)] // One step of the loop above, in a room of its own.
    fn plan_block(
        &mut self,
        ino: Ino,
        index: FileBlock,
        address: Address,
        offset: u64,
        at: usize,
        buf: &mut [u8],
        extents: &mut Vec<Extent>,
    ) -> Result<usize> {
        let within = ((offset + at as u64) & (BLOCK_SIZE as u64 - 1)) as usize;
        let length = (BLOCK_SIZE - within).min(buf.len() - at);
        let target = &mut buf[at..at + length];
        if let Some(page) = self.pages.cached(ino, index) {
            target.copy_from_slice(&page.block.0[within..within + length]);
        } else if address == Address::NULL || address == Address::NEW {
            target.fill(0);
        } else if address == Address::COMPRESS {
            return Err(basalt_vfs::Error::NotSupported("reading compressed files").into());
        } else if let Some(bytes) = self.writer.pending(address) {
            target.copy_from_slice(&bytes[within..within + length]);
        } else {
            self.check_data_address(ino, address)?;
            let device_offset = u64::from(address) * BLOCK_SIZE as u64 + within as u64;
            match extents.last_mut() {
                Some(last)
                    if last.device_offset + last.length as u64 == device_offset
                        && last.buffer_offset + last.length == at =>
                {
                    last.length += length;
                }
                _ => extents.push(Extent { device_offset, buffer_offset: at, length }),
            }
        }
        Ok(at + length)
    }

    /// Reads a whole small thing (a symbolic link's target) under the lock.
    pub(crate) fn read_whole(&mut self, ino: Ino, limit: usize) -> Result<Vec<u8>> {
        let size = self.inode(ino)?.i_size.get().min(limit as u64) as usize;
        let mut bytes = vec![0; size];
        let (length, extents) = self.plan_read(ino, 0, &mut bytes)?;
        for extent in extents {
            let target = &mut bytes[extent.buffer_offset..extent.buffer_offset + extent.length];
            self.device.read_at(extent.device_offset, target)?;
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}
