//! What was fsynced after the checkpoint: the chain of nodes in the warm node log.

use basalt_segments::SegmentKind;
use rustc_hash::FxHashSet;

use super::checker::Checker;
use super::fault::Place;
use super::kind::FaultKind;
use crate::checkpoint::fields::log_position;
use crate::error::Result;
use crate::journal::translation::Translation;
use crate::layout::Ino;
use crate::layout::node::NodeFlags;
use crate::recovery::scan::{Start, scan};

impl Checker<'_> {
    /// Follows the chain behind the checkpoint, also one of a clean unmount: the next mount may have ended before its first
    /// checkpoint. Tells how many files mounting would recover.
    pub(super) fn look_for_roll_forward(&mut self) -> Result<()> {
        let pack = &self.loaded.pack;
        let (segment, offset, _) = log_position(pack, SegmentKind::WarmNode);
        let moves = Translation::default();
        let start = Start {
            moves: &moves,
            device: self.device,
            geometry: self.geometry,
            version: pack.raw.node_version(pack.checksum),
            address: self.geometry.in_segment(segment, offset),
        };
        let chain = scan(&start, &|_| false);
        let synced: Vec<Ino> =
            chain.nodes.iter().filter(|node| node.flags.contains(NodeFlags::FSYNC)).map(|node| node.ino).collect();
        if let Some(error) = chain.broken {
            let found = format_args!("more was fsynced behind this: {error}");
            self.findings.add(FaultKind::FsyncLost, Place::Volume, found, "all that was fsynced");
        } else if !synced.is_empty() {
            let nodes = synced.len();
            let files = synced.into_iter().collect::<FxHashSet<Ino>>().len();
            let found = format_args!("{nodes} fsynced nodes of {files} inodes behind the checkpoint");
            self.findings.add(FaultKind::RollForward, Place::Volume, found, "none, after a clean unmount");
        }
        if let Some(error) = chain.torn {
            let found = format_args!("an inode whose fsync was cut off, which does not count: {error}");
            self.findings.add(FaultKind::RollForward, Place::Volume, found, "none, after a clean unmount");
        }
        Ok(())
    }
}
