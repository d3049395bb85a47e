//! The process that serves a volume ends between a write and its flush. Another one finds what it wrote, which is in a cache only, and goes
//! on from there; then the power goes. What was durable before is there all the same.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use basalt_device::power::{Change, Fate};
use basalt_device::{FaultyDevice, MemoryDevice, PowerCutDevice, Replay, RequestKind};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const BLOCK: usize = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
/// Files that are synced, and blocks in each.
const FILES: usize = 20;
const BLOCKS: usize = 20;

type Device = Arc<FaultyDevice<PowerCutDevice>>;

fn device(mib: u64) -> Device {
    let memory = MemoryDevice::new(mib << 20, 512);
    format(&memory, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ()).unwrap();
    Arc::new(FaultyDevice::new(PowerCutDevice::new(memory)))
}

fn open(device: Arc<dyn basalt_device::BlockDevice>) -> F2fs {
    let options = OpenOptions { background_cleaning: false, discard: false, ..OpenOptions::default() };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

fn create(fs: &F2fs, name: &str) -> u64 {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

/// From here on all flushes fail but so many: the process ends in one.
fn end_in_flush(device: &Device, after: usize) {
    let flushes = AtomicUsize::new(0);
    device.fail_when(move |request| {
        let is_one = request.kind == RequestKind::Flush && flushes.fetch_add(1, SeqCst) >= after;
        is_one.then_some(ErrorKind::Other)
    });
}

/// The synced files are there, with one of these bytes in each block.
fn expect_synced(image: MemoryDevice, bytes: &[u8], when: &str) {
    let fs = open(Arc::new(image));
    assert!(fs.is_writable(), "{when}: {:?}", fs.warnings());
    for number in 0..FILES {
        let name = format!("synced {number}");
        let found = fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|error| panic!("{when}: {name}: {error}"));
        let mut content = vec![0; BLOCKS * BLOCK];
        fs.read(found.ino, 0, &mut content).unwrap();
        assert!(content.iter().all(|byte| bytes.contains(byte)), "{when}: {name} has other bytes");
    }
}

/// Cuts the power at each request of the second process until its first flush is over: what the first one did not flush is lost, what the
/// second one wrote is there, all of it or its last request alone.
fn cut_second_life(device: &Device, ended: usize, bytes: &[u8]) {
    let history = device.inner().history();
    let flush = (ended..history.changes.len()).find(|&at| history.changes[at].is_flush());
    let end = flush.map_or(history.changes.len(), |flush| flush + 1);
    let mut replay = Replay::new(&history);
    for at in ended..=end {
        for last_only in [false, true] {
            let image = replay.cut(at, |cached: &[Change]| {
                let new = (at - ended).min(cached.len());
                let fate = |number: usize| match number + new < cached.len() || last_only && number + 1 < cached.len() {
                    true => Fate::Lost,
                    false => Fate::Kept,
                };
                (0..cached.len()).map(fate).collect()
            });
            expect_synced(
                image,
                bytes,
                &format!("cut at {at}, {ended} when the first process ended, last only: {last_only}"),
            );
        }
    }
}

fn write_synced(fs: &F2fs) -> Vec<u64> {
    let files: Vec<u64> = (0..FILES).map(|number| create(fs, &format!("synced {number}"))).collect();
    files.iter().for_each(|&ino| _ = fs.write(ino, 0, &[1; BLOCKS * BLOCK], false).unwrap());
    files
}

#[test]
fn a_checkpoint_that_was_not_flushed_is_made_durable_before_another_goes_over_the_one_before() {
    for after in 0..2 {
        let device = device(80);
        let fs = open(device.clone());
        let files = write_synced(&fs);
        let more: Vec<String> = (0..300).map(|number| format!("more {number}")).collect();
        more.iter().for_each(|name| _ = fs.write(create(&fs, name), 0, &[3; BLOCK], false).unwrap());
        fs.sync().unwrap();
        files.iter().for_each(|&ino| _ = fs.write(ino, 0, &[2; BLOCKS * BLOCK], false).unwrap());
        // They are open still: the second process frees them.
        more.iter().for_each(|name| fs.unlink(fs.root(), name.as_bytes()).unwrap());
        end_in_flush(&device, after);
        assert!(fs.sync().is_err());
        drop(fs);
        device.heal();
        let ended = device.inner().position();
        drop(open(device.clone()));
        cut_second_life(&device, ended, &[1, 2]);
    }
}

/// MiB of one byte at the beginning of a file.
fn fill(fs: &F2fs, ino: u64, mib: u64, byte: u8) {
    (0..mib).for_each(|at| _ = fs.write(ino, at << 20, &vec![byte; 1 << 20], false).unwrap());
}

#[test]
fn so_is_one_that_closes_before_anything_goes_over_what_the_one_before_needs() {
    let device = device(256);
    let fs = open(device.clone());
    // What comes next on the volume is free in the end, then comes the file that was synced, then the rest.
    let free = create(&fs, "free");
    fill(&fs, free, 10, 5);
    fs.sync().unwrap();
    let synced = create(&fs, "synced");
    fill(&fs, synced, 100, 1);
    fs.unlink(fs.root(), b"free").unwrap();
    fs.forget(free, 1);
    fs.sync().unwrap();
    fill(&fs, create(&fs, "rest"), 40, 4);
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"synced").unwrap();
    fs.forget(synced, 1);
    end_in_flush(&device, 1);
    assert!(fs.close().is_err());
    drop(fs);
    device.heal();
    let ended = device.inner().position();
    let fs = open(device.clone());
    let new = create(&fs, "new");
    (0..120_u64).take_while(|at| fs.write(new, at << 20, &vec![9; 1 << 20], false).is_ok()).for_each(drop);
    // To the first flush behind opening: what the dead process wrote last is lost, if nobody has flushed it.
    let history = device.inner().history();
    let is_write = |at: &usize| !history.changes[*at].is_flush();
    let first = (ended..history.changes.len()).find(is_write).unwrap();
    let flush = (first..history.changes.len()).find(|at| !is_write(at)).unwrap_or(history.changes.len());
    let mut replay = Replay::new(&history);
    let image = replay.cut(flush, |cached: &[Change]| {
        let old = cached.len().saturating_sub(flush - first);
        (0..cached.len()).map(|number| if number < old { Fate::Lost } else { Fate::Kept }).collect()
    });
    let fs = open(Arc::new(image));
    // It is there whole, or it is not.
    let Ok(found) = fs.lookup(fs.root(), b"synced") else { return };
    let mut bytes = vec![0; 1 << 20];
    for at in 0..100 {
        assert_eq!(fs.read(found.ino, at << 20, &mut bytes).unwrap(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 1), "MiB {at} has other bytes");
    }
}
