//! Reading blocks of a device by their addresses.

use basalt_device::BlockDevice;

use crate::error::Result;
use crate::layout::Address;
use crate::layout::BLOCK_SIZE;

/// Reads `count` blocks at `address`.
pub fn read_blocks(device: &dyn BlockDevice, address: Address, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count * BLOCK_SIZE];
    device.read_at(u64::from(address) * BLOCK_SIZE as u64, &mut bytes)?;
    Ok(bytes)
}

/// Reads a block, twice if need be: one that fails once need not fail again, where what cannot be read decides what counts.
pub fn read_block(device: &dyn BlockDevice, address: Address) -> Result<Vec<u8>> {
    read_blocks(device, address, 1).or_else(|_| read_blocks(device, address, 1))
}
