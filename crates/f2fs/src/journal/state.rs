//! What an open volume knows of its journal.

use std::time::Duration;

use basalt_segments::cleaning::{Commit, Ledger, Prospect, Rule};
use rustc_hash::FxHashSet;

use super::area::Area;
use super::moves::{Moves, Owner, Written};
use super::translation::Translation;
use super::wait::CheckpointWait;
use crate::layout::journal::KIND_DATA;
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

/// What opening a volume found, as far as recovery has to know.
#[derive(Default)]
pub struct FoundAtOpen {
    /// The copy of the superblock, 0 or 1, that could not be read.
    pub superblock_unreadable: Option<u64>,
    /// Where cleaning moved what the roll-forward chain points to.
    pub translation: Translation,
    /// The summaries that go with what recovery makes live.
    pub owners: Owners,
    /// What the recovery of a repair found damaged.
    pub set_right: SetRight,
}

/// The journal of an open volume.
pub struct Journal {
    /// Where it is; `None` where cleaning is committed by checkpoints.
    area: Option<Area>,
    /// Whether the guard is set.
    is_guarded: bool,
    /// Whether a copy of the superblock is torn, perhaps because setting or clearing the guard was cut off.
    is_guard_torn: bool,
    /// What was moved and is in no journal block yet.
    moves: Moves,
    /// What a checkpoint would have spared.
    ledger: Ledger,
    /// When a checkpoint is taken although the journal would do.
    rule: Rule,
    /// How long checkpoints wait for the device.
    checkpoint_wait: CheckpointWait,
    /// A commit that waits for its flush.
    written: Option<Written>,
    /// The next block of the journal.
    next: u32,
    /// Commits since the checkpoint.
    commits: u32,
    /// Nodes that recovery would have to write, because they point to what these commits moved.
    pointing: FxHashSet<Nid>,
}

impl Default for Journal {
    /// No journal.
    fn default() -> Journal {
        Journal {
            area: None,
            is_guarded: false,
            is_guard_torn: false,
            moves: Moves::default(),
            ledger: Ledger::default(),
            rule: Rule::Adaptive(0),
            checkpoint_wait: CheckpointWait::default(),
            written: None,
            next: 0,
            commits: 0,
            pointing: FxHashSet::default(),
        }
    }
}

impl Journal {
    /// From now on cleaning may be committed by it.
    pub fn start(&mut self, area: Area, rule: Rule) {
        (self.area, self.rule) = (Some(area), rule);
    }

    /// Whether cleaning may be committed by it.
    pub fn is_on(&self) -> bool {
        self.area.is_some()
    }

    /// Where it is; `None` where cleaning is committed by checkpoints.
    pub fn area(&self) -> Option<Area> {
        self.area
    }

    /// A checkpoint is prepared: the moves so far are part of it, and so are those of a commit that waits.
    pub fn begin_checkpoint(&mut self) {
        self.moves = Moves::default();
        self.written = None;
    }

    /// The checkpoint holds: what the journal says is of before.
    pub fn end_checkpoint(&mut self) {
        (self.next, self.commits) = (0, 0);
        self.pointing.clear();
        self.ledger.note_checkpoint();
    }

    /// A checkpoint of so many blocks took so long, where copying takes `each` a block.
    pub fn note_checkpoint_wait(&mut self, took: Duration, blocks: u64, each: Duration) {
        self.checkpoint_wait.note(took, blocks, each);
    }

    /// Blocks that could be copied while a checkpoint waits.
    pub fn checkpoint_wait(&self) -> u64 {
        self.checkpoint_wait.blocks()
    }
}

/// The guard, which keeps every other F2FS off the volume.
impl Journal {
    /// What the superblock's copies say of it.
    pub fn note_guard_found(&mut self, is_set: bool, is_torn: bool) {
        (self.is_guarded, self.is_guard_torn) = (is_set, is_torn);
    }

    /// It is set, in both copies, and this is the journal that may be written now.
    pub fn note_guard_set(&mut self, area: Area) {
        (self.area, self.is_guarded) = (Some(area), true);
    }

    /// It is gone from both copies.
    pub fn note_guard_cleared(&mut self) {
        (self.is_guarded, self.is_guard_torn) = (false, false);
    }

    /// Whether it is set.
    pub fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Whether clearing it has anything to do: it is set, or a journal is used and a copy of the superblock is torn.
    pub fn has_guard_to_clear(&self) -> bool {
        self.is_guarded || self.is_guard_torn && self.is_on()
    }
}

/// Moves, and the commit that tells of them.
impl Journal {
    /// Cleaning moved a block that something durable refers to; arguments as of [`Moves::add`].
    pub fn note_move(&mut self, old: Address, new: Address, owner: Owner, chained: u32, crc: u32) {
        self.moves.add(old, new, owner, chained, crc);
    }

    /// Cleaning copied so many live blocks, and so many pre-invalid ones.
    pub fn note_copied(&mut self, live: u64, pre_invalid: u64) {
        self.ledger.note_copied(live, pre_invalid);
    }

    /// Whether the block at this address was copied, and the commit that tells of that does not hold yet.
    pub fn has_left(&self, address: Address) -> bool {
        self.moves.has_left(address) || self.written.as_ref().is_some_and(|written| written.moves.has_left(address))
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

    /// Whether there was a commit since the checkpoint.
    pub fn has_commits(&self) -> bool {
        self.commits > 0
    }

    /// Nodes that recovery would have to write.
    pub fn pointing(&self) -> usize {
        self.pointing.len()
    }

    /// The moves of the next commit; `None` where there is no journal, or no room in it.
    pub(super) fn moves_to_commit(&self) -> Option<&Moves> {
        let blocks = self.moves.blocks();
        let has_room = blocks <= self.area?.blocks - self.next && blocks <= u32::from(u16::MAX);
        has_room.then_some(&self.moves)
    }

    /// Whether the journal does, or a checkpoint is better.
    pub(super) fn choose(&self, prospect: &Prospect) -> Commit {
        self.ledger.choose(self.rule, prospect)
    }

    /// A commit begins: hands out its moves. The nodes that point to what was moved are recovery's from now on.
    pub(super) fn begin_commit(&mut self) -> Moves {
        let moves = self.moves.take();
        self.pointing.extend(moves.list().iter().filter(|one| one.kind == KIND_DATA).map(|one| one.nid));
        moves
    }

    /// Which block of the journal comes next, and which commit.
    pub(super) fn position(&self) -> (u32, u32) {
        (self.next, self.commits)
    }

    /// The blocks of a commit went to the device.
    pub(super) fn note_blocks_written(&mut self, blocks: u32) {
        self.next += blocks;
        self.commits += 1;
    }

    /// What the commit that begins brings, compared with a checkpoint.
    pub(super) fn note_chosen(&mut self, prospect: &Prospect) {
        self.ledger.note_journal(prospect);
    }

    /// A commit waits for its flush from now on.
    pub(super) fn await_flush(&mut self, written: Written) {
        self.written = Some(written);
    }

    /// The flush that a commit waits for, if one does.
    pub(super) fn awaited_flush(&self) -> Option<u64> {
        self.written.as_ref().map(|written| written.flush)
    }

    /// Sections that the commit which waits for its flush frees, if one does.
    pub fn sections_committing(&self) -> Option<u32> {
        self.written.as_ref().map(|written| written.sections)
    }

    /// The commit has had its flush: hands out what it tells; `None` if a checkpoint came first.
    pub(super) fn end_commit(&mut self) -> Option<Written> {
        self.written.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::journal::KIND_NODE;

    const CHECK: u32 = 7;

    fn journal() -> Journal {
        let mut journal = Journal::default();
        let owner = |nid, kind| Owner { nid: Nid::new(nid), index: 0, kind };
        journal.note_move(Address::new(100), Address::new(200), owner(8, KIND_DATA), 0, CHECK);
        journal.note_move(Address::new(101), Address::new(201), owner(9, KIND_NODE), 0, CHECK);
        journal
    }

    fn commit(journal: &mut Journal) {
        let moves = journal.begin_commit();
        journal.note_blocks_written(1);
        journal.await_flush(Written { moves, emptied: Vec::new(), flush: 5, sections: 2 });
    }

    #[test]
    fn a_commit_that_waits_still_says_where_blocks_are() {
        let mut journal = journal();
        commit(&mut journal);
        let owner = Owner { nid: Nid::new(8), index: 0, kind: KIND_DATA };
        journal.note_move(Address::new(200), Address::new(300), owner, 0, CHECK);
        assert_eq!(journal.place_of(Address::new(100)), Address::new(300));
        assert!(
            [100, 101, 200].iter().all(|&at| journal.has_left(Address::new(at)))
                && !journal.has_left(Address::new(300))
        );
        assert_eq!((journal.awaited_flush(), journal.sections_committing()), (Some(5), Some(2)));
        assert_eq!(journal.end_commit().map(|written| written.moves.count()), Some(2));
        assert_eq!(journal.awaited_flush(), None);
    }

    /// Recovery writes the nodes of all commits, so it needs room for them.
    #[test]
    fn nodes_of_all_commits_point_to_moved_blocks() {
        let mut journal = journal();
        commit(&mut journal);
        journal.end_commit();
        let owner = |nid| Owner { nid: Nid::new(nid), index: 0, kind: KIND_DATA };
        journal.note_move(Address::new(400), Address::new(500), owner(10), 0, CHECK);
        commit(&mut journal);
        assert_eq!(journal.pointing(), 2);
    }

    /// Behind its end nobody reads.
    #[test]
    fn a_full_journal_takes_no_commit() {
        let mut journal = journal();
        journal.start(Area { first: Address::new(1000), blocks: 2, version: 1 }, Rule::Threshold(1000));
        assert!(journal.moves_to_commit().is_some());
        journal.note_blocks_written(1);
        assert!(journal.moves_to_commit().is_some());
        journal.note_blocks_written(1);
        assert!(journal.moves_to_commit().is_none());
    }

    #[test]
    fn a_checkpoint_takes_over_the_moves_and_in_the_end_the_journal() {
        let mut journal = journal();
        commit(&mut journal);
        journal.begin_checkpoint();
        assert!(journal.end_commit().is_none() && journal.place_of(Address::new(100)) == Address::new(100));
        // Until it holds, recovery starts from the checkpoint before.
        assert!(journal.has_commits());
        assert_eq!((journal.position(), journal.pointing()), ((1, 1), 1));
        journal.end_checkpoint();
        assert!(!journal.has_commits());
        assert_eq!((journal.position(), journal.notes()), ((0, 0), 0));
    }
}
