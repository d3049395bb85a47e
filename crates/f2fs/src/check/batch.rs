//! Reading many blocks in the order they lie on the device, with large requests.

use std::collections::VecDeque;

use basalt_device::BlockDevice;

use crate::error::Result;
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE};

/// Most blocks in a request.
const REQUEST_BLOCKS: u32 = 256;
/// Blocks that are read though nobody asked, because one larger request costs less than two.
const GAP_BLOCKS: u32 = 16;
/// Requests that the device is told of ahead of time: it works on them while the blocks before are looked at, and on many small ones
/// at once.
const PREFETCHED: usize = 32;

/// Reads the block of every item and hands it over, item after item. `items` must be sorted by `address`; several items may
/// have the same address, and every address must be on the device.
pub(super) fn for_each_block<T>(
    device: &dyn BlockDevice,
    items: &[T],
    address: impl Fn(&T) -> Address,
    mut handle: impl FnMut(&T, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = Vec::new();
    let mut rest = items;
    // What will be read next, and the items that have been looked at for it.
    let mut ahead: VecDeque<Request> = VecDeque::with_capacity(PREFETCHED);
    let mut planned = 0;
    loop {
        while ahead.len() < PREFETCHED
            && let Some(request) = plan(&items[planned..], &address)
        {
            planned += request.items;
            device.prefetch(u64::from(request.start) << BLOCK_BITS, (request.blocks * BLOCK_SIZE) as u64);
            ahead.push_back(request);
        }
        let Some(Request { start, blocks, items: count }) = ahead.pop_front() else { return Ok(()) };
        buffer.resize(blocks * BLOCK_SIZE, 0);
        let is_read = device.read_at(u64::from(start) << BLOCK_BITS, &mut buffer).is_ok();
        let (now, later) = rest.split_at(count);
        for item in now {
            let offset = (address(item) - start) as usize * BLOCK_SIZE;
            let block = &mut buffer[offset..offset + BLOCK_SIZE];
            if !is_read {
                // One by one: what lies between them need not be readable.
                device.read_at(u64::from(address(item)) << BLOCK_BITS, block)?;
            }
            handle(item, block)?;
        }
        rest = later;
    }
}

/// One read: the blocks of so many items.
struct Request {
    start: Address,
    blocks: usize,
    items: usize,
}

/// The request that serves the first items and those near them.
fn plan<T>(items: &[T], address: &impl Fn(&T) -> Address) -> Option<Request> {
    let start = address(items.first()?);
    let mut last = start;
    let near = items.iter().take_while(|item| {
        let at = address(item);
        let fits = at - last <= GAP_BLOCKS && at - start < REQUEST_BLOCKS;
        last = if fits { at } else { last };
        fits
    });
    let items = near.count();
    Some(Request { start, blocks: (last - start + 1) as usize, items })
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_device::MemoryDevice;

    #[test]
    fn hands_over_every_block_once_and_in_order() {
        let device = MemoryDevice::new(1 << 24, 512);
        let addresses = [3u32, 3, 4, 20, 21, 500, 501, 777, 1_040, 4_000, 4_095];
        for address in addresses {
            device.write_at(u64::from(address) << BLOCK_BITS, &address.to_le_bytes()).unwrap();
        }
        let mut seen = Vec::new();
        for_each_block(
            &device,
            &addresses,
            |address| Address::new(*address),
            |address, block| {
                assert_eq!(block.len(), BLOCK_SIZE);
                assert_eq!(block[..4], address.to_le_bytes());
                seen.push(*address);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(seen, addresses);
        assert!(device.counters().reads < addresses.len() as u64);
    }
}
