//! Directories, and what names can be.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, linkat, mknodat, open, renameat_with};
use rustix::io::Errno;

use crate::fixture::Volume;

const MANY: usize = 100_000;
const THREADS: usize = 4;

fn name(number: usize) -> String {
    format!("entry-{number:06}-{}", "x".repeat(number % 23))
}

/// Does something with every number, several at once.
fn for_each(numbers: usize, act: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let act = &act;
            scope.spawn(move || (thread..numbers).step_by(THREADS).for_each(act));
        }
    });
}

fn listed(directory: &Path) -> Vec<OsString> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_directory_of_100_000_entries() {
    let Some(volume) = Volume::new("1G") else { return };
    let directory = volume.path("many");
    fs::create_dir(&directory).unwrap();
    for_each(MANY, |number| {
        mknodat(CWD, directory.join(name(number)), FileType::RegularFile, Mode::from_raw_mode(0o644), 0).unwrap();
    });
    volume.remount();
    let names = listed(&directory);
    assert_eq!(names.len(), MANY);
    let names: HashSet<OsString> = names.into_iter().collect();
    assert!((0..MANY).all(|number| names.contains(OsStr::new(&name(number)))));
    for number in (0..MANY).step_by(997) {
        assert!(directory.join(name(number)).is_file());
        assert!(!directory.join(name(number) + "-not").exists());
    }
    // Removing while listing, as rm does, leaves nothing out.
    let mut removed = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().as_bytes().last() != Some(&b'-') {
            fs::remove_file(entry.path()).unwrap();
            removed += 1;
        }
    }
    volume.remount();
    let left = listed(&directory);
    assert_eq!(left.len(), MANY - removed);
    assert!(left.iter().all(|name| name.as_bytes().last() == Some(&b'-')));
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn names_of_any_bytes_up_to_255() {
    let Some(volume) = Volume::new("64M") else { return };
    let mut names: Vec<Vec<u8>> = vec![
        b"\xff\xfe\x80 not UTF-8 \xc3".to_vec(),
        b"line\nbreak\ttab\x01\x7f".to_vec(),
        " ".into(),
        "...".into(),
        "ä".into(),
        "a\u{308}".into(),
        "-rf".into(),
        "back\\slash".into(),
        vec![b'n'; 255],
        vec![0xff; 255],
    ];
    names.extend((1..=255_u8).filter(|byte| *byte != b'/' && *byte != b'.').map(|byte| vec![byte]));
    names.sort();
    names.dedup();
    for name in &names {
        fs::write(volume.path(OsStr::from_bytes(name)), name).unwrap();
    }
    volume.remount();
    let mut found: Vec<Vec<u8>> = listed(&volume.root()).into_iter().map(OsString::into_vec).collect();
    found.sort();
    found.retain(|name| name != b"lost+found");
    assert_eq!(found, names);
    for name in &names {
        assert_eq!(fs::read(volume.path(OsStr::from_bytes(name))).unwrap(), *name);
    }
}

#[test]
fn longer_names_are_too_long_everywhere() {
    let Some(volume) = Volume::new("64M") else { return };
    fs::write(volume.path("file"), b"x").unwrap();
    // The kernel itself refuses paths of 4096 bytes; relative ones leave room for 4095.
    let root = open(volume.root(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mode = Mode::from_raw_mode(0o755);
    for len in [256, 1_000, 4_094, 4_095] {
        let long = "n".repeat(len);
        let long = long.as_str();
        let too_long = |what: rustix::io::Result<()>| assert_eq!(what, Err(Errno::NAMETOOLONG), "{len} bytes");
        too_long(rustix::fs::openat(&root, long, OFlags::CREATE | OFlags::WRONLY, mode).map(drop));
        too_long(rustix::fs::openat(&root, long, OFlags::RDONLY, mode).map(drop));
        too_long(rustix::fs::statat(&root, long, AtFlags::empty()).map(drop));
        too_long(rustix::fs::mkdirat(&root, long, mode));
        too_long(mknodat(&root, long, FileType::Fifo, mode, 0));
        too_long(rustix::fs::symlinkat("target", &root, long));
        too_long(linkat(&root, "file", &root, long, AtFlags::empty()));
        too_long(rustix::fs::renameat(&root, "file", &root, long));
        too_long(rustix::fs::renameat(&root, long, &root, "file"));
        too_long(rustix::fs::unlinkat(&root, long, AtFlags::empty()));
        too_long(rustix::fs::unlinkat(&root, long, AtFlags::REMOVEDIR));
    }
    assert_eq!(fs::read(volume.path("file")).unwrap(), b"x");
}

#[test]
fn renames_of_every_kind() {
    let Some(volume) = Volume::new("64M") else { return };
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, volume.path(from), CWD, volume.path(to), flags);
    let text = |name: &str| fs::read_to_string(volume.path(name)).unwrap();
    fs::write(volume.path("a"), "a").unwrap();
    fs::write(volume.path("b"), "b").unwrap();
    fs::create_dir_all(volume.path("one/inner")).unwrap();
    fs::create_dir(volume.path("two")).unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "c", RenameFlags::NOREPLACE).unwrap();
    rename("b", "c", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((text("b"), text("c")), ("a".into(), "b".into()));
    // A file and a directory change places across directories; `..` and link counts follow.
    rename("b", "one/inner", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(text("one/inner"), "a");
    assert!(volume.path("b").is_dir());
    rename("b", "two/b", RenameFlags::empty()).unwrap();
    assert_eq!(rename("two", "two/b/under-itself", RenameFlags::empty()), Err(Errno::INVAL));
    rename("c", "d", RenameFlags::WHITEOUT).unwrap();
    rename("d", "one/inner", RenameFlags::empty()).unwrap();
    volume.remount();
    assert_eq!(text("one/inner"), "b");
    let whiteout = fs::symlink_metadata(volume.path("c")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    assert!(!volume.path("d").exists());
    let links = |name: &str| fs::metadata(volume.path(name)).unwrap().nlink();
    assert_eq!((links("one"), links("two"), links("two/b")), (2, 3, 2));
    let (up, two) = (fs::metadata(volume.path("two/b/..")).unwrap(), fs::metadata(volume.path("two")).unwrap());
    assert_eq!(up.ino(), two.ino());
}

#[test]
fn a_file_without_a_name_gets_one() {
    let Some(volume) = Volume::new("64M") else { return };
    let unnamed = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        fs::File::from(open(volume.root(), flags, Mode::from_raw_mode(0o640)).unwrap())
    };
    let mut file = unnamed();
    file.write_all(&[5; 50_000]).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    linkat(&file, "", CWD, volume.path("named"), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    // One that never gets a name takes no room once closed, even when the process that had it is killed.
    let mut lost = unnamed();
    lost.write_all(&[6; 50_000]).unwrap();
    lost.sync_all().unwrap();
    let open_and_removed = fs::File::create_new(volume.path("removed")).unwrap();
    (&open_and_removed).write_all(&[7; 50_000]).unwrap();
    fs::remove_file(volume.path("removed")).unwrap();
    file.sync_all().unwrap();
    volume.kill_server();
    drop((file, lost, open_and_removed));
    volume.clean_up();
    volume.mount();
    let mut bytes = Vec::new();
    fs::File::open(volume.path("named")).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [5; 50_000]);
    assert_eq!(fs::metadata(volume.path("named")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(listed(&volume.root()).into_iter().filter(|name| name != "lost+found").collect::<Vec<_>>(), ["named"]);
}
