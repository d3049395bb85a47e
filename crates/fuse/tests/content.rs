//! File content through the mount.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::Command;

use rustix::fs::{FallocateFlags, SeekFrom as RawSeek};
use rustix::io::Errno;
use support::Mounted;

/// Bytes that tell their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index / 7) ^ (index >> 11)) as u8).collect()
}

/// Every way of caching and opening must give the same bytes.
fn in_every_mode(test: impl Fn(&Mounted)) {
    for (writeback_cache, skip_open) in [(true, false), (true, true), (false, false), (false, true)] {
        let Some(mount) = Mounted::new(|options| {
            options.writeback_cache = writeback_cache;
            options.skip_open = skip_open;
        }) else {
            return;
        };
        test(&mount);
    }
}

#[test]
fn what_was_written_is_read() {
    in_every_mode(|mount| {
        let bytes = pattern(5 << 20 | 123);
        fs::write(mount.path("file"), &bytes).unwrap();
        assert!(fs::read(mount.path("file")).unwrap() == bytes);
        let mut file = OpenOptions::new().read(true).write(true).open(mount.path("file")).unwrap();
        file.write_all_at(b"overwritten", 4090).unwrap();
        file.seek(SeekFrom::End(-3)).unwrap();
        file.write_all(b"tail is longer").unwrap();
        drop(file);
        let mut expected = bytes;
        expected[4090..4101].copy_from_slice(b"overwritten");
        expected.truncate(expected.len() - 3);
        expected.extend_from_slice(b"tail is longer");
        assert!(fs::read(mount.path("file")).unwrap() == expected);
    });
}

#[test]
fn truncation_on_open_and_later() {
    in_every_mode(|mount| {
        let path = mount.path("file");
        fs::write(&path, pattern(10_000)).unwrap();
        fs::write(&path, b"short").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(2).unwrap();
        file.set_len(5000).unwrap();
        let mut expected = b"sh".to_vec();
        expected.resize(5000, 0);
        assert_eq!(fs::read(&path).unwrap(), expected);
    });
}

#[test]
fn everything_is_there_after_mounting_again() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let bytes = pattern(3 << 20);
    fs::write(mount.path("file"), &bytes).unwrap();
    let mount = mount.remount(|_| {});
    assert!(fs::read(mount.path("file")).unwrap() == bytes);
}

#[test]
fn direct_io_and_appending() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let direct = || OpenOptions::new().create(true).read(true).write(true).custom_flags(0o40000).clone();
    let file = direct().open(mount.path("direct")).unwrap();
    let bytes = pattern(2 << 20);
    file.write_all_at(&bytes, 0).unwrap();
    let mut back = vec![0; bytes.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == bytes);
    for piece in ["one ", "two ", "three"] {
        let mut file = OpenOptions::new().create(true).append(true).open(mount.path("log")).unwrap();
        file.write_all(piece.as_bytes()).unwrap();
    }
    assert_eq!(fs::read(mount.path("log")).unwrap(), b"one two three");
}

#[test]
fn an_open_file_outlives_its_name() {
    in_every_mode(|mount| {
        let mut file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(mount.path("gone")).unwrap();
        file.write_all(b"still here").unwrap();
        fs::remove_file(mount.path("gone")).unwrap();
        file.sync_all().unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.len()), (0, 10));
        file.write_all(b", and longer").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "still here, and longer");
    });
}

/// Names the file to the process that maps it.
const MAPPED: &str = "BASALT_TEST_MAPPED";

/// Who touches a page waits for this process to serve it, with the lock of its own address space: that of another one.
#[test]
fn a_shared_mapping_writes_the_file() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let mut other = Command::new(std::env::current_exe().unwrap());
    let other = other.args(["--exact", "maps_a_file", "--ignored"]).env(MAPPED, mount.path("mapped"));
    let ended = other.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    let mount = mount.remount(|_| {});
    let bytes = fs::read(mount.path("mapped")).unwrap();
    assert_eq!((bytes[5000], bytes[9000], bytes[0]), (42, 43, 0));
}

#[test]
#[ignore = "another test's other process"]
#[allow(unsafe_code)]
fn maps_a_file() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let Some(path) = std::env::var_os(MAPPED) else { return };
    let len = 3 * 4096;
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).unwrap();
    file.set_len(len as u64).unwrap();
    // SAFETY: the mapping is `len` bytes of a file of that length, used through the pointer below only, and unmapped once.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let start = mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0).unwrap();
        start.cast::<u8>().add(5000).write(42);
        msync(start, len, MsyncFlags::SYNC).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 5000).unwrap();
        assert_eq!(byte, [42]);
        file.write_all_at(&[43], 9000).unwrap();
        assert_eq!(start.cast::<u8>().add(9000).read(), 43);
        munmap(start, len).unwrap();
    }
}

#[test]
fn holes_are_found_and_punched() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let file =
        OpenOptions::new().create(true).truncate(true).read(true).write(true).open(mount.path("sparse")).unwrap();
    file.write_all_at(&[1; 4096], 8 << 20).unwrap();
    file.sync_all().unwrap();
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(RawSeek::Data(0)), Ok(8 << 20));
    assert_eq!(seek(RawSeek::Hole(0)), Ok(0));
    assert_eq!(seek(RawSeek::Hole(8 << 20)), Ok((8 << 20) + 4096));
    assert_eq!(seek(RawSeek::Data((8 << 20) + 4096)), Err(Errno::NXIO));
    assert_eq!(file.metadata().unwrap().blocks(), 8);

    file.write_all_at(&[7; 16384], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4096, 4096 + 100).unwrap();
    let mut bytes = [9; 16384];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..4096].iter().chain(&bytes[8292..]).all(|&byte| byte == 7));
    assert!(bytes[4096..8292].iter().all(|&byte| byte == 0));
    // Not written back yet, and not a hole either.
    assert_eq!(seek(RawSeek::Hole(0)), Ok(4096));
    assert_eq!(seek(RawSeek::Data(4096)), Ok(8192));

    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20 << 20);
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 30 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20 << 20);
    let refused = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
}

#[test]
fn copy_file_range_copies() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let bytes = pattern(20 << 20);
    fs::write(mount.path("from"), &bytes).unwrap();
    let (from, to) = (File::open(mount.path("from")).unwrap(), File::create_new(mount.path("to")).unwrap());
    let (mut read, mut written) = (1000, 10);
    while let Ok(copied @ 1..) =
        rustix::fs::copy_file_range(&from, Some(&mut read), &to, Some(&mut written), bytes.len())
    {
        assert!(copied <= bytes.len());
    }
    assert_eq!(read, bytes.len() as u64);
    let copy = fs::read(mount.path("to")).unwrap();
    assert!(copy[..10] == [0; 10] && copy[10..] == bytes[1000..]);
}
