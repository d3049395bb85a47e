//! Emptying a part of the main area: live blocks and active logs move to the rest, through cleaning and checkpoints.

use basalt_segments::{Greedy, LogId, Section, SegmentState, Segments};

use crate::error::{Error, Result};
use crate::layout::BLOCKS_PER_SEGMENT;
use crate::lock::{F2fs, note_failure};
use crate::statistics::{CheckpointCause, CleaningCause};
use crate::volume::Volume;

/// Free sections outside that are never used up before a checkpoint: for the logs that take what is moved.
const WORKSPACE_SECTIONS: u32 = 2;
/// Rounds without a gain after which there is no room.
const ROUNDS_IN_VAIN: u32 = 32;

/// What one round did.
struct Round {
    /// Live blocks still inside, and active logs.
    left: u64,
    /// Free sections outside.
    free: u32,
}

/// Empties the segments of `range`. `progress` is told how many of how many live blocks have left it.
///
/// # Errors
/// ENOSPC if the rest has no room; what an operation on the volume may meet.
pub fn evacuate(fs: &F2fs, range: &Segments, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    if range.len() == 0 {
        return Ok(());
    }
    let total = fs.with_volume(|volume| live_inside(volume, range));
    fs.volume.lock().table.avoid(range.clone());
    let (mut best_left, mut best_free, mut in_vain) = (u64::MAX, 0, 0);
    loop {
        let round = {
            let mut volume = fs.volume.lock();
            volume.expect_writable()?;
            let result = one_round(&mut volume, range);
            note_failure(&mut volume, &result);
            result?
        };
        if round.left == 0 {
            progress(total, total);
            return Ok(());
        }
        fs.checkpoint_if(true, CheckpointCause::Resize)?;
        let (left, free) = fs.with_volume(|volume| {
            (live_inside(volume, range) + active_inside(volume, range), volume.table.preferred_free_sections())
        });
        progress(total.saturating_sub(left), total);
        in_vain = if left < best_left || free > best_free.max(round.free) { 0 } else { in_vain + 1 };
        best_left = best_left.min(left);
        best_free = if in_vain == 0 { free } else { best_free };
        if in_vain > ROUNDS_IN_VAIN {
            return Err(basalt_vfs::Error::NoSpace.into());
        }
    }
}

fn live_inside(volume: &Volume, range: &Segments) -> u64 {
    range.clone().map(|segment| u64::from(volume.table.live(segment))).sum()
}

fn active_inside(volume: &Volume, range: &Segments) -> u64 {
    volume.logs.ids().filter(|log| is_inside(volume, *log, range)).count() as u64
}

/// Whether a log is in one of these segments. Recorded ones are also where recovery has taken them out: a checkpoint would say so.
fn is_inside(volume: &Volume, log: LogId, range: &Segments) -> bool {
    let active = &volume.logs[log];
    range.contains(active.segment) && (log.is_recorded() || !active.left)
}

/// Moves as much out as the free sections outside allow; makes room outside where they allow nothing.
fn one_round(volume: &mut Volume, range: &Segments) -> Result<Round> {
    let before = Round {
        left: live_inside(volume, range) + active_inside(volume, range),
        free: volume.table.preferred_free_sections(),
    };
    if before.left == 0 {
        return Ok(before);
    }
    for log in volume.logs.ids() {
        if is_inside(volume, log, range) && volume.table.preferred_free_sections() > 0 {
            volume.roll_log(log)?;
        }
    }
    let mut cleaned = false;
    for section in volume.table.sections_with(range) {
        let live: u32 = volume.table.live_in_section(section);
        let is_closed = |segment| volume.table.state(segment) != SegmentState::Active;
        if live == 0 || !volume.table.segments_of(section).all(is_closed) {
            continue;
        }
        if has_room(volume) {
            empty(volume, section)?;
            cleaned = true;
        } else {
            break;
        }
    }
    if !cleaned {
        make_room_outside(volume, range)?;
    }
    Ok(before)
}

/// Whether another section can be moved before a checkpoint.
fn has_room(volume: &Volume) -> bool {
    let section = u64::from(volume.table.segments_per_section() * BLOCKS_PER_SEGMENT);
    // Moved nodes take their place when they are written.
    let nodes = (volume.nodes.dirty_count() as u64).div_ceil(section);
    u64::from(volume.table.preferred_free_sections()) > u64::from(WORKSPACE_SECTIONS) + nodes
}

fn empty(volume: &mut Volume, section: Section) -> Result<()> {
    volume.clean_section(section, CleaningCause::Resize)?;
    if volume.cleaner.avoids(section) {
        let found = "cannot be emptied: some of its blocks, or their owners, are damaged or cannot be read";
        return Err(Error::damaged("segment", format!("section {section}"), found));
    }
    Ok(())
}

/// Cleans the emptiest section outside: what it holds may have to go inside for a while.
fn make_room_outside(volume: &mut Volume, range: &Segments) -> Result<()> {
    let inside: Vec<Section> = volume.table.sections_with(range).collect();
    let now = volume.mounted_seconds();
    let skip = |section: Section| inside.binary_search(&section).is_ok() || volume.cleaner.avoids(section);
    match volume.table.select_victim(&Greedy, now, &skip) {
        Some(section) => empty(volume, section),
        None => Ok(()),
    }
}
