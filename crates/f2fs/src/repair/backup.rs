//! What a repair overwrites, saved to a file, and put back from it.
//!
//! The file: the line `BASALT-UNDO 1`, then little-endian: volume size in bytes (u64), number of blocks (u64); for each block its address
//! (u32, in blocks of 4 KiB) and its 4,096 bytes; the CRC-32 of all of that (u32).

use std::io::{self, Read, Write};

use basalt_device::{BlockDevice, DeviceError};

use super::commit::Writes;
use super::staged::Staged;
use crate::layout::{BLOCK_BITS, BLOCK_SIZE};

const MAGIC: &[u8] = b"BASALT-UNDO 1\n";

/// Why a backup could not be written or put back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The file failed.
    #[error("backup file: {0}")]
    File(#[from] io::Error),
    /// The file is no backup, not whole, or of another volume.
    #[error("backup file: {0}")]
    Unfit(String),
}

type Result<T> = std::result::Result<T, RestoreError>;

/// A reader or writer that keeps the checksum of what passes.
struct Summed<T> {
    inner: T,
    sum: crc32fast::Hasher,
}

impl<T: Write> Summed<T> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        Ok(self.inner.write_all(bytes)?)
    }
}

impl<T: Read> Summed<T> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => RestoreError::Unfit("it ends too early".into()),
            _ => error.into(),
        })?;
        self.sum.update(&bytes);
        Ok(bytes)
    }
}

/// Saves the blocks that `writes` overwrite.
pub(super) fn save(staged: &Staged, writes: &Writes, to: &mut dyn Write) -> Result<()> {
    let addresses = writes.addresses();
    let mut file = Summed { inner: to, sum: crc32fast::Hasher::new() };
    file.put(MAGIC)?;
    file.put(&staged.size().to_le_bytes())?;
    file.put(&(addresses.len() as u64).to_le_bytes())?;
    for address in addresses {
        file.put(&address.to_le_bytes())?;
        file.put(&staged.before(address)?)?;
    }
    let sum = file.sum.clone().finalize();
    file.inner.write_all(&sum.to_le_bytes())?;
    Ok(file.inner.flush()?)
}

/// Puts back what a repair overwrote; how many blocks. The file is read twice: nothing is written before all of it is known to be whole.
///
/// # Errors
/// [`RestoreError::Unfit`] for a file that is no backup, is not whole, or belongs to a volume of another size; when file or device fail.
pub fn restore<F: Read + io::Seek>(device: &dyn BlockDevice, from: &mut F) -> Result<u64> {
    walk(device, from, false)?;
    from.rewind()?;
    let count = walk(device, from, true)?;
    device.flush()?;
    Ok(count)
}

fn walk(device: &dyn BlockDevice, from: &mut impl Read, write: bool) -> Result<u64> {
    let mut file = Summed { inner: io::BufReader::new(from), sum: crc32fast::Hasher::new() };
    if file.take::<{ MAGIC.len() }>()? != MAGIC {
        return Err(RestoreError::Unfit("it does not begin with `BASALT-UNDO 1`".into()));
    }
    let size = u64::from_le_bytes(file.take()?);
    if size != device.size() {
        return Err(RestoreError::Unfit(format!(
            "it is of a volume of {size} bytes, {} has {}",
            device.name(),
            device.size()
        )));
    }
    let count = u64::from_le_bytes(file.take()?);
    for _ in 0..count {
        let address = u32::from_le_bytes(file.take()?);
        let block: [u8; BLOCK_SIZE] = file.take()?;
        let offset = u64::from(address) << BLOCK_BITS;
        if offset + BLOCK_SIZE as u64 > size {
            return Err(RestoreError::Unfit(format!("block {address} is past the volume's end")));
        }
        if write {
            device.write_at(offset, &block)?;
        }
    }
    let sum = file.sum.clone().finalize();
    let stored: [u8; 4] = file.take()?;
    if u32::from_le_bytes(stored) == sum { Ok(count) } else { Err(RestoreError::Unfit("its checksum is wrong".into())) }
}
