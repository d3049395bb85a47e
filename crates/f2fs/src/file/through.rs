//! Large writes go to their log at once: whoever sends so much has gathered it already (the kernel's page cache, a copying
//! program), and the page cache here would only copy it twice more.

use basalt_segments::BlockTraits;

use super::data::Data;
use crate::error::{Error, Result};
use crate::layout::{Address, BLOCK_SIZE, FileBlock, Ino};
use crate::node::path::Slot;
use crate::volume::Volume;

/// Whole blocks from which on a write goes through: 64 KiB.
pub const THROUGH_MIN: usize = 16;

/// Neighbouring blocks on the device that hold neighbouring blocks of the data, not yet written.
#[derive(Default)]
struct Placed {
    address: Address,
    count: usize,
    /// Blocks of the data in front of these.
    before: usize,
}

impl Volume {
    /// Writes whole blocks from file block `first` on. An error comes with the number of blocks that were written.
    pub(crate) fn write_through(
        &mut self,
        ino: Ino,
        first: FileBlock,
        data: Data<'_>,
    ) -> std::result::Result<(), (usize, Error)> {
        let count = data.len() / BLOCK_SIZE;
        let mut placed = Placed::default();
        let mut done = 0;
        let result = self.place_all(ino, first, count, data, &mut placed, &mut done);
        // What has its place must have its bytes, whatever came afterwards.
        let flushed = if placed.count > 0 { self.write_placed(ino, first, &placed, data) } else { Ok(()) };
        // Only what was replaced: pages behind the place where space ran out hold the only copy of older data.
        self.drop_pages(ino, first, first + done as u32);
        result.and(flushed).map_err(|error| (done, error))
    }

    fn place_all(
        &mut self,
        ino: Ino,
        first: FileBlock,
        count: usize,
        data: Data<'_>,
        placed: &mut Placed,
        done: &mut usize,
    ) -> Result<()> {
        let traits = BlockTraits { run: count as u32, ..self.data_traits(ino)? };
        while *done < count {
            let index = first + *done as u32;
            let slot = self.slot(ino, index)?;
            for step in 0..(count - *done).min(slot.count as usize) as u32 {
                let slot = Slot { byte: slot.byte + 4 * step as usize, index: slot.index + step, ..slot };
                let was_hole = self.node(slot.nid)?.address(slot.byte) == Address::NULL;
                self.reserve_slot(ino, slot)?;
                let traits = BlockTraits { index: (index + step).get(), ..traits };
                let address = match self.place_block(ino, index + step, slot, &traits) {
                    // A block that is only reserved, behind the end: Linux would make it part of the file when it recovers an fsync.
                    Err(error @ Error::Refused(basalt_vfs::Error::NoSpace)) if was_hole => {
                        self.free_slots(ino, slot.nid, slot.byte, 1)?;
                        return Err(error);
                    }
                    placed => placed?.1,
                };
                if placed.count == 0 || placed.address + placed.count as u32 != address {
                    let full = std::mem::replace(placed, Placed { address, count: 0, before: *done });
                    if full.count > 0 {
                        self.write_placed(ino, first, &full, data)?;
                    }
                }
                placed.count += 1;
                *done += 1;
            }
        }
        Ok(())
    }

    /// `first`: the file block that the data begins with.
    fn write_placed(&mut self, ino: Ino, first: FileBlock, placed: &Placed, data: Data<'_>) -> Result<()> {
        let bytes = data.part(placed.before * BLOCK_SIZE..(placed.before + placed.count) * BLOCK_SIZE);
        let addresses = placed.address.onward().zip(placed.before as u32..);
        for ((address, index), block) in addresses.zip(bytes.chunks_exact(BLOCK_SIZE)) {
            self.checkpoint.since_mut().note_unsealed(address, block, Some((ino, first + index)));
        }
        self.writer.write_in_front_of(&*self.device, placed.address)?;
        let offset = u64::from(placed.address) * BLOCK_SIZE as u64;
        match bytes.to_keep() {
            Some(shared) => self.writer.write_shared(&*self.device, offset, shared),
            None => Ok(self.device.write_at(offset, &bytes)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use basalt_device::MemoryDevice;
    use basalt_segments::SegmentKind;
    use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, NewNode};

    use super::*;
    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::lock::F2fs;
    use crate::options::OpenOptions;

    /// No segment is free, although blocks are.
    #[test]
    fn what_finds_no_place_is_not_reserved() {
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
        let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(fs.root(), b"file", &file, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &[1; 9000], false).unwrap();
        let ino = Ino::new(ino as u32);
        let mut volume = fs.volume.lock();
        while volume.table.open_segment(SegmentKind::WarmData, None).is_some() {}
        let (done, error) =
            volume.write_through(ino, FileBlock::new(3), (&*vec![1; 1024 * BLOCK_SIZE]).into()).unwrap_err();
        assert!(matches!(error, Error::Refused(basalt_vfs::Error::NoSpace)), "{error}");
        assert!((1..1024).contains(&done), "{done}");
        assert_eq!(volume.address(ino, FileBlock::new(3) + done as u32).unwrap(), Address::NULL);
    }

    /// What fallocate(2) promised stays.
    #[test]
    fn what_was_reserved_before_and_finds_no_place_stays_reserved() {
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
        let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(fs.root(), b"file", &file, &Caller::default()).unwrap().ino;
        fs.fallocate(ino, FallocateMode::empty(), 0, 1024 * BLOCK_SIZE as u64).unwrap();
        let ino = Ino::new(ino as u32);
        let mut volume = fs.volume.lock();
        while volume.table.open_segment(SegmentKind::WarmData, None).is_some() {}
        let (done, error) =
            volume.write_through(ino, FileBlock::FIRST, (&*vec![1; 1024 * BLOCK_SIZE]).into()).unwrap_err();
        assert!(matches!(error, Error::Refused(basalt_vfs::Error::NoSpace)), "{error}");
        assert!((1..1024).contains(&done), "{done}");
        assert_eq!(volume.address(ino, FileBlock::new(done as u32)).unwrap(), Address::NEW);
    }
}
