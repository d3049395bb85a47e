//! Which log each block goes to, and what the placement hears.

use basalt_segments::{
    BlockTraits, Informed, List, LogId, MainBlock, Placement, Reason, Segment, SegmentKind, StaticPlacement,
    VictimPolicy,
};

use crate::error::{Error, Result};

/// What the blocks of the simulated volume are to a placement: data of one file, the number of a block its place in that. With the model
/// of a file there are nodes too.
pub(super) struct Logs {
    placement: Box<dyn Placement>,
    /// The logs for what users write and for what cleaning copies, where the placement looks at nothing else: nobody has to ask then,
    /// or tell it of blocks.
    fixed: Option<[LogId; 2]>,
    /// What each log of the volume writes.
    kinds: Vec<SegmentKind>,
    /// The list of a page cache in front of the volume that a block's page is on.
    lists: Option<PageList>,
}

/// Says on which list of a page cache the page of a block is.
pub type PageList = Box<dyn Fn(u32) -> Option<List> + Send>;

/// Why a block of data gets a place.
#[derive(Clone, Copy)]
pub(super) enum Why {
    /// A user writes it, with so many neighbours, itself included (0: that is not known); where it lies until now, if it is not new.
    Written { run: u32, from: Option<MainBlock> },
    /// Cleaning copies it from here.
    Moved { from: MainBlock },
}

/// The file whose blocks are written.
const FILE: u32 = 0;
/// The file of what was there from the start.
const OTHER_FILE: u32 = 1;

impl Logs {
    pub(super) fn new(placement: Box<dyn Placement>) -> Logs {
        let kinds = SegmentKind::ALL.iter().chain(placement.more_logs()).copied().collect();
        let mut logs = Logs { placement, fixed: None, kinds, lists: None };
        if logs.placement.is_by_type_alone() {
            let both = [Why::Written { run: 0, from: None }, Why::Moved { from: MainBlock::new(0) }];
            logs.fixed = Some(both.map(|why| logs.choose(&logs.data(0, why))));
        }
        logs
    }

    /// Asks from now on for the list that a page is on.
    pub(super) fn set_lists(&mut self, lists: PageList) {
        self.lists = Some(lists);
    }

    /// A block of data, as a placement sees it.
    fn data(&self, block: u32, why: Why) -> BlockTraits {
        BlockTraits { list: self.lists.as_ref().and_then(|lists| lists(block)), ..data(block, why) }
    }

    /// Logs of the volume.
    pub(super) fn count(&self) -> usize {
        self.kinds.len()
    }

    /// Logs of data.
    ///
    /// # Errors
    /// When this is none of them.
    pub(super) fn count_of_data(&self, log: LogId) -> Result<u32> {
        if self.kinds.get(log.index()).is_none_or(|kind| kind.is_node()) {
            return Err(Error::Options("a pool of dirty blocks: what fills no section has no log".into()));
        }
        // Logs are numbered by a byte.
        Ok(self.kinds.iter().filter(|kind| !kind.is_node()).count() as u32)
    }

    /// The kind of segments that a log writes.
    pub(super) fn kind(&self, log: LogId) -> SegmentKind {
        self.kinds[log.index()]
    }

    /// As in the engine: an answer that is no log for such a block counts as the one of F2FS.
    fn choose(&self, block: &BlockTraits) -> LogId {
        let log = self.placement.log(block);
        let is_one = self.kinds.get(log.index()).is_some_and(|kind| kind.is_node() == block.node);
        if is_one { log } else { StaticPlacement::default().log(block) }
    }

    /// The log for a block of data.
    #[inline]
    pub(super) fn for_data(&self, block: u32, why: Why) -> LogId {
        match self.fixed {
            Some([written, moved]) => {
                if matches!(why, Why::Moved { .. }) {
                    moved
                } else {
                    written
                }
            }
            None => self.choose(&self.data(block, why)),
        }
    }

    /// The log for any block.
    pub(super) fn for_block(&self, block: &BlockTraits) -> LogId {
        self.choose(block)
    }

    /// Whether all that cleaning copies goes to one log. Where it does not, the placement is asked once for each block.
    pub(super) fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// A block of data got its place.
    #[inline]
    pub(super) fn note_data(&self, block: u32, why: Why, place: MainBlock) {
        if self.fixed.is_none() {
            self.placement.note_written(&self.data(block, why), place);
        }
    }

    /// Any block got its place.
    pub(super) fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        if self.fixed.is_none() {
            self.placement.note_written(block, place);
        }
    }

    /// What was at a place is gone.
    #[inline]
    pub(super) fn note_dead(&self, place: MainBlock) {
        if self.fixed.is_none() {
            self.placement.note_dead(place);
        }
    }

    /// A log has filled its segment, or left it.
    pub(super) fn note_sealed(&self, log: LogId, segment: Segment) {
        self.placement.note_sealed(log, segment);
    }

    /// Segments are free again.
    pub(super) fn note_free(&self, segments: &[Segment]) {
        segments.iter().for_each(|&segment| self.placement.note_free(segment));
    }

    /// The volume's clock, in nanoseconds.
    pub(super) fn note_time(&self, now: u64) {
        self.placement.note_time(now);
    }

    /// Dirty blocks are to be sorted.
    pub(super) fn note_writing(&self) {
        self.placement.note_writing();
    }

    /// A victim policy with what the placement has learned.
    pub(super) fn inform<'a>(&'a self, policy: &'a dyn VictimPolicy) -> Informed<'a> {
        Informed::new(policy, &*self.placement)
    }
}

/// A block of data, whose page is on no list.
fn data(block: u32, why: Why) -> BlockTraits {
    let block = BlockTraits { file: FILE, index: block, ..BlockTraits::default() };
    match why {
        Why::Written { run, from } => BlockTraits { run, from, ..block },
        Why::Moved { from } => BlockTraits { cold: true, reason: Reason::Cleaning, from: Some(from), ..block },
    }
}

/// A block of data that was there from the start and that cleaning copies: a directory's, for mkfs leaves no other. Which block of it
/// it is, is not known.
pub(super) fn stranger(place: MainBlock) -> BlockTraits {
    BlockTraits { file: OTHER_FILE, of_directory: true, ..data(place.get(), Why::Moved { from: place }) }
}

/// A node that F2FS writes to segments of this kind.
pub(super) fn node(kind: SegmentKind) -> BlockTraits {
    BlockTraits {
        node: true,
        direct_node: kind != SegmentKind::ColdNode,
        of_directory: kind == SegmentKind::HotNode,
        file: FILE,
        ..BlockTraits::default()
    }
}
