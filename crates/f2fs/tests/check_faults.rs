//! fsck: every rule of the format broken once, and found as what it is.

mod editor;
mod repaired;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, CheckReport, FaultKind, Severity, check};
use basalt_f2fs::dir::hash::hash;
use basalt_f2fs::layout::checkpoint::{CheckpointFlags, RawCheckpoint, RawOrphanBlock};
use basalt_f2fs::layout::crc::crc_from;
use basalt_f2fs::layout::inode::{Advise, InlineFlags, RawInode};
use basalt_f2fs::layout::node::RawNode;
use basalt_f2fs::layout::summary::RawSummary;
use basalt_f2fs::layout::superblock::RawSuperblock;
use basalt_f2fs::layout::xattr::RawXattrHeader;
use basalt_f2fs::layout::{Address, set_bit_msb};
use basalt_testkit::images::{TOOLS, fsck_f2fs};
use basalt_testkit::scratch;
use basalt_testkit::skip::tools_or_skip;
use editor::Editor;
use zerocopy::little_endian::U32;

use FaultKind::{CheckpointFlags as CheckpointFlagged, *};

const ROOT: u32 = 3;

fn run(device: &dyn BlockDevice) -> CheckReport {
    check(device, &CheckOptions::default(), &mut |_| ()).unwrap()
}

fn kinds(report: &CheckReport) -> BTreeSet<FaultKind> {
    report.faults.iter().map(|fault| fault.kind).collect()
}

/// One way to break a rule.
struct Case {
    kind: FaultKind,
    how: &'static str,
    damage: fn(&Editor),
    /// What else follows from it.
    also: &'static [FaultKind],
    base: Base,
    /// Paths that a repair cannot bring back as they were.
    harms: &'static [&'static str],
}

/// The volume to start from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// Something of everything, cleanly closed.
    Clean,
    /// With an orphan, and not unmounted.
    Orphan,
    /// With the size of inline xattrs kept in each inode.
    Flexible,
}

const fn case(kind: FaultKind, how: &'static str, damage: fn(&Editor)) -> Case {
    Case { kind, how, damage, also: &[], base: Base::Clean, harms: &[] }
}

impl Case {
    const fn also(self, also: &'static [FaultKind]) -> Case {
        Case { also, ..self }
    }

    const fn harms(self, harms: &'static [&'static str]) -> Case {
        Case { harms, ..self }
    }

    const fn with_orphan(self) -> Case {
        Case { base: Base::Orphan, ..self }
    }

    const fn on_flexible(self) -> Case {
        Case { base: Base::Flexible, ..self }
    }
}

/// Marks a block as free or live in the SIT, count included.
fn mark(editor: &Editor, address: u32, live: bool) {
    let (segment, block) = editor.segment_of(Address::new(address));
    editor.edit_sit(segment, |entry| {
        set_bit_msb(&mut entry.valid_map, block, live);
        let count = entry.vblocks.get();
        entry.vblocks.set(if live { count + 1 } else { count - 1 });
    });
}

/// Address of file block `index` of the file `big`.
fn big_block(editor: &Editor, index: usize) -> u32 {
    let big = editor.path(&["big"]);
    editor.inode(big).slots[editor.slot(big, index)].get()
}

/// Node `index` of `i_nid` of the file `big`.
fn big_node(editor: &Editor, index: usize) -> u32 {
    editor.inode(editor.path(&["big"])).i_nid[index].get()
}

fn edit_xattr_node(editor: &Editor, change: impl FnOnce(&mut RawXattrHeader, &mut [u8])) {
    let nid = editor.inode(editor.path(&["more attributes"])).i_xattr_nid.get();
    let mut block = editor.block(editor.node_address(nid));
    let (header, rest) = zerocopy::FromBytes::mut_from_prefix(&mut block).unwrap();
    change(header, rest);
    editor.put(editor.node_address(nid), &block);
}

const SUPERBLOCK: &[Case] = &[
    case(SuperblockMagic, "first copy wiped", |e| e.put(Address::new(0), &[0; 4096])),
    case(SuperblockMagic, "second copy wiped", |e| e.put(Address::new(1), &[0; 4096])),
    case(SuperblockChecksum, "a byte of the first copy", |e| {
        e.edit((Address::new(0), 1024), |sb: &mut RawSuperblock| sb.volume_name[0].set(77));
    }),
    case(SuperblockChecksum, "a byte of the second copy", |e| {
        e.edit((Address::new(1), 1024), |sb: &mut RawSuperblock| sb.uuid[0] ^= 1);
    }),
    case(SuperblockFields, "areas that do not follow", |e| e.superblock(0, |sb| sb.sit_blkaddr.set(1))),
    case(SuperblockFields, "no section", |e| e.superblock(0, |sb| sb.segs_per_sec.set(0))),
    case(SuperblockFields, "more than the device has", |e| {
        e.superblock(1, |sb| {
            sb.segment_count_main.set(sb.segment_count_main.get() + 512);
            sb.section_count.set(sb.section_count.get() + 512);
            sb.segment_count.set(sb.segment_count.get() + 512);
            sb.block_count.set(sb.block_count.get() + 512 * 512);
        });
    }),
    case(SuperblockFields, "root is not inode 3", |e| e.superblock(0, |sb| sb.root_ino.set(4))),
    case(QuotaInode, "no inode", |e| {
        (0..2).for_each(|copy| e.superblock(copy, |sb| sb.qf_ino[0].set(40_000)));
    }),
    case(QuotaInode, "a pipe", |e| {
        let pipe = e.path(&["pipe"]);
        (0..2).for_each(|copy| e.superblock(copy, |sb| sb.qf_ino[1].set(pipe)));
    }),
    case(SuperblockCopiesDiffer, "another label", |e| e.superblock(1, |sb| sb.volume_name[0].set(77))),
];

const CHECKPOINT: &[Case] = &[
    case(CheckpointPack, "the other pack wiped", |e| {
        let other = e.geometry.checkpoint + 512 * (1 - e.loaded.pack.index);
        e.put(other, &[0; 4096]);
    }),
    case(CheckpointEnd, "a byte of the first block", |e| {
        e.edit((e.pack().0, 300), |byte: &mut [u8; 1]| byte[0] ^= 4);
    }),
    case(CheckpointEnd, "the first block wiped", |e| e.put(e.pack().0, &[0; 4096])),
    case(CheckpointEnd, "a byte of the last block", |e| {
        let (start, total) = e.pack();
        e.edit((start + total - 1, 40), |byte: &mut [u8; 1]| byte[0] ^= 4);
    }),
    case(CheckpointPack, "the last block half written", |e| {
        let (start, total) = e.pack();
        e.edit((start + total - 1, 0), |version: &mut [u8; 512]| version.fill(0));
    }),
    case(CheckpointUnreadable, "both packs wiped", |e| {
        let blocks = Address::all(e.geometry.checkpoint..e.geometry.checkpoint + 1024);
        blocks.filter(|&at| e.is_checkpoint(at)).for_each(|at| e.put(at, &[0; 4096]));
    })
    .also(&[]),
    case(CheckpointFields, "no room for users", |e| e.checkpoint(|cp| cp.user_block_count.set(0))),
    case(CheckpointFields, "more in use than users have", |e| e.checkpoint(|cp| cp.valid_block_count.set(u64::MAX))),
    case(CheckpointFields, "nothing reserved", |e| e.checkpoint(|cp| cp.rsvd_segment_count.set(0))),
    case(CheckpointFields, "all reserved", |e| e.checkpoint(|cp| cp.rsvd_segment_count.set(u32::MAX))),
    case(CheckpointFields, "no over-provisioning", |e| e.checkpoint(|cp| cp.overprov_segment_count.set(0))),
    case(CheckpointFields, "SIT bitmap", |e| e.checkpoint(|cp| cp.sit_ver_bitmap_bytesize.set(65))),
    case(CheckpointFields, "NAT bitmap", |e| e.checkpoint(|cp| cp.nat_ver_bitmap_bytesize.set(u32::MAX))),
    case(CheckpointFields, "summaries at the head", |e| e.checkpoint(|cp| cp.cp_pack_start_sum.set(0))),
    case(CheckpointFields, "summaries past the tail", |e| e.checkpoint(|cp| cp.cp_pack_start_sum.set(500))),
    case(CheckpointFlagged, "error", |e| set_flag(e, CheckpointFlags::ERROR)),
    case(CheckpointFlagged, "check wanted", |e| set_flag(e, CheckpointFlags::FSCK)),
    case(CheckpointParity, "version one higher", |e| {
        e.checkpoint(|cp| cp.checkpoint_ver.set(cp.checkpoint_ver.get() + 1));
    }),
    case(LogPosition, "segment outside", |e| e.checkpoint(|cp| cp.cur_data_segno[1].set(1 << 20))),
    case(LogPosition, "block outside", |e| e.checkpoint(|cp| cp.cur_node_blkoff[2].set(512))),
    case(LogPosition, "two logs in one segment", |e| {
        e.checkpoint(|cp| cp.cur_data_segno[1] = cp.cur_data_segno[2]);
    }),
    case(LogMode, "mode 2 of the first log", |e| e.checkpoint(|cp| cp.alloc_type[0] = 2)),
    case(LogMode, "mode 2", |e| e.checkpoint(|cp| cp.alloc_type[3] = 2)),
    case(LogMode, "mode 255 of the last log", |e| e.checkpoint(|cp| cp.alloc_type[5] = 255)),
    case(LogType, "cold data segment typed warm", |e| {
        e.edit_sit(e.loaded.logs[2].segment, |sit| sit.vblocks.set(sit.vblocks.get() & 0x3FF | 1 << 10));
    }),
    case(LogNextBlock, "back on a live block", |e| {
        e.checkpoint(|cp| cp.cur_node_blkoff[1].set(cp.cur_node_blkoff[1].get() - 1));
    }),
    case(NatJournal, "too many entries", |e| e.edit(e.journals().0, |count: &mut [u8; 2]| *count = [39, 0])),
    case(NatJournal, "entry of no node", |e| {
        let ((block, byte), _) = e.journals();
        let count = e.loaded.nat_journal.len();
        assert!(count < 38);
        e.edit((block, byte), |stored: &mut [u8; 2]| stored[0] += 1);
        e.edit((block, byte + 2 + 13 * count), |nid: &mut U32| nid.set(u32::MAX));
    }),
    case(SitJournal, "too many entries", |e| e.edit(e.journals().1, |count: &mut [u8; 2]| *count = [7, 0])),
    case(SitJournal, "entry of no segment", |e| {
        let (_, (block, byte)) = e.journals();
        e.edit((block, byte), |count: &mut [u8; 2]| *count = [1, 0]);
        e.edit((block, byte + 2), |segment: &mut U32| segment.set(e.geometry.main_segments));
    }),
    case(OrphanBlock, "1021 orphans", |e| {
        e.edit((e.pack().0 + 1, 0), |orphans: &mut RawOrphanBlock| orphans.entry_count.set(1021));
    })
    .with_orphan(),
    case(OrphanInode, "an inode with links", |e| {
        e.edit((e.pack().0 + 1, 0), |orphans: &mut RawOrphanBlock| {
            orphans.entry_count.set(2);
            orphans.ino[1].set(e.path(&["small"]));
        });
    })
    .with_orphan(),
    case(OrphanInode, "no inode", |e| {
        e.edit((e.pack().0 + 1, 0), |orphans: &mut RawOrphanBlock| {
            orphans.entry_count.set(2);
            orphans.ino[1].set(40_000);
        });
    })
    .with_orphan(),
    case(OrphanInode, "listed twice", |e| {
        e.edit((e.pack().0 + 1, 0), |orphans: &mut RawOrphanBlock| {
            orphans.entry_count.set(2);
            orphans.ino[1] = orphans.ino[0];
        });
    })
    .with_orphan(),
    case(NotUnmounted, "no unmount flag", |e| e.checkpoint(clear_unmount)).also(&[]),
    case(RollForward, "a node behind the checkpoint", |e| node_behind_the_checkpoint(e, 1)).also(&[NotUnmounted]),
    case(RollForward, "a torn inode behind the checkpoint", |e| node_behind_the_checkpoint(e, 0)).also(&[NotUnmounted]),
    case(FsyncLost, "a seal behind the checkpoint, and not what it says was durable", seal_without_beginning)
        .also(&[NotUnmounted]),
    case(ValidBlockCount, "one more", |e| {
        e.checkpoint(|cp| cp.valid_block_count.set(cp.valid_block_count.get() + 1));
    }),
    case(ValidNodeCount, "one less", |e| {
        e.checkpoint(|cp| cp.valid_node_count.set(cp.valid_node_count.get() - 1));
    }),
    case(ValidInodeCount, "one more", |e| {
        e.checkpoint(|cp| cp.valid_inode_count.set(cp.valid_inode_count.get() + 1));
    }),
    case(FreeSegmentCount, "one more", |e| {
        e.checkpoint(|cp| cp.free_segment_count.set(cp.free_segment_count.get() + 1));
    }),
    case(NextFreeNid, "no such id", |e| e.checkpoint(|cp| cp.next_free_nid.set(u32::MAX))),
];

/// The node of a file at `offset` in its tree, fsynced: nothing of it is there but the footer.
fn node_behind_the_checkpoint(editor: &Editor, offset: u32) {
    let (address, mut node) = chained(editor);
    node.footer.ino.set(9);
    node.footer.flag.set(2 | offset << 3);
    editor.put(Address::new(address), zerocopy::IntoBytes::as_bytes(&node));
}

/// A seal without entries that says that one block of the chain was durable: the one in front of it, which is not there.
fn seal_without_beginning(editor: &Editor) {
    let (address, mut seal) = chained(editor);
    seal.slots[0].set(u32::from_le_bytes(*b"BSEL"));
    // Durable blocks, and those in front of it.
    seal.slots[4].set(1);
    seal.slots[5].set(1);
    let bytes = zerocopy::IntoBytes::as_bytes(&seal);
    let covered = [&bytes[..12], &bytes[16..24], &bytes[4072..]];
    let sum = covered.into_iter().fold(u32::from_le_bytes(*b"BSEA"), crc_from);
    seal.slots[3].set(sum);
    editor.put(Address::new(address + 1), zerocopy::IntoBytes::as_bytes(&seal));
}

/// Where the chain behind the checkpoint begins, and a node of it, empty, that leads nowhere else.
fn chained(editor: &Editor) -> (u32, RawNode) {
    editor.checkpoint(clear_unmount);
    let mut node: RawNode = zerocopy::FromZeros::new_zeroed();
    let head = editor.block(editor.pack().0);
    let crc = u32::from_le_bytes(head[4092..].try_into().unwrap());
    node.footer.cp_ver.set(editor.loaded.pack.raw.checkpoint_ver.get() | u64::from(crc) << 32);
    let log = &editor.loaded.logs[4];
    let address = editor.geometry.in_segment(log.segment, log.offset);
    node.footer.next_blkaddr.set(address.get());
    (address.get(), node)
}

fn set_flag(editor: &Editor, flag: CheckpointFlags) {
    editor.checkpoint(|cp| cp.ckpt_flags.set(cp.ckpt_flags.get() | flag.bits()));
}

/// Without the unmount flag the node summaries are taken from the nodes: the pack is shorter by them.
fn clear_unmount(cp: &mut RawCheckpoint) {
    let flags =
        cp.flags().difference(CheckpointFlags::UMOUNT) | CheckpointFlags::FASTBOOT | CheckpointFlags::CRC_RECOVERY;
    cp.ckpt_flags.set(flags.bits());
}

const NODES: &[Case] = &[
    case(NatReserved, "entry 0 in use", |e| e.edit_nat(0, |nat| nat.block_addr.set(e.geometry.main.get()))),
    case(NatReserved, "entry 1 free", |e| e.edit_nat(1, |nat| nat.block_addr.set(0))),
    case(NatAddress, "outside the main area", |e| {
        e.edit_nat(e.path(&["pipe"]), |nat| nat.block_addr.set(5));
    })
    .also(&[NatMissing, ValidBlockCount, ValidNodeCount, ValidInodeCount]),
    case(NatAddress, "never written", |e| e.edit_nat(e.path(&["pipe"]), |nat| nat.block_addr.set(Address::NEW.get())))
        .also(&[NatMissing, ValidBlockCount, ValidNodeCount, ValidInodeCount]),
    case(NatDuplicateAddress, "as the next inode", |e| {
        let (first, second) = (e.path(&["pipe"]), e.path(&["device"]));
        e.edit_nat(first.max(second), |nat| nat.block_addr = e.nat(first.min(second)).block_addr);
    })
    .also(&[NatMissing, ValidBlockCount, ValidNodeCount, ValidInodeCount]),
    case(NatMissing, "free", |e| e.edit_nat(e.path(&["pipe"]), |nat| nat.block_addr.set(0))).also(&[
        DentryIno,
        ValidBlockCount,
        ValidNodeCount,
        ValidInodeCount,
    ]),
    case(NatMissing, "a direct node's is free", |e| e.edit_nat(big_node(e, 1), |nat| nat.block_addr.set(0))).also(&[
        NodeReference,
        SitUnowned,
        ValidBlockCount,
        ValidNodeCount,
        FreeSegmentCount,
    ]),
    case(NatIno, "an inode of another", |e| e.edit_nat(e.path(&["pipe"]), |nat| nat.ino.set(ROOT))),
    case(NatIno, "a direct node of another", |e| e.edit_nat(big_node(e, 0), |nat| nat.ino.set(ROOT))),
    case(NatIno, "a direct node as an inode", |e| {
        e.edit_nat(big_node(e, 0), |nat| nat.ino.set(big_node(e, 0)));
    }),
    case(NodeFooterNid, "a direct node", |e| e.edit_node(big_node(e, 1), |node| node.footer.nid.set(9999))),
    case(NodeFooterNid, "an inode", |e| e.edit_inode(e.path(&["pipe"]), |inode| inode.footer.nid.set(9999))),
    case(NodeFooterNid, "an inode overwritten", |e| e.put(e.node_address(e.path(&["pipe"])), &[0xA5; 4096]))
        .harms(&["/pipe"])
        .also(&[ValidInodeCount]),
    case(NodeFooterIno, "a direct node", |e| e.edit_node(big_node(e, 0), |node| node.footer.ino.set(ROOT))),
    case(NodeFooterIno, "a direct node as an inode", |e| {
        e.edit_node(big_node(e, 0), |node| node.footer.ino.set(big_node(e, 0)));
    }),
    case(NodeFooterIno, "an inode", |e| e.edit_inode(e.path(&["pipe"]), |inode| inode.footer.ino.set(ROOT))),
    case(NodeFooterOffset, "a direct node", |e| {
        e.edit_node(big_node(e, 0), |node| node.footer.flag.set(7 << 3 | 1));
    }),
    case(NodeFooterOffset, "an inode", |e| e.edit_inode(e.path(&["pipe"]), |inode| inode.footer.flag.set(8))),
    case(NodeReference, "free", |e| e.edit_inode(e.path(&["big"]), |inode| inode.i_nid[3].set(40_000))),
    case(NodeReference, "out of range", |e| e.edit_inode(e.path(&["big"]), |inode| inode.i_nid[3].set(u32::MAX))),
    case(NodeReference, "an inode", |e| e.edit_inode(e.path(&["big"]), |inode| inode.i_nid[3].set(e.path(&["pipe"])))),
    case(NodeReference, "free, in an indirect node", |e| {
        e.edit_node(big_node(e, 2), |node| node.slots[700].set(40_000));
    }),
    case(NodeDuplicateReference, "twice in one file", |e| {
        let first = big_node(e, 0);
        e.edit_inode(e.path(&["big"]), |inode| inode.i_nid[3].set(first));
    }),
    case(NodeUnreachable, "pointer cleared", |e| e.edit_inode(e.path(&["big"]), |inode| inode.i_nid[1].set(0)))
        .also(&[InodeBlockCount]),
    case(BlockAddress, "outside the main area", |e| {
        let slot = e.slot(e.path(&["big"]), 3);
        mark(e, big_block(e, 3), false);
        e.checkpoint(|cp| cp.valid_block_count.set(cp.valid_block_count.get() - 1));
        e.edit_inode(e.path(&["big"]), |inode| inode.slots[slot].set(7));
    })
    .harms(&["/big"]),
    case(BlockAddress, "compressed, in a plain file", |e| {
        let mut direct = 0;
        e.edit_node(big_node(e, 2), |indirect| direct = indirect.slots[0].get());
        e.edit_node(direct, |node| node.slots[1000].set(u32::MAX - 1));
    }),
    case(BlockDuplicate, "two blocks of a file are one", |e| {
        let slot = e.slot(e.path(&["big"]), 3);
        let other = big_block(e, 4);
        mark(e, big_block(e, 3), false);
        e.checkpoint(|cp| cp.valid_block_count.set(cp.valid_block_count.get() - 1));
        e.edit_inode(e.path(&["big"]), |inode| inode.slots[slot].set(other));
    })
    .harms(&["/big"])
    // The summary of the shared block names the later owner.
    .also(&[SummaryOwner]),
];

const INODES: &[Case] = &[
    case(InodeChecksum, "a byte", |e| {
        e.edit((e.node_address(e.path(&["pipe"])), 0), |inode: &mut RawInode| inode.i_uid.set(5));
    }),
    case(InodeMode, "no type", |e| e.edit_inode(e.path(&["pipe"]), |inode| inode.i_mode.set(0o755))),
    case(InodeExtraAttributes, "size", |e| {
        e.edit_inode(e.path(&["pipe"]), |inode| inode.extra_mut().i_extra_isize.set(38));
    }),
    case(InodeExtraAttributes, "none", |e| {
        e.edit((e.node_address(e.path(&["pipe"])), 0), |inode: &mut RawInode| {
            inode.i_inline &= !InlineFlags::EXTRA_ATTR.bits();
        });
    }),
    case(InodeExtraAttributes, "too small for the checksum", |e| {
        e.edit_inode(e.path(&["pipe"]), |inode| inode.extra_mut().i_extra_isize.set(4));
    }),
    case(InodeExtraAttributes, "too small, in a large file", |e| {
        e.edit_inode(e.path(&["big"]), |inode| inode.extra_mut().i_extra_isize.set(4));
    })
    .also(&[BlockAddress, SummaryOwner]),
    case(InodeInlineXattrSize, "more than fits", |e| {
        e.edit_inode(e.path(&["attributes"]), |inode| inode.extra_mut().i_inline_xattr_size.set(910));
    })
    .on_flexible(),
    case(InodeInlineXattrSize, "more than fits, without attributes", |e| {
        e.edit_inode(e.path(&["pipe"]), |inode| {
            inode.i_inline &= !InlineFlags::XATTR.bits();
            inode.extra_mut().i_inline_xattr_size.set(9_000);
        });
    })
    .on_flexible(),
    case(InodeInlineFlags, "inline data in a pipe", |e| {
        e.edit_inode(e.path(&["pipe"]), |inode| inode.i_inline |= InlineFlags::DATA.bits());
    }),
    case(InodeInlineFlags, "inline directory in a file", |e| {
        e.edit_inode(e.path(&["small"]), |inode| inode.i_inline |= InlineFlags::DENTRY.bits());
    }),
    case(InodeInlineReserved, "reserved slot", |e| {
        let slot = e.slot(e.path(&["small"]), 0);
        e.edit_inode(e.path(&["small"]), |inode| inode.slots[slot].set(1));
    }),
    case(InodeInlineReserved, "a node", |e| {
        e.edit_inode(e.path(&["small"]), |inode| inode.i_nid[1].set(40_000));
    }),
    case(InodeInlineData, "said to be empty", |e| {
        e.edit_inode(e.path(&["small"]), |inode| inode.i_inline &= !InlineFlags::DATA_EXIST.bits());
    }),
    case(InodeFlags, "casefold", |e| e.edit_inode(e.path(&["outer"]), |inode| inode.i_flags.set(0x4000_0000))),
    case(InodeFlags, "compressed", |e| e.edit_inode(e.path(&["big"]), |inode| inode.i_flags.set(4))),
    case(InodeFlags, "verity", |e| e.edit_inode(e.path(&["big"]), |inode| inode.i_advise |= 0xC0)),
    case(InodeFlags, "verity, of a directory", |e| e.edit_inode(e.path(&["outer"]), |inode| inode.i_advise |= 0x40)),
    case(InodeFlags, "encrypted", |e| e.edit_inode(e.path(&["small"]), |inode| inode.i_advise |= 0x0C)),
    case(InodeSize, "a link without a target", |e| e.edit_inode(e.path(&["link"]), |inode| inode.i_size.set(0))),
    case(InodeSize, "inline data", |e| e.edit_inode(e.path(&["small"]), |inode| inode.i_size.set(4096))),
    case(InodeSize, "directory", |e| e.edit_inode(e.path(&["crowd"]), |inode| inode.i_size.set(4096))),
    case(InodeDepth, "too small", |e| e.edit_inode(e.path(&["crowd"]), |inode| inode.i_current_depth.set(1))),
    case(InodeDepth, "too large", |e| e.edit_inode(e.path(&["crowd"]), |inode| inode.i_current_depth.set(64))),
    case(InodeExtent, "elsewhere", |e| {
        let first = big_block(e, 0);
        e.edit_inode(e.path(&["big"]), |inode| {
            inode.i_ext.blk.set(first + 1);
            inode.i_ext.len.set(9);
        });
    }),
    case(InodeExtent, "past a hole", |e| {
        e.edit_inode(e.path(&["big"]), |inode| {
            inode.i_ext.fofs.set(12 * 256 - 1);
            inode.i_ext.blk.set(e.geometry.main.get());
            inode.i_ext.len.set(9);
        });
    }),
    case(InodeExtent, "of an inline file", |e| set_extent(e, "small")),
    case(InodeExtent, "of an inline directory", |e| set_extent(e, "outer")),
    case(InodeExtent, "of an inline link", |e| set_extent(e, "link")),
    case(InodeExtent, "of a directory", |e| set_extent(e, "crowd")),
    case(InodeXattrNid, "free", |e| e.edit_inode(e.path(&["small"]), |inode| inode.i_xattr_nid.set(40_000))),
    case(InodeTimes, "of access", |e| e.edit_inode(e.path(&["small"]), |inode| inode.i_atime_nsec.set(1_000_000_000))),
    case(InodeNameLength, "256", |e| e.edit_inode(e.path(&["small"]), |inode| inode.i_namelen.set(256))),
    case(InodeBlockCount, "one more", |e| {
        e.edit_inode(e.path(&["big"]), |inode| inode.i_blocks.set(inode.i_blocks.get() + 1));
    }),
    case(InodeBlockCount, "an empty file", |e| e.edit_inode(e.path(&["pipe"]), |inode| inode.i_blocks.set(0))),
    case(InodeLinks, "file", |e| e.edit_inode(e.path(&["linked"]), |inode| inode.i_links.set(3))),
    case(InodeLinks, "none", |e| e.edit_inode(e.path(&["pipe"]), |inode| inode.i_links.set(0))),
    case(InodeLinks, "directory", |e| e.edit_inode(e.path(&["outer"]), |inode| inode.i_links.set(2))),
    case(InodeParent, "another directory", |e| {
        e.edit_inode(e.path(&["outer", "inner"]), |inode| inode.i_pino.set(ROOT));
    }),
    case(InodeUnreachable, "name removed", |e| {
        let (_, _, (block, _), _) = e.entry(ROOT, "pipe");
        let slot = entry_slot(e, "pipe");
        e.edit((block, 0), |map: &mut [u8; 27]| map[slot / 8] &= !(1 << (slot % 8)));
    }),
    case(XattrList, "inline", |e| {
        let ino = e.path(&["attributes"]);
        let range = e.inode(ino).inline_xattr_range(false);
        e.edit((e.node_address(ino), range.start + 24), |entry: &mut [u8; 4]| entry[3] = 0xFF);
        e.renew_checksum(ino);
    })
    .harms(&["/attributes"]),
    case(XattrList, "in a node", |e| {
        edit_xattr_node(e, |_, rest| rest[..1900].fill(0xFF));
    })
    .harms(&["/more attributes"]),
    case(RootDirectory, "a file", |e| {
        e.edit_inode(ROOT, |inode| {
            inode.i_mode.set(0o100_755);
            inode.i_advise = Advise::empty().bits();
        });
    })
    // Nothing has a name any more.
    .also(&[InodeUnreachable, InodeLinks]),
];

/// An extent of blocks that are not there.
fn set_extent(editor: &Editor, name: &str) {
    editor.edit_inode(editor.path(&[name]), |inode| {
        inode.i_ext.fofs.set(2);
        inode.i_ext.blk.set((editor.geometry.main + 7).get());
        inode.i_ext.len.set(3);
    });
}

/// The slot of a name in the root's first block.
fn entry_slot(editor: &Editor, name: &str) -> usize {
    let (_, _, (_, byte), _) = editor.entry(ROOT, name);
    (byte - 30) / 11
}

const NAMES: &[Case] = &[
    case(DentryNameLength, "empty", |e| e.edit_entry(ROOT, "pipe", |entry| entry.name_len.set(0))),
    case(DentryNameLength, "longer than its slots", |e| e.edit_entry(ROOT, "pipe", |entry| entry.name_len.set(4000))),
    case(DentryNameLength, "empty, and of no hash", |e| {
        e.edit_entry(ROOT, "pipe", |entry| (entry.name_len, entry.hash_code) = (0.into(), 1.into()));
    })
    .also(&[InodeUnreachable]),
    case(DentryNameLength, "too short", |e| e.edit_entry(ROOT, "pipe", |entry| entry.name_len.set(3))),
    case(DentryName, "slash", |e| {
        e.edit_name(ROOT, "pipe", |name| *name = *b"a/bc");
        e.edit_entry_at(ROOT, "a/bc", hash(b"a/bc"));
    })
    .harms(&["/pipe", "/a_bc"]),
    case(DentryName, "zero byte", |e| {
        e.edit_name(ROOT, "pipe", |name| *name = *b"a\0bc");
        e.edit_entry_at(ROOT, "a\0bc", hash(b"a\0bc"));
    })
    .harms(&["/pipe", "/a_bc"]),
    case(DentryHash, "a bit", |e| {
        e.edit_entry(ROOT, "pipe", |entry| entry.hash_code.set(entry.hash_code.get() ^ 1));
    }),
    case(DentryHash, "inline", |e| e.edit_entry(e.path(&["outer"]), "inner", |entry| entry.hash_code.set(1))),
    case(DentryHash, "of a dot", |e| e.edit_entry(ROOT, ".", |entry| entry.hash_code.set(1))),
    case(DentryBucket, "another name's place", |e| {
        let crowd = e.path(&["crowd"]);
        // A name of the same length that belongs into another bucket of the deepest level.
        let (name, _, entry, spot) = e.entries(crowd).pop().unwrap();
        let mut other = name.clone();
        other[..4].copy_from_slice(b"x012");
        while hash(&other) % 2 == hash(&name) % 2 {
            other[0] += 1;
        }
        e.edit(spot, |bytes: &mut [u8; 4]| bytes.copy_from_slice(&other[..4]));
        e.edit(entry, |raw: &mut basalt_f2fs::layout::dentry::RawDentry| raw.hash_code.set(hash(&other)));
    })
    .harms(&["/crowd/a file with a longer name 688", "/crowd/x012le with a longer name 688"]),
    case(DentryType, "none", |e| e.edit_entry(ROOT, "pipe", |entry| entry.file_type = 0)),
    case(DentryType, "another", |e| e.edit_entry(ROOT, "pipe", |entry| entry.file_type = 1)),
    case(DentryIno, "free", |e| e.edit_entry(ROOT, "pipe", |entry| entry.ino.set(40_000))).also(&[InodeUnreachable]),
    case(DentryIno, "a node", |e| e.edit_entry(ROOT, "pipe", |entry| entry.ino.set(big_node(e, 0))))
        .also(&[InodeUnreachable]),
    case(DentryDots, "dot elsewhere", |e| e.edit_entry(e.path(&["outer"]), ".", |entry| entry.ino.set(ROOT))),
    case(DentryDots, "dot-dot elsewhere", |e| {
        e.edit_entry(e.path(&["outer", "inner"]), "..", |entry| entry.ino.set(ROOT));
    }),
    case(DentryDots, "of the root", |e| e.edit_entry(ROOT, "..", |entry| entry.ino.set(e.path(&["outer"])))),
    case(DentryDuplicate, "one name renamed to another", |e| {
        // Both names are in the same block of the root's first level, and short.
        e.edit_name(ROOT, "pipe", |name| *name = *b"link");
        e.edit_entry_of(ROOT, "link", e.find_kind(ROOT, 5), hash(b"link"));
    })
    .harms(&["/pipe", "/link~1"]),
    case(DirectoryParents, "a second name", |e| {
        let inner = e.path(&["outer", "inner"]);
        e.edit_entry(ROOT, "pipe", |entry| {
            entry.ino.set(inner);
            entry.file_type = 2;
        });
    })
    .also(&[InodeUnreachable, InodeLinks]),
    case(DirectoryCycle, "a directory in itself", |e| {
        let (outer, inner) = (e.path(&["outer"]), e.path(&["outer", "inner"]));
        let innermost = e.path(&["outer", "inner", "innermost"]);
        // The name `innermost` now leads to `outer`, and the name `outer` to `innermost`.
        e.edit_entry(inner, "innermost", |entry| entry.ino.set(outer));
        e.edit_entry(ROOT, "outer", |entry| entry.ino.set(innermost));
        for (ino, parent) in [(outer, inner), (innermost, ROOT)] {
            e.edit_entry(ino, "..", |entry| entry.ino.set(parent));
            e.edit_inode(ino, |inode| inode.i_pino.set(parent));
        }
    })
    .harms(&["/outer/", "/outer/inner/", "/outer/inner/innermost/", "/outer/second name"]),
];

const SEGMENTS: &[Case] = &[
    case(SummaryType, "nodes as data", |e| {
        e.edit(e.summary_type(e.quiet_segment(4)), |kind: &mut [u8; 1]| *kind = [0]);
    }),
    case(SummaryType, "a log's nodes as data", |e| {
        let (start, total) = e.pack();
        let (_, byte) = e.summary_type(e.quiet_segment(4));
        e.edit((start + total - 3, byte), |kind: &mut [u8; 1]| *kind = [0]);
    }),
    case(SummaryOwner, "data block", |e| {
        e.edit(e.summary(Address::new(big_block(e, 5))), |entry: &mut RawSummary| entry.ofs_in_node.set(6));
    }),
    case(SummaryOwner, "version", |e| {
        e.edit(e.summary(Address::new(big_block(e, 5))), |entry: &mut RawSummary| entry.version += 1);
    }),
    case(SummaryOwner, "node", |e| {
        let segment = e.quiet_segment(4);
        let live = (0..512).find(|&block| basalt_f2fs::layout::bit_msb(&e.sit(segment).valid_map, block)).unwrap();
        e.edit(e.summary(e.geometry.in_segment(segment, live as u32)), |entry: &mut RawSummary| entry.nid.set(1));
    }),
    case(SitCount, "one more", |e| {
        e.edit_sit(e.quiet_segment(1), |sit| sit.vblocks.set(sit.vblocks.get() ^ 1));
    }),
    case(SitType, "type 6", |e| {
        e.edit_sit(e.quiet_segment(1), |sit| sit.vblocks.set(sit.vblocks.get() & 0x3FF | 6 << 10));
    }),
    case(SitType, "type 63 of a free segment", |e| e.edit_sit(e.free_segment(), |sit| sit.vblocks.set(63 << 10))),
    case(SitClass, "data as nodes", |e| {
        e.edit_sit(e.quiet_segment(1), |sit| sit.vblocks.set(sit.vblocks.get() & 0x3FF | 4 << 10));
    }),
    case(SitUnowned, "a free segment", |e| mark(e, e.geometry.in_segment(e.free_segment(), 9).get(), true)),
    case(SitMissing, "a data block", |e| mark(e, big_block(e, 2), false)),
];

fn volume(base: Base) -> &'static MemoryDevice {
    static CLEAN: OnceLock<MemoryDevice> = OnceLock::new();
    static ORPHAN: OnceLock<MemoryDevice> = OnceLock::new();
    static FLEXIBLE: OnceLock<MemoryDevice> = OnceLock::new();
    match base {
        Base::Clean => CLEAN.get_or_init(editor::filled_volume),
        Base::Orphan => ORPHAN.get_or_init(editor::volume_with_orphan),
        Base::Flexible => FLEXIBLE.get_or_init(editor::flexible_volume),
    }
}

#[test]
fn the_undamaged_volumes_are_clean() {
    for base in [Base::Clean, Base::Flexible] {
        let report = run(volume(base));
        assert!(report.faults.is_empty(), "{:#?}", report.faults);
        assert!(report.counts.files > 700 && report.counts.special == 2);
    }
    let report = run(volume(Base::Orphan));
    assert_eq!(kinds(&report), BTreeSet::from([NotUnmounted]), "{:#?}", report.faults);
    assert!(report.is_clean() && report.counts.orphans == 1);
}

fn base_tree(base: Base) -> &'static repaired::Tree {
    static CLEAN: OnceLock<repaired::Tree> = OnceLock::new();
    static ORPHAN: OnceLock<repaired::Tree> = OnceLock::new();
    static FLEXIBLE: OnceLock<repaired::Tree> = OnceLock::new();
    let cell = match base {
        Base::Clean => &CLEAN,
        Base::Orphan => &ORPHAN,
        Base::Flexible => &FLEXIBLE,
    };
    cell.get_or_init(|| repaired::tree(Arc::new(volume(base).snapshot())))
}

/// Repairs each volume; undamaged files are as they were, and `fsck.f2fs` agrees.
fn repair_all(cases: &[Case]) {
    let directory = tools_or_skip(TOOLS).then(|| scratch::directory().unwrap());
    let mut problems = Vec::new();
    for case in cases {
        let what = format!("{}: {}", case.kind, case.how);
        let editor = Editor::new(volume(case.base));
        (case.damage)(&editor);
        let device = Arc::new(editor.device);
        let shared: Arc<dyn BlockDevice> = device.clone();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let report = repaired::repair_fully(&shared, &what);
            assert!(report.repairs.iter().any(|repair| repair.kind == case.kind), "{what}: {:?}", report.repairs);
            let after = repaired::tree(shared);
            let harmed = repaired::differences(base_tree(case.base), &after);
            let done: String = report.repairs.iter().map(|repair| format!("\n  {repair}")).collect();
            assert_eq!(harmed, case.harms, "{what}{done}");
            if let Some(directory) = &directory {
                let image = directory.path().join("volume.img");
                repaired::save(&device, &image);
                let found = fsck_f2fs(&image).unwrap();
                assert!(found.is_clean(), "{what}{done}\n{found}");
            }
        }));
        problems.extend(result.err().map(|_| what));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

fn try_all(cases: &[Case]) {
    for case in cases {
        let editor = Editor::new(volume(case.base));
        (case.damage)(&editor);
        let report = run(&editor.device);
        let mut expected: BTreeSet<FaultKind> = case.also.iter().copied().chain([case.kind]).collect();
        if case.base == Base::Orphan {
            expected.insert(NotUnmounted);
        }
        let faults: String = report.faults.iter().take(10).map(|fault| format!("\n  {fault}")).collect();
        assert_eq!(kinds(&report), expected, "{}: {}{faults}", case.kind, case.how);
        assert_eq!(report.is_clean(), case.kind.severity() == Severity::Note, "{}: {}", case.kind, case.how);
        let texts = report.faults.iter().map(|fault| (&fault.found, &fault.expected));
        assert!(texts.clone().all(|(found, expected)| !found.is_empty() && found != expected), "{faults}");
    }
}

#[test]
fn superblock_faults() {
    try_all(SUPERBLOCK);
}

#[test]
fn superblock_faults_are_repaired() {
    repair_all(SUPERBLOCK);
}

#[test]
fn checkpoint_faults() {
    try_all(CHECKPOINT);
}

#[test]
fn checkpoint_faults_are_repaired() {
    repair_all(CHECKPOINT);
}

#[test]
fn node_faults() {
    try_all(NODES);
}

#[test]
fn node_faults_are_repaired() {
    repair_all(NODES);
}

#[test]
fn inode_faults() {
    try_all(INODES);
}

#[test]
fn inode_faults_are_repaired() {
    repair_all(INODES);
}

#[test]
fn name_faults() {
    try_all(NAMES);
}

#[test]
fn name_faults_are_repaired() {
    repair_all(NAMES);
}

#[test]
fn segment_faults() {
    try_all(SEGMENTS);
}

#[test]
fn segment_faults_are_repaired() {
    repair_all(SEGMENTS);
}

#[test]
fn every_kind_of_fault_is_tried() {
    let tried: BTreeSet<FaultKind> =
        [SUPERBLOCK, CHECKPOINT, NODES, INODES, NAMES, SEGMENTS].into_iter().flatten().map(|case| case.kind).collect();
    // A live journal is not for `check` alone: tests/journal.rs. A block that cannot be read: tests/unreadable.rs; lost packs:
    // tests/checkpoint_lost.rs.
    // What only fsck.f2fs writes: below.
    let elsewhere =
        BTreeSet::from([CleaningJournal, SuperblockUnreadable, CheckpointUncertain, CheckpointLost, NatBits]);
    let missing: Vec<_> =
        FaultKind::ALL.iter().filter(|kind| !tried.contains(kind) && !elsewhere.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Only Linux and `fsck.f2fs` write NAT bits: the latter when it repairs.
#[test]
fn wrong_nat_bits_are_found_and_dropped() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    let editor = Editor::new(volume(Base::Clean));
    editor.checkpoint(|cp| cp.valid_inode_count.set(1));
    repaired::save(&editor.device, &image);
    let fixed = std::process::Command::new("fsck.f2fs").args(["-f", "-y"]).arg(&image).output().unwrap();
    let said = String::from_utf8_lossy(&fixed.stdout).into_owned();
    assert!(said.contains("Write valid nat_bits"), "{said}");
    editor.device.write_at(0, &std::fs::read(&image).unwrap()).unwrap();
    let editor = Editor::new(&editor.device);
    assert!(editor.loaded.pack.raw.flags().contains(CheckpointFlags::NAT_BITS) && editor.loaded.nat_journal.is_empty());
    let report = run(&editor.device);
    // `fsck.f2fs` writes checkpoints in place, of any parity.
    assert!(kinds(&report).is_subset(&BTreeSet::from([CheckpointParity])), "{:?}", report.faults);
    // The first bitmap says which blocks are full: the first is not.
    let size = editor.geometry.nat_bitmap_size();
    let blocks = (8 + 2 * size).div_ceil(4096) as u32;
    let bits = editor.loaded.pack.start + 512 - blocks;
    editor.edit((bits, 8 + 40), |byte: &mut [u8; 1]| byte[0] ^= 1);
    let report = run(&editor.device);
    assert!(kinds(&report).contains(&NatBits), "{:?}", report.faults);
    let device: Arc<dyn BlockDevice> = Arc::new(editor.device.snapshot());
    let repaired = repaired::repair_fully(&device, "NAT bits");
    assert!(repaired.repairs.iter().any(|repair| repair.kind == NatBits), "{:?}", repaired.repairs);
}
