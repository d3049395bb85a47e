//! Rescue through the library: sectors that cannot be read, and damaged volumes opened to read.

#[allow(dead_code)] // Part of it is for other tests.
mod editor;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::geometry::Geometry;
use basalt_f2fs::layout::checkpoint::RawCheckpoint;
use basalt_f2fs::layout::sit::RawSitEntry;
use basalt_f2fs::layout::{Address, bit_msb};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Error, FileKind, FileSystem, InodeNumber, NewNode};
use editor::Editor;
use zerocopy::little_endian::U16;

const BLOCK: u64 = 4096;
const SIZE: u64 = 96 << 20;
/// Half of them in one directory: more than an inode has room for (182), and than one block (214).
const FILES: u64 = 600;

/// Files of every size, some in directories, by name.
type Files = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = vec![0; rng.below(60_000) as usize];
    rng.fill(&mut bytes);
    bytes
}

fn volume(seed: u64) -> (Arc<MemoryDevice>, Files) {
    let device = Arc::new(MemoryDevice::new(SIZE, 512));
    format(&device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ()).unwrap();
    let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let caller = Caller { uid: 7, gid: 8, umask: 0 };
    let node = |kind| NewNode { kind, permissions: 0o640, rdev: 0, target: b"" };
    let directory = fs.create(fs.root(), b"directory", &node(FileKind::Directory), &caller).unwrap().ino;
    let mut files = Files::new();
    for number in 0..FILES {
        let parent = if number % 2 == 0 { fs.root() } else { directory };
        let name = format!("file {number}").into_bytes();
        let ino = fs.create(parent, &name, &node(FileKind::Regular), &caller).unwrap().ino;
        let bytes = content(seed * FILES + number);
        fs.write(ino, 0, &bytes, false).unwrap();
        files.insert(name, bytes);
    }
    fs.close().unwrap();
    (device, files)
}

/// Every file below a directory, by its own name: bytes, or the first error; `None` where a block fails.
fn read_all(fs: &dyn FileSystem, directory: InodeNumber, found: &mut BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>) {
    let mut entries = Vec::new();
    let listed = fs.read_directory(directory, 0, &mut |entry| {
        entries.push((entry.name.to_vec(), entry.ino, entry.kind));
        true
    });
    assert!(listed.is_ok(), "{listed:?}");
    for (name, ino, kind) in entries.into_iter().filter(|(name, ..)| name != b"." && name != b"..") {
        match kind {
            FileKind::Directory => read_all(fs, ino, found),
            _ => {
                let Ok(attributes) = fs.attributes(ino) else { continue };
                assert_eq!((attributes.uid, attributes.gid, attributes.permissions), (7, 8, 0o640));
                let blocks = (0..attributes.size.div_ceil(BLOCK)).map(|block| {
                    let mut bytes = vec![0; BLOCK as usize];
                    match fs.read(ino, block * BLOCK, &mut bytes) {
                        Ok(length) => {
                            bytes.truncate(length);
                            Some(bytes)
                        }
                        Err(Error::Io(_) | Error::Corrupted(_)) => None,
                        Err(error) => panic!("{error}"),
                    }
                });
                found.insert(name, blocks.collect());
            }
        }
    }
}

fn spoil(device: MemoryDeviceRef, ranges: Vec<Range<u64>>) -> Arc<FaultyDevice<MemoryDeviceRef>> {
    let faulty = FaultyDevice::new(device);
    faulty.fail_when(move |request| {
        let hit = |range: &Range<u64>| request.offset < range.end && request.end() > range.start;
        match request.kind {
            RequestKind::Read => ranges.iter().any(hit).then_some(ErrorKind::Other),
            // Nothing may be written, whatever happens.
            kind => panic!("{kind:?}"),
        }
    });
    Arc::new(faulty)
}

type MemoryDeviceRef = Arc<MemoryDevice>;

/// What was read agrees with what was written wherever a block could be read; how many files are whole.
fn compare(found: &BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>, files: &Files, what: &str) -> usize {
    let mut whole = 0;
    for (name, blocks) in found {
        let Some(expected) = files.get(name) else { continue };
        assert_eq!(blocks.len() as u64, (expected.len() as u64).div_ceil(BLOCK), "{what}");
        let parts = blocks.iter().zip(expected.chunks(BLOCK as usize));
        for (block, part) in parts {
            assert!(block.as_ref().is_none_or(|block| block == part), "{what}: {}", String::from_utf8_lossy(name));
        }
        whole += usize::from(blocks.iter().all(Option::is_some));
    }
    whole
}

#[test]
fn sectors_that_cannot_be_read_cost_only_what_is_in_them() {
    for seed in 0..4 {
        let (device, files) = volume(seed);
        let geometry = Geometry::read(&device).unwrap().0;
        let mut rng = Rng::new(seed);
        let main = u64::from(geometry.main) * BLOCK;
        // Forty places in what is used, and one in every area in front of it.
        let used = main..main + (40 << 20);
        let mut bad: Vec<Range<u64>> = (0..40)
            .map(|_| {
                let at = rng.between(used.start, used.end) / 512 * 512;
                at..at + 512 * rng.between(1, 40)
            })
            .collect();
        let areas = [Address::new(0), geometry.checkpoint, geometry.sit, geometry.nat, geometry.ssa];
        bad.extend(areas.map(|block| u64::from(block) * BLOCK..u64::from(block) * BLOCK + 512));
        let lost_blocks: u64 = bad.iter().map(|range| (range.end - range.start) / BLOCK + 2).sum();
        let found =
            Rescued::open(spoil(device, bad), &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
        let mut read = BTreeMap::new();
        read_all(&found, found.root(), &mut read);
        let whole = compare(&read, &files, &format!("seed {seed}"));
        // Each bad block belongs to one file at most; that of a directory costs no file.
        let report = found.report();
        assert!(whole as u64 + lost_blocks.min(240) >= FILES, "seed {seed}: {whole} of {FILES}: {report:#?}");
        assert!(whole > 100, "seed {seed}: {whole}");
        assert!(report.unreadable_bytes > 0);
    }
}

fn open_rescue(device: Arc<dyn BlockDevice>) -> Result<F2fs, basalt_f2fs::Error> {
    F2fs::open(device, OpenOptions { rescue: true, ..OpenOptions::default() }, Arc::new(SystemClock))
}

/// Damage for which a volume is refused, though reading does not need what is damaged.
#[test]
fn what_reading_does_not_need_may_be_broken() {
    let (device, files) = volume(9);
    let geometry = Geometry::read(&device).unwrap().0;
    let sectors = |block: Address, count: u64| u64::from(block) * BLOCK..(u64::from(block) + count) * BLOCK;
    let mut head = vec![0; BLOCK as usize];
    let start = [0, 512].map(|at| geometry.checkpoint + at).into_iter().max_by_key(|&start| {
        device.read_at(u64::from(start) * BLOCK, &mut head).unwrap();
        zerocopy_version(&head)
    });
    let start = start.unwrap();
    let cases = [
        ("the first superblock", sectors(Address::new(0), 1)),
        ("the SIT", sectors(geometry.sit, 1024)),
        ("the SSA", sectors(geometry.ssa, 512)),
        ("the other checkpoint", sectors(geometry.checkpoint + (512 - (start - geometry.checkpoint)), 1)),
    ];
    for (what, bad) in cases {
        let faulty = spoil(device.clone(), vec![bad]);
        let fs = open_rescue(faulty).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!fs.is_writable());
        let mut read = BTreeMap::new();
        read_all(&fs, fs.root(), &mut read);
        assert_eq!(compare(&read, &files, what) as u64, FILES, "{what}");
        fs.close().unwrap();
    }
}

fn zerocopy_version(block: &[u8]) -> u64 {
    use zerocopy::FromBytes;
    RawCheckpoint::read_from_prefix(block).map_or(0, |(raw, _)| raw.checkpoint_ver.get())
}

/// A directory block that is gone costs its names, an entry that is damaged itself; the rest of the directory is there.
#[test]
fn a_damaged_directory_shows_the_rest() {
    let (device, files) = volume(11);
    let find = |text: &[u8]| {
        let mut block = vec![0; BLOCK as usize];
        (0..SIZE / BLOCK).rev().find(|at| {
            device.read_at(at * BLOCK, &mut block).unwrap();
            // A directory block, not an inode, which has its own name only.
            block.windows(text.len()).any(|window| window == text)
                && block.windows(5).filter(|w| w == b"file ").count() > 1
        })
    };
    let at = find(b"file 101").unwrap();
    let bad = at * BLOCK..at * BLOCK + 512;
    let fs = open_rescue(spoil(device.clone(), vec![bad.clone()])).unwrap();
    let mut read = BTreeMap::new();
    read_all(&fs, fs.root(), &mut read);
    let whole = compare(&read, &files, "a directory block");
    assert!(!read.contains_key(b"file 101".as_slice()));
    // More than what the root has: the other block of the directory is there.
    assert!((FILES as usize / 2 + 1..FILES as usize).contains(&whole), "{whole}");
    // Rescue finds the names of that block in the inodes.
    let device = spoil(device, vec![bad]);
    let found = Rescued::open(device, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
    let mut read = BTreeMap::new();
    read_all(&found, found.root(), &mut read);
    assert_eq!(compare(&read, &files, "rescue") as u64, FILES);
    let report = found.report();
    assert!(report.placed_by_inode > 0 && report.without_place == 0, "{report:#?}");
}

/// Only the last node of an fsync has its mark; those in front of it count all the same.
#[test]
fn what_was_fsynced_of_a_large_file_is_found() {
    let device = Arc::new(MemoryDevice::new(SIZE, 512));
    format(&device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ()).unwrap();
    let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let new = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"large", &new, &Caller::default()).unwrap().ino;
    let mut bytes = vec![1; 16 << 20];
    fs.write(ino, 0, &bytes, false).unwrap();
    fs.sync().unwrap();
    // Behind the addresses that an inode has room for, several times the same node.
    let mut rng = Rng::new(4);
    for value in 2..40 {
        let at = (5 << 20) + rng.below(2000) as usize * BLOCK as usize;
        bytes[at..at + BLOCK as usize].fill(value);
        fs.write(ino, at as u64, &bytes[at..at + BLOCK as usize], false).unwrap();
        fs.sync_file(ino, true).unwrap();
    }
    let left = Arc::new(device.snapshot());
    let found = Rescued::open(left, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
    let mut read = vec![0; bytes.len()];
    assert_eq!(found.read(ino, 0, &mut read).unwrap(), bytes.len());
    let wrong: Vec<usize> = (0..bytes.len()).step_by(BLOCK as usize).filter(|&at| read[at] != bytes[at]).collect();
    assert!(wrong.is_empty(), "not what was fsynced at {wrong:?}");
}

/// The checkpoint's logs tell little where the warm one is at its start, and many newer nodes lie elsewhere.
#[test]
fn a_volume_without_superblocks_is_found_whatever_its_logs_tell() {
    for (mib, segments_per_section, is_repaired) in [(64, 1, false), (64, 1, true), (256, 4, false)] {
        let what = format!("{mib} MiB, {segments_per_section} segments a section, repaired: {is_repaired}");
        let device = overwritten(mib, segments_per_section);
        if is_repaired {
            plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        } else {
            F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap().close().unwrap();
        }
        device.write_at(0, &[0; 2 * BLOCK as usize]).unwrap();
        let found = Rescued::open(device, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
        for file in 0..200 {
            let ino = found.lookup(found.root(), format!("file{file}").as_bytes()).map(|found| found.ino);
            let mut bytes = [0; 5000];
            let read = ino.and_then(|ino| found.read(ino, 0, &mut bytes));
            assert!(
                read.is_ok_and(|read| read == 5000) && bytes == [9; 5000],
                "{what}: file{file}: {:?}",
                found.report()
            );
        }
    }
}

/// A volume that was cut off behind nine rounds of overwriting its files, with no change to a directory meanwhile.
fn overwritten(mib: u64, segments_per_section: u32) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(mib << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, segments_per_section, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let fs = F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let node = NewNode { kind: FileKind::Regular, permissions: 0o640, rdev: 0, target: b"" };
    let make =
        |file: u64| fs.create(fs.root(), format!("file{file}").as_bytes(), &node, &Caller::default()).unwrap().ino;
    let inos: Vec<InodeNumber> = (0..200).map(make).collect();
    for round in 0..=9 {
        inos.iter().for_each(|&ino| assert_eq!(fs.write(ino, 0, &[round; 5000], false).unwrap(), 5000));
        fs.sync().unwrap();
    }
    Arc::new(device.snapshot())
}

/// The journal of the NAT is lost, and the footer of a file's second direct node has the id of the first: the old table knows which is right.
#[test]
fn a_node_that_claims_its_neighbours_id_does_not_replace_it() {
    let device = Arc::new(MemoryDevice::new(200 << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ()).unwrap();
    let open = || F2fs::open(device.clone(), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let make = |fs: &F2fs, name: &str| {
        let node = NewNode { kind: FileKind::Regular, permissions: 0o640, rdev: 0, target: b"" };
        fs.create(fs.root(), name.as_bytes(), &node, &Caller::default()).unwrap().ino
    };
    let fs = open();
    let large = make(&fs, "large");
    fs.write(large, 0, &vec![7; 2500 * BLOCK as usize], false).unwrap();
    // More than the journal has room for: the table has the file's nodes.
    (0..100).for_each(|number| _ = make(&fs, &format!("small {number}")));
    fs.close().unwrap();
    let fs = open();
    make(&fs, "one more");
    fs.close().unwrap();
    let editor = Editor::new(&device);
    let nids = editor.inode(editor.path(&["large"])).i_nid;
    let (first, second) = (nids[0].get(), nids[1].get());
    assert!(editor.node_address(first) < editor.node_address(second));
    editor.edit_node(second, |node| node.footer.nid.set(first));
    // The count says more entries than there is room for.
    editor.edit(editor.journals().0, |count: &mut U16| count.set(u16::MAX));
    let damaged = Arc::new(editor.device.snapshot());
    let rescued = Rescued::open(damaged, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
    let ino = rescued.lookup(rescued.root(), b"large").unwrap().ino;
    let mut bytes = vec![0; 900 * BLOCK as usize];
    assert_eq!(rescued.read(ino, 900 * BLOCK, &mut bytes).unwrap(), bytes.len());
    assert!(bytes.iter().all(|byte| *byte == 7));
}

/// The NAT is lost. The table of SIT has nodes as live that the checkpoint's journal knows to be deleted: they do not come back.
#[test]
fn files_that_only_the_table_of_sit_has_stay_deleted() {
    let device = Arc::new(MemoryDevice::new(200 << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ()).unwrap();
    // What is freed is still there.
    let options = || OpenOptions { background_cleaning: false, discard: false, ..OpenOptions::default() };
    let open = || F2fs::open(device.clone(), options(), Arc::new(SystemClock)).unwrap();
    let name = |number: u64| format!("file {number}");
    let fs = open();
    for number in 0..1600 {
        let node = NewNode { kind: FileKind::Regular, permissions: 0o640, rdev: 0, target: b"" };
        fs.create(fs.root(), name(number).as_bytes(), &node, &Caller::default()).unwrap();
    }
    fs.close().unwrap();
    let before = Editor::new(&device);
    let segment_of = |number| before.segment_of(before.node_address(before.path(&[&name(number)]))).0;
    let segment = segment_of(800);
    let (gone, left): (Vec<u64>, Vec<u64>) = (0..1600).partition(|number| segment_of(*number) == segment);
    let fs = open();
    gone.iter().for_each(|number| fs.unlink(fs.root(), name(*number).as_bytes()).unwrap());
    fs.close().unwrap();
    let editor = Editor::new(&device);
    let is_empty =
        editor.loaded.sit_journal.iter().any(|one| one.segno.get() == segment.get() && one.entry.live() == 0);
    assert!(is_empty && before.sit(segment).live() > 0 && !editor.is_log(segment), "segment {segment} of nodes");
    let g = &editor.geometry;
    let (index, entry) = g.sit_place(segment);
    let second = bit_msb(&editor.loaded.sit_bitmap, index as usize);
    let place = entry * size_of::<RawSitEntry>();
    let table = (g.sit_block(index, second), place);
    editor.edit(table, |entry: &mut RawSitEntry| *entry = before.sit(segment));
    Address::all(g.nat..g.ssa).for_each(|block| editor.put(block, &[0; BLOCK as usize]));
    let damaged = Arc::new(editor.device.snapshot());
    let rescued = Rescued::open(damaged, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
    let has = |number: &&u64| rescued.lookup(rescued.root(), name(**number).as_bytes()).is_ok();
    assert_eq!((gone.iter().filter(has).count(), left.iter().filter(has).count()), (0, left.len()));
    // With the root and lost+found.
    assert_eq!(rescued.report().inodes, left.len() as u64 + 2);
}
