//! Recording a device, and replaying the recording onto another.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_device::{BlockDevice, FaultyDevice, FileDevice, MemoryDevice, OpenOptions, RequestKind};
use basalt_random::Rng;
use basalt_traces::{RecordOptions, Recorder, Recording, TraceError, TraceRequest, ZeroingDevice, replay};

const SIZE: u64 = 8 << 20;

/// With a clock that ticks 5 µs a request.
fn options() -> RecordOptions {
    let ticks = AtomicU64::new(100_000);
    RecordOptions { clock: Box::new(move || ticks.fetch_add(5_000, Ordering::Relaxed)), ..RecordOptions::default() }
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0xff; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Reads, writes, discards and flushes of all sizes at random places.
fn scribble(device: &dyn BlockDevice, seed: u64, requests: u64) {
    let mut rng = Rng::new(seed);
    for number in 0..requests {
        let offset = rng.below(SIZE - (1 << 16));
        let length = rng.between(1, 1 << 16) as usize;
        let bytes: Vec<u8> = (0..length).map(|at| (at as u64 * 31 + number) as u8).collect();
        match rng.below(8) {
            0 => device.flush().unwrap(),
            1 => device.discard(offset, length as u64).unwrap(),
            2 => device.read_at(offset, &mut vec![0; length]).unwrap(),
            3 => device.write_vectored_at(offset, &[&bytes[..length / 2], b"", &bytes[length / 2..]]).unwrap(),
            _ => device.write_at(offset, &bytes).unwrap(),
        }
    }
}

fn replayed(directory: &Path, upto: Option<u64>) -> MemoryDevice {
    let device = MemoryDevice::new(SIZE, 512);
    replay(&Recording::open(directory).unwrap(), &device, upto, &mut |_| ()).unwrap();
    device
}

#[test]
fn a_replay_gives_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(MemoryDevice::new(SIZE, 512), directory.path().join("r"), options()).unwrap();
    scribble(&recorder, 5, 400);
    let before = Recording::open(directory.path().join("r")).unwrap();
    assert!(!before.description().complete, "a recording that goes on is not complete");
    let description = recorder.finish().unwrap();
    assert!(description.complete);
    let counters = recorder.inner().counters();
    let totals = description.totals;
    assert_eq!((totals.reads, totals.writes, totals.discards), (counters.reads, counters.writes, counters.discards));
    assert_eq!((totals.bytes_written, totals.flushes), (counters.bytes_written, counters.flushes));
    assert!(content(&replayed(&directory.path().join("r"), None)) == content(recorder.inner()));
    // What is done twice stays the same, and a device of its own is as it was.
    assert_eq!(recorder.finish().unwrap(), description);
}

#[test]
fn a_beginning_can_be_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(MemoryDevice::new(SIZE, 512), directory.path().join("r"), options()).unwrap();
    scribble(&recorder, 6, 150);
    let (half, middle) = (recorder.totals().requests(), recorder.inner().snapshot());
    scribble(&recorder, 7, 150);
    recorder.finish().unwrap();
    assert!(content(&replayed(&directory.path().join("r"), Some(half))) == content(&middle));
    assert!(content(&replayed(&directory.path().join("r"), None)) != content(&middle));
}

#[test]
fn requests_are_dated_by_the_clock_and_flushes_stand_where_they_began() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let recorder = Recorder::create(MemoryDevice::new(SIZE, 512), &path, options()).unwrap();
    recorder.write_at(4096, &[1; 512]).unwrap();
    recorder.flush().unwrap();
    recorder.discard(0, 8192).unwrap();
    recorder.read_at(512, &mut [0; 1024]).unwrap();
    recorder.finish().unwrap();
    let requests: Result<Vec<_>, _> = Recording::open(&path).unwrap().requests().unwrap().collect();
    let request = |time_ns, kind, offset, length| TraceRequest { time_ns, kind, offset, length };
    let expected = [
        request(0, RequestKind::Write, 4096, 512),
        TraceRequest::flush(5_000),
        request(10_000, RequestKind::Discard, 0, 8192),
        request(15_000, RequestKind::Read, 512, 1024),
    ];
    assert_eq!(requests.unwrap(), expected);
}

#[test]
fn without_content_there_is_nothing_to_replay() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let kept = RecordOptions { content: false, ..options() };
    let recorder = Recorder::create(MemoryDevice::new(SIZE, 512), &path, kept).unwrap();
    recorder.write_at(0, &[1; 512]).unwrap();
    recorder.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.requests().unwrap().count(), 1);
    let error = replay(&recording, &MemoryDevice::new(SIZE, 512), None, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("not recorded"), "{error}");
}

#[test]
fn failed_requests_are_counted_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let faulty = FaultyDevice::new(MemoryDevice::new(SIZE, 512));
    faulty.fail_when(|request| (request.offset == 4096).then_some(ErrorKind::Other));
    let recorder = Recorder::create(faulty, &path, options()).unwrap();
    recorder.write_at(0, &[1; 512]).unwrap();
    recorder.write_at(4096, &[2; 512]).unwrap_err();
    recorder.read_at(4096, &mut [0; 512]).unwrap_err();
    let description = recorder.finish().unwrap();
    assert_eq!((description.totals.requests(), description.failed_requests), (1, 2));
    assert_eq!(content(&replayed(&path, None))[..512], [1; 512]);
}

#[test]
fn a_finished_recording_stays_true() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(MemoryDevice::new(SIZE, 512), directory.path().join("r"), options()).unwrap();
    recorder.write_at(0, &[1; 512]).unwrap();
    recorder.finish().unwrap();
    let error = recorder.write_at(0, &[2; 512]).unwrap_err();
    assert!(error.to_string().contains("recording of this device is finished"), "{error}");
    recorder.discard(0, 512).unwrap_err();
    let mut now = [0; 512];
    recorder.read_at(0, &mut now).unwrap();
    assert_eq!(now, [1; 512]);
}

#[test]
fn recordings_are_not_overwritten_and_can_be_abandoned() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let first = Recorder::create(MemoryDevice::new(SIZE, 512), &path, options()).unwrap();
    let second = Recorder::create(MemoryDevice::new(SIZE, 512), &path, options());
    assert!(matches!(second.err(), Some(TraceError::File { .. })));
    first.abandon();
    assert!(!path.exists());
}

/// The recording's disk is full: `/dev/full` takes nothing.
#[test]
fn trouble_with_the_recording_is_reported_and_the_device_goes_on() {
    if !Path::new("/dev/full").exists() {
        eprintln!("no /dev/full here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let recorder = Recorder::create(MemoryDevice::new(SIZE, 512), &path, options()).unwrap();
    recorder.write_at(0, &[1; 4096]).unwrap();
    // The trace's own file descriptor is replaced by one of a full device.
    let link = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .find(|entry| std::fs::read_link(entry.path()).is_ok_and(|file| file == path.join("content.lz4")));
    let number: i32 = link.unwrap().file_name().to_str().unwrap().parse().unwrap();
    full::replace(number);
    let mut rng = Rng::new(1);
    for at in 0..1_000_u64 {
        let noise: Vec<u8> = (0..512).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        recorder.write_at(at * 4096, &noise).unwrap();
    }
    let error = recorder.finish().unwrap_err();
    assert!(error.to_string().contains("not complete"), "{error}");
    let recording = Recording::open(&path).unwrap();
    assert!(!recording.description().complete);
    assert!(recording.description().error.is_some());
}

mod full {
    //! `dup2` of `/dev/full` onto a descriptor that somebody else owns.

    use std::fs::File;
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

    #[allow(unsafe_code)]
    pub fn replace(number: i32) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        // SAFETY: the descriptor is open; it is given back to its owner below without being closed here.
        let mut target = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(&full, &mut target).unwrap();
        let _ = target.into_raw_fd();
    }
}

#[test]
fn damaged_recordings_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let recorder = Recorder::create(MemoryDevice::new(SIZE, 512), &path, options()).unwrap();
    scribble(&recorder, 8, 50);
    recorder.finish().unwrap();
    let content = path.join("content.lz4");
    let bytes = std::fs::read(&content).unwrap();
    let attempt = || replay(&Recording::open(&path).unwrap(), &MemoryDevice::new(SIZE, 512), None, &mut |_| ());

    let small = replay(&Recording::open(&path).unwrap(), &MemoryDevice::new(SIZE / 2, 512), None, &mut |_| ());
    assert!(small.unwrap_err().to_string().contains("and the recorded device"));

    std::fs::write(&content, &bytes[..bytes.len() / 2]).unwrap();
    assert!(attempt().unwrap_err().to_string().contains("content.lz4"));
    std::fs::write(&content, &bytes).unwrap();
    attempt().unwrap();

    let trace = path.join("trace.fio");
    let text = std::fs::read_to_string(&trace).unwrap();
    std::fs::write(&trace, text.replace("datasync", "frobnicate")).unwrap();
    assert!(matches!(attempt().unwrap_err(), TraceError::BadLine(_)));
    let behind = format!("{text}999999 memory write {SIZE} 512\n");
    std::fs::write(&trace, behind).unwrap();
    assert!(attempt().unwrap_err().to_string().contains("behind the end"));

    let description = path.join("recording.json");
    let text = std::fs::read_to_string(&description).unwrap();
    std::fs::write(&description, text.replace("\"version\": 1", "\"version\": 9")).unwrap();
    assert!(Recording::open(&path).unwrap_err().to_string().contains("version 9"));
    std::fs::write(&description, "{").unwrap();
    assert!(matches!(Recording::open(&path).unwrap_err(), TraceError::Recording { .. }));
}

#[test]
fn threads_are_recorded_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let recorder = Arc::new(Recorder::create(MemoryDevice::new(SIZE, 512), &path, options()).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let recorder = Arc::clone(&recorder);
            scope.spawn(move || {
                for at in 0..200_u64 {
                    recorder.write_at((thread << 20) + at * 4096, &[(thread + at) as u8; 4096]).unwrap();
                }
            });
        }
    });
    assert_eq!(recorder.finish().unwrap().totals.writes, 1_600);
    assert!(content(&replayed(&path, None)) == content(recorder.inner()));
}

#[test]
fn discarded_ranges_of_files_are_zeros_and_holes() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, vec![7; 1 << 20]).unwrap();
    let device = ZeroingDevice::new(FileDevice::open(&image, &OpenOptions::default()).unwrap());
    device.discard(1_000, 500_000).unwrap();
    device.discard(0, 0).unwrap();
    device.discard(1 << 20, 1).unwrap_err();
    let mut expected = vec![7; 1 << 20];
    expected[1_000..501_000].fill(0);
    assert!(content(&device) == expected);
    drop(device);

    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    ZeroingDevice::new(FileDevice::open(&image, &read_only).unwrap()).discard(0, 512).unwrap_err();
    assert!(std::fs::read(&image).unwrap() == expected);
}
