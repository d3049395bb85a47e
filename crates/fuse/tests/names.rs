//! Names through the mount: directories, links, renames, listings, limits.

mod support;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, makedev, mknodat, renameat_with};
use rustix::io::Errno;
use support::Mounted;

#[test]
fn directories_are_made_listed_and_removed() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    fs::create_dir_all(mount.path("a/b")).unwrap();
    assert_eq!(fs::metadata(mount.path("a")).unwrap().nlink(), 3);
    assert_eq!(fs::metadata(mount.root()).unwrap().ino(), support::memory::ROOT);
    let full = fs::remove_dir(mount.path("a")).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
    fs::remove_dir(mount.path("a/b")).unwrap();
    assert_eq!(fs::metadata(mount.path("a")).unwrap().nlink(), 2);
    fs::remove_dir(mount.path("a")).unwrap();
    assert!(!mount.path("a").exists());
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0);
}

#[test]
fn ten_thousand_entries_are_listed_once_each_with_their_attributes() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let count = 10_000;
    for index in 0..count {
        fs::write(mount.path(&format!("file-{index}")), []).unwrap();
    }
    // Mounted again, nothing is cached: the listing comes from the server, with lookups on the way.
    let mount = mount.remount(|_| {});
    for _ in 0..2 {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(mount.root()).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            assert_eq!(entry.metadata().unwrap().ino(), std::os::unix::fs::DirEntryExt::ino(&entry));
            assert!(names.insert(entry.file_name()));
        }
        assert_eq!(names.len(), count);
    }
    for index in 0..count {
        fs::remove_file(mount.path(&format!("file-{index}"))).unwrap();
    }
    let fs = mount.fs.clone();
    drop(mount);
    assert_eq!(fs.inode_count(), 1, "an inode is still referred to after everything was removed");
}

#[test]
fn the_kernel_gives_every_reference_back() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    for index in 0..200 {
        let path = mount.path(&format!("dir/{index}"));
        fs::write(&path, b"x").unwrap();
        fs::hard_link(&path, mount.path(&format!("dir/link-{index}"))).unwrap();
    }
    assert_eq!(fs::read_dir(mount.path("dir")).unwrap().count(), 400);
    fs::remove_dir_all(mount.path("dir")).unwrap();
    // FORGETs come a moment later, without anybody waiting for them.
    let gone = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        mount.fs.inode_count() == 1
    });
    assert!(gone, "{} inodes left", mount.fs.inode_count());
}

#[test]
fn links_share_an_inode() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    fs::write(mount.path("one"), b"content").unwrap();
    fs::hard_link(mount.path("one"), mount.path("two")).unwrap();
    let (one, two) = (fs::metadata(mount.path("one")).unwrap(), fs::metadata(mount.path("two")).unwrap());
    assert_eq!((one.ino(), one.nlink(), two.nlink()), (two.ino(), 2, 2));
    fs::remove_file(mount.path("one")).unwrap();
    assert_eq!(fs::metadata(mount.path("two")).unwrap().nlink(), 1);
    assert_eq!(fs::read(mount.path("two")).unwrap(), b"content");
}

#[test]
fn symbolic_links_and_special_files() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    symlink("some/where", mount.path("link")).unwrap();
    assert_eq!(fs::read_link(mount.path("link")).unwrap().as_os_str(), "some/where");
    let device = makedev(300, 70_000);
    mknodat(CWD, mount.path("device"), rustix::fs::FileType::CharacterDevice, Mode::from(0o600), device).unwrap();
    mknodat(CWD, mount.path("fifo"), rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(mount.path("socket")).unwrap());
    let mount = mount.remount(|_| {});
    let kind = |name| fs::symlink_metadata(mount.path(name)).unwrap();
    assert!(kind("device").file_type().is_char_device());
    assert_eq!(kind("device").rdev(), device);
    assert!(kind("fifo").file_type().is_fifo());
    assert!(kind("socket").file_type().is_socket());
    assert!(kind("link").file_type().is_symlink());
}

#[test]
fn renames_replace_refuse_swap_and_leave_whiteouts() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let rename = |from, to, flags| renameat_with(CWD, mount.path(from), CWD, mount.path(to), flags);
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("a"), b"a").unwrap();
    fs::write(mount.path("b"), b"b").unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "dir", RenameFlags::EXCHANGE).unwrap();
    assert!(mount.path("a").is_dir());
    assert_eq!(fs::read(mount.path("dir")).unwrap(), b"a");
    fs::rename(mount.path("dir"), mount.path("b")).unwrap();
    assert_eq!(fs::read(mount.path("b")).unwrap(), b"a");
    fs::rename(mount.path("b"), mount.path("a/moved")).unwrap();
    assert_eq!(fs::read(mount.path("a/moved")).unwrap(), b"a");
    rename("a/moved", "c", RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs::metadata(mount.path("a/moved")).unwrap();
    assert_eq!((whiteout.file_type().is_char_device(), whiteout.rdev()), (true, 0));
}

#[test]
fn names_have_at_most_255_bytes_and_any_of_them() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let longest = "n".repeat(255);
    fs::write(mount.path(&longest), b"x").unwrap();
    assert_eq!(fs::read(mount.path(&longest)).unwrap(), b"x");
    let too_long = fs::write(mount.path(&"n".repeat(256)), b"x").unwrap_err();
    assert_eq!(too_long.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    let odd = OsStr::from_bytes(b"\xff\x01\n\\ ");
    fs::write(mount.root().join(odd), b"x").unwrap();
    assert!(fs::read_dir(mount.root()).unwrap().any(|entry| entry.unwrap().file_name() == odd));
}

#[test]
fn an_absent_name_that_is_made_is_there() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    assert!(!mount.path("late").exists());
    assert!(!mount.path("late").exists());
    fs::write(mount.path("late"), b"x").unwrap();
    assert!(mount.path("late").exists());
    fs::remove_file(mount.path("late")).unwrap();
    assert!(!mount.path("late").exists());
}

#[test]
fn unnamed_files_get_a_name_by_linking() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed = rustix::fs::open(mount.root(), flags, Mode::from(0o640)).unwrap();
    assert_eq!(rustix::io::write(&unnamed, b"content").unwrap(), 7);
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0);
    assert_eq!(rustix::fs::fstat(&unnamed).unwrap().st_nlink, 0);
    rustix::fs::linkat(&unnamed, "", CWD, mount.path("named"), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(fs::read(mount.path("named")).unwrap(), b"content");
    assert_eq!(fs::metadata(mount.path("named")).unwrap().nlink(), 1);
}

#[test]
fn programs_and_threads_work_in_one_directory_at_once() {
    let Some(mount) = Mounted::new(|options| options.threads = 4) else { return };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let mount = &mount;
            scope.spawn(move || {
                for round in 0..150 {
                    let path = mount.path(&format!("{thread}-{round}"));
                    let renamed = mount.path(&format!("{thread}-{round}-renamed"));
                    let content = format!("{thread} {round}").repeat(1 + round * 7);
                    fs::write(&path, &content).unwrap();
                    fs::rename(&path, &renamed).unwrap();
                    assert_eq!(fs::read_to_string(&renamed).unwrap(), content);
                    if round % 3 == 0 {
                        fs::remove_file(&renamed).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 8 * 100);
}
