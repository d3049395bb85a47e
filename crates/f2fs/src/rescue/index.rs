//! The nodes that were found: for each id the version that counts.
//!
//! Versions of a node are told apart by standing, soundness, `cp_ver`, and, written under the same checkpoint, by the order of their
//! log: within a segment the later block is newer; from one segment to the next the last node of each leads on.
//! 40 bytes a node id, however many old versions lie about: at most 1 % of the main area.

use rustc_hash::FxHashMap;

use super::evidence::Standing;
use super::node::Seen;
use crate::layout::SEGMENT_BITS;
use crate::layout::node::is_repaired;

/// Steps along chains of segments in all; beyond, the later address is taken for the newer one.
const STEPS_MAX: usize = 1 << 22;

/// The version of a node that counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) address: u32,
    pub(super) ino: u32,
    pub(super) offset: u32,
    /// The checkpoint's version it was written under, without the checksum.
    pub(super) version: u32,
    /// Whether a repair wrote it, after all else of that version.
    repaired: bool,
    pub(crate) standing: Standing,
    sound: bool,
    /// Whether fsync wrote its name too, with this version or one before it under the same checkpoint: Linux says so once.
    pub(super) wants_entry: bool,
}

impl Found {
    fn rank(&self) -> (Standing, bool, u32, bool) {
        (self.standing, self.sound, self.version, self.repaired)
    }
}

/// All nodes that were found.
#[derive(Default)]
pub(crate) struct Index {
    pub(crate) nodes: FxHashMap<u32, Found>,
    /// Versions of equal rank in other segments than the one that counts so far.
    ties: Vec<(u32, Found)>,
    ways: Ways,
    /// Where fsync wrote inodes with their names since the checkpoint: of each the newest `cp_ver`, and the addresses in their order.
    named: FxHashMap<u32, (u32, Vec<u32>)>,
    /// Node blocks seen, old versions included.
    pub(super) seen: u64,
}

impl Index {
    /// Adds a version; they come in the order of their addresses.
    pub(super) fn add(&mut self, seen: &Seen, address: u32, standing: Standing) {
        self.seen += 1;
        let Seen { nid, ino, offset, version, wants_entry, sound, .. } = *seen;
        let (version, repaired) = (version as u32, is_repaired(version));
        if seen.next >> SEGMENT_BITS != address >> SEGMENT_BITS {
            self.ways.add(version, address >> SEGMENT_BITS, seen.next >> SEGMENT_BITS);
        }
        if wants_entry && standing == Standing::Newer {
            let named = self.named.entry(nid).or_default();
            if named.0 < version {
                *named = (version, Vec::new());
            }
            if named.0 == version {
                named.1.push(address);
            }
        }
        let new = Found { address, ino, offset, version, repaired, standing, sound, wants_entry };
        match self.nodes.get_mut(&nid) {
            Some(old) if old.rank() > new.rank() => {}
            Some(old) if old.rank() == new.rank() && old.address >> SEGMENT_BITS != address >> SEGMENT_BITS => {
                self.ties.push((nid, new));
            }
            Some(old) => *old = new,
            None => {
                self.nodes.insert(nid, new);
            }
        }
    }

    /// Decides between versions of equal rank, and where names were written last. All have been added.
    pub(super) fn settle(&mut self) {
        for (nid, new) in std::mem::take(&mut self.ties) {
            let Some(old) = self.nodes.get_mut(&nid) else { continue };
            if old.rank() == new.rank() && self.ways.is_later(old.version, old.address, new.address) {
                *old = new;
            }
        }
        let (nodes, ways) = (&mut self.nodes, &self.ways);
        self.named.retain(|nid, (version, addresses)| {
            let found =
                nodes.get_mut(nid).filter(|found| found.standing == Standing::Newer && found.version == *version);
            let Some(found) = found else { return false };
            found.wants_entry = true;
            let later = |one: u32, other: u32| if ways.is_later(*version, one, other) { other } else { one };
            *addresses = addresses.drain(..).reduce(later).into_iter().collect();
            true
        });
    }

    /// Inodes that fsync wrote since the checkpoint, and their names with them, in the order it did that in.
    pub(super) fn named(&self) -> Vec<u32> {
        let named = self.named.iter().filter_map(|(nid, (version, at))| Some((*version, *at.last()?, *nid)));
        let mut segments: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (version, address, _) in named.clone() {
            segments.entry(version).or_default().push(address >> SEGMENT_BITS);
        }
        let mut order = FxHashMap::default();
        for (version, mut all) in segments {
            all.sort_unstable();
            all.dedup();
            // The more of the others a log came to after it, the earlier it was there.
            for &from in &all {
                let later = self.ways.from(version, from).filter(|to| all.binary_search(to).is_ok()).count();
                order.insert((version, from), std::cmp::Reverse(later));
            }
        }
        let mut named: Vec<_> = named
            .map(|(version, address, nid)| (version, order.get(&(version, address >> SEGMENT_BITS)), address, nid))
            .collect();
        named.sort_unstable();
        named.into_iter().map(|(.., nid)| nid).collect()
    }
}

/// Which segment a log went on in from each, and under which checkpoint.
#[derive(Default)]
struct Ways {
    next: FxHashMap<u32, (u32, u32)>,
    steps: std::cell::Cell<usize>,
}

impl Ways {
    /// Takes note of a node that leads to another segment: the newest one of its own counts.
    fn add(&mut self, version: u32, segment: u32, next: u32) {
        let known = self.next.entry(segment).or_insert((next, version));
        if known.1 <= version {
            *known = (next, version);
        }
    }

    /// The segments that a log came to from one, under one checkpoint.
    fn from(&self, version: u32, segment: u32) -> impl Iterator<Item = u32> {
        let mut at = segment;
        // A chain has no more links than there are.
        (0..self.next.len()).map_while(move |_| {
            let (next, under) = *self.next.get(&at).filter(|_| self.steps.get() < STEPS_MAX)?;
            self.steps.set(self.steps.get() + 1);
            at = next;
            (under == version && next != segment).then_some(next)
        })
    }

    /// Whether a node was written after another one under the same checkpoint: if the log leads from neither to the other, the later
    /// address is as good a guess as any.
    fn is_later(&self, version: u32, than: u32, address: u32) -> bool {
        let (from, to) = (than >> SEGMENT_BITS, address >> SEGMENT_BITS);
        if from == to {
            return address > than;
        }
        self.from(version, from).any(|at| at == to) || !self.from(version, to).any(|at| at == from) && address > than
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::node::repaired_version;

    fn seen(version: u64, next: u32) -> Seen {
        Seen {
            nid: 7,
            ino: 7,
            offset: 0,
            version,
            fsynced: false,
            wants_entry: false,
            next: next << SEGMENT_BITS,
            sound: true,
        }
    }

    fn winner(versions: &[(u32, Seen, Standing)]) -> u32 {
        let mut index = Index::default();
        for (segment, seen, standing) in versions {
            index.add(seen, segment << SEGMENT_BITS, *standing);
        }
        index.settle();
        index.nodes[&7].address >> SEGMENT_BITS
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
        other.nid = 8;
        assert_eq!(winner(&[(1, seen(4, 1), Unknown), (2, seen(4, 3), Unknown), (3, other, Unknown)]), 1);
        assert_eq!(winner(&[(1, seen(4, 2), Unknown), (2, seen(4, 2), Unknown)]), 2);
    }
}
