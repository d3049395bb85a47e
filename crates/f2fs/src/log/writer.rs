//! Gathers the blocks of each log into large requests.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use basalt_device::BlockDevice;

use crate::error::Result;
use crate::layout::BLOCK_SIZE;

/// Blocks in the largest request: 1 MiB.
const RUN_MAX: usize = 256;

/// A block aligned for direct I/O.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub struct IoBlock(pub [u8; BLOCK_SIZE]);

/// Neighbouring blocks of one log that wait to be written together.
struct Run {
    start: u32,
    blocks: Vec<IoBlock>,
}

/// One run for each log.
pub struct BlockWriter {
    runs: Vec<Run>,
    /// Blocks handed to the device.
    pub blocks_written: u64,
}

impl BlockWriter {
    /// A writer for `logs` logs.
    pub fn new(logs: usize) -> BlockWriter {
        let runs = (0..logs).map(|_| Run { start: 0, blocks: Vec::new() }).collect();
        BlockWriter { runs, blocks_written: 0 }
    }

    /// Adds the block at `address` to the run of `log`; writes the run first if the block is no neighbour, or the run full.
    pub fn append(
        &mut self,
        device: &dyn BlockDevice,
        log: usize,
        address: u32,
        bytes: &[u8; BLOCK_SIZE],
    ) -> Result<()> {
        let run = &self.runs[log];
        let follows = !run.blocks.is_empty() && run.start + run.blocks.len() as u32 == address;
        if !follows || run.blocks.len() == RUN_MAX {
            self.write_run(device, log)?;
            self.runs[log].start = address;
        }
        self.runs[log].blocks.push(IoBlock(*bytes));
        Ok(())
    }

    /// Hands everything that waits to the device.
    pub fn write_all(&mut self, device: &dyn BlockDevice) -> Result<()> {
        (0..self.runs.len()).try_for_each(|log| self.write_run(device, log))
    }

    /// Whether a block of this range of addresses waits.
    pub fn holds(&self, range: std::ops::Range<u32>) -> bool {
        let overlaps = |run: &Run| run.start < range.end && run.start + run.blocks.len() as u32 > range.start;
        self.runs.iter().any(|run| !run.blocks.is_empty() && overlaps(run))
    }

    /// The bytes of a block that waits.
    pub fn pending(&self, address: u32) -> Option<&[u8; BLOCK_SIZE]> {
        self.runs.iter().find_map(|run| {
            let index = address.checked_sub(run.start)? as usize;
            run.blocks.get(index).map(|block| &block.0)
        })
    }

    fn write_run(&mut self, device: &dyn BlockDevice, log: usize) -> Result<()> {
        let run = &mut self.runs[log];
        if run.blocks.is_empty() {
            return Ok(());
        }
        device.write_at(u64::from(run.start) * BLOCK_SIZE as u64, run.blocks.as_bytes())?;
        self.blocks_written += run.blocks.len() as u64;
        run.blocks.clear();
        Ok(())
    }
}
