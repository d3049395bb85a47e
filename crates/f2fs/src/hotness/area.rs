//! Where hotness records are, and reading them.

use basalt_device::BlockDevice;

use super::codec::{Found, Owner, decode, length};
use crate::blocks::read_blocks;
use crate::geometry::Geometry;
use crate::journal::area::Area;
use crate::layout::journal::DESCRIPTOR_BLOCK;
use crate::layout::{Address, BLOCK_SIZE};

/// Halves of fewer blocks are of no use.
const LEAST: u32 = 8;
/// Larger halves than 4 MiB would take too long to read and write.
const MOST: u32 = 1024;

/// The blocks of the two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    first: Address,
    /// Blocks of a half.
    half: u32,
    /// There is a journal: whoever made it has given these blocks to Basalt.
    is_given: bool,
}

impl Room {
    /// What is left between the journal, if there is one, and segment 0; `None` if that is too little.
    pub fn of(geometry: &Geometry, journal: Option<Area>) -> Option<Room> {
        let first = journal.map_or(DESCRIPTOR_BLOCK + 1, |area| area.first + area.blocks);
        let half = (geometry.segment0.get().saturating_sub(first.get()) / 2).min(MOST);
        (half >= LEAST).then_some(Room { first, half, is_given: journal.is_some() })
    }

    /// Bytes of a half.
    pub fn bytes(&self) -> usize {
        self.half as usize * BLOCK_SIZE
    }

    /// Where the records of this sequence number begin: in one half and in the other in turn.
    pub fn start(&self, sequence: u64) -> Address {
        self.first + (sequence % 2) as u32 * self.half
    }

    /// The newest records of an owner that are whole.
    pub fn read(&self, device: &dyn BlockDevice, owner: &Owner) -> Option<Found> {
        let whole = |half| {
            let first = read_blocks(device, self.start(half), 1).ok()?;
            let blocks = length(&first, owner.uuid)?.div_ceil(BLOCK_SIZE);
            if blocks > self.half as usize {
                return None;
            }
            decode(&read_blocks(device, self.start(half), blocks).ok()?, owner)
        };
        [0, 1].into_iter().filter_map(whole).max_by_key(|found| found.sequence)
    }

    /// Whether records of this sequence number may be written over what is there: somebody may keep a boot loader in front of segment 0. Records
    /// of this volume may be, and blocks that hold nothing.
    pub fn is_free(&self, device: &dyn BlockDevice, sequence: u64, uuid: [u8; 16]) -> bool {
        let is_nothing = |bytes: &[u8]| bytes.iter().all(|byte| *byte == bytes[0]) && [0, 0xFF].contains(&bytes[0]);
        let start = self.start(sequence);
        self.is_given
            || read_blocks(device, start, 1).is_ok_and(|first| length(&first, uuid).is_some())
            || read_blocks(device, start, self.half as usize).is_ok_and(|all| is_nothing(&all))
    }
}
