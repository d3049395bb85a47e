//! Both copies of the superblock: the sound one goes over the other, or what is whole in either over both.

use std::sync::Arc;

use basalt_device::BlockDevice;

use super::report::{Log, Repair};
use super::staged::Staged;
use super::state::State;
use crate::check::{Fault, FaultKind, Place};
use crate::error::Result;
use crate::geometry::{Geometry, superblock_block};
use crate::layout::superblock::{CHECKSUM_OFFSET, MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::layout::{BLOCK_BITS, BLOCK_SIZE};
use crate::merged::merge;
use zerocopy::{FromBytes, IntoBytes};

/// Kinds that are repaired here.
pub(super) const KINDS: &[FaultKind] = &[
    FaultKind::SuperblockMagic,
    FaultKind::SuperblockChecksum,
    FaultKind::SuperblockFields,
    FaultKind::SuperblockUnreadable,
    FaultKind::SuperblockCopiesDiffer,
];

/// Repairs what a check said about the superblocks. `None` if neither copy says where things are.
pub(super) fn repair(device: &Arc<Staged>, faults: &[Fault], log: &mut Log) -> Result<Option<Geometry>> {
    let Some((geometry, from)) = choose(device)? else { return Ok(None) };
    let broken: Vec<&Fault> = faults.iter().filter(|fault| KINDS.contains(&fault.kind)).collect();
    if broken.is_empty() {
        return Ok(Some(geometry));
    }
    for copy in 0..2u32 {
        write_copy(device, copy, &geometry)?;
    }
    for fault in broken {
        let action = match (from, fault.place) {
            (None, _) => "put together from what is whole in either copy".to_owned(),
            (Some(from), Place::Superblock(copy)) if copy == from => "checksum computed anew".to_owned(),
            (Some(from), _) => format!("replaced by copy {}", from + 1),
        };
        log.add(Repair::of(fault, action));
    }
    Ok(Some(geometry))
}

/// The first copy that can be used, and which it is; else one made of both, which is neither. One that only fails its checksum will do
/// if there is no better.
fn choose(device: &Arc<Staged>) -> Result<Option<(Geometry, Option<u64>)>> {
    for copy in 0..2 {
        if let Ok(geometry) = Geometry::read_copy(&**device, copy) {
            return Ok(Some((geometry, Some(copy))));
        }
    }
    if let Some(geometry) = merge(&**device) {
        return Ok(Some((geometry, None)));
    }
    for copy in 0..2u64 {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        if device.read_at((copy << BLOCK_BITS) + SUPERBLOCK_OFFSET as u64, &mut bytes).is_err() {
            continue;
        }
        let Ok(mut raw) = RawSuperblock::read_from_bytes(&bytes) else { continue };
        if raw.magic.get() != MAGIC {
            continue;
        }
        raw.checksum_offset.set(CHECKSUM_OFFSET);
        let checksum = raw.expected_crc();
        raw.crc.set(checksum);
        if let Ok(geometry) = Geometry::from_superblock(raw, copy, &**device) {
            return Ok(Some((geometry, Some(copy))));
        }
    }
    Ok(None)
}

impl State {
    /// Takes an inode off the superblock's list of those for quota; says what was done.
    pub(super) fn forget_quota(&mut self, fault: &Fault) -> Result<Option<String>> {
        let Some(ino) = fault.right.and_then(|number| self.geometry.superblock.qf_ino.get_mut(number as usize)) else {
            return Ok(None);
        };
        ino.set(0);
        for copy in 0..2 {
            write_copy(&self.device, copy, &self.geometry)?;
        }
        Ok(Some("forgotten: Linux keeps no quota of this kind any more".into()))
    }
}

/// Writes a copy; what is in front of the superblock (a boot sector, perhaps) stays.
fn write_copy(device: &Arc<Staged>, copy: u32, geometry: &Geometry) -> Result<()> {
    let block = superblock_block(&geometry.superblock);
    let bytes = &block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE];
    debug_assert!(bytes.len() == geometry.superblock.as_bytes().len() && block.len() == BLOCK_SIZE);
    let start = u64::from(copy) << BLOCK_BITS;
    if device.write_at(start + SUPERBLOCK_OFFSET as u64, bytes).is_err() {
        // What cannot be read has to be written as a whole.
        device.write_at(start, &block)?;
    }
    Ok(())
}
