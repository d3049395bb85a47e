//! The harness proves itself: Linux and its F2FS tools against each other, no Basalt in between.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use basalt_testkit::command::run;
use basalt_testkit::images::{TOOLS, dump_f2fs, fsck_f2fs, grow_f2fs, mkfs_f2fs, shrink_f2fs};
use basalt_testkit::loopdev::LoopDevice;
use basalt_testkit::skip::{root_or_skip, tools_or_skip};
use basalt_testkit::tree::{MutateOptions, TreeOptions, build_random_tree, mutate_tree};
use basalt_testkit::uml::{MOUNT_FAILED, Status};
use basalt_testkit::{Manifest, Uml, scratch};

const SIZE: u64 = 128 << 20;
const SMALL_TREE: &str = "files=80,directories=8,crowded=200,max-size=100000";

/// Linux fills a volume, and finds the same after mounting it again; fsck agrees.
#[test]
fn a_volume_keeps_what_linux_wrote() {
    let Some(uml) = Uml::new_or_skip() else {
        return;
    };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, SIZE, &[]).unwrap();
    let uml = uml.image(&image);
    let script = format!(
        "set -e; $TESTKIT build $MNT 42 {SMALL_TREE}; $TESTKIT mutate $MNT 43 150 50000 >&2
         $TESTKIT manifest $MNT > {0}/first",
        directory.path().display()
    );
    uml.with_f2fs("", &script).unwrap().expect_success();
    fsck_f2fs(&image).unwrap().expect_clean();
    let script = format!("$TESTKIT manifest $MNT > {0}/second", directory.path().display());
    uml.with_f2fs("ro", &script).unwrap().expect_success();
    let read =
        |name: &str| -> Manifest { std::fs::read_to_string(directory.path().join(name)).unwrap().parse().unwrap() };
    let first = read("first");
    assert!(first.entries.len() > 200, "only {} entries", first.entries.len());
    first.expect_same(&read("second"), "the first and the second mount");
    fsck_f2fs(&image).unwrap().expect_clean();
    fsck_notices_damage(&image);
}

/// fsck finds what is damaged, says so in its status and in words, and changes nothing.
fn fsck_notices_damage(image: &Path) {
    const BLOCK: u64 = 4096;
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let field = |offset: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 1024 + offset).unwrap();
        u64::from(u32::from_le_bytes(bytes))
    };
    // Offsets in the superblock of sit_blkaddr and nat_blkaddr.
    for (what, block, length) in [("SIT", field(84), 512 * BLOCK), ("NAT", field(88), 16 * BLOCK)] {
        let mut old = vec![0; length as usize];
        file.read_exact_at(&mut old, block * BLOCK).unwrap();
        file.write_all_at(&vec![0x11; length as usize], block * BLOCK).unwrap();
        let before = std::fs::read(image).unwrap();
        let report = fsck_f2fs(image).unwrap();
        assert!(!report.is_clean(), "a damaged {what} passed: {report}");
        assert!(std::fs::read(image).unwrap() == before, "fsck wrote to the image");
        file.write_all_at(&old, block * BLOCK).unwrap();
    }
    fsck_f2fs(image).unwrap().expect_clean();
}

#[test]
fn a_script_reports_its_status_and_a_missing_volume_is_told_apart() {
    let Some(uml) = Uml::new_or_skip() else {
        return;
    };
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("empty.img");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let uml = uml.image(&image).env("GREETING", "it's \"here\"");
    let result = uml.run_script("echo \"$GREETING\"; echo problem >&2; exit 3").unwrap();
    assert_eq!(result.status, Status::Exited(3), "{result}");
    assert_eq!(result.output, "it's \"here\"\nproblem\n");
    assert!(result.kernel_log.contains("Linux version"), "{}", result.kernel_log);
    assert!(result.complaints().is_empty(), "{result}");
    let result = uml.with_f2fs("", "true").unwrap();
    assert_eq!(result.status, Status::Exited(MOUNT_FAILED), "{result}");
    assert!(result.complaints().iter().any(|line| line.contains("F2FS-fs")), "{result}");
}

#[test]
fn a_script_that_hangs_is_killed_and_what_it_said_is_kept() {
    let Some(uml) = Uml::new_or_skip() else { return };
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("marker.img");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let uml = uml.image(&image).timeout(Duration::from_secs(6));
    let result = uml.run_script("echo waiting; while :; do sleep 1000; done").unwrap();
    assert_eq!(result.status, Status::TimedOut, "{result}");
    assert_eq!(result.output, "waiting\n");
    assert!(result.elapsed < Duration::from_secs(8), "{result}");
    // Killed is not yet gone: what init inherits is reaped a moment later.
    let end = Instant::now() + Duration::from_secs(5);
    while !processes_that_name(&image).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(processes_that_name(&image), Vec::<String>::new(), "these processes were left behind");
}

/// The command lines of this machine's processes that name a file.
fn processes_that_name(file: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(file.to_str().unwrap()))
        .collect()
}

/// What was synced before the power failed is there afterwards; what Linux promises, the harness must not spoil.
#[test]
fn a_power_cut_loses_nothing_that_was_synced() {
    let Some(uml) = Uml::new_or_skip() else {
        return;
    };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, SIZE, &[]).unwrap();
    let uml = uml.image(&image);
    let script = "echo kept > $MNT/kept; sync $MNT/kept; echo lost > $MNT/lost; grep -q ubda /proc/mounts";
    uml.with_f2fs_then_power_cut("", script).unwrap().expect_success();
    let result = uml.with_f2fs("", "cat $MNT/kept; ls $MNT").unwrap();
    assert_eq!(result.status, Status::Exited(0), "{result}");
    assert_eq!(result.output, "kept\nkept\n");
    fsck_f2fs(&image).unwrap().expect_clean();
}

/// The same seed gives the same tree and the same changes, and another seed another.
#[test]
fn trees_repeat() {
    let options: TreeOptions = SMALL_TREE.parse().unwrap();
    let grow = |seed: u64| {
        let directory = scratch::directory().unwrap();
        build_random_tree(directory.path(), seed, &options).unwrap();
        let built = Manifest::of(directory.path()).unwrap();
        let changes = MutateOptions { operations: 400, ..MutateOptions::default() };
        let report = mutate_tree(directory.path(), seed, &changes).unwrap();
        assert!(report.done.len() > 15, "{report:?}");
        (built, Manifest::of(directory.path()).unwrap())
    };
    let ((built, changed), (built_again, changed_again)) = (grow(1), grow(1));
    built.expect_same(&built_again, "two trees of one seed");
    changed.expect_same(&changed_again, "two trees with the same changes");
    assert!(!built.difference(&changed).is_empty());
    assert!(!built.difference(&grow(2).0).is_empty());
}

/// The same seeds give the same tree on this machine's file system and on F2FS, so what differs is a file system's fault.
#[test]
fn trees_are_the_same_on_another_file_system() {
    const SEEDS: [u64; 2] = [11, 12];
    const CHANGES: u32 = 600;
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) || !root_or_skip() {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, 4 * SIZE, &[]).unwrap();
    let mut script = String::from("set -e\n");
    for seed in SEEDS {
        script.push_str(&format!(
            "mkdir $MNT/{seed}; $TESTKIT build $MNT/{seed} {seed} {SMALL_TREE}
             $TESTKIT mutate $MNT/{seed} {seed} {CHANGES} > /dev/null
             $TESTKIT manifest $MNT/{seed} > {}/{seed}.f2fs\n",
            directory.path().display()
        ));
    }
    uml.image(&image).with_f2fs("", &script).unwrap().expect_success();
    for seed in SEEDS {
        let top = directory.path().join(seed.to_string());
        std::fs::create_dir(&top).unwrap();
        build_random_tree(&top, seed, &SMALL_TREE.parse().unwrap()).unwrap();
        let changes = MutateOptions { operations: CHANGES, ..MutateOptions::default() };
        mutate_tree(&top, seed, &changes).unwrap();
        let on_f2fs = std::fs::read_to_string(directory.path().join(format!("{seed}.f2fs"))).unwrap();
        Manifest::of(&top).unwrap().expect_same(&on_f2fs.parse().unwrap(), "here and on F2FS");
    }
}

#[test]
fn volumes_are_resized_and_dumped() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, SIZE, &["-l", "Basalt"]).unwrap();
    let segments = || -> String {
        let dump = dump_f2fs(&image, &["-d", "1"]).unwrap();
        assert!(dump.contains("root_ino"), "{dump}");
        dump.lines().find(|line| line.starts_with("segment_count_main")).unwrap().to_owned()
    };
    let at_first = segments();
    grow_f2fs(&image, 2 * SIZE).unwrap();
    assert_ne!(segments(), at_first);
    fsck_f2fs(&image).unwrap().expect_clean();
    shrink_f2fs(&image, SIZE / 512).unwrap();
    assert_eq!(image.metadata().unwrap().len(), 2 * SIZE);
    fsck_f2fs(&image).unwrap().expect_clean();
}

#[test]
fn loop_devices_come_and_go() {
    if !root_or_skip() || !tools_or_skip(&["losetup", "blockdev"]) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("disk.img");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let device = LoopDevice::attach_with(&image, &["--sector-size", "4096"]).unwrap();
    let path = device.path().to_owned();
    let arguments = ["--getss".as_ref(), "--getsize64".as_ref(), path.as_os_str()];
    assert_eq!(run("blockdev", arguments).unwrap().output, "4096\n1048576\n");
    let attached = || run("losetup", ["--associated".as_ref(), image.as_os_str()]).unwrap().output;
    assert!(attached().contains(path.to_str().unwrap()));
    drop(device);
    assert_eq!(attached(), "");
}
