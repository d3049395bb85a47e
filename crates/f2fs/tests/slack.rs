//! Slack space recycling: where free segments run short, logs fill the dead blocks of segments that are in use.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RecordingDevice, RequestKind};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Clock, F2fs, Geometry, OpenOptions, Reclaim, SystemClock};
use basalt_segments::Segment;
use basalt_segments::cleaning::KeepFree;
use basalt_segments::slack::{DeviceClass, DeviceTimes, FlashPage};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
/// Writes between two fsyncs.
const SYNC_EVERY: usize = 100;

/// A volume, and what it has to hold.
struct Filled {
    device: Arc<MemoryDevice>,
    options: OpenOptions,
    fs: F2fs,
    ino: InodeNumber,
    /// The version of each block of the file: of now, and of the last fsync.
    now: Vec<u32>,
    synced: Vec<u32>,
    rng: Rng,
}

/// The bytes of a block.
fn content(index: usize, version: u32) -> Vec<u8> {
    let mark = (index as u64) << 32 | u64::from(version);
    mark.to_le_bytes().repeat(BLOCK as usize / 8)
}

impl Filled {
    /// A volume of so many MiB with a file that takes `percent` of it.
    fn new(mib: u64, percent: u64, journal: bool, options: OpenOptions) -> Filled {
        let device = Arc::new(MemoryDevice::new(mib << 20, 512));
        let journal_bytes = if journal { 64 << 10 } else { 0 };
        let how = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
        format(&*device, &how, &mut |_, _| {}).unwrap();
        let options = OpenOptions { cache_bytes: 4 << 20, background_cleaning: false, ..options };
        let fs = F2fs::open(device.clone(), options.clone(), Arc::new(SystemClock)).unwrap();
        let ino = fs.create(fs.root(), b"file", &FILE, &Caller::default()).unwrap().ino;
        let blocks = (fs.stat_fs().unwrap().available * percent / 100) as usize;
        let mut filled =
            Filled { device, options, fs, ino, now: vec![0; blocks], synced: vec![0; blocks], rng: Rng::new(7) };
        (0..blocks).for_each(|index| filled.write(index));
        filled.fs.sync().unwrap();
        filled.synced.clone_from(&filled.now);
        filled
    }

    fn write(&mut self, index: usize) {
        self.now[index] += 1;
        let bytes = content(index, self.now[index]);
        assert_eq!(self.fs.write(self.ino, index as u64 * BLOCK, &bytes, false).unwrap(), bytes.len());
    }

    /// Overwrites single blocks at random, with an fsync now and then.
    fn overwrite(&mut self, writes: usize) {
        for step in 1..=writes {
            let index = self.rng.index(self.now.len());
            self.write(index);
            if step % SYNC_EVERY == 0 {
                self.fs.sync_file(self.ino, false).unwrap();
                self.synced.clone_from(&self.now);
            }
        }
    }

    /// Overwrites single blocks at random, with no fsync: what the last one made durable dies, and is needed all the same.
    fn overwrite_unsynced(&mut self, writes: usize) {
        for _ in 0..writes {
            let index = self.rng.index(self.now.len());
            self.write(index);
        }
    }

    /// The file has what was written last.
    fn expect_content(&self) {
        expect(&self.fs, self.ino, &self.now, &self.now);
    }

    /// After a power cut now, the file has what was fsynced, or something newer; and both volumes are sound.
    fn expect_recovered(&self) {
        let cut = Arc::new(self.device.snapshot());
        let fs = F2fs::open(cut.clone(), self.options.clone(), Arc::new(SystemClock)).unwrap();
        let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
        expect(&fs, ino, &self.synced, &self.now);
        fs.close().unwrap();
        expect_sound(&cut);
    }

    fn reopen(&mut self) {
        self.fs.close().unwrap();
        expect_sound(&self.device);
        self.fs = F2fs::open(self.device.clone(), self.options.clone(), Arc::new(SystemClock)).unwrap();
    }

    fn slack_blocks(&self) -> u64 {
        self.fs.statistics().written.slack_blocks
    }
}

fn expect(fs: &F2fs, ino: InodeNumber, least: &[u32], most: &[u32]) {
    let mut bytes = vec![0; BLOCK as usize];
    for (index, (least, most)) in least.iter().zip(most).enumerate() {
        assert_eq!(fs.read(ino, index as u64 * BLOCK, &mut bytes).unwrap(), bytes.len());
        let version = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        assert!((*least..=*most).contains(&version), "block {index}: version {version}, not {least} to {most}");
        assert_eq!(bytes, content(index, version), "block {index}");
    }
}

fn expect_sound(device: &MemoryDevice) {
    let report = check(device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

fn slack() -> OpenOptions {
    OpenOptions { reclaim: Reclaim::Slack, ..OpenOptions::default() }
}

/// A card on which every island of up to nine blocks is worth a copy.
fn partial() -> OpenOptions {
    OpenOptions { reclaim: Reclaim::Partial, times: DeviceClass::Sd.device_times(), ..OpenOptions::default() }
}

fn volume_with_slack(journal: bool, options: OpenOptions) {
    let mut filled = Filled::new(128, 90, journal, options);
    for _ in 0..8 {
        filled.overwrite(2_500);
        filled.expect_content();
        filled.expect_recovered();
        for _ in 0..4 {
            filled.overwrite_unsynced(400);
            filled.expect_recovered();
        }
        // Of a volume with a live journal nobody but the engine reads the geometry.
        assert!(journal || !left_in_slack(&filled.device)[4], "the chain's log is in slack");
    }
    let written = filled.fs.statistics().written;
    assert!(written.slack_blocks > written.data_blocks / 4, "{written:?}");
    let copies_islands = filled.options.reclaim == Reclaim::Partial;
    assert_eq!(written.islands_copied > 1_000, copies_islands, "{written:?}");
    filled.reopen();
    filled.overwrite(5_000);
    filled.expect_content();
    filled.expect_recovered();
    assert!(filled.slack_blocks() > 0, "after it was opened again");
    filled.reopen();
    filled.expect_content();
}

#[test]
fn slack_is_filled_and_nothing_is_lost_where_checkpoints_commit() {
    volume_with_slack(false, slack());
}

#[test]
fn slack_is_filled_and_nothing_is_lost_where_a_journal_commits() {
    volume_with_slack(true, slack());
}

#[test]
fn islands_are_copied_and_nothing_is_lost_where_checkpoints_commit() {
    volume_with_slack(false, partial());
}

#[test]
fn islands_are_copied_and_nothing_is_lost_where_a_journal_commits() {
    volume_with_slack(true, partial());
}

/// The same writes, with and without slack.
#[test]
fn cleaning_copies_less_where_logs_fill_slack() {
    let copied = |options| {
        let mut filled = Filled::new(128, 90, true, options);
        filled.overwrite(10_000);
        (filled.fs.statistics().written.blocks_moved, filled.slack_blocks())
    };
    let ((without, none), (with, some)) = (copied(OpenOptions::default()), copied(slack()));
    assert!(none == 0 && some > 3_000, "{none} and {some} blocks in slack");
    assert!(with * 4 < without, "{with} blocks copied with slack, {without} without");
}

/// On a device that takes as long for one block as for a segment, partial garbage collection empties segments, and keeps as many free as full cleaning.
#[test]
fn where_emptying_is_better_all_is_as_with_full_cleaning() {
    let counts = [Reclaim::Clean, Reclaim::Partial].map(|reclaim| {
        let times = DeviceTimes::new(&[(1, 10_000_000), (512, 10_000_000)], &[(1, 100), (512, 51_200)], 0);
        let keep_free = KeepFree::Adaptive;
        let options =
            OpenOptions { reclaim, keep_free, times, pre_invalid_bytes: Some(4 << 20), ..OpenOptions::default() };
        let mut filled = Filled::new(128, 90, true, options);
        filled.overwrite(10_000);
        filled.expect_content();
        let written = filled.fs.statistics().written;
        (written.blocks_moved, written.checkpoints, written.slack_blocks)
    });
    assert_eq!(counts[0], counts[1], "blocks copied, checkpoints, blocks in slack");
    assert!(counts[0].0 > 1000 && counts[0].2 == 0, "{counts:?}");
}

/// Eight threads overwrite blocks of their own and fsync: whoever waits for a commit finds that another one has made it.
#[test]
fn threads_that_run_short_of_slack_share_commits() {
    const THREADS: usize = 8;
    let mut filled = Filled::new(128, 90, false, partial());
    filled.overwrite(6_000);
    let before = filled.fs.statistics();
    let versions: Vec<Vec<(usize, u32)>> = std::thread::scope(|scope| {
        let (fs, ino, blocks) = (&filled.fs, filled.ino, filled.now.len());
        let overwrite = move |thread: usize| {
            let mut rng = Rng::new(thread as u64);
            let mut write = |step: usize| {
                let index = rng.index(blocks / THREADS) * THREADS + thread;
                let version = 1_000_000 + step as u32;
                fs.write(ino, index as u64 * BLOCK, &content(index, version), false).unwrap();
                if step.is_multiple_of(SYNC_EVERY) {
                    fs.sync_file(ino, false).unwrap();
                }
                (index, version)
            };
            (0..1_500).map(&mut write).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || overwrite(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    versions.into_iter().flatten().for_each(|(index, version)| filled.now[index] = version);
    let since = filled.fs.statistics().since(&before);
    assert!(since.written.islands_copied > 1_000, "{since:?}");
    // A batch has some 2,000 blocks of slack.
    assert!(since.written.slack_blocks > 500 * since.checkpoints.cleaning, "{since:?}");
    filled.expect_content();
    filled.reopen();
    filled.expect_content();
}

/// What lies between two blocks that are copied cannot be read, and nobody needs it.
#[test]
fn an_unreadable_dead_block_keeps_nothing_from_being_copied() {
    let memory = Arc::new(MemoryDevice::new(128 << 20, 512));
    format(&*memory, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {}).unwrap();
    let faulty = Arc::new(FaultyDevice::new(memory));
    // Reads of several blocks fail wherever the file's data lies; those of one do not.
    let main = u64::from(Geometry::read(&*faulty).unwrap().0.main) * BLOCK;
    let options = OpenOptions { cache_bytes: 4 << 20, background_cleaning: false, ..partial() };
    let fs = F2fs::open(faulty.clone(), options, Arc::new(SystemClock)).unwrap();
    let ino = fs.create(fs.root(), b"file", &FILE, &Caller::default()).unwrap().ino;
    let blocks = (fs.stat_fs().unwrap().available * 88 / 100) as usize;
    let mut now = vec![0; blocks];
    let mut rng = Rng::new(3);
    let write = |index: usize, now: &mut Vec<u32>| {
        now[index] += 1;
        fs.write(ino, index as u64 * BLOCK, &content(index, now[index]), false).unwrap();
    };
    (0..blocks).for_each(|index| write(index, &mut now));
    fs.sync().unwrap();
    faulty.fail_when(move |request| {
        let is_long_read = request.kind == RequestKind::Read && request.offset >= main && request.length > BLOCK;
        is_long_read.then_some(ErrorKind::Other)
    });
    for step in 1..=6_000 {
        write(rng.index(blocks), &mut now);
        if step % SYNC_EVERY == 0 {
            fs.sync_file(ino, false).unwrap();
        }
    }
    assert!(faulty.injected() > 10, "no read of several blocks failed");
    assert!(fs.statistics().written.islands_copied > 1_000, "{:?}", fs.statistics().written);
    faulty.heal();
    expect(&fs, ino, &now, &now);
    fs.close().unwrap();
}

/// Of each segment the first owner is impossible. Nobody knows whose blocks these are, so no log goes there, and no checkpoint takes the owners
/// over: they would make its journals look damaged.
#[test]
fn segments_with_impossible_owners_are_left_alone() {
    let mut filled = Filled::new(128, 90, false, slack());
    filled.overwrite(3_000);
    filled.fs.close().unwrap();
    let geometry = Geometry::read(&*filled.device).unwrap().0;
    for segment in Segment::all(geometry.main_segments) {
        let place = u64::from(geometry.summary_block(segment)) * BLOCK;
        filled.device.write_at(place, &[0xFF; 4]).unwrap();
    }
    for _ in 0..2 {
        filled.fs = F2fs::open(filled.device.clone(), filled.options.clone(), Arc::new(SystemClock)).unwrap();
        assert!(filled.fs.is_writable() && filled.fs.warnings().is_empty(), "{:?}", filled.fs.warnings());
        filled.overwrite(1_000);
        filled.expect_content();
        filled.fs.close().unwrap();
    }
}

/// Which logs the checkpoint has left in slack.
fn left_in_slack(device: &MemoryDevice) -> Vec<bool> {
    let geometry = Geometry::read(device).unwrap().0;
    let pack = choose_pack(device, &geometry).unwrap().0;
    pack.raw.alloc_type[..6].iter().map(|how| *how == 1).collect()
}

/// What placements know of blocks goes by their places, which are written again here while others of the segment live on.
#[test]
fn every_placement_fills_slack() {
    for placement in basalt_schemes::placements() {
        let mut filled = Filled::new(96, 88, true, OpenOptions { placement, ..slack() });
        filled.overwrite(3_000);
        filled.reopen();
        filled.overwrite(3_000);
        filled.expect_content();
        filled.expect_recovered();
        assert!(filled.slack_blocks() > 0, "{}", placement.name);
    }
}

/// Nobody writes: what splits slack is copied, committed and handed out all the same, until enough is ready.
#[test]
fn slack_is_made_ready_while_the_volume_is_idle() {
    for journal in [false, true] {
        let mut filled = Filled::new(128, 90, journal, partial());
        filled.overwrite(6_000);
        filled.options = OpenOptions { background_cleaning: true, idle_after: Duration::ZERO, ..filled.options };
        filled.reopen();
        let before = filled.fs.statistics();
        let start = SystemClock.now();
        (0..300).for_each(|_| _ = filled.fs.tick(start));
        let since = filled.fs.statistics().since(&before);
        assert!(since.written.islands_copied > 200, "{since:?}");
        assert_eq!(since.cleaning.foreground.blocks_copied, 0, "{since:?}");
        // A second long idle time has nothing to add.
        let before = filled.fs.statistics();
        (0..300).for_each(|_| _ = filled.fs.tick(start));
        assert_eq!(filled.fs.statistics().since(&before).written.islands_copied, 0);
        filled.expect_content();
        filled.expect_recovered();
    }
}

/// A flash page that is programmed while the power goes takes along what it held. So behind opening every log, the chain's too, begins at a page.
#[test]
fn no_log_goes_on_within_a_flash_page_behind_opening() {
    const PAGE: u64 = 16 << 10;
    let (mut met, flash_page) = (0, FlashPage::of_bytes(PAGE as u32).unwrap());
    for files in 1..=8_u64 {
        let device = Arc::new(RecordingDevice::new(MemoryDevice::new(64 << 20, 512), false));
        format(&*device, &FormatOptions::default(), &mut |_, _| {}).unwrap();
        let main = u64::from(Geometry::read(&*device).unwrap().0.main) * BLOCK;
        let use_volume = |options: OpenOptions| {
            let options = OpenOptions { background_cleaning: false, ..options };
            let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
            device.take();
            for number in 0..files {
                let name = format!("file {number}");
                let made = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).map(|made| made.ino);
                let ino = made.or_else(|_| fs.lookup(fs.root(), name.as_bytes()).map(|found| found.ino)).unwrap();
                fs.write(ino, 0, &[1; 8192], false).unwrap();
                fs.sync_file(ino, false).unwrap();
            }
            let written = device.take();
            fs.close().unwrap();
            written
        };
        use_volume(OpenOptions::default());
        let mut ends = Vec::new();
        for request in use_volume(OpenOptions { flash_page, ..OpenOptions::default() }) {
            if request.kind == RequestKind::Write && request.offset >= main {
                let begins = request.offset.is_multiple_of(PAGE) || ends.contains(&request.offset);
                assert!(begins, "{files} files: {} bytes at {} of a page", request.length, request.offset % PAGE);
                ends.push(request.offset + request.length);
                met += 1;
            }
        }
    }
    assert!(met > 50, "{met} writes");
}
