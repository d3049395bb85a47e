//! Large writes go to their log at once: whoever sends so much has gathered it already (the kernel's page cache, a copying
//! program), and the page cache here would only copy it twice more.

use crate::error::{Error, Result};
use crate::layout::BLOCK_SIZE;
use crate::node::path::Slot;
use crate::volume::Volume;

/// Whole blocks from which on a write goes through: 64 KiB.
pub const THROUGH_MIN: usize = 16;

/// Neighbouring blocks on the device that hold neighbouring blocks of the data, not yet written.
#[derive(Default)]
struct Placed {
    address: u32,
    count: usize,
    /// Blocks of the data in front of these.
    before: usize,
}

impl Volume {
    /// Writes whole blocks from file block `first` on. An error comes with the number of blocks that were written.
    pub(crate) fn write_through(
        &mut self,
        ino: u32,
        first: u32,
        data: &[u8],
    ) -> std::result::Result<(), (usize, Error)> {
        let count = data.len() / BLOCK_SIZE;
        let mut placed = Placed::default();
        let mut done = 0;
        let result = self.place_all(ino, first, count, data, &mut placed, &mut done);
        // What has its place must have its bytes, whatever came afterwards.
        let flushed = if placed.count > 0 { self.write_placed(&placed, data) } else { Ok(()) };
        // Only what was replaced: pages behind the place where space ran out hold the only copy of older data.
        self.drop_pages(ino, first, first + done as u32);
        result.and(flushed).map_err(|error| (done, error))
    }

    fn place_all(
        &mut self,
        ino: u32,
        first: u32,
        count: usize,
        data: &[u8],
        placed: &mut Placed,
        done: &mut usize,
    ) -> Result<()> {
        let traits = self.data_traits(ino)?;
        let kind = self.placement.log(&traits);
        while *done < count {
            let index = first + *done as u32;
            let slot = self.slot(ino, u64::from(index))?;
            for step in 0..(count - *done).min(slot.count as usize) as u32 {
                let slot = Slot { byte: slot.byte + 4 * step as usize, index: slot.index + step, ..slot };
                self.reserve_slot(ino, slot)?;
                let address = self.place_block(ino, index + step, slot, kind)?;
                if placed.count == 0 || placed.address + placed.count as u32 != address {
                    let full = std::mem::replace(placed, Placed { address, count: 0, before: *done });
                    if full.count > 0 {
                        self.write_placed(&full, data)?;
                    }
                }
                placed.count += 1;
                *done += 1;
            }
        }
        Ok(())
    }

    fn write_placed(&mut self, placed: &Placed, data: &[u8]) -> Result<()> {
        let bytes = &data[placed.before * BLOCK_SIZE..(placed.before + placed.count) * BLOCK_SIZE];
        for (address, block) in (placed.address..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
            self.since.unsealed.note(address, block);
        }
        self.device.write_at(u64::from(placed.address) * BLOCK_SIZE as u64, bytes)?;
        Ok(())
    }
}
