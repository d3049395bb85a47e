//! Image files: requests of all shapes, holes, truncation, and why a path cannot be opened.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use basalt_device::{BlockDevice, DeviceError, FileDevice, Lock, OpenOptions};
use common::{exercise, refusal};

fn read_only() -> OpenOptions {
    OpenOptions { read_only: true, lock: Lock::Shared, ..OpenOptions::default() }
}

#[test]
fn holds_what_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let device = FileDevice::create(&path, 5 << 20).unwrap();
    assert_eq!((device.size(), device.sector_size(), device.is_read_only()), (5 << 20, 512, false));
    assert!(!device.is_block_device() && !device.is_direct());
    exercise(&device, 400);
    let mut written = vec![0; 5 << 20];
    device.read_at(0, &mut written).unwrap();
    drop(device);
    assert!(fs::read(&path).unwrap() == written);
    let again = FileDevice::open(&path, &read_only()).unwrap();
    let mut read = vec![0; 1000];
    again.read_at(77, &mut read).unwrap();
    assert_eq!(read, written[77..1077]);
}

/// File systems keep holes in units of their own, up to 1 MiB.
#[test]
fn holes_are_known() {
    const MIB: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let device = FileDevice::create(directory.path().join("image"), (1 << 40) + 1).unwrap();
    if device.next_data(0).is_some() {
        println!("skipped: the file system does not tell of holes");
        return;
    }
    let at = 70 * MIB + 5;
    device.write_at(at, &[1]).unwrap();
    device.write_at(1 << 40, &[1]).unwrap();
    let found = device.next_data(0).unwrap();
    assert!((at - MIB..=at).contains(&found), "{found}");
    assert_eq!(device.next_data(at), Some(at));
    assert_eq!(device.next_data(at + MIB), Some(1 << 40));
    assert_eq!([device.next_data((1 << 40) + 1), device.next_data(u64::MAX)], [None; 2]);
}

#[test]
fn direct_io_on_an_image_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    drop(FileDevice::create(&path, 4 << 20).unwrap());
    let direct = OpenOptions { direct: Some(true), ..OpenOptions::default() };
    match FileDevice::open(&path, &direct) {
        Ok(device) => {
            assert!(device.is_direct());
            exercise(&device, 400);
        }
        Err(error) => println!("skipped: {error}"),
    }
    // 700 is no multiple of any sector size.
    File::options().write(true).open(&path).unwrap().set_len(700).unwrap();
    let message = refusal(FileDevice::open(&path, &direct));
    assert!(message.contains("direct I/O"), "{message}");
}

#[test]
fn many_slices_in_one_write() {
    let directory = tempfile::tempdir().unwrap();
    let device = FileDevice::create(directory.path().join("image"), 1 << 20).unwrap();
    // More than one pwritev takes, lengths 0 to 6.
    let bytes: Vec<u8> = (0..30_000_u32).map(|i| (i % 253) as u8).collect();
    let mut slices = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (slice, behind) = rest.split_at((slices.len() % 7).min(rest.len()));
        slices.push(slice);
        rest = behind;
    }
    assert!(slices.len() > 3 * 1024);
    device.write_vectored_at(12_345, &slices).unwrap();
    let mut read = vec![0; bytes.len() + 2];
    device.read_at(12_344, &mut read).unwrap();
    assert_eq!(read[1..=bytes.len()], bytes);
    assert_eq!((read[0], read[bytes.len() + 1]), (0, 0));
    device.write_vectored_at(0, &[]).unwrap();
    device.write_vectored_at(1 << 20, &[&[], &[]]).unwrap();
}

#[test]
fn discard_makes_holes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let device = FileDevice::create(&path, 1 << 30).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() < 100, "a new image is sparse");
    device.write_at(0, &vec![1; 4 << 20]).unwrap();
    device.flush().unwrap();
    let full = fs::metadata(&path).unwrap().blocks();
    device.discard(1 << 20, 2 << 20).unwrap();
    device.discard(0, 0).unwrap();
    let mut bytes = vec![9; 4 << 20];
    device.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..1 << 20].iter().all(|&byte| byte == 1) && bytes[3 << 20..].iter().all(|&byte| byte == 1));
    let discarded = &bytes[1 << 20..3 << 20];
    if discarded.iter().all(|&byte| byte == 1) {
        println!("skipped: this file system cannot punch holes");
        return;
    }
    assert!(discarded.iter().all(|&byte| byte == 0));
    assert_eq!(full - fs::metadata(&path).unwrap().blocks(), 4096);
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 30);
}

#[test]
fn requests_past_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let device = FileDevice::create(&path, 1000).unwrap();
    device.write_at(0, &[7; 1000]).unwrap();
    for (offset, length) in [(1000, 1), (999, 2), (u64::MAX, 1), (u64::MAX - 1, 2), (5000, 0)] {
        let mut buf = vec![0; length];
        for result in [
            device.read_at(offset, &mut buf),
            device.write_at(offset, &buf),
            device.discard(offset, length as u64),
            device.write_vectored_at(offset, &[&buf, &[]]),
        ] {
            assert!(matches!(result, Err(DeviceError::OutOfRange { size: 1000, .. })), "{length} bytes at {offset}");
        }
    }
    assert_eq!(fs::read(&path).unwrap(), [7; 1000]);
}

#[test]
fn a_file_cut_short_while_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let device = FileDevice::create(&path, 1 << 20).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
    device.read_at(4000, &mut [0; 1000]).unwrap();
    let result = device.read_at(4096, &mut [0; 4096]);
    assert!(matches!(result, Err(DeviceError::OutOfRange { operation: "read", offset: 4096, size: 5000, .. })));
}

#[test]
fn read_only_devices_refuse_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    fs::write(&path, [5; 4096]).unwrap();
    let device = FileDevice::open(&path, &read_only()).unwrap();
    assert!(device.is_read_only());
    for result in [device.write_at(0, &[1]), device.discard(0, 512), device.write_vectored_at(0, &[&[1], &[2]])] {
        let Err(DeviceError::Io { source, .. }) = result else { panic!("was not refused") };
        assert_eq!(source.raw_os_error(), None);
        assert_eq!(source.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    device.flush().unwrap();
    let mut bytes = [0; 4096];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 4096]);
}

#[test]
fn why_a_path_cannot_be_opened() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let open = |name: &str| refusal(FileDevice::open(at(name), &OpenOptions::default()));
    assert!(open("missing").ends_with("missing: no such file or device"));
    fs::create_dir(at("directory")).unwrap();
    assert!(open("directory").ends_with("is a directory, not an image file or block device"));
    fs::write(at("empty"), []).unwrap();
    assert!(open("empty").ends_with("empty: is empty"));
    assert!(open("empty/below").ends_with("no such file or device"));
    // A pipe without a writer: must be refused, not waited for.
    let status = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(status.success());
    assert!(open("pipe").contains("is a named pipe"));
    let message = refusal(FileDevice::open("/dev/null", &OpenOptions::default()));
    assert_eq!(message, "/dev/null: is a character device, not an image file or block device");
}

#[test]
fn creating() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    fs::write(&path, "precious").unwrap();
    assert!(refusal(FileDevice::create(&path, 4096)).ends_with("exists already"));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert!(refusal(FileDevice::create(directory.path().join("no/image"), 4096)).ends_with("no such directory"));
    for size in [0, u64::MAX, i64::MAX as u64] {
        let path = directory.path().join("impossible");
        refusal(FileDevice::create(&path, size));
        assert!(!path.exists(), "a file of {size} bytes was left behind");
    }
}

#[test]
fn resizing_an_image_on_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    fs::write(&path, []).unwrap();
    for size in [1 << 20, 4096, 1 << 40] {
        let options = OpenOptions { resize: Some(size), ..OpenOptions::default() };
        assert_eq!(FileDevice::open(&path, &options).unwrap().size(), size);
    }
}
