//! One superblock out of two damaged copies: both were the same, so what is damaged in one is whole in the other.
//!
//! Where the copies differ, one of them is right. The checksum tells which, and so it is certain. Without one, the fields have to agree with
//! each other and with the device; if that leaves more than one choice, none is made.

use std::ops::Range;

use basalt_device::BlockDevice;
use zerocopy::FromBytes;

use crate::geometry::Geometry;
use crate::layout::BLOCK_BITS;
use crate::layout::superblock::{Features, MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};

/// Most places to choose for: 4096 superblocks are tried.
const PLACES_MAX: usize = 12;

/// The superblock that both copies are damaged versions of; `None` if there is no such one, or a copy cannot be read.
pub(crate) fn merge(device: &dyn BlockDevice) -> Option<Geometry> {
    let (first, second) = (read(device, 0)?, read(device, 1)?);
    let mut unchecked = Vec::new();
    for bytes in mixtures(&first, &second)? {
        let Ok(raw) = RawSuperblock::read_from_bytes(&bytes) else { continue };
        let has_checksum = raw.features().contains(Features::SB_CHECKSUM);
        let is_right = raw.magic.get() == MAGIC && raw.crc.get() == raw.expected_crc();
        if !is_right && (has_checksum || unchecked.len() > 1) {
            continue;
        }
        match Geometry::from_superblock(raw, 0, device).ok() {
            Some(geometry) if is_right => return Some(geometry),
            Some(geometry) => unchecked.push(geometry),
            None => {}
        }
    }
    // Copies that have one must not get away without it because the feature is what is damaged.
    let has_none = |bytes: &[u8]| RawSuperblock::read_from_bytes(bytes).is_ok_and(|raw| raw.crc.get() == 0);
    let is_certain = unchecked.len() == 1 && has_none(&first) && has_none(&second);
    unchecked.pop().filter(|_| is_certain)
}

fn read(device: &dyn BlockDevice, copy: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at((copy << BLOCK_BITS) + SUPERBLOCK_OFFSET as u64, &mut bytes).ok()?;
    Some(bytes)
}

/// Everything that two copies of the same length may be damaged versions of, with each place where they differ as in either; `None` if there
/// are too many such places.
fn mixtures(first: &[u8], second: &[u8]) -> Option<impl Iterator<Item = Vec<u8>>> {
    let places = places(first, second)?;
    Some((0..1u32 << places.len()).map(move |choice| {
        let mut bytes = first.to_vec();
        for (_, place) in (0..).zip(&places).filter(|(bit, _)| choice >> bit & 1 != 0) {
            bytes[place.clone()].copy_from_slice(&second[place.clone()]);
        }
        bytes
    }))
}

/// Where the copies differ: each byte, or if these are too many, each run of them.
fn places(first: &[u8], second: &[u8]) -> Option<Vec<Range<usize>>> {
    let differ: Vec<usize> = (0..first.len()).filter(|&at| first[at] != second[at]).collect();
    if differ.len() <= PLACES_MAX {
        return Some(differ.into_iter().map(|at| at..at + 1).collect());
    }
    let runs: Vec<Range<usize>> = differ.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[0] + run.len()).collect();
    (runs.len() <= PLACES_MAX).then_some(runs)
}
