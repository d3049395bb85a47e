//! Where hotness records are, and reading them.

use basalt_device::BlockDevice;

use super::codec::{Found, decode, length};
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
}

impl Room {
    /// What is left between the journal, if there is one, and segment 0; `None` if that is too little.
    pub fn of(geometry: &Geometry, journal: Option<Area>) -> Option<Room> {
        let first = journal.map_or(DESCRIPTOR_BLOCK + 1, |area| area.first + area.blocks);
        let half = (geometry.segment0.get().saturating_sub(first.get()) / 2).min(MOST);
        (half >= LEAST).then_some(Room { first, half })
    }

    /// Bytes of a half.
    pub fn bytes(&self) -> usize {
        self.half as usize * BLOCK_SIZE
    }

    /// Where the records of this sequence number go, in bytes.
    pub fn at(&self, sequence: u64) -> u64 {
        // 0 or 1.
        self.start(sequence as u32 % 2).get() as u64 * BLOCK_SIZE as u64
    }

    fn start(&self, half: u32) -> Address {
        self.first + half * self.half
    }

    /// The newest records of a policy that are whole, and the highest sequence number of any.
    pub fn read(&self, device: &dyn BlockDevice, geometry: &Geometry, policy: &str) -> Option<Found> {
        let whole = |half| {
            let first = read_blocks(device, self.start(half), 1).ok()?;
            let blocks = length(&first, geometry.uuid)?.div_ceil(BLOCK_SIZE);
            if blocks > self.half as usize {
                return None;
            }
            let all = read_blocks(device, self.start(half), blocks).ok()?;
            decode(&all, geometry.uuid, geometry.checksum_seed, policy)
        };
        [0, 1].into_iter().filter_map(whole).max_by_key(|found| found.sequence)
    }
}
