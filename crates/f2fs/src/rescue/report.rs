//! What a search found, in numbers and lists.

use serde::Serialize;

use super::evidence::Evidence;
use super::geometry::GeometrySource;
use super::index::Index;
use super::reader::Reader;
use super::standing::TableState;
use crate::checkpoint::pack::Pack;
use crate::geometry::Geometry;
use crate::layout::{BLOCK_SIZE, Ino};

/// Names without an inode that are listed; all are counted.
const LOST_NAMES_MAX: usize = 10_000;

/// Bytes of the device that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UnreadableRange {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A name whose inode was not found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostName {
    /// Inode number of the directory it is in.
    pub directory: u64,
    /// The name; what is not UTF-8 is replaced.
    pub name: String,
    /// The inode it names.
    pub ino: Ino,
}

/// What a search found on a volume.
#[derive(Debug, Clone, Serialize)]
pub struct RescueReport {
    /// Where the geometry came from.
    pub geometry: GeometrySource,
    /// First block of the main area.
    pub main_block: u32,
    /// Bytes that the volume reaches past the device's end: the image was cut off.
    pub truncated_bytes: u64,
    /// Version of the checkpoint that was used.
    pub checkpoint: Option<u64>,
    /// How much of the NAT could be used.
    pub nat: TableState,
    /// How much of the SIT could be used.
    pub sit: TableState,
    /// Blocks that are nodes, old versions included.
    pub node_blocks: u64,
    /// Nodes in use.
    pub nodes: u64,
    /// Nodes that the NAT leads to but that are not there.
    pub lost_nodes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that have their place by an entry of a directory.
    pub named: u64,
    /// Inodes whose place comes from the inode alone: their directory's entries are damaged.
    pub placed_by_inode: u64,
    /// Inodes below `lost+found`.
    pub without_place: u64,
    /// Inodes of deleted files.
    pub deleted: u64,
    /// Directories of which entries are missing.
    pub damaged_directories: u64,
    /// Names whose inode was not found: these files are lost.
    pub lost_names: u64,
    /// The first of them.
    pub lost: Vec<LostName>,
    /// What could not be read while searching.
    pub unreadable: Vec<UnreadableRange>,
    /// Bytes that could not be read while searching.
    pub unreadable_bytes: u64,
    /// What was unusual, one line each.
    pub notes: Vec<String>,
}

impl RescueReport {
    pub(super) fn new(
        source: GeometrySource,
        pack: Option<&Pack>,
        evidence: &Evidence,
        index: &Index,
        geometry: &Geometry,
        reader: &Reader<'_>,
    ) -> RescueReport {
        use super::standing::Standing;
        let nodes = index.nodes.values().filter(|found| found.standing > Standing::Dead).count() as u64;
        // Where the NAT is out of date, nothing says what it leads to.
        let least = if evidence.nat_is_old() { Standing::Disputed } else { Standing::Named };
        let there = index.nodes.values().filter(|found| found.standing >= least).count() as u64;
        let beyond = geometry.end().saturating_sub(reader.blocks.into());
        // Without a superblock, the volume is as long as the device.
        let beyond = if source == GeometrySource::Superblock { beyond } else { 0 };
        RescueReport {
            geometry: source,
            main_block: geometry.main.get(),
            truncated_bytes: beyond * BLOCK_SIZE as u64,
            checkpoint: pack.map(|pack| pack.raw.checkpoint_ver.get()),
            nat: evidence.nat_state(),
            sit: evidence.sit_state(),
            node_blocks: index.seen,
            nodes,
            lost_nodes: evidence.named().saturating_sub(there),
            inodes: 0,
            named: 0,
            placed_by_inode: 0,
            without_place: 0,
            deleted: 0,
            damaged_directories: 0,
            lost_names: 0,
            lost: Vec::new(),
            unreadable: Vec::new(),
            unreadable_bytes: 0,
            notes: Vec::new(),
        }
    }

    pub(super) fn add_lost_name(&mut self, directory: u64, name: &[u8], ino: Ino) {
        self.lost_names += 1;
        if self.lost.len() < LOST_NAMES_MAX {
            let name = String::from_utf8_lossy(name).into_owned();
            self.lost.push(LostName { directory, name, ino });
        }
    }

    pub(super) fn set_unreadable(&mut self, reader: &Reader<'_>) {
        let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
        let ranges = reader.bad.iter();
        self.unreadable = ranges
            .map(|range| UnreadableRange {
                offset: bytes(range.start.into()),
                length: bytes((range.end - range.start).into()),
            })
            .collect();
        self.unreadable_bytes = reader.bad_blocks * BLOCK_SIZE as u64;
    }
}
