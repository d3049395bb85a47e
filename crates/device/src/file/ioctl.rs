//! What the kernel tells about block devices.

use std::fs::File;

use rustix::io::Result;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

// linux/fs.h declares the size ioctl with size_t although it stores 64 bits everywhere.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
const BLKROGET: Opcode = opcode::none(0x12, 94);
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Size of a block device in bytes.
#[allow(unsafe_code)]
pub(super) fn size(device: &File) -> Result<u64> {
    // SAFETY: BLKGETSIZE64 stores one u64 behind its argument, on 32-bit systems too.
    unsafe { ioctl(device, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Logical sector size of a block device in bytes.
pub(super) fn sector_size(device: &File) -> Result<u32> {
    rustix::fs::ioctl_blksszget(device)
}

/// Whether the device is write-protected, by a switch on the card or by `blockdev --setro`.
#[allow(unsafe_code)]
pub(super) fn is_write_protected(device: &File) -> Result<bool> {
    // SAFETY: BLKROGET stores one int behind its argument.
    let flag = unsafe { ioctl(device, Getter::<BLKROGET, i32>::new()) }?;
    Ok(flag != 0)
}

/// Discards `length` bytes at `offset`, both multiples of the sector size.
#[allow(unsafe_code)]
pub(super) fn discard(device: &File, offset: u64, length: u64) -> Result<()> {
    // SAFETY: BLKDISCARD reads two u64, start and length, behind its argument, and touches no memory of this process.
    unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([offset, length])) }
}
