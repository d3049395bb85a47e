//! Inodes, the nodes below them, and extended attributes.

use basalt_segments::Segment;
use std::sync::Arc;

use basalt_f2fs::layout::inode::{InlineFlags, RawInode};
use basalt_f2fs::layout::node::OFFSET_SHIFT;
use basalt_f2fs::{F2fs, OpenOptions};
use basalt_vfs::{FallocateMode, FileSystem, Seek, SetAttributes, XattrFlags};

use crate::editor::Editor;
use crate::fuzz::base::StoppedClock;
use crate::support::{editor, expect_corrupted, find, open, read};

#[test]
fn impossible_inodes_are_damage() {
    type Change = fn(&mut RawInode);
    let changes: [(&str, Change); 11] = [
        ("no kind", |i| i.i_mode.set(0o170_000)),
        ("odd extra attributes", |i| i.extra_mut().i_extra_isize.set(23)),
        ("long extra attributes", |i| i.extra_mut().i_extra_isize.set(0xFFFC)),
        ("more inline data than fits", |i| i.i_size.set(3700)),
        ("inline data without end", |i| i.i_size.set(u64::MAX)),
        ("inline entries in a file", |i| i.i_inline |= InlineFlags::DENTRY.bits()),
        ("a size past every limit", |i| {
            i.i_inline &= !InlineFlags::DATA.bits();
            i.i_size.set(1 << 60);
        }),
        ("no blocks", |i| i.i_blocks.set(0)),
        ("a name longer than names are", |i| i.i_namelen.set(256)),
        ("xattrs nowhere", |i| i.i_xattr_nid.set(u32::MAX)),
        ("an offset below another inode", |i| i.footer.flag.set(7 << OFFSET_SHIFT)),
    ];
    for (what, change) in changes {
        let editor = editor();
        editor.edit_inode(editor.path(&["small"]), change);
        let fs = open(&editor.device);
        let structure = if what.starts_with("an offset") { "node" } else { "inode" };
        expect_corrupted(fs.lookup(fs.root(), b"small"), structure);
        assert_eq!(read(&fs, "attributes"), b"", "{what}: everything else is still there");
        assert!(fs.is_writable(), "{what}: looking is no reason to stop");
    }
}

#[test]
fn an_inode_with_a_bad_checksum_is_damage() {
    let editor = editor();
    let address = editor.node_address(editor.path(&["small"]));
    editor.edit((address, 0), |inode: &mut RawInode| inode.i_uid.set(77));
    let fs = open(&editor.device);
    expect_corrupted(fs.lookup(fs.root(), b"small"), "inode");
}

/// Looks at, writes into, and removes `big`, of which something is wrong; the volume survives.
fn use_big(editor: &Editor) {
    let fs = open(&editor.device);
    let ino = find(&fs, "big");
    let mut buf = vec![0; 1 << 20];
    for block in [0u64, 923, 923 + 1018, 923 + 2036 + 5, 923 + 2036 + 2 * 1018 * 1018 + 7] {
        let _ = fs.read(ino, block * 4096, &mut buf);
    }
    let _ = fs.seek(ino, 0, Seek::Hole);
    // Whichever node is met first is the wrong one, or was freed the first time it was met.
    expect_corrupted(fs.unlink(fs.root(), b"big").and_then(|()| drop_reference(&fs, ino)), "");
    assert_eq!(read(&fs, "small"), b"inline");
}

/// Gives back the reference and says what became of the inode.
fn drop_reference(fs: &F2fs, ino: u64) -> basalt_vfs::Result<()> {
    fs.forget(ino, 1);
    match fs.failure() {
        Some(reason) => Err(basalt_vfs::Error::Corrupted(reason)),
        None => Ok(()),
    }
}

#[test]
fn node_trees_that_bite_their_tail_end() {
    // An inode below itself; direct nodes twice; indirect nodes in place of direct ones, and below themselves.
    for (index, from) in [(0, None), (1, Some(0)), (0, Some(2)), (2, Some(4)), (4, Some(2)), (3, Some(2))] {
        let editor = editor();
        let big = editor.path(&["big"]);
        editor.edit_inode(big, |inode| {
            inode.i_nid[index] = from.map_or(inode.footer.ino, |from: usize| inode.i_nid[from]);
        });
        use_big(&editor);
    }
    for index in [2, 4] {
        let editor = editor();
        let nid = editor.inode(editor.path(&["big"])).i_nid[index].get();
        editor.edit_node(nid, |node| node.slots.fill(zerocopy::little_endian::U32::new(nid)));
        use_big(&editor);
    }
}

#[test]
fn an_inode_made_to_look_like_its_own_child_is_not_written_over() {
    let editor = editor();
    let big = editor.path(&["big"]);
    editor.edit_inode(big, |inode| {
        inode.i_nid[0] = inode.footer.ino;
        inode.footer.flag.set(1 << OFFSET_SHIFT);
    });
    let fs = open(&editor.device);
    expect_corrupted(fs.lookup(fs.root(), b"big"), "node");
}

#[test]
fn blocks_outside_the_main_area_are_damage() {
    for address in [1, 1000, 0xFFFF_FF00] {
        let editor = editor();
        let big = editor.path(&["big"]);
        let slot = editor.slot(big, 3);
        editor.edit_inode(big, |inode| inode.slots[slot].set(address));
        let fs = open(&editor.device);
        let ino = find(&fs, "big");
        expect_corrupted(fs.read(ino, 3 * 4096, &mut [0; 10]), "node");
        let resize = SetAttributes { size: Some(0), ..SetAttributes::default() };
        expect_corrupted(fs.set_attributes(ino, &resize), "node");
    }
}

#[test]
fn xattr_nodes_that_are_something_else_are_damage() {
    let editor = editor();
    let (owner, big) = (editor.path(&["more attributes"]), editor.path(&["big"]));
    let others = [owner, big, editor.inode(big).i_nid[0].get()];
    for other in others {
        editor.edit_inode(owner, |inode| inode.i_xattr_nid.set(other));
        let fs = open(&editor.device);
        let ino = find(&fs, "more attributes");
        expect_corrupted(fs.list_xattrs(ino), "node");
        expect_corrupted(fs.set_xattr(ino, b"user.new", &[1; 500], XattrFlags::empty()), "node");
        assert_eq!(read(&fs, "small"), b"inline");
    }
    // One's own direct node is of the right inode, and still no place for attributes.
    editor.edit_inode(big, |inode| inode.i_xattr_nid = inode.i_nid[0]);
    let device = Arc::new(editor.device.snapshot());
    let open_again = || F2fs::open(device.clone(), OpenOptions::default(), Arc::new(StoppedClock)).unwrap();
    let fs = open_again();
    let ino = find(&fs, "big");
    expect_corrupted(fs.get_xattr(ino, b"user.any"), "node");
    // It loses its name, but cannot be freed: an orphan for the repair, which keeps nobody from using the volume.
    fs.unlink(fs.root(), b"big").unwrap();
    drop_reference(&fs, ino).unwrap();
    fs.close().unwrap();
    let fs = open_again();
    assert!(fs.warnings().iter().any(|warning| warning.contains("cannot be freed")), "{:?}", fs.warnings());
    assert!(fs.is_writable() && fs.lookup(fs.root(), b"big").is_err());
    assert_eq!(read(&fs, "small"), b"inline");
}

#[test]
fn xattr_lengths_past_the_end_are_damage() {
    let editor = editor();
    let nid = editor.inode(editor.path(&["more attributes"])).i_xattr_nid.get();
    assert_ne!(nid, 0);
    let owner = editor.path(&["more attributes"]);
    // The first entry, behind the header in the inline range: a value longer than everything.
    editor.edit_inode(owner, |inode| {
        let range = inode.inline_xattr_range(false);
        let bytes = zerocopy::IntoBytes::as_mut_bytes(inode);
        bytes[range.start + 26..range.start + 28].copy_from_slice(&u16::MAX.to_le_bytes());
    });
    let fs = open(&editor.device);
    expect_corrupted(fs.list_xattrs(find(&fs, "more attributes")), "xattr");
}

#[test]
fn blocks_that_were_never_counted_show_when_they_go() {
    let editor = editor();
    let file = editor.path(&["small"]);
    editor.edit_inode(file, |inode| {
        inode.i_inline &= !InlineFlags::DATA.bits();
        let first = inode.extra_size() as usize / 4;
        inode.slots[first..first + 800].fill(zerocopy::little_endian::U32::new(u32::MAX));
        inode.i_size.set(800 * 4096);
    });
    editor.checkpoint(|raw| raw.valid_block_count.set(raw.valid_block_count.get() - 1));
    // All that the SIT knows of, and nothing promised: what is promised below cannot be taken off.
    let known: u64 =
        (0..editor.geometry.main_segments).map(|segment| u64::from(editor.sit(Segment::new(segment)).live())).sum();
    editor.checkpoint(|raw| raw.valid_block_count.set(known));
    let fs = open(&editor.device);
    for name in [&b"small"[..], b"big", b"crowd"] {
        let _ = fs.unlink(fs.root(), name);
    }
    let _ = fs.fallocate(find(&fs, "attributes"), FallocateMode::empty(), 0, 1 << 20);
    let _ = fs.close();
}
