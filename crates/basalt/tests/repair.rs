//! `basalt fsck --repair`: exit codes, dry runs, backups, explanations.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

use basalt_testkit::{limit, skip};
use support::{Finished, Scratch, basalt, program, run};

/// A volume with a file on it, and the second superblock wiped, the link count and checksum of the root directory wrong.
fn damaged() -> Scratch {
    let scratch = Scratch::with_volume("64M");
    let (image, file) = (scratch.text("image"), scratch.file("file", "content"));
    basalt(["put", &image, &file]).ok();
    basalt(["fsck", &image]).ok();
    let volume = fs::File::options().read(true).write(true).open(&image).unwrap();
    volume.write_all_at(&[0; 4096], 4096).unwrap();
    // The first blocks of the main area hold the hot nodes; which of them are current does not matter.
    let mut block = [0; 4096];
    let mut changed = 0;
    for index in 0..volume.metadata().unwrap().len() / 4096 {
        volume.read_exact_at(&mut block, index * 4096).unwrap();
        let is_root = block[4072..4080] == [3, 0, 0, 0, 3, 0, 0, 0];
        if is_root {
            block[12] ^= 0x40;
            volume.write_all_at(&block, index * 4096).unwrap();
            changed += 1;
        }
    }
    assert!(changed > 0);
    scratch
}

#[test]
fn repairs_once_and_for_all() {
    let scratch = damaged();
    let image = scratch.text("image");
    assert_eq!(basalt(["fsck", &image]).code(), 4);
    let said = basalt(["fsck", "--repair", &image]);
    assert_eq!(said.code(), 1);
    basalt(["fsck", "--repair", &image]).ok();
    basalt(["fsck", "-p", "-q", &image]).ok();
    scratch.expect_clean();
    assert_eq!(basalt(["cat", &image, "/file"]).ok(), "content");
}

#[test]
fn a_dry_run_writes_nothing_and_a_backup_is_put_back() {
    let scratch = damaged();
    let (image, saved) = (scratch.text("image"), scratch.text("saved"));
    let before = fs::read(&image).unwrap();
    assert_eq!(basalt(["fsck", "-y", "-n", &image]).code(), 4);
    assert!(fs::read(&image).unwrap() == before);
    assert_eq!(basalt(["fsck", "-y", "--backup", &saved, &image]).code(), 1);
    scratch.expect_clean();
    basalt(["fsck", "--restore", &saved, &image]).ok();
    assert!(fs::read(&image).unwrap() == before);
    // A backup is never written over; then nothing is repaired.
    basalt(["fsck", "-y", "--backup", &saved, &image]).fails(8, &["saved", "nothing was repaired"]);
    assert!(fs::read(&image).unwrap() == before);
    basalt(["fsck", "--restore", &image, &image]).fails(8, &["BASALT-UNDO"]);
}

#[test]
fn a_backup_is_put_back_where_it_belongs_and_while_it_fits() {
    let scratch = damaged();
    let (image, saved) = (scratch.text("image"), scratch.text("saved"));
    assert_eq!(basalt(["fsck", "-y", "--backup", &saved, &image]).code(), 1);
    let other = scratch.text("other");
    basalt(["mkfs", "-q", "--size", "64M", &other]).ok();
    let before = fs::read(&other).unwrap();
    basalt(["fsck", "--restore", &saved, &other]).fails(8, &["saved", "UUID", "--force"]);
    assert!(fs::read(&other).unwrap() == before);
    basalt(["put", &image, &scratch.file("new", "new")]).ok();
    let before = fs::read(&image).unwrap();
    basalt(["fsck", "--restore", &saved, &image]).fails(8, &["saved", "used since the repair", "--force"]);
    assert!(fs::read(&image).unwrap() == before);
    scratch.expect_clean();
    basalt(["fsck", "--restore", &saved, "--force", &image]).ok();
}

#[test]
fn a_backup_that_finds_no_room_leaves_no_stump() {
    let scratch = damaged();
    let (image, saved) = (scratch.text("image"), scratch.text("saved"));
    let before = fs::read(&image).unwrap();
    // No file may become larger than 4 KiB.
    let script = r#"trap '' XFSZ; ulimit -f 8; exec "$0" fsck --repair --backup "$1" "$2""#;
    let mut limited = Command::new("sh");
    limited.args(["-c", script, program(), &saved, &image]);
    Finished(limit::output(&mut limited, limit::LONG).unwrap()).fails(8, &["saved", "nothing was repaired"]);
    assert!(!scratch.path("saved").exists() && fs::read(&image).unwrap() == before);
    assert_eq!(basalt(["fsck", "-y", "--backup", &saved, &image]).code(), 1);
}

#[test]
fn fsck_8_finds_its_helper() {
    if !skip::tools_or_skip(&["fsck"]) {
        return;
    }
    let scratch = damaged();
    let image = scratch.text("image");
    let helper = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/fsck.fuse.basalt")).unwrap();
    let helper = helper.replace("\nBASALT=basalt\n", &format!("\nBASALT={}\n", program()));
    scratch.file("fsck.fuse.basalt", helper);
    fs::set_permissions(scratch.path("fsck.fuse.basalt"), fs::Permissions::from_mode(0o755)).unwrap();
    let paths = format!("{}:{}", scratch.dir.path().display(), std::env::var("PATH").unwrap());
    let table = scratch.file("fstab", format!("{image} /nowhere fuse.basalt defaults 0 2\n"));
    // As the boot calls it, and a user.
    let calls = [(vec!["-n", &image], 4), (vec!["-A", "-a"], 1), (vec!["-A", "-a"], 0), (vec![&image, "-f"], 0)];
    for (arguments, code) in calls {
        let mut fsck = Command::new("fsck");
        fsck.env("PATH", &paths).env("FSTAB_FILE", &table).arg("-T").args(&arguments);
        let done = Finished(limit::output(&mut fsck, limit::LONG).unwrap());
        assert_eq!(done.code(), code, "{arguments:?}: {} {}", done.out(), done.err());
    }
    scratch.expect_clean();
}

/// Zeros the node address table, both copies.
fn lose_table(scratch: &Scratch) {
    let volume = fs::File::options().read(true).write(true).open(scratch.path("image")).unwrap();
    let mut superblock = [0; 4096];
    volume.read_exact_at(&mut superblock, 0).unwrap();
    let field = |at: usize| u32::from_le_bytes(superblock[1024 + at..1024 + at + 4].try_into().unwrap());
    let (nat, ssa) = (u64::from(field(84)), u64::from(field(88)));
    volume.write_all_at(&vec![0; ((ssa - nat) * 4096) as usize], nat * 4096).unwrap();
}

#[test]
fn nodes_that_had_to_be_searched_for_are_nothing_to_repair_unasked() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    // More than the checkpoint's journal has room for, so that the table itself is needed.
    fs::create_dir(scratch.path("many")).unwrap();
    for number in 0..100 {
        scratch.file(&format!("many/{number}"), format!("content {number}"));
    }
    basalt(["put", "-r", &image, &scratch.text("many")]).ok();
    lose_table(&scratch);
    let said = basalt(["fsck", &image]);
    assert_eq!(said.code(), 4);
    let before = fs::read(&image).unwrap();
    for preen in ["-p", "-a"] {
        let said = basalt(["fsck", preen, &image]);
        assert_eq!(said.code(), 4);
        said.fails(4, &[&image, "not repaired", "fsck --repair"]);
        assert!(fs::read(&image).unwrap() == before, "{preen} wrote something");
    }
    assert_eq!(basalt(["fsck", "-y", &image]).code(), 1);
    scratch.expect_clean();
    for number in (0..100).step_by(9) {
        let content = basalt(["cat", &image, &format!("/{number}")]).ok();
        assert_eq!(content, format!("content {number}"));
    }
    basalt(["fsck", "-p", &image]).ok();
}

#[test]
fn kinds_are_explained() {
    let list = run("fsck --explain list").ok();
    assert!(list.lines().count() > 60 && list.contains("dentry-hash") && list.contains("fatal"), "{list}");
    let said = run("fsck --explain inode-links").ok();
    assert!(said.contains("link count") && said.contains("Repair:"), "{said}");
    run("fsck --explain nothing").fails(16, &["nothing", "--explain list"]);
    run("fsck --explain found").fails(16, &["TARGET"]);
}
