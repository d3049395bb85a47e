//! The main job once through the library: make, fill, close, check with `fsck.f2fs`, reopen, compare.

use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, RenameFlags, SetAttributes, XattrFlags};

fn open(path: &std::path::Path) -> F2fs {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path, &DeviceOptions::default()).unwrap());
    F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap()
}

fn content(seed: u64, length: usize) -> Vec<u8> {
    (0..length).map(|i| ((i as u64).wrapping_mul(seed | 1) >> 3) as u8).collect()
}

#[test]
fn a_volume_is_made_filled_closed_and_read_back() {
    let dir = basalt_testkit::scratch::directory().unwrap();
    let path = dir.path().join("volume.img");
    drop(FileDevice::create(&path, 512 << 20).unwrap());
    {
        let device = FileDevice::open(&path, &DeviceOptions::default()).unwrap();
        format(&device, &FormatOptions::default(), &mut |_, _| {}).unwrap();
    }
    basalt_testkit::images::fsck_f2fs(&path).unwrap().expect_clean();
    let caller = Caller { uid: 1000, gid: 1000, umask: 0o022 };
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let directory = NewNode { kind: FileKind::Directory, permissions: 0o755, ..file };
    {
        let fs = open(&path);
        for d in 0..20 {
            let dir = fs.create(fs.root(), format!("directory {d}").as_bytes(), &directory, &caller).unwrap();
            for f in 0..200u64 {
                let ino =
                    fs.create(dir.ino, format!("file number {f} with a name").as_bytes(), &file, &caller).unwrap().ino;
                fs.write(ino, 0, &content(f, (f * f * 3) as usize), false).unwrap();
                if f % 7 == 0 {
                    fs.set_xattr(ino, b"user.number", &content(f, f as usize * 4), XattrFlags::empty()).unwrap();
                }
                if f % 5 == 0 {
                    fs.unlink(dir.ino, format!("file number {f} with a name").as_bytes()).unwrap();
                }
                fs.forget(ino, 1);
            }
            if d % 3 == 0 {
                let other = fs.lookup(fs.root(), b"directory 0").unwrap();
                let name = format!("moved {d}");
                if d > 0 {
                    fs.rename(
                        fs.root(),
                        format!("directory {d}").as_bytes(),
                        other.ino,
                        name.as_bytes(),
                        RenameFlags::empty(),
                        &caller,
                    )
                    .unwrap();
                }
            }
            if d % 4 == 1 {
                fs.sync().unwrap();
            }
        }
        let big = fs.create(fs.root(), b"big", &file, &caller).unwrap().ino;
        for i in 0..40 {
            fs.write(big, i << 20, &content(i, 1 << 20), false).unwrap();
        }
        fs.set_attributes(big, &SetAttributes { size: Some((30 << 20) + 5), ..Default::default() }).unwrap();
        fs.close().unwrap();
    }
    basalt_testkit::images::fsck_f2fs(&path).unwrap().expect_clean();
    let fs = open(&path);
    assert_eq!(fs.warnings(), Vec::<String>::new());
    let big = fs.lookup(fs.root(), b"big").unwrap();
    assert_eq!(big.size, (30 << 20) + 5);
    let mut buf = vec![0; 1 << 20];
    for i in 0..30 {
        assert_eq!(fs.read(big.ino, i << 20, &mut buf).unwrap(), 1 << 20);
        assert!(buf == content(i, 1 << 20), "MiB {i}");
    }
    let dir = fs.lookup(fs.root(), b"directory 1").unwrap();
    for f in 0..200u64 {
        let found = fs.lookup(dir.ino, format!("file number {f} with a name").as_bytes());
        if f % 5 == 0 {
            assert!(found.is_err());
            continue;
        }
        let found = found.unwrap();
        let mut buf = vec![1; (f * f * 3) as usize + 10];
        let read = fs.read(found.ino, 0, &mut buf).unwrap();
        assert_eq!(&buf[..read], content(f, (f * f * 3) as usize), "file {f}");
    }
}
