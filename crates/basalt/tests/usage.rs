//! Wrong arguments and wrong targets: one clear line, the right exit code, nothing changed.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use basalt_testkit::{limit, skip};
use support::{Scratch, basalt, program, run};

#[test]
fn help_and_version() {
    assert!(run("--version").ok().starts_with("basalt 0."));
    let help = run("--help").ok();
    for command in [
        "mkfs",
        "mount",
        "umount",
        "sync",
        "clean",
        "defrag",
        "stats",
        "fsck",
        "resize",
        "tune",
        "rescue",
        "info",
        "ls",
        "cat",
        "stat",
        "get",
        "put",
        "completions",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is missing in: {help}");
        assert!(run(&format!("{command} --help")).ok().contains("Usage: basalt"), "{command}");
    }
    assert!(run("mount --help").ok().contains("checkpoint=SECONDS"));
    assert!(run("mount --help").ok().contains("nojournal"));
}

#[test]
fn wrong_arguments_give_one_line_and_the_usual_code() {
    for (line, code, part) in [
        ("frobnicate", 2, "frobnicate"),
        ("mkfs", 2, "<TARGET>"),
        ("mkfs --size 1X image", 2, "1X"),
        ("mkfs --overprovision 100 image", 2, "--overprovision"),
        ("mkfs --features casefold image", 2, "extra_attr"),
        ("mkfs --uuid 1 image", 2, "--uuid"),
        ("mkfs --segments-per-section -1 image", 2, "-1"),
        ("mount image", 1, "<DIR>"),
        ("mount -o frobnicate image /", 1, "frobnicate"),
        ("mount -o commit=never image /", 1, "commit=never"),
        ("mount -o pre_invalid=much image /", 1, "pre_invalid=much"),
        ("mount -o journal=on image /", 1, "takes no value"),
        ("mkfs --journal-size on image", 2, "--journal-size"),
        ("tune", 2, "<TARGET>"),
        ("tune --journal both image", 2, "on, off or a size"),
        ("umount", 2, "<DIR>"),
        ("fsck", 16, "<TARGET>"),
        ("fsck --backup file image", 16, "--repair"),
        ("info", 2, "<TARGET>"),
        ("stats", 2, "<DIR>"),
        ("stats --watch=0 /", 2, "less than"),
        ("stats --json --prometheus /", 2, "--prometheus"),
        ("ls", 2, "<TARGET>"),
        ("cat image", 2, "<PATH>"),
        ("get image", 2, "<PATH>"),
        ("put --owner root image x", 2, "--owner"),
        ("put -T image a b c", 2, "one source"),
        ("completions tcsh", 2, "tcsh"),
    ] {
        run(line).fails(code, &[part]);
    }
    assert_eq!(run("").code(), 2);
}

/// Every command with a target, its exit code for what cannot be done, and its further arguments.
const WITH_TARGET: [(&str, i32, &[&str]); 9] = [
    ("mkfs", 1, &[]),
    ("fsck", 8, &[]),
    ("info", 1, &[]),
    ("tune", 1, &[]),
    ("tune", 1, &["--journal", "on"]),
    ("ls", 1, &[]),
    ("cat", 1, &["/x"]),
    ("stat", 1, &["/x"]),
    ("get", 1, &["/x", "/nonexistent/x"]),
];

#[test]
fn what_is_no_device_is_refused_by_its_kind() {
    let scratch = Scratch::new();
    let directory = scratch.directory("directory");
    let socket = scratch.path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let file = scratch.file("file", "x");
    for (command, code, more) in WITH_TARGET {
        let try_target = |target: &str, part: &str| {
            let mut arguments = vec![command, target];
            arguments.extend(more);
            basalt(arguments).fails(code, &[target, part]);
        };
        try_target(directory.to_str().unwrap(), "is a directory");
        try_target(socket.to_str().unwrap(), "is a socket");
        try_target("/dev/null", "is a character device");
        try_target(&format!("{file}/below"), if command == "mkfs" { "below" } else { "no such file" });
        if command != "mkfs" {
            try_target(&scratch.text("missing"), "no such file or device");
        }
    }
    assert!(!scratch.path("missing").exists());
}

#[test]
fn what_is_no_volume_is_said_to_be_none() {
    let scratch = Scratch::new();
    let zeros = scratch.text("zeros");
    File::create(&zeros).unwrap().set_len(64 << 20).unwrap();
    let short = scratch.file("short", "x".repeat(1000));
    let empty = scratch.file("empty", "");
    for target in [&zeros, &short] {
        basalt(["ls", target]).fails(1, &[target, "no F2FS volume"]);
        basalt(["info", target]).fails(1, &[target, "no F2FS volume"]);
        basalt(["fsck", target]).fails(8, &[target, "no F2FS volume"]);
    }
    basalt(["ls", &empty]).fails(1, &[&empty, "is empty"]);
    let point = scratch.directory("mnt");
    basalt(["mount", &zeros, point.to_str().unwrap()]).fails(32, &[&zeros, "no F2FS volume"]);
}

#[test]
fn truncated_volumes_are_refused() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    File::options().write(true).open(&image).unwrap().set_len(32 << 20).unwrap();
    for (command, code) in [("ls", 1), ("info", 1)] {
        basalt([command, &image]).fails(code, &["image"]);
    }
    let checked = basalt(["fsck", &image]);
    assert!([4, 8].contains(&checked.code()), "{}", checked.out() + &checked.err());
}

#[test]
fn other_file_systems_are_left_alone() {
    if !skip::tools_or_skip(&["mkfs.ext4"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.text("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    assert!(Command::new("mkfs.ext4").args(["-q", "-F", &image]).status().unwrap().success());
    let before = fs::read(&image).unwrap();
    basalt(["mkfs", &image]).fails(1, &[&image, "ext4", "--force"]);
    basalt(["mkfs", "--size", "128M", &image]).fails(1, &["ext4"]);
    basalt(["ls", &image]).fails(1, &["no F2FS volume"]);
    assert_eq!(fs::metadata(&image).unwrap().size(), 64 << 20);
    assert!(fs::read(&image).unwrap() == before, "the image was changed");
    basalt(["mkfs", "--force", "-q", &image]).ok();
    scratch.expect_clean();
}

#[test]
fn volumes_that_can_only_be_read_say_why() {
    if !skip::tools_or_skip(&["mkfs.f2fs"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    basalt_testkit::images::mkfs_f2fs(&image, 128 << 20, &["-O", "extra_attr,casefold", "-C", "utf8"]).unwrap();
    let image = image.to_str().unwrap();
    assert_eq!(basalt(["ls", image]).ok(), "");
    basalt(["put", image, "/etc/passwd"]).fails(1, &[image, "cannot be changed", "casefold"]);
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let scratch = Scratch::with_volume("64M");
    let big = scratch.file("big", vec![b'x'; 4 << 20]);
    let image = scratch.text("image");
    basalt(["put", &image, &big]).ok();
    assert_eq!(unread(&["cat", &image, "/big"], false), 0);
    assert_eq!(unread(&["cat", &image, "/missing"], true), 1);
}

/// The exit code of a command whose standard output is closed, and standard error, too, if that is so; else it has to be silent.
fn unread(arguments: &[&str], errors_too: bool) -> i32 {
    let mut command = Command::new(program());
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    if errors_too {
        drop(child.stderr.take());
    }
    let ended = limit::finish(child, limit::SHORT).unwrap();
    assert!(ended.stderr.is_empty(), "{arguments:?}");
    ended.status.code().unwrap()
}

#[test]
fn a_result_that_nobody_reads_is_in_the_exit_code() {
    let scratch = Scratch::with_volume("64M");
    let (image, empty, nowhere) = (scratch.text("image"), scratch.file("empty", ""), scratch.text("nowhere"));
    assert_eq!(unread(&["fsck", &image], true), 0);
    // The second superblock.
    File::options().write(true).open(&image).unwrap().write_all_at(&[0; 4096], 4096).unwrap();
    for options in [&["--json"][..], &["--max-faults=1"], &["-yn"]] {
        assert_eq!(unread(&[&["fsck", &image], options].concat(), false), 4, "{options:?}");
    }
    assert_eq!(unread(&["fsck", "--repair", &image], true), 1);
    assert_eq!(unread(&["fsck", &image], true), 0);
    assert_eq!(unread(&["fsck", &empty], true), 8);
    assert_eq!(unread(&["rescue", &empty, &nowhere], true), 1);
}

#[test]
fn full_output_is_a_failure() {
    let scratch = Scratch::with_volume("64M");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut info = Command::new(program());
    info.args(["info", &scratch.text("image")]).stdout(full).stderr(Stdio::piped());
    let ended = limit::finish(info.spawn().unwrap(), limit::SHORT).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("standard output"));
}

/// A limit on the size of files is told like a full disk; the signal that comes with it ends nothing.
#[test]
fn a_limit_on_the_size_of_files_is_told() {
    let scratch = Scratch::new();
    let image = scratch.text("large.img");
    let line = format!("ulimit -f 1000; exec {} mkfs --size 64M {image}", program());
    let mut shell = Command::new("sh");
    let made = support::Finished(limit::output(shell.args(["-c", &line]), limit::LONG).expect("running sh"));
    made.fails(1, &["large.img", "cannot hold a file of 67108864 bytes"]);
}

/// What users copy into a shell means the same there.
#[test]
fn advice_quotes_paths() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    basalt(["mkfs", "--size", "64M", &image]).ok();
    let failed = basalt(["mount", &image, &scratch.text("no such place")]);
    assert!(failed.err().contains(&format!("`mkdir '{}'`", scratch.text("no such place"))), "{}", failed.err());
}
