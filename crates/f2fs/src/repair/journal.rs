//! A live cleaning journal, in front of everything else: recovered as mounting does, or given up.
//!
//! This is not staged with the rest. Recovery is safe against power cuts by itself, and as long as the journal is live its copies lie
//! in places that the last checkpoint takes for free: no repair may choose where to write before they are part of a checkpoint.

use std::sync::Arc;

use basalt_device::BlockDevice;

use super::Repair;
use crate::check::{FaultKind, Place};
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

/// What is tried, what fault it is that this helps, and how it is told.
const ATTEMPTS: [(Extent, FaultKind, &str); 3] = [
    (Extent::All, FaultKind::NotUnmounted, "recovered, as mounting does"),
    (Extent::Journal, FaultKind::NotUnmounted, "recovered, but not what was fsynced since the last checkpoint"),
    (
        Extent::RestOfJournal,
        FaultKind::CleaningJournal,
        "recovered as far as it is whole; what was fsynced since the last checkpoint is lost, and of what was cleaned some may be",
    ),
];
const GIVEN_UP: &str = "given up: it is damaged; what was cleaned since the last checkpoint may be lost";

/// Whether a recovery gave up what was fsynced since the last checkpoint.
pub(super) fn has_given_up(recovered: &Repair) -> bool {
    recovered.action != ATTEMPTS[0].2
}

/// Recovers the journal and what was fsynced; without what was fsynced, if that cannot be; and of a journal that is damaged what is
/// left. If nothing helps it is given up. The volume is not guarded any more then.
pub(super) fn recover(device: &Arc<dyn BlockDevice>, clock: &Arc<dyn Clock>) -> Result<Repair> {
    for (extent, kind, action) in ATTEMPTS {
        match attempt(device, clock, extent) {
            Ok(()) => return Ok(told(kind, action)),
            // Nothing is given up for a write that fails: the next time it may not.
            Err(error @ Error::Refused(basalt_vfs::Error::Io(_))) => return Err(error),
            Err(error @ Error::Device(_)) if !error.is_from_reading() => return Err(error),
            // What cannot be read is left out by the last attempt.
            Err(_) => {}
        }
    }
    guard::clear(&**device, &guard::read(&**device)?.geometry)?;
    Ok(told(FaultKind::CleaningJournal, GIVEN_UP))
}

fn told(kind: FaultKind, action: &str) -> Repair {
    Repair {
        kind,
        severity: kind.severity(),
        place: Place::Volume,
        found: "a live cleaning journal".to_owned(),
        action: action.to_owned(),
    }
}

fn attempt(device: &Arc<dyn BlockDevice>, clock: &Arc<dyn Clock>, extent: Extent) -> Result<()> {
    F2fs::recover(Arc::clone(device), Arc::clone(clock), extent)?;
    if is_live(&**device)? {
        return Err(Error::damaged("journal", "recovery", "the volume could not be changed"));
    }
    Ok(())
}
