//! Where hotness records are, and reading them.

use basalt_device::BlockDevice;

use super::codec::{self, Found, Owner};
use crate::blocks::read_blocks;
use crate::geometry::Geometry;
use crate::journal::area::Area;
use crate::layout::journal::DESCRIPTOR_BLOCK;
use crate::layout::own::is_own_or_empty;
use crate::layout::{Address, BLOCK_SIZE};

/// Halves of fewer blocks are of no use.
const LEAST: u32 = 8;
/// Larger halves than 4 MiB would take too long to read and write.
const MOST: u32 = 1024;

/// The blocks of the superblocks end here.
const SUPERBLOCKS: Address = Address::new(2);
/// Blocks read in one request.
const PIECE: u32 = 256;

/// The blocks of the two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    first: Address,
    /// Blocks of a half.
    half: u32,
    /// Segment 0.
    end: Address,
}

impl Room {
    /// What is left between the journal, if there is one, and segment 0; `None` if that is too little.
    pub fn of(geometry: &Geometry, journal: Option<Area>) -> Option<Room> {
        let first = journal.map_or(DESCRIPTOR_BLOCK + 1, |area| area.first + area.blocks);
        let half = (geometry.segment0.get().saturating_sub(first.get()) / 2).min(MOST);
        (half >= LEAST).then_some(Room { first, half, end: geometry.segment0 })
    }

    /// Blocks of a half.
    pub fn blocks(&self) -> usize {
        self.half as usize
    }

    /// Where the records of this sequence number begin: in one half and in the other in turn.
    pub fn start(&self, sequence: u64) -> Address {
        self.first + (sequence % 2) as u32 * self.half
    }

    /// The newest records that are whole, whoever of this volume has written them.
    pub fn read(&self, device: &dyn BlockDevice, owner: &Owner) -> Option<Found> {
        let whole = |half| {
            let first = read_blocks(device, self.start(half), 1).ok()?;
            let blocks = codec::blocks_for(codec::length(&first, owner.uuid)?);
            if blocks > self.blocks() {
                return None;
            }
            codec::decode(&read_blocks(device, self.start(half), blocks).ok()?, owner)
        };
        [0, 1].into_iter().filter_map(whole).max_by_key(|found| found.sequence)
    }

    /// The first block between the superblocks and segment 0 that holds what is not Basalt's, or cannot be read. Where there is one, nothing may
    /// be written to the others either: they may be empty parts of something larger.
    pub fn find_foreign(&self, device: &dyn BlockDevice) -> Option<Address> {
        let (mut at, end) = (SUPERBLOCKS, self.end);
        while at < end {
            let count = (end - at).min(PIECE);
            match read_blocks(device, at, count as usize) {
                Err(_) => return Some(at),
                Ok(there) => {
                    if let Some(found) = there.chunks(BLOCK_SIZE).position(|block| !is_own_or_empty(block)) {
                        // Below PIECE.
                        return Some(at + found as u32);
                    }
                }
            }
            at = at + count;
        }
        None
    }
}
