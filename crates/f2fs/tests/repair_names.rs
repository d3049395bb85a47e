//! Repair of entries whose names have a wrong length: the entries behind them stay, and what has no place any more is told.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;
#[allow(dead_code)] // Part of it is for other tests.
mod repaired;

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::dentry::RawDentry;
use basalt_f2fs::layout::inode::Advise;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
use editor::Editor;
use repaired::{differences, repair_fully, tree};

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const FITS: &str = "which fits the hash";

/// `/dir`: so many second names of files in `/files`, three and three of 8 and of 24 bytes.
fn linked_volume(files: usize) -> MemoryDevice {
    volume(|fs, files_at, dir, make| {
        for index in 0..files {
            let file = make(files_at, &format!("file {index}"));
            fs.write(file, 0, format!("content {index}").as_bytes(), false).unwrap();
            let long = if index % 6 < 3 { "" } else { " of 24 bytes in all" };
            fs.link(
                file,
                dir,
                format!("{index:0width$}{long}", width = if long.is_empty() { 8 } else { 5 }).as_bytes(),
            )
            .unwrap();
        }
    })
}

/// A volume with the directories `/files` and `/dir`, filled by `fill`.
fn volume(fill: impl FnOnce(&F2fs, u64, u64, &dyn Fn(u64, &str) -> u64)) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(100 << 20, 512));
    let features = FormatOptions::DEFAULT_FEATURES | Features::ENCRYPT;
    let options =
        FormatOptions { features, uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let fs = F2fs::open(shared, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let make = |parent, name: &str, kind| {
        let node = NewNode { kind, permissions: 0o755, rdev: 0, target: b"" };
        fs.create(parent, name.as_bytes(), &node, &CALLER).unwrap().ino
    };
    let [files, dir] = ["files", "dir"].map(|name| make(fs.root(), name, FileKind::Directory));
    fill(&fs, files, dir, &|parent, name| make(parent, name, FileKind::Regular));
    fs.close().unwrap();
    device.snapshot()
}

/// Changes an entry of `/dir` with a name of `length` bytes that others follow closely. After a repair that does `what`, all paths are back.
fn expect_back(sound: MemoryDevice, length: usize, what: &str, change: impl FnOnce(&mut RawDentry)) {
    let editor = Editor::new(&sound);
    let all = editor.entries(editor.path(&["dir"]));
    let (size, slots) = (size_of::<RawDentry>(), length.div_ceil(8));
    let next = |(block, byte): (Address, usize)| (block, byte + slots * size);
    let entry = all.windows(2).find(|pair| pair[0].0.len() == length && pair[1].2 == next(pair[0].2));
    editor.edit(entry.expect("an entry that another one follows")[0].2, change);
    let device: Arc<dyn BlockDevice> = Arc::new(editor.device);
    let report = repair_fully(&device, what);
    let actions: Vec<&str> = report.repairs.iter().map(|repair| &*repair.action).collect();
    assert!(actions.iter().any(|action| action.contains(what)), "{what}: {actions:?}");
    assert_eq!(differences(&tree(Arc::new(sound)), &tree(device)), Vec::<String>::new(), "{what}: {actions:?}");
}

#[test]
fn a_wrong_length_takes_no_entry_behind_it() {
    // In a directory of blocks, and in an inline one.
    for files in [300, 12] {
        for (length, wrong) in
            [(8, 24), (8, 7), (8, 9), (8, 300), (8, 0), (24, 8), (24, 3), (24, 40), (24, 23), (24, 0)]
        {
            expect_back(linked_volume(files), length, FITS, |raw| raw.name_len.set(wrong));
        }
    }
}

/// Nothing tells the length any more but the entry that begins in its slots.
#[test]
fn a_wrong_length_and_a_wrong_hash_take_no_entry_behind_them() {
    for files in [300, 12] {
        expect_back(linked_volume(files), 8, "hash computed anew", |raw| {
            raw.name_len.set(24);
            raw.hash_code.set(0x0BAD_CAFE);
        });
    }
}

/// A file that remembers no name goes to the last `lost+found` that takes it; the repair says which one.
#[test]
fn the_directory_that_takes_a_file_is_told() {
    for (is_first_full, place) in [(false, "lost+found/#"), (true, "lost+found.1/#")] {
        let device = volume(|fs, files, dir, make| {
            let file = make(files, "file");
            fs.link(file, dir, b"the only name").unwrap();
            fs.unlink(files, b"file").unwrap();
        });
        let editor = Editor::new(&device);
        let [dir, lost_found] = ["dir", "lost+found"].map(|name| editor.path(&[name]));
        let file = editor.path(&["dir", "the only name"]);
        // As Linux leaves it after a rename.
        editor.edit_inode(file, |inode| inode.i_advise |= Advise::LOST_PINO.bits());
        if is_first_full {
            editor.edit_inode(lost_found, |inode| inode.i_advise |= Advise::ENCRYPT.bits());
        }
        // The name cannot be one, and no length fits; rescue takes the entry for garbage, and the inode for one without a place.
        editor.edit_entry(dir, "the only name", |raw| (raw.name_len, raw.hash_code) = (0.into(), 0.into()));
        let device: Arc<dyn BlockDevice> = Arc::new(editor.device.snapshot());
        let planned = plan(device, &RepairOptions::default(), &mut |_| ()).unwrap();
        let told: Vec<String> = planned.report().repairs.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|told| told.contains(place)), "{place}: {told:#?}");
    }
}
