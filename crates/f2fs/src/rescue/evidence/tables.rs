//! Reading NAT and SIT of the last checkpoint, as far as they can be read: what of them is possible counts.

use basalt_segments::Segment;
use zerocopy::FromBytes;

use super::{Evidence, SegmentEvidence};
use crate::checkpoint::journals;
use crate::checkpoint::pack::Pack;
use crate::geometry::Geometry;
use crate::layout::nat::{self, RawNatEntry};
use crate::layout::sit::RawSitEntry;
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, bit_msb};
use crate::rescue::interval::Interval;
use crate::rescue::reader::Reader;

impl Evidence {
    pub(super) fn set(&mut self, geometry: &Geometry, nid: Nid, entry: &RawNatEntry) {
        let address = entry.address();
        if geometry.in_main(address) {
            self.addresses.insert(nid, address);
        } else {
            self.addresses.remove(&nid);
        }
    }

    pub(super) fn read_nat(&mut self, reader: &mut Reader<'_>, geometry: &Geometry, bitmap: &[u8]) {
        self.nat_trusted = vec![false; geometry.nat_blocks as usize];
        let mut index = 0;
        while index < geometry.nat_blocks {
            // Neighbours in one copy lie side by side within a segment.
            let second = bit_msb(bitmap, index as usize);
            let segment_end = (index | (BLOCKS_PER_SEGMENT - 1)) + 1;
            let end = (index..segment_end.min(geometry.nat_blocks)).find(|&i| bit_msb(bitmap, i as usize) != second);
            let end = end.unwrap_or(segment_end.min(geometry.nat_blocks));
            let start = geometry.nat_block(index, second);
            reader.each(start..start + (end - index), &mut |address, block| {
                self.read_nat_block(geometry, index + (address - start), block);
            });
            index = end;
        }
    }

    fn read_nat_block(&mut self, geometry: &Geometry, index: u32, block: &[u8]) {
        let Ok((entries, _)) = <[RawNatEntry]>::ref_from_prefix_with_elems(block, nat::ENTRIES_PER_BLOCK as usize)
        else {
            return;
        };
        let first = Nid::in_nat_block(index, 0);
        let in_use = || {
            let all = first.onward().zip(entries);
            all.filter(|(nid, entry)| *nid >= Nid::FIRST && entry.address() != Address::NULL)
        };
        let is_possible = |entry: &RawNatEntry| {
            geometry.in_main(entry.address()) && (Nid::FIRST..geometry.node_ids()).contains(&entry.ino().nid())
        };
        if in_use().next().is_none() || !in_use().all(|(_, entry)| is_possible(entry)) {
            let possible = in_use().filter(|(_, entry)| is_possible(entry));
            self.hints.extend(possible.map(|(nid, entry)| (nid, entry.address())));
            return;
        }
        self.nat_trusted[index as usize] = true;
        in_use().for_each(|(nid, entry)| {
            self.addresses.insert(nid, entry.address());
        });
    }

    /// Reads the SIT; the number of live blocks in segments of nodes.
    pub(super) fn read_sit(&mut self, reader: &mut Reader<'_>, geometry: &Geometry, bitmap: &[u8]) -> u64 {
        let mut live_nodes = 0;
        for index in 0..geometry.sit_blocks_used() {
            let address = geometry.sit_block(index, bit_msb(bitmap, index as usize));
            reader.each(address..address + 1, &mut |_, block| {
                let segments = geometry.segments_of_sit_block(index);
                let entries = segments.zip(block.chunks_exact(size_of::<RawSitEntry>()));
                for (segment, bytes) in entries {
                    let Ok(entry) = RawSitEntry::read_from_bytes(bytes) else { continue };
                    let marked: u32 = entry.valid_map.iter().map(|byte| byte.count_ones()).sum();
                    if marked == 0 || entry.kind() > 5 || marked != u32::from(entry.live()) {
                        continue;
                    }
                    let holds_nodes = entry.kind() >= 3;
                    live_nodes += u64::from(marked) * u64::from(holds_nodes);
                    let map = Box::new(entry.valid_map);
                    self.segments.insert(segment, SegmentEvidence { map, holds_nodes });
                }
            });
        }
        live_nodes
    }

    /// SIT entries that only the checkpoint's journal has are newer than those that were read.
    pub(in crate::rescue) fn add_sit_journal(
        &mut self,
        device: &dyn basalt_device::BlockDevice,
        geometry: &Geometry,
        pack: &Pack,
    ) {
        let nodes = u64::from(pack.raw.valid_node_count.get());
        let Ok(entries) = journals::read_sit(device, geometry, pack) else {
            (self.sit_is_whole, self.sit_is_old) = (false, true);
            self.interval = self.nat_is_old.then(|| Interval::before(device, geometry, pack)).flatten();
            return;
        };
        for entry in entries {
            let (segment, entry) = (Segment::new(entry.segno.get()), &entry.entry);
            let marked: u32 = entry.valid_map.iter().map(|byte| byte.count_ones()).sum();
            self.segments.remove(&segment);
            if marked > 0 && entry.kind() <= 5 && marked == u32::from(entry.live()) {
                let map = Box::new(entry.valid_map);
                self.segments.insert(segment, SegmentEvidence { map, holds_nodes: entry.kind() >= 3 });
            }
        }
        let live = |segment: &SegmentEvidence| segment.map.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        self.sit_is_whole =
            self.segments.values().filter(|segment| segment.holds_nodes).map(live).sum::<u64>() == nodes;
    }
}

const _: () = assert!(nat::ENTRIES_PER_BLOCK as usize * size_of::<RawNatEntry>() <= BLOCK_SIZE);
