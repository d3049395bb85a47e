//! Opening damaged volumes and saying what must come of it.

use std::sync::{Arc, OnceLock};

use basalt_device::MemoryDevice;
use basalt_f2fs::{Error, F2fs, OpenOptions};
use basalt_vfs::{Caller, ErrorKind, FileKind, FileSystem, NewNode};

use crate::editor::{Editor, filled_volume, volume_with_orphan};
use crate::fuzz::base::StoppedClock;
use crate::fuzz::guarded::GuardedDevice;

pub const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
pub const FILE: NewNode<'static> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// A filled, cleanly closed volume to damage.
pub fn editor() -> Editor {
    static VOLUME: OnceLock<MemoryDevice> = OnceLock::new();
    Editor::new(VOLUME.get_or_init(filled_volume))
}

/// One that was cut off while a file without a name was open.
pub fn editor_with_orphan() -> Editor {
    static VOLUME: OnceLock<MemoryDevice> = OnceLock::new();
    Editor::new(VOLUME.get_or_init(volume_with_orphan))
}

/// Opens a copy of the first `size` bytes of a device.
pub fn try_open_cut(device: &MemoryDevice, size: u64, read_only: bool) -> Result<F2fs, Error> {
    let guarded = Arc::new(GuardedDevice::new(device.snapshot(), size, !read_only));
    F2fs::open(guarded, OpenOptions { read_only, ..OpenOptions::default() }, Arc::new(StoppedClock))
}

pub fn try_open(device: &MemoryDevice, read_only: bool) -> Result<F2fs, Error> {
    try_open_cut(device, u64::MAX, read_only)
}

/// Opens for writing what must be possible to open.
pub fn open(device: &MemoryDevice) -> F2fs {
    try_open(device, false).unwrap()
}

/// The volume must be refused, for writing and for reading, because of this structure; returns what is said.
pub fn expect_damaged(device: &MemoryDevice, wanted: &str) -> String {
    let [writing, reading] = [false, true].map(|read_only| match try_open(device, read_only).map(drop) {
        Err(error @ Error::Damaged { structure, .. }) if structure == wanted => {
            let text = error.to_string();
            assert_eq!(basalt_vfs::Error::from(error).kind(), ErrorKind::Corrupted, "{text}");
            text
        }
        other => panic!("expected a damaged {wanted}, got {other:?}"),
    });
    assert_eq!(writing, reading);
    writing
}

/// The volume must be refused as one Basalt does not serve, for writing and for reading.
pub fn expect_unsupported(device: &MemoryDevice, reason: &str) {
    for read_only in [false, true] {
        match try_open(device, read_only).map(drop) {
            Err(error @ Error::Unsupported { .. }) => {
                let text = error.to_string();
                assert!(text.contains(reason), "{text}");
            }
            other => panic!("expected {reason}, got {other:?}"),
        }
    }
}

/// The volume must open read-only for this reason, refuse a change with EROFS, and still be readable.
pub fn expect_read_only(device: &MemoryDevice, reason: &str) {
    let fs = open(device);
    assert!(!fs.is_writable());
    let warnings = fs.warnings();
    assert!(warnings.iter().any(|warning| warning.contains("read-only") && warning.contains(reason)), "{warnings:?}");
    let refused = fs.create(fs.root(), b"new", &FILE, &CALLER).unwrap_err();
    assert!(matches!(refused, basalt_vfs::Error::ReadOnly), "{refused}");
    assert_eq!(read(&fs, "small"), b"inline");
    fs.close().unwrap();
}

/// The result must be damage that names this structure.
pub fn expect_corrupted<T: std::fmt::Debug>(result: basalt_vfs::Result<T>, structure: &str) {
    match result {
        Err(error @ basalt_vfs::Error::Corrupted(_)) => {
            let text = error.to_string();
            assert!(text.contains(&format!("{structure} at ")), "{text}");
        }
        other => panic!("expected damage to a {structure}, got {other:?}"),
    }
}

/// The inode with a name in the root directory.
pub fn find(fs: &F2fs, name: &str) -> u64 {
    fs.lookup(fs.root(), name.as_bytes()).unwrap().ino
}

/// The beginning of a file in the root directory.
pub fn read(fs: &F2fs, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let length = fs.read(find(fs, name), 0, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// The names in a directory, or the error on the way.
pub fn list(fs: &F2fs, ino: u64) -> basalt_vfs::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    fs.read_directory(ino, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })?;
    Ok(names)
}
