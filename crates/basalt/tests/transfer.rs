//! `put` and `get`: trees in and out, complete.

#[path = "../../f2fs/tests/paths/counting.rs"]
#[expect(dead_code, reason = "what lets a rival come first is for the tests of paths")]
mod counting;
mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::time::Instant;

use basalt::transfer::{Get, GetOptions, Put, PutOptions, Silent};
use basalt_testkit::manifest::{Manifest, Parts};
use basalt_testkit::tree::{TreeOptions, build_random_tree};
use basalt_testkit::uml::Uml;
use basalt_vfs::FileSystem;
use counting::Counting;
use support::{Scratch, basalt};

/// Copies a tree in and out again, and expects the same.
fn round_trip(seed: u64, options: &TreeOptions, size: &str) {
    let scratch = Scratch::with_volume(size);
    let (image, tree, copy) = (scratch.text("image"), scratch.directory("tree"), scratch.path("copy"));
    build_random_tree(&tree, seed, options).expect("building a tree");
    basalt(["put", "-r", &image, tree.to_str().unwrap()]).ok();
    scratch.expect_clean();
    let got = basalt(["get", "-r", &image, "/", copy.to_str().unwrap()]);
    assert_eq!(got.code(), 0, "{}", got.err());
    let before = Manifest::read(&tree, &Parts::default()).unwrap();
    // lost+found is in the volume, and so one more directory in the top one.
    fs::remove_dir(copy.join("lost+found")).unwrap();
    let parts = Parts { top: false, ..Parts::default() };
    let (mut expected, found) = (before, Manifest::read(&copy, &parts).unwrap());
    expected.entries.remove(b".".as_slice());
    expected.expect_same(&found, "in and out again");
}

#[test]
fn trees_come_back_as_they_went() {
    for seed in 0..3 {
        round_trip(seed, &TreeOptions::default(), "512M");
    }
}

#[test]
fn the_top_directory_is_kept_too() {
    let scratch = Scratch::with_volume("64M");
    let (image, tree) = (scratch.text("image"), scratch.directory("tree"));
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o1750)).unwrap();
    basalt(["put", "-r", &image, tree.to_str().unwrap()]).ok();
    let root = basalt(["stat", "--json", &image, "/"]).json();
    assert_eq!(root[0]["mode"], "1750");
    let copy = scratch.text("copy");
    assert_eq!(basalt(["get", "-r", &image, "/", &copy]).code(), 0);
    assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o7777, 0o1750);
}

#[test]
fn what_is_copied_is_let_go() {
    // Files with several names, links, empty and nested directories; then all of it once more over what is there.
    let scratch = Scratch::new();
    let tree = scratch.directory("tree");
    build_random_tree(&tree, 3, &TreeOptions::default()).expect("building a tree");
    scratch.file("tree/first name", "content");
    for name in ["second name", "third name"] {
        fs::hard_link(tree.join("first name"), tree.join(name)).unwrap();
    }
    let fs = Counting::new();
    for _ in 0..2 {
        let options = PutOptions { recursive: true, ..PutOptions::default() };
        let mut silent = Silent;
        let mut put = Put::new(&*fs, options, &mut silent);
        put.copy(&tree.join("."), b"/").unwrap();
        assert!(put.report().hard_links >= 2);
        drop(put);
        fs.expect_none_held();
    }
    let options = GetOptions { recursive: true, ..GetOptions::default() };
    let mut silent = Silent;
    let mut get = Get::new(&*fs, options, &mut silent);
    get.copy(b"/", &scratch.path("copy")).unwrap();
    assert!(get.report().hard_links >= 2);
    drop(get);
    fs.expect_none_held();
    fs.close().unwrap();
}

#[test]
fn holes_stay_holes() {
    let scratch = Scratch::with_volume("64M");
    let (image, sparse) = (scratch.text("image"), scratch.path("sparse"));
    let file = File::create(&sparse).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"middle", 5 << 30).unwrap();
    file.set_len(10 << 30).unwrap();
    basalt(["put", &image, sparse.to_str().unwrap()]).ok();
    scratch.expect_clean();
    let stat = basalt(["stat", "--json", &image, "sparse"]).json();
    assert_eq!(stat[0]["size"], 10_u64 << 30);
    assert!(stat[0]["sectors"].as_u64().unwrap() < 256, "{stat}");
    let copy = scratch.path("copy");
    assert_eq!(basalt(["get", &image, "sparse", copy.to_str().unwrap()]).code(), 0);
    let found = fs::metadata(&copy).unwrap();
    assert_eq!(found.len(), 10 << 30);
    assert!(found.blocks() < 256, "{} blocks", found.blocks());
    let mut middle = [0; 6];
    File::open(&copy).unwrap().read_exact_at(&mut middle, 5 << 30).unwrap();
    assert_eq!(&middle, b"middle");
}

#[test]
fn destinations_are_those_of_cp() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let file = scratch.file("file", "content");
    scratch.directory("tree/below");
    let tree = scratch.text("tree");
    let put = |arguments: &[&str]| {
        let mut all = vec!["put", "-r", image.as_str()];
        all.extend(arguments);
        basalt(all)
    };
    put(&[&file]).ok();
    put(&[&file, "/renamed"]).ok();
    put(&[&tree, "/"]).ok();
    put(&[&tree, "/new"]).ok();
    put(&[&tree, "/new"]).ok();
    put(&[&format!("{tree}/."), "/new"]).ok();
    put(&["-T", &tree, "/new"]).ok();
    put(&[&file, &tree, "/new/below"]).ok();
    let list = basalt(["ls", "-R", &image, "/"]).ok();
    let expected = "/:\nfile\nlost+found\nnew\nrenamed\ntree\n\n/lost+found:\n\n/new:\nbelow\ntree\n\n/new/below:\nfile\ntree\n\n\
                    /new/below/tree:\nbelow\n\n/new/below/tree/below:\n\n/new/tree:\nbelow\n\n/new/tree/below:\n\n/tree:\nbelow\n\n\
                    /tree/below:\n";
    assert_eq!(list, expected);
    put(&[&file, "/missing/"]).fails(1, &["volume:/missing/: no such directory"]);
    put(&[&file, "/missing/name"]).fails(1, &["/missing/", "no such file"]);
    put(&[&tree, "/file"]).fails(1, &["would replace a file"]);
    put(&["-T", &file, "/tree"]).fails(1, &["directory"]);
    put(&["/nonexistent"]).fails(1, &["/nonexistent"]);
    basalt(["put", &image, &tree, "/x"]).fails(1, &["is a directory", "-r"]);
    scratch.expect_clean();

    let get = |arguments: &[&str]| {
        let mut all = vec!["get", image.as_str()];
        all.extend(arguments);
        basalt(all)
    };
    let out = scratch.text("out");
    get(&["/new", &out]).fails(1, &["is a directory", "-r"]);
    get(&["/missing", &out]).fails(1, &["volume:/missing"]);
    get(&["/file", "/renamed", &out]).fails(1, &["no such directory"]);
    assert_eq!(get(&["/file", &out]).code(), 0);
    assert_eq!(fs::read_to_string(&out).unwrap(), "content");
    assert_eq!(get(&["/renamed", &tree]).code(), 0);
    assert!(scratch.path("tree/renamed").exists());
    assert_eq!(get(&["-r", "/new", &tree]).code(), 0);
    assert!(scratch.path("tree/new/tree/below").is_dir());
    get(&["/file", "/dev/null"]).fails(1, &["device or pipe"]);
}

#[test]
fn one_command_may_copy_a_directory_out_twice() {
    let scratch = Scratch::with_volume("64M");
    let (image, copy) = (scratch.text("image"), scratch.directory("copy"));
    scratch.directory("tree/below");
    scratch.file("tree/below/file", "content");
    basalt(["put", "-r", &image, &scratch.text("tree"), "/tree"]).ok();
    // Once as itself, and twice in what is above it: a directory with two names is told by one source alone.
    let got = basalt(["get", "-r", &image, "/tree/below", "/tree", "/tree", copy.to_str().unwrap()]);
    assert_eq!((got.code(), got.err()), (0, String::new()));
    for file in ["below/file", "tree/below/file"] {
        assert_eq!(fs::read_to_string(copy.join(file)).unwrap(), "content", "{file}");
    }
}

#[test]
fn several_files_go_into_a_directory_only() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let (one, two) = (scratch.file("1", "one"), scratch.file("2", "two"));
    basalt(["put", &image, &one, "/a"]).ok();
    basalt(["put", &image, &one, &two, "/a"]).fails(1, &["volume:/a", "not a directory"]);
    assert_eq!(basalt(["cat", &image, "a"]).ok(), "one");
    basalt(["put", &image, &one, &two, "/b"]).fails(1, &["volume:/b", "no such file"]);
    assert_eq!(basalt(["ls", &image, "/"]).ok(), "a\nlost+found\n");
    basalt(["put", &image, &one, &two, "/lost+found"]).ok();
    assert_eq!(basalt(["cat", &image, "lost+found/2"]).ok(), "two");
}

#[test]
fn an_image_is_not_put_into_itself() {
    let scratch = Scratch::with_volume("64M");
    let (image, link) = (scratch.text("image"), scratch.text("link"));
    fs::hard_link(&image, &link).unwrap();
    for source in [&image, &link] {
        basalt(["put", &image, source, "/self"]).fails(1, &[source, "is the image"]);
    }
    assert_eq!(basalt(["ls", &image, "/"]).ok(), "lost+found\n");
}

#[test]
fn files_are_replaced() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let file = scratch.file("file", "long content");
    basalt(["put", &image, &file]).ok();
    scratch.file("file", "short");
    basalt(["put", &image, &file]).ok();
    assert_eq!(basalt(["cat", &image, "file"]).ok(), "short");
    scratch.expect_clean();
}

#[test]
fn links_in_a_volume_lead_nowhere_outside() {
    // A directory of the volume meets a link outside, as one that an earlier copy left there.
    let scratch = Scratch::with_volume("64M");
    let (image, outside) = (scratch.text("image"), scratch.directory("outside"));
    scratch.directory("tree/dir");
    scratch.file("tree/dir/file", "x");
    basalt(["put", "-r", &image, &scratch.text("tree")]).ok();
    let copy = scratch.directory("copy");
    symlink(&outside, copy.join("dir")).unwrap();
    let got = basalt(["get", "-r", &image, "/", copy.to_str().unwrap()]);
    assert_eq!(got.code(), 1);
    assert!(got.err().contains("left out"), "{}", got.err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn names_in_a_volume_lead_nowhere_outside() {
    // Without features there are no checksums: names can be changed in the image.
    let scratch = Scratch::new();
    let image = scratch.text("image");
    basalt(["mkfs", "-q", "--boot", "--size", "64M", &image]).ok();
    scratch.directory("tree");
    scratch.file("tree/QQQQQQQQQQQQ", "escaped");
    scratch.file("tree/sound", "sound");
    basalt(["put", "-r", &image, &scratch.text("tree")]).ok();
    let mut bytes = fs::read(&image).unwrap();
    let places: Vec<usize> = (0..bytes.len() - 12).filter(|&at| bytes[at..].starts_with(b"QQQQQQQQQQQQ")).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + 12].copy_from_slice(b"../../escape");
    }
    fs::write(&image, bytes).unwrap();
    assert_eq!(basalt(["fsck", "-q", &image]).code(), 4);
    let inner = scratch.directory("a/b/copy");
    let got = basalt(["get", "-r", &image, "/", inner.to_str().unwrap()]);
    assert_eq!(got.code(), 1, "{}", got.err());
    assert_eq!(got.err().lines().count(), 1, "{}", got.err());
    assert!(!scratch.path("a/escape").exists());
    assert_eq!(fs::read_to_string(inner.join("sound")).unwrap(), "sound");
}

#[test]
fn the_owner_can_be_chosen() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    scratch.directory("tree");
    scratch.file("tree/file", "x");
    basalt(["put", "-r", "--owner", "12:34", &image, &scratch.text("tree")]).ok();
    let stats = basalt(["stat", "--json", &image, "/", "file"]).json();
    for stat in stats.as_array().unwrap() {
        assert_eq!((stat["uid"].as_u64(), stat["gid"].as_u64()), (Some(12), Some(34)));
    }
}

#[test]
fn what_cannot_be_read_is_left_out_and_said() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    // The image itself is in the tree: it is passed over.
    let said = basalt(["put", "-rv", &image, scratch.dir.path().to_str().unwrap(), "/all"]).ok();
    assert!(said.contains("0 files, 1 directory,"), "{said}");
    scratch.expect_clean();
}

#[test]
fn a_full_volume_says_so_and_stays_sound() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let tree = scratch.directory("tree");
    fs::write(tree.join("a"), "first").unwrap();
    fs::write(tree.join("b"), vec![1; 100 << 20]).unwrap();
    basalt(["put", "-r", &image, tree.to_str().unwrap()]).fails(1, &["no space left on the volume"]);
    scratch.expect_clean();
    assert_eq!(basalt(["cat", &image, "a"]).ok(), "first");
    // There is room again once something is replaced by less.
    let small = scratch.file("b", "small");
    basalt(["put", &image, &small]).ok();
    assert_eq!(basalt(["cat", &image, "b"]).ok(), "small");
    scratch.expect_clean();
}

#[test]
fn twenty_thousand_files_in_seconds() {
    let scratch = Scratch::with_volume("1G");
    let tree = scratch.directory("tree");
    for directory in 0..200 {
        let directory = tree.join(format!("d{directory}"));
        fs::create_dir(&directory).unwrap();
        for file in 0..100 {
            fs::write(directory.join(format!("f{file}")), format!("{file}").repeat(file * 10)).unwrap();
        }
    }
    let start = Instant::now();
    let said = basalt(["put", "-rv", &scratch.text("image"), tree.to_str().unwrap()]).ok();
    let taken = start.elapsed();
    assert!(said.lines().last().unwrap().starts_with("20000 files, 200 directories"), "{said}");
    assert!(said.contains("/d7/f99\n") && said.lines().count() == 20_201, "{} lines", said.lines().count());
    // A few seconds on an idle machine; tests share it.
    assert!(taken.as_secs() < 60, "{taken:?}");
    scratch.expect_clean();
    let Some(linux) = Uml::new_or_skip() else { return };
    let counts = linux
        .image(scratch.path("image"))
        .with_f2fs("rw", "find $MNT -type f | wc -l; cat $MNT/d7/f99 | md5sum; echo changed by Linux > $MNT/d7/f99");
    let counts = counts.unwrap();
    let counts = counts.expect_success();
    let expected = "99".repeat(990);
    let sum =
        String::from_utf8(Command::new("md5sum").arg(scratch.file("expected", &expected)).output().unwrap().stdout);
    let sum = sum.unwrap().split(' ').next().unwrap().to_owned();
    assert!(counts.output.contains("20000") && counts.output.contains(&sum), "{}", counts.output);
    scratch.expect_clean();
    assert_eq!(basalt(["cat", &scratch.text("image"), "d7/f99"]).ok(), "changed by Linux\n");
}
