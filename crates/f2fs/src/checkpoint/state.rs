//! The last checkpoint, as the engine goes on from it, and what came since.
//!
//! | when | what happens here |
//! |---|---|
//! | it is composed | [`advance`](CheckpointState::advance): version, checksum and pack are those of the new one |
//! | all but its last block was written | [`begin`](CheckpointState::begin): it is under way, and nothing has come since |
//! | it holds | [`end`](CheckpointState::end): it is not under way |

use std::collections::BTreeSet;

use basalt_segments::{Segment, SegmentKind};

use super::pack::Pack;
use crate::layout::checkpoint::{CheckpointFlags, RawCheckpoint};
use crate::layout::summary::RawSitJournalEntry;
use crate::layout::{bit_msb, flip_bit_msb};
use crate::mutant::{self, Mutant};
use crate::since::SinceCheckpoint;

/// The place of the warm node log among the logs of nodes.
const WARM_NODES: usize = SegmentKind::WarmNode.index() - SegmentKind::HotNode.index();

/// The last checkpoint, as the engine goes on from it, and what came since.
pub struct CheckpointState {
    /// Its fixed fields; version and checksum are those that nodes written from now on carry.
    raw: RawCheckpoint,
    /// The pack it is in: 0 or 1.
    pack: u32,
    /// Its checksum.
    checksum: u32,
    /// Which copy of each SIT block is current.
    sit_bitmap: Vec<u8>,
    /// Segments whose newest entry is in the checkpoint's journal only.
    sit_journaled: BTreeSet<Segment>,
    /// Seconds of this mount that `elapsed_time` counts already.
    seconds_counted: u64,
    /// It was prepared, but does not hold yet.
    is_under_way: bool,
    /// What came since it was prepared.
    since: SinceCheckpoint,
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
            is_under_way: false,
            since: SinceCheckpoint::default(),
        }
    }

    /// Its fixed fields.
    pub fn raw(&self) -> &RawCheckpoint {
        &self.raw
    }

    /// The pack it is in: 0 or 1.
    pub fn pack(&self) -> u32 {
        self.pack
    }

    /// `cp_ver` of a node footer: the version, and the checksum above it where the checkpoint says so.
    pub fn node_version(&self) -> u64 {
        self.raw.node_version(self.checksum)
    }

    /// Where the roll-forward chain behind it begins: a segment, and the block in it.
    pub fn chain_start(&self) -> (Segment, u32) {
        let (segment, offset) = (self.raw.cur_node_segno[WARM_NODES], self.raw.cur_node_blkoff[WARM_NODES]);
        (Segment::new(segment.get()), u32::from(offset.get()))
    }

    /// Whether it is that of a volume that was closed.
    pub fn is_of_closed_volume(&self) -> bool {
        self.raw.flags().contains(CheckpointFlags::UMOUNT)
    }

    /// Seconds that the volume has ever been mounted, where it is mounted for `here` now.
    pub fn mounted_seconds(&self, here: u64) -> u64 {
        self.raw.elapsed_time.get().saturating_add(here).saturating_sub(self.seconds_counted)
    }

    /// The version of the next checkpoint. Readers that find the newest pack by parity want odd versions in the first pack and even
    /// ones in the second; after `resize.f2fs`, which writes the pack that did not count with the same version, one is left out to get there.
    pub fn next_version(&self) -> u64 {
        let next = self.raw.checkpoint_ver.get().wrapping_add(1);
        let place = self.pack ^ 1;
        if next % 2 == u64::from(place) { next.wrapping_add(1) } else { next }
    }

    /// Moves on to the next checkpoint, which goes to the other pack: nodes written from now on carry its version. It counts `seconds` of this
    /// mount.
    pub fn advance(&mut self, raw: RawCheckpoint, checksum: u32, seconds: u64) {
        (self.raw, self.checksum, self.seconds_counted) = (raw, checksum, seconds);
        self.pack ^= u32::from(!mutant::active(Mutant::CheckpointInPlace));
    }

    /// All but its last block was written: it has everything so far, and what comes now belongs to the next.
    pub fn begin(&mut self) {
        self.since = SinceCheckpoint::default();
        self.is_under_way = true;
    }

    /// It holds.
    pub fn end(&mut self) {
        self.is_under_way = false;
    }

    /// Whether it was prepared, but does not hold yet: without it, what came since leads nowhere.
    pub fn is_under_way(&self) -> bool {
        self.is_under_way
    }
}

/// What came since.
impl CheckpointState {
    /// What came since it was prepared.
    pub fn since(&self) -> &SinceCheckpoint {
        &self.since
    }

    /// The same, to take note of more.
    pub fn since_mut(&mut self) -> &mut SinceCheckpoint {
        &mut self.since
    }

    /// Something differs from it from now on.
    pub fn note_change(&mut self) {
        self.since.note_change();
    }

    /// Whether something differs from it.
    pub fn has_changes(&self) -> bool {
        self.since.has_changes()
    }
}

/// The SIT's part.
impl CheckpointState {
    /// Which copy of each SIT block is current, as the checkpoint has it.
    pub fn sit_bitmap(&self) -> &[u8] {
        &self.sit_bitmap
    }

    /// The next checkpoint has the other copy of a SIT block; returns whether that is the second.
    pub fn flip_sit_block(&mut self, index: u32) -> bool {
        if !mutant::active(Mutant::TablesInPlace) {
            flip_bit_msb(&mut self.sit_bitmap, index as usize);
        }
        bit_msb(&self.sit_bitmap, index as usize)
    }

    /// Hands out the segments whose newest entry is in the journal only: the next checkpoint has them in either its journal or the SIT.
    pub fn take_sit_journaled(&mut self) -> BTreeSet<Segment> {
        std::mem::take(&mut self.sit_journaled)
    }

    /// The next checkpoint has the newest entries of these segments in its journal only.
    pub fn keep_sit_journaled(&mut self, segments: BTreeSet<Segment>) {
        self.sit_journaled = segments;
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;
    use zerocopy::little_endian::{U32, U64};

    use super::*;
    use crate::layout::{Address, Ino};

    fn state(version: u64, index: u32) -> CheckpointState {
        let mut raw = RawCheckpoint::new_zeroed();
        raw.checkpoint_ver = U64::new(version);
        raw.elapsed_time = U64::new(100);
        raw.ckpt_flags = U32::new(CheckpointFlags::CRC_RECOVERY.bits());
        let pack = Pack { index, start: Address::new(512), raw, bytes: Vec::new(), checksum: 7, broken_end: None };
        CheckpointState::new(pack, vec![0; 2], &[])
    }

    #[test]
    fn the_next_checkpoint_is_in_the_other_pack_with_a_version_that_fits_it() {
        assert_eq!(state(5, 0).next_version(), 6);
        assert_eq!(state(6, 1).next_version(), 7);
        assert_eq!(state(5, 1).next_version(), 7, "odd versions are in the first pack");
        let mut state = state(5, 0);
        assert_eq!((state.node_version(), state.mounted_seconds(30)), (5 | 7 << 32, 130));
        let mut raw = *state.raw();
        raw.checkpoint_ver = U64::new(state.next_version());
        raw.elapsed_time = U64::new(state.mounted_seconds(30));
        state.advance(raw, 9, 30);
        assert_eq!((state.node_version(), state.pack()), (6 | 9 << 32, 1));
        assert_eq!(state.mounted_seconds(40), 140, "no second is counted twice");
    }

    #[test]
    fn beginning_a_checkpoint_forgets_what_came_before_and_ending_it_does_not() {
        let mut state = state(5, 0);
        let ino = Ino::new(7);
        state.note_change();
        state.since_mut().note_created(ino);
        state.since_mut().note_chained();
        state.begin();
        assert!(state.is_under_way() && !state.has_changes() && !state.since().is_created(ino));
        assert_eq!(state.since().chained(), 0);
        state.note_change();
        state.since_mut().note_created(ino);
        state.end();
        assert!(!state.is_under_way() && state.has_changes() && state.since().is_created(ino));
    }

    #[test]
    fn a_written_sit_block_goes_to_its_other_copy() {
        let mut state = state(5, 0);
        assert!(state.flip_sit_block(9) && !state.flip_sit_block(9) && state.flip_sit_block(0));
        assert_eq!(state.sit_bitmap(), [0x80, 0]);
    }
}
