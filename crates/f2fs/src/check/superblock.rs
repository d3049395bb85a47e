//! Both copies of the superblock.

use basalt_device::BlockDevice;
use zerocopy::{FromBytes, IntoBytes};

use super::fault::{Findings, Place};
use super::kind::FaultKind;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::superblock::{Features, MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::layout::{BLOCK_BITS, BLOCK_SIZE};

/// Features that change the layout in ways this check does not know.
const UNKNOWN_LAYOUT: Features = Features::BLKZONED.union(Features::DEVICE_ALIAS).union(Features::PACKED_SSA);

/// Checks both copies; `None` if neither can be used.
///
/// # Errors
/// [`Error::NotF2fs`] if neither copy carries the magic number, [`Error::Unsupported`] for a volume of a layout that is not
/// known, [`Error::Device`].
pub(super) fn check(device: &dyn BlockDevice, findings: &mut Findings) -> Result<Option<Geometry>> {
    let copies = match [read(device, 0), read(device, 1)] {
        [Err(error), Err(_)] => return Err(error),
        copies => copies,
    };
    let mut readable = Vec::with_capacity(2);
    for (copy, raw) in (0..).zip(copies) {
        match raw {
            Ok(raw) => readable.push((copy, raw)),
            Err(error) => {
                findings.add(FaultKind::SuperblockUnreadable, Place::Superblock(copy), error, "one that can be read");
            }
        }
    }
    if readable.iter().all(|(_, copy)| copy.magic.get() != MAGIC) {
        // Says so in the words of everybody else.
        Geometry::read(device)?;
    }
    let mut sound = Vec::new();
    for (copy, raw) in &readable {
        let copy = *copy;
        match Geometry::from_superblock(*raw, copy, device) {
            Ok(geometry) => sound.push(geometry),
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(Error::Device(error)) => return Err(error.into()),
            Err(error) => report(findings, copy, raw, &error),
        }
    }
    if let [first, second] = sound.as_slice()
        && first.superblock.as_bytes() != second.superblock.as_bytes()
    {
        let byte = first.superblock.as_bytes().iter().zip(second.superblock.as_bytes()).position(|(a, b)| a != b);
        findings.add(
            FaultKind::SuperblockCopiesDiffer,
            Place::Superblock(1),
            format_args!("differs from the first from byte {} on", byte.unwrap_or_default()),
            "two equal copies",
        );
    }
    let geometry = sound.into_iter().next();
    match &geometry {
        Some(found) if found.features.intersects(UNKNOWN_LAYOUT) || found.superblock.devs[0].path[0] != 0 => {
            Err(Error::Unsupported {
                device: device.name().into(),
                reason: format!(
                    "zoned, of several devices or otherwise unknown (features {:#x})",
                    found.features.bits()
                ),
            })
        }
        _ => Ok(geometry),
    }
}

fn read(device: &dyn BlockDevice, copy: u64) -> Result<RawSuperblock> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    if device.size() >= 2 * BLOCK_SIZE as u64 {
        device.read_at((copy << BLOCK_BITS) + SUPERBLOCK_OFFSET as u64, &mut bytes)?;
    }
    RawSuperblock::read_from_bytes(&bytes)
        .map_err(|_| Error::damaged("superblock", format!("copy {}", copy + 1), "shorter than a superblock"))
}

fn report(findings: &mut Findings, copy: u64, raw: &RawSuperblock, error: &Error) {
    let place = Place::Superblock(copy);
    if raw.magic.get() != MAGIC {
        findings.add(
            FaultKind::SuperblockMagic,
            place,
            format_args!("magic {:#010x}", raw.magic.get()),
            format_args!("{MAGIC:#010x}"),
        );
    } else if raw.features().contains(Features::SB_CHECKSUM) && raw.crc.get() != raw.expected_crc() {
        findings.add(
            FaultKind::SuperblockChecksum,
            place,
            format_args!("checksum {:#010x}", raw.crc.get()),
            format_args!("{:#010x}", raw.expected_crc()),
        );
    } else {
        let found = match error {
            Error::Damaged { found, .. } => found.clone(),
            other => other.to_string(),
        };
        findings.add(FaultKind::SuperblockFields, place, found, "a volume that fits itself and the device");
    }
}
