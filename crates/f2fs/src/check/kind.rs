//! Every kind of fault: its name for programs, how bad it is, and what it means.

use serde::{Serialize, Serializer};

/// How bad a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// No fault at all: worth knowing.
    Note,
    /// Nothing is lost: something that is derived from the rest is wrong.
    Minor,
    /// Data, names or free space are lost, wrong or at risk.
    Damage,
    /// The volume cannot be mounted.
    Fatal,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $severity:ident, $explain:literal;)*) => {
        /// What kind of fault it is; one for each invariant of the format.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // `explain` says it.
        pub enum FaultKind {
            $($(#[$doc])* $variant,)*
        }

        impl FaultKind {
            /// Every kind, in the order in which a check comes to them.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$variant,)*];

            /// The name for programs, in words joined by hyphens; it never changes.
            pub const fn name(self) -> &'static str {
                match self { $(FaultKind::$variant => $name,)* }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(FaultKind::$variant => Severity::$severity,)* }
            }

            /// What it means, in a paragraph for the user.
            pub const fn explain(self) -> &'static str {
                match self { $(FaultKind::$variant => $explain,)* }
            }
        }
    };
}

kinds! {
    SuperblockMagic = "superblock-magic", Damage,
        "A copy of the superblock does not carry F2FS's magic number. The volume is usable through the other copy.";
    SuperblockChecksum = "superblock-checksum", Damage,
        "A copy of the superblock fails its checksum. The volume is usable through the other copy.";
    SuperblockFields = "superblock-fields", Damage,
        "A copy of the superblock describes a volume that cannot be: areas that do not follow each other, sizes that do not \
         agree, or more blocks than the device has. The volume is usable through the other copy, if that is sound.";
    SuperblockUnreadable = "superblock-unreadable", Damage,
        "The device cannot read a copy of the superblock. The volume is usable through the other copy.";
    SuperblockCopiesDiffer = "superblock-copies-differ", Minor,
        "Both copies of the superblock are sound but do not say the same. The first one counts.";
    CheckpointPack = "checkpoint-pack", Note,
        "One of the two checkpoint packs is torn or fails its checksum. That is how a power cut during a checkpoint looks: the \
         other pack is complete and counts; or this one does, if only its last block was still being written.";
    CheckpointEnd = "checkpoint-end", Damage,
        "The first or last block of the newest checkpoint is damaged. The checkpoint is complete, and Basalt uses its other end; \
         Linux goes back to the checkpoint before it and loses what came since. A writable mount or a repair mends it.";
    CheckpointUncertain = "checkpoint-uncertain", Damage,
        "One of the two checkpoint packs cannot be read, and nothing tells whether it is the newer one. The other one is used, only to \
         read.";
    CheckpointLost = "checkpoint-lost", Damage,
        "One of the two checkpoint packs is damaged at both ends in a way that no power cut leaves, and it may have been the newer one. \
         The other one is used, only to read.";
    CheckpointUnreadable = "checkpoint-unreadable", Fatal,
        "Neither checkpoint pack is sound, so nothing says where the tables and logs are.";
    CheckpointFields = "checkpoint-fields", Fatal,
        "The checkpoint contains a size or count that cannot be, so that no kernel will mount the volume.";
    CheckpointFlags = "checkpoint-flags", Damage,
        "The checkpoint says that the volume had an error, that a check is wanted, or that checkpoints are disabled.";
    CheckpointParity = "checkpoint-parity", Minor,
        "Checkpoints with odd versions belong in the first pack and those with even versions in the second. Linux does not \
         mind; GRUB looks for the newest checkpoint by that rule.";
    LogPosition = "log-position", Fatal,
        "An active log is outside the main area, or two logs write to the same segment.";
    LogMode = "log-mode", Fatal,
        "The allocation mode of an active log is neither appending nor filling slack.";
    LogType = "log-type", Damage,
        "The segment that an active log writes to is recorded as a segment of another type.";
    LogNextBlock = "log-next-block", Fatal,
        "The next block an active log would write is in use, or (for an appending log) one behind it is: live data would be \
         overwritten.";
    NatJournal = "nat-journal", Damage,
        "The checkpoint's journal of NAT entries holds too many entries, or one for a node id that does not exist, or what is beside it \
         is not what a checkpoint writes: the newest places of nodes are gone. A mount is read-only, or refused.";
    SitJournal = "sit-journal", Fatal,
        "The checkpoint's journal of SIT entries holds too many entries, or one for a segment that does not exist, or what is beside it \
         is not what a checkpoint writes.";
    OrphanBlock = "orphan-block", Fatal,
        "A block of the checkpoint's orphan list holds more entries than fit.";
    OrphanInode = "orphan-inode", Damage,
        "The orphan list names something that is no inode, or an inode that still has links or a name, or one twice.";
    CleaningJournal = "cleaning-journal", Fatal,
        "The volume was not unmounted, its cleaning journal alone tells where blocks went since the last checkpoint, and that is \
         damaged. Mounting refuses the volume.";
    NotUnmounted = "not-unmounted", Note,
        "The volume was not unmounted: it is consistent as of its last checkpoint, and mounting it recovers what was fsynced \
         since.";
    RollForward = "roll-forward", Note,
        "Files were fsynced after the last checkpoint. Mounting the volume recovers them.";
    FsyncLost = "fsync-lost", Damage,
        "Something that was fsynced after the last checkpoint is damaged or cannot be read, and more was fsynced behind it. A mount shows \
         what is in front of it, and is read-only. `basalt rescue` has what is behind it, too, and a repair recovers it.";
    NatReserved = "nat-reserved", Minor,
        "The NAT entries 0, 1 and 2 are reserved: the first must be empty, the others must have address 1.";
    NatBits = "nat-bits", Damage,
        "The bits that Linux keeps of which blocks of the NAT are full or empty are wrong: it could give a file's id away.";
    NatAddress = "nat-address", Damage,
        "A node's address in the NAT is not in the main area, so the node is lost unless an older version of it is found.";
    NatDuplicateAddress = "nat-duplicate-address", Damage,
        "Two node ids have the same block as their node. At most one can be right.";
    NatMissing = "nat-missing", Damage,
        "A live block is a sound node, but the NAT does not lead to it: its entry is free, or leads elsewhere. Whatever the node belongs \
         to is lost unless it is put back.";
    NatIno = "nat-ino", Minor,
        "The NAT says that a node belongs to another inode than the one that points to it.";
    NodeFooterNid = "node-footer-nid", Damage,
        "The block that the NAT gives for a node carries another node's id: the block was overwritten, or the NAT is wrong.";
    NodeFooterIno = "node-footer-ino", Damage,
        "A node says that it belongs to another inode than the one that points to it.";
    NodeFooterOffset = "node-footer-offset", Minor,
        "A node says that it is at another place in its inode's tree than where it is. Recovery and cleaning rely on it.";
    NodeReference = "node-reference", Damage,
        "An inode or indirect node points to a node id that is free, does not exist or is an inode: part of the file is lost.";
    NodeDuplicateReference = "node-duplicate-reference", Damage,
        "Two inodes or indirect nodes point to the same node: two files share blocks.";
    NodeUnreachable = "node-unreachable", Damage,
        "A node is in use according to the NAT, but no inode leads to it: part of a file is lost, or space is.";
    BlockAddress = "block-address", Damage,
        "A file's block address is not in the main area: that block of the file is lost.";
    BlockDuplicate = "block-duplicate", Damage,
        "Two owners point to the same block. At most one of them has its own content there.";
    InodeChecksum = "inode-checksum", Damage,
        "An inode fails its checksum. Linux refuses to open the file.";
    InodeMode = "inode-mode", Damage,
        "The type in an inode's mode is none that exists.";
    InodeExtraAttributes = "inode-extra-attributes", Damage,
        "The size of an inode's extra attributes is impossible, or the inode has them on a volume without them, or the reverse.";
    InodeInlineXattrSize = "inode-inline-xattr-size", Damage,
        "The room an inode sets aside for inline extended attributes is impossible.";
    InodeInlineFlags = "inode-inline-flags", Damage,
        "An inode holds inline data or an inline directory but is of a type that cannot.";
    InodeInlineReserved = "inode-inline-reserved", Minor,
        "The first address of an inode with inline data is reserved and must be zero, and so must be its pointers to nodes. Linux refuses \
         to open such a file.";
    InodeInlineData = "inode-inline-data", Minor,
        "An inode's inline content is not zero though the inode says that there is none: Linux shows zeros.";
    InodeFlags = "inode-flags", Damage,
        "An inode is marked as case-insensitive, compressed, encrypted or protected by verity on a volume without that feature, or \
         though its type cannot be. Linux refuses to open it.";
    InodeSize = "inode-size", Damage,
        "An inode's size is more than its inline data, its directory blocks or the format can hold, or too small for them.";
    InodeDepth = "inode-depth", Damage,
        "A directory's hash depth is smaller than where its entries are, so that some names are not found; or more than the \
         format allows.";
    InodeExtent = "inode-extent", Damage,
        "The extent kept in an inode does not agree with its block addresses, or the inode has none: reads through it give wrong data.";
    InodeXattrNid = "inode-xattr-nid", Damage,
        "The node of an inode's extended attributes does not exist: the attributes are lost.";
    InodeTimes = "inode-times", Damage,
        "The nanoseconds of an inode's times are a second or more: no program writes such. Whatever else is in the same sector, such as owner \
         and permissions, may be wrong too.";
    InodeNameLength = "inode-name-length", Minor,
        "The length of the name kept in an inode is more than 255.";
    InodeBlockCount = "inode-block-count", Minor,
        "An inode's count of blocks is not what it has.";
    InodeLinks = "inode-links", Damage,
        "An inode's link count is not the number of its names: it could be deleted while it still has one, or never.";
    InodeParent = "inode-parent", Minor,
        "The parent kept in a directory's inode is not the directory that its name is in.";
    QuotaInode = "quota-inode", Damage,
        "The superblock names an inode for quota that does not exist or is no file. Linux refuses to mount the volume with quota.";
    InodeUnreachable = "inode-unreachable", Damage,
        "An inode has no name and is no orphan: it takes space and nobody can open it.";
    XattrList = "xattr-list", Damage,
        "A list of extended attributes is malformed: some or all of them cannot be read.";
    RootDirectory = "root-directory", Fatal,
        "The root inode does not exist or is no directory.";
    DentryNameLength = "dentry-name-length", Damage,
        "A directory entry's name is empty, longer than 255 bytes, or longer than the room marked for it.";
    DentryName = "dentry-name", Damage,
        "A name contains a slash or a zero byte. No program can open it, and Linux stops listing the directory there.";
    DentryHash = "dentry-hash", Damage,
        "A directory entry's hash is not its name's: the name is listed but not found.";
    DentryBucket = "dentry-bucket", Damage,
        "A directory entry is in a block where its hash does not lead: the name is listed but not found.";
    DentryType = "dentry-type", Damage,
        "A directory entry's file type is none that exists, or not its inode's.";
    DentryIno = "dentry-ino", Damage,
        "A directory entry's inode does not exist.";
    DentryDots = "dentry-dots", Damage,
        "A directory's `.` or `..` is missing, there twice, or leads elsewhere.";
    DentryDuplicate = "dentry-duplicate", Damage,
        "A directory has the same name twice.";
    DirectoryParents = "directory-parents", Damage,
        "A directory has more than one name.";
    DirectoryCycle = "directory-cycle", Damage,
        "Directories contain each other: they cannot be reached from the root.";
    SummaryType = "summary-type", Minor,
        "A segment's summary, or that of an active log, says data though it holds nodes, or the reverse. Cleaning would fail on it.";
    SummaryOwner = "summary-owner", Damage,
        "A segment's summary names another owner than the block has. Cleaning would lose the block or corrupt a file.";
    SitCount = "sit-count", Fatal,
        "A segment's count of live blocks is not the number of blocks marked live.";
    SitType = "sit-type", Fatal,
        "A segment's type is none that exists.";
    SitClass = "sit-class", Fatal,
        "A segment recorded as a data segment holds nodes, or the reverse.";
    SitUnowned = "sit-unowned", Minor,
        "Blocks are marked live that nothing points to: space is lost until a repair.";
    SitMissing = "sit-missing", Damage,
        "Blocks in use are not marked live: they will be overwritten.";
    ValidBlockCount = "valid-block-count", Minor,
        "The checkpoint's count of live blocks is not what there is, so the free space shown is wrong.";
    ValidNodeCount = "valid-node-count", Fatal,
        "The checkpoint's count of nodes is not what there is. Linux refuses to mount the volume.";
    ValidInodeCount = "valid-inode-count", Minor,
        "The checkpoint's count of inodes is not what there is.";
    FreeSegmentCount = "free-segment-count", Minor,
        "The checkpoint's count of free segments is not what there is.";
    NextFreeNid = "next-free-nid", Minor,
        "The node id where the search for a free one starts does not exist. Linux does not mind; other systems do.";
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for FaultKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_for_programs() {
        let mut names: Vec<_> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FaultKind::ALL.len());
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
        assert!(FaultKind::ALL.iter().all(|kind| kind.explain().ends_with('.')));
    }
}
