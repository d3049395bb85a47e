//! Cleaning in the background: only when nothing else happens, in bounded pieces, and to an end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use basalt_device::MemoryDevice;
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Clock, F2fs, OpenOptions};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Engine, FileKind, FileSystem, NewNode, SetAttributes, Time};

const BLOCK: u64 = 4096;
/// Blocks of the file that is overwritten: two fifths of the volume.
const BLOCKS: u64 = 50_000;

struct TestClock(Mutex<Time>);

impl TestClock {
    fn advance(&self, by: Duration) -> Time {
        let mut now = self.0.lock().unwrap();
        let total = u64::from(now.nanoseconds) + by.as_nanos() as u64;
        now.seconds += (total / 1_000_000_000) as i64;
        now.nanoseconds = (total % 1_000_000_000) as u32;
        *now
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        *self.0.lock().unwrap()
    }
}

/// A volume most of whose segments are partly live; closed clean afterwards by the caller.
fn fragmented(options: OpenOptions) -> (Arc<MemoryDevice>, F2fs, Arc<TestClock>) {
    let device = Arc::new(MemoryDevice::new(512 << 20, 512));
    let plain = FormatOptions { discard_reads_zeros: true, uuid: Some([7; 16]), ..FormatOptions::default() };
    format(&*device, &plain, &mut |_, _| {}).unwrap();
    let clock = Arc::new(TestClock(Mutex::new(Time { seconds: 1_700_000_000, nanoseconds: 0 })));
    let fs = F2fs::open(device.clone(), options, clock.clone()).unwrap();
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"file", &node, &Caller::default()).unwrap().ino;
    for block in 0..BLOCKS {
        fs.write(ino, block * BLOCK, &[1; BLOCK as usize], false).unwrap();
    }
    let mut rng = Rng::new(5);
    for _ in 0..BLOCKS * 2 / 3 {
        fs.write(ino, rng.below(BLOCKS) * BLOCK, &[2; BLOCK as usize], false).unwrap();
    }
    fs.sync().unwrap();
    (device, fs, clock)
}

#[test]
fn an_idle_volume_is_cleaned_in_bounded_pieces_until_it_is_not_worth_it() {
    let (device, fs, clock) = fragmented(OpenOptions::default());
    let free = fs.info().states.free;
    let (start, begun) = (fs.statistics(), fs.counters());
    // Not idle yet.
    fs.tick(clock.advance(Duration::from_millis(100)));
    assert_eq!(fs.statistics().cleaning, start.cleaning);
    let mut ticks = 0;
    let mut wait = Duration::from_secs(6);
    loop {
        let before = fs.statistics().written.blocks_moved;
        wait = fs.tick(clock.advance(wait)).next;
        let moved = fs.statistics().written.blocks_moved - before;
        assert!(moved <= 128, "{moved} blocks in one tick");
        ticks += 1;
        assert!(ticks < 10_000, "cleaning in the background does not end");
        if moved == 0 && ticks > 1 && wait > Duration::from_secs(1) {
            break;
        }
    }
    let work = fs.statistics().cleaning.background;
    assert!(work.victims > 0 && work.blocks_copied > 0 && work.checkpoints > 0, "{work:?}");
    assert!(work.blocks_read >= work.blocks_copied, "{work:?}");
    assert_eq!(fs.statistics().cleaning.foreground, start.cleaning.foreground);
    let now = fs.info().states.free;
    assert!(now > free, "{free} free segments before, {now} after");
    assert!(work.data_blocks_copied > 0 && work.data_blocks_copied <= work.blocks_copied, "{work:?}");
    let live = fs.live();
    assert_eq!(live.counters.new_data_blocks(), begun.new_data_blocks(), "copies count as new data");
    assert!(live.counters.write_amplification() > begun.write_amplification());
    let (used, on_device) = (live.usage.used_blocks, live.live_data_blocks + live.live_node_blocks);
    assert_eq!((live.segments.free, used), (now.into(), on_device));
    assert!(!live.read_only && live.failed.is_none() && live.read_only_reason.is_none());
    fs.close().unwrap();
    assert!(check(&*device, &CheckOptions::default(), &mut |_| {}).unwrap().is_clean());
}

#[test]
fn an_operation_ends_idleness() {
    for changes in [false, true] {
        let (_, fs, clock) = fragmented(OpenOptions::default());
        fs.tick(clock.advance(Duration::from_secs(6)));
        let moved = fs.statistics().written.blocks_moved;
        assert!(moved > 0, "nothing was cleaned when idle");
        if changes {
            let mode = SetAttributes { permissions: Some(0o700), ..SetAttributes::default() };
            fs.set_attributes(fs.root(), &mode).unwrap();
        } else {
            fs.attributes(fs.root()).unwrap();
        }
        fs.tick(clock.advance(Duration::from_millis(10)));
        assert_eq!(fs.statistics().written.blocks_moved, moved, "{changes}");
    }
}

#[test]
fn it_can_be_turned_off() {
    let (_, fs, clock) = fragmented(OpenOptions { background_cleaning: false, ..OpenOptions::default() });
    for _ in 0..10 {
        fs.tick(clock.advance(Duration::from_secs(6)));
    }
    assert_eq!(fs.statistics().cleaning.background, Default::default());
}

#[test]
fn blocks_of_data_and_of_nodes_are_told_apart() {
    let (_, fs, _) = fragmented(OpenOptions::default());
    let live = fs.live();
    // Each node maps about a thousand blocks; the root directory has a block too.
    assert!((BLOCKS..BLOCKS + 10).contains(&live.live_data_blocks), "{live:?}");
    assert!((BLOCKS / 1018..BLOCKS / 500).contains(&live.live_node_blocks), "{live:?}");
    assert_eq!((live.dirty_data_blocks, live.dirty_node_blocks), (0, 0), "all is written");
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    for block in [3, 7, 20_000] {
        fs.write(ino, block * BLOCK, &[3; BLOCK as usize], false).unwrap();
    }
    assert_eq!(fs.live().dirty_data_blocks, 3);
    fs.forget(ino, 1);
    fs.close().unwrap();
}
