//! FlashLight under the lab's workloads, and as mounts use it.

use std::sync::Arc;
use std::time::Duration;

use basalt_flashlight::{FlashLight, FormatOptions, Identity, Time, memory_bytes};
use basalt_flashlight_vfs::FlashFs;
use basalt_nand::{Chip, ChipOptions, Ecc, Geometry};
use basalt_vfs::{Caller, Engine, Error, ErrorKind, FileKind, FileSystem, NewNode, RenameFlags, XattrFlags};
use basalt_workloads::{Limit, Settings, Unobserved, VfsFiles, by_name, run};

type Device = Ecc<Chip, 1>;

fn geometry() -> Geometry {
    // 64 MiB.
    Geometry::new(2048, 64, 64, 512).unwrap()
}

fn clock() -> basalt_flashlight_vfs::Clock {
    Box::new(|| basalt_vfs::Time { seconds: 1_800_000_000, nanoseconds: 5 })
}

fn formatted() -> FlashFs<Device> {
    let device = Ecc::new(Chip::new(ChipOptions::new(geometry()))).unwrap();
    let identity = Identity { uuid: [3; 16], label: [0; 64] };
    let options = FormatOptions { identity, now: Time::default() };
    FlashFs::new(FlashLight::format(device, vec![0; memory_bytes(&geometry())], &options).unwrap(), clock())
}

/// The volume of a chip, mounted again.
fn mounted(device: Device) -> FlashFs<Device> {
    FlashFs::new(FlashLight::mount(device, vec![0; memory_bytes(&geometry())]).unwrap(), clock())
}

fn settings() -> Settings {
    Settings {
        size_bytes: 40 << 20,
        utilization_percent: 70,
        age: Some(Limit::Bytes(8 << 20)),
        measure: Some(Limit::Bytes(8 << 20)),
        verify: true,
        ..Settings::default()
    }
}

#[test]
fn workloads_read_what_they_wrote() {
    for name in ["postmark", "fileserver", "varmail", "mobile", "zipf:0.99"] {
        let fs = Arc::new(formatted());
        let mut workload = by_name(name, &settings()).unwrap();
        let mut files = VfsFiles::new(Arc::clone(&fs));
        let report = run(&mut *workload, &settings(), &mut files, &mut Unobserved);
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(report.verified_bytes > 0, "{name}");
        drop(files);
        let checked = fs.with_volume(|volume| volume.check()).unwrap();
        assert!(checked.is_sound(), "{name}: {checked:?}");
        fs.close().unwrap();
        let live = fs.live();
        assert!(live.counters.written.data_blocks > 0 && live.usage.used_blocks > 0, "{live:?}");
    }
}

const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o666, rdev: 0, target: b"" };
const DIRECTORY: NewNode<'_> = NewNode { kind: FileKind::Directory, permissions: 0o777, rdev: 0, target: b"" };
const CALLER: Caller = Caller { uid: 7, gid: 8, umask: 0o022 };

fn names(fs: &FlashFs<Device>, directory: u64) -> Vec<String> {
    let (mut found, mut from) = (Vec::new(), 0);
    // Two at a time, as a kernel with a small buffer.
    loop {
        let mut room = 2;
        fs.read_directory(directory, from, &mut |entry| {
            room -= 1;
            if room < 0 {
                return false;
            }
            found.push(String::from_utf8(entry.name.to_vec()).unwrap());
            from = entry.next;
            true
        })
        .unwrap();
        if room >= 0 {
            found.sort();
            return found;
        }
    }
}

#[test]
fn a_file_lives_until_its_last_reference_goes() {
    let fs = formatted();
    let root = fs.root();
    let file = fs.create(root, b"file", &FILE, &CALLER).unwrap();
    assert_eq!((file.permissions, file.uid, file.gid, file.links), (0o644, 7, 8, 1));
    assert_eq!(fs.write(file.ino, 0, &[5; 10_000], false).unwrap(), 10_000);
    fs.sync_file(file.ino, false).unwrap();
    fs.unlink(root, b"file").unwrap();
    assert_eq!(fs.lookup(root, b"file").map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    let mut content = vec![0; 20_000];
    assert_eq!(fs.read(file.ino, 0, &mut content).unwrap(), 10_000);
    assert_eq!(fs.attributes(file.ino).unwrap().links, 0);
    let used = fs.live().usage.used_blocks;
    fs.forget(file.ino, 1);
    assert_eq!(fs.attributes(file.ino).map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Stale));
    assert!(fs.live().usage.used_blocks < used);
    assert_eq!(names(&fs, root), [".", ".."]);

    // Open when it is replaced, and when the volume is closed.
    let old = fs.create(root, b"old", &FILE, &CALLER).unwrap();
    fs.create(root, b"new", &FILE, &CALLER).unwrap();
    fs.write(old.ino, 0, b"old", false).unwrap();
    fs.rename(root, b"new", root, b"old", RenameFlags::empty(), &CALLER).unwrap();
    assert_eq!(fs.read(old.ino, 0, &mut content).unwrap(), 3);
    assert_eq!(fs.live().usage.inodes, 3, "the root and two files");
    fs.close().unwrap();
    let fs = mounted(fs.into_volume().unmount().map_err(|(error, _)| error).unwrap());
    assert_eq!(fs.live().usage.inodes, 2);
    assert_eq!(names(&fs, root), [".", "..", "old"]);
    assert!(fs.with_volume(|volume| volume.check()).unwrap().is_sound());
}

#[test]
fn directories_and_what_the_format_does_not_have() {
    let fs = formatted();
    let root = fs.root();
    let directory = fs.create(root, b"directory", &DIRECTORY, &CALLER).unwrap();
    for number in 0..600 {
        fs.create(directory.ino, format!("file-{number}").as_bytes(), &FILE, &CALLER).unwrap();
    }
    let listed = names(&fs, directory.ino);
    assert_eq!(listed.len(), 602);
    assert!((0..600).all(|number| listed.binary_search(&format!("file-{number}")).is_ok()));
    assert_eq!(fs.lookup(directory.ino, b"..").unwrap().ino, root);
    assert_eq!(fs.attributes(root).unwrap().links, 3);
    assert_eq!(
        fs.remove_directory(root, b"directory").map(|_| ()).map_err(|error| error.kind()),
        Err(ErrorKind::NotEmpty)
    );
    let above = fs.rename(root, b"directory", directory.ino, b"below", RenameFlags::empty(), &CALLER);
    assert!(matches!(above, Err(Error::Invalid(_))));
    let there = fs.rename(directory.ino, b"file-1", directory.ino, b"file-2", RenameFlags::NO_REPLACE, &CALLER);
    assert_eq!(there.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Exists));
    assert!(matches!(fs.link(directory.ino, root, b"link"), Err(Error::NotPermitted(_))));
    assert!(matches!(fs.get_xattr(root, b"user.a"), Err(Error::NoAttribute)));
    assert!(matches!(fs.set_xattr(root, b"user.a", b"1", XattrFlags::empty()), Err(Error::NotSupported(_))));
    let long = fs.lookup(root, &[b'a'; 256]);
    assert_eq!(long.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::NameTooLong));
    assert_eq!(fs.attributes(99_999).map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Stale));
}

/// What nobody syncs is durable after the commit interval.
#[test]
fn the_time_of_a_commit_is_the_mounts_and_a_commit_outlasts_a_power_cut() {
    let fs = formatted();
    assert_eq!(fs.tick(clock()()).next, Duration::from_secs(5));
    let fs = fs.with_commit_interval(Duration::from_millis(1500));
    let root = fs.root();
    fs.create(root, b"old", &FILE, &CALLER).unwrap();
    fs.sync().unwrap();
    let new = fs.create(root, b"new", &FILE, &CALLER).unwrap();
    fs.write(new.ino, 0, b"data", false).unwrap();
    fs.unlink(root, b"old").unwrap();
    assert_eq!(fs.tick(clock()()).next, Duration::from_millis(1500));
    let cut = fs.with_volume(|volume| volume.device().device().snapshot()).unwrap();
    let after = mounted(Ecc::new(cut).unwrap());
    assert_eq!(names(&after, root), [".", "..", "new"]);
    let mut content = [0; 8];
    assert_eq!(after.read(new.ino, 0, &mut content).unwrap(), 4);
    assert_eq!(&content[..4], b"data");
}

/// Whoever reads the errors of a full volume can still delete, and what was there stays.
#[test]
fn a_full_volume_takes_no_more_and_loses_nothing() {
    let fs = formatted();
    let root = fs.root();
    let mut written = Vec::new();
    let full = loop {
        let name = format!("file-{}", written.len());
        let file = match fs.create(root, name.as_bytes(), &FILE, &CALLER) {
            Ok(file) => file,
            Err(error) => break error,
        };
        let content = vec![written.len() as u8; 100_000];
        let mut length = 0;
        let failed = loop {
            match fs.write(file.ino, length as u64, &content[length..], false) {
                Ok(more) => length += more,
                Err(error) => break Some(error),
            }
            if length == content.len() {
                break None;
            }
        };
        written.push(length);
        if let Some(error) = failed {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    let free = fs.stat_fs().unwrap();
    assert!(free.free * u64::from(free.block_size) < 200_000, "{free:?}");
    let check = |fs: &FlashFs<Device>, from: usize| {
        for (number, &length) in written.iter().enumerate().skip(from) {
            let file = fs.lookup(root, format!("file-{number}").as_bytes()).unwrap();
            let mut content = vec![0; 100_001];
            assert_eq!(fs.read(file.ino, 0, &mut content).unwrap(), length);
            assert!(content[..length].iter().all(|&byte| byte == number as u8), "{number}");
        }
    };
    check(&fs, 0);
    for number in 0..20 {
        let name = format!("file-{number}");
        let file = fs.lookup(root, name.as_bytes()).unwrap();
        fs.unlink(root, name.as_bytes()).unwrap();
        // Nobody has it open any more.
        fs.forget(file.ino, u64::MAX);
    }
    fs.sync().unwrap();
    fs.create(root, b"more", &FILE, &CALLER).unwrap();
    check(&fs, 20);
    let fs = mounted(fs.into_volume().unmount().map_err(|(error, _)| error).unwrap());
    check(&fs, 20);
    assert!(fs.with_volume(|volume| volume.check()).unwrap().is_sound());
}
