//! Checkpoint packs: which one counts, and fields that cannot be.

use basalt_f2fs::Error;
use basalt_f2fs::checkpoint::block::expected_checksum;
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::checkpoint::{CheckpointFlags, RawCheckpoint, RawOrphanBlock};
use basalt_vfs::FileSystem;

use crate::support::{
    CALLER, FILE, editor, editor_with_orphan, expect_corrupted, expect_damaged, expect_read_only, find, open, read,
    try_open,
};

#[test]
fn a_torn_newer_pack_gives_way_to_the_older_and_that_is_said() {
    let spoil: [fn(&mut Vec<u8>); 3] = [
        // The last block is still that of the pack before; never written; written in part.
        |tail| {
            tail[0] ^= 2;
            let checksum = expected_checksum(tail, 4092);
            tail[4092..].copy_from_slice(&checksum.to_le_bytes());
        },
        |tail| tail.fill(0),
        |tail| tail[2048..].fill(0xEE),
    ];
    for spoil in spoil {
        let editor = editor();
        let (start, total) = editor.pack();
        let version = editor.loaded.pack.raw.checkpoint_ver.get();
        let mut tail = editor.block(start + total - 1);
        spoil(&mut tail);
        editor.put(start + total - 1, &tail);
        let fs = open(&editor.device);
        let warnings = fs.warnings();
        let said = format!("version {}, is used", version - 1);
        assert!(warnings.iter().any(|w| w.contains("checkpoint at pack") && w.contains(&said)), "{warnings:?}");
        assert!(fs.is_writable());
        fs.create(fs.root(), b"new", &FILE, &CALLER).unwrap();
        fs.close().unwrap();
    }
}

#[test]
fn a_newer_pack_with_a_bad_first_block_is_known_from_its_last() {
    let editor = editor();
    let (start, _) = editor.pack();
    let mut head = editor.block(start);
    head[300] ^= 1;
    editor.put(start, &head);
    let warnings = open(&editor.device).warnings();
    assert!(warnings.iter().any(|w| w.contains("checksum") && w.contains("is used")), "{warnings:?}");
}

#[test]
fn an_older_pack_with_a_bad_checksum_does_not_matter() {
    let editor = editor();
    let other = editor.geometry.checkpoint + 512 * (1 - editor.loaded.pack.index);
    editor.put(other, &[0xAA; 4096]);
    assert_eq!(read(&open(&editor.device), "small"), b"inline");
}

#[test]
fn two_bad_packs_are_refused() {
    let editor = editor();
    // First and last blocks, so that neither is known from its other end.
    let blocks = Address::all(editor.geometry.checkpoint..editor.geometry.checkpoint + 1024);
    for address in blocks.filter(|&address| editor.is_checkpoint(address)) {
        let mut block = editor.block(address);
        block[10] ^= 0x80;
        block[4092..].fill(address.get() as u8);
        editor.put(address, &block);
    }
    let said = expect_damaged(&editor.device, "checkpoint");
    assert!(said.contains("pack 1") && said.contains("checksum"), "{said}");
}

fn with_flags(flags: CheckpointFlags) -> basalt_device::MemoryDevice {
    let editor = editor();
    editor.checkpoint(|raw| raw.ckpt_flags.set((raw.flags() | flags).bits()));
    editor.device
}

#[test]
fn flags_of_volumes_in_trouble_are_heeded() {
    expect_read_only(&with_flags(CheckpointFlags::ERROR), "error");
    expect_read_only(&with_flags(CheckpointFlags::FSCK), "check");
    expect_read_only(&with_flags(CheckpointFlags::DISABLED), "disabled");
    expect_read_only(&with_flags(CheckpointFlags::RESIZE), "resize");
}

#[test]
fn impossible_fields_are_refused() {
    type Change = fn(&mut RawCheckpoint);
    let changes: [(&str, Change); 17] = [
        ("no blocks for users", |c| c.user_block_count.set(0)),
        ("more blocks for users than there are", |c| c.user_block_count.set(u64::MAX)),
        ("more live blocks than users may have", |c| c.valid_block_count.set(u64::MAX)),
        ("fewer live blocks than the SIT has", |c| c.valid_block_count.set(3)),
        ("nodes", |c| c.valid_node_count.set(c.valid_node_count.get() + 1)),
        ("inodes", |c| c.valid_inode_count.set(u32::MAX)),
        ("no reserve", |c| c.rsvd_segment_count.set(0)),
        ("all reserve", |c| c.rsvd_segment_count.set(u32::MAX)),
        ("no over-provisioning", |c| c.overprov_segment_count.set(0)),
        ("a log outside", |c| c.cur_data_segno[1].set(u32::MAX)),
        ("a log behind its segment", |c| c.cur_node_blkoff[2].set(512)),
        ("two logs in one segment", |c| c.cur_node_segno[0] = c.cur_data_segno[0]),
        ("SIT bitmap", |c| c.sit_ver_bitmap_bytesize.set(u32::MAX)),
        ("NAT bitmap", |c| c.nat_ver_bitmap_bytesize.set(0)),
        ("summaries before the pack", |c| c.cp_pack_start_sum.set(0)),
        ("summaries behind the pack", |c| c.cp_pack_start_sum.set(u32::MAX)),
        ("a large bitmap that the checksum lies in", |c| {
            c.ckpt_flags.set(c.ckpt_flags.get() | CheckpointFlags::LARGE_NAT_BITMAP.bits());
        }),
    ];
    for (what, change) in changes {
        let editor = editor();
        editor.checkpoint(change);
        for read_only in [false, true] {
            let result = try_open(&editor.device, read_only).map(drop);
            assert!(matches!(result, Err(Error::Damaged { structure: "checkpoint", .. })), "{what}: {result:?}");
        }
    }
}

#[test]
fn packs_of_an_impossible_size_do_not_count() {
    for total in [0, 2, 513, u32::MAX] {
        let editor = editor();
        let (start, _) = editor.pack();
        editor.edit((start, 0), |raw: &mut RawCheckpoint| raw.cp_pack_total_block_count.set(total));
        let mut head = editor.block(start);
        let checksum = expected_checksum(&head, 4092);
        head[4092..].copy_from_slice(&checksum.to_le_bytes());
        editor.put(start, &head);
        let warnings = open(&editor.device).warnings();
        assert!(warnings.iter().any(|w| w.contains(&format!("{total} blocks in the pack"))), "{warnings:?}");
    }
}

#[test]
fn counts_that_are_too_low_show_when_things_go() {
    let editor = editor();
    editor.checkpoint(|raw| raw.valid_inode_count.set(0));
    let fs = open(&editor.device);
    expect_corrupted(fs.unlink(fs.root(), b"small"), "checkpoint");
    assert!(!fs.is_writable(), "memory and volume have parted");
    assert_eq!(read(&fs, "attributes"), b"");
}

#[test]
fn a_bad_orphan_is_damage_not_a_stale_number() {
    for ino in [0, 999_999, u32::MAX] {
        let editor = editor_with_orphan();
        let orphans = editor.pack().0 + 1 + editor.geometry.payload;
        editor.edit((orphans, 0), |block: &mut RawOrphanBlock| block.ino[0].set(ino));
        let error = try_open(&editor.device, false).map(drop).unwrap_err();
        assert!(matches!(error, Error::Damaged { structure: "checkpoint", .. }), "{error}");
        // Reading does not need them.
        assert_eq!(read(&try_open(&editor.device, true).unwrap(), "small"), b"inline");
    }
    let editor = editor_with_orphan();
    let orphans = editor.pack().0 + 1 + editor.geometry.payload;
    editor.edit((orphans, 0), |block: &mut RawOrphanBlock| block.entry_count.set(1021));
    expect_damaged(&editor.device, "checkpoint");
}

#[test]
fn an_orphan_that_has_a_name_is_kept() {
    let editor = editor_with_orphan();
    let small = editor.path(&["small"]);
    let orphans = editor.pack().0 + 1 + editor.geometry.payload;
    editor.edit((orphans, 0), |block: &mut RawOrphanBlock| block.ino[0].set(small));
    let fs = open(&editor.device);
    assert_eq!(read(&fs, "small"), b"inline");
    assert_eq!(find(&fs, "small"), u64::from(small));
}
