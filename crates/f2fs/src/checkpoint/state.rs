//! The last checkpoint, as the engine goes on from it.

use basalt_segments::Segment;
use std::collections::BTreeSet;

use super::pack::Pack;
use crate::layout::checkpoint::RawCheckpoint;
use crate::layout::summary::RawSitJournalEntry;

/// The last checkpoint, as the engine goes on from it.
pub struct CheckpointState {
    /// Its fixed fields; version and checksum are those that nodes written from now on carry.
    pub raw: RawCheckpoint,
    /// The pack it is in: 0 or 1.
    pub pack: u32,
    /// Its checksum.
    pub checksum: u32,
    /// Which copy of each SIT block is current.
    pub sit_bitmap: Vec<u8>,
    /// Segments whose newest entry is in the checkpoint's journal only.
    pub sit_journaled: BTreeSet<Segment>,
    /// Seconds of this mount that `elapsed_time` counts already.
    pub seconds_counted: u64,
}

impl CheckpointState {
    /// From the pack that was loaded.
    pub fn new(pack: Pack, sit_bitmap: Vec<u8>, sit_journal: &[RawSitJournalEntry]) -> CheckpointState {
        CheckpointState {
            raw: pack.raw,
            pack: pack.index,
            checksum: pack.checksum,
            sit_bitmap,
            sit_journaled: sit_journal.iter().map(|entry| Segment::new(entry.segno.get())).collect(),
            seconds_counted: 0,
        }
    }

    /// `cp_ver` of a node footer: the version, and the checksum above it where the checkpoint says so.
    pub fn node_version(&self) -> u64 {
        self.raw.node_version(self.checksum)
    }
}
