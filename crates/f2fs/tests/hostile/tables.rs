//! NAT, SIT, summaries and their journals.

use basalt_f2fs::layout::sit::RawSitEntry;
use basalt_f2fs::layout::{Address, BLOCK_SIZE};
use basalt_vfs::FileSystem;
use zerocopy::little_endian::{U16, U32};

use crate::support::{editor, expect_corrupted, expect_damaged, open, read};

#[test]
fn a_node_outside_the_main_area_is_damage() {
    let last = editor().geometry.main - 1;
    for address in [Address::new(1), last, Address::COMPRESS] {
        let editor = editor();
        editor.edit_nat(editor.path(&["small"]), |entry| entry.block_addr = address.into());
        let fs = open(&editor.device);
        expect_corrupted(fs.lookup(fs.root(), b"small"), "NAT");
        assert_eq!(read(&fs, "attributes"), b"");
    }
}

#[test]
fn a_node_of_somebody_else_is_damage() {
    let editor = editor();
    let other = editor.node_address(editor.path(&["attributes"]));
    editor.edit_nat(editor.path(&["small"]), |entry| entry.block_addr.set(other.get()));
    let fs = open(&editor.device);
    expect_corrupted(fs.lookup(fs.root(), b"small"), "node");
}

#[test]
fn a_missing_root_is_damage() {
    let editor = editor();
    editor.edit_nat(3, |entry| entry.block_addr.set(0));
    expect_damaged(&editor.device, "NAT");
}

#[test]
fn journals_longer_than_their_room_are_damage() {
    for (which, count) in [(0, 39), (0, u16::MAX), (1, 7), (1, u16::MAX)] {
        let editor = editor();
        let (nat, sit) = editor.journals();
        editor.edit(if which == 0 { nat } else { sit }, |entries: &mut U16| entries.set(count));
        assert!(expect_damaged(&editor.device, "checkpoint").contains("journal"));
    }
}

#[test]
fn journal_entries_of_nothing_are_damage() {
    for (which, structure) in [(0, "NAT"), (1, "SIT")] {
        let editor = editor();
        let journals = editor.journals();
        let (block, byte) = if which == 0 { journals.0 } else { journals.1 };
        editor.edit((block, byte), |entries: &mut U16| entries.set(1));
        editor.edit((block, byte + 2), |number: &mut U32| number.set(u32::MAX));
        expect_damaged(&editor.device, structure);
    }
}

#[test]
fn segments_of_no_type_or_with_a_wrong_count_are_damage() {
    type Change = fn(&mut RawSitEntry);
    let changes: [Change; 3] = [
        |entry| entry.vblocks.set(entry.vblocks.get() & 0x3FF | 6 << 10),
        |entry| entry.vblocks.set(entry.vblocks.get() + 1),
        |entry| entry.valid_map[20] ^= 0x40,
    ];
    for change in changes {
        let editor = editor();
        editor.edit_sit(editor.quiet_segment(1), change);
        assert!(expect_damaged(&editor.device, "SIT").contains("segment"));
    }
}

#[test]
fn a_file_whose_block_is_not_live_cannot_be_removed_twice() {
    let editor = editor();
    let (big, small) = (editor.path(&["big"]), editor.path(&["attributes"]));
    // Two files with the same block: whoever goes second finds it gone.
    let shared = editor.inode(big).slots[editor.slot(big, 0)];
    editor.edit_inode(small, |inode| {
        inode.i_inline &= !2;
        inode.i_size.set(BLOCK_SIZE as u64);
        let first = inode.extra_size() as usize / 4;
        inode.slots[first] = shared;
    });
    let fs = open(&editor.device);
    fs.unlink(fs.root(), b"attributes").unwrap();
    // References from nowhere: not held.
    expect_corrupted(fs.unlink(fs.root(), b"big"), "SIT");
    assert!(!fs.is_writable() && fs.failure().is_some());
    assert_eq!(read(&fs, "small"), b"inline");
}
