//! What programs may count on: ranges that are punched or zeroed, holes, and times; and what pjdfstest asks only of files with two names.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use basalt_flashlight::{FlashLight, FormatOptions, Identity, Time, memory_bytes};
use basalt_flashlight_vfs::FlashFs;
use basalt_nand::{Chip, ChipOptions, Ecc, Geometry};
use basalt_vfs::{
    Attributes, Caller, Engine, ErrorKind, FallocateMode, FileKind, FileSystem, NewNode, RenameFlags, Result, Seek,
};

const PAGE: u64 = 2048;
const CALLER: Caller = Caller { uid: 7, gid: 8, umask: 0o022 };
const KINDS: [FileKind; 5] =
    [FileKind::Regular, FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];

/// A new volume of 16 MiB, on which no two moments are the same.
fn formatted() -> FlashFs<Ecc<Chip, 1>> {
    let geometry = Geometry::new(2048, 64, 64, 128).unwrap();
    let device = Ecc::new(Chip::new(ChipOptions::new(geometry))).unwrap();
    let options = FormatOptions { identity: Identity { uuid: [3; 16], label: [0; 64] }, now: Time::default() };
    let volume = FlashLight::format(device, vec![0; memory_bytes(&geometry)], &options).unwrap();
    let second = AtomicI64::new(1_800_000_000);
    let clock = move || basalt_vfs::Time { seconds: second.fetch_add(1, Relaxed), nanoseconds: 5 };
    FlashFs::new(volume, Box::new(clock))
}

fn node(kind: FileKind) -> NewNode<'static> {
    NewNode { kind, permissions: 0o640, rdev: 0x0103, target: b"" }
}

fn kind<T>(result: Result<T>) -> std::result::Result<(), ErrorKind> {
    result.map(|_| ()).map_err(|error| error.kind())
}

#[test]
fn ranges_are_punched_and_zeroed() {
    let fs = formatted();
    let file = fs.create(fs.root(), b"file", &node(FileKind::Regular), &CALLER).unwrap().ino;
    assert_eq!(fs.attributes(file).unwrap().sectors, 4, "the inode");
    fs.write(file, 0, &[7; 10 * PAGE as usize], false).unwrap();
    let before = fs.attributes(file).unwrap();
    assert_eq!(before.sectors, 44);
    let (keep, punch, zero) = (FallocateMode::KEEP_SIZE, FallocateMode::PUNCH_HOLE, FallocateMode::ZERO_RANGE);
    fs.fallocate(file, punch | keep, 2 * PAGE + 10, 3 * PAGE).unwrap();
    let after = fs.attributes(file).unwrap();
    assert_eq!((after.size, after.sectors), (10 * PAGE, 36));
    assert!(after.mtime > before.mtime && after.ctime == after.mtime, "{after:?}");
    assert_eq!(fs.seek(file, 0, Seek::Hole).unwrap(), 3 * PAGE);
    assert_eq!(fs.seek(file, 4 * PAGE, Seek::Data).unwrap(), 5 * PAGE);
    // Longer than it was, by nothing but a hole; and not longer.
    fs.fallocate(file, zero, 9 * PAGE, 100 * PAGE).unwrap();
    fs.fallocate(file, zero | keep, 108 * PAGE, 100 * PAGE).unwrap();
    let found = fs.attributes(file).unwrap();
    assert_eq!((found.size, found.sectors), (109 * PAGE, 32));
    assert_eq!(kind(fs.seek(file, 9 * PAGE, Seek::Data)), Err(ErrorKind::NoData));
    assert_eq!(kind(fs.seek(file, 109 * PAGE, Seek::Hole)), Err(ErrorKind::NoData));
    let mut content = vec![1; 120 * PAGE as usize];
    assert_eq!(fs.read(file, 0, &mut content).unwrap() as u64, 109 * PAGE);
    let mut wanted = vec![0; 109 * PAGE as usize];
    wanted[..9 * PAGE as usize].fill(7);
    wanted[2 * PAGE as usize + 10..5 * PAGE as usize + 10].fill(0);
    assert!(content[..wanted.len()] == wanted);
    assert!(fs.with_volume(|volume| volume.check()).unwrap().is_sound());
}

#[test]
fn what_cannot_be_done_to_a_range_is_refused() {
    let fs = formatted();
    let root = fs.root();
    let file = fs.create(root, b"file", &node(FileKind::Regular), &CALLER).unwrap().ino;
    let pipe = fs.create(root, b"pipe", &node(FileKind::Fifo), &CALLER).unwrap().ino;
    fs.write(file, 0, &[7; 3000], false).unwrap();
    let before = fs.attributes(file).unwrap();
    let (keep, punch, zero) = (FallocateMode::KEEP_SIZE, FallocateMode::PUNCH_HOLE, FallocateMode::ZERO_RANGE);
    for reserves in [FallocateMode::empty(), keep, FallocateMode::COLLAPSE_RANGE, FallocateMode::INSERT_RANGE, punch] {
        assert_eq!(kind(fs.fallocate(file, reserves, 0, 4096)), Err(ErrorKind::NotSupported), "{reserves:?}");
    }
    assert_eq!(kind(fs.fallocate(file, punch | keep, 5, 0)), Err(ErrorKind::Invalid));
    assert_eq!(kind(fs.fallocate(file, punch | keep, u64::MAX, 5)), Err(ErrorKind::FileTooLarge));
    // What would be too long is not zeroed either.
    assert_eq!(kind(fs.fallocate(file, zero, 0, 1 << 40)), Err(ErrorKind::FileTooLarge));
    assert_eq!(kind(fs.fallocate(root, punch | keep, 0, 5)), Err(ErrorKind::IsDirectory));
    assert_eq!(kind(fs.fallocate(pipe, punch | keep, 0, 5)), Err(ErrorKind::Invalid));
    assert_eq!(fs.attributes(file).unwrap(), before);
    let mut content = [0; 3000];
    fs.read(file, 0, &mut content).unwrap();
    assert!(content == [7; 3000]);
}

/// A kernel with a writeback cache has told the times already, or will.
#[test]
fn times_that_are_the_callers_stay() {
    let fs = formatted();
    fs.leave_times_to_caller();
    let file = fs.create(fs.root(), b"file", &node(FileKind::Regular), &CALLER).unwrap().ino;
    fs.write(file, 0, &[7; 10_000], false).unwrap();
    let before = fs.attributes(file).unwrap();
    fs.fallocate(file, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 0, 5000).unwrap();
    fs.fallocate(file, FallocateMode::ZERO_RANGE, 5000, 10_000).unwrap();
    let after = fs.attributes(file).unwrap();
    assert_eq!((after.size, after.mtime, after.ctime), (15_000, before.mtime, before.ctime));
}

/// All but the time of the last change of the inode.
fn lasting(attributes: &Attributes) -> Attributes {
    Attributes { ctime: attributes.mtime, links: 1, ..*attributes }
}

/// In pjdfstest these have a second name, by which the inode is looked at.
#[test]
fn an_inode_stays_what_it_is_when_its_name_goes() {
    let fs = formatted();
    let root = fs.root();
    for of in KINDS {
        let made = fs.create(root, b"old", &node(of), &CALLER).unwrap();
        let other = fs.create(root, b"new", &node(of), &CALLER).unwrap();
        fs.rename(root, b"old", root, b"new", RenameFlags::empty(), &CALLER).unwrap();
        let renamed = fs.attributes(made.ino).unwrap();
        assert!(lasting(&renamed) == lasting(&made) && renamed.ctime > made.ctime, "{of:?}: {renamed:?}");
        assert_eq!(fs.lookup(root, b"new").unwrap(), renamed, "{of:?}");
        let replaced = fs.attributes(other.ino).unwrap();
        assert!(replaced.links == 0 && lasting(&replaced) == lasting(&other), "{of:?}: {replaced:?}");
        assert!(replaced.ctime > other.ctime, "{of:?}: {replaced:?}");
        // What fails changes nothing.
        assert_eq!(kind(fs.remove_directory(root, b"new")), Err(ErrorKind::NotDirectory), "{of:?}");
        assert_eq!(kind(fs.unlink(root, b"nothing")), Err(ErrorKind::NotFound), "{of:?}");
        assert_eq!(fs.attributes(made.ino).unwrap(), renamed, "{of:?}");
        fs.unlink(root, b"new").unwrap();
        let unlinked = fs.attributes(made.ino).unwrap();
        assert!(unlinked.links == 0 && lasting(&unlinked) == lasting(&made), "{of:?}: {unlinked:?}");
        assert!(unlinked.ctime > renamed.ctime, "{of:?}: {unlinked:?}");
        fs.forget(made.ino, u64::MAX);
        fs.forget(other.ino, u64::MAX);
    }
    assert_eq!(fs.live().usage.inodes, 1);
    assert!(fs.with_volume(|volume| volume.check()).unwrap().is_sound());
}
