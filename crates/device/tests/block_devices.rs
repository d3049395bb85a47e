//! Direct I/O on loop devices with sectors of 512 and 4096 bytes.

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use basalt_device::{BlockDevice, FileDevice, Lock, OpenOptions};
use common::{LoopDevice, exercise, refusal};

const SIZE: u64 = 8 << 20;

fn image(directory: &Path) -> PathBuf {
    let path = directory.join("image");
    File::create_new(&path).unwrap().set_len(SIZE).unwrap();
    path
}

/// udev may look at a new loop device for a moment.
fn options() -> OpenOptions {
    OpenOptions { lock: Lock::Exclusive { wait: Duration::from_secs(5) }, ..OpenOptions::default() }
}

#[test]
fn requests_of_all_shapes() {
    for sector_size in [512, 4096] {
        let directory = tempfile::tempdir().unwrap();
        let path = image(directory.path());
        let Some(attached) = LoopDevice::attach(&path, sector_size) else {
            return;
        };
        let device = FileDevice::open(&attached.path, &options()).unwrap();
        assert_eq!((device.size(), device.sector_size()), (SIZE, sector_size));
        assert!(device.is_direct() && device.is_block_device());
        exercise(&device, 300);
    }
}

#[test]
fn the_page_cache_instead_of_direct_io_if_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let Some(attached) = LoopDevice::attach(&path, 4096) else {
        return;
    };
    let buffered = OpenOptions { direct: Some(false), ..options() };
    let device = FileDevice::open(&attached.path, &buffered).unwrap();
    assert!(!device.is_direct());
    exercise(&device, 100);
}

#[test]
fn discard_of_whole_sectors_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let Some(attached) = LoopDevice::attach(&path, 4096) else {
        return;
    };
    let device = FileDevice::open(&attached.path, &options()).unwrap();
    device.write_at(0, &vec![3; 1 << 20]).unwrap();
    device.discard(1000, 3 * 4096).unwrap();
    device.discard(100_000, 100).unwrap();
    let mut bytes = vec![9; 1 << 20];
    device.read_at(0, &mut bytes).unwrap();
    if bytes[4096] == 3 {
        println!("skipped: this loop device cannot discard");
        return;
    }
    // Of 1000..13288 the whole sectors are 4096..12288.
    for (at, &byte) in bytes.iter().enumerate() {
        assert_eq!(byte, if (4096..12288).contains(&at) { 0 } else { 3 }, "byte {at}");
    }
}

#[test]
fn two_threads_write_parts_of_one_sector() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let Some(attached) = LoopDevice::attach(&path, 4096) else {
        return;
    };
    let device = FileDevice::open(&attached.path, &options()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..50_u8 {
                    device.write_at(u64::from(thread) * 1024, &[thread ^ round; 1024]).unwrap();
                }
            });
        }
    });
    let mut sector = [0; 4096];
    device.read_at(0, &mut sector).unwrap();
    for (thread, part) in (0_u8..).zip(sector.chunks(1024)) {
        assert!(part.iter().all(|&byte| byte == thread ^ 49), "part {thread}");
    }
}

#[test]
fn write_protected_devices() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let Some(attached) = LoopDevice::attach_with(&path, &["--read-only"]) else {
        return;
    };
    assert!(refusal(FileDevice::open(&attached.path, &options())).contains("write-protected"));
    let read_only = OpenOptions { read_only: true, ..options() };
    FileDevice::open(&attached.path, &read_only).unwrap().read_at(0, &mut [0; 512]).unwrap();
    let resize = OpenOptions { resize: Some(1 << 20), ..read_only };
    assert!(refusal(FileDevice::open(&attached.path, &resize)).contains("size cannot be set"));
}
