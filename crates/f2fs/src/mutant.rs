//! Bugs planted on purpose, to show that the crash simulator finds their kind. Only with the feature `mutants`; without it
//! `active` is false at compile time and nothing of this is left.
//!
//! A mutant is switched on for one thread, so that tests may run side by side. Each is one line at the place it spoils.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// Reuse: a segment is free as soon as its last live block goes, though the last checkpoint still needs it.
    SegmentReusedEarly,
    /// Cleaning: a victim is free as soon as its blocks were moved, before a checkpoint holds.
    VictimFreedEarly,
    /// Cleaning: a moved block's node still points to the old place.
    MovedBlockForgotten,
    /// Cleaning: of neighbouring blocks, the first is copied in place of all.
    WrongBlockCopied,
    /// Reuse: a full segment's summary is not written, and an old one is taken for it.
    SummaryNotWritten,
    /// Cleaning: the summary names the wrong slot as a block's owner.
    SummaryOffByOne,
    /// Reuse: the SIT entry of one changed segment is left out of the checkpoint.
    SitChangeLost,
    /// The NAT journal of a checkpoint is empty.
    NatJournalLeftOut,
    /// Unlinked inodes in use are not recorded as orphans.
    OrphanNotRecorded,
    /// A checkpoint counts though its ends do not agree.
    TornCheckpointAccepted,
    /// A checkpoint overwrites the one before it instead of the one before that.
    CheckpointInPlace,
    /// NAT and SIT blocks are overwritten instead of their other copy.
    TablesInPlace,
    /// A checkpoint leaves dirty directory blocks in memory.
    DirectoriesNotWritten,
    /// A checkpoint counts before the blocks gathered for large requests are out.
    PendingNotWritten,
    /// A rename's two halves may be in two checkpoints.
    RenameInTwoCheckpoints,
    /// Some blocks of a file get their address, but are never written there: what was there before shows.
    StaleBlockExposed,
    /// fsync returns without a flush.
    FsyncNotFlushed,
    /// What fsync writes lacks the mark that makes it count.
    FsyncMarkMissing,
    /// A file renamed since the checkpoint is fsynced as if it were not.
    RenameNotNoticed,
    /// A file takes over the name of one that lives on elsewhere, and is fsynced as if it had not.
    LeftNameForgotten,
    /// An fsync counts though not all it wrote has arrived.
    SealIgnored,
    /// Inside: recovery takes every marked inode for one that vouches for itself.
    InsideNotChecked,
    /// Inside: recovery does not look at the blocks that an inode vouches for.
    InsideDataNotVerified,
    /// Inside: what an inode that vouches for itself points to counts as fresh: cleaning moves it without telling recovery.
    InsideTargetsNotKept,
    /// Roll-forward stops after the first fsync.
    ChainCutShort,
    /// Roll-forward leaves sizes as the checkpoint has them.
    SizeNotRecovered,
    /// Roll-forward leaves new files without a name.
    NameNotRecovered,
    /// Reuse: a session writes its first nodes over the chain of the one before, which recovery would need if the power went again.
    ChainOverwritten,
    /// Journal: sections are reused before the journal blocks that free them are durable.
    JournalNotFlushed,
    /// Journal: the last commit counts though a copy it names has not arrived.
    CopyNotVerified,
    /// Journal: a block counts though its checksum is wrong.
    TornJournalAccepted,
    /// Journal: of a block that was moved twice, the first place counts.
    ChainMergedWrongly,
    /// Journal: a move is applied to a pointer that was written after it, to whatever was put into the old place.
    MoveAppliedToNewer,
    /// Journal: a dead block that the last checkpoint needs is not copied.
    PreInvalidNotCopied,
    /// Journal: the move of a block written since the checkpoint is left out, though an fsync vouches for it.
    FsyncedMoveForgotten,
    /// Journal: a segment that the roll-forward chain runs through is cleaned and reused.
    ChainSegmentReused,
    /// Journal: recovery asks the summary of the old place who owns a block, and believes it.
    SummaryTrustedAfterReuse,
    /// Journal: the guard goes before the last checkpoint holds.
    GuardClearedEarly,
    /// Delta: a page that lost its block is not told.
    ChangeNotTold,
    /// Delta: a file whose mode or xattrs changed is fsynced as if only its pages had.
    InodeNotTold,
    /// Delta: recovery prefers it to a newer image of the node.
    DeltaOverImage,
    /// Delta: recovery looks for its blocks where they were when it was written.
    DeltaNotTranslated,
    /// Delta: what it tells counts as fresh: cleaning moves it without telling recovery.
    DeltaTargetsNotKept,
    /// Delta: recovery leaves sizes as the nodes have them.
    ToldSizeNotRecovered,
    /// Slack: a dead block that the last checkpoint or an fsync needs is written again.
    NeededIsSlack,
    /// Partial garbage collection: what was copied out of the way is written over before a commit tells where it went.
    IslandsNotCommitted,
    /// Slack: what waited to be written to a place, and died, lands on what was written there since.
    PendingOverSlack,
    /// Slack: a seal lists what died in a place that is written again.
    SealListsSlack,
    /// Slack: a flash page is written of which a block is needed.
    PagesUnaligned,
    /// Slack: a log goes on where the checkpoint left it, in the middle of a flash page.
    GoesOnWithinPage,
    /// Slack: the owners of what the segment held before are left out of its summary.
    SlackOwnersForgotten,
    /// Slack: a checkpoint has the owners only of what lies in front of the next place.
    SlackOwnersCutShort,
    /// Slack: a checkpoint says of a log that fills slack that it appends.
    SlackSaidAppended,
    /// Threads: blocks that a large fsync leaves to a flush are forgotten before that flush is over.
    OverflownSealForgotten,
    /// Threads: an inode that vouches for its own blocks takes those of others from the next seal.
    InsideTakesAll,
    /// Threads: an fsync waits for a flush that begins before it has written: the flush leaves the queue as it is.
    FlushNumberedEarly,
    /// Threads: a flush does not wait for the writes that others make.
    UnderWayNotAwaited,
    /// Threads: an fsync beside a checkpoint does not wait for it, though its nodes lead nowhere without it.
    CheckpointNotAwaited,
    /// Threads: two may write a checkpoint at once.
    TurnIgnored,
    /// Threads: changes go on while the volume is closed.
    ChangesWhileClosing,
    /// Threads: background work goes on while the volume is closed.
    TickWhileClosing,
    /// Threads: blocks are reused while somebody reads them.
    ReusedWhileRead,
    /// Threads: a segment is taken for new blocks while the device is told that it is free.
    DiscardedInUse,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 63] = [
        Mutant::SegmentReusedEarly,
        Mutant::VictimFreedEarly,
        Mutant::MovedBlockForgotten,
        Mutant::WrongBlockCopied,
        Mutant::SummaryNotWritten,
        Mutant::SummaryOffByOne,
        Mutant::SitChangeLost,
        Mutant::NatJournalLeftOut,
        Mutant::OrphanNotRecorded,
        Mutant::TornCheckpointAccepted,
        Mutant::CheckpointInPlace,
        Mutant::TablesInPlace,
        Mutant::DirectoriesNotWritten,
        Mutant::PendingNotWritten,
        Mutant::RenameInTwoCheckpoints,
        Mutant::StaleBlockExposed,
        Mutant::FsyncNotFlushed,
        Mutant::FsyncMarkMissing,
        Mutant::RenameNotNoticed,
        Mutant::LeftNameForgotten,
        Mutant::SealIgnored,
        Mutant::InsideNotChecked,
        Mutant::InsideDataNotVerified,
        Mutant::InsideTargetsNotKept,
        Mutant::ChainCutShort,
        Mutant::SizeNotRecovered,
        Mutant::NameNotRecovered,
        Mutant::ChainOverwritten,
        Mutant::JournalNotFlushed,
        Mutant::CopyNotVerified,
        Mutant::TornJournalAccepted,
        Mutant::ChainMergedWrongly,
        Mutant::MoveAppliedToNewer,
        Mutant::PreInvalidNotCopied,
        Mutant::FsyncedMoveForgotten,
        Mutant::ChainSegmentReused,
        Mutant::SummaryTrustedAfterReuse,
        Mutant::GuardClearedEarly,
        Mutant::ChangeNotTold,
        Mutant::InodeNotTold,
        Mutant::DeltaOverImage,
        Mutant::DeltaNotTranslated,
        Mutant::DeltaTargetsNotKept,
        Mutant::ToldSizeNotRecovered,
        Mutant::NeededIsSlack,
        Mutant::IslandsNotCommitted,
        Mutant::PendingOverSlack,
        Mutant::SealListsSlack,
        Mutant::PagesUnaligned,
        Mutant::GoesOnWithinPage,
        Mutant::SlackOwnersForgotten,
        Mutant::SlackOwnersCutShort,
        Mutant::SlackSaidAppended,
        Mutant::OverflownSealForgotten,
        Mutant::InsideTakesAll,
        Mutant::FlushNumberedEarly,
        Mutant::UnderWayNotAwaited,
        Mutant::CheckpointNotAwaited,
        Mutant::TurnIgnored,
        Mutant::ChangesWhileClosing,
        Mutant::TickWhileClosing,
        Mutant::ReusedWhileRead,
        Mutant::DiscardedInUse,
    ];

    /// Whether only a volume with a cleaning journal can meet it.
    pub const fn needs_journal(self) -> bool {
        self as usize >= Mutant::JournalNotFlushed as usize && !self.needs_slack() && !self.needs_threads()
    }

    /// Whether only a volume whose logs fill slack can meet it.
    pub const fn needs_slack(self) -> bool {
        self as usize >= Mutant::NeededIsSlack as usize && !self.needs_threads()
    }

    /// Whether only a thread that closes the volume can meet it.
    pub const fn needs_closing(self) -> bool {
        matches!(self, Mutant::ChangesWhileClosing | Mutant::TickWhileClosing)
    }

    /// Whether only threads can meet it.
    pub const fn needs_threads(self) -> bool {
        self as usize >= Mutant::OverflownSealForgotten as usize
    }
}

#[cfg(feature = "mutants")]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Switches a mutant on for this thread, or all off.
#[cfg(feature = "mutants")]
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}

/// Whether this mutant is on.
#[cfg(feature = "mutants")]
pub(crate) fn active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Whether this mutant is on: never.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn active(_: Mutant) -> bool {
    false
}
