//! What `put` and `get` do with a file that is there: it stays until the new one is whole, and whatever goes wrong leaves it.

mod support;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use basalt_testkit::{limit, skip};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::{Finished, Scratch, basalt, program};

/// The id of an ordinary user, who cannot read a file of root's with mode 0.
const USER: u32 = 65534;

/// Runs the program as [`USER`] if the caller is root, else as the caller.
fn as_user(arguments: &[&str]) -> Finished {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program());
        command
    } else {
        Command::new(program())
    };
    Finished(limit::output(command.args(arguments), limit::LONG).unwrap())
}

/// Gives what is in a scratch directory to [`USER`].
fn hand_over(scratch: &Scratch, names: &[&str]) {
    if rustix::process::geteuid().is_root() {
        chown(scratch.dir.path(), Some(USER), Some(USER)).unwrap();
        for name in names {
            chown(scratch.path(name), Some(USER), Some(USER)).unwrap();
        }
    }
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_source_that_cannot_be_opened_leaves_the_old_file() {
    if !skip::tools_or_skip(&["setpriv"]) {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let tree = scratch.text("tree");
    scratch.directory("tree");
    let source = scratch.file("tree/f", "precious");
    scratch.file("tree/g", "other");
    hand_over(&scratch, &["image", "tree", "tree/f", "tree/g"]);
    basalt(["put", "-r", &image, &tree]).ok();
    fs::set_permissions(&source, Permissions::from_mode(0o000)).unwrap();
    as_user(&["put", &image, &source, "/f"]).fails(1, &[&source, "Permission denied", "the old file is kept"]);
    assert_eq!(basalt(["cat", &image, "f"]).ok(), "precious");
    as_user(&["put", "-r", &image, &tree]).fails(1, &["left out: ", "tree/./f: ", "the old file is kept"]);
    assert_eq!(basalt(["cat", &image, "f"]).ok(), "precious");
    assert_eq!(basalt(["ls", "-A", &image]).ok(), "f\ng\nlost+found\n");
    scratch.expect_clean();
}

#[test]
fn a_source_that_cannot_be_read_leaves_the_old_file() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    basalt(["put", &image, &scratch.file("file", "precious"), "/f"]).ok();
    // It can be opened; nothing lies at its first bytes.
    let broken = "/proc/self/mem";
    basalt(["put", &image, broken, "/f"]).fails(1, &[broken, "cannot be read", "the old file is kept"]);
    basalt(["put", &image, broken, "/new"]).fails(1, &[broken, "cannot be read"]);
    assert_eq!(basalt(["cat", &image, "f"]).ok(), "precious");
    assert_eq!(basalt(["ls", "-A", &image]).ok(), "f\nlost+found\n");
    scratch.expect_clean();
}

#[test]
fn a_full_volume_keeps_the_old_file() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let old = scratch.file("old", vec![1; 6 << 20]);
    let big = scratch.file("big", vec![2; 60 << 20]);
    basalt(["put", &image, &old, "/f"]).ok();
    basalt(["put", &image, &big, "/f"]).fails(1, &[&big, "no space left", "beside the old one; the old one is kept"]);
    basalt(["put", &image, &big, "/g"]).fails(1, &[&big, "no space left"]);
    scratch.expect_clean();
    assert_eq!(basalt(["ls", "-A", &image]).ok(), "f\nlost+found\n");
    let copy = scratch.path("copy");
    basalt(["get", &image, "f", copy.to_str().unwrap()]).ok();
    assert!(fs::read(&copy).unwrap() == fs::read(&old).unwrap());
    // There is room for another one of its size.
    basalt(["put", &image, &old, "/f"]).ok();
    scratch.expect_clean();
}

#[test]
fn a_full_host_keeps_the_old_file() {
    if !skip::root_or_skip() || !skip::tools_or_skip(&["unshare", "mount"]) {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let small = scratch.directory("small");
    basalt(["put", &image, &scratch.file("big", vec![2; 12 << 20]), "/f"]).ok();
    let script = r#"
        mount -t tmpfs -o size=4m none "$2" && cd "$2" || exit 9
        echo old > f
        "$0" get "$1" f f; echo "code $?"
        "$0" get "$1" f new; echo "code $?"
        ls -A; cat f
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, program(), &image]).arg(&small);
    let run = Finished(limit::output(&mut command, limit::LONG).unwrap());
    assert_eq!(run.out(), "code 1\ncode 1\nf\nold\n", "{}", run.err());
    let told = run.err();
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].contains("f: cannot be written: ") && lines[0].ends_with("the old file is kept")
    );
    assert!(!lines[1].contains("kept"), "{told}");
}

#[test]
fn only_the_name_is_replaced() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    scratch.directory("tree");
    let first = scratch.file("tree/x", "old");
    fs::hard_link(&first, scratch.path("tree/y")).unwrap();
    basalt(["put", "-r", &image, &scratch.text("tree")]).ok();
    basalt(["put", &image, &scratch.file("new", "new"), "/x"]).ok();
    assert_eq!(basalt(["cat", &image, "x", "y"]).ok(), "newold");
    basalt(["get", &image, "x", &first]).ok();
    assert_eq!(fs::read_to_string(&first).unwrap(), "new");
    assert_eq!(fs::read_to_string(scratch.path("tree/y")).unwrap(), "old");
    scratch.expect_clean();
}

/// A tree that is copied again and again, with files of several names: in the end there is what there was, and nothing else.
#[test]
fn copying_again_leaves_nothing_behind() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let tree = scratch.directory("tree");
    let first = scratch.file("tree/a", "content");
    for name in ["b", "c"] {
        fs::hard_link(&first, tree.join(name)).unwrap();
    }
    symlink("a", tree.join("link")).unwrap();
    mknodat(CWD, tree.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let source = scratch.text("tree");
    for _ in 0..2 {
        basalt(["put", "-r", &image, &source]).ok();
        // Names of one file, of which others are never met, and twice the same.
        let (a, b) = (format!("{source}/a"), format!("{source}/b"));
        basalt(["put", "-r", &image, &a, &a, &b, &a, "/"]).ok();
        basalt(["put", "-r", &image, &format!("{source}/."), &format!("{source}/."), "/"]).ok();
        scratch.expect_clean();
        assert_eq!(basalt(["ls", "-A", &image]).ok(), "a\nb\nc\nfifo\nlink\nlost+found\n");
    }
    let inode = |name: &str| basalt(["stat", "--json", &image, name]).json()[0]["inode"].as_u64();
    assert!(inode("a") == inode("b") && inode("b") == inode("c"));
    let out = scratch.directory("out");
    for _ in 0..2 {
        assert_eq!(basalt(["get", "-r", &image, "/a", "/b", "/a", out.to_str().unwrap()]).code(), 0);
        assert_eq!(basalt(["get", "-r", &image, "/", out.to_str().unwrap()]).code(), 0);
        assert_eq!(names(&out), ["a", "b", "c", "fifo", "link", "lost+found"]);
    }
    let identity = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    assert!(identity("a") == identity("b") && identity("b") == identity("c"));
    assert!(fs::symlink_metadata(out.join("fifo")).unwrap().file_type().is_fifo());
}

/// What a copy leaves that was killed does not stop the next one.
#[test]
fn temporary_files_of_earlier_runs_are_in_nobodys_way() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    basalt(["put", &image, &scratch.file("file", "old"), "/"]).ok();
    for name in ["/.basalt-0.file", "/.basalt-1.file"] {
        basalt(["put", &image, &scratch.file("rest", "rest"), name]).ok();
    }
    basalt(["put", &image, &scratch.file("file", "new"), "/"]).ok();
    assert_eq!(basalt(["cat", &image, "file", ".basalt-0.file", ".basalt-1.file"]).ok(), "newrestrest");
    assert_eq!(basalt(["ls", "-A", &image]).ok(), ".basalt-0.file\n.basalt-1.file\nfile\nlost+found\n");
}

#[test]
fn the_longest_name_can_be_replaced() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let name = "n".repeat(255);
    let file = scratch.file(&name, "first");
    basalt(["put", &image, &file]).ok();
    scratch.file(&name, "second");
    basalt(["put", &image, &file]).ok();
    assert_eq!(basalt(["cat", &image, &name]).ok(), "second");
    scratch.file(&name, "third");
    basalt(["get", &image, &name, &file]).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), "second");
}

#[test]
fn a_destination_that_is_a_link_stands_for_its_file() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    basalt(["put", &image, &scratch.file("file", "content"), "/a"]).ok();
    scratch.directory("elsewhere");
    let real = scratch.file("elsewhere/real", "old");
    let link = scratch.text("link");
    symlink("elsewhere/real", &link).unwrap();
    basalt(["get", &image, "a", &link]).ok();
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("elsewhere/real"));
    assert_eq!(fs::read_to_string(&real).unwrap(), "content");
    assert_eq!(names(&scratch.path("elsewhere")), ["real"]);

    // A link that leads to a pipe, as /dev/stdout does, stays; and so does one that leads to nothing.
    mknodat(CWD, scratch.path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for (target, said) in [("pipe", "leads to a device or pipe; `basalt cat`"), ("nowhere", "leads to nothing")] {
        let link = scratch.text(&format!("to-{target}"));
        symlink(target, &link).unwrap();
        basalt(["get", &image, "a", &link]).fails(1, &[&link, said]);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
    }
    assert!(fs::metadata(scratch.path("pipe")).unwrap().file_type().is_fifo());

    // Below the destination links are not followed.
    let out = scratch.directory("out");
    symlink(&real, out.join("a")).unwrap();
    fs::write(&real, "untouched").unwrap();
    basalt(["get", &image, "a", out.to_str().unwrap()]).ok();
    assert_eq!(fs::read_to_string(&real).unwrap(), "untouched");
    assert!(fs::symlink_metadata(out.join("a")).unwrap().is_file());
}

#[test]
fn files_are_read_to_their_end_whatever_their_size_is_said_to_be() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    for (number, source) in
        ["/proc/version", "/proc/cpuinfo", "/sys/kernel/mm/transparent_hugepage/enabled"].iter().enumerate()
    {
        let Ok(expected) = fs::read(source) else { continue };
        let name = format!("/f{number}");
        basalt(["put", &image, source, &name]).ok();
        let found = basalt(["cat", &image, &name]).0.stdout;
        assert_eq!(found.len(), expected.len(), "{source}");
        // The clock of a processor changes while it is read.
        assert!(found == expected || *source == "/proc/cpuinfo", "{source}");
    }
    scratch.expect_clean();
}

/// Holes at the begin, in the middle and at the end, and a file that is nothing else.
#[test]
fn holes_at_the_end_are_kept() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    for (name, data, size) in
        [("empty", &[][..], 0), ("hole", &[], 1 << 32), ("mixed", &[8192, 1 << 30], 1 << 32), ("data", &[0], 1)]
    {
        let mut file = File::create(scratch.path(name)).unwrap();
        for &at in data {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(b"x").unwrap();
        }
        file.set_len(size).unwrap();
        basalt(["put", &image, &scratch.text(name)]).ok();
        let stat = basalt(["stat", "--json", &image, name]).json();
        assert_eq!(stat[0]["size"], size, "{name}");
        assert!(stat[0]["sectors"].as_u64().unwrap() < 100, "{stat}");
        let copy = scratch.text("copy");
        basalt(["get", &image, name, &copy]).ok();
        let (found, expected) = (fs::metadata(&copy).unwrap(), fs::metadata(scratch.path(name)).unwrap());
        assert_eq!(found.len(), expected.len());
        assert!(found.blocks() < 100, "{name}: {} blocks", found.blocks());
    }
    scratch.expect_clean();
}

#[test]
fn what_is_missing_is_told_and_the_rest_copied() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let (one, two, missing) = (scratch.file("one", "1"), scratch.file("two", "2"), scratch.text("missing"));
    let put = basalt(["put", "-v", &image, &one, &missing, &two, "/"]);
    put.fails(1, &["basalt: put: ", &missing, "No such file"]);
    assert_eq!(
        put.out(),
        format!("{one}\n{two}\n2 files, 0 directories, 0 symbolic links, 0 others, 0 hard links, 2 B; 0 left out\n")
    );
    assert_eq!(basalt(["ls", &image]).ok(), "lost+found\none\ntwo\n");
    let out = scratch.directory("out");
    let got = basalt(["get", &image, "one", "missing", "two", out.to_str().unwrap()]);
    got.fails(1, &["basalt: get: volume:missing: no such file"]);
    assert_eq!(names(&out), ["one", "two"]);
}

#[test]
fn a_source_that_is_a_link_is_followed_without_r() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    scratch.file("file", "content");
    let (link, dangling) = (scratch.text("link"), scratch.text("dangling"));
    symlink("file", &link).unwrap();
    symlink("nowhere", &dangling).unwrap();
    basalt(["put", &image, &link, "/followed"]).ok();
    basalt(["put", "-r", &image, &link, &dangling, "/"]).ok();
    let kind = |path: &str| basalt(["stat", "--json", &image, path]).json()[0]["kind"].clone();
    assert_eq!((kind("followed"), kind("link")), ("regular file".into(), "symbolic link".into()));
    let said = "is a symbolic link that leads to nothing; -r copies the link itself";
    basalt(["put", &image, &dangling, "/x"]).fails(1, &[&dangling, said]);
    let copy = scratch.text("copy");
    basalt(["get", &image, "dangling", &copy]).fails(1, &["volume:dangling", said]);
    assert_eq!(basalt(["get", "-r", &image, "dangling", &copy]).code(), 0);
    assert_eq!(fs::read_link(&copy).unwrap(), Path::new("nowhere"));
}
