//! What a repair does about each kind of fault, for people who ask before.

use crate::check::FaultKind;

/// What a repair does about a kind of fault, in a sentence or two.
pub const fn advice(kind: FaultKind) -> &'static str {
    use FaultKind::*;
    match kind {
        SuperblockMagic | SuperblockChecksum | SuperblockFields | SuperblockUnreadable | SuperblockCopiesDiffer => {
            "The sound copy is written over the other; if only the checksum is wrong in both, it is computed anew."
        }
        CheckpointPack => {
            "A power cut leaves it so, and the next checkpoint is written over it. If there was none, call `basalt rescue` first."
        }
        CheckpointUncertain => {
            "Only with --force: what came since the pack that can be read is searched for, and the next checkpoint is written over the \
             other one. Make a copy of the device first: what cannot be read today may be readable tomorrow."
        }
        CheckpointLost => {
            "What was written since the other pack is searched for and put back, and the next checkpoint is written over the damaged one."
        }
        CheckpointEnd => "It is written anew from the other end, which says the same.",
        CheckpointUnreadable => {
            "The newest pack of which one end is sound is revived. Without any, a checkpoint is made from the tables: for each block of the \
             NAT the copy that leads to more of its nodes counts."
        }
        CheckpointFields => "Counts and sizes are computed anew from the superblock and from what is in use.",
        CheckpointFlags => "The flag is cleared, once the rest of the volume is sound.",
        CheckpointParity => "The next checkpoint gets a version that belongs into its pack.",
        LogPosition | LogType | LogNextBlock => "The log goes on in a free segment.",
        LogMode => "The log appends.",
        NatJournal => "Entries that lead to their node are merged into the table, the others are dropped.",
        SitJournal => "The journal is dropped: the table is computed anew.",
        OrphanBlock => "The entries that name inodes are kept.",
        OrphanInode => "The inode is taken off the list.",
        QuotaInode => "The superblock names it no more; `fsck.f2fs` can make quota files anew.",
        CleaningJournal => {
            "What is whole of it is applied, and what contradicts the checkpoint left out; what was fsynced since is lost. Where nothing of it \
             can be read, the volume goes back to its last checkpoint, and blocks that were moved since may hold another's data."
        }
        NotUnmounted | RollForward => {
            "What was fsynced is recovered, as mounting does, and the volume marked as cleanly unmounted. Where damage makes that dangerous, \
             the volume goes back to its last checkpoint, and what a search finds of what was fsynced since is put back."
        }
        FsyncLost => {
            "All fsyncs before and after the damaged block are recovered. The damaged file keeps the damaged block, or the content that it had \
             before. If recovery fails, the volume goes back to its last checkpoint, and the nodes that a search finds are put back."
        }
        NatBits => "They are dropped; Linux does without.",
        NatReserved => "The entry is set to what it must be.",
        NatAddress | NatDuplicateAddress => {
            "The node is searched for among live blocks without an owner. If it is found, nothing is lost; if not, its id is freed: a file's \
             name is removed then, a part of a file becomes a hole."
        }
        NatMissing => "The entry is made to lead to the node again.",
        NatIno => "The entry is set to the inode that points to the node.",
        NodeFooterNid | NodeFooterIno | NodeFooterOffset => {
            "If id or inode fit, or the segment's summary names the node and the rest of it can be right, the footer is set right. Else the \
             block is not this node: it is searched for elsewhere, and else its id is freed."
        }
        NodeReference | NodeDuplicateReference => "The pointer is cleared: that part of the file becomes a hole.",
        NodeUnreachable => {
            "If the place in the inode that the node names is empty, it is put back there, with the nodes that are missing in between; else \
             its id is freed."
        }
        BlockAddress => "The address is cleared: the block becomes a hole.",
        BlockDuplicate => {
            "The owner that the segment's summary names keeps the block; for the others it becomes a hole, so that nobody reads another's \
             data."
        }
        InodeChecksum => {
            "If it is right for another number of extra attributes, the inode has that; else the checksum is computed anew: the fields have been \
             checked one by one. Where the times cannot be (`inode-times`), owner and permissions are root's."
        }
        InodeMode => "The type becomes what the inode's name says, or what its content looks like.",
        InodeExtraAttributes => "Set to what the volume's features ask for.",
        InodeInlineXattrSize => "Set to where the attributes are found, or to the usual size.",
        InodeInlineFlags | InodeFlags => "The flag is cleared.",
        InodeInlineReserved => "Set to zero.",
        InodeInlineData => "The data counts again.",
        InodeSize => "Set to what the inode has room for, or to the end of its last block.",
        InodeDepth => "Set to the deepest level with a name in it.",
        InodeExtent => "The extent is dropped; it is only a short cut.",
        InodeXattrNid => "The pointer is cleared: these attributes are lost.",
        InodeTimes => {
            "The nanoseconds are cleared. Where the checksum is wrong too, or more than one of the times, owner, permissions and times cannot be \
             believed: the inode becomes root's, for nobody else to use."
        }
        InodeNameLength => "Set to the length of the name that is there.",
        InodeBlockCount | InodeLinks => "Set to what was counted.",
        InodeParent => "Set to the directory that has the name.",
        InodeUnreachable => {
            "It gets back the name and the directory that it remembers. If the directory is gone, it is made anew; if the name is taken, the \
             inode gets it with its number behind it. What remembers nothing gets its number as a name in lost+found."
        }
        XattrList => "The list is cut off in front of the first attribute that cannot be read.",
        RootDirectory => {
            "If it has entries, it is made a directory again; else a new one is made, and what was in it goes back there."
        }
        DentryNameLength => {
            "The length becomes the one whose name fits the hash; if none does, the entry is removed and its inode goes to lost+found."
        }
        DentryName => {
            "If the inode remembers a name with the entry's hash, the entry gets that; else the bytes that cannot be become underscores."
        }
        DentryHash => {
            "If the inode remembers a name with this hash, the entry gets that name; else the hash is computed anew, and if another inode \
             without a name remembers this one, the entry leads there."
        }
        DentryBucket => "The entry moves to where its hash leads.",
        DentryType => "Set to the inode's type.",
        DentryIno => {
            "If an inode without a name remembers this one, the entry leads there again. If it is a directory's and files remember that, the \
             directory is made anew, for root alone. Else the entry is removed."
        }
        DentryDots => {
            "`.` and `..` are made to lead where they should; more than one of each is removed. A first block of another file is replaced by the right one where that is found."
        }
        DentryDuplicate => "The second entry gets a number behind its name.",
        DirectoryParents => "The name in the directory that `..` leads to stays, the other is removed.",
        DirectoryCycle => "One name is removed, and that directory goes to lost+found.",
        SummaryType | SummaryOwner | SitCount | SitType | SitClass | SitUnowned | SitMissing | ValidBlockCount
        | ValidNodeCount | ValidInodeCount | FreeSegmentCount => "Computed anew from what is in use.",
        NextFreeNid => "Set to the first id that can be in use.",
    }
}
