//! Programs that people use, on the mount.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use basalt_testkit::manifest::Parts;
use basalt_testkit::rng::Rng;
use basalt_testkit::tree::{TreeOptions, build_random_tree};
use basalt_testkit::{Manifest, skip};

use crate::fixture::{Volume, sh};

/// A source tree: directories of small text-like files, programs and links.
fn source_tree(top: &Path, files: u32) {
    let mut rng = Rng::new(3);
    for number in 0..files {
        let directory = top.join(format!("part{}/sub{}", number % 40, number % 7));
        fs::create_dir_all(&directory).unwrap();
        let mut content = vec![0; rng.size(60_000) as usize];
        rng.fill(&mut content);
        fs::write(directory.join(format!("file{number}.txt")), content).unwrap();
        if number % 50 == 0 {
            std::os::unix::fs::symlink(format!("file{number}.txt"), directory.join(format!("link{number}"))).unwrap();
        }
    }
}

#[test]
fn git_clones_checks_and_collects() {
    let Some(volume) = Volume::new("512M") else { return };
    if !skip::tools_or_skip(&["git"]) {
        return;
    }
    let origin = volume.outside("origin");
    source_tree(&origin, 2_000);
    let settings = "export HOME=/nonexistent GIT_CONFIG_COUNT=3 \
        GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=A GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=a@example.org \
        GIT_CONFIG_KEY_2=safe.directory GIT_CONFIG_VALUE_2='*'";
    sh(
        &origin,
        &format!("{settings}; git init -q; git add .; git commit -qm one; git rm -rq part1; git commit -qm two"),
    );
    let root = volume.root();
    sh(&root, &format!("{settings}; git clone -q --no-local {} clone; cd clone; git fsck --strict", origin.display()));
    let clone = volume.path("clone");
    let script = "git fsck --strict; git status --porcelain; git checkout -q HEAD~1; test -d part1; \
        git checkout -q -; test ! -e part1; echo x > new; git add new; git commit -qm three; git gc -q; git fsck --strict";
    sh(&clone, &format!("{settings}; {script}"));
    volume.remount();
    let changes = sh(&clone, &format!("{settings}; git fsck --strict; git status --porcelain"));
    assert!(!changes.contains("new") && !changes.contains("part"), "{changes}");
}

/// Two processes fill a table at once, and rows are changed and deleted.
fn use_database(root: &Path, mode: &str) -> String {
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) \
        INSERT INTO t(v) SELECT randomblob(200) FROM n";
    let script = format!(
        "run() {{ sqlite3 -cmd '.timeout 60000' {mode}.db \"$@\"; }}
        run 'PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); CREATE INDEX i ON t(v);'
        (for i in 1 2 3; do run '{rows};'; done) & first=$!
        (for i in 1 2 3; do run '{rows};'; done) & second=$!
        wait $first; wait $second
        run 'UPDATE t SET v = randomblob(300) WHERE id % 3 = 0; DELETE FROM t WHERE id % 5 = 0; VACUUM;'
        run 'PRAGMA integrity_check; SELECT count(*) FROM t;'"
    );
    sh(root, &script)
}

#[test]
fn sqlite_keeps_its_databases_whole() {
    let Some(volume) = Volume::new("256M") else { return };
    if !skip::tools_or_skip(&["sqlite3"]) {
        return;
    }
    for mode in ["wal", "delete", "truncate", "persist"] {
        let output = use_database(&volume.root(), mode);
        assert!(output.ends_with("ok\n14400\n"), "{mode}: {output}");
    }
    volume.remount();
    for mode in ["wal", "delete", "truncate", "persist"] {
        let output =
            sh(&volume.root(), &format!("sqlite3 {mode}.db 'PRAGMA integrity_check; SELECT count(*) FROM t;'"));
        assert_eq!(output, "ok\n14400\n", "{mode}");
    }
}

#[test]
fn what_sqlite_has_committed_outlives_a_kill() {
    let Some(volume) = Volume::new("256M") else { return };
    if !skip::tools_or_skip(&["sqlite3"]) {
        return;
    }
    for mode in ["wal", "delete"] {
        // EXTRA: with less, SQLite does not wait for the end of its journal.
        let script = format!(
            "sqlite3 {mode}.db 'PRAGMA journal_mode={mode}; PRAGMA synchronous=EXTRA; CREATE TABLE t(v BLOB);
            BEGIN; INSERT INTO t VALUES(randomblob(50000)); COMMIT; INSERT INTO t VALUES(1);'"
        );
        sh(&volume.root(), &script);
        volume.kill();
        volume.expect_clean();
        volume.mount();
        let output =
            sh(&volume.root(), &format!("sqlite3 {mode}.db 'PRAGMA integrity_check; SELECT count(*) FROM t;'"));
        assert_eq!(output, "ok\n2\n", "{mode}");
    }
}

#[test]
fn rsync_transfers_everything_once() {
    let Some(volume) = Volume::new("512M") else { return };
    if !skip::tools_or_skip(&["rsync"]) {
        return;
    }
    let source = volume.outside("source");
    fs::create_dir(&source).unwrap();
    build_random_tree(&source, 11, &TreeOptions { files: 1_500, directories: 100, ..TreeOptions::default() }).unwrap();
    let original = Manifest::of(&source).unwrap();
    let rsync = format!("rsync -aHAX --itemize-changes {}/ copy/", source.display());
    assert!(sh(&volume.root(), &rsync).lines().count() > 1_500);
    original.expect_same(&Manifest::of(volume.path("copy")).unwrap(), "after rsync");
    assert_eq!(sh(&volume.root(), &rsync), "", "nothing is left to transfer");
    volume.remount();
    assert_eq!(sh(&volume.root(), &rsync), "", "nor after mounting again");
    original.expect_same(&Manifest::of(volume.path("copy")).unwrap(), "after mounting again");
    let checksums = sh(&volume.root(), &rsync.replace("-aHAX", "-aHAXc"));
    assert_eq!(checksums, "");
}

#[test]
fn tar_packs_and_unpacks() {
    let Some(volume) = Volume::new("512M") else { return };
    if !skip::tools_or_skip(&["tar", "setfacl"]) {
        return;
    }
    fs::create_dir(volume.path("tree")).unwrap();
    build_random_tree(&volume.path("tree"), 12, &TreeOptions { devices: false, ..TreeOptions::default() }).unwrap();
    let tar = "tar --format=posix --sparse --numeric-owner --acls --xattrs --xattrs-include='*'";
    sh(&volume.root(), &format!("{tar} -cf archive.tar -C tree .; mkdir copy; {tar} -xpf archive.tar -C copy"));
    let (tree, copy) = (Manifest::of(volume.path("tree")).unwrap(), Manifest::of(volume.path("copy")).unwrap());
    tree.expect_same(&copy, "unpacked");
    volume.remount();
    tree.expect_same(&Manifest::of(volume.path("copy")).unwrap(), "after mounting again");
}

#[test]
fn copies_keep_holes_and_make_them() {
    let Some(volume) = Volume::new("256M") else { return };
    let script = "truncate -s 64M sparse; printf x | dd of=sparse bs=1 seek=20M conv=notrunc status=none
        dd if=/dev/urandom of=sparse bs=1M count=1 seek=40 conv=notrunc,fsync status=none
        cp sparse copy; cp -a --sparse=never sparse full; cp --sparse=always full again; cp --reflink=auto full reflink
        cmp sparse copy; cmp sparse full; cmp sparse again; cmp sparse reflink; sync .; rm reflink
        dd if=full of=direct bs=1M iflag=direct oflag=direct status=none; cmp full direct";
    sh(&volume.root(), script);
    volume.remount();
    let sectors = |name| fs::metadata(volume.path(name)).unwrap().blocks();
    for name in ["sparse", "copy", "again"] {
        assert!(sectors(name) <= 3 << 11, "{name} has {} sectors", sectors(name));
    }
    assert!(sectors("full") >= 64 << 11);
    let parts = Parts { times: false, ..Parts::default() };
    let manifest = Manifest::read(&volume.root(), &parts).unwrap();
    let hashes: Vec<_> = manifest.entries.values().filter_map(|entry| entry.content).collect();
    assert_eq!(hashes.len(), 5);
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]));
}
