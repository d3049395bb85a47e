//! FITRIM: what is discarded, and what happens to whoever writes meanwhile.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use basalt_device::{BlockDevice, DeviceLayer, FaultyDevice, MemoryDevice, RequestKind, Result};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

const BLOCK: u64 = 4096;
const SEGMENT: u64 = 2 << 20;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

type Work = Arc<dyn Fn(&F2fs) + Send + Sync>;

/// How long somebody may take who waits for nothing, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Remembers discards, and has work done in the middle of each, by another thread as if it had come by just then.
struct Interrupted {
    device: MemoryDevice,
    discards: Mutex<Vec<(u64, u64)>>,
    work: OnceLock<(Weak<F2fs>, Work)>,
}

impl DeviceLayer for Interrupted {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.device
    }
    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        if let Some((fs, work)) = self.work.get()
            && let Some(fs) = fs.upgrade()
        {
            let (work, (done, is_done)) = (work.clone(), channel());
            std::thread::spawn(move || {
                work(&fs);
                done.send(()).ok();
            });
            is_done.recv_timeout(PATIENCE).expect("who writes waits for no discard");
        }
        self.discards.lock().unwrap().push((offset, length));
        self.device.discard(offset, length)
    }
}

fn volume(mib: u64, segments_per_section: u32) -> (Arc<Interrupted>, Arc<F2fs>) {
    let device = MemoryDevice::new(mib << 20, 512);
    let options = FormatOptions { discard_reads_zeros: true, segments_per_section, ..FormatOptions::default() };
    format(&device, &options, &mut |_, _| ()).unwrap();
    let device = Arc::new(Interrupted { device, discards: Mutex::default(), work: OnceLock::new() });
    let fs = open(&device);
    (device, fs)
}

fn open(device: &Arc<Interrupted>) -> Arc<F2fs> {
    let options = OpenOptions { discard: false, cache_bytes: 8 << 20, ..OpenOptions::default() };
    Arc::new(F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap())
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn write(fs: &F2fs, ino: InodeNumber, offset: u64, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        done += fs.write(ino, offset + done as u64, &data[done..], false).unwrap();
    }
}

fn read(fs: &F2fs, ino: InodeNumber, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let count = fs.read(ino, done as u64, &mut bytes[done..]).unwrap();
        assert!(count > 0, "the file ends at {done}");
        done += count;
    }
    bytes
}

/// Free segments, as users see them.
fn free_segments(fs: &F2fs) -> u64 {
    fs.info().states.free.into()
}

#[test]
fn every_free_segment_is_discarded_once_in_aligned_pieces() {
    trimmed(1);
    trimmed(4);
}

fn trimmed(segments_per_section: u32) {
    let (device, fs) = volume(2048, segments_per_section);
    for number in 0..8 {
        let ino = create(&fs, &format!("file {number}"));
        write(&fs, ino, 0, &vec![number; 5 << 20]);
        fs.sync().unwrap();
    }
    fs.unlink(fs.root(), b"file 3").unwrap();
    let discarded = fs.trim(0, u64::MAX, 0).unwrap();
    let mut pieces = std::mem::take(&mut *device.discards.lock().unwrap());
    assert_eq!(discarded, pieces.iter().map(|piece| piece.1).sum::<u64>());
    assert_eq!(discarded, free_segments(&fs) * SEGMENT);
    pieces.sort_unstable();
    assert!(pieces.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "overlapping: {pieces:?}");
    assert!(pieces.iter().all(|piece| piece.1 <= 256 << 20), "too long: {pieces:?}");
    assert!(pieces.iter().any(|piece| piece.1 == 256 << 20), "large pieces on a volume with much room: {pieces:?}");
    let is_cut = |two: &&[(u64, u64)]| two[0].0 + two[0].1 == two[1].0 && !(two[1].0 / SEGMENT).is_multiple_of(8);
    assert_eq!(pieces.windows(2).find(is_cut), None, "a unit of 16 MiB is cut in two");
    for number in [0, 1, 2, 4, 5, 6, 7] {
        let ino = fs.lookup(fs.root(), format!("file {number}").as_bytes()).unwrap().ino;
        assert_eq!(read(&fs, ino, 5 << 20), vec![number; 5 << 20]);
    }
}

#[test]
fn ranges_and_minima_hold() {
    let (device, fs) = volume(256, 1);
    let ino = create(&fs, "file");
    write(&fs, ino, 0, &vec![1; 20 << 20]);
    let all = fs.trim(0, u64::MAX, 0).unwrap();
    assert_eq!(fs.trim(0, u64::MAX, all + 1).unwrap(), 0, "no run is so long");
    let pieces = std::mem::take(&mut *device.discards.lock().unwrap());
    let longest = pieces.into_iter().max_by_key(|piece| piece.1).unwrap();
    assert!(longest.1 >= 12 << 20, "{longest:?}");
    let (from, length) = (longest.0 + (1 << 20), (9 << 20) + 1234);
    let discarded = fs.trim(from + 1, length, 0).unwrap();
    for (offset, bytes) in device.discards.lock().unwrap().iter() {
        assert!(*offset > from && offset + bytes <= from + 1 + length, "{bytes} bytes at {offset}");
        assert_eq!((offset % BLOCK, bytes % BLOCK), (0, 0));
    }
    assert!(discarded <= length && discarded + 2 * BLOCK > length, "{discarded} of {length} bytes");
}

/// In the middle of each discard somebody writes: what it gets must not be what is being discarded.
fn written_meanwhile(mib: u64, fill: u64) {
    let (device, fs) = volume(mib, 1);
    let ino = create(&fs, "filling");
    write(&fs, ino, 0, &vec![9; (fill << 20) as usize]);
    fs.sync().unwrap();
    let other = create(&fs, "meanwhile");
    let rng = Mutex::new(Rng::new(7));
    let written = Arc::new(Mutex::new(vec![0u8; 8 << 20]));
    let content = written.clone();
    let work: Work = Arc::new(move |fs| {
        // Under the volume's lock nobody comes by.
        let mut rng = rng.lock().unwrap();
        let mut content = content.lock().unwrap();
        let byte = rng.below(255) as u8 + 1;
        for _ in 0..16 {
            let at = rng.below(content.len() as u64 / BLOCK - 32) * BLOCK;
            let data = vec![byte; 32 * BLOCK as usize];
            write(fs, other, at, &data);
            content[at as usize..at as usize + data.len()].copy_from_slice(&data);
        }
    });
    device.work.set((Arc::downgrade(&fs), work)).ok().unwrap();
    assert!(fs.trim(0, u64::MAX, 0).unwrap() > 0);
    let pieces = device.discards.lock().unwrap().len();
    let written = written.lock().unwrap();
    assert!(written.iter().any(|byte| *byte != 0), "{pieces} pieces, and nobody wrote");
    let end = written.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert_eq!(read(&fs, other, end), written[..end], "as read from the open volume");
    fs.close().unwrap();
    let fs = open(&device);
    let other = fs.lookup(fs.root(), b"meanwhile").unwrap().ino;
    assert_eq!(read(&fs, other, end), written[..end], "as read from the closed volume");
    let ino = fs.lookup(fs.root(), b"filling").unwrap().ino;
    assert!(read(&fs, ino, (fill << 20) as usize).iter().all(|byte| *byte == 9));
}

#[test]
fn nobody_gets_a_segment_that_is_being_discarded() {
    written_meanwhile(256, 16);
    written_meanwhile(1024, 100);
}

/// A piece is only what is discarded in one go: the run it is of counts.
#[test]
fn a_minimum_is_about_runs_and_not_about_pieces() {
    let (device, fs) = volume(2048, 1);
    fs.trim(0, u64::MAX, 0).unwrap();
    let mut pieces = std::mem::take(&mut *device.discards.lock().unwrap());
    pieces.sort_unstable();
    let longest_piece = pieces.iter().map(|piece| piece.1).max().unwrap();
    let is_one_run = |one: &(u64, u64), next: &(u64, u64)| one.0 + one.1 == next.0;
    let runs = pieces.chunk_by(is_one_run).map(|run| run.iter().map(|piece| piece.1).sum::<u64>());
    let longest = runs.clone().max().unwrap();
    assert!(longest > longest_piece, "the longest run, {longest} bytes, is of several pieces");
    assert_eq!(fs.trim(0, u64::MAX, longest).unwrap(), runs.filter(|run| *run == longest).sum::<u64>());
    assert_eq!(fs.trim(0, u64::MAX, longest + 1).unwrap(), 0);
}

/// FITRIM fails then, and nothing else comes of it: the segments were not lost to the logs.
#[test]
fn segments_are_free_again_where_the_device_does_not_discard() {
    let (device, fs) = volume(256, 1);
    fs.close().unwrap();
    let device = Arc::new(FaultyDevice::new(device));
    let options = OpenOptions { discard: false, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    fs.sync().unwrap();
    let before = free_segments(&fs);
    device.fail_when(|request| (request.kind == RequestKind::Discard).then_some(std::io::ErrorKind::Other));
    fs.trim(0, u64::MAX, 0).unwrap_err();
    assert!(device.injected() > 0 && fs.is_writable());
    assert_eq!(free_segments(&fs), before);
    device.heal();
    assert_eq!(fs.trim(0, u64::MAX, 0).unwrap(), before * SEGMENT);
}
