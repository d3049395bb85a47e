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
    /// Which segment a log went on in.
    next_segment: FxHashMap<u32, u32>,
    /// Node blocks seen, old versions included.
    pub(super) seen: u64,
}

impl Index {
    /// Adds a version; they come in the order of their addresses.
    pub(super) fn add(&mut self, seen: &Seen, address: u32, standing: Standing) {
        self.seen += 1;
        if seen.next >> SEGMENT_BITS != address >> SEGMENT_BITS {
            self.next_segment.insert(address >> SEGMENT_BITS, seen.next >> SEGMENT_BITS);
        }
        let Seen { nid, ino, offset, version, wants_entry, sound, .. } = *seen;
        let (version, repaired) = (version as u32, is_repaired(version));
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

    /// Decides between versions of equal rank. All have been added.
    pub(super) fn settle(&mut self) {
        let mut steps = 0;
        for (nid, new) in std::mem::take(&mut self.ties) {
            let Some(old) = self.nodes.get_mut(&nid) else { continue };
            if old.rank() != new.rank() {
                continue;
            }
            let (from, to) = (old.address >> SEGMENT_BITS, new.address >> SEGMENT_BITS);
            let follows = from == to || leads_to(&self.next_segment, from, to, &mut steps);
            // If the log leads from neither to the other, the later address is as good a guess as any.
            if follows || !leads_to(&self.next_segment, to, from, &mut steps) {
                *old = new;
            }
        }
        self.next_segment = FxHashMap::default();
    }
}

/// Whether a log that was in segment `from` came to `to` later.
fn leads_to(next: &FxHashMap<u32, u32>, from: u32, to: u32, steps: &mut usize) -> bool {
    let mut at = from;
    // A chain has no more links than there are.
    for _ in 0..next.len() {
        let Some(&segment) = next.get(&at).filter(|_| *steps < STEPS_MAX) else { return false };
        *steps += 1;
        if segment == to {
            return true;
        }
        if segment == from {
            return false;
        }
        at = segment;
    }
    false
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
