//! Rescue: what is left of a volume whose superblocks, checkpoints or tables are gone.
//!
//! 1. `geometry`: where the areas are, from a superblock, a checkpoint, or nothing.
//! 2. `evidence`: what NAT and SIT of the last checkpoint know, as far as they can be believed.
//!    `behind`: what a cleaning journal and the roll-forward chain know better. `interval`: what was written between the last two
//!    checkpoints, where the newer one's journals are gone.
//! 3. `node`, `index`: every block of the main area that is a node; for each node id the version that counts.
//! 4. `tree`: names, from the directories' entries, else from what each inode says of its own name and directory.
//!    `claims`: which nodes belong to each file that has a place, and which pointers lead to them: what a repair goes by.
//! 5. `open`, `fs`: the nodes make a NAT, and with it the engine reads files as ever. What has no place in the tree is in
//!    `lost+found`; a directory that is gone is there as `dir-NUMBER`, an inode without a name as `inode-NUMBER`.
//!
//! `reader` reads around bad blocks. Nothing is ever written. Memory: 40 bytes for each node id found, twenty for each node that is
//! used, and some forty bytes and the name for each entry of a directory; none of it follows from a number on the disk.
//!
//! A volume that can be read from its last checkpoint after all, damage or not, is opened without a search
//! ([`OpenOptions::rescue`](crate::OpenOptions::rescue)).

mod behind;
pub(crate) mod claims;
mod entries;
mod evidence;
mod fs;
mod geometry;
mod index;
mod interval;
mod open;
mod options;
mod pack;
mod progress;
mod reader;
mod report;
mod standing;
mod tree;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use basalt_device::BlockDevice;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

pub(crate) use behind::Behind;
use behind::Seals;
pub use geometry::GeometrySource;
pub(crate) use open::{knows_every_node, open_damaged};
pub use options::RescueOptions;
pub use progress::{RescueProgress, RescueStage};
pub use report::{LostName, RescueReport, UnreadableRange};
pub use standing::TableState;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::features;
use crate::geometry::Geometry;
use crate::layout::nat::RawNatEntry;
use crate::layout::node::RawNode;
use crate::layout::seal::Seal;
use crate::layout::superblock::Features;
use crate::layout::{Address, BLOCKS_PER_SEGMENT, Ino, Nid};
use crate::node::cache::LeadPointers;
use crate::node::nat::{Nat, NodePlace};
use crate::node::seen;
use crate::probe::not_f2fs;
use crate::volume::Volume;
use evidence::Evidence;
pub(crate) use index::Index;
use pack::{Other, find_checkpoint, head_version};
use reader::Reader;
use standing::Standing;
use tree::Tree;

/// What was found on a volume, as a file system that can only be read.
pub struct Rescued {
    volume: Mutex<Volume>,
    device: Arc<dyn BlockDevice>,
    tree: Tree,
    /// Blocks that could not be read, sorted.
    bad: Vec<Range<Address>>,
    report: RescueReport,
    is_outdated: bool,
    nat_is_old: bool,
    is_guess: bool,
    doubtful: Vec<Ino>,
    newest_ahead: u32,
}

impl Rescued {
    /// Searches a device. This reads the whole main area, but for segments that the checkpoint knows to hold no nodes.
    ///
    /// # Errors
    /// When there is not a single node, or the volume has a feature without which its blocks cannot be found.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        options: &RescueOptions,
        clock: Arc<dyn Clock>,
        progress: &mut dyn FnMut(RescueProgress),
    ) -> Result<Rescued> {
        Ok(Rescued::search(device, options, clock, progress)?.0)
    }

    /// As [`open`](Self::open), and hands over the nodes: what a repair goes by.
    pub(crate) fn search(
        device: Arc<dyn BlockDevice>,
        options: &RescueOptions,
        clock: Arc<dyn Clock>,
        progress: &mut dyn FnMut(RescueProgress),
    ) -> Result<(Rescued, Index)> {
        let mut notes = Vec::new();
        let mut reader = Reader::new(&*device);
        let (mut geometry, source) = find_geometry(&*device, &mut reader, options, &mut notes)?;
        let (pack, other) = find_checkpoint(&*device, &geometry, source, options, &mut notes);
        let mut evidence = Evidence::default();
        let behind = pack.as_ref().map(|pack| {
            evidence = Evidence::gather(&mut reader, &*device, &geometry, pack, &mut notes);
            evidence.add_sit_journal(&*device, &geometry, pack);
            let mut behind = Behind::find(&*device, &geometry, pack, &mut notes);
            let fsynced = behind.follow_chain(&*device, &geometry, pack, &mut notes);
            evidence.follow(&geometry, &behind, fsynced);
            if other > Other::Sound {
                let damaged = head_version(&*device, &geometry, 1 - pack.index);
                evidence.doubt(pack.raw.checkpoint_ver.get(), damaged, other);
            }
            behind
        });
        let knows_features = source == GeometrySource::Superblock;
        let no_chain = FxHashMap::default();
        let mut search = Search {
            chain: behind.as_ref().map_or(&no_chain, |behind| &behind.chain),
            device: &*device,
            geometry: &geometry,
            evidence: &mut evidence,
            knows_features,
            flexible: [0; 2],
            outdated: false,
            seals: behind.is_none().then(Seals::default),
        };
        let mut index = search.run(&mut reader, options.deleted, progress);
        search.evidence.settle_ahead();
        if search.outdated {
            // What came before it was known has to be judged again.
            search.flexible = [0; 2];
            index = search.run(&mut reader, options.deleted, progress);
        }
        if index.nodes.is_empty() {
            return Err(not_f2fs(&*device));
        }
        let (flexible, is_outdated, seals) = (search.flexible, search.outdated, search.seals.take());
        let nat_is_old = evidence.nat_is_old();
        if let Some(pack) = pack.as_ref().filter(|_| other > Other::Sound) {
            let beyond = evidence.unknown_to_checkpoint(&index);
            if beyond > 0 {
                let version = pack.raw.checkpoint_ver;
                notes.push(format!(
                    "{beyond} nodes are newer than checkpoint {version}, the only one that is whole: they count"
                ));
            }
        }
        let (mut doubtful, newest_ahead) = (evidence.doubtful(), evidence.newest_ahead());
        let (unsure, is_guess) = (evidence.unsure(&index), evidence.is_guess());
        if is_guess {
            notes.push(
                "the journals of both checkpoints are lost: files that were written last may be of before".to_owned(),
            );
        }
        if !knows_features && flexible[1] > flexible[0] {
            geometry.features.insert(Features::FLEXIBLE_INLINE_XATTR);
        }
        let mut report = RescueReport::new(source, pack.as_ref(), &evidence, &index, &geometry, &reader);
        let nat = make_nat(&index, options.deleted);
        let mut volume = open::open_rebuilt(device.clone(), geometry, pack, nat, clock)?;
        let behind = behind.or_else(|| Some(Behind::without_checkpoint(&*device, &volume.geometry, seals?)));
        volume.behind = behind.map(|behind| Box::new(behind) as Box<dyn LeadPointers>);
        let tree = tree::build(&mut volume, &mut reader, &index, options.deleted, &mut report, progress)?;
        report.set_unreadable(&reader);
        if !unsure.is_empty() {
            let placed = tree.placed();
            doubtful.extend(unsure.into_iter().filter(|ino| placed.contains(&u64::from(*ino))));
        }
        if !doubtful.is_empty() {
            notes.push(format!(
                "a checkpoint or its journals are lost, or one was being written: it cannot be told which version of {} inodes is the last durable one",
                doubtful.len()
            ));
        }
        report.notes = notes;
        let mut bad = std::mem::take(&mut reader.bad);
        bad.sort_unstable_by_key(|range| range.start);
        let volume = Mutex::new(volume);
        Ok((
            Rescued {
                volume,
                device: Arc::clone(&device),
                tree,
                bad,
                report,
                is_outdated,
                nat_is_old,
                is_guess,
                doubtful,
                newest_ahead,
            },
            index,
        ))
    }

    /// Whether nodes were written behind a checkpoint that is newer than the only one that is whole: no power cut took it.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Whether the NAT may be out of date: the checkpoint's journal of it is gone.
    pub(crate) fn nat_is_old(&self) -> bool {
        self.nat_is_old
    }

    /// Whether the journals of both checkpoints are gone: nothing tells for sure what the newest one had.
    pub(crate) fn is_guess(&self) -> bool {
        self.is_guess
    }

    /// How many versions ahead of the checkpoint gone by the newest node is that counts.
    pub(crate) fn newest_ahead(&self) -> u32 {
        self.newest_ahead
    }

    /// Inodes of which it cannot be told whether the newest version was ever durable.
    pub(crate) fn doubtful(&self) -> &[Ino] {
        &self.doubtful
    }

    /// What was found, and what was not.
    pub fn report(&self) -> &RescueReport {
        &self.report
    }
}

fn find_geometry(
    device: &dyn BlockDevice,
    reader: &mut Reader<'_>,
    options: &RescueOptions,
    notes: &mut Vec<String>,
) -> Result<(Geometry, GeometrySource)> {
    if !options.nodes_only && options.main_block.is_none() {
        match geometry::from_superblocks(device, notes) {
            Ok(geometry) => {
                features::expect_served(&geometry, device)?;
                return Ok((geometry, GeometrySource::Superblock));
            }
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(error) => notes.push(format!("no superblock: {error}")),
        }
        if let Some(geometry) = geometry::from_checkpoint(reader) {
            return Ok((geometry, GeometrySource::Checkpoint));
        }
    }
    if reader.blocks < 2 * BLOCKS_PER_SEGMENT {
        return Err(not_f2fs(device));
    }
    Ok((geometry::from_nothing(reader.blocks, options.main_block), GeometrySource::Nodes))
}

/// The pass over the main area.
struct Search<'a> {
    /// Positions of nodes in the roll-forward chain, by address.
    chain: &'a FxHashMap<Address, usize>,
    device: &'a dyn BlockDevice,
    geometry: &'a Geometry,
    evidence: &'a mut Evidence,
    knows_features: bool,
    /// Inodes that do not show the size of their room for xattrs, and those that do.
    flexible: [u64; 2],
    /// A node showed that there was a newer checkpoint.
    outdated: bool,
    /// Seals of the newest chain, where no checkpoint leads to it.
    seals: Option<Seals>,
}

impl Search<'_> {
    fn run(&mut self, reader: &mut Reader<'_>, deleted: bool, progress: &mut dyn FnMut(RescueProgress)) -> Index {
        let mut index = Index::new(self.geometry.main);
        let total = self.geometry.main_segments.into();
        for segment in self.geometry.segments() {
            progress(RescueProgress { stage: RescueStage::Nodes, done: segment.get().into(), total });
            let first = self.geometry.checked_in_segment(segment, 0).filter(|first| first.get() < reader.blocks);
            let Some(first) = first else { break };
            if self.evidence.holds_no_nodes(segment) && !deleted {
                continue;
            }
            let range = first..first.saturating_add(BLOCKS_PER_SEGMENT);
            reader.each(range, &mut |address, block| self.look_at(address, block, &mut index));
        }
        index.settle(self.chain);
        index
    }

    fn look_at(&mut self, address: Address, block: &[u8], index: &mut Index) {
        let Some(seen) = seen::recognise(block, self.geometry, self.knows_features) else {
            // A seal is part of the log too.
            let footer = RawNode::ref_from_bytes(block).ok().map(|node| node.footer);
            if let Some((footer, seal)) = footer.zip(Seal::of_block(block)) {
                index.lead(footer.cp_ver.get() as u32, address, footer.next_blkaddr.into());
                if let Some(seals) = &mut self.seals {
                    seals.note(footer.cp_ver.get(), address, seal);
                }
            }
            return;
        };
        if seen.offset == 0 {
            self.flexible[usize::from(seen::shows_flexible_xattrs(block))] += 1;
        }
        self.outdated |= self.evidence.shows_outdated(&seen, address);
        let standing = self.evidence.standing(self.device, self.geometry, &seen, address);
        let place = self.evidence.known(self.geometry, seen.nid, address);
        index.add(&seen, address, standing, place);
    }
}

/// A NAT of the nodes that were found.
fn make_nat(index: &Index, deleted: bool) -> Nat {
    let mut nodes: Vec<_> =
        index.nodes.iter().filter(|(_, found)| deleted || found.standing > Standing::Dead).collect();
    nodes.sort_unstable_by_key(|(nid, _)| **nid);
    let places = nodes.iter().filter(|(_, found)| found.offset != 0).map(|(nid, found)| NodePlace {
        ino: found.ino,
        offset: found.offset,
        nid: **nid,
    });
    let places = places.collect();
    let entries: BTreeMap<Nid, RawNatEntry> = nodes
        .into_iter()
        .map(|(nid, found)| {
            let entry = RawNatEntry { version: 0, ino: U32::new(found.ino.get()), block_addr: found.address.into() };
            (*nid, entry)
        })
        .collect();
    Nat::rebuilt(entries, places)
}
