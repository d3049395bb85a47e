//! Full volumes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, StatVfs, statvfs};
use rustix::io::Errno;

use crate::fixture::{Volume, sh, try_sh};

const PIECE: usize = 1 << 20;

/// Writes a file and makes it durable.
fn write_durably(path: &Path, byte: u8, len: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&vec![byte; len])?;
    file.sync_all()
}

/// Files of one mebibyte until nothing fits any more; how many did.
fn fill(volume: &Volume, byte: u8) -> usize {
    for number in 0..1_000 {
        let path = volume.path(format!("file{number}"));
        if path.exists() {
            continue;
        }
        if let Err(error) = write_durably(&path, byte, PIECE) {
            assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{error}");
            fs::remove_file(&path).expect("deleting on a full volume");
            return number;
        }
    }
    panic!("1000 MiB on a smaller volume");
}

fn space(volume: &Volume) -> StatVfs {
    statvfs(volume.root()).unwrap()
}

fn available(volume: &Volume) -> u64 {
    let space = space(volume);
    space.f_bavail * space.f_frsize
}

#[test]
fn a_full_volume_refuses_and_goes_on() {
    let Some(volume) = Volume::new("128M") else { return };
    let empty = available(&volume);
    let mut counts = Vec::new();
    for byte in 1..4 {
        let count = fill(&volume, byte);
        assert!(count as u64 * PIECE as u64 > empty * 8 / 10, "{count} MiB fit where df said {empty} bytes");
        assert!(available(&volume) < 3 << 20, "df says {} bytes are left on a full volume", available(&volume));
        // What is there can be overwritten, read, renamed and removed.
        let file = File::options().write(true).open(volume.path("file3")).unwrap();
        file.write_all_at(&vec![byte; PIECE], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs::rename(volume.path("file3"), volume.path("file3.renamed")).unwrap();
        fs::rename(volume.path("file3.renamed"), volume.path("file3")).unwrap();
        volume.remount();
        for number in 0..count {
            let read = fs::read(volume.path(format!("file{number}"))).unwrap();
            // Every fourth stays from the first time on; the overwritten one is among them.
            let expected = if number % 4 == 3 && number != 3 { 1 } else { byte };
            assert!(read == vec![expected; PIECE], "file {number} of the {byte}. time");
        }
        for number in (0..count).filter(|number| number % 4 != 3) {
            fs::remove_file(volume.path(format!("file{number}"))).unwrap();
        }
        counts.push(count);
    }
    assert!(counts.iter().all(|count| count.abs_diff(counts[0]) <= 3), "{counts:?} MiB fit in turn");
    sh(&volume.root(), "rm -f file*; sync .");
    assert!(available(&volume) > empty - (3 << 20), "{empty} bytes at first, {} at last", available(&volume));
}

#[test]
fn programs_hear_that_a_volume_is_full() {
    let Some(volume) = Volume::new("64M") else { return };
    for script in [
        "dd if=/dev/zero of=big bs=1M count=200 status=none",
        "dd if=/dev/zero of=big bs=1M count=200 conv=fsync status=none",
        "dd if=/dev/zero of=big bs=1M count=200 oflag=direct status=none",
        "fallocate -l 200M big",
    ] {
        let (ok, text) = try_sh(&volume.root(), script);
        assert!(!ok && text.contains("No space left"), "{script}: {text}");
        sh(&volume.root(), "rm big; echo more > small; rm small");
    }
}

/// `cp` neither syncs nor closes what it copies without end: only write(2) itself can tell it.
#[test]
fn who_only_writes_hears_it_too() {
    let Some(volume) = Volume::new("64M") else { return };
    for script in ["timeout 60 cp /dev/zero big", "timeout 60 cat /dev/zero > big"] {
        let (ok, text) = try_sh(&volume.root(), script);
        assert!(!ok && text.contains("No space left"), "{script}: {text}");
        // The attributes can be asked for, what is there overwritten, and the file removed.
        sh(&volume.root(), "stat big; dd if=/dev/zero of=big bs=4096 count=1 conv=notrunc,fsync status=none || true");
        sh(&volume.root(), "rm big; echo more > small; rm small");
    }
}

/// Bytes that tell their place, from `offset` on.
fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(37)) as u8).collect()
}

/// Appends pieces by write(2) until one is refused; returns how many bytes were taken.
fn append_until_refused(path: &Path, piece: usize) -> u64 {
    let file = File::options().create(true).append(true).open(path).unwrap();
    let mut taken = file.metadata().unwrap().len();
    for number in 0.. {
        match (&file).write(&pattern(taken, piece)) {
            Ok(written) => taken += written as u64,
            Err(error) => {
                assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{error}");
                break;
            }
        }
        // Whoever looks at the file meanwhile changes nothing.
        if number % 16 == 0 {
            fs::metadata(path).unwrap();
        }
    }
    file.sync_all().expect("what was taken finds room");
    taken
}

#[track_caller]
fn expect_pattern(path: &Path, len: u64) {
    let read = fs::read(path).unwrap();
    assert_eq!(read.len() as u64, len, "{}", path.display());
    let wrong =
        read.chunks(4096).zip(0u64..).filter(|(page, index)| **page != pattern(index * 4096, page.len())).count();
    assert_eq!(wrong, 0, "pages of {} that are not what was written", path.display());
}

#[test]
fn what_write_took_on_a_volume_that_fills_up_is_there() {
    let Some(volume) = Volume::new("256M") else { return };
    for piece in [1 << 20, 300_000, 20_000] {
        let path = volume.path("filling");
        let taken = append_until_refused(&path, piece);
        expect_pattern(&path, taken);
        volume.remount();
        expect_pattern(&path, taken);
        assert!(available(&volume) < 4 << 20, "pieces of {piece}: {} bytes are left", available(&volume));
        fs::remove_file(&path).unwrap();
        sh(&volume.root(), "sync .");
    }
}

/// What is on the volume by now is not counted twice: in what is free, and as promised.
#[test]
fn what_one_file_has_got_leaves_the_rest_to_another() {
    let Some(volume) = Volume::new("96M") else { return };
    let ballast = available(&volume) - (9 << 20);
    write_durably(&volume.path("ballast"), 1, ballast as usize).unwrap();
    let mut files = ["first", "second", "third"].map(|name| File::create(volume.path(name)).unwrap());
    for file in &mut files {
        file.write_all(&[2; 2 << 20]).unwrap();
        file.sync_all().unwrap();
    }
    let left = available(&volume);
    let wanted = left - (512 << 10);
    rustix::fs::fallocate(&files[1], FallocateFlags::empty(), 2 << 20, wanted / 2).unwrap();
    files[0].write_all(&vec![3; wanted as usize / 2]).unwrap_or_else(|error| panic!("{left} bytes free: {error}"));
    files[0].sync_all().unwrap();
}

#[test]
fn a_file_that_grew_between_two_shortages_uses_all_room() {
    let Some(volume) = Volume::new("256M") else { return };
    let path = volume.path("filling");
    sh(&volume.root(), "fallocate -l 100M other; sync .");
    append_until_refused(&path, 100_000);
    sh(&volume.root(), "rm other; sync .");
    let taken = append_until_refused(&path, 100_000);
    assert!(available(&volume) < 4 << 20, "{} bytes are left", available(&volume));
    volume.remount();
    expect_pattern(&path, taken);
}

#[test]
fn what_write_took_for_a_new_file_on_a_nearly_full_volume_is_there() {
    let Some(volume) = Volume::new("128M") else { return };
    let reserve = available(&volume) - (8 << 20);
    sh(&volume.root(), &format!("fallocate -l {reserve} reserved; sync ."));
    for piece in [500_000, 20_000] {
        let path = volume.path(format!("{piece}"));
        let taken = append_until_refused(&path, piece);
        volume.remount();
        expect_pattern(&path, taken);
        assert!(taken > 5 << 20, "pieces of {piece}: {taken} bytes");
        fs::remove_file(&path).unwrap();
        sh(&volume.root(), "sync .");
    }
}

#[test]
fn what_several_writers_wrote_until_a_volume_was_full_is_there() {
    let Some(volume) = Volume::new("256M") else { return };
    let paths = ["a", "b", "c"].map(|name| volume.path(name));
    // Whether they are all asked in time when the shortage begins is a matter of luck.
    for _ in 0..4 {
        let taken = std::thread::scope(|scope| {
            let writers = paths.each_ref().map(|path| scope.spawn(|| append_until_refused(path, 100_000)));
            writers.map(|writer| writer.join().unwrap())
        });
        volume.remount();
        paths.iter().zip(taken).for_each(|(path, taken)| expect_pattern(path, taken));
        paths.iter().for_each(|path| fs::remove_file(path).unwrap());
        sh(&volume.root(), "sync .");
    }
}

#[test]
fn a_full_volume_is_overwritten_through_the_cache() {
    let Some(volume) = Volume::new("64M") else { return };
    let path = volume.path("filling");
    let taken = append_until_refused(&path, 100_000);
    let file = File::options().write(true).open(&path).unwrap();
    for offset in (0..taken - 5_000).step_by(50_000) {
        file.write_all_at(b"again", offset).unwrap();
    }
    file.sync_all().unwrap();
    let read = fs::read(&path).unwrap();
    assert!((0..taken as usize - 5_000).step_by(50_000).all(|offset| read[offset..].starts_with(b"again")));
}

#[test]
fn small_files_and_directories_fill_a_volume_too() {
    let Some(volume) = Volume::new("64M") else { return };
    let error = (0..100_000)
        .map(|number| {
            let directory = volume.path(format!("d{number}"));
            fs::create_dir(&directory).and_then(|()| fs::write(directory.join("small"), [1; 3_000]))
        })
        .find_map(Result::err)
        .expect("100,000 of anything on 64 MiB");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
    volume.remount();
    sh(
        &volume.root(),
        "rm -rf d1* d2*; mkdir again; dd if=/dev/zero of=again/file bs=1M count=5 conv=fsync status=none",
    );
}
