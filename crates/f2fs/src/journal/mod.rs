//! The cleaning journal: victims are free without a checkpoint.
//!
//! Cleaning copies what a victim holds that somebody or something durable needs, and notes each such move. To commit, the moves are
//! written into journal blocks; one flush later the victims are free. Recovery starts from the last checkpoint, applies the moves,
//! and rolls forward. docs/cleaning-journal.md tells the protocol and why none of its hazards can happen.
//!
//! | module | what |
//! |---|---|
//! | [`area`] | where the journal is on the volume, and reading it |
//! | [`guard`] | the mark in the superblock that keeps every other F2FS off while a journal is live |
//! | [`moves`] | what was moved since the last commit |
//! | [`commit`] | writing the moves, and freeing what they emptied; or why a checkpoint is better |
//! | [`translation`] | recovery: where what was at an address went |
//! | [`price`] | what a checkpoint costs on this device, as measured |
//! | `recover` | recovery: the checkpoint's nodes, tables and summaries brought to where things are |
//!
//! Source: E. Gwak and D. Shin, "Segment Cleaning Journaling", IEEE Access 2021, section IV. Beyond it: node segments are victims too,
//! one flush is enough, moves carry owners, and moves of what an fsync vouches for are applied to the roll-forward chain.

pub mod area;
pub mod commit;
pub mod guard;
pub mod live;
pub mod moves;
pub mod price;
mod recover;
pub mod translation;

use basalt_segments::cleaning::{Ledger, Rule};
use rustc_hash::FxHashSet;

use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::log::Owners;
use crate::volume::Volume;
use area::Area;
use commit::Written;
use live::SetRight;
use moves::Moves;
use price::CheckpointWait;
use translation::Translation;

/// Pre-invalid blocks of a large volume from which on a checkpoint is taken: 128 MiB, the best of the paper's sweep (figure 5).
const PRE_INVALID_MAX: u64 = (128 << 20) / BLOCK_SIZE as u64;
/// The same as a share of the main area, for small volumes: one in this many blocks.
const PRE_INVALID_SHARE: u64 = 8;

/// The journal of an open volume.
pub struct Journal {
    /// Where it is; `None` where cleaning is committed by checkpoints.
    pub area: Option<Area>,
    /// Whether the guard is set.
    pub guarded: bool,
    /// Whether a copy of the superblock is torn, perhaps because setting or clearing the guard was cut off.
    pub guard_is_torn: bool,
    /// The copy of the superblock, 0 or 1, that could not be read when the volume was opened.
    pub superblock_unreadable: Option<u64>,
    /// What was moved and is in no journal block yet.
    pub moves: Moves,
    /// What a checkpoint would have spared.
    pub ledger: Ledger,
    /// When a checkpoint is taken although the journal would do.
    rule: Rule,
    /// How long checkpoints wait for the device.
    pub checkpoint_wait: CheckpointWait,
    /// A commit that waits for its flush.
    pub written: Option<Written>,
    /// The next block of the journal.
    next: u32,
    /// Commits since the checkpoint.
    commits: u32,
    /// Nodes that recovery would have to write, because they point to what these commits moved.
    pointing: FxHashSet<u32>,
    /// Between opening and the first checkpoint: what recovery found.
    pub translation: Translation,
    /// Between opening and rolling forward: the summaries that go with what recovery found.
    pub owners: Owners,
    /// What the recovery of a repair found damaged.
    pub set_right: SetRight,
}

impl Default for Journal {
    /// No journal.
    fn default() -> Journal {
        Journal {
            area: None,
            guarded: false,
            guard_is_torn: false,
            superblock_unreadable: None,
            moves: Moves::default(),
            ledger: Ledger::default(),
            rule: Rule::Adaptive(0),
            checkpoint_wait: CheckpointWait::default(),
            written: None,
            next: 0,
            commits: 0,
            pointing: FxHashSet::default(),
            translation: Translation::default(),
            owners: Owners::default(),
            set_right: SetRight::default(),
        }
    }
}

impl Journal {
    /// Whether cleaning may be committed by it.
    pub fn is_on(&self) -> bool {
        self.area.is_some()
    }

    /// Where the block of this address is now: cleaning may have moved it, and the commit that tells of that may still be on its way.
    pub fn place_of(&self, address: u32) -> u32 {
        let waiting = self.written.as_ref().and_then(|written| written.moves.place_of(address)).unwrap_or(address);
        self.moves.place_of(waiting).unwrap_or(waiting)
    }

    /// Moves and nodes that are kept in memory until a checkpoint.
    pub fn notes(&self) -> usize {
        self.moves.count() + self.pointing.len()
    }

    /// A checkpoint was taken: the moves so far are part of it, and so are those of a commit that waits.
    pub fn note_checkpoint_taken(&mut self) {
        self.moves = Moves::default();
        self.written = None;
    }

    /// The checkpoint holds: what the journal says is of before.
    pub fn note_checkpoint(&mut self) {
        (self.next, self.commits) = (0, 0);
        self.pointing.clear();
        self.ledger.note_checkpoint();
        self.translation = Translation::default();
    }
}

impl Volume {
    /// Whether recovery would hardly find room any more: for the segments that its logs go on in, which are not those that they are in
    /// now, and for the nodes that point to moved blocks. Only a checkpoint helps. Without a commit since the last one there is room, because
    /// what was free then is free after a power cut.
    pub(crate) fn is_recovery_cramped(&self) -> bool {
        self.journal.commits > 0 && self.table.free_segments() < self.recovery_segments(self.journal.pointing.len())
    }

    /// Whether sections' worth of dead blocks wait for a checkpoint: where cleaning finds nothing to gain, that is what to do.
    pub(crate) fn is_held_by_checkpoint(&self) -> bool {
        self.table.pre_invalid_blocks() >= u64::from(self.table.section_blocks())
    }

    /// Segments that recovery may need where so many nodes point to moved blocks.
    fn recovery_segments(&self, pointing: usize) -> u32 {
        let nodes = pointing as u32 + self.since.chained;
        self.logs.len() as u32 + nodes.div_ceil(BLOCKS_PER_SEGMENT)
    }

    /// From now on commits cleaning by the journal, if the volume has one and may be changed. Called when nothing is left to recover.
    pub(crate) fn start_journal(&mut self, area: Option<Area>) {
        let is_wanted = self.options.journal && self.options.logs == 6 && self.is_writable();
        let Some(area) = area.filter(|_| is_wanted) else { return };
        let scaled = (u64::from(self.geometry.main_blocks()) / PRE_INVALID_SHARE).min(PRE_INVALID_MAX);
        self.journal.rule = match self.options.pre_invalid_bytes {
            Some(bytes) => Rule::Threshold(bytes / BLOCK_SIZE as u64),
            None => Rule::Adaptive(scaled),
        };
        self.journal.area = Some(area);
        self.table.track_durability();
        self.pin_chain();
    }

    /// Keeps the segments where a roll-forward chain begins: the log's, and the one the last checkpoint names.
    pub(crate) fn pin_chain(&mut self) {
        if crate::mutant::active(crate::mutant::Mutant::ChainSegmentReused) {
            return;
        }
        let log = &self.logs[basalt_segments::SegmentKind::WarmNode.index()];
        let named = self.checkpoint.raw.cur_node_segno[1].get();
        self.table.pin(log.segment);
        if named < self.geometry.main_blocks() / BLOCKS_PER_SEGMENT {
            self.table.pin(named);
        }
    }
}
