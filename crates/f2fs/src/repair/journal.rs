//! A live cleaning journal, in front of everything else: recovered as mounting does, or given up.
//!
//! This is not staged with the rest. Recovery is safe against power cuts by itself, and as long as the journal is live its copies lie
//! in places that the last checkpoint takes for free: no repair may choose where to write before they are part of a checkpoint.

use std::sync::Arc;

use basalt_device::BlockDevice;

use super::Repair;
use crate::check::{FaultKind, Place, Severity};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::journal::guard;
use crate::ops::F2fs;
use crate::recovery::Extent;

/// Whether the volume holds a live journal. A volume whose superblocks cannot be read holds none that could be recovered.
pub(super) fn is_live(device: &dyn BlockDevice) -> Result<bool> {
    match guard::read(device) {
        Ok(guard) => Ok(guard.is_set),
        Err(Error::Device(error)) => Err(error.into()),
        Err(_) => Ok(false),
    }
}

/// What is tried, and how it is told.
const ATTEMPTS: [(Extent, &str); 3] = [
    (Extent::All, "recovered, as mounting does"),
    (Extent::Journal, "recovered, but not what was fsynced since the last checkpoint"),
    (
        Extent::RestOfJournal,
        "recovered as far as it is whole; what was fsynced since the last checkpoint is lost, and of what was cleaned some may be",
    ),
];

/// Recovers the journal and what was fsynced; without what was fsynced, if that cannot be; and of a journal that is damaged what is
/// left. If nothing helps it is given up. The volume is not guarded any more then.
pub(super) fn recover(device: &Arc<dyn BlockDevice>, clock: &Arc<dyn Clock>) -> Result<Repair> {
    let mut action = None;
    for (extent, told) in ATTEMPTS {
        match attempt(device, clock, extent) {
            Ok(()) => {
                action = Some(told);
                break;
            }
            Err(Error::Device(error)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    if action.is_none() {
        guard::clear(&**device, &guard::read(&**device)?.geometry)?;
    }
    let action = action.unwrap_or("given up: it is damaged; what was cleaned since the last checkpoint may be lost");
    Ok(Repair {
        kind: FaultKind::NotUnmounted,
        severity: Severity::Note,
        place: Place::Volume,
        found: "a live cleaning journal".to_owned(),
        action: action.to_owned(),
    })
}

fn attempt(device: &Arc<dyn BlockDevice>, clock: &Arc<dyn Clock>, extent: Extent) -> Result<()> {
    F2fs::recover(Arc::clone(device), Arc::clone(clock), extent)?;
    if is_live(&**device)? {
        return Err(Error::damaged("journal", "recovery", "the volume could not be changed"));
    }
    Ok(())
}
