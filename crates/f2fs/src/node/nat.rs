//! The node address table in memory: cached blocks, entries changed since the last checkpoint, and free node ids.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::FromBytes;

use basalt_device::BlockDevice;

use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::nat::{ENTRIES_PER_BLOCK, RawNatEntry};
use crate::layout::{Address, Ino, Nid, bit_msb};

/// Cached NAT blocks: 4 MiB.
const CACHED_BLOCKS: usize = 1024;
/// Free node ids gathered in one go.
const FREE_IDS_WANTED: usize = 1024;

/// The table. An address of [`Address::NEW`] is a node that was never written; it exists in memory only.
pub struct Nat {
    /// Which copy of each block is current.
    pub bitmap: Vec<u8>,
    blocks: FxHashMap<u32, Box<[RawNatEntry]>>,
    /// Entries changed since the last checkpoint, or held only by its journal.
    pub dirty: BTreeMap<Nid, RawNatEntry>,
    free: VecDeque<Nid>,
    /// Ids that look free, and whose entries may be lost.
    withheld: FxHashSet<Nid>,
    /// Where the search for free ids goes on.
    pub scan_at: Nid,
    /// Free ids in each NAT block once it was looked at; `u16::MAX` before.
    free_in_block: Vec<u16>,
    /// The table is gone, and was rebuilt from the nodes themselves: `dirty` is all there is.
    rebuilt: bool,
    /// Rebuilt only: the nodes below inodes by inode and offset in its tree, sorted; they are found even if no pointer leads to them.
    places: Vec<NodePlace>,
}

/// Where a node belongs, as its footer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePlace {
    /// The inode.
    pub ino: Ino,
    /// Offset in its tree.
    pub offset: u32,
    /// The node.
    pub nid: Nid,
}

impl Nat {
    /// The table as a checkpoint has it.
    pub fn new(geometry: &Geometry, bitmap: Vec<u8>, journal: BTreeMap<Nid, RawNatEntry>, scan_at: Nid) -> Nat {
        let scan_at = if (Nid::FIRST_FREE..geometry.node_ids()).contains(&scan_at) { scan_at } else { Nid::FIRST_FREE };
        Nat {
            bitmap,
            blocks: FxHashMap::default(),
            dirty: journal,
            free: VecDeque::new(),
            withheld: FxHashSet::default(),
            scan_at,
            free_in_block: vec![u16::MAX; geometry.nat_blocks as usize],
            rebuilt: false,
            places: Vec::new(),
        }
    }

    /// A table rebuilt from nodes that were found, for reading only. `places` are those of the nodes below inodes.
    pub fn rebuilt(entries: BTreeMap<Nid, RawNatEntry>, mut places: Vec<NodePlace>) -> Nat {
        places.sort_unstable();
        Nat {
            bitmap: Vec::new(),
            blocks: FxHashMap::default(),
            dirty: entries,
            free: VecDeque::new(),
            withheld: FxHashSet::default(),
            scan_at: Nid::FIRST_FREE,
            free_in_block: Vec::new(),
            rebuilt: true,
            places,
        }
    }

    /// The node at a place of an inode's tree, where the table was rebuilt.
    pub fn at_place(&self, ino: Ino, offset: u32) -> Option<Nid> {
        let at = self.places.partition_point(|place| (place.ino, place.offset) < (ino, offset));
        self.places.get(at).filter(|place| (place.ino, place.offset) == (ino, offset)).map(|place| place.nid)
    }

    /// The nodes of an inode within a range of offsets, where the table was rebuilt.
    pub fn places_in(&self, ino: Ino, offsets: std::ops::Range<u32>) -> &[NodePlace] {
        let at = |offset: u32| self.places.partition_point(|place| (place.ino, place.offset) < (ino, offset));
        self.places.get(at(offsets.start)..at(offsets.end)).unwrap_or_default()
    }

    /// Whether a node further back in an inode's tree was found.
    pub fn has_place_behind(&self, ino: Ino, offset: u32) -> bool {
        let at = self.places.partition_point(|place| (place.ino, place.offset) <= (ino, offset));
        self.places.get(at).is_some_and(|place| place.ino == ino)
    }

    /// The entry of a node id. Damage if the id is outside the table.
    pub fn get(&mut self, device: &dyn BlockDevice, geometry: &Geometry, nid: Nid) -> Result<RawNatEntry> {
        if nid >= geometry.node_ids() {
            return Err(Error::damaged("NAT", format!("node {nid}"), format!("ids end at {}", geometry.node_ids())));
        }
        if let Some(entry) = self.dirty.get(&nid) {
            return Ok(*entry);
        }
        if self.rebuilt {
            return Ok(RawNatEntry::default());
        }
        let block = self.block(device, geometry, nid.nat_block())?;
        Ok(block[nid.nat_slot()])
    }

    /// Changes the entry of a node id that was looked up before.
    pub fn set(&mut self, nid: Nid, entry: RawNatEntry) {
        self.dirty.insert(nid, entry);
    }

    /// Block `index` of the table, read if it is not in memory.
    pub fn block(
        &mut self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        index: u32,
    ) -> Result<&mut Box<[RawNatEntry]>> {
        if !self.blocks.contains_key(&index) {
            if self.blocks.len() >= CACHED_BLOCKS {
                // Any victim will do: the table is small and read in clusters.
                let victim = self.blocks.keys().next().copied();
                victim.map(|victim| self.blocks.remove(&victim));
            }
            let address = geometry.nat_block(index, bit_msb(&self.bitmap, index as usize));
            let bytes = read_blocks(device, address, 1)?;
            let (entries, _) = <[RawNatEntry]>::ref_from_prefix_with_elems(&bytes, ENTRIES_PER_BLOCK as usize)
                .map_err(|_| Error::damaged("NAT", format!("block {index}"), "short"))?;
            self.blocks.insert(index, entries.into());
        }
        self.blocks.get_mut(&index).ok_or_else(|| Error::damaged("NAT", format!("block {index}"), "not in memory"))
    }

    /// Keeps an id from being handed out, since its entry may be lost.
    pub fn withhold(&mut self, nid: Nid) {
        self.withheld.insert(nid);
    }

    /// A node id that is free now and was free in the last checkpoint.
    pub fn take_free(&mut self, device: &dyn BlockDevice, geometry: &Geometry) -> Result<Nid> {
        if self.free.is_empty() {
            self.gather_free(device, geometry)?;
        }
        self.free.pop_front().ok_or_else(|| basalt_vfs::Error::NoSpace.into())
    }

    /// Forgets what was known about free ids: a checkpoint made freed ids usable again.
    pub fn freed_since_checkpoint(&mut self, nids: impl Iterator<Item = Nid>) {
        for nid in nids {
            self.free_in_block[nid.nat_block() as usize] = u16::MAX;
        }
    }

    fn gather_free(&mut self, device: &dyn BlockDevice, geometry: &Geometry) -> Result<()> {
        let blocks = geometry.nat_blocks;
        let start = self.scan_at.nat_block();
        for step in 0..=blocks {
            let index = (start + step) % blocks;
            if self.free_in_block[index as usize] == 0 {
                continue;
            }
            let found: Vec<Nid> = self
                .block(device, geometry, index)?
                .iter()
                .enumerate()
                .filter(|(_, entry)| entry.address() == Address::NULL)
                .map(|(offset, _)| Nid::in_nat_block(index, offset as u32))
                .collect();
            let before = self.free.len();
            let is_free =
                |nid: &Nid| *nid >= Nid::FIRST_FREE && !self.dirty.contains_key(nid) && !self.withheld.contains(nid);
            self.free.extend(found.into_iter().filter(is_free));
            // All of them are handed out from here on; those of them not used come back at the next mount.
            self.free_in_block[index as usize] = 0;
            self.scan_at = Nid::in_nat_block((index + 1) % blocks, 0);
            if self.free.len() > before && self.free.len() >= FREE_IDS_WANTED.min(ENTRIES_PER_BLOCK as usize) {
                break;
            }
        }
        Ok(())
    }

    /// The id that the search will look at next: the checkpoint's `next_free_nid`.
    pub fn next_free(&self) -> Nid {
        self.free.front().copied().unwrap_or(self.scan_at).max(Nid::FIRST_FREE)
    }

    /// Gives back an id that was taken but never reached the volume.
    pub fn give_back(&mut self, nid: Nid) {
        self.dirty.remove(&nid);
        self.free.push_front(nid);
    }
}

/// Whether an entry names a node that exists, in memory or on the volume.
pub fn in_use(entry: &RawNatEntry) -> bool {
    entry.address() != Address::NULL
}

/// Whether an entry names a node that was never written.
pub fn is_new(entry: &RawNatEntry) -> bool {
    entry.address() == Address::NEW
}
