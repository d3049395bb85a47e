//! A device with changes on top that are kept in memory: repairs are made, checked and shown before a byte is written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use basalt_device::{BlockDevice, DeviceError, DeviceLayer, RequestKind, Result};
use parking_lot::RwLock;

use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// The changes, over the device they are for. Writes cost a block of memory for each block they touch; flush and discard do nothing.
pub(super) struct Staged {
    base: Arc<dyn BlockDevice>,
    blocks: RwLock<BTreeMap<Address, Vec<u8>>>,
}

impl Staged {
    pub(super) fn new(base: Arc<dyn BlockDevice>) -> Staged {
        Staged { base, blocks: RwLock::default() }
    }

    /// The device below.
    pub(super) fn base(&self) -> &dyn BlockDevice {
        &*self.base
    }

    /// As [`base`](Self::base), shared.
    pub(super) fn base_device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.base)
    }

    /// Addresses and contents of the blocks that differ from the device, or cannot be read there, in order.
    ///
    /// # Errors
    /// None at present.
    pub(super) fn changes(&self) -> Result<BTreeMap<Address, Vec<u8>>> {
        let mut changes = BTreeMap::new();
        for (&address, block) in self.blocks.read().iter() {
            if self.before(address).map_or(true, |before| *block != before) {
                changes.insert(address, block.clone());
            }
        }
        Ok(changes)
    }

    /// Drops changes: these blocks are as on the device again.
    pub(super) fn forget(&self, addresses: Range<Address>) {
        self.blocks.write().retain(|address, _| !addresses.contains(address));
    }

    /// A block as it is on the device.
    ///
    /// # Errors
    /// When the device cannot be read.
    pub(super) fn before(&self, address: Address) -> Result<Vec<u8>> {
        let mut block = vec![0; BLOCK_SIZE];
        self.base.read_at(u64::from(address) << BLOCK_BITS, &mut block)?;
        Ok(block)
    }

    fn write_slice(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_range(RequestKind::Write, offset, buf.len() as u64)?;
        let end = offset + buf.len() as u64;
        let mut blocks = self.blocks.write();
        for address in offset / BLOCK..end.div_ceil(BLOCK) {
            let start = address * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            let source = &buf[(from - offset) as usize..(to - offset) as usize];
            // As above: the address fits.
            let address = Address::new(address as u32);
            if source.len() == BLOCK_SIZE {
                blocks.insert(address, source.to_vec());
                continue;
            }
            let mut block = match blocks.remove(&address) {
                Some(block) => block,
                None => self.before(address)?,
            };
            block[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
            blocks.insert(address, block);
        }
        Ok(())
    }

    fn check_range(&self, kind: RequestKind, offset: u64, length: u64) -> Result<()> {
        let size = self.base.size();
        if offset.checked_add(length).is_some_and(|end| end <= size) {
            return Ok(());
        }
        Err(DeviceError::OutOfRange { name: self.name().into(), operation: kind.operation(), offset, length, size })
    }
}

impl DeviceLayer for Staged {
    type Below = dyn BlockDevice;

    fn below(&self) -> &Self::Below {
        &*self.base
    }

    fn layer_is_read_only(&self) -> bool {
        false
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        if self.base.read_at(offset, buf).is_err() {
            // What cannot be read below may have been written since.
            for address in offset / BLOCK..end.div_ceil(BLOCK) {
                let (from, to) = ((address * BLOCK).max(offset), ((address + 1) * BLOCK).min(end));
                if !self.blocks.read().contains_key(&Address::new(address as u32)) {
                    self.base.read_at(from, &mut buf[(from - offset) as usize..(to - offset) as usize])?;
                }
            }
        }
        // Devices end before block 2^32, whatever the last partial block.
        let [first, last] = [offset / BLOCK, end.div_ceil(BLOCK)].map(|block| Address::new(block as u32));
        for (&address, block) in self.blocks.read().range(first..last) {
            let start = u64::from(address) * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            let source = &block[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
        }
        Ok(())
    }

    fn on_next_data(&self, offset: u64) -> Option<u64> {
        let first = u32::try_from(offset / BLOCK).ok().map(Address::new);
        let staged = first.and_then(|first| self.blocks.read().range(first..).next().map(|(&address, _)| address));
        let staged = staged.map(|address| (u64::from(address) * BLOCK).max(offset));
        self.base.next_data(offset).into_iter().chain(staged).min()
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let mut at = offset;
        for slice in slices {
            self.write_slice(at, slice)?;
            at += slice.len() as u64;
        }
        Ok(())
    }

    fn on_flush(&self) -> Result<()> {
        Ok(())
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.check_range(RequestKind::Discard, offset, length)
    }
}

#[cfg(test)]
mod tests {
    use basalt_device::MemoryDevice;

    use super::*;

    /// Remembers what it was told to prefetch.
    struct Prefetched(MemoryDevice, RwLock<Vec<(u64, u64)>>);

    impl DeviceLayer for Prefetched {
        type Below = MemoryDevice;
        fn below(&self) -> &MemoryDevice {
            &self.0
        }
        fn on_prefetch(&self, offset: u64, length: u64) {
            self.1.write().push((offset, length));
        }
    }

    #[test]
    fn the_device_below_hears_of_reads_and_not_of_changes() {
        let below = Arc::new(Prefetched(MemoryDevice::new(8 * BLOCK, 512), RwLock::default()));
        let staged = Staged::new(below.clone());
        staged.prefetch(BLOCK, 2 * BLOCK);
        assert_eq!(*below.1.read(), [(BLOCK, 2 * BLOCK)]);
        staged.write_at(BLOCK, &[1; BLOCK_SIZE]).unwrap();
        staged.write_vectored_at(2 * BLOCK, &[&[2; 512], &[3; BLOCK_SIZE]]).unwrap();
        staged.flush().unwrap();
        staged.discard(0, 8 * BLOCK).unwrap();
        let mut bytes = vec![0; 3 * BLOCK_SIZE];
        staged.read_at(BLOCK, &mut bytes).unwrap();
        let expected = [vec![1; BLOCK_SIZE], vec![2; 512], vec![3; BLOCK_SIZE], vec![0; BLOCK_SIZE - 512]].concat();
        assert!(bytes == expected);
        let counters = below.0.counters();
        assert_eq!((counters.writes, counters.flushes, counters.discards), (0, 0, 0));
    }
}
