//! The checkpoint that rescue goes by, and how the other pack is.

use basalt_device::BlockDevice;

use super::geometry::GeometrySource;
use super::options::RescueOptions;
use crate::blocks::read_blocks;
use crate::checkpoint::block::check_block;
use crate::checkpoint::choose::{choose, is_unused};
use crate::checkpoint::pack::Pack;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::layout::BLOCKS_PER_SEGMENT;

/// The pack that is not gone by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Other {
    /// It is older.
    Sound,
    /// It is damaged, cut off or gone: it may have been newer.
    Bad,
    /// It is damaged such that no power cut explains it.
    Lost,
    /// As before, and the one that is gone by may be what longer ones have left behind.
    Stale,
}

/// The checkpoint to go by, and how the other pack is.
pub(super) fn find_checkpoint(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    source: GeometrySource,
    options: &RescueOptions,
    notes: &mut Vec<String>,
) -> (Option<Pack>, Other) {
    if options.nodes_only || source == GeometrySource::Nodes {
        return (None, Other::Sound);
    }
    let chosen = match choose(device, geometry) {
        Ok(chosen) => chosen,
        Err(errors) => {
            notes.push(format!("no checkpoint: {}", errors[0]));
            return (None, Other::Sound);
        }
    };
    // A pack of zeros is one that was never written, or what is left of a newer one.
    let is_zero = is_unused(device, geometry, 1 - chosen.pack.index);
    let is_bad = chosen.other.is_some() || is_zero;
    let other = match &chosen.unknown {
        Some(Error::Damaged { .. }) if chosen.pack.broken_end.is_some() => Other::Stale,
        Some(Error::Damaged { .. }) => Other::Lost,
        _ if is_bad => Other::Bad,
        _ => Other::Sound,
    };
    notes.extend(chosen.other.filter(|_| !is_zero).map(|error| format!("{error}; the other pack is used")));
    notes.extend(chosen.pack.tell_broken_end());
    (Some(chosen.pack), other)
}

/// The version in the first block of a pack, if that is whole.
pub(super) fn head_version(device: &dyn BlockDevice, geometry: &Geometry, index: u32) -> Option<u64> {
    let head = read_blocks(device, geometry.checkpoint + index * BLOCKS_PER_SEGMENT, 1).ok()?;
    check_block(index, "first block", &head).ok().map(|(raw, _)| raw.checkpoint_ver.get())
}
