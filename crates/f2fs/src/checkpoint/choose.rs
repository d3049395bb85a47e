//! Which of the two checkpoint packs holds.
//!
//! | pack 1 | pack 2 | decision |
//! |---|---|---|
//! | sound | sound | the newer version (signed difference) |
//! | sound | cut off | pack 1; what was wrong with the other is told |
//! | sound | newer, one end damaged | pack 2, through its other end (`half`) |
//! | cut off, or one end damaged | sound | likewise |
//! | bad | bad | the newer one of which an end is whole, or refuse |
//!
//! A pack is sound if its first and last block carry the right checksum and the same version.

use basalt_device::BlockDevice;

use super::half::{self, Half};
use super::pack::{Pack, newer, read_pack};
use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::BLOCKS_PER_SEGMENT;

/// The pack to start from, and what is wrong with the other one.
pub(crate) struct Choice {
    pub(crate) pack: Pack,
    /// Why the other pack is not sound, if it is not.
    pub(crate) other: Option<Error>,
    /// Why it cannot be told whether that is the newer one, if it cannot.
    pub(crate) unknown: Option<Error>,
}

impl Choice {
    /// The pack, and what is wrong with the other one if it was ever written.
    pub(super) fn told(self, device: &dyn BlockDevice, geometry: &Geometry) -> (Pack, Option<Error>) {
        let other = self.other.filter(|_| !is_unused(device, geometry, 1 - self.pack.index));
        (self.pack, other)
    }
}

/// Chooses the pack to start from.
///
/// # Errors
/// What is wrong with each of them, if neither is of use.
pub(crate) fn choose(device: &dyn BlockDevice, geometry: &Geometry) -> std::result::Result<Choice, Box<[Error; 2]>> {
    let (pack, other, unknown) = match [0, 1].map(|index| read_pack(device, geometry, index)) {
        [Ok(first), Ok(second)] => (newer(first, second), None, None),
        [Ok(pack), Err(error)] | [Err(error), Ok(pack)] => {
            match half::find(device, geometry, 1 - pack.index, Some(pack.raw.checkpoint_ver.get())) {
                Half::Complete(newer) => (newer, None, None),
                Half::None => (pack, Some(error), None),
                Half::Unknown(unknown) => (pack, Some(error), Some(unknown)),
            }
        }
        [Err(first), Err(second)] => match half::newest(device, geometry) {
            (Some(pack), unknown) => {
                let other = if pack.index == 0 { second } else { first };
                (pack, Some(other), unknown)
            }
            (None, _) => return Err(Box::new([first, second])),
        },
    };
    Ok(Choice { pack, other, unknown })
}

pub(super) fn choose_either(device: &dyn BlockDevice, geometry: &Geometry) -> Result<Choice> {
    choose(device, geometry).map_err(|errors| {
        let [first, _] = *errors;
        first
    })
}

/// The pack to start from. The second value says what was wrong with the other pack, if anything was.
///
/// # Errors
/// Damage if neither is of use, or if a pack is damaged such that it may be the newer one. The device's where that cannot be read.
pub fn choose_pack(device: &dyn BlockDevice, geometry: &Geometry) -> Result<(Pack, Option<Error>)> {
    let chosen = choose_either(device, geometry)?;
    match chosen.unknown {
        Some(unknown) => Err(unknown),
        None => Ok(chosen.told(device, geometry)),
    }
}

/// As [`choose_pack`], for opening to read: a pack that cannot be read is broken like any other. It may have been the newer one,
/// so nothing may be written to a volume that is opened from the pack chosen here.
pub(crate) fn choose_pack_to_read(device: &dyn BlockDevice, geometry: &Geometry) -> Result<(Pack, Option<Error>)> {
    Ok(choose_either(device, geometry)?.told(device, geometry))
}

/// Whether a pack looks as if it was never written: resize.f2fs leaves one of zeros beside its own.
pub(crate) fn is_unused(device: &dyn BlockDevice, geometry: &Geometry, index: u32) -> bool {
    let first = read_blocks(device, geometry.checkpoint + index * BLOCKS_PER_SEGMENT, 1);
    first.is_ok_and(|block| block.iter().all(|byte| *byte == 0))
}
