//! `info`, `ls`, `cat` and `stat`.

mod support;

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use basalt_f2fs::dir::hash::hash;
use support::{Scratch, basalt};

/// A volume with `/dir/file`, `/dir/.hidden`, `/link` to `dir/file`, `/loop` to itself, and a name that is no text.
fn filled() -> Scratch {
    let scratch = Scratch::with_volume("64M");
    let tree = scratch.directory("tree/dir");
    std::fs::write(tree.join("file"), "hello\n").unwrap();
    std::fs::write(tree.join(".hidden"), "").unwrap();
    symlink("dir/file", scratch.path("tree/link")).unwrap();
    symlink("loop", scratch.path("tree/loop")).unwrap();
    symlink("/dir", scratch.path("tree/absolute")).unwrap();
    std::fs::write(scratch.path("tree").join(std::ffi::OsStr::from_bytes(b"a\xffb\n")), "odd").unwrap();
    basalt(["put", "-r", &scratch.text("image"), &scratch.text("tree")]).ok();
    scratch
}

#[test]
fn info_tells_everything_in_both_forms() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let info = basalt(["info", "--json", &image]).json();
    assert_eq!(info["device"], image.as_str());
    assert_eq!(info["blocks"], (64 << 20) / 4096);
    assert_eq!(info["checkpoint"]["clean"], true);
    assert_eq!(info["usage"]["inodes"], 2);
    assert_eq!(info["kinds"].as_array().unwrap().len(), 6);
    let states = &info["states"];
    let counted: u64 =
        ["free", "active", "dirty", "full", "prefree"].iter().map(|name| states[*name].as_u64().unwrap()).sum();
    assert_eq!(counted, info["main_segments"].as_u64().unwrap());
    let text = basalt(["info", &image]).ok();
    let defaults = &info["mount_defaults"];
    let (class, reclaim) = (defaults["class"].as_str().unwrap(), defaults["reclaim"].as_str().unwrap());
    assert_eq!(
        (reclaim, &defaults["placement"]),
        (if class == "emmc" { "partial" } else { "clean" }, &"run-length".into())
    );
    assert!(text.contains(&format!("profile={class},placement=run-length,victim=greedy,")), "{text}");
    for part in ["uuid", "features", "checkpoint", "free", "over-provision", "main segments", "utilization"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn ls_lists_as_ls_does() {
    let scratch = filled();
    let image = scratch.text("image");
    // As they are in a pipe; with -b as on a terminal.
    let raw = basalt(["ls", &image]).0.stdout;
    assert_eq!(raw, b"absolute\na\xffb\n\ndir\nlink\nloop\nlost+found\n");
    let escaped = "absolute\na\\377b\\n\ndir\nlink\nloop\nlost+found\n";
    assert_eq!(basalt(["ls", "-b", &image]).ok(), escaped);
    assert_eq!(basalt(["ls", &image, "dir"]).ok(), "file\n");
    assert_eq!(basalt(["ls", "-A", &image, "/dir/"]).ok(), ".hidden\nfile\n");
    assert_eq!(basalt(["ls", "-a", &image, "/dir"]).ok(), ".\n..\n.hidden\nfile\n");
    assert_eq!(basalt(["ls", &image, "/dir/file"]).ok(), "/dir/file\n");
    assert_eq!(basalt(["ls", "-d", &image, "/dir"]).ok(), "/dir\n");
    assert_eq!(basalt(["ls", &image, "/absolute"]).ok(), "file\n");
    let long = basalt(["ls", "-l", &image, "/link"]).ok();
    assert!(long.starts_with("lrwxrwxrwx 1 ") && long.ends_with(" /link -> dir/file\n"), "{long}");
    let deep = basalt(["ls", "-bR", &image]).ok();
    assert!(deep.contains("/dir:\nfile\n") && deep.contains("/lost+found:\n"), "{deep}");
    basalt(["ls", &image, "/nothing"]).fails(1, &["volume:/nothing", "no such file"]);
    basalt(["ls", &image, "/dir/file/below"]).fails(1, &["not a directory"]);
}

/// Zeros over one name of a directory, and over one inode: all others are listed, and both are told.
#[test]
fn ls_lists_what_it_can() {
    let scratch = Scratch::with_volume("64M");
    let tree = scratch.directory("tree");
    for number in 100..500 {
        std::fs::write(tree.join(format!("name-{number}")), "").unwrap();
    }
    let image = scratch.text("image");
    basalt(["put", "-r", &image, &scratch.text("tree"), "/dir"]).ok();
    let mut bytes = std::fs::read(scratch.path("image")).unwrap();
    let find = |bytes: &[u8], name: &[u8]| -> Vec<usize> {
        (0..bytes.len() / 4).map(|at| 4 * at).filter(|&at| bytes[at..].starts_with(name)).collect()
    };
    // Inodes have their names too, at byte 92; entries of directories lie behind them.
    let (names, inodes) = (find(&bytes, b"name-123"), find(&bytes, b"name-321"));
    let is_inode = |at: &&usize| **at % 4096 == 92;
    let entry = *names.iter().find(|at| !is_inode(at)).unwrap();
    let inode = *inodes.iter().find(is_inode).unwrap();
    bytes[entry..entry + 8].fill(0);
    bytes[inode + 8] ^= 1;
    std::fs::write(scratch.path("image"), bytes).unwrap();
    let run = basalt(["ls", &image, "/dir"]);
    let told = run.err();
    assert_eq!((run.code(), run.out().lines().count(), told.lines().count()), (1, 398, 2), "{told}");
    for part in ["basalt: ls: volume:/dir: ", "left out", "basalt: ls: volume:/dir/name-321: "] {
        assert!(told.contains(part), "`{part}` is missing in: {told}");
    }
}

#[test]
fn ls_lists_each_path_for_itself() {
    let scratch = filled();
    let image = scratch.text("image");
    let deep = basalt(["ls", "-bR", &image, "/", "/dir", "/dir"]).ok();
    assert_eq!(deep.matches("/dir:\nfile\n").count(), 3, "{deep}");
    // What is not there is told, and the others are listed.
    for (json, expected) in [(false, "/dir:\nfile\n"), (true, "\"/dir/file\"")] {
        let mut words = vec!["ls", &image, "/nothing", "/dir"];
        words.extend(json.then_some("--json"));
        let run = basalt(words);
        run.fails(1, &["basalt: ls: volume:/nothing: no such file"]);
        assert!(run.out().contains(expected), "{}", run.out());
    }
}

/// An entry that leads to another directory beside it, as damage makes one.
#[test]
fn ls_tells_a_directory_with_two_names_and_goes_on() {
    let scratch = Scratch::with_volume("64M");
    for number in 100..500 {
        // More than an inode holds: it has a checksum.
        std::fs::write(scratch.directory("tree").join(format!("name-{number}")), "").unwrap();
    }
    for name in ["first", "other", "zebra"] {
        std::fs::write(scratch.directory(&format!("tree/{name}")).join("inside"), "").unwrap();
    }
    let image = scratch.text("image");
    basalt(["put", "-r", &image, &scratch.text("tree"), "/dir"]).ok();
    let mut bytes = std::fs::read(scratch.path("image")).unwrap();
    let number = |name: &str| {
        let stat = basalt(["stat", "--json", &image, &format!("/dir/{name}")]).json();
        u32::try_from(stat[0]["inode"].as_u64().unwrap()).unwrap().to_le_bytes()
    };
    let entry = [hash(b"other").to_le_bytes(), number("other")].concat();
    let places: Vec<usize> = (0..bytes.len() - 8).filter(|&at| bytes[at..at + 8] == entry[..]).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 4..at + 8].copy_from_slice(&number("first"));
    }
    std::fs::write(scratch.path("image"), bytes).unwrap();
    let run = basalt(["ls", "-R", &image, "/dir"]);
    run.fails(1, &["basalt: ls: volume:/dir/other: ", "second name"]);
    for name in ["first", "zebra"] {
        assert!(run.out().contains(&format!("/dir/{name}:\ninside\n")), "{}", run.out());
    }
    let run = basalt(["ls", "-R", "--json", &image, "/dir"]);
    run.fails(1, &["second name"]);
    assert!(run.out().contains("\"/dir/zebra/inside\""), "{}", run.out());
}

#[test]
fn ls_as_json_keeps_names_that_are_no_text() {
    let scratch = filled();
    let list = basalt(["ls", "--json", &scratch.text("image")]).json();
    let list = list.as_array().unwrap();
    let odd = list.iter().find(|entry| entry["size"] == 3).unwrap();
    assert_eq!(odd["name_hex"], "61ff620a");
    let link = list.iter().find(|entry| entry["name"] == "link").unwrap();
    assert_eq!(link["kind"], "symbolic link");
    assert_eq!(link["target"], "dir/file");
    assert!(link.get("name_hex").is_none());
    let deep = basalt(["ls", "-R", "--json", &scratch.text("image")]).json();
    assert!(deep.as_array().unwrap().iter().any(|entry| entry["name"] == "/dir/.hidden"));
}

#[test]
fn cat_follows_links_and_refuses_what_is_no_file() {
    let scratch = filled();
    let image = scratch.text("image");
    assert_eq!(basalt(["cat", &image, "/link", "dir/file"]).ok(), "hello\nhello\n");
    assert_eq!(basalt(["cat", &image, "/absolute/../dir/./file"]).ok(), "hello\n");
    basalt(["cat", &image, "/dir"]).fails(1, &["volume:/dir", "is a directory"]);
    basalt(["cat", &image, "/loop"]).fails(1, &["too many levels of symbolic links"]);
    basalt(["cat", &image, "/dir/file/"]).fails(1, &["not a directory"]);
    let long = "x".repeat(256);
    basalt(["cat", &image, &long]).fails(1, &["name longer than 255 bytes"]);
}

#[test]
fn stat_tells_everything() {
    let scratch = filled();
    let image = scratch.text("image");
    let text = basalt(["stat", &image, "/dir/file"]).ok();
    for part in ["File: /dir/file", "Size: 6", "regular file", "Links: 1", "Modify: 20"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let stats = basalt(["stat", "--json", &image, "/link", "/"]).json();
    assert_eq!(stats[0]["kind"], "symbolic link");
    assert_eq!(stats[1]["kind"], "directory");
    assert_eq!(stats[1]["inode"], 3);
    let followed = basalt(["stat", "-L", "--json", &image, "/link"]).json();
    assert_eq!(followed[0]["size"], 6);
}

#[test]
fn cat_and_stat_go_on_behind_what_is_missing() {
    let scratch = filled();
    let image = scratch.text("image");
    let cat = basalt(["cat", &image, "link", "nothing", "dir/file"]);
    cat.fails(1, &["basalt: cat: volume:nothing: no such file"]);
    assert_eq!(cat.out(), "hello\nhello\n");
    let stat = basalt(["stat", "--json", &image, "link", "nothing", "dir"]);
    stat.fails(1, &["basalt: stat: volume:nothing: no such file"]);
    let shown: serde_json::Value = serde_json::from_str(&stat.out()).unwrap();
    assert_eq!((&shown[0]["name"], &shown[1]["name"]), (&"link".into(), &"dir".into()));
}

#[test]
fn ls_shows_links_that_lead_nowhere() {
    let scratch = filled();
    let image = scratch.text("image");
    let link = scratch.text("dangling");
    symlink("nowhere", &link).unwrap();
    basalt(["put", "-r", &image, &link, "/dangling"]).ok();
    assert_eq!(basalt(["ls", &image, "dangling", "loop"]).ok(), "dangling\nloop\n");
    basalt(["ls", &image, "dangling/"]).fails(1, &["no such file"]);
}

#[test]
fn names_never_look_the_same_on_a_terminal() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    for name in ["a\nb", "a\\nb"] {
        std::fs::write(scratch.directory("tree").join(name), "").unwrap();
    }
    basalt(["put", "-r", &image, &scratch.text("tree"), "/dir"]).ok();
    assert_eq!(basalt(["ls", "-b", &image, "/dir"]).ok(), "a\\nb\na\\\\nb\n");
    assert_eq!(basalt(["ls", &image, "/dir"]).ok(), "a\nb\na\\nb\n");
    assert!(basalt(["stat", &image, "/dir/a\nb"]).ok().contains("File: /dir/a\\nb\n"));
}
