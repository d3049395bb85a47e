//! A live cleaning journal, in front of everything else: recovered as mounting does, or given up.
//!
//! This is not staged with the rest. Recovery is safe against power cuts by itself, and as long as the journal is live its copies lie
//! in places that the last checkpoint takes for free: no repair may choose where to write before they are part of a checkpoint.

use std::sync::Arc;

use basalt_device::BlockDevice;

use super::report::Repair;
use crate::check::{FaultKind, Place};
use crate::checkpoint::choose::choose_pack;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::journal::area::Area;
use crate::journal::guard;
use crate::journal::state::SetRight;
use crate::lock::F2fs;
use crate::options::Extent;

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
/// What is done about a broken chain of fsyncs.
pub(super) const BEHIND_DAMAGE: &str = "everything that was fsynced is recovered, except the damaged blocks";
const LIVE: &str = "a live cleaning journal";
const GIVEN_UP: &str = "given up: it or the checkpoint it belongs to is damaged; what was cleaned or fsynced since that checkpoint may be lost";

/// What a recovery came to.
pub(super) struct Recovered {
    /// One of the journal, one of the fsyncs where their chain was broken, and up to two of the SIT where that was wrong.
    pub(super) repairs: Vec<Repair>,
    /// How much was recovered; `None` where the journal was given up.
    pub(super) extent: Option<Extent>,
}

impl Recovered {
    /// Whether what was fsynced since the last checkpoint was given up.
    pub(super) fn has_given_up(&self) -> bool {
        self.extent != Some(Extent::All)
    }
}

/// How many moves of a live journal can be read: all of them are lost where it is given up, because old places may be in other use.
pub(super) fn moves(device: &dyn BlockDevice) -> usize {
    let Ok(geometry) = guard::read(device).map(|guard| guard.geometry) else { return 0 };
    let Ok((pack, _)) = choose_pack(device, &geometry) else { return 0 };
    let version = pack.raw.node_version(pack.checksum);
    Area::find_live(device, &geometry).map_or(0, |area| area.read_whole_blocks(device, &geometry, version).moves.len())
}

/// Recovers the journal and what was fsynced; without what was fsynced, if that cannot be; and of a journal that is damaged what is
/// left. If nothing helps it is given up. The volume is not guarded any more then.
pub(super) fn recover(device: &Arc<dyn BlockDevice>, clock: &Arc<dyn Clock>) -> Result<Recovered> {
    for (extent, ..) in ATTEMPTS {
        match recover_as(device, clock, Some(extent)) {
            Ok(repairs) => return Ok(Recovered { repairs, extent: Some(extent) }),
            // Nothing is given up for a write that fails: the next time it may not. Nor for lack of room: mounted read-only, it is there.
            Err(error @ Error::Refused(basalt_vfs::Error::Io(_) | basalt_vfs::Error::NoSpace)) => return Err(error),
            Err(error @ Error::Device(_)) if !error.is_from_reading() => return Err(error),
            // Nor for a journal that another Basalt can recover.
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            // What cannot be read is left out by the last attempt.
            Err(_) => {}
        }
    }
    Ok(Recovered { repairs: recover_as(device, clock, None)?, extent: None })
}

/// Recovers as much as [`recover`] did on a copy, or fails: what was planned gives up nothing else.
pub(super) fn recover_as(
    device: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    extent: Option<Extent>,
) -> Result<Vec<Repair>> {
    let Some((extent, kind, action)) = ATTEMPTS.into_iter().find(|attempt| Some(attempt.0) == extent) else {
        guard::clear(&**device, &guard::read(&**device)?.geometry)?;
        return Ok(vec![told(FaultKind::CleaningJournal, LIVE, GIVEN_UP)]);
    };
    let SetRight { missing, too_many, broken } = attempt(device, clock, extent)?;
    let mut repairs = vec![told(kind, LIVE, action)];
    repairs.extend(broken.map(|found| told(FaultKind::FsyncLost, &found, BEHIND_DAMAGE)));
    let wrong =
        [(FaultKind::SitMissing, missing, "in use are not"), (FaultKind::SitUnowned, too_many, "of nobody are")];
    for (kind, count, what) in wrong.into_iter().filter(|(_, count, _)| *count > 0) {
        repairs.push(told(
            kind,
            &format!("{count} blocks {what} marked live"),
            "set right, by all that leads to blocks",
        ));
    }
    Ok(repairs)
}

fn told(kind: FaultKind, found: &str, action: &str) -> Repair {
    Repair { kind, severity: kind.severity(), place: Place::Volume, found: found.to_owned(), action: action.to_owned() }
}

fn attempt(device: &Arc<dyn BlockDevice>, clock: &Arc<dyn Clock>, extent: Extent) -> Result<SetRight> {
    let set_right = F2fs::recover(Arc::clone(device), Arc::clone(clock), extent)?;
    if is_live(&**device)? {
        return Err(Error::damaged("journal", "recovery", "the volume could not be changed"));
    }
    Ok(set_right)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use basalt_device::MemoryDevice;
    use basalt_segments::{Durable, MainBlock, Segment, SegmentKind};
    use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

    use super::*;
    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::options::OpenOptions;
    use crate::statistics::CheckpointCause;
    use crate::volume::Volume;

    /// A checkpoint leaves no segment free, and something is fsynced after it: that is shown read-only, and repair gives up nothing.
    #[test]
    fn what_was_fsynced_is_there_where_recovery_finds_no_free_segment() {
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        let options = FormatOptions { discard_reads_zeros: true, journal_bytes: 0, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
        let open = || F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        let fs = open();
        let file = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(fs.root(), b"file", &file, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &[1; 8192], false).unwrap();
        fs.sync().unwrap();
        let place = |segment| MainBlock::in_segment(segment, 0);
        let take_one = |volume: &mut Volume| {
            let segment = volume.table.open_segment(SegmentKind::WarmData, None)?;
            assert!(volume.table.set_live(place(segment), 1));
            volume.counts.add_block();
            volume.table.close_segment(segment);
            Some(segment)
        };
        let taken: Vec<Segment> = std::iter::from_fn(|| take_one(&mut fs.volume.lock())).collect();
        assert!(fs.checkpoint_if(true, CheckpointCause::Interval).unwrap());
        // There is room again, but the checkpoint does not know.
        {
            let mut volume = fs.volume.lock();
            taken.iter().for_each(|&segment| assert!(volume.table.clear_live(place(segment), 1)));
            volume.counts.remove_blocks(taken.len() as u64).unwrap();
            volume.table.release(&taken, Durable::without_device());
        }
        fs.write(ino, 4096, &[2; 4096], false).unwrap();
        fs.sync_file(ino, false).unwrap();
        drop(fs);
        let copy: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let recovered = recover(&copy, &clock).map(|recovered| recovered.extent);
        assert!(matches!(recovered, Err(Error::Refused(basalt_vfs::Error::NoSpace))), "{recovered:?}");
        let before = device.digest();
        let fs = open();
        assert!(!fs.is_writable() && fs.warnings().iter().any(|warning| warning.contains("no free segment")));
        let mut bytes = [0; 8192];
        assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), 8192);
        assert!(bytes[..4096] == [1; 4096] && bytes[4096..] == [2; 4096], "what was fsynced");
        drop(fs);
        assert_eq!(device.digest(), before, "nothing is written");
    }
}
