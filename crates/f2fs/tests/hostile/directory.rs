//! Directories: entries, hashes' depth, sizes.

use basalt_f2fs::layout::inode::RawInode;
use basalt_vfs::{FileSystem, RenameFlags};

use crate::support::{CALLER, FILE, editor, expect_corrupted, find, list, open, read};

#[test]
fn an_entry_that_leads_nowhere_is_damage() {
    let editor = editor();
    let unused = (4..60_000).find(|&nid| editor.nat(nid).block_addr.get() == 0).unwrap();
    editor.edit_entry(3, "small", |entry| entry.ino.set(unused));
    let fs = open(&editor.device);
    expect_corrupted(fs.lookup(fs.root(), b"small"), "dentry");
    assert!(list(&fs, fs.root()).unwrap().contains(&b"small".to_vec()), "a listing does not follow entries");
    expect_corrupted(fs.unlink(fs.root(), b"small"), "dentry");
}

#[test]
fn a_rename_onto_an_entry_that_leads_nowhere_is_damage() {
    let editor = editor();
    let unused = (4..60_000).find(|&nid| editor.nat(nid).block_addr.get() == 0).unwrap();
    editor.edit_entry(3, "small", |entry| entry.ino.set(unused));
    let fs = open(&editor.device);
    let result = fs.rename(fs.root(), b"attributes", fs.root(), b"small", RenameFlags::empty(), &CALLER);
    expect_corrupted(result, "dentry");
}

#[test]
fn entries_with_impossible_fields_are_damage() {
    for (ino, file_type) in [(u32::MAX, 1), (0, 1), (3, 0), (3, 200)] {
        let editor = editor();
        editor.edit_entry(3, "small", |entry| {
            entry.ino.set(ino);
            entry.file_type = file_type;
        });
        let fs = open(&editor.device);
        expect_corrupted(fs.lookup(fs.root(), b"small"), "dentry");
        expect_corrupted(list(&fs, fs.root()), "dentry");
    }
}

#[test]
fn names_longer_than_their_block_are_damage() {
    for length in [256, 2000, u16::MAX] {
        let editor = editor();
        editor.edit_entry(3, "small", |entry| entry.name_len.set(length));
        let fs = open(&editor.device);
        expect_corrupted(list(&fs, fs.root()), "dentry");
        assert!(fs.lookup(fs.root(), b"small").is_err());
    }
}

#[test]
fn depths_that_cannot_be_are_damage() {
    for (depth, level) in [(64, 0), (u32::MAX, 0), (1, 32), (3, 255)] {
        let editor = editor();
        editor.edit_inode(editor.path(&["crowd"]), |inode| {
            inode.i_current_depth.set(depth);
            inode.i_dir_level = level;
        });
        let fs = open(&editor.device);
        let crowd = find(&fs, "crowd");
        expect_corrupted(fs.lookup(crowd, b"none"), "inode");
        expect_corrupted(fs.create(crowd, b"new", &FILE, &CALLER), "inode");
    }
}

#[test]
fn the_deepest_directories_that_can_be_end() {
    for (depth, level, size) in [(63, 31, 1u64 << 40), (63, 0, 3 << 40), (0, 31, 0), (63, 31, 4096)] {
        let editor = editor();
        editor.edit_inode(editor.path(&["crowd"]), |inode: &mut RawInode| {
            inode.i_current_depth.set(depth);
            inode.i_dir_level = level;
            inode.i_size.set(size);
        });
        let fs = open(&editor.device);
        let crowd = find(&fs, "crowd");
        // The device behind this has a limit of requests: none of these may search for ever.
        assert!(matches!(fs.lookup(crowd, b"none"), Err(basalt_vfs::Error::NotFound)));
        assert!(list(&fs, crowd).unwrap().len() <= 702);
        let _ = fs.create(crowd, b"new", &FILE, &CALLER);
        let _ = fs.remove_directory(fs.root(), b"crowd");
        assert_eq!(read(&fs, "small"), b"inline");
    }
}

#[test]
fn a_directory_of_an_endless_size_is_damage() {
    let editor = editor();
    editor.edit_inode(editor.path(&["crowd"]), |inode| inode.i_size.set(1 << 60));
    let fs = open(&editor.device);
    expect_corrupted(fs.lookup(fs.root(), b"crowd"), "inode");
}

#[test]
fn one_block_in_every_place_lists_as_long_as_there_are_places() {
    let editor = editor();
    let crowd = editor.path(&["crowd"]);
    editor.edit_inode(crowd, |inode| {
        let first = inode.extra_size() as usize / 4;
        let block = inode.slots[first];
        inode.slots[first..first + 800].fill(block);
        inode.i_size.set(800 * 4096);
    });
    let fs = open(&editor.device);
    let listed = list(&fs, find(&fs, "crowd")).unwrap();
    assert!(listed.len() <= 800 * 214);
}

#[test]
fn circles_of_directories_end() {
    let editor = editor();
    let (outer, inner) = (editor.path(&["outer"]), editor.path(&["outer", "inner"]));
    // The two are each other's parent, and the root is never reached.
    editor.edit_entry(outer, "..", |entry| entry.ino.set(inner));
    let fs = open(&editor.device);
    let from = fs.lookup(u64::from(outer), b"inner").unwrap().ino;
    let result = fs.rename(fs.root(), b"crowd", from, b"moved", RenameFlags::empty(), &CALLER);
    expect_corrupted(result, "dentry");
}
