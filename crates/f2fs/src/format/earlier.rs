//! An earlier volume on the device: what remains of it must not be taken for the new one's.

use std::ops::Range;

use basalt_device::BlockDevice;

use super::plan::Plan;
use crate::blocks::read_blocks;
use crate::checkpoint::block::check_block;
use crate::geometry::Geometry;
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::node::seen::recognise;

/// How far the first checkpoint is ahead of the newest one on the device. Nodes of the earlier volume may be ahead of its checkpoint, by
/// few versions; and a node that was found may be behind it by many.
const DISTANCE: u64 = 1 << 16;
/// No volume gets so far. Later versions are somebody's invention, and leave none to come.
const VERSION_MAX: u64 = 1 << 48;
/// Places at which a checkpoint is looked for, whatever the layout was: sections of up to 256 MiB.
const HEADS: u32 = 256;
/// How far they are apart: partitions begin at multiples of 1 MiB, and segments at multiples of 2 MiB of the disk.
const HEAD_BLOCKS: u32 = BLOCKS_PER_SEGMENT / 2;
/// Segments that are looked at for a node, where no checkpoint is left.
const SAMPLES: u32 = 2048;

/// What an earlier volume has left.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// The newest version of a checkpoint, or of a node where there is no checkpoint.
    version: Option<u64>,
    /// Where something was found.
    places: Vec<Address>,
}

impl Earlier {
    /// Looks for checkpoints where the device's superblock and the plan have them, and where the first segments may begin, and for nodes
    /// if there are none. A block that cannot be read says nothing; formatting writes over it, or fails there.
    pub(super) fn find(device: &dyn BlockDevice, plan: &Plan) -> Earlier {
        let known = Geometry::read(device).ok().map(|(geometry, _)| geometry);
        // Of a volume whose formatting was cut short, the checkpoints may be all there is.
        let planned = Geometry::describe(plan.superblock);
        let mut earlier = Earlier::default();
        let blocks = u32::try_from(device.size() >> BLOCK_BITS).unwrap_or(u32::MAX);
        for start in known.iter().chain([&planned]).map(|geometry| geometry.checkpoint) {
            let area = Address::all(start..start.saturating_add(2 * BLOCKS_PER_SEGMENT).min(Address::new(blocks)));
            match read_blocks(device, start, area.len()) {
                Ok(bytes) => {
                    area.zip(bytes.chunks_exact(BLOCK_SIZE))
                        .for_each(|(address, block)| earlier.look_at(address, block));
                }
                Err(_) => area.for_each(|address| earlier.look(device, address)),
            }
        }
        let heads = (1..=HEADS).map(|head| head * HEAD_BLOCKS).take_while(|address| *address < blocks);
        heads.for_each(|head| earlier.look(device, Address::new(head)));
        if earlier.version.is_none() && (known.is_some() || is_written(device, planned.checkpoint)) {
            let within = |geometry: &Geometry| geometry.checkpoint.get() % BLOCKS_PER_SEGMENT;
            let starts = known.as_ref().map_or_else(|| vec![0, HEAD_BLOCKS], |known| vec![within(known)]);
            for start in starts {
                earlier.look_for_nodes(device, known.as_ref().unwrap_or(&planned), start..blocks);
            }
        }
        earlier
    }

    fn note(&mut self, address: Address, version: u64) {
        if version < VERSION_MAX {
            self.version = self.version.max(Some(version));
            self.places.push(address);
        }
    }

    fn look(&mut self, device: &dyn BlockDevice, address: Address) {
        if let Ok(block) = read_blocks(device, address, 1) {
            self.look_at(address, &block);
        }
    }

    fn look_at(&mut self, address: Address, block: &[u8]) {
        // Most are zeros, which are no checkpoint.
        if block[..8] != [0; 8]
            && let Ok((raw, _)) = check_block(0, "block", block)
        {
            self.note(address, raw.checkpoint_ver.get());
        }
    }

    /// Looks at the starts of the segments that such a range may consist of. Nodes carry the lower half of their checkpoint's version, and a log's
    /// segment is full of them from its start.
    fn look_for_nodes(&mut self, device: &dyn BlockDevice, geometry: &Geometry, blocks: Range<u32>) {
        let segments = blocks.end.saturating_sub(blocks.start) / BLOCKS_PER_SEGMENT;
        let samples = SAMPLES.min(segments);
        for sample in 0..samples {
            // Below the number of segments, which fits.
            let segment = (u64::from(segments) * u64::from(sample) / u64::from(samples)) as u32;
            let address = Address::new(blocks.start + segment * BLOCKS_PER_SEGMENT);
            let Ok(block) = read_blocks(device, address, 1) else { continue };
            if let Some(seen) = recognise(&block, geometry, false) {
                self.note(address, u64::from(seen.version as u32));
            }
        }
    }

    /// Whether anything that was found is still there.
    pub(super) fn remains(&self, device: &dyn BlockDevice) -> bool {
        self.places.iter().any(|&address| is_written(device, address))
    }

    /// The version of the first checkpoint: newer than all that the device has.
    pub(super) fn version_behind(&self, planned: u64) -> u64 {
        self.version.map_or(planned, |version| planned.max((version + DISTANCE) | 1))
    }
}

/// Whether a block is not zeros; also where it cannot be read.
fn is_written(device: &dyn BlockDevice, address: Address) -> bool {
    read_blocks(device, address, 1).map_or(true, |block| block != [0; BLOCK_SIZE])
}
