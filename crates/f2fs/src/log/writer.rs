//! Gathers the blocks of each log into large requests.

use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_vfs::Bytes;

use crate::error::Result;
use crate::layout::{Address, BLOCK_SIZE, RawBlock};

/// Blocks in the largest request: 1 MiB.
const RUN_MAX: usize = 256;

/// Blocks from which on a run is given away: more than 64 KiB. Less is sooner copied into memory that direct I/O takes as it is, than by the
/// device.
const GIVE_MIN: usize = 17;

/// Whoever writes blocks later, and keeps them until then.
pub trait TakeBlocks: Send + Sync {
    /// Takes the blocks of one write at byte `offset`, and leaves free ones instead, if there are any. False if none was taken.
    ///
    /// Errors: what ended all writing.
    fn take(&self, offset: u64, blocks: &mut Vec<Box<RawBlock>>) -> basalt_device::Result<bool>;

    /// Keeps the bytes of one write, whole blocks. False if they are not kept.
    ///
    /// Errors: as [`take`](Self::take).
    fn keep(&self, offset: u64, bytes: Bytes) -> basalt_device::Result<bool>;
}

/// Neighbouring blocks of one log that wait to be written together.
struct Run {
    start: Address,
    blocks: Vec<Box<RawBlock>>,
}

/// Blocks that were written, for the next ones: warm in the processor's cache, and no work for the allocator.
#[derive(Default)]
struct SpareBlocks(Vec<Box<RawBlock>>);

impl SpareBlocks {
    fn keep(&mut self, blocks: impl IntoIterator<Item = Box<RawBlock>>) {
        let room = RUN_MAX - self.0.len();
        self.0.extend(blocks.into_iter().take(room));
    }
}

/// One run for each log.
pub struct BlockWriter {
    runs: Vec<Run>,
    spare: SpareBlocks,
    /// Who takes blocks, so that the device need not copy them.
    taker: Option<Arc<dyn TakeBlocks>>,
}

impl BlockWriter {
    /// A writer for `logs` logs.
    pub fn new(logs: usize) -> BlockWriter {
        let runs = (0..logs).map(|_| Run { start: Address::NULL, blocks: Vec::new() }).collect();
        BlockWriter { runs, spare: SpareBlocks::default(), taker: None }
    }

    /// From now on, `taker` is asked first to take what is written. The device that the other methods get stands in front of it, or is it.
    pub fn give_to(&mut self, taker: Arc<dyn TakeBlocks>) {
        self.taker = Some(taker);
    }

    /// A block with these bytes.
    pub fn copy_of(&mut self, bytes: &[u8; BLOCK_SIZE]) -> Box<RawBlock> {
        match self.spare.0.pop() {
            Some(mut block) => {
                block.0.copy_from_slice(bytes);
                block
            }
            None => Box::new(RawBlock(*bytes)),
        }
    }

    /// Adds a copy of the block at `address` to the run of `log`; writes the run first if the block is no neighbour, or the run full.
    pub fn append(
        &mut self,
        device: &dyn BlockDevice,
        log: usize,
        address: Address,
        bytes: &[u8; BLOCK_SIZE],
    ) -> Result<()> {
        self.make_way(device, log, address)?;
        let block = self.copy_of(bytes);
        self.push(log, block);
        Ok(())
    }

    /// Writes the run of `log` unless the block at `address` can be added to it.
    pub fn make_way(&mut self, device: &dyn BlockDevice, log: usize, address: Address) -> Result<()> {
        let run = &self.runs[log];
        let follows = !run.blocks.is_empty() && run.start + run.blocks.len() as u32 == address;
        if !follows || run.blocks.len() == RUN_MAX {
            self.write_run(device, log)?;
            self.runs[log].start = address;
        }
        Ok(())
    }

    /// Writes the run that ends in front of `address`, if there is one: what is written there next follows it on the device too, which
    /// takes that for one stream.
    pub fn write_in_front_of(&mut self, device: &dyn BlockDevice, address: Address) -> Result<()> {
        let ends_there = |run: &Run| !run.blocks.is_empty() && run.start + run.blocks.len() as u32 == address;
        self.runs.iter().position(ends_there).map_or(Ok(()), |log| self.write_run(device, log))
    }

    /// Adds the block that [`make_way`](Self::make_way) was last called for.
    pub fn push(&mut self, log: usize, block: Box<RawBlock>) {
        self.runs[log].blocks.push(block);
    }

    /// Hands everything that waits to the device.
    pub fn write_all(&mut self, device: &dyn BlockDevice) -> Result<()> {
        (0..self.runs.len()).try_for_each(|log| self.write_run(device, log))
    }

    /// Writes whole blocks of their own at byte `offset`, without a copy where somebody keeps them.
    pub fn write_shared(&self, device: &dyn BlockDevice, offset: u64, bytes: Bytes) -> Result<()> {
        let is_kept = match &self.taker {
            Some(taker) => taker.keep(offset, bytes.clone())?,
            None => false,
        };
        if is_kept { Ok(()) } else { Ok(device.write_at(offset, &bytes)?) }
    }

    /// Whether a block of this range of addresses waits.
    pub fn holds(&self, range: std::ops::Range<Address>) -> bool {
        let overlaps = |run: &Run| run.start < range.end && run.start + run.blocks.len() as u32 > range.start;
        self.runs.iter().any(|run| !run.blocks.is_empty() && overlaps(run))
    }

    /// The bytes of a block that waits.
    pub fn pending(&self, address: Address) -> Option<&[u8; BLOCK_SIZE]> {
        self.runs.iter().find_map(|run| {
            let index = address.blocks_behind(run.start)? as usize;
            run.blocks.get(index).map(|block| &block.0)
        })
    }

    fn write_run(&mut self, device: &dyn BlockDevice, log: usize) -> Result<()> {
        let run = &mut self.runs[log];
        let (offset, count) = (u64::from(run.start) * BLOCK_SIZE as u64, run.blocks.len());
        if count == 0 {
            return Ok(());
        }
        let is_taken = match &self.taker {
            Some(taker) if count >= GIVE_MIN => taker.take(offset, &mut run.blocks)?,
            _ => false,
        };
        if !is_taken {
            let slices: Vec<&[u8]> = run.blocks.iter().map(|block| &block.0[..]).collect();
            device.write_vectored_at(offset, &slices)?;
        }
        self.spare.keep(run.blocks.drain(..));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use basalt_device::MemoryDevice;
    use parking_lot::Mutex;

    use super::*;

    /// Takes all, and remembers how many blocks.
    #[derive(Default)]
    struct Taker(Mutex<Vec<usize>>);

    impl TakeBlocks for Taker {
        fn take(&self, _: u64, blocks: &mut Vec<Box<RawBlock>>) -> basalt_device::Result<bool> {
            self.0.lock().push(blocks.len());
            blocks.clear();
            Ok(true)
        }

        fn keep(&self, _: u64, _: Bytes) -> basalt_device::Result<bool> {
            Ok(false)
        }
    }

    #[test]
    fn only_the_run_that_ends_in_front_is_written() {
        let device = MemoryDevice::new(1 << 20, 512);
        let mut writer = BlockWriter::new(3);
        for (log, first) in [(0, 10), (1, 20), (2, 32)] {
            (0..2).for_each(|index| {
                writer.append(&device, log, Address::new(first + index), &[first as u8; BLOCK_SIZE]).unwrap();
            });
        }
        for elsewhere in [19, 20, 21, 23, 31, 100] {
            writer.write_in_front_of(&device, Address::new(elsewhere)).unwrap();
        }
        assert!([10, 20, 32].iter().all(|&first| writer.pending(Address::new(first)).is_some()));
        writer.write_in_front_of(&device, Address::new(22)).unwrap();
        assert!([10, 32].iter().all(|&first| writer.pending(Address::new(first)).is_some()));
        assert!(writer.pending(Address::new(20)).is_none() && writer.pending(Address::new(21)).is_none());
        let mut blocks = [0; 2 * BLOCK_SIZE];
        device.read_at(20 * BLOCK_SIZE as u64, &mut blocks).unwrap();
        assert_eq!(blocks, [20; 2 * BLOCK_SIZE]);
    }

    /// Blocks 20 to 22 wait: whoever reads a range of the device has to know, wherever that begins and ends.
    #[test]
    fn a_range_is_held_if_one_of_its_blocks_waits() {
        let device = MemoryDevice::new(1 << 20, 512);
        let mut writer = BlockWriter::new(2);
        (20..23).for_each(|at| writer.append(&device, 1, Address::new(at), &[1; BLOCK_SIZE]).unwrap());
        let held = |writer: &BlockWriter, from, to| writer.holds(Address::new(from)..Address::new(to));
        for (from, to) in [(20, 21), (20, 532), (10, 21), (22, 30), (21, 22), (0, 100)] {
            assert!(held(&writer, from, to), "{from} to {to}");
        }
        for (from, to) in [(10, 20), (23, 30), (0, 1)] {
            assert!(!held(&writer, from, to), "{from} to {to}");
        }
        writer.write_all(&device).unwrap();
        assert!(!held(&writer, 0, 100));
    }

    /// So that direct I/O need not copy what is little.
    #[test]
    fn only_long_runs_are_given_away() {
        let device = MemoryDevice::new(1 << 20, 512);
        let taker = Arc::new(Taker::default());
        let mut writer = BlockWriter::new(1);
        writer.give_to(taker.clone());
        for (first, count) in [(0, 16), (32, 17), (64, 1)] {
            for index in 0..count {
                writer.append(&device, 0, Address::new(first + index), &[first as u8 + 1; BLOCK_SIZE]).unwrap();
            }
        }
        writer.write_all(&device).unwrap();
        assert_eq!(*taker.0.lock(), [17]);
        let mut block = [0; BLOCK_SIZE];
        for (address, expected) in [(15, 1), (32, 0), (64, 65)] {
            device.read_at(address * BLOCK_SIZE as u64, &mut block).unwrap();
            assert_eq!(block, [expected; BLOCK_SIZE], "{address}");
        }
    }
}
