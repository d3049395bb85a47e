//! Which names lead where, after fsyncs and a power cut.

use basalt_f2fs::layout::checkpoint::RawOrphanBlock;
use basalt_vfs::{Caller, FallocateMode, FileSystem, RenameFlags};

use crate::editor::{Editor, volume_with_orphan};
use crate::power::Bench;

/// Writes `word` to a file, new or not, and syncs it.
fn put(bench: &Bench, path: &str, word: &str) {
    let ino = bench.ino(path).unwrap_or_else(|| bench.create(path));
    bench.fs.write(ino, 0, word.as_bytes(), false).unwrap();
    bench.fs.sync_file(ino, false).unwrap();
}

#[track_caller]
fn expect(bench: &Bench, path: &str, word: &str) {
    assert_eq!(bench.read(path).as_deref().map(String::from_utf8_lossy).as_deref(), Some(word), "{path}");
}

#[test]
fn many_new_files_in_one_directory() {
    let bench = Bench::new();
    bench.mkdir("d");
    bench.fs.sync().unwrap();
    for number in 0..800 {
        put(&bench, &format!("d/a file whose name is long enough to need many blocks {number}"), &format!("{number}"));
    }
    let after = bench.after_cut();
    for number in 0..800 {
        let path = format!("d/a file whose name is long enough to need many blocks {number}");
        expect(&after, &path, &format!("{number}"));
    }
    after.close_clean("many files");
}

#[test]
fn in_new_directories() {
    let bench = Bench::new();
    bench.mkdir("a");
    bench.mkdir("a/b");
    put(&bench, "a/b/file", "deep");
    bench.mkdir("a/c");
    put(&bench, "a/c/file", "beside");
    let after = bench.after_cut();
    expect(&after, "a/b/file", "deep");
    expect(&after, "a/c/file", "beside");
    after.close_clean("new directories");
}

#[test]
fn replaced_by_rename() {
    let bench = Bench::new();
    put(&bench, "document", "old");
    bench.fs.sync().unwrap();
    put(&bench, "document.new", "new");
    bench.rename("document.new", "document");
    let after = bench.after_cut();
    expect(&after, "document", "old");
    expect(&after, "document.new", "new");
    let ino = bench.ino("document").unwrap();
    bench.fs.sync_file(ino, false).unwrap();
    let after = bench.after_cut();
    expect(&after, "document", "new");
    assert_eq!(after.ino("document.new"), None);
    after.close_clean("rename");
}

#[test]
fn moved_to_a_new_directory() {
    let bench = Bench::new();
    put(&bench, "file", "moved");
    bench.fs.sync().unwrap();
    bench.mkdir("d");
    bench.rename("file", "d/file");
    put(&bench, "d/file", "MOVED");
    let after = bench.after_cut();
    expect(&after, "d/file", "MOVED");
    assert_eq!(after.ino("file"), None);
    after.close_clean("moved");
}

#[test]
fn a_name_taken_over_after_unlink() {
    let bench = Bench::new();
    put(&bench, "file", "first");
    bench.fs.sync().unwrap();
    bench.unlink("file");
    put(&bench, "file", "second");
    expect(&bench.after_cut(), "file", "second");
    bench.unlink("file");
    put(&bench, "file", "third");
    let after = bench.after_cut();
    expect(&after, "file", "third");
    after.close_clean("unlinked and made again");
}

/// What the name led to lives on elsewhere: it must not go with its old name.
#[test]
fn a_name_taken_over_after_a_move() {
    for by_link in [false, true] {
        let bench = Bench::new();
        put(&bench, "file", "first");
        bench.fs.sync().unwrap();
        if by_link {
            let ino = bench.ino("file").unwrap();
            bench.fs.link(ino, bench.fs.root(), b"other").unwrap();
            bench.unlink("file");
        } else {
            bench.rename("file", "other");
        }
        put(&bench, "file", "second");
        let after = bench.after_cut();
        expect(&after, "file", "second");
        expect(&after, "other", "first");
        after.close_clean("moved away");
    }
}

#[test]
fn a_directory_became_a_file() {
    let bench = Bench::new();
    bench.mkdir("d");
    put(&bench, "d/file", "kept");
    bench.fs.sync().unwrap();
    bench.rename("d/file", "file");
    bench.fs.remove_directory(bench.fs.root(), b"d").unwrap();
    put(&bench, "d", "file now");
    let after = bench.after_cut();
    expect(&after, "d", "file now");
    expect(&after, "file", "kept");
    after.close_clean("a directory became a file");
}

#[test]
fn below_a_renamed_directory() {
    let bench = Bench::new();
    bench.mkdir("d");
    put(&bench, "d/old", "old");
    bench.fs.sync().unwrap();
    bench.rename("d", "e");
    put(&bench, "e/new", "new");
    let after = bench.after_cut();
    expect(&after, "e/new", "new");
    expect(&after, "e/old", "old");
    after.close_clean("renamed directory");
}

/// An fsync of a file that has not changed makes its path durable, too: whatever directory on the way to it was renamed.
#[test]
fn unchanged_files_below_renamed_directories() {
    type Change = (&'static str, fn(&Bench));
    let changes: [Change; 5] = [
        ("a/b/c/file", |bench| bench.rename("a/b/c", "a/b/d")),
        ("a/b/c/file", |bench| bench.rename("a/b", "a/d")),
        ("a/b/c/file", |bench| bench.rename("a", "d")),
        ("a/b/c/file", |bench| bench.rename("a/b/c", "c")),
        ("a/b/c/file", |bench| {
            let (root, exchange) = (bench.fs.root(), RenameFlags::EXCHANGE);
            bench.fs.rename(root, b"a", root, b"other", exchange, &Caller::default()).unwrap();
        }),
    ];
    let moved = ["a/b/d/file", "a/d/c/file", "d/b/c/file", "c/file", "other/b/c/file"];
    for data_only in [false, true] {
        for ((from, change), to) in changes.iter().zip(moved) {
            let bench = Bench::new();
            for path in ["a", "a/b", "a/b/c", "other"] {
                bench.mkdir(path);
            }
            put(&bench, from, "unchanged");
            bench.fs.sync().unwrap();
            change(&bench);
            bench.fs.sync_file(bench.ino(to).unwrap(), data_only).unwrap();
            let after = bench.after_cut();
            expect(&after, to, "unchanged");
            assert_eq!(after.ino(from), None, "{from}");
            after.close_clean(to);
        }
    }
}

#[test]
fn unlinked_after_fsync_comes_back_or_not_but_never_half() {
    let bench = Bench::new();
    put(&bench, "gone", "gone");
    bench.unlink("gone");
    put(&bench, "other", "other");
    let after = bench.after_cut();
    // The unlink was never synced.
    expect(&after, "gone", "gone");
    expect(&after, "other", "other");
    after.close_clean("unlinked");
}

#[test]
fn links() {
    let bench = Bench::new();
    put(&bench, "a", "one");
    let ino = bench.ino("a").unwrap();
    bench.fs.link(ino, bench.fs.root(), b"b").unwrap();
    put(&bench, "b", "two");
    let after = bench.after_cut();
    expect(&after, "a", "two");
    expect(&after, "b", "two");
    after.close_clean("links");
    bench.unlink("a");
    put(&bench, "b", "six");
    let after = bench.after_cut();
    expect(&after, "b", "six");
    after.close_clean("links less one");
}

/// A new name took the place of one that was removed: recovery, to which both are there, needs one more block than there is.
#[test]
fn a_name_that_takes_more_room_in_recovery() {
    let bench = Bench::new();
    let linked = bench.create("linked");
    for name in ["probe", "d"] {
        bench.mkdir(name);
    }
    let link = |dir: &str, number: u32| {
        let name = number.to_string();
        bench.fs.link(linked, bench.ino(dir).unwrap(), name.as_bytes()).unwrap();
        bench.fs.attributes(bench.ino(dir).unwrap()).unwrap().sectors
    };
    let inline = link("probe", 0);
    let full = (1..).find(|&number| link("probe", number) != inline).unwrap();
    assert!((0..full).all(|number| link("d", number) == inline), "it has moved out of its inode");

    let (filler, keep) = (bench.create("filler"), FallocateMode::KEEP_SIZE);
    let mut blocks = bench.fs.stat_fs().unwrap().free - 100;
    bench.fs.fallocate(filler, keep, 0, blocks * 4096).unwrap();
    while bench.fs.fallocate(filler, keep, blocks * 4096, 4096).is_ok() {
        blocks += 1;
    }
    bench.fs.fallocate(filler, keep | FallocateMode::PUNCH_HOLE, 0, 4096).unwrap();
    assert_eq!(bench.fs.stat_fs().unwrap().free, 1);
    bench.fs.sync().unwrap();

    bench.unlink("d/0");
    put(&bench, "d/new", "new");
    let after = bench.after_cut();
    expect(&after, "d/new", "new");
    after.close_clean("a name more");
}

/// Linux would free it; nobody who finds it later would know why it was kept.
#[test]
fn an_inode_of_the_orphan_list_that_has_a_name_is_kept_and_told() {
    let editor = Editor::new(&volume_with_orphan());
    let small = editor.path(&["small"]);
    editor.edit((editor.pack().0 + 1, 0), |orphans: &mut RawOrphanBlock| {
        orphans.entry_count.set(2);
        orphans.ino[1].set(small);
    });
    let bench = Bench::open(editor.device.snapshot());
    let warnings = bench.fs.warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains(&format!("inode {small} ")) && warning.contains("has a name")),
        "{warnings:?}"
    );
    assert_eq!(bench.ino("small"), Some(u64::from(small)));
    assert!(bench.read("small").is_some());
    bench.close_clean("an orphan with a name");
}
