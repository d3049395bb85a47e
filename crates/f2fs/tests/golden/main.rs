//! Golden volumes: small volumes of each format feature, kept as they were made, by Linux and by versions of Basalt. Each build opens them,
//! finds what was written, changes it, and leaves a clean volume.
//!
//! `volumes/NAME.gz` has the blocks that are not zero; `contents.txt` has the checksum of each tree. A volume is never made again: what a
//! user has does not change either. `cargo test -p basalt-f2fs --test golden -- --ignored` makes those that are missing.

mod make;
mod store;

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, CheckReport, Severity};
use basalt_f2fs::repair::check_recovered;
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Clock, F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

use store::{Golden, all};

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

fn look(device: &Arc<MemoryDevice>) -> CheckReport {
    let device: Arc<dyn BlockDevice> = device.clone();
    check_recovered(device, &CheckOptions::default(), &clock(), &mut |_| ()).unwrap()
}

/// Everything but access times of what is below a directory, in lines, sorted.
fn tree(fs: &dyn FileSystem, directory: InodeNumber, path: &str, lines: &mut Vec<String>) {
    let mut found = Vec::new();
    let keep = &mut |entry: basalt_vfs::DirectoryEntry<'_>| {
        found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
        true
    };
    fs.read_directory(directory, 0, keep).unwrap();
    for (name, ino) in found.into_iter().filter(|(name, _)| !matches!(&**name, "." | "..")) {
        let path = format!("{path}/{name}");
        let is = fs.attributes(ino).unwrap();
        let content = match is.kind {
            FileKind::Regular => {
                let mut bytes = vec![0; is.size as usize];
                assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len(), "{path}");
                crc32fast::hash(&bytes)
            }
            FileKind::Symlink => crc32fast::hash(&fs.read_link(ino).unwrap()),
            _ => 0,
        };
        let names = fs.list_xattrs(ino).unwrap();
        let mut xattrs: Vec<_> = names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        xattrs.sort_unstable();
        let values: Vec<u32> = xattrs.iter().map(|name| crc32fast::hash(&fs.get_xattr(ino, name).unwrap())).collect();
        lines.push(format!(
            "{path} {:o} {} {}:{} {} {} {:?} {content:08x} {xattrs:?} {values:x?}",
            is.mode(),
            is.links,
            is.uid,
            is.gid,
            is.size,
            is.rdev,
            is.mtime
        ));
        if is.kind == FileKind::Directory {
            tree(fs, ino, &path, lines);
        }
    }
    lines.sort_unstable();
}

fn lines(fs: &dyn FileSystem) -> Vec<String> {
    let mut lines = Vec::new();
    tree(fs, fs.root(), "", &mut lines);
    lines
}

/// How many names a tree has, and the checksum of all of it.
fn contents(fs: &dyn FileSystem) -> String {
    let lines = lines(fs);
    format!("{} {:08x}", lines.len(), crc32fast::hash(lines.join("\n").as_bytes()))
}

fn open(device: &Arc<MemoryDevice>, name: &str) -> F2fs {
    F2fs::open(device.clone(), OpenOptions::default(), clock()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn what_was_written_then_is_found_now() {
    let volumes = all();
    assert!(volumes.len() >= 20, "{} volumes", volumes.len());
    for Golden { name, device, expected } in volumes {
        let report = look(&device);
        let is_worse = |severity: Severity| severity > Severity::Note;
        assert!(!report.faults.iter().any(|fault| is_worse(fault.severity)), "{name}: {:?}", report.faults);
        let rescued: Arc<dyn BlockDevice> = device.clone();
        let rescued = Rescued::open(rescued, &RescueOptions::default(), clock(), &mut |_| ()).unwrap();
        let fs = open(&device, &name);
        assert_eq!(contents(&fs), expected, "{name}");
        // Files for quota have no name: rescue shows them in lost+found.
        let named = |fs: &dyn FileSystem| {
            lines(fs).into_iter().filter(|line| !line.starts_with("/lost+found")).collect::<Vec<_>>()
        };
        assert!(named(&rescued) == named(&fs), "{name}: rescue: {:?}", rescued.report());
        let is_writable = fs.is_writable();
        if is_writable {
            change(&fs, &name);
        }
        fs.close().unwrap();
        drop(fs);
        let report = look(&device);
        assert!(report.is_clean() && report.complete, "{name}, changed: {:?}", report.faults);
        assert!(!is_writable || report.faults.is_empty(), "{name}, changed: {:?}", report.faults);
        assert_ne!(contents(&open(&device, &name)) == expected, is_writable, "{name}, changed");
    }
}

/// Makes a file, writes over the start of another one and removes a third.
fn change(fs: &F2fs, name: &str) {
    let new = NewNode { kind: FileKind::Regular, permissions: 0o640, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"made now", &new, &Caller::default()).unwrap().ino;
    assert_eq!(fs.write(ino, 5_000, &[7; 9_000], false).unwrap(), 9_000, "{name}");
    fs.sync_file(ino, false).unwrap();
    let mut files = Vec::new();
    let keep = &mut |entry: basalt_vfs::DirectoryEntry<'_>| {
        if entry.kind == FileKind::Regular {
            files.push((entry.name.to_vec(), entry.ino));
        }
        true
    };
    fs.read_directory(fs.root(), 0, keep).unwrap();
    files.retain(|(_, found)| *found != ino);
    if let Some((_, ino)) = files.first() {
        fs.write(*ino, 0, &[9; 100], false).unwrap();
    }
    if let Some((last, _)) = files.get(1) {
        fs.unlink(fs.root(), last).unwrap();
    }
}
