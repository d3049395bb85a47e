//! What a host cannot show: the root, absolute links, and what becomes of space and references.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use basalt_vfs::path::{FileOptions, Files, Result};
use basalt_vfs::{Caller, Error, FileKind, FileSystem};

use crate::counting::Counting;

/// Runs a test on an empty volume, and looks that it has given everything back.
fn on_volume(test: impl FnOnce(&Files<Arc<Counting>>)) {
    let fs = Counting::new();
    test(&Files::new(Arc::clone(&fs)));
    fs.expect_none_held();
    fs.close().unwrap();
}

fn refused<T>(result: Result<T>, kind: ErrorKind, message: &str) {
    let error = result.err().expect("an error");
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.to_string(), message);
}

#[test]
fn symbolic_links_stay_inside_the_volume() {
    on_volume(|files| {
        files.create_dir_all("/etc/deep").unwrap();
        files.write("/etc/name", "volume").unwrap();
        files.symlink("/etc/name", "/etc/deep/absolute").unwrap();
        files.symlink("../../../../etc/name", "/etc/deep/upwards").unwrap();
        files.symlink("/", "/etc/deep/root").unwrap();
        for path in [
            "/etc/deep/absolute",
            "etc/deep/upwards",
            "/../../etc/name",
            "/etc/deep/root/etc/name",
            "/etc/deep/root/../etc/deep/../name",
        ] {
            assert_eq!(files.read(path).unwrap(), b"volume", "{path}");
        }
        assert_eq!(files.metadata("/etc/deep/root").unwrap().ino, files.metadata("/").unwrap().ino);
        assert_eq!(files.read_link("/etc/deep/absolute").unwrap().to_str(), Some("/etc/name"));
    });
}

#[test]
fn canonical_paths_begin_at_the_root_of_the_volume() {
    on_volume(|files| {
        files.create_dir_all("/etc/deep").unwrap();
        files.symlink("/", "/etc/deep/root").unwrap();
        files.symlink("root/../etc//./deep", "/etc/deep/winding").unwrap();
        for (path, expected) in [
            ("", None),
            ("/", Some("/")),
            ("../..", Some("/")),
            ("etc/deep/winding/root/etc/", Some("/etc")),
            ("/etc/deep/winding", Some("/etc/deep")),
            ("/etc/none/..", None),
        ] {
            let found = files.canonicalize(path).ok();
            assert_eq!(found.as_deref().and_then(std::path::Path::to_str), expected, "{path}");
        }
    });
}

#[test]
fn chown_takes_the_rights_of_an_owner() {
    on_volume(|files| {
        files.write("/file", "").unwrap();
        files.symlink("file", "/link").unwrap();
        files.set_permissions("/file", 0o6755).unwrap();
        files.lchown("/link", Some(7), None).unwrap();
        assert_eq!(files.metadata("/file").unwrap().permissions, 0o6755);
        files.chown("/link", Some(5), Some(6)).unwrap();
        let (file, link) = (files.metadata("/file").unwrap(), files.symlink_metadata("/link").unwrap());
        assert_eq!((file.uid, file.gid, file.permissions), (5, 6, 0o755));
        assert_eq!((link.uid, link.gid), (7, 0));
        assert!(file.is_file() && !file.is_dir() && link.is_symlink() && file.len() == 0);
    });
}

#[test]
fn forty_links_are_followed() {
    on_volume(|files| {
        files.write("/0", "end").unwrap();
        for link in 1..=41 {
            files.symlink((link - 1).to_string(), format!("/{link}")).unwrap();
        }
        assert_eq!(files.read("/40").unwrap(), b"end");
        let error = files.read("/41").unwrap_err();
        assert!(matches!(error.reason, Error::TooManySymlinks), "{error}");
        files.symlink("loop", "/loop").unwrap();
        assert_eq!(files.exists("/loop").unwrap_err().to_string(), "/loop: too many levels of symbolic links");
        assert_eq!(files.symlink_metadata("/loop").unwrap().kind, FileKind::Symlink);
    });
}

#[test]
fn errors_name_the_path() {
    on_volume(|files| {
        refused(files.read("/no/such"), ErrorKind::NotFound, "/no/such: no such file or directory");
        refused(files.read(""), ErrorKind::NotFound, ": no such file or directory");
        refused(files.read("a\0b"), ErrorKind::InvalidInput, "a\\u{0}b: invalid argument: a path has no zero byte");
        refused(files.remove_file("line\nbreak"), ErrorKind::NotFound, "line\\nbreak: no such file or directory");
        let long = "x/".repeat(2048);
        refused(files.metadata(&long), ErrorKind::InvalidFilename, &format!("{long}: path longer than 4095 bytes"));
        files.write("/bytes", b"\xff").unwrap();
        refused(files.read_to_string("/bytes"), ErrorKind::InvalidData, "/bytes: the file is no UTF-8 text");
        files.create_dir("/full").unwrap();
        files.write("/full/file", "").unwrap();
        refused(files.remove_dir("/full"), ErrorKind::DirectoryNotEmpty, "/full: directory not empty");
        refused(files.rename("/none", "/full"), ErrorKind::NotFound, "/none: no such file or directory");
        refused(files.remove_dir_all("/"), ErrorKind::ResourceBusy, "/: in use");
        refused(
            files.remove_dir_all("/full/."),
            ErrorKind::InvalidInput,
            "/full/.: invalid argument: `.` cannot be removed",
        );
        refused(
            files.copy("/full/file", "/full/../full/file"),
            ErrorKind::InvalidInput,
            "/full/../full/file: invalid argument: a file cannot be copied onto itself",
        );
        let mut file = files.open("/full/file").unwrap();
        let error = file.write(b"x").unwrap_err();
        assert_eq!(error.to_string(), "/full/file: the file is not open to write");
        assert!(files.exists("/full/file").unwrap());
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    on_volume(|files| {
        let fs = files.file_system();
        let mut file = files.create_new("/file").unwrap();
        fs.sync().unwrap();
        let free = fs.stat_fs().unwrap().free;
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        files.remove_file("/file").unwrap();
        assert!(!files.exists("/file").unwrap());
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(content, vec![7; 1 << 20]);
        assert!(fs.stat_fs().unwrap().free < free - 200);
        drop(file);
        assert!(fs.stat_fs().unwrap().free >= free);
    });
}

#[test]
fn holes_are_copied_as_holes() {
    on_volume(|files| {
        let source = files.create_new("/sparse").unwrap();
        source.write_at(b"begin", 0).unwrap();
        source.write_at(b"middle", 10 << 20).unwrap();
        source.set_len(20 << 20).unwrap();
        files.set_permissions("/sparse", 0o640).unwrap();
        files.write("/copy", vec![1; 50_000]).unwrap();
        assert_eq!(files.copy("/sparse", "/copy").unwrap(), 20 << 20);
        assert!(files.read("/copy").unwrap() == files.read("/sparse").unwrap());
        files.file_system().sync().unwrap();
        let copy = files.metadata("/copy").unwrap();
        assert_eq!((copy.permissions, copy.size), (0o640, 20 << 20));
        assert!(copy.sectors < 200, "{} sectors", copy.sectors);
    });
}

#[test]
fn trees_deeper_than_any_path_are_removed() {
    on_volume(|files| {
        // By inode: no path reaches so far.
        let fs = files.file_system();
        files.create_dir("/deep").unwrap();
        let mut directory = files.lookup("/deep", false).unwrap();
        let node = basalt_vfs::NewNode { kind: FileKind::Directory, permissions: 0o755, rdev: 0, target: b"" };
        for _ in 0..3000 {
            let made = fs.create(directory.ino(), b"below", &node, &Caller::default()).unwrap();
            directory = basalt_vfs::path::Reference::new(fs, made);
        }
        drop(directory);
        files.remove_dir_all("/deep").unwrap();
        assert!(!files.exists("/deep").unwrap());
    });
}

#[test]
fn large_directories_are_listed_and_removed() {
    on_volume(|files| {
        files.create_dir("/many").unwrap();
        let names: BTreeSet<String> = (0..3000).map(|number| format!("file {number}")).collect();
        for name in &names {
            files.write(format!("/many/{name}"), "").unwrap();
        }
        let listed =
            files.read_dir("/many").unwrap().map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
        assert_eq!(listed.collect::<BTreeSet<_>>(), names);
        files.remove_dir_all("/many").unwrap();
        assert!(!files.exists("/many").unwrap());
    });
}

#[test]
fn handles_are_used_by_several_threads() {
    on_volume(|files| {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let mut file = files.create_new(format!("/{thread}")).unwrap();
                let files = files.clone();
                scope.spawn(move || {
                    file.write_all(&[thread; 100_000]).unwrap();
                    drop(file);
                    for turn in 0..50 {
                        let path = format!("/directory {thread}/{turn}");
                        files.create_dir_all(&path).unwrap();
                        files.rename(format!("/{thread}"), format!("{path}/file")).unwrap();
                        files.rename(format!("{path}/file"), format!("/{thread}")).unwrap();
                    }
                    files.remove_dir_all(format!("/directory {thread}")).unwrap();
                });
            }
        });
        for thread in 0..4u8 {
            assert_eq!(files.read(format!("/{thread}")).unwrap(), vec![thread; 100_000]);
        }
    });
}

#[test]
fn only_what_an_unprivileged_caller_writes_loses_set_uid() {
    on_volume(|files| {
        let user = files.clone().with_caller(Caller { uid: 1000, gid: 1000, umask: 0o022 });
        for (caller, kept) in [(files, 0o6755), (&user, 0o755)] {
            files.write("/program", "before").unwrap();
            let now = || files.metadata("/program").unwrap().permissions;
            let program = caller.open_with("/program", &FileOptions::new().write(true)).unwrap();
            files.set_permissions("/program", 0o6755).unwrap();
            program.write_at(b"after", 0).unwrap();
            assert_eq!(now(), kept, "written");
            files.set_permissions("/program", 0o6755).unwrap();
            program.set_len(3).unwrap();
            assert_eq!(now(), kept, "made shorter");
        }
    });
}

#[test]
fn two_remove_one_tree() {
    on_volume(|files| {
        let rival = |path: &'static str| {
            let files = files.clone();
            move || files.remove_dir_all(path).unwrap()
        };
        for path in ["/t", "/t/a", "/t/a/x"] {
            for is_listing in [true, false] {
                files.create_dir_all("/t/a/x/y").unwrap();
                files.write("/t/a/x/f", "1").unwrap();
                if is_listing {
                    files.file_system().before_listing(rival(path));
                } else {
                    files.file_system().before_removal(rival(path));
                }
                files.remove_dir_all("/t").unwrap();
                assert!(!files.exists("/t").unwrap(), "{path}");
            }
        }
        // As with `std::fs`, it must be there at first.
        refused(files.remove_dir_all("/t"), ErrorKind::NotFound, "/t: no such file or directory");
    });
}

#[test]
fn a_hole_larger_than_all_memory_is_an_error() {
    on_volume(|files| {
        files.create("/hole").unwrap().set_len(3 << 40).unwrap();
        refused(files.read("/hole").map(|_| ()), ErrorKind::OutOfMemory, "/hole: out of memory");
        refused(files.read_to_string("/hole").map(|_| ()), ErrorKind::OutOfMemory, "/hole: out of memory");
    });
}

#[test]
fn devices_are_not_opened() {
    on_volume(|files| {
        let fs = files.file_system();
        let node = basalt_vfs::NewNode { kind: FileKind::Fifo, permissions: 0o644, rdev: 0, target: b"" };
        let made = fs.create(fs.root(), b"fifo", &node, &Caller::default()).unwrap();
        fs.forget(made.ino, 1);
        let opened = files.open_with("/fifo", &FileOptions::new().read(true));
        refused(opened, ErrorKind::Unsupported, "/fifo: not supported: opening a device, FIFO or socket by path");
    });
}
