//! What deltas tell, and what they have to leave to nodes, case by case: attributes and bytes behind a power cut that lost nothing.

use std::sync::Arc;

use basalt_f2fs::layout::seal::Seal;
use basalt_f2fs::layout::{Address, FileBlock};
use basalt_f2fs::{Deltas, F2fs, OpenOptions};
use basalt_vfs::{FallocateMode, FileSystem, InodeNumber, SetAttributes, SetTime, Time, XattrFlags};

use super::{
    BLOCK, PAGES, contents, create, expect_after_cut, expect_said, last_delta, open, options, set_mode, set_size,
    volume, with_file, write_page, written,
};

const PUNCH: FallocateMode = FallocateMode::PUNCH_HOLE.union(FallocateMode::KEEP_SIZE);

/// Each change alone, and an fsync behind it.
#[test]
fn each_change_is_there_with_all_attributes() {
    type Change = fn(&F2fs, InodeNumber);
    let changes: [(&str, Change); 10] = [
        ("times", |fs, ino| {
            let time = SetTime::To(Time { seconds: 77, nanoseconds: 5 });
            fs.set_attributes(ino, &SetAttributes { mtime: Some(time), ..SetAttributes::default() })
                .map(|_| ())
                .unwrap();
        }),
        ("a page", |fs, ino| write_page(fs, ino, 1_000, 2)),
        ("a hole beside a reservation", |fs, ino| {
            fs.fallocate(ino, PUNCH, 10 * BLOCK, 6 * BLOCK).unwrap();
            fs.fallocate(ino, FallocateMode::empty(), 13 * BLOCK, 3 * BLOCK).unwrap();
        }),
        ("a reservation in a new node", |fs, ino| {
            fs.fallocate(ino, FallocateMode::empty(), 2_990 * BLOCK, 6 * BLOCK).unwrap();
        }),
        ("pages behind the end, kept apart from the size", |fs, ino| {
            fs.fallocate(ino, FallocateMode::KEEP_SIZE, PAGES * BLOCK, 6 * BLOCK).unwrap();
        }),
        ("an end within a block", |fs, ino| {
            let size = Some(2_000 * BLOCK + 77);
            fs.set_attributes(ino, &SetAttributes { size, ..SetAttributes::default() }).map(|_| ()).unwrap();
        }),
        ("a mode", |fs, ino| set_mode(fs, ino, 0o600)),
        ("an xattr in the inode", |fs, ino| fs.set_xattr(ino, b"user.b", &[3; 20], XattrFlags::empty()).unwrap()),
        ("an xattr in a node, changed near its end", |fs, ino| {
            let mut value = [1; 1500];
            value[1_400] = 2;
            fs.set_xattr(ino, b"user.a", &value, XattrFlags::empty()).unwrap();
            write_page(fs, ino, 3, 9);
        }),
        ("nothing", |_, _| ()),
    ];
    for (what, change) in changes {
        let (device, fs, ino) = with_file(Deltas::On);
        fs.set_xattr(ino, b"user.a", &[1; 1500], XattrFlags::empty()).unwrap();
        fs.sync().unwrap();
        change(&fs, ino);
        fs.sync_file(ino, false).unwrap();
        expect_said(&device, &fs, ino, what);
        expect_after_cut(&device, ino, &contents(&fs, ino), what);
        // Another one, by a delta where the first was in full, and the other way round.
        write_page(&fs, ino, 900, 7);
        fs.sync_file(ino, true).unwrap();
        set_mode(&fs, ino, 0o640);
        fs.sync_file(ino, false).unwrap();
        expect_said(&device, &fs, ino, what);
    }
}

#[test]
fn sizes_that_come_back_are_told_again() {
    let (device, fs, ino) = with_file(Deltas::On);
    for size in [PAGES + 50, PAGES] {
        set_size(&fs, ino, size);
        fs.sync_file(ino, true).unwrap();
        assert_eq!(contents(&open(&Arc::new(device.snapshot()), options(Deltas::Off)), ino).len() as u64, size * BLOCK);
    }
}

/// The inode is newer than the delta: the size is its own.
#[test]
fn an_inode_behind_a_delta_counts() {
    let (device, fs, ino) = with_file(Deltas::On);
    write_page(&fs, ino, PAGES + 3, 2);
    fs.sync_file(ino, false).unwrap();
    set_size(&fs, ino, PAGES + 2);
    set_mode(&fs, ino, 0o600);
    fs.sync_file(ino, false).unwrap();
    expect_said(&device, &fs, ino, "an inode behind a delta");
}

/// Its inode has left the cache before its first fsync, and without the mark that makes its name count.
#[test]
fn a_new_file_keeps_its_name_whatever_became_of_its_inode() {
    let device = volume(256 << 10);
    let fs = open(&device, OpenOptions { cache_bytes: 64 << 10, ..options(Deltas::On) });
    // The first chain of a mount ends with its segment.
    create(&fs, "first");
    fs.sync().unwrap();
    let ino = create(&fs, "new");
    (0..40).for_each(|page| write_page(&fs, ino, page, 1));
    let before = fs.statistics().written.node_blocks;
    for number in 0..600 {
        let other = create(&fs, &format!("other{number}"));
        fs.write(other, 0, &[1; 5_000], false).unwrap();
    }
    assert!(fs.statistics().written.node_blocks > before + 300, "nodes left the cache");
    write_page(&fs, ino, 7, 2);
    let (_, nodes) = written(&fs, || fs.sync_file(ino, false).unwrap());
    assert_eq!(nodes, 2, "a seal and the inode");
    let left = open(&Arc::new(device.snapshot()), options(Deltas::Off));
    assert_eq!(left.lookup(left.root(), b"new").unwrap().ino, ino);
    assert!(contents(&left, ino) == contents(&fs, ino));
}

#[test]
fn content_in_an_inode_goes_with_the_inode() {
    let (device, fs, ino) = with_file(Deltas::On);
    let inline = create(&fs, "inline");
    fs.write(inline, 0, &[7; 100], false).unwrap();
    fs.sync().unwrap();
    write_page(&fs, ino, 3, 9);
    fs.sync_file(ino, false).unwrap();
    fs.write(inline, 0, &[8; 100], false).unwrap();
    fs.sync_file(inline, false).unwrap();
    expect_after_cut(&device, inline, &[8; 100], "inline");
}

/// By hand: a seal has 996 slots for pages, of which a listed one takes three, and a hole two.
#[test]
fn a_seal_may_be_full_to_the_last_slot() {
    for (pages, holes) in [(331, 1), (331, 2), (332, 0), (330, 3), (328, 6)] {
        let (device, fs, ino) = with_file(Deltas::On);
        (0..pages).for_each(|page| write_page(&fs, ino, page * 3, 4));
        (0..holes).for_each(|hole| fs.fallocate(ino, PUNCH, (1_500 + 2 * hole) * BLOCK, BLOCK).unwrap());
        fs.sync_file(ino, true).unwrap();
        let left = open(&Arc::new(device.snapshot()), options(Deltas::Off));
        assert!(contents(&left, ino) == contents(&fs, ino), "{pages} {holes}");
    }
}

#[test]
fn a_seal_that_tells_of_more_entries_than_it_has_is_none() {
    let (device, fs, ino) = with_file(Deltas::On);
    write_page(&fs, ino, 1_000, 2);
    fs.sync_file(ino, false).unwrap();
    let (_, seal, node) = last_delta(&device);
    let mut delta = seal.delta.clone().unwrap();
    delta.listed.push(FileBlock::new(7));
    let seal = Seal { delta: Some(delta), ..seal };
    let block = seal.encode(node.footer.cp_ver.get(), Address::from(node.footer.next_blkaddr));
    assert!(Seal::of_block(&block.0).is_none());
}

/// Each delta is one block of the chain, and says that those in front of it were durable.
#[test]
fn deltas_know_where_they_are_and_what_was_durable() {
    let (device, fs, ino) = with_file(Deltas::On);
    for number in 0..5 {
        write_page(&fs, ino, 1_000 + u64::from(number), 2);
        fs.sync_file(ino, false).unwrap();
        let (_, seal, _) = last_delta(&device);
        assert_eq!((seal.position, seal.durable, seal.nodes), (Some(number), number, 0));
    }
}
