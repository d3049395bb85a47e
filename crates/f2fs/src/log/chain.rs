//! The roll-forward chain: the blocks that the warm node log gets behind a checkpoint, and what they need kept.
//!
//! The chain of a new session begins right behind the checkpoint that the last session left.
//!
//! Nodes of an fsync that a power cut interrupted may lie there, without the beginning of their chain: the volume looks as clean as the
//! checkpoint. They carry the version that the new session's nodes will carry, and a chain that grows up to them would lead into them. So
//! before its first node, the session looks at the rest of the segment. If one block there is of that version, it goes on in another
//! segment, and fsync is a checkpoint, after which the version is another.

use zerocopy::FromBytes;

use basalt_segments::{LogId, SegmentKind};

use crate::blocks::read_blocks;
use crate::layout::node::RawNode;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid};
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

impl Volume {
    /// Lets the chain begin behind the checkpoint that the volume was opened with, if that is safe once it is needed; `offset` is where
    /// the warm node log was in its segment.
    pub(crate) fn begin_chain_behind_open(&mut self, offset: u32) {
        let (named, _) = self.checkpoint.chain_start();
        let log = &mut self.logs[LogId::of(SegmentKind::WarmNode)];
        if offset < BLOCKS_PER_SEGMENT && log.segment == named && !log.left {
            log.offset = offset;
            self.checkpoint.since_mut().begin_behind_open();
        } else {
            self.checkpoint.since_mut().close("no place for the chain behind the checkpoint");
        }
    }

    /// Before the first block goes to the warm node log: looks at what lies behind the checkpoint.
    pub(crate) fn look_behind_checkpoint(&mut self) {
        if !self.checkpoint.since().must_look_behind() {
            return;
        }
        let is_free = self.is_beginning_free();
        self.checkpoint.since_mut().note_behind(is_free);
        if !is_free {
            self.leave_segment(LogId::of(SegmentKind::WarmNode));
        }
    }

    /// Whether no block in the rest of the segment is of the checkpoint's version. One that cannot be read counts as one that is.
    fn is_beginning_free(&self) -> bool {
        let log = &self.logs[LogId::of(SegmentKind::WarmNode)];
        let (from, count) = (self.next_address(LogId::of(SegmentKind::WarmNode)), BLOCKS_PER_SEGMENT - log.offset);
        let Ok(bytes) = read_blocks(&*self.device, from, count as usize) else { return false };
        let version = self.checkpoint.node_version();
        let is_of_version =
            |block: &[u8]| RawNode::ref_from_bytes(block).is_ok_and(|node| node.footer.cp_ver.get() == version);
        !bytes.chunks_exact(BLOCK_SIZE).any(is_of_version)
    }

    /// What a node of the chain points to has to stay until the next checkpoint, dead or alive, or its moves be told to recovery.
    pub(crate) fn keep_targets(&mut self, nid: Nid) {
        if !self.table.tracks_durability() || mutant::active(Mutant::FsyncedMoveForgotten) {
            return;
        }
        for address in self.checkpoint.since_mut().take_placed(nid) {
            self.table.make_durable(self.geometry.main_block(address));
        }
    }

    /// Takes note of a block that the warm node log got: a chain whose last link leads nowhere can carry nothing more.
    pub(crate) fn note_chained(&mut self) {
        self.checkpoint.since_mut().note_chained();
        if self.logs[LogId::of(SegmentKind::WarmNode)].offset >= BLOCKS_PER_SEGMENT {
            self.checkpoint.since_mut().close("no segment for the next node");
        }
    }

    /// Keeps the segments where a roll-forward chain begins: the log's, and the one the last checkpoint names.
    pub(crate) fn pin_chain(&mut self) {
        if mutant::active(Mutant::ChainSegmentReused) {
            return;
        }
        let log = &self.logs[LogId::of(SegmentKind::WarmNode)];
        let (named, _) = self.checkpoint.chain_start();
        self.table.pin(log.segment);
        if self.geometry.has_segment(named) {
            self.table.pin(named);
        }
    }
}
