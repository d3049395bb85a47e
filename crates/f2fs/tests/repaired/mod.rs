//! What a repaired volume must be: clean for both checkers, repaired once and for all, and whole but for what was damaged.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, CheckReport, Severity, check};
use basalt_f2fs::repair::{RepairOptions, RepairReport, plan};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{DirectoryEntry, FileKind, FileSystem, InodeNumber};

/// Every path of a volume, and what is there: type, permissions, links, size, content and attributes in one line.
pub type Tree = BTreeMap<String, String>;

/// The bytes of files are compared by their hash, in pieces.
const STEP: usize = 1 << 20;
/// Files are read to here: a few blocks lie far out, past holes.
const READ_MAX: u64 = 14 << 20;

pub fn checked(device: &dyn BlockDevice) -> CheckReport {
    check(device, &CheckOptions::default(), &mut |_| ()).unwrap()
}

/// Repairs, and writes it.
pub fn repair(device: &Arc<dyn BlockDevice>) -> basalt_f2fs::Result<RepairReport> {
    plan(Arc::clone(device), &RepairOptions::default(), &mut |_| ())?.commit()
}

/// Repairs a volume that can be repaired: it is clean then, and a second repair has nothing to do.
pub fn repair_fully(device: &Arc<dyn BlockDevice>, what: &str) -> RepairReport {
    let report = repair(device).unwrap_or_else(|error| panic!("{what}: {error}"));
    let done: String = report.repairs.iter().take(20).map(|repair| format!("\n  {repair}")).collect();
    let left: String = report.left.iter().take(20).map(|fault| format!("\n  left: {fault}")).collect();
    assert!(report.clean && report.left.is_empty(), "{what}:{done}{left}");
    let after = checked(device);
    assert!(after.is_clean() && after.complete, "{what}: {:?}{done}", after.faults);
    assert!(after.faults.iter().all(|fault| fault.severity == Severity::Note), "{what}");
    let second = repair(device).unwrap();
    assert!(second.repairs.is_empty() && second.clean && second.blocks == 0, "{what}: {:?}{done}", second.repairs);
    report
}

/// Everything that can be read of a volume through the engine.
pub fn tree(device: Arc<dyn BlockDevice>) -> Tree {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let fs = F2fs::open(device, options, Arc::new(SystemClock)).unwrap();
    let mut tree = Tree::new();
    let mut open = vec![(String::new(), fs.root())];
    while let Some((path, directory)) = open.pop() {
        tree.insert(format!("{path}/"), describe(&fs, directory));
        for (name, ino, kind) in list(&fs, directory) {
            let path = format!("{path}/{name}");
            if kind == FileKind::Directory {
                open.push((path, ino));
            } else {
                tree.insert(path, describe(&fs, ino));
            }
        }
    }
    tree
}

fn list(fs: &F2fs, directory: InodeNumber) -> Vec<(String, InodeNumber, FileKind)> {
    let mut found = Vec::new();
    fs.read_directory(directory, 0, &mut |entry: DirectoryEntry<'_>| {
        if entry.name != b"." && entry.name != b".." {
            found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino, entry.kind));
        }
        true
    })
    .unwrap();
    found
}

fn describe(fs: &F2fs, ino: InodeNumber) -> String {
    let attributes = fs.attributes(ino).unwrap();
    let mut hash = crc32fast::Hasher::new();
    match attributes.kind {
        FileKind::Regular => {
            let mut buffer = vec![0; STEP];
            let mut at = 0;
            while at < attributes.size.min(READ_MAX) {
                let read = fs.read(ino, at, &mut buffer).unwrap();
                hash.update(&buffer[..read]);
                at += STEP as u64;
            }
        }
        FileKind::Symlink => hash.update(&fs.read_link(ino).unwrap()),
        _ => {}
    }
    for name in fs.list_xattrs(ino).unwrap().split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        hash.update(name);
        hash.update(&fs.get_xattr(ino, name).unwrap());
    }
    let links = if attributes.kind == FileKind::Directory { 0 } else { attributes.links };
    let size = if attributes.kind == FileKind::Directory { 0 } else { attributes.size };
    format!("{ino} {:o} {links} {size} {:#x}", attributes.mode(), hash.finalize())
}

/// Paths that are not as they were; those in `lost+found` are not counted.
pub fn differences(before: &Tree, after: &Tree) -> Vec<String> {
    let changed = before.iter().filter(|(path, what)| after.get(*path) != Some(*what)).map(|(path, _)| path.clone());
    let new = after.keys().filter(|path| !before.contains_key(*path) && !path.starts_with("/lost+found/")).cloned();
    changed.chain(new).collect()
}

/// Writes a device to an image file, holes left out.
pub fn save(device: &MemoryDevice, path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    file.set_len(device.size()).unwrap();
    let mut buffer = vec![0; 64 << 10];
    for offset in (0..device.size()).step_by(buffer.len()) {
        device.read_at(offset, &mut buffer).unwrap();
        if buffer.iter().any(|&byte| byte != 0) {
            file.seek(SeekFrom::Start(offset)).unwrap();
            file.write_all(&buffer).unwrap();
        }
    }
}
