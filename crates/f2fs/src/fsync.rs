//! fsync: appends a file's nodes to the chain behind the checkpoint, and waits for a flush.
//!
//! 1. Under the volume's lock: dirty pages to their log; then one seal, the dirty direct nodes, and the inode with the fsync mark,
//!    side by side in the warm node log.
//! 2. Without the lock: one flush, shared with all who wrote before it began: see [`flushes`](crate::flushes).
//!
//! Where of the file only the inode is to be written, it is its own seal: see [`inside`](crate::inside). Where it changed little, a seal alone
//! tells what: see [`delta`](crate::delta). Where the chain cannot carry it (`checkpoint_reason`), fsync is a checkpoint.

use basalt_segments::cleaning::PIECE;
use basalt_segments::{BlockTraits, LogId, Reason, SegmentKind};
use basalt_vfs::FileKind;

use crate::delta::{Outcome, sealed};
use crate::error::Result;
use crate::flushes::Flushes;
use crate::layout::node::NodeFlags;
use crate::layout::seal::{Seal, Sealed};
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::lock::F2fs;
use crate::log::active::node_owner;
use crate::mutant::{self, Mutant};
use crate::node::path::is_direct;
use crate::statistics::CheckpointCause;
use crate::unsealed::Unlisted;
use crate::volume::Volume;

/// Times an fsync flushes first to make what it has to seal fit, while others write on.
const ATTEMPTS: u32 = 3;

/// Nodes in the chain before an fsync starts a new one with a checkpoint: bounds the time of recovery.
const CHAIN_MAX: u32 = 1 << 14;
/// What an fsync has to do next, without the volume's lock.
enum Step {
    /// Take a checkpoint instead.
    Checkpoint,
    /// Wait for this flush, then try again.
    Again(u64),
    /// Wait for this flush.
    Flush(u64),
}

impl F2fs {
    /// Makes a file's content, attributes and name durable; with `data_only`, not times that alone have changed.
    pub(crate) fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.make_room()?;
        self.allow_deltas()?;
        self.write_back_in_pieces(ino)?;
        for _ in 0..ATTEMPTS {
            // Handed to the device before waiting for a flush: another one may be running.
            // What is met while looking is only the caller's error.
            let appended = self.attempt(|volume| {
                if let Some(reason) = &volume.failed {
                    return Err(basalt_vfs::Error::Io(reason.clone()).into());
                }
                if !volume.is_writable() {
                    return Ok(None);
                }
                let step = volume.append_fsync(ino, data_only, &self.flushes)?;
                Ok(Some((step, volume.checkpoint.is_under_way())))
            })?;
            let Some((step, under_way)) = appended else { return Ok(()) };
            if under_way && !mutant::active(Mutant::CheckpointNotAwaited) {
                // These nodes belong to the checkpoint that is being written: without it they lead nowhere.
                drop(self.take_turn());
                if let Some(reason) = self.failure() {
                    return Err(basalt_vfs::Error::Io(reason).into());
                }
            }
            match step {
                Step::Flush(number) => return self.wait_for_flush(number),
                Step::Again(number) => self.wait_for_flush(number)?,
                Step::Checkpoint => break,
            }
        }
        self.sync_all(CheckpointCause::Fsync)
    }

    /// Writes the dirty pages of a file, piece by piece. What becomes dirty meanwhile is left.
    fn write_back_in_pieces(&self, ino: Ino) -> Result<()> {
        let dirty = {
            let mut volume = self.volume.lock();
            let dirty = volume.pages.dirty_pages_of(ino);
            // A checkpoint has an order of its own.
            if dirty < PIECE || volume.checkpoint_reason(ino)?.is_some() {
                return Ok(());
            }
            dirty
        };
        let mut from = FileBlock::FIRST;
        for _ in 0..dirty / PIECE {
            let written = self.decide(|volume| {
                if volume.is_writable() {
                    volume.write_back_from(ino, from, PIECE, Reason::Fsync)
                } else {
                    Ok(Vec::new())
                }
            })?;
            let Some(last) = written.last() else { return Ok(()) };
            from = *last + 1;
            self.keep_recoverable()?;
        }
        Ok(())
    }
}

impl Volume {
    /// Writes what an fsync has to, and says what is left to do.
    fn append_fsync(&mut self, ino: Ino, data_only: bool, flushes: &Flushes) -> Result<Step> {
        let has_pages = self.pages.dirty_pages_of(ino) > 0;
        let trail = self.checkpoint.since().trail(ino);
        if !has_pages && !trail.unmarked && !self.nodes.is_dirty(ino, data_only) {
            // Nothing to write, but the way to it may have changed.
            return Ok(match self.checkpoint_reason_of_clean(ino)? {
                Some(_) => Step::Checkpoint,
                None => Step::Flush(trail.flush),
            });
        }
        if self.checkpoint_reason(ino)?.is_some() {
            return Ok(Step::Checkpoint);
        }
        // Somebody left to a flush what a seal of now would have to list.
        let left_to = self.checkpoint.since().left_to_flush().filter(|&flush| !flushes.has_succeeded(flush));
        if let Some(flush) = left_to {
            return Ok(Step::Again(flush));
        }
        self.write_back(ino, Reason::Fsync)?;
        match self.append_delta(ino, data_only, flushes)? {
            Outcome::Nothing => return Ok(Step::Flush(trail.flush)),
            Outcome::Appended(flush) => return Ok(Step::Flush(flush)),
            Outcome::LeftTo(flush) => return Ok(Step::Again(flush)),
            Outcome::Checkpoint => return Ok(Step::Checkpoint),
            Outcome::InFull => {}
        }
        let nodes = self.direct_nodes(ino);
        // With the inode and the seal. The pages have taken room, too.
        if self.would_cramp_recovery(nodes.len() as u32 + 2) {
            return Ok(Step::Checkpoint);
        }
        let inside = self.run_inside(ino)?;
        if inside.is_none() && !self.checkpoint.since().fits_seal(nodes.len() + 1) {
            // More than a seal can list: all but the inode first, and a flush of their own.
            nodes.into_iter().try_for_each(|nid| self.write_node(nid))?;
            return self.leave_unsealed_to_flush(flushes).map(Step::Again);
        }
        let durable = self.checkpoint.since_mut().durable(|flush| flushes.has_succeeded(flush));
        match inside {
            Some(run) => self.append_inside(ino, &run, durable)?,
            None => self.append_nodes(ino, nodes, durable)?,
        }
        if self.checkpoint.since().is_closed() {
            return Ok(Step::Checkpoint);
        }
        let flush = flushes.next();
        self.checkpoint.since_mut().note_fsynced(ino, flush);
        Ok(Step::Flush(flush))
    }

    /// The direct nodes of a file that changed, but not its inode. Those that deltas tell all of can wait.
    pub(crate) fn direct_nodes(&mut self, ino: Ino) -> Vec<Nid> {
        let mut nodes = self.nodes.dirty_nodes(ino);
        let is_changed = |nid| {
            let footer = self.nodes.footer(nid);
            !self.nodes.is_told(nid) && footer.is_some_and(|footer| is_direct(footer.offset()))
        };
        nodes.retain(|&nid| nid != ino.nid() && is_changed(nid));
        nodes
    }

    /// Writes a seal, nodes of a file, and its inode with the mark that makes all of it count. `durable`: blocks of the chain that are.
    fn append_nodes(&mut self, ino: Ino, mut nodes: Vec<Nid>, durable: u32) -> Result<()> {
        self.node_mut(ino.nid())?;
        nodes.push(ino.nid());
        // The chain, whatever the placement says of single nodes.
        let log = LogId::of(SegmentKind::WarmNode);
        let (place, position) = self.place_seal()?;
        let next = self.next_address(log);
        let mut placed = Vec::with_capacity(nodes.len());
        let mut entries = sealed(&self.entries_to_seal());
        let mut result = Ok(());
        for nid in nodes {
            let marks = if nid == ino.nid() { self.marks_of_fsync(ino) } else { NodeFlags::empty() };
            let address = match self.place_node(nid, marks, Some(log)) {
                Ok(Some((_, address))) => address,
                Ok(None) => continue,
                Err(error) => {
                    // What has its place must have its bytes, whatever came afterwards.
                    result = Err(error);
                    break;
                }
            };
            entries.extend(self.nodes.bytes(nid).map(|bytes| Sealed::of(address, bytes)));
            self.keep_targets(nid);
            placed.push((nid, address));
        }
        let seal = Seal { nodes: placed.len() as u32, entries, durable, position: Some(position), delta: None };
        let block = seal.encode(self.checkpoint.node_version(), next);
        self.record.wrote_node();
        self.writer.append(&*self.device, log.index(), place, &block.0)?;
        for (nid, address) in placed {
            let Some(bytes) = self.nodes.bytes(nid) else { continue };
            self.writer.append(&*self.device, log.index(), address, bytes)?;
        }
        self.writer.write_all(&*self.device)?;
        result
    }

    /// The marks of an inode that make an fsync count, and its name known where the checkpoint does not have it.
    pub(crate) fn marks_of_fsync(&self, ino: Ino) -> NodeFlags {
        match () {
            () if mutant::active(Mutant::FsyncMarkMissing) => NodeFlags::empty(),
            () if self.checkpoint.since().is_created(ino) => NodeFlags::FSYNC | NodeFlags::DENTRY,
            () => NodeFlags::FSYNC,
        }
    }

    /// Takes the next place of the chain for a seal: the address, and the blocks in front of it.
    pub(crate) fn place_seal(&mut self) -> Result<(Address, u32)> {
        let place = self.allocate(LogId::of(SegmentKind::WarmNode), node_owner(Nid::NONE))?;
        // Nothing ever refers to a seal.
        self.invalidate_unplaced(place)?;
        let position = self.checkpoint.since().chained();
        self.note_chained();
        self.checkpoint.since_mut().note_seal_chained(self.geometry.segment_of(place));
        Ok((place, position))
    }

    /// What the next seal has to list. Where a journal frees segments without a checkpoint, what it lists has to stay until then; blocks
    /// that died with nobody to miss them are left out instead.
    ///
    /// What cleaning has moved since is listed where it went: the commit that tells of the move may free the old place for others, and
    /// recovery takes moves that are older than the seal for known to it.
    pub(crate) fn entries_to_seal(&mut self) -> Vec<Unlisted> {
        let mut entries = self.checkpoint.since_mut().take_unsealed();
        if self.table.tracks_durability() {
            entries.iter_mut().for_each(|one| one.sealed.address = self.journal.place_of(one.sealed.address));
            entries.retain(|one| {
                let block = self.geometry.main_block(one.sealed.address);
                self.table.is_live(block) || self.table.is_pre_invalid(block) || self.table.is_pinned(block.segment())
            });
            if !mutant::active(Mutant::FsyncedMoveForgotten) {
                entries.iter().for_each(|one| self.table.make_durable(self.geometry.main_block(one.sealed.address)));
            }
        }
        entries
    }
}

impl Volume {
    /// Why fsync of this inode needs a checkpoint; `None` if the chain can carry it. Source: the kernel's `need_do_checkpoint`.
    pub(crate) fn checkpoint_reason(&mut self, ino: Ino) -> Result<Option<&'static str>> {
        if let Some(reason) = self.checkpoint_reason_of_clean(ino)? {
            return Ok(Some(reason));
        }
        let direct = BlockTraits { node: true, direct_node: true, ..BlockTraits::default() };
        let has_log = self.placement.log(&direct) == LogId::of(SegmentKind::WarmNode);
        let links = self.inode(ino)?.i_links.get();
        let since = self.checkpoint.since();
        let used = self.checkpoint.raw().valid_block_count.get().saturating_add(since.blocks_to_recover());
        Ok(match () {
            () if !has_log => Some("file nodes have no log of their own"),
            () if links != 1 => Some("not exactly one link"),
            () if self.orphans.contains(&ino) => Some("was an orphan"),
            () if since.is_reshaped(ino) => Some("it lost nodes"),
            () if used > self.counts.user_blocks() => Some("recovery could run out of space"),
            () if since.chained() > CHAIN_MAX => Some("the chain is long"),
            () => None,
        })
    }

    /// Of these reasons, those that hold although nothing of the inode itself waits to be written: the way to it by its name may not be
    /// durable.
    pub(crate) fn checkpoint_reason_of_clean(&mut self, ino: Ino) -> Result<Option<&'static str>> {
        if self.kind(ino)? != FileKind::Regular {
            return Ok(Some("not a regular file"));
        }
        let raw = self.inode(ino)?;
        let parent = raw.parent();
        let length = (raw.i_namelen.get() as usize).min(raw.i_name.len());
        let name: Box<[u8]> = raw.i_name[..length].into();
        Ok(self.checkpoint.since().checkpoint_reason_of_name(ino, parent, name))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::collections::BTreeSet;

    use basalt_segments::{Durable, Segment};
    use basalt_vfs::FileSystem;

    use super::*;
    use crate::error::Error;
    use crate::journal::translation::Translation;
    use crate::options::{Deltas, OpenOptions};
    use crate::recovery::scan::{Start, scan};
    use crate::testing::{create, open, open_new, places, write};

    /// Room for the seal and one node of two: others took the last segments since the fsync made room.
    fn leave_two_blocks_to_the_chain(volume: &mut Volume) -> Vec<Segment> {
        while volume.logs[LogId::of(SegmentKind::WarmNode)].offset < crate::layout::BLOCKS_PER_SEGMENT - 2 {
            let place = volume.allocate(LogId::of(SegmentKind::WarmNode), node_owner(Nid::NONE)).unwrap();
            volume.invalidate(place).unwrap();
        }
        std::iter::from_fn(|| volume.table.open_segment(SegmentKind::WarmData, None)).collect()
    }

    /// Recovery writes nothing to the segments of what inodes that are their own seals vouch for: it may be cut off itself.
    #[test]
    fn the_chain_has_the_segments_of_all_that_inodes_vouch_for() {
        const PAGES: u64 = 400;
        let (device, fs) = open_new(64, 0, OpenOptions::default());
        let ino = create(&fs, "file");
        let mut segments = BTreeSet::new();
        for round in 1..6 {
            write(&fs, ino, 0..PAGES, round);
            if round == 1 {
                fs.sync().unwrap();
                continue;
            }
            fs.sync_file(ino, false).unwrap();
            segments.extend(places(&fs, ino, 0..PAGES).iter().map(|place| place.segment()));
        }
        let volume = fs.volume.lock();
        let (segment, offset) = volume.checkpoint.chain_start();
        let (geometry, moves) = (&volume.geometry, Translation::default());
        let (address, version) = (geometry.in_segment(segment, offset), volume.checkpoint.node_version());
        let start = Start { device: &*device, geometry, version, moves: &moves, address };
        let chain = scan(&start, &|_| false);
        assert!(segments.len() > 1 && chain.nodes.len() == 4 && chain.segments.is_superset(&segments));
    }

    #[test]
    fn a_node_that_got_its_place_gets_its_bytes_though_the_next_finds_none() {
        let (device, fs) = open_new(64, 0, OpenOptions::default());
        let ino = create(&fs, "file");
        write(&fs, ino, 0..1536, 1);
        fs.sync().unwrap();
        for index in [0, 1000] {
            write(&fs, ino, index..index + 1, 2);
        }
        let taken = leave_two_blocks_to_the_chain(&mut fs.volume.lock());
        let appended = fs.decide(|volume| volume.append_fsync(Ino::new(ino as u32), false, &fs.flushes));
        assert!(matches!(appended, Err(Error::Refused(basalt_vfs::Error::NoSpace))));
        {
            let mut volume = fs.volume.lock();
            taken.iter().for_each(|&segment| volume.table.close_segment(segment));
            volume.table.release(&taken, Durable::without_device());
        }
        assert!(fs.checkpoint_if(true, CheckpointCause::Interval).unwrap());
        drop(fs);
        let fs = open(&device, OpenOptions::default());
        for (index, byte) in [(0, 2), (1, 1), (1000, 2), (1200, 1)] {
            let mut bytes = [0; 4096];
            fs.read(ino, index * 4096, &mut bytes).unwrap();
            assert_eq!(bytes, [byte; 4096], "block {index}");
        }
    }

    /// Recovery reads what an fsync wrote, also once it has died: until the next checkpoint its places are written by nobody.
    #[test]
    fn what_an_fsync_made_durable_is_needed() {
        let options = OpenOptions { delta: Deltas::Off, ..OpenOptions::default() };
        let (_, fs) = open_new(128, 64 << 10, options);
        let [ino, other] = ["file", "other"].map(|name| create(&fs, name));
        write(&fs, ino, 0..2048, 1);
        fs.sync().unwrap();
        // Pages that the inode points to, and so many of direct nodes that no seal lists them: the fsync of the other file leaves them to a flush.
        let pages = || (0..4).chain(1000..2000);
        pages().for_each(|page| write(&fs, ino, page..page + 1, 2));
        fs.volume.lock().write_back_all().unwrap();
        write(&fs, other, 0..1, 2);
        for ino in [other, ino] {
            fs.sync_file(ino, false).unwrap();
        }
        assert_eq!(fs.statistics().checkpoints.total(), 1, "more than that of the sync");
        let written: Vec<_> = pages().flat_map(|page| places(&fs, ino, page..page + 1)).collect();
        let volume = fs.volume.lock();
        let fresh = written.iter().filter(|place| volume.table.is_fresh(**place)).count();
        assert_eq!(fresh, 0, "of {} blocks", written.len());
    }
}
