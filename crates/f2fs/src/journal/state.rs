//! What an open volume knows of its journal.

use basalt_segments::cleaning::{Ledger, Rule};
use rustc_hash::FxHashSet;

use super::area::Area;
use super::moves::{Moves, Written};
use super::translation::Translation;
use super::wait::CheckpointWait;
use crate::layout::{Address, Nid};
use crate::log::active::Owners;

/// What the recovery of a repair found damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetRight {
    /// Blocks in use that the SIT did not have as live.
    pub missing: usize,
    /// Blocks of nobody that it had as live.
    pub too_many: usize,
    /// Where the chain of fsyncs was broken.
    pub broken: Option<String>,
}

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
    pub(super) rule: Rule,
    /// How long checkpoints wait for the device.
    pub checkpoint_wait: CheckpointWait,
    /// A commit that waits for its flush.
    pub written: Option<Written>,
    /// The next block of the journal.
    pub(super) next: u32,
    /// Commits since the checkpoint.
    pub(super) commits: u32,
    /// Nodes that recovery would have to write, because they point to what these commits moved.
    pub(super) pointing: FxHashSet<Nid>,
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
    pub fn place_of(&self, address: Address) -> Address {
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
