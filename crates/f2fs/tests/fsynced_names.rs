//! Several files that fsync put under one name since the last checkpoint: the last one has it, for rescue and a repair as for a mount, also
//! beside a checkpoint that is lost.

#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::sync::Arc;

use basalt_device::MemoryDevice;
use basalt_f2fs::F2fs;
use basalt_vfs::{Caller, FileSystem, RenameFlags};
use packs::{FILE, FILES, Outcome, both, files, fill, fresh, make, open};

/// What is done with `file7` behind the checkpoint, and the further files that are there then, each full of a byte.
type Way = (&'static str, fn(&F2fs), &'static [(&'static str, u8)]);

const WRONG: u8 = 0xA1;
const WAYS: [Way; 6] = [
    ("made anew", |fs| remake(fs, "file7", 7), &[]),
    (
        "made anew twice",
        |fs| {
            remake(fs, "file7", WRONG);
            remake(fs, "file7", 7);
        },
        &[],
    ),
    (
        "replaced twice",
        |fs| {
            replace(fs, "new", WRONG);
            replace(fs, "new", 7);
        },
        &[],
    ),
    (
        "replaced by a file whose first name is somebody else's now",
        |fs| {
            replace(fs, "new", 7);
            write(fs, "new", 9);
        },
        &[("new", 9)],
    ),
    (
        "made anew, with a second name",
        |fs| {
            fs.unlink(fs.root(), b"file7").unwrap();
            let ino = write(fs, "file7", 7);
            fs.link(ino, fs.root(), b"second").unwrap();
            fs.sync_file(ino, false).unwrap();
        },
        &[("second", 7)],
    ),
    (
        "made anew, moved away and made anew",
        |fs| {
            fs.unlink(fs.root(), b"file7").unwrap();
            let ino = write(fs, "file7", 8);
            rename(fs, "file7", "moved");
            fs.sync_file(ino, false).unwrap();
            write(fs, "file7", 7);
        },
        &[("moved", 8)],
    ),
];

fn write(fs: &F2fs, name: &str, value: u8) -> u64 {
    let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
    assert_eq!(fs.write(ino, 0, &[value; 9_000], false).unwrap(), 9_000);
    fs.sync_file(ino, false).unwrap();
    ino
}

fn remake(fs: &F2fs, name: &str, value: u8) {
    fs.unlink(fs.root(), name.as_bytes()).unwrap();
    write(fs, name, value);
}

fn rename(fs: &F2fs, from: &str, to: &str) {
    let flags = RenameFlags::empty();
    fs.rename(fs.root(), from.as_bytes(), fs.root(), to.as_bytes(), flags, &Caller::default()).unwrap();
}

fn replace(fs: &F2fs, new: &str, value: u8) {
    let ino = write(fs, new, value);
    rename(fs, new, "file7");
    fs.sync_file(ino, false).unwrap();
}

fn volume(way: &Way) -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let ino = fs.lookup(fs.root(), b"file7").unwrap().ino;
    assert_eq!(fs.write(ino, 0, &[0xEE; 9_000], false).unwrap(), 9_000);
    for name in ["one", "another"] {
        fs.sync().unwrap();
        let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        assert_eq!(fs.write(ino, 0, &[1; 9_000], false).unwrap(), 9_000);
    }
    fs.sync().unwrap();
    way.1(&fs);
    let image = device.snapshot();
    drop(fs);
    image
}

fn has(fs: &dyn FileSystem, name: &str, value: u8) -> bool {
    let Ok(found) = fs.lookup(fs.root(), name.as_bytes()) else { return false };
    let mut bytes = [0; 9_000];
    fs.read(found.ino, 0, &mut bytes).is_ok() && bytes == [value; 9_000]
}

#[test]
fn the_last_one_has_the_name() {
    for way in &WAYS {
        let wanted = FILES + way.2.len() as u64;
        let outcome = |image: &MemoryDevice| {
            Outcome::of(image, |fs| {
                files(fs) + way.2.iter().filter(|(name, value)| has(fs, name, *value)).count() as u64
            })
        };
        let image = volume(way);
        let found = outcome(&image);
        assert!(found.mounted == Some(wanted) && found.rescued == Some(wanted), "{}: {found:?}", way.0);
        assert!(found.repaired == Some(wanted) && found.losses == 0, "{}: {found:?}", way.0);
        for (which, pack) in ["newest", "older"].into_iter().zip(both(&image)) {
            let lost = image.snapshot();
            fill(&lost, pack.start.into(), 10, 0x5A);
            let found = outcome(&lost);
            let what = format!("{}, the {which} checkpoint is lost: {found:?}", way.0);
            assert!(found.rescued == Some(wanted) && found.repaired == Some(wanted), "{what}");
        }
    }
}

/// A volume whose log of files' nodes goes round: what was fsynced last has a lower address than what came before. `file7` is made anew and
/// `file8` written again in turns; so many blocks later or earlier, the last one of a segment is a node or a seal.
fn around(phase: u64) -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let position = |fs: &F2fs| {
        fs.sync().unwrap();
        let raw = both(&device.snapshot())[0].raw;
        (raw.cur_node_segno[1].get(), u32::from(raw.cur_node_blkoff[1].get()))
    };
    let fsync = |number: u64, value: u8| {
        let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
        fs.write(ino, 0, &[value; 9_000], false).unwrap();
        fs.sync_file(ino, false).unwrap();
    };
    // As far as the last segment that it can have, then to the end of that one.
    let mut highest = 0;
    loop {
        let (segment, _) = position(&fs);
        if segment < highest {
            break;
        }
        highest = segment;
        (0..100).for_each(|_| fsync(0, 0));
    }
    while position(&fs).0 != highest {
        (0..100).for_each(|_| fsync(0, 0));
    }
    while position(&fs).1 < 400 {
        (0..4).for_each(|_| fsync(0, 0));
    }
    assert_eq!(position(&fs).0, highest);
    (0..phase).for_each(|_| rewrite_unfsynced(&fs));
    for _ in 0..40 {
        remake(&fs, "file7", WRONG);
        fsync(8, WRONG);
    }
    remake(&fs, "file7", 7);
    fsync(8, 8);
    let image = device.snapshot();
    assert!(position(&fs).0 < highest);
    image
}

/// One node, and no seal.
fn rewrite_unfsynced(fs: &F2fs) {
    let ino = fs.lookup(fs.root(), b"file1").unwrap().ino;
    fs.write(ino, 0, &[1; 9_000], false).unwrap();
    fs.sync().unwrap();
}

#[test]
fn what_was_fsynced_last_counts_behind_the_end_of_the_device() {
    for phase in 0..5 {
        let image = around(phase);
        let found = Outcome::of(&image, files);
        let is_found = found.mounted == Some(FILES) && found.rescued == Some(FILES) && found.repaired == Some(FILES);
        assert!(is_found, "phase {phase}: {found:?}");
        let newest = both(&image)[0].clone();
        for (first, count) in [(newest.start, 10), (newest.start + newest.raw.cp_pack_start_sum.get(), 1)] {
            let broken = image.snapshot();
            fill(&broken, first.into(), count, 0x5A);
            let found = Outcome::of(&broken, files);
            let what = format!("phase {phase}, {count} blocks from {first} on: {found:?}");
            assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES), "{what}");
        }
    }
}
