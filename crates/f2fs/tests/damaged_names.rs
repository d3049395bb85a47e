//! Directories with damaged entries or blocks: a list delivers all others, however few at a time, and then the error; none is empty.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::dir::hash::hash;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::dentry::RawDentry;
use basalt_f2fs::layout::inode::Advise;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::layout::{Address, BLOCK_SIZE};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, Error, FileKind, FileSystem, NewNode};
use editor::{Editor, filled_volume};

fn filled(features: Features, fill: impl FnOnce(&F2fs)) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(100 << 20, 512));
    let features = FormatOptions::DEFAULT_FEATURES | features;
    format(&*device, &FormatOptions { features, ..FormatOptions::default() }, &mut |_, _| ()).unwrap();
    let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    fill(&fs);
    fs.close().unwrap();
    device.snapshot()
}

fn make(fs: &F2fs, parent: u64, name: &str, kind: FileKind) -> u64 {
    let node = NewNode { kind, permissions: 0o755, rdev: 0, target: b"" };
    fs.create(parent, name.as_bytes(), &node, &Caller::default()).unwrap().ino
}

/// `/dir` with these names of one file.
fn linked(features: Features, names: impl Iterator<Item = String>) -> MemoryDevice {
    filled(features, |fs| {
        let dir = make(fs, fs.root(), "dir", FileKind::Directory);
        let file = make(fs, fs.root(), "file", FileKind::Regular);
        for name in names {
            fs.link(file, dir, name.as_bytes()).unwrap();
        }
    })
}

fn open(device: Arc<dyn BlockDevice>) -> F2fs {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

fn edited(editor: &Editor) -> F2fs {
    open(Arc::new(editor.device.snapshot()))
}

/// Where block `index` of a directory is.
fn block_of(editor: &Editor, directory: u32, index: usize) -> u32 {
    editor.inode(directory).slots[editor.slot(directory, index)].get()
}

/// The names in a block.
fn names_in(editor: &Editor, directory: u32, block: u32) -> BTreeSet<Vec<u8>> {
    editor
        .entries(directory)
        .into_iter()
        .filter(|entry| entry.2.0 == Address::new(block))
        .map(|entry| entry.0)
        .collect()
}

/// The names of a directory, so many at a time, and how the list ends.
fn list(fs: &F2fs, directory: u64, step: usize) -> (Vec<Vec<u8>>, Result<(), Error>) {
    let (mut names, mut from) = (Vec::new(), 0);
    loop {
        let before = names.len();
        let result = fs.read_directory(directory, from, &mut |entry| {
            if names.len() == before + step {
                return false;
            }
            names.push(entry.name.to_vec());
            from = entry.next;
            true
        });
        // As the kernel does: an error counts where nothing came with it.
        if names.len() == before {
            return (names, result);
        }
    }
}

#[test]
fn all_other_names_are_listed_before_the_error() {
    let sound = filled_volume();
    let fs = F2fs::open(Arc::new(sound.snapshot()), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let crowd = fs.lookup(fs.root(), b"crowd").unwrap().ino;
    let all = list(&fs, crowd, 1000).0;
    assert_eq!(all.len(), 702);
    // The first, one in the middle, the last, and neighbours.
    for damaged in [vec![2], vec![350], vec![701], vec![2, 3, 100, 700, 701]] {
        for text in [[0; 4], *b"a/b/"] {
            let editor = Editor::new(&sound);
            for &at in &damaged {
                let name = std::str::from_utf8(&all[at]).unwrap();
                editor.edit_name(crowd as u32, name, |bytes| *bytes = text);
            }
            let fs = edited(&editor);
            let others: Vec<&Vec<u8>> =
                all.iter().enumerate().filter(|(at, _)| !damaged.contains(at)).map(|one| one.1).collect();
            for step in [1, 7, 1000] {
                let (names, end) = list(&fs, crowd, step);
                assert_eq!(names.iter().collect::<Vec<_>>(), others, "{damaged:?}, {step} at a time");
                assert!(
                    end.is_err_and(|error| error.to_string().contains("left out")),
                    "{damaged:?}, {step} at a time"
                );
            }
        }
    }
    assert!(list(&fs, crowd, 1).1.is_ok());
}

/// One bit of a length: the name seems to take in the two behind it.
#[test]
fn a_wrong_length_hides_no_names() {
    let sound = linked(Features::empty(), (0..300).map(|index| format!("name{index:04}")));
    let editor = Editor::new(&sound);
    let dir = editor.path(&["dir"]);
    let all = list(&edited(&editor), dir.into(), 1000).0;
    let entries = editor.entries(dir);
    for at in [2, 100] {
        let (damaged, .., spot, _) = &entries[at];
        for length in [24, 16, 7, 1, 0, 300] {
            let editor = Editor::new(&sound);
            editor.edit(entries[at].2, |raw: &mut RawDentry| raw.name_len.set(length));
            let fs = edited(&editor);
            let others: Vec<_> = all.iter().filter(|name| *name != damaged).cloned().collect();
            for step in [1, 1000] {
                let (names, end) = list(&fs, dir.into(), step);
                assert_eq!(names, others, "length {length} at {spot:?}");
                assert!(matches!(end, Err(Error::Corrupted(_))), "length {length} at {spot:?}: {end:?}");
            }
        }
    }
}

/// Linux leaves an old hash and inode number in the slots that a long name takes.
#[test]
fn old_numbers_in_the_slots_of_a_long_name_are_no_damage() {
    let name = |index| format!("{index:03}{}", "n".repeat(100));
    let editor = Editor::new(&linked(Features::empty(), (0..20).map(name)));
    let dir = editor.path(&["dir"]);
    for (found, _, (address, byte), _) in editor.entries(dir) {
        for slot in 1..found.len().div_ceil(8) {
            editor.edit((address, byte + slot * 11), |raw: &mut RawDentry| {
                raw.hash_code.set(0x1234_5678);
                raw.ino.set(4);
            });
        }
    }
    let fs = edited(&editor);
    assert_eq!(list(&fs, dir.into(), 3).0.len(), 22);
    // A cursor may come to lie amid a name that was made since.
    for from in 0..214 {
        let end = fs.read_directory(dir.into(), from, &mut |_| true);
        assert!(end.is_ok(), "from {from}: {end:?}");
    }
}

#[test]
fn a_directory_with_a_damaged_entry_is_not_empty() {
    for length in [300, 24, 0] {
        let editor = Editor::new(&filled(Features::empty(), |fs| {
            let dir = make(fs, fs.root(), "dir", FileKind::Directory);
            make(fs, dir, "precious", FileKind::Regular);
        }));
        let dir = editor.path(&["dir"]);
        editor.edit_entry(dir, "precious", |raw| raw.name_len.set(length));
        let device: Arc<dyn BlockDevice> = Arc::new(editor.device.snapshot());
        let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        assert!(list(&fs, dir.into(), 1).1.is_err(), "length {length}");
        let removed = fs.remove_directory(fs.root(), b"dir");
        assert!(matches!(removed, Err(Error::NotEmpty)), "length {length}: {removed:?}");
        fs.close().unwrap();
    }
}

/// Names of an encrypted directory are any bytes; those that no path holds are left out.
#[test]
fn an_encrypted_directory_is_not_damaged() {
    let editor = Editor::new(&linked(Features::ENCRYPT, (0..300).map(|index| format!("name{index:04}"))));
    let dir = editor.path(&["dir"]);
    editor.edit_inode(dir, |inode| inode.i_advise |= Advise::ENCRYPT.bits());
    // All of level 0: its only bucket takes every hash.
    let first = block_of(&editor, dir, 0);
    let entries: Vec<_> = editor.entries(dir).into_iter().filter(|entry| entry.2.0 == Address::new(first)).collect();
    for (entry, text) in entries[2..].iter().zip([b"na/e0003", b"na\0e0004", b"na\xffe0005"]) {
        editor.edit(entry.3, |name: &mut [u8; 8]| *name = *text);
        editor.edit(entry.2, |raw: &mut RawDentry| raw.hash_code.set(hash(text)));
    }
    let report = check(&editor.device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    for step in [1, 1000] {
        let (names, end) = list(&edited(&editor), dir.into(), step);
        assert!(end.is_ok() && names.len() == 300, "{} names, {end:?}", names.len());
        assert!(names.contains(&b"na\xffe0005".to_vec()));
    }
}

#[test]
fn who_stops_gets_no_error() {
    let editor = Editor::new(&linked(Features::empty(), ["a", "damaged", "b", "c"].into_iter().map(ToOwned::to_owned)));
    let dir = editor.path(&["dir"]);
    editor.edit_entry(dir, "damaged", |raw| raw.file_type = 99);
    let fs = edited(&editor);
    let mut count = 0;
    let end = fs.read_directory(dir.into(), 0, &mut |_| {
        count += 1;
        count < 5
    });
    assert!(count == 5 && end.is_ok(), "{count} names, {end:?}");
    assert!(fs.read_directory(dir.into(), 0, &mut |_| true).is_err());
}

/// A block of a directory leads nowhere, or cannot be read: what is in the others is listed.
#[test]
fn a_bad_block_hides_no_other() {
    let sound = filled_volume();
    let editor = Editor::new(&sound);
    let crowd = editor.path(&["crowd"]);
    let all: BTreeSet<_> = list(&edited(&editor), crowd.into(), 1000).0.into_iter().collect();
    let used: Vec<usize> = (0..20).filter(|&index| block_of(&editor, crowd, index) != 0).collect();
    for index in [used[0], used[1], used[used.len() - 1]] {
        let block = block_of(&editor, crowd, index);
        let others: BTreeSet<_> = all.difference(&names_in(&editor, crowd, block)).cloned().collect();
        assert!(others.len() < all.len());
        let astray = Editor::new(&sound);
        let slot = astray.slot(crowd, index);
        astray.edit_inode(crowd, |inode| inode.slots[slot].set(3));
        let bad = u64::from(block) * BLOCK_SIZE as u64;
        let faulty = FaultyDevice::new(sound.snapshot());
        faulty.fail_when(move |request| (request.offset <= bad && request.end() > bad).then_some(ErrorKind::Other));
        for (fs, is_expected) in [
            (edited(&astray), (|error| matches!(error, Error::Corrupted(_))) as fn(&Error) -> bool),
            (open(Arc::new(faulty)), |error| matches!(error, Error::Io(_))),
        ] {
            for step in [1, 1000] {
                let (names, end) = list(&fs, crowd.into(), step);
                assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), others, "block {index}, {step} at a time");
                assert!(end.as_ref().is_err_and(is_expected), "block {index}, {step} at a time: {end:?}");
            }
        }
    }
}

/// Damaged nodes of a directory cost what is below them, and no time, whatever its size.
#[test]
fn a_bad_node_hides_only_what_is_below_it() {
    let long = "n".repeat(240);
    let sound = linked(Features::empty(), (0..9000).map(|index| format!("{index:04}{long}")));
    let editor = Editor::new(&sound);
    let dir = editor.path(&["dir"]);
    let all = list(&edited(&editor), dir.into(), 1000).0;
    assert_eq!(all.len(), 9002);
    let nodes = editor.inode(dir).i_nid;
    let without = |nid: u32| {
        let editor = Editor::new(&sound);
        editor.edit_node(nid, |node| node.footer.ino.set(4));
        let (names, end) = list(&edited(&editor), dir.into(), 1000);
        assert!(matches!(end, Err(Error::Corrupted(_))), "{end:?}");
        names
    };
    let (without_first, without_second) = (without(nodes[0].get()), without(nodes[1].get()));
    // Each has some, and none is below both.
    assert!(without_first.len() < all.len() && without_second.len() < all.len());
    let together: BTreeSet<_> = without_first.iter().chain(&without_second).collect();
    assert_eq!(together.len(), all.len());

    editor.edit_inode(dir, |inode| {
        inode.i_size.set(1 << 41);
        inode.i_nid[4].set(nodes[0].get());
    });
    let (names, end) = list(&edited(&editor), dir.into(), 1000);
    assert!(names == all && matches!(end, Err(Error::Corrupted(_))), "{} names, {end:?}", names.len());
}
