//! The mark in the superblock that a new layout is being put in place: while it stands, every F2FS but Basalt refuses the
//! volume, and Basalt puts the rest in place before it does anything else.
//!
//! The mark is [`RESIZE_GUARD`] in `log_sectors_per_block` and, in the reserved bytes, where the log of the new metadata begins.
//! The first copy of the superblock is marked first and unmarked first, with flushes between: the first copy decides.
//!
//! | first copy | second copy | means |
//! |---|---|---|
//! | sound | anything | not begun, or done but for the second copy |
//! | marked | sound | not begun to put in place: the log counts if it is of the volume's last checkpoint |
//! | marked or torn | marked | finish it |
//! | marked but torn | sound | not begun |

use basalt_device::BlockDevice;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::Result;
use crate::geometry::{Geometry, superblock_block};
use crate::layout::Address;
use crate::layout::BLOCK_SIZE;
use crate::layout::crc::crc;
use crate::layout::superblock::{
    CHECKSUM_OFFSET, Features, MAGIC, RESIZE_GUARD, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};

/// First bytes of the mark in `reserved`.
const MARK_MAGIC: [u8; 4] = *b"BsRz";

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMark {
    magic: [u8; 4],
    /// First block of the log.
    log: U32,
    crc: U32,
}

/// What the two copies say.
#[derive(Debug)]
pub enum State {
    /// No resize is under way.
    None,
    /// Traces of a resize that was not begun or is done: these copies are to be written over, one after the other.
    Restore {
        /// The sound superblock, without the mark.
        superblock: Box<RawSuperblock>,
        /// The copies, 0 or 1.
        copies: Vec<u64>,
    },
    /// The log begins at this block.
    Pending {
        /// Its first block.
        log: Address,
        /// The volume as it was, if nothing has been put in place yet.
        before: Option<Box<Geometry>>,
        /// What the second copy lacks: to be written before anything is put in place, so that a mark is left whenever the first
        /// copy is torn.
        second: Option<Box<RawSuperblock>>,
    },
}

/// Reads both copies.
///
/// # Errors
/// When the device fails.
pub fn state(device: &dyn BlockDevice) -> Result<State> {
    if device.size() < 2 * BLOCK_SIZE as u64 {
        return Ok(State::None);
    }
    let (copies, unreadable) = match (read(device, 0), read(device, 1)) {
        (Ok(first), Ok(second)) => ([first, second], None),
        // As if it were torn.
        (Err(_), Ok(second)) => ([RawSuperblock::new_zeroed(), second], None),
        (Ok(first), Err(error)) => ([first, RawSuperblock::new_zeroed()], Some(error)),
        (Err(error), Err(_)) => return Err(error),
    };
    let touched = copies.each_ref().map(|copy| is_guarded(copy) || has_mark(copy));
    if touched == [false, false] {
        return Ok(State::None);
    }
    if let Some(error) = unreadable {
        // Whether the second copy is marked decides whether anything has been put in place.
        return Err(error);
    }
    let sound = |copy: usize| Geometry::from_superblock(copies[copy], copy as u64, device).ok();
    // The broken copy first: there is a sound one at any time.
    let restore = |from: usize| {
        let mut superblock = copies[from];
        superblock.reserved[..size_of::<RawMark>()].fill(0);
        let order = [1 - from, from];
        State::Restore {
            superblock: Box::new(superblock),
            copies: order.into_iter().filter(|&copy| touched[copy]).map(|copy| copy as u64).collect(),
        }
    };
    if sound(0).is_some() {
        return Ok(restore(0));
    }
    Ok(match (sound(1), copies.iter().find_map(log_of)) {
        (before, Some(log)) => {
            let second = log_of(&copies[1]).is_none().then(|| Box::new(copies[0]));
            State::Pending { log, before: before.map(Box::new), second }
        }
        (Some(_), None) => restore(1),
        (None, None) => State::None,
    })
}

/// The superblock's block with the mark in it.
pub fn marked(superblock: &RawSuperblock, log: Address) -> Vec<u8> {
    let mut superblock = *superblock;
    let sectors = superblock.log_sectors_per_block.get();
    superblock.log_sectors_per_block.set(sectors | RESIZE_GUARD);
    let mut mark = RawMark { magic: MARK_MAGIC, log: log.into(), crc: U32::new(0) };
    mark.crc.set(mark_crc(&mark));
    superblock.reserved[..size_of::<RawMark>()].copy_from_slice(mark.as_bytes());
    superblock_block(&superblock)
}

/// Writes one copy of the superblock; durable when it returns.
///
/// # Errors
/// When the device fails.
pub fn write(device: &dyn BlockDevice, copy: u64, block: &[u8]) -> Result<()> {
    device.write_at(copy * BLOCK_SIZE as u64, block)?;
    Ok(device.flush()?)
}

fn read(device: &dyn BlockDevice, copy: u64) -> Result<RawSuperblock> {
    let mut block = [0; BLOCK_SIZE];
    device.read_at(copy * BLOCK_SIZE as u64, &mut block)?;
    let mut superblock = RawSuperblock::new_zeroed();
    superblock.as_mut_bytes().copy_from_slice(&block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE]);
    Ok(superblock)
}

fn is_guarded(superblock: &RawSuperblock) -> bool {
    superblock.magic.get() == MAGIC && superblock.log_sectors_per_block.get() & !0xFF == RESIZE_GUARD
}

fn has_mark(superblock: &RawSuperblock) -> bool {
    superblock.magic.get() == MAGIC && superblock.reserved.starts_with(&MARK_MAGIC)
}

/// Where the log begins by a copy that is guarded and whole.
fn log_of(superblock: &RawSuperblock) -> Option<Address> {
    let has_checksum = superblock.features().contains(Features::SB_CHECKSUM);
    let is_whole = !has_checksum
        || superblock.checksum_offset.get() == CHECKSUM_OFFSET && superblock.crc.get() == superblock.expected_crc();
    let (mark, _) = RawMark::read_from_prefix(&superblock.reserved).ok()?;
    let is_mark = mark.magic == MARK_MAGIC && mark.crc.get() == mark_crc(&mark);
    (is_guarded(superblock) && is_whole && is_mark).then(|| mark.log.into())
}

fn mark_crc(mark: &RawMark) -> u32 {
    crc(&mark.as_bytes()[..8])
}
