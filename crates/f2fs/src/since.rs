//! What changed since the last checkpoint was prepared: whether anything did, and what fsync has to know.

use std::collections::VecDeque;

use basalt_segments::Segment;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::layout::seal::Sealed;
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::mutant::{self, Mutant};
use crate::unsealed::{Unlisted, Unsealed};

/// Changes of names and shapes that are kept apart; beyond, every fsync is a checkpoint until the next.
const NOTES_MAX: usize = 1 << 16;
/// Blocks that a name may take in recovery although it took none when it was made: names that were removed since are in its way. A directory
/// block, and the nodes above it.
const NAME_BLOCKS: u64 = 4;

/// What is known of the place behind the checkpoint that the volume was opened with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Beginning {
    /// Nothing: a chain may begin there once it was looked at.
    Unknown,
    /// No block of the checkpoint's version: the chain may use the rest of the segment. What lies in other segments is not known.
    Free,
    /// A checkpoint was taken since, or no chain begins there.
    #[default]
    Past,
}

/// What became of a file's nodes since the checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trail {
    /// Nodes were written that no fsync mark covers.
    pub unmarked: bool,
    /// The flush that makes its last fsync durable.
    pub flush: u64,
    /// Its inode is in the chain, marked: recovery knows it, and its name.
    pub has_image: bool,
}

/// Everything that is forgotten when a checkpoint is prepared.
#[derive(Debug, Default)]
pub struct SinceCheckpoint {
    /// Something differs from the checkpoint.
    changed: bool,
    /// Inodes that the checkpoint does not have.
    created: FxHashSet<Ino>,
    /// Inodes with a name more, or another one.
    renamed: FxHashSet<Ino>,
    /// Names (of a directory) whose former inode lives on elsewhere, or was a directory.
    left: FxHashSet<(Ino, Box<[u8]>)>,
    /// Inodes that lost a node below them, and directories whose xattrs changed.
    reshaped: FxHashSet<Ino>,
    /// Why no fsync may append to the chain any more.
    closed: Option<&'static str>,
    /// What was written of whom.
    trails: FxHashMap<Ino, Trail>,
    /// Blocks newly counted as used, whatever was freed: what recovery may have to find room for.
    reserved: u64,
    /// Blocks in the chain.
    chained: u32,
    /// The segment of the last seal among them.
    sealed_segment: Option<Segment>,
    /// Fsyncs whose flush may not be over: its number, and the blocks that were in the chain by then.
    flushing: VecDeque<(u64, u32)>,
    /// Blocks of the chain that are durable, with all that their seals list.
    durable: u32,
    /// Written since the last seal.
    unsealed: Unsealed,
    /// Until the first checkpoint of the session: where its chain may be.
    beginning: Beginning,
    /// Nodes that deltas tell something of: recovery has to write them.
    told: FxHashSet<Nid>,
    /// Pages that deltas tell.
    told_pages: u64,
    /// Where data was put since each node was last written to the chain, or told by a delta; by the node that points there.
    placed: FxHashMap<Nid, Vec<Address>>,
}

/// Whether there is anything.
impl SinceCheckpoint {
    /// Something differs from the checkpoint from now on.
    pub fn note_change(&mut self) {
        self.changed = true;
    }

    /// Whether something differs from the checkpoint.
    pub fn has_changes(&self) -> bool {
        self.changed
    }

    /// The same, and begins to watch for changes anew: whoever asks notes them again.
    pub fn take_changes(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

/// Names and shapes: what the chain cannot carry.
impl SinceCheckpoint {
    /// An inode was made.
    pub fn note_created(&mut self, ino: Ino) {
        self.created.insert(ino);
        self.close_if_long();
    }

    /// An inode got another name, or one more.
    pub fn note_renamed(&mut self, ino: Ino) {
        self.renamed.insert(ino);
        self.close_if_long();
    }

    /// A name was taken off an inode that still has another, or off a directory. Recovery removes whatever the checkpoint has
    /// under a name that an fsynced file took over since: here it would remove too much.
    pub fn note_left(&mut self, dir: Ino, name: &[u8]) {
        if mutant::active(Mutant::LeftNameForgotten) {
            return;
        }
        self.left.insert((dir, name.into()));
        self.close_if_long();
    }

    /// An inode lost a node that may be in the checkpoint or in the chain. That cannot be told by appending.
    pub fn note_reshaped(&mut self, ino: Ino) {
        self.reshaped.insert(ino);
        self.close_if_long();
    }

    /// No fsync may append to the chain until the next checkpoint.
    pub fn close(&mut self, reason: &'static str) {
        self.closed.get_or_insert(reason);
    }

    /// Whether the checkpoint lacks this inode.
    pub fn is_created(&self, ino: Ino) -> bool {
        self.created.contains(&ino)
    }

    /// Whether something in the chain may be out of reach.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Whether it lost a node, or as a directory changed its xattrs.
    pub fn is_reshaped(&self, ino: Ino) -> bool {
        self.reshaped.contains(&ino)
    }

    /// A block is newly counted as used.
    pub fn note_reserved(&mut self) {
        self.reserved += 1;
    }

    /// Blocks that recovery may have to find room for.
    pub fn blocks_to_recover(&self) -> u64 {
        self.reserved + NAME_BLOCKS * self.created.len() as u64
    }

    /// Why the chain cannot carry the way to an inode: by its name, in this parent. A directory that was renamed closes the chain; which
    /// files are below it nobody looks for.
    pub fn checkpoint_reason_of_name(&self, ino: Ino, parent: Ino, name: Box<[u8]>) -> Option<&'static str> {
        match () {
            () if self.closed.is_some() => self.closed,
            () if self.renamed.contains(&ino) && !mutant::active(Mutant::RenameNotNoticed) => Some("its names changed"),
            () if self.created.contains(&parent) => Some("its directory is new"),
            () if self.reshaped.contains(&parent) => Some("its directory's attributes changed"),
            () if self.created.contains(&ino) && self.left.contains(&(parent, name)) => {
                Some("its name was another inode's, which moved")
            }
            () => None,
        }
    }

    fn close_if_long(&mut self) {
        let notes = self.created.len() + self.renamed.len() + self.left.len() + self.reshaped.len();
        if notes > NOTES_MAX {
            self.close("too many names changed");
            (self.created, self.renamed) = Default::default();
            (self.left, self.reshaped) = Default::default();
        }
    }
}

/// The chain, and which of its blocks are durable.
impl SinceCheckpoint {
    /// The chain may begin behind the checkpoint that the volume was opened with, once somebody has looked at what lies there.
    pub fn begin_behind_open(&mut self) {
        self.beginning = Beginning::Unknown;
    }

    /// Whether somebody has to look at what lies behind the checkpoint before the chain begins there.
    pub fn must_look_behind(&self) -> bool {
        self.beginning == Beginning::Unknown
    }

    /// What lies behind the checkpoint is free for the chain, or has nodes of its version that are none of it.
    pub fn note_behind(&mut self, is_free: bool) {
        if is_free {
            self.beginning = Beginning::Free;
        } else {
            self.beginning = Beginning::Past;
            self.close("nodes of an interrupted fsync lie behind the checkpoint");
        }
    }

    /// Whether the chain began in what was left of a segment: it ends with that.
    pub fn is_behind_open(&self) -> bool {
        self.beginning == Beginning::Free
    }

    /// A block went to the chain.
    pub fn note_chained(&mut self) {
        self.chained += 1;
    }

    /// Blocks in the chain.
    pub fn chained(&self) -> u32 {
        self.chained
    }

    /// The last block of the chain is a seal's, in this segment.
    pub fn note_seal_chained(&mut self, segment: Segment) {
        self.sealed_segment = Some(segment);
    }

    /// Whether the last seal of the chain is in this segment. Then who reads on there knows that it is no chain of Linux's, and which position each
    /// block has, even if the chain in front of the segment is lost.
    pub fn has_seal_in(&self, segment: Segment) -> bool {
        self.sealed_segment == Some(segment)
    }

    /// What became of a file's nodes.
    pub fn trail(&self, ino: Ino) -> Trail {
        self.trails.get(&ino).copied().unwrap_or_default()
    }

    /// A node points to data at this address from now on.
    pub fn note_placed(&mut self, nid: Nid, address: Address) {
        self.placed.entry(nid).or_default().push(address);
    }

    /// A node goes to the chain, or a delta tells what changed in it: the addresses that it got since that last happened.
    pub fn take_placed(&mut self, nid: Nid) -> Vec<Address> {
        self.placed.remove(&nid).unwrap_or_default()
    }

    /// Nodes of this inode went to a log without a mark: its next fsync has something to do.
    pub fn note_unmarked(&mut self, ino: Ino) {
        self.trails.entry(ino).or_default().unmarked = true;
    }

    /// A file's nodes are in the chain, marked: with all of the chain so far they become durable with flush number `flush`.
    pub fn note_fsynced(&mut self, ino: Ino, flush: u64) {
        self.flushing.push_back((flush, self.chained));
        self.trails.insert(ino, Trail { unmarked: false, flush, has_image: true });
    }

    /// A delta is in the chain, which tells so many pages of these nodes of a file: as for [`note_fsynced`](Self::note_fsynced).
    pub fn note_told(&mut self, ino: Ino, nodes: &[Nid], pages: u64, flush: u64) {
        self.flushing.push_back((flush, self.chained));
        let trail = self.trails.entry(ino).or_default();
        *trail = Trail { unmarked: false, flush, ..*trail };
        self.told.extend(nodes);
        self.told_pages += pages;
    }

    /// How many nodes deltas tell something of, once one tells something of these.
    pub fn told_nodes_with(&self, nodes: &[Nid]) -> usize {
        self.told.len() + nodes.iter().filter(|nid| !self.told.contains(nid)).count()
    }

    /// Pages that deltas tell.
    pub fn told_pages(&self) -> u64 {
        self.told_pages
    }

    /// Blocks of the chain that are durable.
    pub fn durable(&mut self, has_succeeded: impl Fn(u64) -> bool) -> u32 {
        while let Some((_, blocks)) = self.flushing.pop_front_if(|(flush, _)| has_succeeded(*flush)) {
            self.durable = blocks;
        }
        self.durable
    }
}

/// What the next seal has to list.
impl SinceCheckpoint {
    /// A block is on its way to the device, and no seal lists it: of this page of a file, or a node.
    pub fn note_unsealed(&mut self, address: Address, bytes: &[u8], page: Option<(Ino, FileBlock)>) {
        self.unsealed.note(address, bytes, page);
    }

    /// Whether one seal can list all of it and `more` entries.
    pub fn fits_seal(&self, more: usize) -> bool {
        self.unsealed.fits(more)
    }

    /// Hands out what a seal lists.
    pub fn take_unsealed(&mut self) -> Vec<Unlisted> {
        self.unsealed.take()
    }

    /// Takes back what [`take_unsealed`](Self::take_unsealed) handed out: no seal lists it after all.
    pub fn put_back_unsealed(&mut self, entries: Vec<Unlisted>) {
        self.unsealed.put_back(entries);
    }

    /// The pages of a file that no seal lists; `None` where a seal is due.
    pub fn unsealed_of(&self, ino: Ino) -> Option<Vec<(FileBlock, Sealed)>> {
        self.unsealed.of_file(ino)
    }

    /// The inode of a file vouches for its pages at these addresses: no seal lists them.
    pub fn note_sealed_inside(&mut self, ino: Ino, pages: &[Address]) {
        if mutant::active(Mutant::InsideTakesAll) {
            self.unsealed.take();
        }
        self.unsealed.drop_listed(ino, pages);
    }

    /// Leaves out what lies where something else will be written: it is durable, and nobody refers to it.
    pub fn forget_unsealed(&mut self, is_reused: impl Fn(Address) -> bool) {
        self.unsealed.forget(is_reused);
    }

    /// Leaves all so far to flush number `flush`, which has not begun. Until it has succeeded no seal may be written: it would vouch for
    /// blocks that it does not list.
    pub fn leave_to_flush(&mut self, flush: u64) {
        self.unsealed.leave_to(flush);
    }

    /// The flush that has to succeed before the next seal, if blocks were left to one.
    pub fn left_to_flush(&self) -> Option<u64> {
        self.unsealed.left_to()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::seal::ENTRIES_MAX;

    const FILE: Ino = Ino::new(7);

    #[test]
    fn what_is_durable_grows_with_the_flushes_in_their_order() {
        let mut since = SinceCheckpoint::default();
        since.note_unmarked(FILE);
        assert_eq!(since.trail(FILE), Trail { unmarked: true, ..Trail::default() });
        since.note_chained();
        since.note_fsynced(FILE, 3);
        since.note_chained();
        since.note_chained();
        since.note_fsynced(FILE, 5);
        assert_eq!(since.trail(FILE), Trail { unmarked: false, flush: 5, has_image: true });
        assert_eq!(since.durable(|_| false), 0);
        assert_eq!(since.durable(|flush| flush <= 4), 1);
        assert_eq!((since.durable(|flush| flush <= 5), since.chained()), (3, 3));
        assert_eq!(since.durable(|_| false), 3, "what is durable stays so");
    }

    #[test]
    fn what_deltas_tell_is_counted_and_makes_no_inode_known() {
        let mut since = SinceCheckpoint::default();
        let [one, two, three] = [1, 2, 3].map(Nid::new);
        since.note_unmarked(FILE);
        since.note_chained();
        since.note_told(FILE, &[one, two], 300, 4);
        assert_eq!(since.trail(FILE), Trail { unmarked: false, flush: 4, has_image: false });
        assert_eq!((since.told_nodes_with(&[]), since.told_nodes_with(&[two, three]), since.told_pages()), (2, 3, 300));
        since.note_fsynced(FILE, 5);
        since.note_told(FILE, &[two], 1, 6);
        assert_eq!(since.trail(FILE), Trail { unmarked: false, flush: 6, has_image: true });
        assert_eq!((since.told_nodes_with(&[]), since.told_pages(), since.durable(|flush| flush <= 4)), (2, 301, 1));
    }

    #[test]
    fn what_no_seal_lists_after_all_waits_for_the_next() {
        let mut since = SinceCheckpoint::default();
        since.note_unsealed(Address::new(7), &[1; 4096], None);
        let taken = since.take_unsealed();
        since.put_back_unsealed(taken);
        since.note_unsealed(Address::new(8), &[1; 4096], None);
        assert_eq!(since.take_unsealed().iter().map(|one| one.sealed.address.get()).collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn a_seal_lists_what_was_written_since_the_last_or_nothing() {
        let mut since = SinceCheckpoint::default();
        for at in [100, 101, 102] {
            since.note_unsealed(Address::new(at), &[1; 4096], None);
        }
        since.forget_unsealed(|address| address == Address::new(101));
        let listed: Vec<Address> = since.take_unsealed().iter().map(|entry| entry.sealed.address).collect();
        assert_eq!(listed, [100, 102].map(Address::new));
        for at in 0..ENTRIES_MAX as u32 {
            assert!(since.fits_seal(1), "{at}");
            since.note_unsealed(Address::new(at), &[1; 4096], None);
        }
        assert!(since.fits_seal(0) && !since.fits_seal(1));
        since.note_unsealed(Address::new(9999), &[1; 4096], None);
        assert!(!since.fits_seal(0));
        since.leave_to_flush(8);
        assert_eq!((since.left_to_flush(), since.take_unsealed().len()), (Some(8), 0));
        assert!(since.fits_seal(ENTRIES_MAX));
    }

    #[test]
    fn nodes_of_others_behind_the_checkpoint_close_the_chain() {
        let mut since = SinceCheckpoint::default();
        assert!(!since.must_look_behind() && !since.is_behind_open());
        since.begin_behind_open();
        assert!(since.must_look_behind());
        since.note_behind(true);
        assert!(!since.must_look_behind() && since.is_behind_open() && !since.is_closed());
        since.begin_behind_open();
        since.note_behind(false);
        assert!(!since.must_look_behind() && !since.is_behind_open() && since.is_closed());
    }

    #[test]
    fn all_that_a_node_got_is_placed_until_it_goes_to_the_chain() {
        let mut since = SinceCheckpoint::default();
        let (nid, other) = (Nid::new(8), Nid::new(9));
        [100, 101, 102].into_iter().for_each(|at| since.note_placed(nid, Address::new(at)));
        since.note_placed(other, Address::new(200));
        assert_eq!(since.take_placed(nid), [100, 101, 102].map(Address::new));
        assert_eq!((since.take_placed(nid), since.take_placed(other)), (vec![], vec![Address::new(200)]));
    }

    /// What is not remembered any more must not pass for nothing.
    #[test]
    fn too_many_notes_close_the_chain() {
        let mut since = SinceCheckpoint::default();
        (0..NOTES_MAX as u32).for_each(|ino| since.note_renamed(Ino::new(ino)));
        assert!(!since.is_closed());
        since.note_created(Ino::new(1 << 20));
        assert!(since.is_closed());
        let renamed = Ino::new(7);
        assert!(since.checkpoint_reason_of_name(renamed, Ino::new(3), Box::from(*b"name")).is_some());
    }
}
