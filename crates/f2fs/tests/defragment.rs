//! Files that lie scattered on the device are put in sequence on request.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use basalt_device::{BlockDevice, DeviceLayer, FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::inode::InlineFlags;
use basalt_f2fs::{F2fs, OpenOptions, Reclaim, SystemClock};
use basalt_segments::placement;
use basalt_segments::slack::{DeviceClass, DeviceTimes};
use basalt_testkit::rng::Rng;
use basalt_vfs::{
    Caller, Error, Extents, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, Seek, SetAttributes,
};
use parking_lot::Mutex;

#[allow(dead_code)] // Part of it is for other tests.
mod editor;

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
/// Blocks of a write that goes to its log at once.
const RUN: usize = 16;

fn formatted(mib: u64, journal_bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(mib << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>, options: OpenOptions) -> F2fs {
    let options = OpenOptions { background_cleaning: false, ..options };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn content(file: usize, blocks: usize) -> Vec<u8> {
    (0..blocks).flat_map(|block| ((file << 24 | block) as u64).to_le_bytes().repeat(BLOCK as usize / 8)).collect()
}

/// Two files of so many blocks that took turns when they were written.
fn interleaved(fs: &F2fs, blocks: usize) -> [(InodeNumber, Vec<u8>); 2] {
    let files = [1, 2].map(|number| (create(fs, &format!("file{number}")), content(number, blocks)));
    for at in (0..blocks * BLOCK as usize).step_by(RUN * BLOCK as usize) {
        for (ino, content) in &files {
            let end = content.len().min(at + RUN * BLOCK as usize);
            fs.write(*ino, at as u64, &content[at..end], false).unwrap();
        }
    }
    fs.sync().unwrap();
    files
}

/// The whole file, in as many calls as it takes: the bytes that were written again.
fn defragment(fs: &F2fs, ino: InodeNumber) -> Result<u64, Error> {
    let end = fs.attributes(ino)?.size.next_multiple_of(BLOCK);
    let (mut next, mut moved) = (0, 0);
    while next < end {
        let done = fs.defragment(ino, next, end - next)?;
        assert!((next + 1..=end).contains(&done.next), "from {next} to {end}: {done:?}");
        (next, moved) = (done.next, moved + done.moved);
    }
    Ok(moved)
}

fn extents(fs: &F2fs, ino: InodeNumber) -> u64 {
    fs.count_extents(ino).unwrap().extents
}

fn expect_content(fs: &F2fs, ino: InodeNumber, content: &[u8]) {
    let mut found = vec![0; content.len() + 1];
    assert_eq!(fs.read(ino, 0, &mut found).unwrap(), content.len());
    let wrong = found.iter().zip(content).position(|(found, expected)| found != expected);
    assert_eq!(wrong.map(|byte| byte / BLOCK as usize), None, "a block that differs");
}

fn expect_sound(device: &Arc<MemoryDevice>) {
    let report = check(&**device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

fn expect_files(device: &Arc<MemoryDevice>, files: &[(InodeNumber, Vec<u8>)]) {
    expect_sound(device);
    let fs = open(device, OpenOptions::default());
    files.iter().for_each(|(ino, content)| expect_content(&fs, *ino, content));
    fs.close().unwrap();
}

#[test]
fn what_was_written_in_turns_lies_in_sequence() {
    for (journal, placement) in [(0, "static"), (64 << 10, "static"), (0, "page-cache")] {
        let device = formatted(256, journal);
        let placement = placement::by_name(placement).unwrap();
        let fs = open(&device, OpenOptions { placement, ..OpenOptions::default() });
        // More than one call looks at.
        let files = interleaved(&fs, 9_000);
        let [(first, content), (second, _)] = &files;
        assert!(extents(&fs, *first) > 500, "{}", extents(&fs, *first));
        let before = (fs.attributes(*first).unwrap(), extents(&fs, *second));
        let moved = defragment(&fs, *first).unwrap();
        assert_eq!(moved, 9_000 * BLOCK);
        let found = fs.count_extents(*first).unwrap();
        assert!(found.extents <= 20 && found.bytes == moved, "{found:?}");
        let after = (fs.attributes(*first).unwrap(), extents(&fs, *second));
        assert_eq!(after, before, "times, size and blocks stay, and so does the other file");
        expect_content(&fs, *first, content);
        assert_eq!(defragment(&fs, *first).unwrap(), 0, "nothing is left to gain");
        fs.close().unwrap();
        expect_files(&device, &files);
    }
}

#[test]
fn a_part_can_be_put_in_sequence() {
    let device = formatted(64, 0);
    let fs = open(&device, OpenOptions::default());
    let files = interleaved(&fs, 640);
    let before = extents(&fs, files[0].0);
    let done = fs.defragment(files[0].0, 160 * BLOCK, 160 * BLOCK).unwrap();
    assert_eq!((done.next, done.moved), (320 * BLOCK, 160 * BLOCK));
    let after = extents(&fs, files[0].0);
    assert!((before - 10..before - 7).contains(&after), "{before} to {after}");
    fs.close().unwrap();
    expect_files(&device, &files);
}

#[test]
fn holes_and_reserved_blocks_stay() {
    let device = formatted(64, 0);
    let fs = open(&device, OpenOptions::default());
    let (ino, other) = (create(&fs, "sparse"), create(&fs, "other"));
    fs.set_attributes(ino, &SetAttributes { size: Some(900 * BLOCK), ..SetAttributes::default() }).unwrap();
    // Twenty islands, with as much room between them.
    for island in 0..20 {
        fs.write(ino, island * 40 * BLOCK, &content(island as usize, RUN), false).unwrap();
        fs.write(other, island * RUN as u64 * BLOCK, &content(0, RUN), false).unwrap();
    }
    fs.fallocate(ino, FallocateMode::empty(), 850 * BLOCK, 30 * BLOCK).unwrap();
    fs.sync().unwrap();
    let shape = |fs: &F2fs| -> Vec<(u64, u64)> {
        let (mut at, mut found) = (0, Vec::new());
        while let Ok(data) = fs.seek(ino, at, Seek::Data) {
            at = fs.seek(ino, data, Seek::Hole).unwrap();
            found.push((data, at));
        }
        found
    };
    let (before, sectors, many) = (shape(&fs), fs.attributes(ino).unwrap().sectors, extents(&fs, ino));
    assert_eq!(before.len(), 20);
    assert_eq!(defragment(&fs, ino).unwrap(), 20 * RUN as u64 * BLOCK);
    assert!(many == 20 && extents(&fs, ino) <= 2, "{many} to {}", extents(&fs, ino));
    assert_eq!((shape(&fs), fs.attributes(ino).unwrap().sectors), (before, sectors));
    fs.close().unwrap();
    expect_sound(&device);
}

#[test]
fn what_waits_in_memory_is_written_in_order() {
    let device = formatted(64, 0);
    let fs = open(&device, OpenOptions::default());
    let ino = create(&fs, "file");
    for block in (0..100).rev() {
        fs.write(ino, block * BLOCK, &content(block as usize, 1), false).unwrap();
    }
    assert_eq!(fs.count_extents(ino).unwrap(), Extents::default());
    assert_eq!(defragment(&fs, ino).unwrap(), 0);
    assert_eq!(fs.count_extents(ino).unwrap(), Extents { extents: 1, bytes: 100 * BLOCK });
    fs.close().unwrap();
    expect_sound(&device);
}

/// Of neighbours the first is on the device, and the second still waits for a request: what the device has at its place is not what it holds.
#[test]
fn what_waits_behind_what_is_on_the_device_stays_as_it_is() {
    let device = formatted(64, 0);
    let fs = open(&device, OpenOptions::default());
    let [(ino, mut content), other] = interleaved(&fs, 64);
    for (block, is_synced) in [(64, true), (65, false)] {
        let more = self::content(block, 1);
        fs.write(ino, content.len() as u64, &more, false).unwrap();
        content.extend(more);
        if is_synced {
            fs.sync_file(ino, false).unwrap();
        }
    }
    assert_eq!(defragment(&fs, ino).unwrap(), 66 * BLOCK);
    expect_content(&fs, ino, &content);
    fs.close().unwrap();
    expect_files(&device, &[(ino, content), other]);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let device = formatted(64, 0);
    let fs = open(&device, OpenOptions::default());
    let (small, pinned) = (create(&fs, "small"), create(&fs, "pinned"));
    fs.write(small, 0, b"in the inode", false).unwrap();
    fs.write(pinned, 0, &content(1, RUN), false).unwrap();
    fs.sync().unwrap();
    assert_eq!(defragment(&fs, small).unwrap(), 0);
    assert_eq!(fs.count_extents(small).unwrap(), Extents::default());
    let is_invalid = |result: Result<_, Error>| matches!(result, Err(Error::Invalid(_)));
    for (offset, length) in [(1, BLOCK), (0, BLOCK + 1), (u64::MAX - 4095, 2 * BLOCK), (BLOCK << 40, 0)] {
        assert!(is_invalid(fs.defragment(pinned, offset, length)), "{offset} {length}");
    }
    assert!(is_invalid(fs.defragment(fs.root(), 0, BLOCK)));
    assert!(matches!(fs.count_extents(fs.root()), Err(Error::Invalid(_))));
    assert_eq!(fs.defragment(pinned, 0, 0).unwrap().moved, 0);
    fs.close().unwrap();

    let editor = editor::Editor::new(&device);
    editor.edit_inode(pinned as u32, |raw| raw.i_inline |= InlineFlags::PIN_FILE.bits());
    let device = Arc::new(editor.device);
    let fs = open(&device, OpenOptions::default());
    assert!(is_invalid(fs.defragment(pinned, 0, RUN as u64 * BLOCK)));
    assert_eq!(extents(&fs, pinned), 1);
    fs.close().unwrap();
    let fs = open(&device, OpenOptions { read_only: true, ..OpenOptions::default() });
    assert!(matches!(fs.defragment(small, 0, BLOCK), Err(Error::ReadOnly)));
    assert_eq!(extents(&fs, pinned), 1);
}

/// Whoever writes, cuts off or punches meanwhile wins.
#[test]
fn it_leaves_to_others_what_they_change_meanwhile() {
    let device = formatted(128, 64 << 10);
    let fs = open(&device, OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() });
    let [(ino, mut content), other] = interleaved(&fs, 3_000);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let defragmenting = threads.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(SeqCst) {
                match defragment(&fs, ino) {
                    Ok(_) | Err(Error::NoSpace) => rounds += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            rounds
        });
        let mut rng = Rng::new(5);
        for step in 0..6_000_u64 {
            let (block, count) = (rng.index(2_900), if step % 5 == 0 { 20 } else { 1 });
            let range = block * BLOCK as usize..(block + count) * BLOCK as usize;
            match step % 37 {
                0 => {
                    let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                    fs.fallocate(ino, mode, range.start as u64, range.len() as u64).unwrap();
                    content[range].fill(0);
                }
                1 => {
                    let sizes = [range.start as u64 + 5, content.len() as u64];
                    for size in sizes {
                        fs.set_attributes(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() })
                            .unwrap();
                    }
                    content[range.start + 5..].fill(0);
                }
                _ => {
                    content[range.clone()].fill(step as u8);
                    fs.write(ino, range.start as u64, &content[range], false).unwrap();
                }
            }
            if step % 100 == 0 {
                fs.sync_file(ino, true).unwrap();
            }
        }
        is_over.store(true, SeqCst);
        assert!(defragmenting.join().unwrap() > 0);
    });
    expect_content(&fs, ino, &content);
    let files = [(ino, content), other];
    fs.close().unwrap();
    expect_files(&device, &files);
}

/// Has something done while it reads for the first time from now on.
struct Meanwhile {
    below: Arc<MemoryDevice>,
    work: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl DeviceLayer for Meanwhile {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.below
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> basalt_device::Result<()> {
        let work = self.work.lock().take();
        work.into_iter().for_each(|work| work());
        self.below.read_at(offset, buf)
    }
}

/// While the first of two pieces is read, somebody writes a block of the second: of that piece the others are written again, each as it is.
#[test]
fn what_lies_around_a_block_that_changed_meanwhile_stays_as_it_is() {
    const CHANGED: usize = 300;
    let memory = formatted(64, 0);
    let device = Arc::new(Meanwhile { below: memory.clone(), work: Mutex::default() });
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    let fs = Arc::new(F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap());
    let [(ino, mut content), other] = interleaved(&fs, 500);
    let range = CHANGED * BLOCK as usize..(CHANGED + 1) * BLOCK as usize;
    content[range.clone()].fill(7);
    let (others, bytes) = (fs.clone(), content[range.clone()].to_vec());
    let work = move || _ = others.write(ino, range.start as u64, &bytes, false).unwrap();
    *device.work.lock() = Some(Box::new(work));
    assert_eq!(defragment(&fs, ino).unwrap(), 499 * BLOCK, "all but the one that changed");
    assert!(device.work.lock().is_none());
    expect_content(&fs, ino, &content);
    fs.close().unwrap();
    expect_files(&memory, &[(ino, content), other]);
}

/// A volume that is as full as it can be: others get what is free.
#[test]
fn a_full_volume_is_left_as_it_is() {
    for reclaim in [Reclaim::Clean, Reclaim::Slack] {
        let device = formatted(96, 0);
        let fs = open(&device, OpenOptions { reclaim, ..OpenOptions::default() });
        let files = interleaved(&fs, 2_000);
        let rest = create(&fs, "rest");
        let mut end = 0;
        while let Ok(written) = fs.write(rest, end, &content(3, 1), false) {
            end += written as u64;
        }
        fs.sync().unwrap();
        let before = (extents(&fs, files[0].0), fs.stat_fs().unwrap().free);
        let result = defragment(&fs, files[0].0);
        assert!(matches!(result, Err(Error::NoSpace)), "{result:?}");
        assert_eq!(fs.stat_fs().unwrap().free, before.1);
        assert!(fs.failure().is_none());
        // Others go on as before.
        let fill = content(3, 1);
        (0..2_000).for_each(|block| _ = fs.write(rest, block * BLOCK, &fill, false).unwrap());
        files.iter().for_each(|(ino, content)| expect_content(&fs, *ino, content));
        fs.close().unwrap();
        expect_files(&device, &files);
    }
}

/// A volume that is cleaned all the time, and has room for its files all the same; with partial garbage collection too, where emptying segments is the
/// better way.
#[test]
fn a_volume_that_is_in_use_is_cleaned_for_it() {
    [Reclaim::Clean, Reclaim::Partial].into_iter().for_each(expect_cleaned_for_it);
}

fn expect_cleaned_for_it(reclaim: Reclaim) {
    let device = formatted(96, 64 << 10);
    let times = DeviceTimes::new(&[(1, 10_000_000), (512, 10_000_000)], &[(1, 100), (512, 51_200)], 0);
    let fs = open(&device, OpenOptions { cache_bytes: 4 << 20, reclaim, times, ..OpenOptions::default() });
    let blocks = fs.stat_fs().unwrap().available as usize * 7 / 20;
    let files = interleaved(&fs, blocks);
    for round in 0..3 {
        for (ino, _) in &files {
            let result = defragment(&fs, *ino);
            assert!(matches!(result, Ok(_) | Err(Error::NoSpace)), "{round}: {result:?}");
        }
    }
    let left = files.iter().map(|(ino, _)| extents(&fs, *ino)).sum::<u64>();
    assert!(left < blocks as u64 / RUN as u64 / 4, "{reclaim:?}: {left} extents of {blocks} blocks");
    files.iter().for_each(|(ino, content)| expect_content(&fs, *ino, content));
    fs.close().unwrap();
    expect_files(&device, &files);
}

/// What has died is free behind a checkpoint alone: one is taken before there is said to be no room. Where logs fill slack, free segments run short
/// early.
#[test]
fn a_checkpoint_makes_room_where_logs_fill_slack() {
    for reclaim in [Reclaim::Slack, Reclaim::Partial] {
        let device = formatted(128, 0);
        let times = DeviceClass::Sd.device_times();
        let options =
            OpenOptions { background_cleaning: false, reclaim, times, cache_bytes: 4 << 20, ..OpenOptions::default() };
        let fs = open(&device, options);
        let blocks = fs.stat_fs().unwrap().available as usize / 2 * 55 / 100;
        let files = interleaved(&fs, blocks);
        // Whole segments die, and wait for a checkpoint.
        let extra = create(&fs, "extra");
        let room = fs.stat_fs().unwrap().available * 9 / 10;
        (0..room / 256).for_each(|at| _ = fs.write(extra, at << 20, &vec![1; 1 << 20], false).unwrap());
        fs.sync().unwrap();
        fs.unlink(fs.root(), b"extra").unwrap();
        fs.forget(extra, 1);
        files.iter().for_each(|(ino, _)| assert!(defragment(&fs, *ino).unwrap() > 0, "{reclaim:?}"));
        files.iter().for_each(|(ino, content)| expect_content(&fs, *ino, content));
        fs.close().unwrap();
        expect_files(&device, &files);
    }
}

/// One block cannot be read: its neighbourhood stays, the rest is put in sequence, and the volume goes on.
#[test]
fn an_unreadable_block_keeps_only_its_neighbours_where_they_are() {
    let memory = formatted(128, 0);
    let fs = open(&memory, OpenOptions::default());
    let blocks = 2_000;
    let files = interleaved(&fs, blocks);
    let [(ino, content), _] = &files;
    let place = place_of(&memory, &content[1_000 * BLOCK as usize..][..BLOCK as usize]);
    fs.close().unwrap();
    let faulty = Arc::new(FaultyDevice::new(memory.clone()));
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    let fs = F2fs::open(faulty.clone(), options, Arc::new(SystemClock)).unwrap();
    faulty.fail_when(move |request| {
        let is_hit =
            request.kind == RequestKind::Read && (request.offset..request.offset + request.length).contains(&place);
        is_hit.then_some(ErrorKind::Other)
    });
    let moved = defragment(&fs, *ino).unwrap();
    let left = blocks as u64 * BLOCK - moved;
    assert!(faulty.injected() > 0 && left > 0 && left <= 256 * BLOCK, "{left} bytes were left");
    // Nothing else is left to do there: now the error is told.
    assert!(matches!(defragment(&fs, *ino), Err(Error::Io(_))));
    assert!(fs.failure().is_none());
    faulty.heal();
    expect_content(&fs, *ino, content);
    fs.close().unwrap();
    expect_files(&memory, &files);
}

/// The byte of the device where a block with this content begins.
fn place_of(device: &MemoryDevice, content: &[u8]) -> u64 {
    let mut found = vec![0; BLOCK as usize];
    let is_there = |offset: &u64| device.read_at(*offset, &mut found).is_ok() && found == content;
    (0..device.size()).step_by(BLOCK as usize).find(is_there).unwrap()
}

/// What was durable is there after a power cut at any time, wherever it lies.
#[test]
fn nothing_is_lost_by_a_power_cut() {
    for journal in [0, 64 << 10] {
        let device = formatted(96, journal);
        let fs = open(&device, OpenOptions::default());
        let [(ino, mut content), other] = interleaved(&fs, 1_500);
        let expect_recovered = |content: &[u8]| {
            let cut = Arc::new(device.snapshot());
            let fs = open(&cut, OpenOptions::default());
            expect_content(&fs, ino, content);
            fs.close().unwrap();
            expect_files(&cut, &[(ino, content.to_vec()), other.clone()]);
        };
        content[..9 * BLOCK as usize].fill(7);
        fs.write(ino, 0, &content[..9 * BLOCK as usize], false).unwrap();
        fs.sync_file(ino, false).unwrap();
        let mut next = 0;
        while next < 1_500 * BLOCK {
            next = fs.defragment(ino, next, 250 * BLOCK).unwrap().next;
            expect_recovered(&content);
        }
        fs.sync_file(ino, true).unwrap();
        expect_recovered(&content);
        fs.clean_all();
        expect_recovered(&content);
    }
}

trait CleanAll {
    fn clean_all(&self);
}

impl CleanAll for F2fs {
    /// What was dead may be reused, as far as it may be.
    fn clean_all(&self) {
        while self.empty_sections(8).unwrap().sections > 0 {}
        let file = create(self, "new");
        (0..200).for_each(|block| _ = self.write(file, block * 64 * 1024, &[9; 64 * 1024], false).unwrap());
    }
}
