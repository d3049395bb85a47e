//! An earlier volume on the device: what remains of it must not be taken for the new one's.

use basalt_device::BlockDevice;

use super::plan::Plan;
use crate::checkpoint::load;
use crate::geometry::Geometry;

/// How far the first checkpoint is ahead of the newest one on the device. Nodes of the earlier volume may be ahead of its checkpoint, by
/// few versions.
const DISTANCE: u64 = 1 << 16;
/// No volume gets so far. Later versions are somebody's invention, and leave none to come.
const VERSION_MAX: u64 = 1 << 48;

/// The version of the first checkpoint, where that of the plan may be one of an earlier volume: it is newer than all that the device has.
/// A block that cannot be read says nothing; formatting writes over it, or fails there.
pub(super) fn version_behind(device: &dyn BlockDevice, plan: &Plan) -> u64 {
    let earlier = Geometry::read(device).ok().map(|(geometry, _)| geometry);
    // Of a volume whose formatting was cut short, the checkpoints may be all there is.
    let planned = Geometry::describe(plan.superblock);
    [earlier, Some(planned)]
        .iter()
        .flatten()
        .filter_map(|geometry| load::choose(device, geometry).ok())
        .map(|chosen| chosen.pack.raw.checkpoint_ver.get())
        .filter(|&version| version < VERSION_MAX)
        .map(|version| (version + DISTANCE) | 1)
        .fold(plan.checkpoint_version, u64::max)
}
