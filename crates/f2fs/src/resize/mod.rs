//! Resizing a volume that nobody has mounted: larger, smaller, or as small as it goes.
//!
//! | module | what |
//! |---|---|
//! | `target` | the layout at another size: pure arithmetic |
//! | `evacuate` | empties the segments that will be metadata, or behind the end |
//! | `rebuild` | the metadata of the new layout, block by block |
//! | `log` | where it is written first |
//! | `marker` | the mark in the superblock that makes the log count |
//!
//! Superblock and checkpoint depend on each other, and no device writes both at once. So the new metadata is first written whole to
//! blocks that the old volume does not use; then the superblock is marked, and from that moment the new layout counts; then
//! everything is copied into place; then the superblock is replaced. A power cut before the mark leaves the old volume, one after it
//! a volume that the next [`finish`] completes (every writable open calls it) and that all others refuse.
//!
//! A larger volume may need larger tables, which take the first segments of the main area: they are emptied by cleaning. Where there
//! is no room for that, the volume grows in several steps, each of them a resize of its own.

mod evacuate;
mod log;
mod marker;
mod rebuild;
mod target;

use basalt_segments::{Segment, Segments};
use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_vfs::FileSystem;

use crate::checkpoint::load::load;
use crate::checkpoint::pack::read_pack;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::features;
use crate::geometry::{Geometry, superblock_block};
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::{Address, BLOCK_BITS, SEGMENT_BITS};
use crate::lock::F2fs;
use crate::options::OpenOptions;
use log::{Log, LogWriter};
use marker::State;
use rebuild::Source;
use target::{NoTarget, Target, Usage, minimum_blocks, target};

/// Steps that a growing volume may take; each at least doubles it, or reaches the size.
const STEPS: u32 = 64;

/// What a resize is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Moving live blocks out of the way; counted in blocks.
    Moving,
    /// Writing the new metadata to the log; counted in steps.
    Preparing,
    /// Putting it in place; counted in groups of blocks.
    Placing,
}

/// How far a resize is: its stage, and how many of how many.
pub type Progress<'a> = &'a mut dyn FnMut(Stage, u64, u64);

/// A volume's size and what depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Size {
    /// Bytes of the device that the volume takes.
    pub bytes: u64,
    /// Segments, metadata included.
    pub segments: u32,
    /// Segments of the main area.
    pub main_segments: u32,
    /// Bytes that files and their metadata can take.
    pub user_bytes: u64,
}

/// What a resize does, or did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ResizeReport {
    /// The volume before.
    pub before: Size,
    /// The volume afterwards.
    pub after: Size,
    /// The least size in bytes at which the content fits, by the tables that the volume has afterwards (in a plan: before).
    pub minimum_bytes: u64,
    /// Blocks that were moved out of the way.
    pub blocks_moved: u64,
    /// Blocks of metadata that were put in place.
    pub metadata_blocks: u64,
    /// Resizes that it took.
    pub steps: u32,
}

/// What a resize to `size` bytes would do. Nothing is written; an unclean volume is taken as its last checkpoint has it.
///
/// # Errors
/// [`Error::Unsupported`] when it cannot be done, with the reason.
pub fn plan(device: &dyn BlockDevice, size: u64) -> Result<ResizeReport> {
    let (geometry, _) = Geometry::read(device)?;
    features::expect_served(&geometry, device)?;
    let (loaded, _) = load(device, &geometry)?;
    let raw = &loaded.pack.raw;
    if let Some(reason) = features::refuses_changes(&geometry, raw.flags()) {
        return Err(unsupported(device, format!("cannot be resized: {reason}")));
    }
    let usage = Usage::new(&geometry, raw, raw.valid_block_count.get());
    let before = size_of_volume(&geometry, raw.user_block_count.get());
    let target = choose(device, &geometry, &usage, size)?;
    Ok(ResizeReport {
        before,
        after: size_of_target(&target),
        minimum_bytes: minimum_blocks(&geometry, &usage) << BLOCK_BITS,
        blocks_moved: 0,
        metadata_blocks: 0,
        steps: 0,
    })
}

/// Resizes the volume to `size` bytes, as near as whole zones come from below. An interrupted resize is finished first. The
/// device must be at least that large; a file may be cut off there afterwards.
///
/// # Errors
/// [`Error::Unsupported`] when it cannot be done, with the reason; the volume is as it was then, or has grown a part of
/// the way. [`Error::Device`] if the device fails.
pub fn resize(
    device: &Arc<dyn BlockDevice>,
    size: u64,
    options: &OpenOptions,
    clock: &Arc<dyn Clock>,
    progress: Progress<'_>,
) -> Result<ResizeReport> {
    if size > device.size() {
        return Err(unsupported(&**device, format!("has {} bytes, fewer than {size}", device.size())));
    }
    // What is read from here on is durable: see opening.
    device.flush()?;
    finish(&**device, progress)?;
    let mut report: Option<ResizeReport> = None;
    for _ in 0..STEPS {
        // What is moved out of the way is committed by checkpoints: the new layout is put in place behind one.
        let options = OpenOptions { journal: false, ..options.clone() };
        let fs = F2fs::open(device.clone(), options, clock.clone())?;
        if !fs.is_writable() {
            let reasons = fs.warnings().join("; ");
            return Err(unsupported(&**device, format!("cannot be resized: {reasons}")));
        }
        let (geometry, usage, user) = fs.with_volume(|volume| {
            let usage = Usage::new(&volume.geometry, volume.checkpoint.raw(), volume.counts.blocks());
            (volume.geometry.clone(), usage, volume.counts.user_blocks())
        });
        let goal = choose(&**device, &geometry, &usage, size)?;
        let report = report.get_or_insert_with(|| ResizeReport {
            before: size_of_volume(&geometry, user),
            after: size_of_volume(&geometry, user),
            minimum_bytes: minimum_blocks(&geometry, &usage) << BLOCK_BITS,
            blocks_moved: 0,
            metadata_blocks: 0,
            steps: 0,
        });
        if goal.is_same(&geometry) && goal.superblock.block_count == geometry.superblock.block_count {
            close(&fs)?;
            report.minimum_bytes = minimum_blocks(&geometry, &usage) << BLOCK_BITS;
            return Ok(report.clone());
        }
        let target = next_step(&**device, &geometry, &usage, goal)?;
        if let Err(error) = evacuate::evacuate(&fs, &cleared(&geometry, &target), &mut |done, total| {
            progress(Stage::Moving, done, total);
        }) {
            // The volume stays as large as it is, and clean.
            let closed = close(&fs);
            return Err(if matches!(error, Error::Refused(basalt_vfs::Error::NoSpace)) && closed.is_ok() {
                unsupported(&**device, "no room to move blocks out of the way; free some space, then try again".into())
            } else {
                error
            });
        }
        close(&fs)?;
        report.blocks_moved += fs.with_volume(|volume| volume.record.written().blocks_moved);
        drop(fs);
        report.metadata_blocks += replace(&**device, &geometry, &target, progress)?;
        report.after = size_of_target(&target);
        report.steps += 1;
    }
    report.ok_or_else(|| unsupported(&**device, "cannot be resized in reasonable steps".into()))
}

/// Completes a resize that was interrupted; whether there was one. Costs two reads of a block where there is none.
///
/// # Errors
/// [`Error::Damaged`] if the log of the new metadata cannot be read, [`Error::Device`].
pub fn finish(device: &dyn BlockDevice, progress: Progress<'_>) -> Result<bool> {
    match marker::state(device)? {
        State::None => Ok(false),
        State::Restore { superblock, copies } => {
            let block = superblock_block(&superblock);
            copies.into_iter().try_for_each(|copy| marker::write(device, copy, &block))?;
            Ok(true)
        }
        State::Pending { log: address, before, second } => {
            let log = Log::open(device, address)?;
            if let Some(before) = before
                && !is_current(device, &before, &log)?
            {
                // Somebody went on with the old volume: the log is of no use any more.
                marker::write(device, 0, &superblock_block(&before.superblock))?;
                return Ok(true);
            }
            if let Some(marked) = second {
                marker::write(device, 1, &superblock_block(&marked))?;
            }
            place(device, &log, address, progress)?;
            Ok(true)
        }
    }
}

/// Whether the log was made from the newest checkpoint of the volume.
fn is_current(device: &dyn BlockDevice, geometry: &Geometry, log: &Log) -> Result<bool> {
    let (loaded, _) = load(device, geometry)?;
    Ok(log.is_of(loaded.pack.raw.checkpoint_ver.get(), loaded.pack.checksum))
}

fn close(fs: &F2fs) -> Result<()> {
    fs.close().map_err(Error::from)
}

/// The layout for `size` bytes, or why there is none.
fn choose(device: &dyn BlockDevice, geometry: &Geometry, usage: &Usage, size: u64) -> Result<Target> {
    target(geometry, usage, size >> BLOCK_BITS).map_err(|reason| {
        let least = minimum_blocks(geometry, usage) << BLOCK_BITS;
        unsupported(
            device,
            match reason {
                NoTarget::TooSmall => format!(
                    "its content does not fit {size} bytes; at least {} MiB ({least} bytes)",
                    least.div_ceil(1 << 20)
                ),
                NoTarget::Bitmaps => format!("its checkpoints have no room for the tables of {size} bytes"),
            },
        )
    })
}

/// The layout itself if the segments it takes can be emptied; else the largest on the way there that can.
fn next_step(device: &dyn BlockDevice, geometry: &Geometry, usage: &Usage, goal: Target) -> Result<Target> {
    let can_clear = |step: &Target| {
        let blocks = geometry.end() - (u64::from(step.shift) << SEGMENT_BITS);
        // As a volume that much smaller: it keeps back what cleaning needs.
        step.shift == 0 || step.shift < geometry.main_segments && target(geometry, usage, blocks).is_ok()
    };
    if can_clear(&goal) {
        return Ok(goal);
    }
    let (mut low, mut high) = (geometry.end(), goal.superblock.block_count.get());
    let mut best = None;
    while high - low > 1 << SEGMENT_BITS {
        let middle = low + (high - low) / 2;
        match target(geometry, usage, middle) {
            Ok(step) if can_clear(&step) => {
                low = middle;
                best = Some(step);
            }
            _ => high = middle,
        }
    }
    best.filter(|step| !step.is_same(geometry)).ok_or_else(|| {
        unsupported(device, "no room to move blocks out of the way; free some space, then try again".into())
    })
}

/// The old segments that must be empty first.
fn cleared(geometry: &Geometry, target: &Target) -> Segments {
    if target.shift > 0 {
        Segments::new(Segment::default(), target.shift)
    } else {
        let left = target.main_segments().min(geometry.main_segments);
        Segments::new(Segment::new(left), geometry.main_segments - left)
    }
}

/// Replaces the metadata of a cleanly closed volume; returns the blocks it took.
fn replace(device: &dyn BlockDevice, old: &Geometry, target: &Target, progress: Progress<'_>) -> Result<u64> {
    let (loaded, _) = load(device, old)?;
    if !loaded.pack.raw.flags().contains(CheckpointFlags::UMOUNT) {
        return Err(Error::damaged("checkpoint", format!("pack {}", loaded.pack.index + 1), "not of a closed volume"));
    }
    let new = Geometry::from_superblock(checksummed(target), 0, device)?;
    let source = Source { device, old, loaded: &loaded, new: &new, target };
    let segments = source.segments()?;
    let mut log = LogWriter::new(device, source.free_places(&segments))?;
    source.log(&segments, &mut log, &mut |done, total| progress(Stage::Preparing, done, total))?;
    let blocks = log.logged;
    let raw = &loaded.pack.raw;
    let address = log.finish(&new.superblock, raw.checkpoint_ver.get(), loaded.pack.checksum)?;
    for copy in [0, 1] {
        marker::write(device, copy, &marker::marked(&old.superblock, address))?;
    }
    place(device, &Log::open(device, address)?, address, progress)?;
    Ok(blocks)
}

/// Puts a log in place, and then the superblock. Until the first copy is replaced, all of it may be repeated.
fn place(device: &dyn BlockDevice, log: &Log, address: Address, progress: Progress<'_>) -> Result<()> {
    let new = log.superblock();
    let geometry = Geometry::from_superblock(new, 0, device)?;
    log.apply(device, geometry.main, &mut |done, total| progress(Stage::Placing, done, total))?;
    device.flush()?;
    // All of the new superblock but what makes it valid, which is in one sector: nothing of it can be torn.
    marker::write(device, 0, &marker::marked(&new, address))?;
    for copy in [0, 1] {
        marker::write(device, copy, &superblock_block(&new))?;
    }
    // A pack that cannot be read would show here, while the log still exists.
    read_pack(device, &geometry, 0).map(|_| ())
}

fn checksummed(target: &Target) -> crate::layout::superblock::RawSuperblock {
    use crate::layout::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
    use zerocopy::IntoBytes;
    let mut superblock = target.superblock;
    let block = superblock_block(&superblock);
    superblock.as_mut_bytes().copy_from_slice(&block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE]);
    superblock
}

fn size_of_volume(geometry: &Geometry, user_blocks: u64) -> Size {
    Size {
        bytes: geometry.block_count << BLOCK_BITS,
        segments: geometry.segment_count,
        main_segments: geometry.main_segments,
        user_bytes: user_blocks << BLOCK_BITS,
    }
}

fn size_of_target(target: &Target) -> Size {
    Size {
        bytes: target.superblock.block_count.get() << BLOCK_BITS,
        segments: target.superblock.segment_count.get(),
        main_segments: target.main_segments(),
        user_bytes: target.user_blocks() << BLOCK_BITS,
    }
}

fn unsupported(device: &dyn BlockDevice, reason: String) -> Error {
    Error::Unsupported { device: device.name().into(), reason }
}
