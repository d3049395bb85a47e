//! Bugs planted on purpose, to show that the tests find their kind. Only with the feature `mutants`; without it `active` is false at
//! compile time and nothing of this is left.
//!
//! A mutant is switched on for one thread, so that tests may run side by side. Each is a line or two at the place that it spoils.

use basalt_nand::{NandDevice, is_erased};

use crate::error::Result;
use crate::layout::NONE;
use crate::memory::Bytes;
use crate::volume::{FlashLight, MOST_SPARE};

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// Cleaning: a block is erased as soon as its pages were moved, before a checkpoint leads to their new places.
    VictimErasedEarly,
    /// Deletion: the blocks of a deleted file are erased at once, though a power cut brings the file back.
    FreedAtUnlink,
    /// Power cut: logs go on in the blocks that were open, behind the page that the cut was in.
    TornBlockGoneOn,
    /// Power cut: a block that reads as erased is used without an erase, though a cut may have been in its last one.
    ErasedLookTrusted,
    /// Recovery: what a directory knows already is told to it again, so deleted files come back.
    CoversIgnored,
    /// Recovery: a renamed inode stays at its old place, too.
    OriginIgnored,
    /// Rename: the inode is not written at its new place before the directories are.
    RenameNotWritten,
    /// fsync: new directories above a file are not written.
    AncestorsNotWritten,
    /// Directories: the old page of a bucket is erased before the directory leads to the new one.
    BucketErasedEarly,
    /// Names: a deleted name hides another one with the same hash.
    ProbeStopsAtGap,
    /// Names: one with the same hash is taken for the one that is looked for.
    NamesNotCompared,
    /// Checkpoint: the block of the leaves is erased before the second level leads to the new one.
    LeafErasedEarly,
    /// Checkpoint: the block of the second level is erased before the root leads to the new one.
    SecondErasedEarly,
    /// Rename: the inode table has the old place of a renamed file, and cleaning does not find it.
    RenamedNotLocated,
    /// Cleaning: a block is free though fewer live pages were found in it than were counted.
    UnfoundErased,
    /// Cleaning: the bytes beside a page are believed, and a page that is dead is moved in place of the live one.
    StaleTagBelieved,
    /// Live pages: what is overwritten counts as live.
    OverwriteNotCounted,
    /// Window: blocks are used that the last leaf does not name.
    WindowIgnored,
    /// Format: pages of an earlier volume are taken for this one's.
    SeedIgnored,
    /// Full chip: nothing is held back for cleaning, logs and deletions.
    NoReserve,
    /// Failed program: the block is marked bad, and what it holds is left there.
    FailedBlockOnlyMarked,
    /// Flipped bits: a block is not emptied before there are too many of them.
    FlipsIgnored,
    /// Orphans: files that were deleted while they were open stay for ever.
    OrphansKept,
    /// Truncation: what a file loses in its last page comes back when it grows.
    TailNotZeroed,
    /// Roots: an older one is taken for the newest.
    OlderRootTaken,
    /// Roots: the one that counts is not written once more before a session's first program.
    RootNotKept,
    /// Roots: each is written once.
    RootWrittenOnce,
    /// Roots: the newest is overwritten by the next.
    RootInPlace,
    /// Checkpoint: a leaf that says that nothing was written since stays the last one while a session writes.
    CleanLeafKept,
    /// Checkpoint: its levels go on in the same blocks after a mount.
    CheckpointGoesOn,
    /// Checkpoint: blocks that it frees are erased for its own pages.
    FreedBeforeLeaf,
    /// Window: ordinary writes take the blocks that are kept for recovery.
    KeptBlocksUsed,
    /// Recovery: it writes to the first blocks of the window, where the pages are that it reads.
    RecoveryOverwrites,
    /// Recovery: the page that was written last is not written once more.
    LastPageNotSaved,
    /// Recovery: sequence numbers come again.
    NumbersReused,
    /// Recovery: pages that are older than the checkpoint count.
    OldPagesReplayed,
    /// Recovery: files come before directories, not all pages in their order.
    ReplayUnordered,
    /// Recovery: new directories that no other leads to stay.
    UnreachableKept,
    /// Recovery: pages of old versions count as live.
    OldVersionsLive,
    /// Recovery: there is no checkpoint at its end.
    RecoveryNotClosed,
    /// Recovery: a page of a file that looks like metadata is taken for it.
    DataTakenForMetadata,
    /// Order: a directory is written before the new files that it leads to.
    DirectoryBeforeFiles,
    /// Order: a directory is written before the new directories that it leads to.
    DirectoryBeforeChildren,
    /// Rename: new directories at the new place are not written first.
    RenameIntoUnwritten,
    /// Removed directories: no last page says that it is gone.
    GoneNotWritten,
    /// Orphans: one that is written late takes away what has its name since.
    ClaimSkipped,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 46] = [
        Mutant::VictimErasedEarly,
        Mutant::FreedAtUnlink,
        Mutant::TornBlockGoneOn,
        Mutant::ErasedLookTrusted,
        Mutant::CoversIgnored,
        Mutant::OriginIgnored,
        Mutant::RenameNotWritten,
        Mutant::AncestorsNotWritten,
        Mutant::BucketErasedEarly,
        Mutant::ProbeStopsAtGap,
        Mutant::NamesNotCompared,
        Mutant::LeafErasedEarly,
        Mutant::SecondErasedEarly,
        Mutant::RenamedNotLocated,
        Mutant::UnfoundErased,
        Mutant::StaleTagBelieved,
        Mutant::OverwriteNotCounted,
        Mutant::WindowIgnored,
        Mutant::SeedIgnored,
        Mutant::NoReserve,
        Mutant::FailedBlockOnlyMarked,
        Mutant::FlipsIgnored,
        Mutant::OrphansKept,
        Mutant::TailNotZeroed,
        Mutant::OlderRootTaken,
        Mutant::RootNotKept,
        Mutant::RootWrittenOnce,
        Mutant::RootInPlace,
        Mutant::CleanLeafKept,
        Mutant::CheckpointGoesOn,
        Mutant::FreedBeforeLeaf,
        Mutant::KeptBlocksUsed,
        Mutant::RecoveryOverwrites,
        Mutant::LastPageNotSaved,
        Mutant::NumbersReused,
        Mutant::OldPagesReplayed,
        Mutant::ReplayUnordered,
        Mutant::UnreachableKept,
        Mutant::OldVersionsLive,
        Mutant::RecoveryNotClosed,
        Mutant::DataTakenForMetadata,
        Mutant::DirectoryBeforeFiles,
        Mutant::DirectoryBeforeChildren,
        Mutant::RenameIntoUnwritten,
        Mutant::GoneNotWritten,
        Mutant::ClaimSkipped,
    ];
}

#[cfg(feature = "mutants")]
std::thread_local! {
    static ACTIVE: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
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

/// What some of the bugs do.
impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Erases the block of a page if nothing live is in it, whatever the last checkpoint leads to.
    pub(crate) fn erase_if_dead(&mut self, page: u32) -> Result<()> {
        let block = self.geometry.block_of(page);
        if page != NONE && self.memory.counts()[block as usize] == 0 && !self.is_needed(block) {
            self.device.erase(block)?;
        }
        Ok(())
    }

    /// Erases all blocks in which nothing is live, but those that are free already.
    pub(crate) fn erase_all_dead(&mut self) -> Result<()> {
        let left = self.window_left();
        for block in 0..self.geometry.blocks {
            if !self.state.window[self.window_used..][..left].contains(&block) {
                self.erase_if_dead(self.geometry.first_page(block))?;
            }
        }
        Ok(())
    }

    /// A block in which nothing is live, and that the last leaf does not name.
    pub(crate) fn outside_window(&self) -> Option<u32> {
        let free = |block: &u32| self.memory.counts()[*block as usize] == 0 && !self.is_needed(*block);
        (0..self.geometry.blocks).filter(free).find(|block| !self.state.window.contains(block))
    }

    /// Whether what stands beside all pages of a block reads as erased.
    pub(crate) fn looks_erased(&mut self, block: u32) -> Result<bool> {
        let first = self.geometry.first_page(block);
        for page in first..first + self.geometry.pages_per_block {
            let mut spare = [0; MOST_SPARE];
            let spare = &mut spare[..self.geometry.spare_bytes as usize];
            if self.device.read(page, &mut [], spare).is_err() || !is_erased(spare) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
