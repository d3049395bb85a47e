//! The guard: while a journal is live, the superblock says so in a way that makes every other F2FS refuse the volume and leave it alone.
//! To them the last checkpoint alone counts, and what it refers to may have been moved and written over.
//!
//! The guard is [`JOURNAL_GUARD`] in `log_sectors_per_block` of both copies, or [`DELTA_GUARD`] where fsync may write deltas. It is set
//! and durable before the first journal block or delta is written, and goes when a checkpoint holds that needs no journal: at the end,
//! and at open after recovery. Each copy is flushed before the other is touched, so there is a whole one at any time; whether a copy
//! that is torn had it makes no difference.

use basalt_device::BlockDevice;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, Result};
use crate::geometry::{Geometry, check_identity, neither, superblock_block};
use crate::layout::BLOCK_SIZE;
use crate::layout::superblock::{
    CHECKSUM_OFFSET, DELTA_GUARD, Features, JOURNAL_GUARD, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, has_guard,
};

/// A volume's geometry, whether or not it is guarded.
pub struct Guarded {
    /// Where everything is; the superblock in it is that of a volume without the guard.
    pub geometry: Geometry,
    /// What is wrong with the first copy of the superblock, if anything is.
    pub first_bad: Option<Error>,
    /// A copy has the guard.
    pub is_set: bool,
    /// A copy is torn: setting or clearing the guard may have been cut off.
    pub is_torn: bool,
    /// The copy, 0 or 1, that the device cannot read.
    pub unreadable: Option<u64>,
}

/// Reads the superblock as [`Geometry::read`] does, through the guard.
///
/// # Errors
/// As [`Geometry::read`].
pub fn read(device: &dyn BlockDevice) -> Result<Guarded> {
    let (first, second) = (read_copy(device, 0), read_copy(device, 1));
    let has_guard = |copy: &Result<(Geometry, bool)>| copy.as_ref().is_ok_and(|(_, guarded)| *guarded);
    let is_set = has_guard(&first) || has_guard(&second);
    let is_torn = first.is_err() || second.is_err();
    let fails = |copy: &Result<(Geometry, bool)>| matches!(copy, Err(Error::Device(_)));
    let unreadable = if fails(&first) { Some(0) } else { fails(&second).then_some(1) };
    match (first, second) {
        (Ok((geometry, _)), _) => Ok(Guarded { geometry, first_bad: None, is_set, is_torn, unreadable }),
        (Err(error), Ok((geometry, _))) => {
            Ok(Guarded { geometry, first_bad: Some(error), is_set, is_torn, unreadable })
        }
        // A volume that must be finished first, whatever is wrong with the other copy.
        (Err(_), Err(error @ Error::Unsupported { .. })) => Err(error),
        (Err(first), Err(second)) => Err(neither(device, first, second)),
    }
}

fn read_copy(device: &dyn BlockDevice, copy: u64) -> Result<(Geometry, bool)> {
    if device.size() < 2 * BLOCK_SIZE as u64 {
        // Says so in the words of everybody else.
        return Geometry::read_copy(device, copy).map(|geometry| (geometry, false));
    }
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(copy * BLOCK_SIZE as u64 + SUPERBLOCK_OFFSET as u64, &mut bytes)?;
    let mut superblock = RawSuperblock::read_from_bytes(&bytes)
        .map_err(|_| Error::damaged("superblock", format!("copy {}", copy + 1), "shorter than a superblock"))?;
    let sectors = superblock.log_sectors_per_block.get();
    let guarded = has_guard(sectors);
    if guarded {
        check_identity(&superblock, copy)?;
        superblock.log_sectors_per_block.set(sectors & 0xFF);
        if superblock.features().contains(Features::SB_CHECKSUM) {
            superblock.checksum_offset.set(CHECKSUM_OFFSET);
            superblock.crc.set(superblock.expected_crc());
        }
    }
    Ok((Geometry::from_superblock(superblock, copy, device)?, guarded))
}

/// Sets the guard; it is durable on return. `has_deltas`: whether fsync may write deltas while it stands.
///
/// # Errors
/// When the device fails.
pub fn set(device: &dyn BlockDevice, geometry: &Geometry, has_deltas: bool) -> Result<()> {
    let mut superblock = *geometry.superblock;
    let sectors = superblock.log_sectors_per_block.get();
    superblock.log_sectors_per_block.set(sectors | if has_deltas { DELTA_GUARD } else { JOURNAL_GUARD });
    write(device, &superblock)
}

/// Takes the guard away; that is durable on return. A copy that cannot be read, and not be written either, stays as it is: nobody
/// else can read it.
///
/// # Errors
/// When the device fails.
pub fn clear(device: &dyn BlockDevice, geometry: &Geometry) -> Result<()> {
    write(device, &geometry.superblock)
}

fn write(device: &dyn BlockDevice, superblock: &RawSuperblock) -> Result<()> {
    let block = superblock_block(superblock);
    let bytes = &block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE];
    debug_assert_eq!(bytes.len(), superblock.as_bytes().len());
    // A copy that is torn first: the other is all there is.
    let found = [read_copy(device, 0), read_copy(device, 1)];
    let order = if found[1].is_err() { [1, 0] } else { [0, 1] };
    let is_guard = has_guard(superblock.log_sectors_per_block.get());
    for copy in order {
        let start = copy as u64 * BLOCK_SIZE as u64;
        if matches!(found[copy], Err(Error::Device(_))) && found[1 - copy].is_ok() {
            // A part of a block that cannot be read cannot be written either.
            match device.write_at(start, &block) {
                Err(_) if !is_guard => continue,
                written => written?,
            }
        } else {
            // What is in front of the superblock (a boot sector, perhaps) stays.
            device.write_at(start + SUPERBLOCK_OFFSET as u64, bytes)?;
        }
        device.flush()?;
    }
    Ok(())
}

/// Writes a copy of the superblock anew that could not be read; whether it can be read now.
///
/// # Errors
/// When the device cannot flush.
pub fn renew(device: &dyn BlockDevice, geometry: &Geometry, copy: u64) -> Result<bool> {
    let block = superblock_block(&geometry.superblock);
    // All of the block: a part of one that cannot be read cannot be written either.
    if device.write_at(copy * BLOCK_SIZE as u64, &block).is_err() {
        return Ok(false);
    }
    device.flush()?;
    Ok(read_copy(device, copy).is_ok())
}

#[cfg(test)]
mod tests {
    use basalt_device::{MemoryDevice, RecordingDevice, RequestKind};

    use super::*;
    use crate::format::{FormatOptions, format};

    /// Whatever a power cut tears, one copy of the superblock is whole.
    #[test]
    fn no_copy_is_written_while_the_other_is_not_durable() {
        let memory = MemoryDevice::new(64 << 20, 512);
        format(&memory, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let geometry = Geometry::read(&memory).unwrap().0;
        let device = RecordingDevice::new(memory, false);
        for work in [
            |device: &_, geometry: &_| set(device, geometry, false),
            |device: &_, geometry: &_| clear(device, geometry),
        ] {
            work(&device as &dyn BlockDevice, &geometry).unwrap();
            let done: Vec<RequestKind> = device.take().iter().map(|request| request.kind).collect();
            let done: Vec<RequestKind> = done.into_iter().filter(|kind| *kind != RequestKind::Read).collect();
            assert_eq!(done, [RequestKind::Write, RequestKind::Flush, RequestKind::Write, RequestKind::Flush]);
        }
    }
}
