//! The nodes that were found: for each id the version that counts.
//!
//! Versions of a node are told apart by standing, soundness, `cp_ver`, and, written under the same checkpoint, by the order of their
//! log: within a segment the later block is newer; from one segment to the next the last node of each leads on. Two nodes of one id and
//! one version that are at different places of files are no versions: one has a damaged footer.
//! 40 bytes a node id, however many old versions lie about: at most 1 % of the main area.

use basalt_segments::{MainBlock, Segment};
use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use super::standing::Standing;
use crate::layout::node::is_repaired;
use crate::layout::{Address, Ino, Nid};
use crate::node::seen::Seen;

/// What the tables say of the block that a node is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The NAT leads to it, out of date or not.
    pub(super) named: bool,
    /// The SIT, which can be believed there and is up to date, has it as live.
    pub(super) live: bool,
}

/// The version of a node that counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) address: Address,
    pub(super) ino: Ino,
    pub(super) offset: u32,
    /// The checkpoint's version it was written under, without the checksum.
    pub(super) version: u32,
    /// Whether a repair wrote it, after all else of that version.
    repaired: bool,
    pub(crate) standing: Standing,
    sound: bool,
    place: Known,
    /// Whether fsync wrote its name too, with this version or one before it under the same checkpoint: Linux says so once.
    pub(super) wants_entry: bool,
}

impl Found {
    fn rank(&self) -> (Standing, bool, u32, bool) {
        (self.standing, self.sound, self.version, self.repaired)
    }

    /// Whether this is the node of its id, and `other` another one whose footer is damaged. `None` where nothing tells.
    ///
    /// Two live blocks are no versions of one node. Neither are two nodes of one version: until a checkpoint no node id is used again,
    /// but for one that power cut in front of it.
    fn is_right(&self, other: &Found) -> Option<bool> {
        let is_other = (self.ino, self.offset) != (other.ino, other.offset) && self.standing < Standing::Newer;
        let are_live = self.place.live && other.place.live && self.standing == other.standing;
        if !is_other || !are_live && self.rank() != other.rank() {
            return None;
        }
        // A damaged footer makes no inode: that says twice which one it is.
        let evidence = |found: &Found| (found.place.named, are_live && found.sound && found.offset == 0);
        (evidence(self) != evidence(other)).then(|| evidence(self) > evidence(other))
    }
}

/// All nodes that were found.
#[derive(Default)]
pub(crate) struct Index {
    /// Where segments are counted from.
    main: Address,
    pub(crate) nodes: FxHashMap<Nid, Found>,
    /// Versions of equal rank in other segments than the one that counts so far.
    ties: Vec<(Nid, Found)>,
    /// Under which version a log left each segment, and where it went on.
    ways: FxHashMap<Segment, (u32, Segment)>,
    /// Where fsync wrote inodes with their names since the checkpoint: of each the newest `cp_ver`, and the addresses, sorted.
    entered: FxHashMap<Nid, (u32, Vec<Address>)>,
    /// Inodes that fsync wrote since the checkpoint, and their names with them, in the order it did that in.
    pub(super) named: Vec<Ino>,
    /// Node blocks seen, old versions included.
    pub(super) seen: u64,
}

impl Index {
    /// Nothing was found yet. Segments are counted from the block `main` on.
    pub(super) fn new(main: Address) -> Index {
        Index { main, ..Index::default() }
    }

    /// Adds a version; they come in the order of their addresses.
    pub(super) fn add(&mut self, seen: &Seen, address: Address, standing: Standing, place: Known) {
        self.seen += 1;
        let Seen { nid, ino, offset, version, wants_entry, sound, .. } = *seen;
        let (version, repaired) = (version as u32, is_repaired(version));
        self.lead(version, address, seen.next);
        // Only inodes have names.
        if wants_entry && offset == 0 && standing == Standing::Newer {
            let entered = self.entered.entry(nid).or_default();
            if entered.0 < version {
                *entered = (version, Vec::new());
            }
            if entered.0 == version {
                entered.1.push(address);
            }
        }
        let new = Found { address, ino, offset, version, repaired, standing, sound, place, wants_entry };
        match self.nodes.get_mut(&nid) {
            Some(old) if new.is_right(old) == Some(true) => *old = new,
            Some(old) if old.rank() > new.rank() || new.is_right(old).is_some() => {}
            Some(old)
                if old.rank() == new.rank() && segment_of(self.main, old.address) != segment_of(self.main, address) =>
            {
                self.ties.push((nid, new));
            }
            Some(old) => *old = new,
            None => {
                self.nodes.insert(nid, new);
            }
        }
    }

    /// Takes note of a block in a log of nodes, written under a version, that says where the log goes on.
    pub(super) fn lead(&mut self, version: u32, address: Address, next: Address) {
        let (from, to) = (segment_of(self.main, address), segment_of(self.main, next));
        let (Some(from), Some(to)) = (from, to) else { return };
        if from != to {
            let known = self.ways.entry(from).or_insert((version, to));
            // The newest one of its segment counts.
            if known.0 <= version {
                *known = (version, to);
            }
        }
    }

    /// Decides between versions of equal rank, and where names were written last. All have been added. `chain` has the positions of nodes in
    /// the roll-forward chain, which goes before what the segments say.
    pub(super) fn settle(&mut self, chain: &FxHashMap<Address, usize>) {
        let order = Order::of(self.main, &std::mem::take(&mut self.ways));
        let is_later = |version: u32, than: Address, address: Address| match (chain.get(&than), chain.get(&address)) {
            (Some(than), Some(at)) => at > than,
            _ => {
                let (one, other) = (order.of_node(version, than), order.of_node(version, address));
                // Where no way leads from one to the other, the later address is as good a guess as any.
                if one.0 == other.0 { other > one } else { address > than }
            }
        };
        for (nid, new) in std::mem::take(&mut self.ties) {
            let Some(old) = self.nodes.get_mut(&nid) else { continue };
            let is_newer = |old: &Found| is_later(old.version, old.address, new.address);
            if old.rank() == new.rank() && new.is_right(old).unwrap_or_else(|| is_newer(old)) {
                *old = new;
            }
        }
        let mut named = Vec::new();
        for (nid, (version, addresses)) in std::mem::take(&mut self.entered) {
            let found = self.nodes.get_mut(&nid).filter(|found| found.standing == Standing::Newer);
            let Some(found) = found.filter(|found| found.version == version) else { continue };
            found.wants_entry = true;
            let later = |one, other| if is_later(version, one, other) { other } else { one };
            named.extend(addresses.into_iter().reduce(later).map(|address| (version, address, nid)));
        }
        // Either all of a version, or none.
        let is_chain = |version: u32| named.iter().all(|one| one.0 != version || chain.contains_key(&one.1));
        let versions: FxHashSet<u32> = named.iter().map(|one| one.0).collect();
        let chained: FxHashSet<u32> = versions.into_iter().filter(|version| is_chain(*version)).collect();
        let position = |version: u32, address: Address| chain.get(&address).filter(|_| chained.contains(&version));
        named.sort_unstable_by_key(|&(version, address, _)| {
            (version, position(version, address), order.of_node(version, address))
        });
        self.named = named.into_iter().map(|(.., nid)| nid.as_inode()).collect();
    }
}

/// The segment of a block, if it does not lie in front of the main area.
fn segment_of(main: Address, address: Address) -> Option<Segment> {
    address.blocks_behind(main).map(|block| MainBlock::new(block).segment())
}

/// In which order logs came to the segments, under each version: the segment where that way began, and the steps from there.
#[derive(Default)]
struct Order {
    main: Address,
    places: FxHashMap<(u32, Segment), (Segment, u32)>,
}

impl Order {
    fn of(main: Address, ways: &FxHashMap<Segment, (u32, Segment)>) -> Order {
        let mut order = Order { main, places: FxHashMap::default() };
        let entered: FxHashSet<(u32, Segment)> = ways.values().copied().collect();
        let mut all: Vec<(u32, Segment)> = ways.iter().map(|(segment, (version, _))| (*version, *segment)).collect();
        // First those that no other leads to. What is left goes in circles, and begins anywhere.
        all.sort_unstable_by_key(|one| (entered.contains(one), *one));
        for (version, first) in all {
            let (mut at, mut steps) = (first, 0);
            while let Entry::Vacant(place) = order.places.entry((version, at)) {
                place.insert((first, steps));
                let Some(&(_, next)) = ways.get(&at).filter(|way| way.0 == version) else { break };
                (at, steps) = (next, steps + 1);
            }
        }
        order
    }

    /// What nodes of one version are sorted by: the beginning of the way that they lie on, the steps from there, the address.
    fn of_node(&self, version: u32, address: Address) -> (Segment, u32, Address) {
        // Only blocks of the main area are added.
        let segment = segment_of(self.main, address).unwrap_or_default();
        let (first, steps) = self.places.get(&(version, segment)).copied().unwrap_or((segment, 0));
        (first, steps, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::SEGMENT_BITS;
    use crate::layout::node::repaired_version;

    fn seen(version: u64, next: u32) -> Seen {
        Seen {
            nid: Nid::new(7),
            ino: Ino::new(7),
            offset: 0,
            version,
            fsynced: false,
            wants_entry: false,
            next: Address::new(next << SEGMENT_BITS),
            sound: true,
        }
    }

    fn winner(versions: &[(u32, Seen, Standing)]) -> u32 {
        let mut index = Index::default();
        for (segment, seen, standing) in versions {
            index.add(seen, Address::new(segment << SEGMENT_BITS), *standing, Known::default());
        }
        index.settle(&FxHashMap::default());
        index.nodes[&Nid::new(7)].address.get() >> SEGMENT_BITS
    }

    #[test]
    fn the_newest_version_counts() {
        use Standing::{Dead, Live, Named, Newer, Unknown};
        assert_eq!(winner(&[(1, seen(4, 1), Unknown), (2, seen(3, 2), Unknown)]), 1);
        assert_eq!(winner(&[(1, seen(4, 1), Live), (2, seen(9, 2), Dead)]), 1);
        assert_eq!(winner(&[(1, seen(4, 1), Named), (2, seen(4, 2), Newer)]), 2);
        assert_eq!(winner(&[(1, seen(repaired_version(4), 1), Unknown), (2, seen(4, 2), Unknown)]), 1);
        assert_eq!(winner(&[(1, seen(repaired_version(4), 1), Unknown), (2, seen(5, 2), Unknown)]), 2);
        // Written under the same checkpoint: the log went from 2 over 3 to 1.
        let mut other = seen(4, 1);
        other.nid = Nid::new(8);
        assert_eq!(winner(&[(1, seen(4, 1), Unknown), (2, seen(4, 3), Unknown), (3, other, Unknown)]), 1);
        assert_eq!(winner(&[(1, seen(4, 2), Unknown), (2, seen(4, 2), Unknown)]), 2);
    }

    /// Two nodes that both say that they are node 7, an inode and one of inode 9, written then or later; who counts.
    fn right(inode_at: Address, other_at: Address, later: u64, standing: Standing, known: (Known, Known)) -> Address {
        right_of(seen(4, inode_at.get() >> SEGMENT_BITS), inode_at, other_at, later, standing, known)
    }

    fn right_of(
        seen_inode: Seen,
        inode_at: Address,
        other_at: Address,
        later: u64,
        standing: Standing,
        (inode, other): (Known, Known),
    ) -> Address {
        let (seen, mut of_other) = (seen_inode, seen(4 + later, other_at.get() >> SEGMENT_BITS));
        (of_other.ino, of_other.offset) = (Ino::new(9), 2);
        let mut both = [(inode_at, seen, inode), (other_at, of_other, other)];
        both.sort_by_key(|one| one.0);
        let mut index = Index::default();
        both.iter().for_each(|(at, seen, known)| index.add(seen, *at, standing, *known));
        index.settle(&FxHashMap::default());
        index.nodes[&Nid::new(7)].address
    }

    /// Behind it in the same segment, in front of it there, and in other segments.
    const PLACES: [(Address, Address); 4] = {
        const NEAR: (Address, Address) = (Address::new(600), Address::new(700));
        const FAR: (Address, Address) = (Address::new(600), Address::new(1200));
        [NEAR, (NEAR.1, NEAR.0), FAR, (FAR.1, FAR.0)]
    };

    #[test]
    fn what_poses_as_an_inode_with_a_wrong_checksum_does_not_replace_a_node() {
        let live = Known { live: true, named: false };
        for (inode, other) in PLACES {
            let posing = Seen { sound: false, ..seen(4, inode.get() >> SEGMENT_BITS) };
            assert_eq!(right_of(posing, inode, other, 0, Standing::Live, (live, live)), other);
        }
    }

    #[test]
    fn a_damaged_footer_does_not_replace_a_node() {
        let live = Known { live: true, named: false };
        let named = Known { live: true, named: true };
        for (inode, other) in PLACES {
            for later in [0, 1] {
                assert_eq!(right(inode, other, later, Standing::Live, (live, live)), inode);
                assert_eq!(right(inode, other, later, Standing::Live, (named, live)), inode);
                assert_eq!(right(inode, other, later, Standing::Live, (live, named)), other);
            }
        }
    }

    /// Linux goes on behind a power cut without a checkpoint, and uses ids again that only the session before it had used.
    #[test]
    fn an_id_may_be_used_again_behind_a_power_cut() {
        let (none, named) = (Known::default(), Known { live: false, named: true });
        for (inode, other) in PLACES {
            assert_eq!(right(inode, other, 0, Standing::Unknown, (none, none)), inode.max(other));
            assert_eq!(right(inode, other, 1, Standing::Unknown, (none, none)), other);
            assert_eq!(right(inode, other, 0, Standing::Unknown, (named, none)), inode);
            assert_eq!(right(inode, other, 0, Standing::Unknown, (none, named)), other);
            assert_eq!(right(inode, other, 1, Standing::Unknown, (named, none)), other);
            // fsync wrote both: one after the other.
            assert_eq!(right(inode, other, 0, Standing::Newer, (named, none)), inode.max(other));
        }
    }

    /// The main area begins anywhere: the log goes from the end of segment 2 to segment 1, where the newer version is.
    #[test]
    fn segments_are_counted_from_the_main_area() {
        for main in [0, 100, 511].map(Address::new) {
            let at = |segment: u32, offset: u32| main + (segment << SEGMENT_BITS) + offset;
            let mut index = Index::new(main);
            let newer = Seen { next: at(1, 451), ..seen(4, 0) };
            let older = Seen { next: at(2, 101), ..seen(4, 0) };
            let last = Seen { nid: Nid::new(8), ino: Ino::new(8), next: at(1, 0), ..seen(4, 0) };
            for (seen, address) in [(newer, at(1, 450)), (older, at(2, 100)), (last, at(2, 511))] {
                index.add(&seen, address, Standing::Unknown, Known::default());
            }
            index.settle(&FxHashMap::default());
            assert_eq!(index.nodes[&Nid::new(7)].address, at(1, 450), "a main area from block {main} on");
        }
    }

    /// Of two versions of one node, an old NAT does not say which counts.
    #[test]
    fn an_old_table_does_not_choose_between_versions() {
        let mut index = Index::default();
        for (segment, named) in [(1, true), (2, false)] {
            let known = Known { live: false, named };
            index.add(&seen(4, 2), Address::new(segment << SEGMENT_BITS), Standing::Live, known);
        }
        index.settle(&FxHashMap::default());
        assert_eq!(index.nodes[&Nid::new(7)].address.get() >> SEGMENT_BITS, 2);
    }

    /// An inode and two damaged footers, in three segments: the log came to the second of these last.
    #[test]
    fn two_damaged_footers_do_not_replace_a_node() {
        let mut index = Index::default();
        for (segment, (ino, offset), next) in [(1, (9, 2), 1), (2, (9, 3), 2), (3, (7, 0), 2)] {
            let live = Known { live: true, named: false };
            let seen = Seen { ino: Ino::new(ino), offset, ..seen(4, next) };
            index.add(&seen, Address::new(segment << SEGMENT_BITS), Standing::Live, live);
        }
        index.settle(&FxHashMap::default());
        assert_eq!(index.nodes[&Nid::new(7)].address.get() >> SEGMENT_BITS, 3);
    }

    /// One file fsynced all the time, while the log went round a large device: it began behind its middle.
    #[test]
    fn the_newest_version_counts_however_far_the_log_went() {
        let half = 400;
        let mut index = Index::default();
        for segment in 1..=2 * half {
            let next = if segment == 2 * half { 1 } else { segment + 1 };
            for block in 0..8 {
                let mut one = seen(4, if block == 7 && segment != half { next } else { segment });
                one.wants_entry = true;
                index.add(&one, Address::new(segment << SEGMENT_BITS) + block, Standing::Newer, Known::default());
            }
        }
        index.settle(&FxHashMap::default());
        assert_eq!((index.nodes[&Nid::new(7)].address.get() >> SEGMENT_BITS, index.named), (half, vec![Ino::new(7)]));
    }

    /// A node of addresses with a damaged mark outside the chain: it has no name, and the chain keeps the order of those that do.
    #[test]
    fn only_inodes_have_names() {
        let mut index = Index::default();
        for (nid, segment, offset) in [(7, 2, 0), (8, 1, 0), (9, 3, 1)] {
            let mut one = seen(4, segment);
            (one.nid, one.offset, one.wants_entry) = (Nid::new(nid), offset, true);
            one.ino = Ino::new(if offset == 0 { nid } else { 7 });
            index.add(&one, Address::new(segment << SEGMENT_BITS), Standing::Newer, Known::default());
        }
        let chain = [(2, 0), (1, 1)].map(|(segment, position)| (Address::new(segment << SEGMENT_BITS), position));
        index.settle(&chain.into_iter().collect());
        assert_eq!(index.named, [7, 8].map(Ino::new));
    }

    /// What the roll-forward chain says goes before where nodes are.
    #[test]
    fn the_chain_has_the_order() {
        let mut index = Index::default();
        for (nid, segment) in [(7, 3), (8, 1), (7, 2)] {
            let mut one = seen(4, segment);
            (one.nid, one.ino, one.wants_entry) = (Nid::new(nid), Ino::new(nid), true);
            index.add(&one, Address::new(segment << SEGMENT_BITS), Standing::Newer, Known::default());
        }
        let chain =
            [(3, 0), (1, 1), (2, 2)].map(|(segment, position)| (Address::new(segment << SEGMENT_BITS), position));
        index.settle(&chain.into_iter().collect());
        assert_eq!(
            (index.nodes[&Nid::new(7)].address.get() >> SEGMENT_BITS, index.named),
            (2, vec![Ino::new(8), Ino::new(7)])
        );
    }
}
