//! Adds a cleaning journal to an existing volume, or removes it. The volume is not open, any mkfs may have made it, and the areas of F2FS
//! stay as they are.

use basalt_device::BlockDevice;

use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::features;
use crate::geometry::Geometry;
use crate::journal::area::Area;
use crate::journal::guard;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::journal::DESCRIPTOR_BLOCK;
use crate::layout::own::is_own_or_empty;
use crate::layout::{BLOCK_BITS, BLOCK_SIZE};
use crate::resize;

/// Bytes that are zeroed with one request.
const ZERO_REQUEST: usize = 1 << 20;

/// The cleaning journal of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct JournalInfo {
    /// Its size in bytes; 0 if there is none.
    pub bytes: u64,
    /// Whether it is live: it holds moves that the last checkpoint does not know, so only Basalt can use the volume.
    pub live: bool,
    /// The most bytes that a journal can have on this volume.
    pub room_bytes: u64,
}

/// The cleaning journal of the volume on a device. Writes nothing.
///
/// # Errors
/// When there is no volume, it is damaged or its journal of a version that is not known, and when the device fails.
pub fn journal(device: &dyn BlockDevice) -> Result<JournalInfo> {
    let found = guard::read(device)?;
    let blocks = Area::find(device, &found.geometry)?.map_or(0, |area| area.blocks);
    Ok(info(&found.geometry, blocks, found.is_set))
}

/// Gives a volume a cleaning journal of `bytes`, rounded up to blocks of 4096, or none at 0, in place of the one it had. It is durable on
/// return; cut off in between, the volume has the old one or the new one. An interrupted resize is finished first.
///
/// # Errors
/// [`Error::Unsupported`] when there is no room for so many, the journal is live, the blocks that it would take hold what is not Basalt's,
/// or the volume has features that Basalt does not write and so would never use a journal; nothing has been changed then. Else as [`journal`].
pub fn set_journal(device: &dyn BlockDevice, bytes: u64) -> Result<JournalInfo> {
    set(device, bytes, false)
}

/// As [`set_journal`], also where somebody else has something in front of segment 0: it is written over.
///
/// # Errors
/// As [`set_journal`], but for that.
pub fn force_journal(device: &dyn BlockDevice, bytes: u64) -> Result<JournalInfo> {
    set(device, bytes, true)
}

fn set(device: &dyn BlockDevice, bytes: u64, force: bool) -> Result<JournalInfo> {
    resize::finish(device, &mut |_, _, _| ())?;
    let found = guard::read(device)?;
    let geometry = found.geometry;
    features::expect_served(&geometry, device)?;
    if found.is_set {
        let reason = "its cleaning journal is live; a writable mount or `basalt fsck --repair` recovers it first";
        return Err(unsupported(device, reason.into()));
    }
    let blocks = blocks_of(device, &geometry, bytes)?;
    let before = Area::find(device, &geometry)?.map_or(0, |area| area.blocks);
    if blocks == before {
        return Ok(info(&geometry, blocks, false));
    }
    if blocks > 0 {
        // What counts is whether a feature is in the way; that a check is due today is not.
        if let Some(reason) = features::refuses_changes(&geometry, CheckpointFlags::empty()) {
            return Err(unsupported(
                device,
                format!("is only read by Basalt, which needs no journal for that: {reason}"),
            ));
        }
        if !force {
            expect_free(device, blocks)?;
        }
        erase(device, blocks)?;
    }
    Area::write(device, &geometry, blocks)?;
    device.flush()?;
    Ok(info(&geometry, blocks, false))
}

fn info(geometry: &Geometry, blocks: u32, live: bool) -> JournalInfo {
    let bytes = |blocks: u32| u64::from(blocks) << BLOCK_BITS;
    JournalInfo { bytes: bytes(blocks), live, room_bytes: bytes(Area::capacity(geometry)) }
}

/// As many blocks as `bytes` take, or why there is no room for them.
fn blocks_of(device: &dyn BlockDevice, geometry: &Geometry, bytes: u64) -> Result<u32> {
    let most = Area::capacity(geometry);
    match u32::try_from(bytes.div_ceil(BLOCK_SIZE as u64)) {
        Ok(blocks) if blocks <= most => Ok(blocks),
        _ => Err(unsupported(
            device,
            format!(
                "no room for a journal of {bytes} bytes: of the {} blocks in front of segment 0, where the superblocks are, a journal can \
                 have {most} ({} bytes)",
                geometry.segment0,
                u64::from(most) << BLOCK_BITS
            ),
        )),
    }
}

/// Fails where the blocks of a journal hold what is neither Basalt's nor nothing, or cannot be read.
fn expect_free(device: &dyn BlockDevice, blocks: u32) -> Result<()> {
    let there = read_blocks(device, DESCRIPTOR_BLOCK, 1 + blocks as usize)?;
    match (0..).zip(there.chunks(BLOCK_SIZE)).find(|(_, block)| !is_own_or_empty(block)) {
        None => Ok(()),
        Some((at, _)) => Err(unsupported(
            device,
            format!(
                "block {} in front of segment 0, where the journal would lie, holds something that is not Basalt's, perhaps of a boot \
                 loader: nothing is changed; --force writes over it",
                DESCRIPTOR_BLOCK + at
            ),
        )),
    }
}

/// Zeroes the place of a journal: what somebody left there must not look like a part of it. Durable on return.
fn erase(device: &dyn BlockDevice, blocks: u32) -> Result<()> {
    let first = DESCRIPTOR_BLOCK + 1;
    let (mut at, end) = (u64::from(first) << BLOCK_BITS, u64::from(first + blocks) << BLOCK_BITS);
    let zeros = vec![0; ZERO_REQUEST];
    while at < end {
        let length = (end - at).min(ZERO_REQUEST as u64);
        // At most ZERO_REQUEST, the buffer's length.
        device.write_at(at, &zeros[..length as usize])?;
        at += length;
    }
    Ok(device.flush()?)
}

fn unsupported(device: &dyn BlockDevice, reason: String) -> Error {
    Error::Unsupported { device: device.name().into(), reason }
}
