//! Repair of directories: the names that rescue finds come back, whatever a wrong first block or a wrong entry says.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;
#[allow(dead_code)] // Part of it is for other tests.
mod repaired;

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::dir::entries;
use basalt_f2fs::dir::hash::hash;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::dentry::DentryShape;
use basalt_f2fs::layout::inode::RawInode;
use basalt_f2fs::layout::nat::RawNatEntry;
use basalt_f2fs::layout::summary::RawSummary;
use basalt_f2fs::layout::{Address, BLOCK_SIZE, Ino};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
use editor::{Editor, filled_volume};
use repaired::{differences, repair_fully, tree};

const NAME: &[u8] = b"of another directory";
const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// A block of another directory, with a name of `/small` that this inode does not remember; with `.` and `..` too, if it is the first there.
fn foreign_block(editor: &Editor, is_first: bool) -> Vec<u8> {
    let mut block = vec![0; BLOCK_SIZE];
    let (outer, small) = (Ino::new(editor.path(&["outer"])), Ino::new(editor.path(&["small"])));
    let (directory, file) = (entries::file_type(FileKind::Directory), entries::file_type(FileKind::Regular));
    if is_first {
        entries::insert(&mut block, &DentryShape::BLOCK, 0, 0, b".", outer, directory);
        entries::insert(&mut block, &DentryShape::BLOCK, 1, 0, b"..", editor.geometry.root_ino, directory);
    }
    entries::insert(&mut block, &DentryShape::BLOCK, 3, hash(NAME), NAME, small, file);
    block
}

/// The address of a directory's first block.
fn first_block(editor: &Editor, directory: u32) -> u32 {
    editor.inode(directory).slots[editor.slot(directory, 0)].get()
}

/// Takes `.` and `..` out of a directory's first block; where that is.
fn remove_dots(editor: &Editor, directory: u32) -> u32 {
    let address = first_block(editor, directory);
    let mut block = editor.block(Address::new(address));
    (0..2).for_each(|slot| entries::remove(&mut block, &DentryShape::BLOCK, slot));
    editor.put(Address::new(address), &block);
    address
}

/// Points `/crowd` to a block of another directory in place of its first; the address that had.
fn lead_astray(editor: &Editor, is_first: bool) -> u32 {
    let crowd = editor.path(&["crowd"]);
    let (slot, before) = (editor.slot(crowd, 0), first_block(editor, crowd));
    let astray = editor.geometry.in_segment(editor.free_segment(), 7);
    editor.put(astray, &foreign_block(editor, is_first));
    editor.edit_inode(crowd, |inode| inode.slots[slot].set(astray.get()));
    before
}

/// After a repair of what `harm` has done, which says that it did `what`, all paths are as before.
fn expect_all_back(harm: impl FnOnce(&Editor), what: &str) {
    expect_all_back_on(filled_volume(), harm, what);
}

fn expect_all_back_on(sound: MemoryDevice, harm: impl FnOnce(&Editor), what: &str) {
    let editor = Editor::new(&sound);
    harm(&editor);
    let device: Arc<dyn BlockDevice> = Arc::new(editor.device);
    let report = repair_fully(&device, what);
    let found = report.repairs.iter().any(|repair| repair.action.starts_with(what));
    assert!(found, "{what}: {:?}", report.repairs);
    assert_eq!(differences(&tree(Arc::new(sound)), &tree(device)), Vec::<String>::new(), "{what}");
}

const FOUND: &str = "first block is of another file: found at block";
const HOLE: &str = "first block is of another file: now a hole";
const DOTS: &str = "`.` leads to";

#[test]
fn the_right_block_is_found() {
    for is_first in [false, true] {
        expect_all_back(|editor| _ = lead_astray(editor, is_first), FOUND);
    }
}

/// Every file remembers its name.
#[test]
fn names_come_back_without_the_block() {
    for is_first in [false, true] {
        let gone = |editor: &Editor| editor.put(Address::new(lead_astray(editor, is_first)), &[0; BLOCK_SIZE]);
        expect_all_back(gone, HOLE);
        let overwritten = |editor: &Editor| {
            editor.put(Address::new(first_block(editor, editor.path(&["crowd"]))), &foreign_block(editor, is_first));
        };
        expect_all_back(overwritten, HOLE);
    }
}

/// Puts a first block of a directory into a free segment, with what SIT and summary say of it there; the address.
fn copy_to_free_segment(editor: &Editor, directory: u32, block: &[u8]) -> u32 {
    let segment = editor.free_segment();
    let address = editor.geometry.in_segment(segment, 0);
    editor.put(address, block);
    let owner = RawSummary { nid: directory.into(), version: editor.nat(directory).version, ofs_in_node: 0.into() };
    editor.edit(editor.summary(address), |entry: &mut RawSummary| *entry = owner);
    editor.edit_sit(segment, |entry| {
        entry.valid_map[0] = 0x80;
        entry.vblocks.set(1);
    });
    address.get()
}

/// Of several blocks that look like the first, the one counts whose names inodes remember.
#[test]
fn an_older_first_block_does_not_count() {
    let harm = |editor: &Editor| {
        let (crowd, small) = (editor.path(&["crowd"]), editor.path(&["small"]));
        let old = lead_astray(editor, false);
        let mut block = editor.block(Address::new(old));
        assert!(copy_to_free_segment(editor, crowd, &block) > old);
        let taken = entries::next_used(&block, &DentryShape::BLOCK, 2).unwrap();
        entries::remove(&mut block, &DentryShape::BLOCK, taken);
        let file = entries::file_type(FileKind::Regular);
        entries::insert(&mut block, &DentryShape::BLOCK, taken, hash(b"old"), b"old", Ino::new(small), file);
        editor.put(Address::new(old), &block);
    };
    expect_all_back(harm, FOUND);
}

/// Of two blocks that are equally good nobody knows which is the older one: none counts.
#[test]
fn a_tie_of_first_blocks_is_not_guessed() {
    let harm = |editor: &Editor| {
        let block = editor.block(Address::new(lead_astray(editor, false)));
        copy_to_free_segment(editor, editor.path(&["crowd"]), &block);
    };
    expect_all_back(harm, HOLE);
}

/// The first blocks of two directories have changed places, or what is in them has: each file is in its own again.
#[test]
fn swapped_first_blocks_are_swapped_back() {
    let sound = Arc::new(filled_volume());
    let fs = F2fs::open(sound.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let node = |kind| NewNode { kind, permissions: 0o755, rdev: 0, target: b"" };
    let other = fs.create(fs.root(), b"other", &node(FileKind::Directory), &CALLER).unwrap().ino;
    for index in 0..300 {
        let name = format!("a file of another directory {index}");
        fs.create(other, name.as_bytes(), &node(FileKind::Regular), &CALLER).unwrap();
    }
    fs.close().unwrap();
    let addresses = |editor: &Editor| {
        let (one, other) = (editor.path(&["crowd"]), editor.path(&["other"]));
        let (at, of_other) = (first_block(editor, one), first_block(editor, other));
        for (directory, address) in [(one, of_other), (other, at)] {
            let slot = editor.slot(directory, 0);
            editor.edit_inode(directory, |inode| inode.slots[slot].set(address));
        }
    };
    expect_all_back_on(sound.snapshot(), addresses, FOUND);
    let contents = |editor: &Editor| {
        let [one, other] = ["crowd", "other"].map(|name| first_block(editor, editor.path(&[name])));
        let (first, second) = (editor.block(Address::new(one)), editor.block(Address::new(other)));
        editor.put(Address::new(one), &second);
        editor.put(Address::new(other), &first);
    };
    expect_all_back_on(sound.snapshot(), contents, FOUND);
}

/// `/one`, `/two` and `/three`, each with 230 files of its own, and second names of others, which no inode remembers.
fn three_directories(has_many_links: bool) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(100 << 20, 512));
    let options = FormatOptions { uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let fs = F2fs::open(shared, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let make = |parent, name: &str, kind| {
        let node = NewNode { kind, permissions: 0o755, rdev: 0, target: b"" };
        fs.create(parent, name.as_bytes(), &node, &CALLER).unwrap().ino
    };
    let files = make(fs.root(), "files", FileKind::Directory);
    for which in ["one", "two", "three"] {
        let directory = make(fs.root(), which, FileKind::Directory);
        for index in 0..230 {
            make(directory, &format!("own {which} {index}"), FileKind::Regular);
            if has_many_links || index % 3 == 0 {
                let file = make(files, &format!("{which} {index}"), FileKind::Regular);
                fs.link(file, directory, format!("link {which} {index}").as_bytes()).unwrap();
            }
        }
    }
    fs.close().unwrap();
    device.snapshot()
}

/// Has the first block of each of these directories be that of another one.
fn give_first_blocks(editor: &Editor, of: &[(&str, &str)]) {
    let address = |name| first_block(editor, editor.path(&[name]));
    let wrong: Vec<(u32, u32)> = of.iter().map(|&(to, from)| (editor.path(&[to]), address(from))).collect();
    for (directory, address) in wrong {
        let slot = editor.slot(directory, 0);
        editor.edit_inode(directory, |inode| inode.slots[slot].set(address));
    }
}

/// No inode remembers half of the names: the others say whose block it is.
#[test]
fn first_blocks_with_many_second_names_are_swapped_back() {
    let swap = |editor: &Editor| give_first_blocks(editor, &[("one", "three"), ("three", "one")]);
    expect_all_back_on(three_directories(true), swap, FOUND);
}

/// Two directories lead to the same wrong block: it is one candidate.
#[test]
fn a_first_block_that_two_lead_to_is_found_once() {
    let astray = |editor: &Editor| give_first_blocks(editor, &[("one", "three"), ("two", "three"), ("three", "one")]);
    expect_all_back_on(three_directories(false), astray, FOUND);
}

/// Where only `.` and `..` are damaged, the block is the directory's all the same.
#[test]
fn damaged_dots_are_mended_where_they_are() {
    expect_all_back(|editor| _ = remove_dots(editor, editor.path(&["crowd"])), DOTS);
}

/// `/crowd` has second names of the files in `/files`, which no inode remembers.
fn linked_volume() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(100 << 20, 512));
    let options = FormatOptions { uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let fs = F2fs::open(shared, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let make = |parent, name: &str, kind| {
        let node = NewNode { kind, permissions: 0o755, rdev: 0, target: b"" };
        fs.create(parent, name.as_bytes(), &node, &CALLER).unwrap().ino
    };
    let (files, crowd) = (make(fs.root(), "files", FileKind::Directory), make(fs.root(), "crowd", FileKind::Directory));
    for index in 0..700 {
        let file = make(files, &format!("file {index}"), FileKind::Regular);
        fs.link(file, crowd, format!("a second and longer name {index}").as_bytes()).unwrap();
        fs.link(file, fs.root(), format!("a third name {index}").as_bytes()).unwrap();
    }
    fs.close().unwrap();
    device.snapshot()
}

/// A block of which no inode remembers an entry is its directory's, if the files have as many links as names, whatever else is damaged.
#[test]
fn second_names_are_no_foreign_ones() {
    let moved = |editor: &Editor| {
        let crowd = editor.path(&["crowd"]);
        let address = copy_to_free_segment(editor, crowd, &editor.block(Address::new(remove_dots(editor, crowd))));
        let slot = editor.slot(crowd, 0);
        editor.edit_inode(crowd, |inode| inode.slots[slot].set(address));
        editor.summary(Address::new(address))
    };
    let summary = |editor: &Editor, nid: u32| {
        let spot = moved(editor);
        editor.edit(spot, |entry: &mut RawSummary| (entry.nid, entry.version) = (nid.into(), 1));
    };
    expect_all_back_on(linked_volume(), |editor| summary(editor, 0), DOTS);
    expect_all_back_on(linked_volume(), |editor| summary(editor, editor.path(&["files"])), DOTS);
    let entry = |editor: &Editor| {
        editor.edit(moved(editor), |entry: &mut RawSummary| entry.version = 1);
        editor.edit_nat(editor.path(&["crowd"]), |entry| *entry = RawNatEntry::default());
    };
    expect_all_back_on(linked_volume(), entry, DOTS);
}

/// A directory `crowd` with second names only, whose first block was written twice; its id belonged to another directory before.
fn rewritten_volume() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(200 << 20, 512));
    let options = FormatOptions { uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let open = || F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let make = |fs: &F2fs, parent, name: &str, kind| {
        let node = NewNode { kind, permissions: 0o755, rdev: 0, target: b"" };
        fs.create(parent, name.as_bytes(), &node, &CALLER).unwrap().ino
    };
    // More than the journal of the NAT holds: the table counts how often each id was given up.
    let fs = open();
    (0..90).for_each(|number| _ = make(&fs, fs.root(), &format!("old {number}"), FileKind::Directory));
    fs.close().unwrap();
    let fs = open();
    (0..90).for_each(|number| fs.remove_directory(fs.root(), format!("old {number}").as_bytes()).unwrap());
    fs.close().unwrap();
    let fs = open();
    let crowd = make(&fs, fs.root(), "crowd", FileKind::Directory);
    make(&fs, fs.root(), "outer", FileKind::Directory);
    make(&fs, fs.root(), "small", FileKind::Regular);
    let files = make(&fs, fs.root(), "files", FileKind::Directory);
    for number in 0..400 {
        let file = make(&fs, files, &format!("file {number}"), FileKind::Regular);
        fs.link(file, crowd, format!("second {number}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    (0..400).step_by(7).for_each(|number| fs.unlink(crowd, format!("second {number}").as_bytes()).unwrap());
    fs.sync().unwrap();
    // The logs go on in other segments.
    let more = make(&fs, fs.root(), "more", FileKind::Directory);
    for number in 0..600 {
        make(&fs, more, &format!("a file that moves the log on, number {number}"), FileKind::Regular);
        fs.sync().unwrap();
    }
    fs.close().unwrap();
    device.snapshot()
}

/// An older first block is free by now; the summaries have another version of the id than a new NAT entry has.
#[test]
fn a_first_block_that_was_written_again_counts() {
    let sound = rewritten_volume();
    let editor = Editor::new(&sound);
    assert!(editor.nat(editor.path(&["crowd"])).version > 0);
    expect_all_back_on(sound.snapshot(), |editor| _ = lead_astray(editor, true), FOUND);
    expect_all_back_on(sound.snapshot(), |editor| _ = remove_dots(editor, editor.path(&["crowd"])), DOTS);
    let harm = |editor: &Editor| {
        let address = first_block(editor, editor.path(&["crowd"]));
        let mut block = editor.block(Address::new(address));
        entries::remove(&mut block, &DentryShape::BLOCK, 0);
        editor.put(Address::new(address), &block);
        editor.edit(editor.summary(Address::new(address)), |one: &mut RawSummary| one.nid.set(0));
    };
    expect_all_back_on(sound, harm, DOTS);
}

/// With one bit of the size of its extra attributes, the root has its second block for the first.
#[test]
fn another_number_of_extra_attributes_is_told_by_the_checksum() {
    let harm = |editor: &Editor| {
        editor.edit((editor.node_address(editor.geometry.root_ino.get()), 0), |inode: &mut RawInode| {
            let size = inode.extra().i_extra_isize.get();
            inode.extra_mut().i_extra_isize.set(size ^ 4);
        });
    };
    expect_all_back_on(linked_volume(), harm, "24 bytes of extra attributes, as the checksum says");
}

/// Entry and hash are damaged together: who remembers the name has it, and the other file, which has lost its entry, gets it back.
#[test]
fn an_entry_of_another_file_goes_to_who_remembers_its_name() {
    let name = |number: u32| format!("a file with a longer name {number}");
    let harm = |editor: &Editor| {
        let crowd = editor.path(&["crowd"]);
        let other = editor.find(crowd, &name(217));
        editor.edit_entry(crowd, &name(187), |raw| (raw.ino, raw.hash_code) = (other.into(), 0xFF12_3456.into()));
        editor.edit_entry(crowd, &name(217), |raw| raw.ino = 0.into());
    };
    expect_all_back(harm, "hash computed anew, and now inode");
}
