//! The fields of one inode, and what they say about its blocks.

use basalt_vfs::FileKind;

use super::fault::{Findings, Place};
use super::kind::FaultKind;
use crate::geometry::Geometry;
use crate::layout::dentry::{DentryShape, MAX_DEPTH};
use crate::layout::inode::{Advise, EXTRA_SIZE_MAX, InlineFlags, RawInode, RawInodeFlags, SLOTS, SLOTS_OFFSET};
use crate::layout::node::ADDRS_PER_NODE;
use crate::layout::superblock::Features;
use crate::layout::{BLOCK_SIZE, Ino, NAME_MAX, Nid};
use crate::node::inode::{SIZE_LIMIT, least_extra_size};
use crate::node::pointers::has_pointers;

/// Fewest slots of inline xattrs: the header of the list.
const INLINE_XATTR_SLOTS_MIN: u16 = 6;
/// Most slots of inline xattrs: what all extra attributes, the reserved slot and a smallest inline directory (40 bytes) leave.
const INLINE_XATTR_SLOTS_MAX: u16 = (SLOTS - EXTRA_SIZE_MAX / 4 - 1 - 10) as u16;
/// Bytes of extra attributes that hold a checksum.
const EXTRA_SIZE_CHECKSUM: usize = 12;
/// Nanoseconds in a second.
pub(crate) const NANOSECONDS: u32 = 1_000_000_000;
/// Largest and smallest cluster of a compressed file, as a power of two of blocks.
const CLUSTER_BITS: std::ops::RangeInclusive<u8> = 2..=8;

/// What an inode's slots hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// What it is; `None` for an impossible mode.
    pub(super) kind: Option<FileKind>,
    /// Block addresses in the inode; 0 if it has inline content or is a device node, FIFO or socket.
    pub(super) addresses: u32,
    /// Block addresses in a direct node.
    pub(super) per_node: u32,
    /// Blocks in a cluster of a compressed file, as a power of two.
    pub(super) cluster_bits: Option<u8>,
    /// Whether the inode holds its directory entries.
    pub(super) inline_directory: bool,
}

/// Checks everything about an inode that it alone can tell.
pub(super) fn check(geometry: &Geometry, findings: &mut Findings, ino: Ino, inode: &RawInode) -> Shape {
    let mut report = Reporter { findings, ino };
    check_checksum(geometry, &mut report, inode);
    check_extra(geometry, &mut report, inode);
    let kind = FileKind::from_mode(inode.i_mode.get().into());
    check_flags(geometry, &mut report, inode, kind);
    if kind.is_none() {
        report.add(FaultKind::InodeMode, format!("mode {:#o}", inode.i_mode.get()), "one of the seven types");
    }
    let inline = check_inline(geometry, &mut report, inode, kind);
    check_directory(&mut report, inode, kind);
    check_extent(&mut report, inode, kind, inline);
    if inode.i_size.get() > SIZE_LIMIT {
        report.add(FaultKind::InodeSize, format!("{} bytes", inode.i_size), format_args!("at most {SIZE_LIMIT}"));
    }
    if inode.i_namelen.get() as usize > NAME_MAX {
        report.add(FaultKind::InodeNameLength, format!("{}", inode.i_namelen), "at most 255");
    }
    let wrong = impossible_times(inode);
    if wrong > 0 {
        report.add(FaultKind::InodeTimes, format!("{wrong} of 3 have a second of nanoseconds or more"), "none");
    }
    shape(geometry, inode, kind)
}

/// How many of an inode's times, of access, change and modification, have nanoseconds that cannot be.
pub(crate) fn impossible_times(inode: &RawInode) -> usize {
    let nanoseconds = [inode.i_atime_nsec, inode.i_ctime_nsec, inode.i_mtime_nsec];
    nanoseconds.iter().filter(|found| found.get() >= NANOSECONDS).count()
}

struct Reporter<'a> {
    findings: &'a mut Findings,
    ino: Ino,
}

impl Reporter<'_> {
    fn add(&mut self, kind: FaultKind, found: String, expected: impl std::fmt::Display) {
        self.findings.add(kind, Place::Inode(self.ino), found, expected);
    }
}

fn check_checksum(geometry: &Geometry, report: &mut Reporter<'_>, inode: &RawInode) {
    if !geometry.features.contains(Features::INODE_CHECKSUM) || !inode.has_extra(EXTRA_SIZE_CHECKSUM) {
        return;
    }
    let (found, expected) = (inode.extra().i_inode_checksum.get(), inode.expected_checksum(geometry.checksum_seed));
    if found != expected {
        report.add(FaultKind::InodeChecksum, format!("{found:#010x}"), format_args!("{expected:#010x}"));
    }
}

fn check_extra(geometry: &Geometry, report: &mut Reporter<'_>, inode: &RawInode) {
    let feature = geometry.features.contains(Features::EXTRA_ATTR);
    let has = inode.is_inline(InlineFlags::EXTRA_ATTR);
    if has != feature {
        let (found, expected) = if has { ("there", "none on this volume") } else { ("none", "as on the whole volume") };
        report.add(FaultKind::InodeExtraAttributes, found.into(), expected);
    }
    if !has {
        return;
    }
    let size = inode.extra().i_extra_isize.get();
    let least = least_extra_size(geometry.features);
    if !(least..=EXTRA_SIZE_MAX).contains(&size.into()) || !size.is_multiple_of(4) {
        let expected = format_args!("{least} to {EXTRA_SIZE_MAX}, in steps of 4");
        report.add(FaultKind::InodeExtraAttributes, format!("{size} bytes"), expected);
    }
    let slots = inode.extra().i_inline_xattr_size.get();
    // Without attributes the room is kept all the same, and tells how many addresses there are.
    let least = if inode.is_inline(InlineFlags::XATTR) { INLINE_XATTR_SLOTS_MIN } else { 0 };
    if geometry.flexible_inline_xattr() && !(least..=INLINE_XATTR_SLOTS_MAX).contains(&slots) {
        let expected = format_args!("{least} to {INLINE_XATTR_SLOTS_MAX}");
        report.add(FaultKind::InodeInlineXattrSize, format!("{slots} slots"), expected);
    }
}

fn raw_flags(inode: &RawInode) -> RawInodeFlags {
    RawInodeFlags::from_bits_retain(inode.i_flags.get())
}

/// Flags that say what the volume cannot have, or no inode of this type.
pub(crate) fn wrong_flags(features: Features, kind: Option<FileKind>, inode: &RawInode) -> (RawInodeFlags, Advise) {
    let lacks = |feature: Features| !features.contains(feature);
    let is_not = |wanted: FileKind| kind.is_some_and(|kind| kind != wanted);
    let flags = [
        (RawInodeFlags::CASEFOLD, lacks(Features::CASEFOLD) || is_not(FileKind::Directory)),
        (RawInodeFlags::COMPRESS, lacks(Features::COMPRESSION)),
    ];
    let advise = [
        (Advise::VERITY, lacks(Features::VERITY) || is_not(FileKind::Regular)),
        (Advise::ENCRYPT, lacks(Features::ENCRYPT)),
        (Advise::ENC_NAME, lacks(Features::ENCRYPT)),
    ];
    let wrong =
        flags.iter().filter(|(_, is_wrong)| *is_wrong).fold(RawInodeFlags::empty(), |all, (flag, _)| all | *flag);
    let advised = advise.iter().filter(|(_, is_wrong)| *is_wrong).fold(Advise::empty(), |all, (flag, _)| all | *flag);
    (raw_flags(inode) & wrong, Advise::from_bits_retain(inode.i_advise) & advised)
}

fn check_flags(geometry: &Geometry, report: &mut Reporter<'_>, inode: &RawInode, kind: Option<FileKind>) {
    let (flags, advise) = wrong_flags(geometry.features, kind, inode);
    let expected = "not on a volume without the feature, nor of this type";
    for (flag, name) in [(RawInodeFlags::CASEFOLD, "case-insensitive"), (RawInodeFlags::COMPRESS, "compressed")] {
        if flags.contains(flag) {
            report.add(FaultKind::InodeFlags, name.into(), expected);
        }
    }
    for (flag, name) in
        [(Advise::VERITY, "verity"), (Advise::ENCRYPT, "encrypted"), (Advise::ENC_NAME, "with an encrypted name")]
    {
        if advise.contains(flag) {
            report.add(FaultKind::InodeFlags, name.into(), expected);
        }
    }
}

/// An inode without block addresses has no extent, a link with a block has a size. What device nodes and their like have here, nobody reads.
fn check_extent(report: &mut Reporter<'_>, inode: &RawInode, kind: Option<FileKind>, inline: bool) {
    let length = inode.i_ext.len.get();
    if inline && length != 0 {
        let found = format!("file blocks {}+{length} at {}", inode.i_ext.fofs, inode.i_ext.blk);
        report.add(FaultKind::InodeExtent, found, "none, as its content is inline");
    }
    let own_nodes = 1 + u64::from(inode.xattr_nid() != Nid::NONE);
    let has_target = if inline { inode.is_inline(InlineFlags::DATA_EXIST) } else { inode.i_blocks.get() > own_nodes };
    if kind == Some(FileKind::Symlink) && inode.i_size.get() == 0 && has_target {
        report.add(FaultKind::InodeSize, "0 bytes".into(), "more, as the link leads somewhere");
    }
}

/// Checks inline content; whether the inode has any.
fn check_inline(geometry: &Geometry, report: &mut Reporter<'_>, inode: &RawInode, kind: Option<FileKind>) -> bool {
    let (data, dentry) = (inode.is_inline(InlineFlags::DATA), inode.is_inline(InlineFlags::DENTRY));
    let wrong_data = data && !matches!(kind, Some(FileKind::Regular | FileKind::Symlink) | None);
    let wrong_dentry = dentry && !matches!(kind, Some(FileKind::Directory) | None);
    if wrong_data || wrong_dentry {
        let found = format!("inline {} in {kind:?}", if wrong_data { "data" } else { "directory" });
        report.add(FaultKind::InodeInlineFlags, found, "data in files and links, entries in directories");
        // What the slots hold is anybody's guess; addresses they are not.
        return true;
    }
    if !data && !dentry {
        return false;
    }
    let range = inode.inline_data_range(geometry.flexible_inline_xattr());
    let reserved = inode.slots[(range.start - SLOTS_OFFSET) / 4 - 1].get();
    if reserved != 0 {
        report.add(FaultKind::InodeInlineReserved, format!("{reserved:#x}"), 0);
    }
    if data {
        check_inline_data(report, inode, range);
        if inode.i_nid.iter().any(|nid| nid.get() != 0) {
            report.add(FaultKind::InodeInlineReserved, "ids of nodes".into(), "none, as its content is inline");
        }
    }
    true
}

fn check_inline_data(report: &mut Reporter<'_>, inode: &RawInode, range: std::ops::Range<usize>) {
    let size = inode.i_size.get();
    if size > range.len() as u64 {
        report.add(FaultKind::InodeSize, format!("{size} bytes inline"), format_args!("at most {}", range.len()));
    }
    // The range lies within the block: address_slots never exceeds the slots.
    let content = zerocopy::IntoBytes::as_bytes(inode).get(range).unwrap_or_default();
    if !inode.is_inline(InlineFlags::DATA_EXIST) && content.iter().any(|&byte| byte != 0) {
        report.add(FaultKind::InodeInlineData, "data".into(), "zeros, as the inode has no data");
    }
}

fn check_directory(report: &mut Reporter<'_>, inode: &RawInode, kind: Option<FileKind>) {
    if kind != Some(FileKind::Directory) {
        return;
    }
    let depth = inode.i_current_depth.get();
    if depth > MAX_DEPTH {
        report.add(FaultKind::InodeDepth, format!("depth {depth}"), format_args!("at most {MAX_DEPTH}"));
    }
}

fn shape(geometry: &Geometry, inode: &RawInode, kind: Option<FileKind>) -> Shape {
    let own = if has_pointers(inode) { inode.address_slots(geometry.flexible_inline_xattr()) } else { 0 };
    let compressed = kind == Some(FileKind::Regular)
        && geometry.features.contains(Features::COMPRESSION)
        && raw_flags(inode).contains(RawInodeFlags::COMPRESS);
    let cluster_bits = Some(inode.extra().i_log_cluster_size).filter(|bits| compressed && CLUSTER_BITS.contains(bits));
    // A cluster never spans two nodes: what is left of their slots stays empty.
    let whole_clusters = |count: u32| cluster_bits.map_or(count, |bits| count >> bits << bits);
    Shape {
        kind,
        addresses: whole_clusters(own),
        per_node: whole_clusters(ADDRS_PER_NODE),
        cluster_bits,
        inline_directory: kind == Some(FileKind::Directory) && inode.is_inline(InlineFlags::DENTRY),
    }
}

/// The bytes of an inline directory and their shape.
pub(super) fn inline_directory<'a>(geometry: &Geometry, inode: &RawInode, block: &'a [u8]) -> (&'a [u8], DentryShape) {
    let range = inode.inline_data_range(geometry.flexible_inline_xattr());
    let shape = DentryShape::inline(range.len());
    debug_assert!(block.len() == BLOCK_SIZE);
    (block.get(range).unwrap_or_default(), shape)
}
