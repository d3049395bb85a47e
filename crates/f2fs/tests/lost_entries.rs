//! A sector or block of the NAT or the SIT is zeros: the volume is not written to, because node ids and blocks in use would be given to others.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;

use basalt_segments::Segment;
use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::bit_msb;
use basalt_f2fs::layout::nat::RawNatEntry;
use basalt_f2fs::layout::summary::RawSummary;
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, NewNode};
use editor::{Editor, filled_volume};

const MIB: usize = 1 << 20;
const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
const FILES: u64 = 70;
const SMALL: u64 = 900;

fn open(device: &Arc<MemoryDevice>) -> F2fs {
    F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap()
}

fn make(fs: &F2fs, name: &str, bytes: &[u8]) -> u64 {
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), name.as_bytes(), &file, &Caller::default()).unwrap().ino;
    assert_eq!(fs.write(ino, 0, bytes, false).unwrap(), bytes.len());
    ino
}

/// A volume of 200 MiB: files of 1 MiB, small ones, one with blocks that are only reserved, and room where files were removed.
fn volume() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(200 << 20, 512));
    format(&*device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
    let fs = open(&device);
    for (name, count, bytes) in [("gone", 20, vec![0xAA; MIB]), ("small", SMALL, vec![1; 5_000])] {
        for number in 0..count {
            make(&fs, &format!("{name}{number}"), &bytes);
        }
    }
    for number in 0..FILES {
        make(&fs, &format!("file{number}"), &vec![number as u8; MIB]);
    }
    let reserved = make(&fs, "reserved", b"");
    fs.fallocate(reserved, FallocateMode::KEEP_SIZE, 0, 8 << 20).unwrap();
    fs.sync().unwrap();
    (0..20).for_each(|number| fs.unlink(fs.root(), format!("gone{number}").as_bytes()).unwrap());
    fs.close().unwrap();
    drop(fs);
    // All entries are in the tables, and none in a journal.
    Arc::new(device.snapshot())
}

fn wrong(fs: &F2fs) -> u64 {
    let is_wrong = |number: &u64| {
        let Ok(found) = fs.lookup(fs.root(), format!("file{number}").as_bytes()) else { return true };
        let mut bytes = vec![0; MIB];
        fs.read(found.ino, 0, &mut bytes).is_err() || bytes.iter().any(|byte| u64::from(*byte) != *number)
    };
    (0..FILES).filter(is_wrong).count() as u64
}

/// Zeros over sectors or blocks of a table, each alone: how many of them are told. Where nothing is, nothing in use is written over.
fn zero_each(volume: &MemoryDevice, range: std::ops::Range<u64>, step: u64, what: &str) -> u32 {
    let mut told = 0;
    for at in (range.start..range.end).step_by(step as usize) {
        let mut bytes = vec![0; step as usize];
        volume.read_at(at, &mut bytes).unwrap();
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let image = Arc::new(volume.snapshot());
        image.write_at(at, &vec![0; step as usize]).unwrap();
        let Ok(fs) = F2fs::open(image.clone(), OpenOptions::default(), Arc::new(SystemClock)) else {
            told += 1;
            continue;
        };
        if !fs.is_writable() {
            assert!(fs.warnings().iter().any(|line| line.contains(what)), "{:?}", fs.warnings());
            told += 1;
            continue;
        }
        (0..40).for_each(|number| {
            let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
            if let Ok(made) = fs.create(fs.root(), format!("new{number}").as_bytes(), &file, &Caller::default()) {
                let _ = fs.write(made.ino, 0, &vec![0xEE; MIB], false);
            }
        });
        let _ = fs.sync();
        assert_eq!(wrong(&fs), 0, "{what} at byte {at}");
    }
    told
}

#[test]
fn a_volume_whose_sit_lost_entries_is_not_written_to() {
    let volume = volume();
    let geometry = Geometry::read(&*volume).unwrap().0;
    for step in [BLOCK, SECTOR] {
        let mut told = 0;
        for copy in [false, true] {
            let first = u64::from(geometry.sit_block(0, copy)) * BLOCK;
            told += zero_each(&volume, first..first + 2 * BLOCK, step, "SIT");
        }
        // In one of the copies.
        assert!(told >= if step == BLOCK { 2 } else { 7 }, "{told} told of pieces of {step} bytes");
    }
}

#[test]
fn a_volume_whose_nat_lost_entries_is_not_written_to() {
    let volume = volume();
    let geometry = Geometry::read(&*volume).unwrap().0;
    let mut told = 0;
    for copy in [false, true] {
        let first = u64::from(geometry.nat_block(0, copy)) * BLOCK;
        told += zero_each(&volume, first..first + 3 * BLOCK, SECTOR, "NAT");
    }
    assert!(told >= 15, "{told} told");
}

/// Reserved blocks, room, and a clean end: nothing is lost.
#[test]
fn a_sound_volume_is_written_to() {
    let volume = volume();
    let fs = open(&volume);
    assert!(fs.is_writable() && fs.warnings().is_empty(), "{:?}", fs.warnings());
    assert_eq!(wrong(&fs), 0);
}

/// The NAT lost entries, and a summary entry in front of them is wrong.
#[test]
fn a_wrong_summary_entry_hides_no_lost_ones() {
    let editor = Editor::new(&filled_volume());
    let unused = (4..).find(|nid| editor.nat(*nid).block_addr.get() == 0).unwrap();
    let mut lost = 0;
    for segment in 0..editor.geometry.main_segments {
        let entry = editor.sit(Segment::new(segment));
        if entry.live() == 0 || entry.kind() < 3 || editor.is_log(Segment::new(segment)) {
            continue;
        }
        let first = editor.geometry.main + segment * 512;
        let mut live = (0..512).filter(|block| bit_msb(&entry.valid_map, *block as usize)).map(|block| first + block);
        let in_front = live.next().unwrap();
        editor.edit(editor.summary(in_front), |one: &mut RawSummary| one.nid.set(unused));
        for address in live.take(3) {
            let footer: [u8; 4] = editor.block(address)[4072..4076].try_into().unwrap();
            editor.edit_nat(u32::from_le_bytes(footer), |entry| *entry = RawNatEntry::default());
            lost += 1;
        }
    }
    assert!(lost > 0);
    assert!(!open(&Arc::new(editor.device.snapshot())).is_writable(), "{lost} lost");
}

/// A segment of nodes with one live block, whose entry the NAT lost.
#[test]
fn the_only_node_of_a_segment_may_be_lost() {
    let device = Arc::new(MemoryDevice::new(200 << 20, 512));
    format(&*device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    (0..1600).for_each(|number| _ = make(&fs, &format!("file {number}"), b""));
    fs.sync().unwrap();
    for number in (0..1600).filter(|number| *number != 800) {
        fs.unlink(fs.root(), format!("file {number}").as_bytes()).unwrap();
    }
    fs.close().unwrap();
    let editor = Editor::new(&device);
    let ino = editor.path(&["file 800"]);
    let (segment, _) = editor.segment_of(editor.node_address(ino));
    assert!(editor.sit(segment).live() == 1 && !editor.is_log(segment), "{} live", editor.sit(segment).live());
    editor.edit_nat(ino, |entry| *entry = RawNatEntry::default());
    assert!(!open(&Arc::new(editor.device.snapshot())).is_writable());
}
