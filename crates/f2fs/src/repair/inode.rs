//! Fields of inodes.

use basalt_vfs::FileKind;
use zerocopy::IntoBytes;

use super::report::{Log, Repair};
use super::state::State;
use crate::check::inode::{NANOSECONDS, impossible_times, wrong_flags};
use crate::check::{CheckReport, Fault, FaultKind, Place, Survey};
use crate::dir::entries;
use crate::error::Result;
use crate::layout::dentry::{DentryShape, MAX_DEPTH};
use crate::layout::inode::{
    DEFAULT_INLINE_XATTR_SLOTS, EXTRA_SIZE_MAX, InlineFlags, RawExtent, RawInode, SLOTS, SLOTS_OFFSET,
};
use crate::layout::superblock::Features;
use crate::layout::xattr;
use crate::layout::{Address, BLOCK_SIZE, Ino, NAME_MAX};
use crate::node::inode::{SIZE_LIMIT, least_extra_size};
use crate::node::level::{Level, level};
use crate::node::path::has_data;

/// Inodes that are asked how many extra attributes there are on a volume.
const EXTRA_SIZES_ASKED: usize = 64;
/// The bits of a mode that are not its type.
const PERMISSIONS: u16 = 0o7777;

impl State {
    /// Repairs a fault of an inode; says what was done.
    pub(super) fn repair_inode(&mut self, survey: &Survey, fault: &Fault) -> Result<Option<String>> {
        let Place::Inode(ino) = fault.place else { return Ok(None) };
        if fault.kind == FaultKind::OrphanInode {
            self.loaded.orphans.retain(|orphan| *orphan != ino);
            return Ok(Some("taken off the list".into()));
        }
        let Some(inode) = self.inode(ino)? else { return Ok(None) };
        let kind = FileKind::from_mode(inode.i_mode.get().into());
        let right = fault.right.unwrap_or_default();
        let flexible = self.geometry.flexible_inline_xattr();
        let features = self.geometry.features;
        let action = match fault.kind {
            FaultKind::InodeChecksum => {
                let mended = self.mend_by_entries(survey, ino, &inode)?;
                let distrusted = if impossible_times(&inode) > 0 { self.distrust(ino)? } else { "" };
                self.seal_inode(ino)?;
                format!("{mended}{distrusted}checksum computed anew")
            }
            FaultKind::InodeMode => return self.guess_mode(survey, ino, &inode).map(Some),
            FaultKind::InodeExtraAttributes => {
                let size = self.likely_extra_size(survey, ino, &inode)?;
                self.edit_inode(ino, |inode| mend_extra(inode, features, size))?;
                "set to what all inodes of the volume have".into()
            }
            FaultKind::InodeInlineXattrSize => {
                let slots = find_xattrs(&inode).unwrap_or(DEFAULT_INLINE_XATTR_SLOTS as u16);
                self.edit_inode(ino, |inode| inode.extra_mut().i_inline_xattr_size.set(slots))?;
                format!("set to {slots} slots")
            }
            FaultKind::InodeInlineFlags => {
                let wrong = match kind {
                    Some(FileKind::Directory) => InlineFlags::DATA,
                    Some(FileKind::Regular | FileKind::Symlink) => InlineFlags::DENTRY,
                    _ => InlineFlags::DATA | InlineFlags::DENTRY,
                };
                self.edit_inode(ino, |inode| inode.i_inline &= !wrong.bits())?;
                // With a right checksum nobody will ask again.
                match self.inode(ino)? {
                    Some(mended) if self.mend_form(ino, &mended)? => "flags turned: its entries are in blocks".into(),
                    _ => "flag cleared".into(),
                }
            }
            FaultKind::InodeInlineReserved => {
                let start = inode.inline_data_range(flexible).start;
                self.edit_inode(ino, |inode| {
                    inode.slots[(start - SLOTS_OFFSET) / 4 - 1].set(0);
                    if inode.is_inline(InlineFlags::DATA) {
                        inode.i_nid.fill(0.into());
                    }
                })?;
                "cleared".into()
            }
            FaultKind::InodeInlineData => {
                // The size stays: what is behind it is not the file's.
                self.edit_inode(ino, |inode| inode.i_inline |= InlineFlags::DATA_EXIST.bits())?;
                "the data counts again".into()
            }
            FaultKind::InodeFlags => {
                let (flags, advise) = wrong_flags(features, kind, &inode);
                self.edit_inode(ino, |inode| {
                    inode.i_flags.set(inode.i_flags.get() & !flags.bits());
                    inode.i_advise &= !advise.bits();
                })?;
                "flag cleared".into()
            }
            FaultKind::InodeSize => {
                let size = self.right_size(survey, ino, &inode)?;
                self.edit_inode(ino, |inode| inode.i_size.set(size))?;
                format!("set to {size} bytes")
            }
            FaultKind::InodeDepth => {
                let deepest = survey.directories.get(&ino).and_then(|directory| directory.deepest);
                let depth = deepest.map_or(1, |deepest| deepest + 1).min(MAX_DEPTH);
                self.edit_inode(ino, |inode| inode.i_current_depth.set(depth))?;
                format!("set to {depth}")
            }
            FaultKind::InodeExtent => {
                let none = RawExtent { fofs: 0.into(), blk: 0.into(), len: 0.into() };
                self.edit_inode(ino, |inode| inode.i_ext = none)?;
                "extent dropped: the addresses count".into()
            }
            FaultKind::InodeTimes => match impossible_times(&inode) {
                0 => "set right with the checksum".into(),
                1 => {
                    self.edit_inode(ino, clear_nanoseconds)?;
                    "nanoseconds cleared".into()
                }
                _ => format!("{}nanoseconds cleared", self.distrust(ino)?),
            },
            FaultKind::InodeNameLength => {
                let length = inode.i_name.iter().position(|&byte| byte == 0).unwrap_or(NAME_MAX);
                self.edit_inode(ino, |inode| inode.i_namelen.set(length as u32))?;
                format!("set to {length}")
            }
            FaultKind::InodeBlockCount => {
                self.edit_inode(ino, |inode| inode.i_blocks.set(right))?;
                format!("set to {right}")
            }
            FaultKind::InodeLinks => {
                self.edit_inode(ino, |inode| inode.i_links.set(right as u32))?;
                format!("set to {right}")
            }
            FaultKind::InodeParent => {
                let Some(&parent) = survey.parents.get(&ino) else { return Ok(None) };
                self.edit_inode(ino, |inode| inode.i_pino.set(parent.get()))?;
                format!("set to {parent}")
            }
            FaultKind::XattrList => return self.cut_xattrs(ino),
            _ => return Ok(None),
        };
        Ok(Some(action))
    }

    /// Inodes whose checksum is right once they have another number of extra attributes get that: their addresses are elsewhere then.
    pub(super) fn mend_extra_sizes(&mut self, report: &CheckReport, log: &mut Log) -> Result<bool> {
        let mut done = false;
        for fault in report.faults.iter().filter(|fault| fault.kind == FaultKind::InodeChecksum) {
            let Place::Inode(ino) = fault.place else { continue };
            let Some(inode) = self.inode(ino)?.filter(|inode| inode.is_inline(InlineFlags::EXTRA_ATTR)) else {
                continue;
            };
            if let Some(size) = self.extra_size_by_checksum(&inode)
                && self.edit_inode(ino, |inode| inode.extra_mut().i_extra_isize.set(size))?
            {
                log.add(Repair::of(fault, format!("{size} bytes of extra attributes, as the checksum says")));
                done = true;
            }
        }
        Ok(done)
    }

    fn is_extra_size(&self, size: u32) -> bool {
        let least = least_extra_size(self.geometry.features);
        size.is_multiple_of(4) && (least..=EXTRA_SIZE_MAX).contains(&size)
    }

    /// How many bytes of extra attributes make an inode's checksum right.
    fn extra_size_by_checksum(&self, inode: &RawInode) -> Option<u16> {
        let mut tried = *inode;
        let mut possible = (0..=EXTRA_SIZE_MAX).filter(|&size| self.is_extra_size(size)).map(|size| size as u16);
        possible.find(|&size| {
            tried.extra_mut().i_extra_isize.set(size);
            tried.expected_checksum(self.geometry.checksum_seed) == inode.extra().i_inode_checksum.get()
        })
    }

    /// How many bytes of extra attributes an inode had: so many that its checksum is right, or that its addresses are where the summaries
    /// say; else as many as most have.
    fn likely_extra_size(&mut self, survey: &Survey, ino: Ino, inode: &RawInode) -> Result<u16> {
        if let Some(size) = self.extra_size_by_checksum(inode) {
            return Ok(size);
        }
        let possible = |size: &u32| self.is_extra_size(*size);
        for (slot, address) in (0u32..).zip(&inode.slots) {
            if !self.geometry.in_main(Address::from(*address)) {
                continue;
            }
            let owner = self.summary(Address::from(*address))?;
            let size = slot.checked_sub(owner.ofs_in_node.get().into()).map(|slots| 4 * slots);
            if let Some(size) = size.filter(|size| owner.nid() == ino.nid() && possible(size)) {
                return Ok(size as u16);
            }
        }
        let mut others: Vec<Ino> = survey.inodes.keys().copied().filter(|&other| other != ino).collect();
        others.sort_unstable();
        let mut counts = [0u32; EXTRA_SIZE_MAX as usize / 4 + 1];
        for other in others.into_iter().take(EXTRA_SIZES_ASKED) {
            let size = self.inode(other)?.map(|other| u32::from(other.extra().i_extra_isize.get()));
            if let Some(size) = size.filter(possible) {
                counts[size as usize / 4] += 1;
            }
        }
        let most = (0u16..).zip(counts).max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
        Ok(most.map_or(crate::format::root::extra_size(self.geometry.features), |(slots, _)| 4 * slots))
    }

    /// An inode of no type becomes what its name says it is, or what it looks like.
    fn guess_mode(&mut self, survey: &Survey, ino: Ino, inode: &RawInode) -> Result<String> {
        let named = survey.typeless.get(&ino).and_then(|&kind| entries::kind_of(kind));
        let looks = if self.looks_like_directory(ino, inode)? { FileKind::Directory } else { FileKind::Regular };
        let kind = named.unwrap_or(looks);
        // Types are the upper four of sixteen bits.
        let mode = kind.mode_bits() as u16 | inode.i_mode.get() & PERMISSIONS;
        self.edit_inode(ino, |inode| inode.i_mode.set(mode))?;
        Ok(format!("now a {kind:?}, mode {mode:#o}"))
    }

    /// Gives an inode to root, for nobody else: its owner, permissions, flags and times are garbage. Says so.
    fn distrust(&mut self, ino: Ino) -> Result<&'static str> {
        self.edit_inode(ino, |inode| {
            let is_directory = FileKind::from_mode(inode.i_mode.get().into()) == Some(FileKind::Directory);
            inode.i_mode.set(inode.i_mode.get() & !PERMISSIONS | if is_directory { 0o700 } else { 0o600 });
            (inode.i_uid, inode.i_gid, inode.i_flags) = (0.into(), 0.into(), 0.into());
            (inode.i_atime, inode.i_ctime, inode.i_mtime) = (0.into(), 0.into(), 0.into());
            clear_nanoseconds(inode);
        })?;
        Ok("root's alone, because owner, permissions and times are garbage, and ")
    }

    /// Mends what the checksum of an inode tells no more than that it is wrong, and names and entries tell; says what was done.
    fn mend_by_entries(&mut self, survey: &Survey, ino: Ino, inode: &RawInode) -> Result<String> {
        if let Some(kind) = self.type_by_name(survey, ino, inode)? {
            let mode = kind.mode_bits() as u16 | inode.i_mode.get() & PERMISSIONS;
            self.edit_inode(ino, |inode| inode.i_mode.set(mode))?;
            return Ok(format!("now a {kind:?}, as its name says, and "));
        }
        let is_turned = self.mend_form(ino, inode)?;
        Ok(if is_turned { "inline or not, as its entries are, and ".into() } else { String::new() })
    }

    /// The type that an inode, whose checksum is wrong, should have: that of its name, where they differ; the root is a directory.
    fn type_by_name(&self, survey: &Survey, ino: Ino, inode: &RawInode) -> Result<Option<FileKind>> {
        if ino == self.geometry.root_ino {
            let is_directory = FileKind::from_mode(inode.i_mode.get().into()) == Some(FileKind::Directory);
            return Ok((!is_directory && self.looks_like_directory(ino, inode)?).then_some(FileKind::Directory));
        }
        Ok(survey.mistyped.get(&ino).and_then(|&kind| entries::kind_of(kind)))
    }

    /// A directory, whose checksum is wrong, that has no entries where its flag says, but has them where the opposite would say: the flag
    /// is turned.
    fn mend_form(&mut self, ino: Ino, inode: &RawInode) -> Result<bool> {
        let is_directory = FileKind::from_mode(inode.i_mode.get().into()) == Some(FileKind::Directory);
        let mut other = *inode;
        other.i_inline ^= InlineFlags::DENTRY.bits();
        if !is_directory || self.looks_like_directory(ino, inode)? || !self.looks_like_directory(ino, &other)? {
            return Ok(false);
        }
        self.edit_inode(ino, |inode| inode.i_inline ^= InlineFlags::DENTRY.bits())
    }

    /// Whether an inode's first entries are those of a directory: a `.` that leads to itself.
    pub(super) fn looks_like_directory(&self, ino: Ino, inode: &RawInode) -> Result<bool> {
        let flexible = self.geometry.flexible_inline_xattr();
        let is_own = |bytes: &[u8], shape: &DentryShape| {
            bytes.len() >= shape.size
                && entries::find(bytes, shape, 0, b".")
                    .is_some_and(|slot| entries::entry(bytes, shape, slot).ino() == ino)
        };
        if inode.is_inline(InlineFlags::DENTRY) {
            let bytes = content(inode, flexible);
            return Ok(is_own(bytes, &DentryShape::inline(bytes.len())));
        }
        let first = inode.addresses(flexible).first().map_or(Address::NULL, |slot| Address::from(*slot));
        Ok(self.geometry.in_main(first) && is_own(&self.block(first)?, &DentryShape::BLOCK))
    }

    fn right_size(&self, survey: &Survey, ino: Ino, inode: &RawInode) -> Result<u64> {
        let block = BLOCK_SIZE as u64;
        if let Some(directory) = survey.directories.get(&ino).filter(|directory| !directory.inline) {
            let least = directory.last_block.map_or(block, |last| (last + 1) * block);
            return Ok(if inode.i_size.get() > SIZE_LIMIT { least } else { inode.i_size.get().max(least) });
        }
        let flexible = self.geometry.flexible_inline_xattr();
        if inode.inline_flags().intersects(InlineFlags::DATA | InlineFlags::DENTRY) {
            // Nothing tells how many of the zeros behind the last byte are the file's.
            let last = content(inode, flexible).iter().rposition(|&byte| byte != 0);
            return Ok(last.map_or(0, |last| last as u64 + 1));
        }
        if FileKind::from_mode(inode.i_mode.get().into()) == Some(FileKind::Symlink) {
            // What it leads to ends at the first zero.
            let first = inode.addresses(flexible).first().map_or(Address::NULL, |slot| Address::from(*slot));
            let target = if self.geometry.in_main(first) { self.block(first)? } else { Vec::new() };
            let length = target.iter().position(|&byte| byte == 0).unwrap_or(target.len());
            return Ok((length as u64).max(1));
        }
        // The end of the last block there is.
        let own = inode.address_slots(flexible);
        let mut blocks = inode
            .addresses(flexible)
            .iter()
            .rposition(|slot| Address::from(*slot) != Address::NULL)
            .map_or(0, |last| last as u64 + 1);
        for (&nid, reference) in survey.references.iter().filter(|(_, reference)| reference.ino == ino) {
            if has_data(reference.offset)
                && let Level::Direct { file_block } = level(reference.offset, own, crate::layout::node::ADDRS_PER_NODE)
            {
                for slot in 0..crate::layout::node::ADDRS_PER_NODE {
                    if self.address(survey, nid, slot)? != Address::NULL {
                        blocks = blocks.max(file_block + u64::from(slot) + 1);
                    }
                }
            }
        }
        Ok((blocks * block).min(SIZE_LIMIT))
    }

    /// Cuts a list of extended attributes off in front of the first that cannot be.
    fn cut_xattrs(&mut self, ino: Ino) -> Result<Option<String>> {
        let Some(inode) = self.inode(ino)? else { return Ok(None) };
        let range = inode.inline_xattr_range(self.geometry.flexible_inline_xattr());
        let mut list = Vec::new();
        if inode.is_inline(InlineFlags::XATTR) {
            list.extend_from_slice(inode.as_bytes().get(range.clone()).unwrap_or_default());
        }
        let inline = list.len();
        let node = self.node(inode.xattr_nid())?;
        list.extend_from_slice(node.as_deref().and_then(|node| node.get(..xattr::NODE_CAPACITY)).unwrap_or_default());
        let Some(kept) = super::xattr::cut(&mut list) else { return Ok(None) };
        if inline > 0 {
            self.edit_inode(ino, |inode| inode.as_mut_bytes()[range].copy_from_slice(&list[..inline]))?;
        }
        if node.is_some() {
            self.edit_node(inode.xattr_nid(), |node| {
                node.as_mut_bytes()[..xattr::NODE_CAPACITY].copy_from_slice(&list[inline..]);
            })?;
        }
        Ok(Some(format!("list cut off behind {kept} sound attributes")))
    }
}

/// An inode's inline content.
fn content(inode: &RawInode, flexible: bool) -> &[u8] {
    inode.as_bytes().get(inode.inline_data_range(flexible)).unwrap_or_default()
}

fn clear_nanoseconds(inode: &mut RawInode) {
    for nanoseconds in [&mut inode.i_atime_nsec, &mut inode.i_ctime_nsec, &mut inode.i_mtime_nsec] {
        if nanoseconds.get() >= NANOSECONDS {
            nanoseconds.set(0);
        }
    }
}

/// Brings extra attributes to what the volume's features ask for.
fn mend_extra(inode: &mut RawInode, features: Features, likely: u16) {
    if !features.contains(Features::EXTRA_ATTR) {
        inode.i_inline &= !InlineFlags::EXTRA_ATTR.bits();
        return;
    }
    inode.i_inline |= InlineFlags::EXTRA_ATTR.bits();
    let size = u32::from(inode.extra().i_extra_isize.get());
    if !(least_extra_size(features)..=EXTRA_SIZE_MAX).contains(&size) || size % 4 != 0 {
        inode.extra_mut().i_extra_isize.set(likely);
    }
}

/// How many slots the inline attributes take, told by the place of their magic number.
fn find_xattrs(inode: &RawInode) -> Option<u16> {
    let from = EXTRA_SIZE_MAX as usize / 4;
    let at = inode.slots[from..].iter().position(|slot| slot.get() == xattr::MAGIC)?;
    u16::try_from(SLOTS as usize - from - at).ok()
}
