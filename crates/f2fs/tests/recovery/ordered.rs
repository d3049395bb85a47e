//! Checkpoints that cleaning or memory pressure needs leave dirty pages in memory. What they make durable is whole all the same.

use basalt_f2fs::layout::inode::InlineFlags;
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags, SetAttributes};

use crate::editor::Editor;
use crate::power::{Bench, FILE, content};

fn set_size(bench: &Bench, ino: InodeNumber, size: u64) {
    bench.fs.set_attributes(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

fn write(bench: &Bench, ino: InodeNumber, offset: u64, bytes: &[u8]) {
    assert_eq!(bench.fs.write(ino, offset, bytes, false).unwrap(), bytes.len());
}

/// A new file with this content.
fn put(bench: &Bench, path: &str, bytes: &[u8]) -> InodeNumber {
    let ino = bench.create(path);
    write(bench, ino, 0, bytes);
    ino
}

#[track_caller]
fn expect(bench: &Bench, path: &str, expected: &[u8], what: &str) {
    let found = bench.read(path).unwrap_or_else(|| panic!("{what}: `{path}` is missing"));
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!((found.len(), differs), (expected.len(), None), "{what}: `{path}`: length, first difference");
}

/// A way to make a file longer: its name, and what it does to a file that ends at 5,000. Where it writes, it writes `+`.
type Growth = (&'static str, u64, Option<std::ops::Range<usize>>, fn(&Bench, InodeNumber));

const GROWTHS: [Growth; 9] = [
    ("a write behind the end", 6100, Some(6000..6100), |b, ino| write(b, ino, 6000, &[b'+'; 100])),
    ("a write at the end", 5100, Some(5000..5100), |b, ino| write(b, ino, 5000, &[b'+'; 100])),
    ("a write two blocks further", 13_001, Some(13_000..13_001), |b, ino| write(b, ino, 13_000, b"+")),
    ("a large write", 8192 + 65_536, Some(8192..8192 + 65_536), |b, ino| write(b, ino, 8192, &[b'+'; 65_536])),
    ("writeback of the kernel's", 7000, Some(6000..7000), |b, ino| b.fs.write_back(ino, 6000, &[b'+'; 1000]).unwrap()),
    ("truncate", 8000, None, |b, ino| set_size(b, ino, 8000)),
    ("truncate by blocks", 20_000, None, |b, ino| set_size(b, ino, 20_000)),
    ("fallocate", 8100, None, |b, ino| b.fs.fallocate(ino, FallocateMode::empty(), 7000, 1100).unwrap()),
    ("zero range", 30_000, None, |b, ino| b.fs.fallocate(ino, FallocateMode::ZERO_RANGE, 9000, 21_000).unwrap()),
];

/// What a file of 5,000 bytes of `old` is after it grew.
fn grown((_, size, written, _): &Growth, old: &[u8]) -> Vec<u8> {
    let mut expected = old[..5000].to_vec();
    expected.resize(*size as usize, 0);
    if let Some(written) = written {
        expected[written.clone()].fill(b'+');
    }
    expected
}

/// The tail that a truncation cut off does not come back after a checkpoint that has the size, but may not have the page.
#[test]
fn what_was_cut_off_is_gone_after_a_power_cut() {
    let secret = content(1, 10_000);
    let bench = Bench::with_little_memory();
    for (name, ..) in &GROWTHS {
        put(&bench, name, &secret);
    }
    bench.fs.sync().unwrap();
    for (name, ..) in &GROWTHS {
        set_size(&bench, bench.ino(name).unwrap(), 5000);
    }
    let after = bench.cut_behind_a_checkpoint_without_pages();
    for growth @ (name, .., grow) in &GROWTHS {
        expect(&after, name, &secret[..5000], "truncated");
        grow(&after, after.ino(name).unwrap());
        expect(&after, name, &grown(growth, &secret), "grown");
    }
    after.fs.sync().unwrap();
    let again = after.after_cut();
    for growth @ (name, ..) in &GROWTHS {
        expect(&again, name, &grown(growth, &secret), "grown and synced");
    }
    again.close_clean("cut off and grown");
}

/// The same, where the file grows before the checkpoint.
#[test]
fn a_size_is_durable_with_what_it_covers() {
    let secret = content(2, 10_000);
    let bench = Bench::with_little_memory();
    for (name, ..) in &GROWTHS {
        put(&bench, name, &secret);
    }
    bench.fs.sync().unwrap();
    for (name, .., grow) in &GROWTHS {
        let ino = bench.ino(name).unwrap();
        set_size(&bench, ino, 5000);
        grow(&bench, ino);
    }
    let after = bench.cut_behind_a_checkpoint_without_pages();
    for growth @ (name, ..) in &GROWTHS {
        expect(&after, name, &grown(growth, &secret), "truncated and grown");
    }
    after.close_clean("truncated and grown");
}

/// Other systems leave bytes behind the end of a file, in its last block or in whole ones: they never come into sight.
#[test]
fn what_others_left_behind_the_end_stays_unseen() {
    let secret = content(3, 40_000);
    let bench = Bench::new();
    let inline = |name: &str| format!("{name}, inline");
    for (name, ..) in &GROWTHS {
        put(&bench, name, &secret);
        put(&bench, &inline(name), &secret[..3000]);
    }
    bench.fs.close().unwrap();
    let editor = Editor::new(&bench.device.cut());
    for (name, ..) in &GROWTHS {
        editor.edit_inode(editor.path(&[name]), |raw| raw.i_size.set(5000));
        editor.edit_inode(editor.path(&[&inline(name)]), |raw| {
            assert!(raw.is_inline(InlineFlags::DATA));
            raw.i_size.set(50);
        });
    }
    let bench = Bench::open(editor.device.snapshot());
    for growth @ (name, size, _, grow) in &GROWTHS {
        grow(&bench, bench.ino(name).unwrap());
        expect(&bench, name, &grown(growth, &secret), "grown");
        let ino = bench.ino(&inline(name)).unwrap();
        grow(&bench, ino);
        let mut expected = grown(growth, &secret);
        expected[50..5000].fill(0);
        assert_eq!(expected.len() as u64, *size);
        expect(&bench, &inline(name), &expected, "grown");
    }
    let few = put(&bench, "inline that stays so", &secret[..3000]);
    set_size(&bench, few, 50);
    bench.fs.fallocate(few, FallocateMode::empty(), 0, 100).unwrap();
    write(&bench, few, 200, b"+");
    let mut expected = secret[..50].to_vec();
    expected.resize(200, 0);
    expected.push(b'+');
    expect(&bench, "inline that stays so", &expected, "grown");
    bench.fs.sync().unwrap();
    let after = bench.after_cut();
    for growth @ (name, ..) in &GROWTHS {
        expect(&after, name, &grown(growth, &secret), "grown and synced");
    }
    after.close_clean("bytes behind the end");
}

/// The same inside an inode, which has room for a few bytes more.
#[test]
fn what_others_left_behind_the_end_of_inline_data_stays_unseen() {
    let secret = content(4, 3000);
    type Growth = (&'static str, fn(&Bench, InodeNumber));
    let growths: [Growth; 4] = [
        ("write", |b, ino| write(b, ino, 199, &[0])),
        ("writeback", |b, ino| b.fs.write_back(ino, 199, &[0]).unwrap()),
        ("truncate", |b, ino| set_size(b, ino, 200)),
        ("fallocate", |b, ino| b.fs.fallocate(ino, FallocateMode::empty(), 10, 190).unwrap()),
    ];
    for start in [50, 0] {
        let bench = Bench::new();
        for (name, _) in growths {
            put(&bench, name, &secret);
        }
        bench.fs.close().unwrap();
        let editor = Editor::new(&bench.device.cut());
        growths.iter().for_each(|(name, _)| editor.edit_inode(editor.path(&[name]), |raw| raw.i_size.set(start)));
        let bench = Bench::open(editor.device.snapshot());
        let mut expected = secret[..start as usize].to_vec();
        expected.resize(200, 0);
        for (name, grow) in growths {
            grow(&bench, bench.ino(name).unwrap());
            expect(&bench, name, &expected, "grown");
        }
    }
}

#[test]
fn symbolic_links_are_whole() {
    let bench = Bench::with_little_memory();
    let lengths = [1, 3000, 3400, 3500, 3600, 3688, 3700, 4000, 4094, 4095];
    let target =
        |length: u64| [vec![b'/'; 1], content(length, 4095).iter().map(|byte| b'a' + byte % 26).collect()].concat();
    for length in lengths {
        let target = &target(length)[..length as usize];
        let node = NewNode { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target };
        bench.fs.create(bench.fs.root(), format!("link {length}").as_bytes(), &node, &Caller::default()).unwrap();
    }
    let after = bench.cut_behind_a_checkpoint_without_pages();
    for length in lengths {
        let ino = after.ino(&format!("link {length}")).unwrap();
        let found = after.fs.read_link(ino).unwrap();
        assert!(found == target(length)[..length as usize], "{length} bytes, {} found", found.len());
    }
    after.close_clean("symbolic links");
}

/// How a file takes the place of an older one without an fsync: in words, and what is done to the path, with the new content.
type Replacement = (&'static str, fn(&Bench, &str, &[u8]));

const REPLACEMENTS: [Replacement; 6] = [
    ("renamed over it", |bench, path, new| {
        put(bench, &format!("{path}.new"), new);
        bench.rename(&format!("{path}.new"), path);
    }),
    ("exchanged with it", |bench, path, new| {
        put(bench, &format!("{path}.new"), new);
        let (old, name) = (format!("{path}.new"), path);
        let (root, exchange) = (bench.fs.root(), RenameFlags::EXCHANGE);
        bench.fs.rename(root, old.as_bytes(), root, name.as_bytes(), exchange, &Caller::default()).unwrap();
    }),
    // The pages of the new file have older bytes on the volume.
    ("renamed over it, used before", |bench, path, new| {
        let ino = bench.ino(&format!("{path}.used")).unwrap();
        write(bench, ino, 0, new);
        bench.rename(&format!("{path}.used"), path);
    }),
    ("truncated and written again", |bench, path, new| {
        let ino = bench.ino(path).unwrap();
        set_size(bench, ino, 0);
        new.chunks(1000).zip(0..).for_each(|(bytes, index)| write(bench, ino, 1000 * index, bytes));
    }),
    ("unlinked and made again", |bench, path, new| {
        bench.unlink(path);
        put(bench, path, new);
    }),
    ("linked from nowhere", |bench, path, new| {
        bench.unlink(path);
        let ino = bench.fs.create_unnamed(bench.fs.root(), 0o600, &Caller::default()).unwrap().ino;
        write(bench, ino, 0, new);
        bench.fs.link(ino, bench.fs.root(), path.as_bytes()).unwrap();
    }),
];

#[test]
fn what_replaces_a_file_is_whole() {
    let sizes = [100, 3600, 4096, 6000, 41_000, 70_000];
    for (how, replace) in REPLACEMENTS {
        let bench = Bench::with_little_memory();
        for size in sizes {
            put(&bench, &format!("{size}"), &content(5, 6000));
            put(&bench, &format!("{size}.used"), &content(6, size));
        }
        bench.fs.sync().unwrap();
        for size in sizes {
            replace(&bench, &format!("{size}"), &content(size as u64, size));
        }
        let after = bench.cut_behind_a_checkpoint_without_pages();
        for size in sizes {
            expect(&after, &format!("{size}"), &content(size as u64, size), how);
        }
        after.close_clean(how);
    }
}

/// A log that grows without an fsync has what was written at the checkpoint, and no zeros.
#[test]
fn what_was_appended_is_there_with_the_size() {
    let bench = Bench::with_little_memory();
    let line = content(7, 333);
    let node = bench.fs.create(bench.fs.root(), b"log", &FILE, &Caller::default()).unwrap().ino;
    let mut expected = Vec::new();
    for round in 0..100 {
        write(&bench, node, expected.len() as u64, &line);
        expected.extend_from_slice(&line);
        if round == 40 {
            bench.fs.sync().unwrap();
        }
    }
    let after = bench.cut_behind_a_checkpoint_without_pages();
    expect(&after, "log", &expected, "appended");
    after.close_clean("a log");
}

/// What a checkpoint must have of a file can become more before it: the pages from a block on, and later from one in front of it.
#[test]
fn pages_in_front_of_those_that_are_due_already_are_due_too() {
    let (old, new) = (content(6, 40_960), content(7, 45_056));
    let bench = Bench::with_little_memory();
    let files = ["renamed", "shortened"].map(|path| put(&bench, path, &old));
    bench.fs.sync().unwrap();
    files.iter().for_each(|&ino| write(&bench, ino, 40_960, &new[40_960..]));
    write(&bench, files[0], 8192, &new[8192..12_288]);
    bench.rename("renamed", "other name");
    set_size(&bench, files[1], 4096);
    write(&bench, files[1], 4096, &new[4096..12_288]);
    let after = bench.cut_behind_a_checkpoint_without_pages();
    let renamed = [&old[..8192], &new[8192..12_288], &old[12_288..], &new[40_960..]].concat();
    expect(&after, "other name", &renamed, "appended to, overwritten and renamed");
    expect(&after, "shortened", &[&old[..4096], &new[4096..12_288]].concat(), "appended to, cut and appended to");
    after.close_clean("due twice");
}

/// Other systems may show what lies behind the end of a file when they extend it. So what a truncation cut off is gone from the device with
/// the first checkpoint that has the new size.
#[test]
fn what_was_cut_off_is_gone_from_the_device_too() {
    let secret = content(8, 10_000);
    let bench = Bench::with_little_memory();
    let ino = put(&bench, "file", &secret);
    bench.fs.sync().unwrap();
    set_size(&bench, ino, 5000);
    let after = bench.cut_behind_a_checkpoint_without_pages();
    let editor = Editor::new(&after.device.cut());
    let ino = editor.path(&["file"]);
    let inode = editor.inode(ino);
    assert_eq!(inode.i_size.get(), 5000);
    let block = editor.block(inode.slots[editor.slot(ino, 1)].into());
    assert_eq!(block[..5000 - 4096], secret[4096..5000]);
    assert!(block[5000 - 4096..].iter().all(|&byte| byte == 0), "bytes behind the end");
}
