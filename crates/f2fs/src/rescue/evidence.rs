//! What the last checkpoint knows about a node that was found: whether it is the one in use.
//!
//! | NAT | SIT | the node |
//! |---|---|---|
//! | names this address | | is in use |
//! | can be trusted here, and does not | block live | one of the two is wrong: is in use if a name or a pointer leads to it |
//! | can be trusted here, and does not | block dead, or gone | is not: an old version, or deleted |
//! | gone | can be trusted here, block live | is in use |
//! | gone | can be trusted here, block dead | is not |
//! | gone | gone | may be: the newest version counts |
//! | its journal is gone | block live | is in use |
//! | its journal is gone | its journal is gone too | is in use if it was written between the last two checkpoints ([`interval`](super::interval)), or is where the older one has it, and a name leads to it |
//! | its journal is gone | its journal is gone too, and so is the other checkpoint | may be: the newest version counts, and who repairs is asked |
//!
//! A table's block can be trusted if all its entries are possible and one is in use; one of zeros only if the whole table agrees with the
//! checkpoint's count of nodes, because zeros are what a dying card gives back. Nodes that fsync wrote after the checkpoint are newer
//! than anything it knows. Where the other pack is damaged, it may have been a newer checkpoint: then nodes that this one does not know
//! count too, and all that were written since, if something shows that the newer one was complete.

mod tables;

use std::collections::BTreeSet;

use basalt_segments::{Segment, SegmentKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::behind::Behind;
use super::index::{Found, Index, Known};
use super::interval::{Interval, Written};
use super::open::read_nat_journal;
use super::pack::Other;
use super::reader::Reader;
use super::standing::{Standing, TableState};
use crate::checkpoint::fields::{log_position, version_bitmaps};
use crate::checkpoint::half::{STALE_MAX, VERSION_STEP_MAX};
use crate::checkpoint::pack::Pack;
use crate::checkpoint::previous::JournalEntry;
use crate::geometry::Geometry;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::{Address, Ino, Nid, bit_msb, sit};
use crate::node::seen::Seen;

/// What NAT and SIT say.
#[derive(Default)]
pub(super) struct Evidence {
    /// `cp_ver` of nodes written after the checkpoint.
    version_after: Option<u64>,
    /// The version of the checkpoint, where the other pack is damaged and may have been a newer one.
    older_than: Option<u32>,
    /// The version that the damaged pack has in its first block, if that is whole.
    damaged_version: Option<u32>,
    /// The other pack is damaged such that no power cut explains it.
    is_lost: bool,
    /// Nor is this checkpoint known to be the one before: it may be several versions behind.
    is_stale: bool,
    /// How far ahead of this checkpoint nodes are that were found behind newer ones.
    ahead: BTreeSet<u32>,
    /// How far ahead they may be: those of an earlier volume are of any version.
    ahead_max: u32,
    /// Nodes were written behind that newer one: what this one knows of changed nodes is out of date.
    is_outdated: bool,
    /// That came from a node which the newer one was durable before.
    is_proven: bool,
    /// Inodes of which this one knows an older node than was found, and nothing says whether the newer one was ever durable.
    doubtful: BTreeSet<Ino>,
    /// Where nodes are that an fsync after the checkpoint vouches for.
    fsynced: FxHashSet<Address>,
    /// Whether seals tell which nodes of the chain count.
    is_sealed: bool,
    addresses: FxHashMap<Nid, Address>,
    /// Possible entries of blocks of the NAT that have impossible ones too: believed where the node is there.
    hints: FxHashMap<Nid, Address>,
    /// Which blocks of the NAT can say that a node does not exist.
    nat_trusted: Vec<bool>,
    nat_is_whole: bool,
    /// The journal of the NAT is gone, or may be: what the table says of a node may be out of date.
    nat_is_old: bool,
    /// Live blocks and type of segments that can be trusted, where there are live blocks.
    segments: FxHashMap<Segment, SegmentEvidence>,
    sit_is_whole: bool,
    /// Segments where nodes were written since the checkpoint.
    written_since: BTreeSet<Segment>,
    /// The journal of the SIT is gone.
    sit_is_old: bool,
    /// What was written between the last two checkpoints, where both journals are gone and the older checkpoint is whole.
    interval: Option<Interval>,
    /// Inodes of which nothing tells whether a node was written between the last two checkpoints, or by one that power cut.
    unsure: BTreeSet<Ino>,
    /// Segments with a block that the NAT leads to, and the one where fsync goes on behind the checkpoint.
    named_segments: FxHashSet<Segment>,
    /// Nothing was written behind the checkpoint.
    is_last: bool,
}

struct SegmentEvidence {
    map: Box<[u8; sit::VALID_MAP_SIZE]>,
    holds_nodes: bool,
}

impl Evidence {
    /// Reads NAT and SIT as the checkpoint has them, as far as they can be read.
    pub(super) fn gather(
        reader: &mut Reader<'_>,
        device: &dyn basalt_device::BlockDevice,
        geometry: &Geometry,
        pack: &Pack,
        notes: &mut Vec<String>,
    ) -> Evidence {
        let mut evidence = Evidence::default();
        let (sit_bitmap, nat_bitmap) = match version_bitmaps(pack, geometry) {
            Ok(bitmaps) => bitmaps,
            Err(error) => {
                notes.push(error.to_string());
                return evidence;
            }
        };
        let nodes = u64::from(pack.raw.valid_node_count.get());
        evidence.read_nat(reader, geometry, &nat_bitmap);
        let journal = read_nat_journal(device, geometry, pack, notes);
        for (nid, entry) in journal.iter().flatten() {
            evidence.set(geometry, *nid, entry);
        }
        evidence.nat_is_whole = journal.is_some() && evidence.addresses.len() as u64 == nodes;
        // Zeros look like a journal without entries.
        let is_empty = journal.is_none_or(|journal| journal.is_empty());
        evidence.nat_is_old = is_empty && !evidence.nat_is_whole;
        let live_nodes = evidence.read_sit(reader, geometry, &sit_bitmap);
        evidence.sit_is_whole = live_nodes == nodes;
        evidence.version_after = Some(pack.raw.node_version(pack.checksum));
        evidence.is_last = pack.raw.flags().contains(CheckpointFlags::UMOUNT);
        let segment_of = |address: &Address| geometry.segment_of(*address);
        evidence.named_segments = evidence.addresses.values().chain(evidence.hints.values()).map(segment_of).collect();
        // Also behind a clean end: the next session's first fsync goes there, and its chain may have lost its beginning.
        evidence.named_segments.insert(log_position(pack, SegmentKind::WarmNode).0);
        evidence
    }

    /// Nodes are where cleaning moved them or fsync wrote them, and segments hold what was put there.
    pub(super) fn follow(&mut self, geometry: &Geometry, behind: &Behind, fsynced: FxHashSet<Address>) {
        for node in &behind.moved_nodes {
            // A block of the NAT that is gone cannot contradict.
            let address = self.addresses.entry(node.nid).or_insert(node.last);
            if *address == node.old {
                *address = node.last;
            }
        }
        // What fsync wrote goes on behind what the SIT knows; cleaning may have put a segment to other use.
        for node in &behind.moved_nodes {
            self.segments.remove(&geometry.segment_of(node.last));
        }
        self.written_since.clone_from(&behind.node_segments);
        self.fsynced = fsynced;
        self.is_last &= !behind.is_broken;
        self.is_sealed = behind.is_sealed;
    }

    /// The other pack is damaged, and may have been `damaged`: the checkpoint of this version may not be the newest.
    pub(super) fn doubt(&mut self, version: u64, damaged: Option<u64>, other: Other) {
        if damaged.is_some_and(|damaged| damaged.wrapping_sub(version).cast_signed() <= 0) {
            return;
        }
        // Nodes carry the lower half.
        self.older_than = Some(version as u32);
        self.damaged_version = damaged.map(|version| version as u32);
        self.is_lost = other >= Other::Lost;
        self.is_stale = other == Other::Stale;
        self.ahead_max = if self.is_stale { STALE_MAX } else { VERSION_STEP_MAX as u32 };
    }

    /// All nodes were seen: where each version of them follows closely on another, more of them count than are near this checkpoint.
    pub(super) fn settle_ahead(&mut self) {
        for &ahead in self.ahead.iter().filter(|_| self.is_stale) {
            if ahead > self.ahead_max {
                break;
            }
            self.ahead_max = ahead.saturating_add(STALE_MAX);
        }
    }

    /// How far ahead of this checkpoint the newest node is that counts.
    pub(super) fn newest_ahead(&self) -> u32 {
        self.ahead.range(..=self.ahead_max).next_back().copied().unwrap_or_default()
    }

    /// Whether a node was written behind a checkpoint newer than this one. A repair that power cut has written nodes of versions between
    /// this one and its own: behind neither.
    fn is_of_newer(&self, seen: &Seen) -> bool {
        let Some(version) = self.older_than else { return false };
        let ahead = (seen.version as u32).wrapping_sub(version);
        match self.damaged_version {
            Some(damaged) => seen.version as u32 == damaged && ahead.cast_signed() > 0,
            None => (1..=self.ahead_max).contains(&ahead),
        }
    }

    /// Whether a node may be of a lost checkpoint behind this one, or of one that power cut while its nodes were written: no fsync wrote it.
    fn may_be_of_lost(&self, seen: &Seen, address: Address) -> bool {
        let is_fsynced = seen.fsynced || self.fsynced.contains(&address);
        self.is_lost && self.version_after == Some(seen.version) && !is_fsynced
    }

    /// Whether a node shows that the checkpoint is out of date, and that was not known.
    pub(super) fn shows_outdated(&mut self, seen: &Seen, address: Address) -> bool {
        let (is_newer, may_be_lost) = (self.is_of_newer(seen), self.may_be_of_lost(seen, address));
        let ahead = self.older_than.map_or(0, |version| (seen.version as u32).wrapping_sub(version));
        let may_count = self.is_stale || ahead <= self.ahead_max;
        if ahead.cast_signed() > 0 && may_count && self.damaged_version.is_none() {
            self.ahead.insert(ahead);
        }
        let known = self.addresses.get(&seen.nid);
        let may_be_lost = may_be_lost && known != Some(&address);
        if may_be_lost && known.is_some() {
            self.doubtful.insert(seen.ino);
        }
        self.is_proven |= is_newer;
        let shows = !self.is_outdated && (is_newer || may_be_lost);
        self.is_outdated |= shows;
        shows
    }

    /// Inodes of which two versions were found, and nothing tells which is the last durable one: either a checkpoint is lost, or one was
    /// being written when power went.
    pub(super) fn doubtful(&self) -> Vec<Ino> {
        if self.is_proven { Vec::new() } else { self.doubtful.iter().copied().collect() }
    }

    /// Inodes of which nothing tells what the journals of the checkpoint had, which are lost. What has no place was deleted.
    pub(super) fn unsure(&self, index: &Index) -> BTreeSet<Ino> {
        let mut all = self.unsure.clone();
        if let Some(interval) = &self.interval {
            let is_named = |nid: Nid, found: &Found| self.addresses.get(&nid) == Some(&found.address);
            let is_unsure = |nid: Nid, found: &Found| match found.standing {
                Standing::Disputed => !interval.has_journal_before() && !is_named(nid, found),
                standing => standing == Standing::Unknown,
            };
            let unsure = index.nodes.iter().filter(|(nid, found)| is_unsure(**nid, found));
            all.extend(unsure.map(|(_, found)| found.ino));
        } else if self.nat_is_old && self.sit_is_old {
            // Only the order of versions decides, against the table.
            let is_other =
                |nid: &Nid, found: &Found| self.addresses.get(nid).is_some_and(|known| *known != found.address);
            let is_of_fsync = |found: &Found| found.standing == Standing::Newer;
            let others = index.nodes.iter().filter(|(nid, found)| is_other(nid, found) && !is_of_fsync(found));
            all.extend(others.map(|(_, found)| found.ino));
        }
        all
    }

    /// Whether the checkpoint does not know of a node that a damaged, newer one may have had.
    fn is_beyond(&self, seen: &Seen) -> bool {
        let is_behind = self.older_than.is_some() && self.version_after == Some(seen.version);
        self.is_of_newer(seen) || is_behind && (self.is_outdated || !self.addresses.contains_key(&seen.nid))
    }

    /// What the tables say of a node's block.
    pub(super) fn known(&self, geometry: &Geometry, nid: Nid, address: Address) -> Known {
        Known { named: self.names(nid, address), live: !self.sit_is_old && self.is_live(geometry, address) }
    }

    fn is_live(&self, geometry: &Geometry, address: Address) -> bool {
        if !geometry.in_main(address) {
            return false;
        }
        let segment = self.segments.get(&geometry.segment_of(address)).filter(|found| found.holds_nodes);
        segment.is_some_and(|found| bit_msb(&*found.map, geometry.offset_in_segment(address) as usize))
    }

    /// Whether the NAT leads to this version of a node, out of date or not.
    fn names(&self, nid: Nid, address: Address) -> bool {
        self.addresses.get(&nid).or(self.hints.get(&nid)) == Some(&address)
    }

    /// What is known of a node that was found at `address`.
    pub(super) fn standing(
        &mut self,
        device: &dyn basalt_device::BlockDevice,
        geometry: &Geometry,
        seen: &Seen,
        address: Address,
    ) -> Standing {
        // Tables may be newer than a checkpoint that is stale.
        let is_named = self.names(seen.nid, address) && !(self.is_stale && self.is_of_newer(seen));
        let is_known = self.addresses.contains_key(&seen.nid) || self.hints.contains_key(&seen.nid);
        if is_named && !self.nat_is_old {
            return Standing::Named;
        }
        let is_behind = self.version_after == Some(seen.version);
        if is_behind && (self.fsynced.contains(&address) || seen.fsynced && !self.is_sealed) {
            return Standing::Newer;
        }
        // Marked, and no seal makes it count: power cut that fsync, or it is the last and damaged. Better than nothing.
        if is_behind && seen.fsynced {
            return Standing::Unknown;
        }
        if self.is_beyond(seen) {
            return Standing::Newer;
        }
        if self.nat_is_old && self.sit_is_old && self.interval.is_some() {
            return if is_behind { Standing::Dead } else { self.of_interval(device, geometry, seen, address) };
        }
        if !geometry.in_main(address) {
            return Standing::Unknown;
        }
        let segment = geometry.segment_of(address);
        let is_live = self.is_live(geometry, address);
        let is_since = self.written_since.contains(&segment);
        let is_dead = self.segments.contains_key(&segment) || self.sit_is_whole && (is_behind || !is_since);
        if self.nat_is_old && (is_known || self.sit_is_old) && !is_behind {
            return of_outdated(is_named, is_live, is_dead && !self.sit_is_old);
        }
        let is_denied = self.is_denied(seen.nid) && (is_behind || !self.nat_is_old);
        match (is_live, is_denied) {
            (true, true) => Standing::Disputed,
            (true, false) => Standing::Live,
            (false, is_denied) if is_dead || is_denied => Standing::Dead,
            (false, _) => Standing::Unknown,
        }
    }

    /// What is known where both journals are gone: what was written between the last two checkpoints, and what the older one had.
    fn of_interval(
        &mut self,
        device: &dyn basalt_device::BlockDevice,
        geometry: &Geometry,
        seen: &Seen,
        address: Address,
    ) -> Standing {
        let is_trusted = self.is_trusted(seen.nid);
        let named = self.addresses.get(&seen.nid).or(self.hints.get(&seen.nid)).copied();
        let Some(interval) = &mut self.interval else { return Standing::Unknown };
        let is_new = interval.has_new_nat_block(seen.nid);
        if is_new && is_trusted {
            return if named == Some(address) { Standing::Named } else { Standing::Dead };
        }
        match interval.has(device, geometry, seen, address) {
            Written::Yes => return Standing::Written,
            Written::Unknown => {
                self.unsure.insert(seen.ino);
                return Standing::Written;
            }
            Written::No if !interval.is_after(seen) => return Standing::Dead,
            Written::No => {}
        }
        let table = match is_new {
            true => interval.table_before(device, geometry, seen.nid),
            false => named.or(is_trusted.then_some(Address::NULL)),
        };
        let before = match interval.journal_before(seen.nid) {
            Some(JournalEntry::At(before)) => Some(before),
            Some(JournalEntry::Changed) => None,
            None => table,
        };
        match before {
            // Any version may be in the journal that is lost: the newest counts.
            Some(before) if !interval.has_journal_before() && before != Address::NULL => Standing::Disputed,
            _ if !interval.has_journal_before() => Standing::Unknown,
            Some(before) if before == address => Standing::Disputed,
            Some(_) => Standing::Dead,
            None => Standing::Unknown,
        }
    }

    /// Whether the NAT, which can be believed there, does not lead to this version of a node.
    fn is_denied(&self, nid: Nid) -> bool {
        self.nat_is_whole || self.is_trusted(nid)
    }

    /// Whether the block of the NAT with a node can be believed.
    fn is_trusted(&self, nid: Nid) -> bool {
        self.nat_trusted.get(nid.nat_block() as usize).copied().unwrap_or(false)
    }

    /// Whether the journals of both checkpoints are gone: which version of what was written last counts is a guess.
    pub(super) fn is_guess(&self) -> bool {
        let knows = self.interval.as_ref().is_some_and(Interval::has_journal_before);
        self.nat_is_old && self.sit_is_old && !knows
    }

    /// Whether what the NAT says may be out of date: its journal is gone.
    pub(super) fn nat_is_old(&self) -> bool {
        self.nat_is_old
    }

    /// Nodes that count and that the checkpoint does not have where they are.
    pub(super) fn unknown_to_checkpoint(&self, index: &Index) -> usize {
        let is_unknown = |(nid, found): (&Nid, &Found)| {
            found.standing == Standing::Newer && self.addresses.get(nid) != Some(&found.address)
        };
        index.nodes.iter().filter(|&found| is_unknown(found)).count()
    }

    /// Whether a segment can hold no node that is in use.
    pub(super) fn holds_no_nodes(&self, segment: Segment) -> bool {
        // A newer checkpoint, of which this one knows nothing, may have put it to other use.
        let may_hold = self.named_segments.contains(&segment) || self.written_since.contains(&segment);
        if self.older_than.is_some() || may_hold {
            return false;
        }
        match self.segments.get(&segment) {
            Some(found) => !found.holds_nodes && !self.sit_is_old,
            // Nothing is live there, and nothing was made durable since.
            None => self.sit_is_whole && self.is_last && self.fsynced.is_empty(),
        }
    }

    /// How much of the NAT could be used.
    pub(super) fn nat_state(&self) -> TableState {
        table_state(self.nat_is_whole, !self.addresses.is_empty())
    }

    /// How much of the SIT could be used.
    pub(super) fn sit_state(&self) -> TableState {
        table_state(self.sit_is_whole, !self.segments.is_empty())
    }

    /// Nodes that the NAT leads to.
    pub(super) fn named(&self) -> u64 {
        self.addresses.len() as u64
    }
}

/// The standing of a version of a node of which the NAT knows one, and the journal may have known a newer one: the newest counts that
/// can be live.
fn of_outdated(is_named: bool, is_live: bool, is_dead: bool) -> Standing {
    match (is_live, is_dead) {
        (false, true) if is_named => Standing::Disputed,
        (false, true) => Standing::Dead,
        _ => Standing::Live,
    }
}

fn table_state(is_whole: bool, has_any: bool) -> TableState {
    match (is_whole, has_any) {
        (true, _) => TableState::Whole,
        (false, true) => TableState::Partial,
        (false, false) => TableState::Gone,
    }
}

#[cfg(test)]
mod tests {
    use basalt_device::{BlockDevice, MemoryDevice};

    use super::*;
    use crate::checkpoint::choose::choose_pack;
    use crate::format::{FormatOptions, format};
    use crate::layout::BLOCK_SIZE;

    /// The table of SIT may agree with the count of nodes, and be of before: it does not say then that a segment is free.
    #[test]
    fn no_segment_is_free_of_nodes_where_the_journal_is_gone() {
        let device = MemoryDevice::new(80 << 20, 512);
        format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let geometry = Geometry::read(&device).unwrap().0;
        let pack = choose_pack(&device, &geometry).unwrap().0;
        let mut evidence = Evidence { sit_is_whole: true, is_last: true, ..Evidence::default() };
        assert!(evidence.holds_no_nodes(Segment::new(9)));
        let summaries = u64::from(pack.start + pack.raw.cp_pack_start_sum.get());
        device.write_at(summaries * BLOCK_SIZE as u64, &[0x5A; BLOCK_SIZE]).unwrap();
        evidence.add_sit_journal(&device, &geometry, &pack);
        assert!(!evidence.holds_no_nodes(Segment::new(9)));
    }
}
