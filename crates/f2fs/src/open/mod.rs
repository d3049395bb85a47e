//! Opening a volume: the last checkpoint, the journal, what was fsynced since, orphans.

mod metadata;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use basalt_device::{BlockDevice, FlashPages};
use basalt_segments::{LogId, SegmentKind};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::flushes::Flushes;
use crate::journal::area::Area;
use crate::journal::guard;
use crate::journal::state::{FoundAtOpen, SetRight};
use crate::layout::{BLOCK_SIZE, Ino};
use crate::lock::F2fs;
use crate::lock::VolumeLock;
use crate::mutant::{self, Mutant};
use crate::options::OpenOptions;
use crate::options::{Deltas, Extent, Recovery};
use crate::statistics::CheckpointCause;
use crate::submission::{Staged, Submission};
use crate::sync::{Mutex, RwLock};
use crate::volume::Volume;

impl F2fs {
    /// Opens the volume on `device`. An unclean volume falls back to its last checkpoint and what was fsynced since. For writing,
    /// this is made durable, and orphans are freed; read-only, it stays in memory. Where a block cannot be read without which nothing may
    /// be changed, or recovery finds no free segment, the volume is read-only, and a [warning](F2fs::warnings) says why.
    ///
    /// One volume at a time is open on a device, in this process and altogether: two of them destroy each other's data. A
    /// [`FileDevice`](basalt_device::FileDevice) locks what it opens, and refuses a second one; a
    /// [`MemoryDevice`](basalt_device::MemoryDevice) locks nothing.
    ///
    /// Errors: no volume, a damaged one, features Basalt does not serve, a failing device.
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions, clock: Arc<dyn Clock>) -> Result<F2fs> {
        match F2fs::open_to(device.clone(), options.clone(), clock.clone(), Recovery::MOUNT) {
            // A block that mounting needs and reading does not may be all that is lost.
            Err(error @ Error::Device(_))
                if error.is_from_reading() && !options.rescue && crate::rescue::knows_every_node(&*device) =>
            {
                let options = OpenOptions { rescue: true, ..options };
                let Ok((fs, _)) = F2fs::open_to(device, options, clock, Recovery::MOUNT) else { return Err(error) };
                let warning = format!(
                    "mounted read-only, without what was fsynced after the last checkpoint: {error}; `basalt rescue` finds more"
                );
                fs.volume.lock().warnings.push(warning);
                Ok(fs)
            }
            // Read-only, what was fsynced stays in memory.
            Err(Error::Refused(basalt_vfs::Error::NoSpace)) if !options.read_only => {
                let options = OpenOptions { read_only: true, ..options };
                let (fs, _) = F2fs::open_to(device, options, clock, Recovery::MOUNT)?;
                let warning = "mounted read-only: there is no free segment to recover to what was fsynced after the last checkpoint; \
                     copy what is needed, and format the volume anew";
                fs.volume.lock().warnings.push(warning.to_owned());
                Ok(fs)
            }
            opened => opened.map(|(fs, _)| fs),
        }
    }

    /// Recovers a volume in place, and closes it; returns what was set right in the SIT. For repair.
    pub(crate) fn recover(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, extent: Extent) -> Result<SetRight> {
        let options = OpenOptions { journal: false, ..OpenOptions::default() };
        let (fs, set_right) = F2fs::open_to(device, options, clock, Recovery { extent, is_repair: true })?;
        fs.close_once()?;
        Ok(set_right)
    }

    fn open_to(
        device: Arc<dyn BlockDevice>,
        options: OpenOptions,
        clock: Arc<dyn Clock>,
        recovery: Recovery,
    ) -> Result<(F2fs, SetRight)> {
        if !options.read_only && !options.rescue {
            // What is read now may be in a cache only: whoever wrote it may have ended in front of his flush. It is durable before anything is written.
            device.flush()?;
            crate::resize::finish(&*device, &mut |_, _, _| ())?;
        }
        let (mut volume, found) = Volume::open(device.clone(), options.clone(), clock.clone(), recovery)?;
        let root = volume.geometry.root_ino;
        if !volume.is_inode(root)? {
            return Err(Error::damaged("NAT", "root inode", "does not exist"));
        }
        if !volume.is_directory(root)? || volume.inode(root)?.i_links.get() == 0 {
            return Err(Error::damaged("inode", "root inode", "is no directory, or has no links"));
        }
        let writable = volume.is_writable();
        if writable {
            free_orphans(&mut volume)?;
        }
        let (mut volume, found, unclean) = roll_forward(volume, found, options, clock, recovery)?;
        // Not before: a volume that cannot be recovered is only read.
        volume.write_owners(found.owners)?;
        let writable = volume.is_writable();
        if writable {
            let area = find_journal(&mut volume, found.superblock_unreadable)?;
            volume.start_journal(area);
            if volume.options.delta == Deltas::On && volume.is_writable() && !volume.journal.is_on() {
                let advice = if area.is_some() {
                    "it needs logs=6, and no `nojournal`"
                } else {
                    "`basalt tune --journal on` adds one where there is none"
                };
                volume.warnings.push(format!("delta=on: no cleaning journal is used, so fsync writes nodes; {advice}"));
            }
            volume.recall_hotness();
        }
        if let Some(learner) = &volume.options.learner {
            learner.begin(volume.geometry.main.into());
        }
        let (committed, reclaim) = (volume.clock.now(), volume.options.reclaim);
        let pages = FlashPages {
            bytes: volume.options.flash_page.bytes().into(),
            from: u64::from(volume.geometry.main) * BLOCK_SIZE as u64,
        };
        let device = Arc::new(Submission::new(device, pages));
        volume.device = Arc::new(Staged(device.clone()));
        volume.writer.give_to(device.clone());
        let fs = F2fs {
            volume: VolumeLock::new(volume),
            closed: RwLock::new(None),
            cleaning: Mutex::new(()),
            changes: AtomicU64::new(0),
            turn: Mutex::new(()),
            reuse: RwLock::new(()),
            device,
            root,
            committed: Mutex::new(committed),
            flushes: Flushes::default(),
            reclaim,
        };
        if writable {
            // Nodes that an interrupted fsync left ahead of the log must not be taken for ours: move on to a new version.
            fs.checkpoint_if(unclean, CheckpointCause::Open)?;
            fs.clear_guard()?;
        }
        Ok((fs, found.set_right))
    }
}

/// The journal to commit cleaning by. One of a version that is not known is left alone: it is not live, or opening would have failed.
fn find_journal(volume: &mut Volume, superblock_unreadable: Option<u64>) -> Result<Option<Area>> {
    let is_guardable = renew_superblock(volume, superblock_unreadable)?;
    match Area::find(&*volume.device, &volume.geometry) {
        Err(Error::Unsupported { reason, .. }) => {
            volume.warnings.push(format!("{reason}: not used, cleaning is committed by checkpoints"));
            Ok(None)
        }
        Err(error @ Error::Device(_)) => {
            volume.warnings.push(format!("cleaning journal: {error}: not used, cleaning is committed by checkpoints"));
            Ok(None)
        }
        found => {
            let area = found?.filter(|_| is_guardable);
            let used = area.filter(|_| volume.wants_journal());
            if let Some(found) = used.and_then(|area| area.find_others(&*volume.device)) {
                volume.warnings.push(format!(
                    "block {found} in front of segment 0, where the cleaning journal lies, holds something that is not Basalt's, perhaps of a \
                     boot loader: the journal is not used, cleaning is committed by checkpoints"
                ));
                return Ok(None);
            }
            Ok(area)
        }
    }
}

/// Writes the copy of the superblock anew that could not be read, if there is one. False if that does not help: a guard cannot be set then.
fn renew_superblock(volume: &mut Volume, unreadable: Option<u64>) -> Result<bool> {
    let Some(copy) = unreadable else { return Ok(true) };
    if volume.journal.is_guarded() {
        // Both are written when the guard goes.
        return Ok(false);
    }
    let is_renewed = guard::renew(&*volume.device, &volume.geometry, copy)?;
    let result =
        if is_renewed { "written anew" } else { "cannot be written either; without it no cleaning journal is used" };
    volume.warnings.push(format!("superblock copy {} cannot be read: {result}", copy + 1));
    Ok(is_renewed)
}

/// Recovers what was fsynced after the checkpoint. What cannot be is not given up: the volume is opened again, read-only, as the
/// checkpoint has it. Also tells whether the volume must move on to a new checkpoint before anything is written.
fn roll_forward(
    mut volume: Volume,
    mut found: FoundAtOpen,
    options: OpenOptions,
    clock: Arc<dyn Clock>,
    recovery: Recovery,
) -> Result<(Volume, FoundAtOpen, bool)> {
    let unclean = volume.was_unclean();
    let may = recovery.extent == Extent::All && volume.may_roll_forward();
    if unclean {
        let since = if may { ", and what was fsynced since" } else { "" };
        volume.warnings.push(format!("not unmounted cleanly: the last checkpoint counts{since}"));
    }
    // Nodes of an fsync that was cut off may lie behind the checkpoint, without the beginning of their chain. Recovery must write
    // nothing there: it would carry the same version, and lead to them.
    let place = volume.logs[LogId::of(SegmentKind::WarmNode)].offset;
    if !mutant::active(Mutant::ChainOverwritten) {
        volume.leave_segment(LogId::of(SegmentKind::WarmNode));
    }
    if !may {
        volume.checkpoint.since_mut().close("the volume has features that recovery does not know, or is damaged");
        return Ok((volume, found, unclean));
    }
    match volume.roll_forward(&mut found, recovery.is_repair) {
        Ok(recovered) => {
            if recovered.files > 0 {
                let files = if recovered.files == 1 { "file" } else { "files" };
                volume
                    .warnings
                    .push(format!("{} {files} fsynced after the last checkpoint recovered", recovered.files));
            }
            let is_new = recovered.visited == 0;
            // As other logs, it begins no write within a flash page.
            let is_within_page =
                !place.is_multiple_of(volume.options.flash_page.blocks()) && !mutant::active(Mutant::GoesOnWithinPage);
            if is_new && !unclean && !is_within_page {
                volume.begin_chain_behind_open(place);
            } else if is_new && !unclean {
                volume.checkpoint.since_mut().close("the checkpoint has left the chain's log within a flash page");
            } else {
                volume.checkpoint.since_mut().close("recovery has not ended with a checkpoint");
            }
            Ok((volume, found, unclean || !is_new))
        }
        // Read-only, it needs none.
        Err(error @ Error::Refused(basalt_vfs::Error::NoSpace)) if !options.read_only => Err(error),
        Err(error) if matches!(error, Error::Damaged { .. } | Error::Refused(_)) || error.is_from_reading() => {
            let warning = format!(
                "mounted read-only: what was fsynced after the last checkpoint cannot be recovered: {error}; `basalt rescue` finds more"
            );
            let device = volume.device.clone();
            let recovery = Recovery { extent: Extent::Journal, ..Recovery::MOUNT };
            let options = OpenOptions { read_only: true, ..options };
            let (mut volume, found) = Volume::open(device, options, clock, recovery)?;
            volume.warnings.push(warning);
            Ok((volume, found, false))
        }
        Err(error) => Err(error),
    }
}

/// Frees the inodes that were unlinked while somebody still held them.
pub(crate) fn free_orphans(volume: &mut Volume) -> Result<()> {
    let orphans: Vec<Ino> = volume.orphans.iter().copied().collect();
    for ino in orphans {
        let exists = volume.is_inode(ino);
        if matches!(exists, Ok(false)) {
            return Err(Error::damaged("checkpoint", "orphans", format!("inode {ino} is listed, but does not exist")));
        }
        match exists.and_then(|_| Ok(volume.inode(ino)?.i_links.get() != 0)) {
            Err(error) if error.is_from_reading() => {
                // It costs its blocks and nothing else, and stays in the list: no reason to refuse the volume, or what else it holds.
                volume
                    .warnings
                    .push(format!("unlinked inode {ino} cannot be freed: {error}; basalt fsck --repair frees it"));
                continue;
            }
            // Linux would free it. No list that Basalt writes has such an inode.
            Ok(true) => {
                volume.warnings.push(format!("inode {ino} is in the list of unlinked inodes, but has a name: kept"));
                volume.orphans.remove(&ino);
            }
            Ok(false) => {}
            Err(error) => return Err(error),
        }
        if volume.orphans.contains(&ino)
            && let Err(error) = volume.expect_evictable(ino).and_then(|()| volume.attempt(|volume| volume.evict(ino)))
        {
            if volume.failed.is_some() || !error.is_from_reading() {
                return Err(error);
            }
            volume
                .warnings
                .push(format!("unlinked inode {ino} cannot be freed: {error}; basalt fsck --repair frees it"));
            continue;
        }
        volume.checkpoint.note_change();
    }
    Ok(())
}
