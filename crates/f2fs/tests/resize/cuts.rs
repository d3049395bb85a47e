//! Power cuts at every request of a resize: what was not flushed is lost, kept, or kept in part, sector by sector.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice, RecordingDevice, Request, RequestKind};
use basalt_f2fs::Geometry;
use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::resize::finish;
use basalt_testkit::images::TOOLS;
use basalt_testkit::rng::Rng;
use basalt_testkit::scratch;
use basalt_testkit::skip::tools_or_skip;

use super::support::{MIB, SECTOR, Volume, expect_clean, expect_files, filled, open, resized};

/// Which of the writes since the last flush reach the device.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Lost,
    Kept,
    /// Any sectors of any of them.
    Torn(u64),
}

/// Cuts a resize at every request.
fn cut_everywhere(volume: &Volume, memory: &MemoryDevice, size: u64, seed: u64) {
    let recording = Arc::new(RecordingDevice::new(memory.snapshot(), true));
    let device: Arc<dyn BlockDevice> = recording.clone();
    resized(&device, size).unwrap();
    let after = Geometry::read(&*device).unwrap().0.main_segments;
    let before = Geometry::read(&*volume.device).unwrap().0.main_segments;
    let (mut old, mut new, mut pending) = (0, 0, 0);
    each_cut(memory, recording.take(), seed, &mut |at, left, context| {
        let is_marked = Geometry::read(&left).is_err();
        pending += u32::from(is_marked);
        if is_marked && pending == 1 && seed % 8 == 4 && left.size() < 100 * MIB {
            refused_by_linux(&left);
        }
        if is_marked && pending % 4 == 1 {
            cut_while_finishing(volume, &left, size, after, context);
        }
        match continued(volume, left, size, at % 7 == 0, context) {
            found if found == before => old += 1,
            found if found == after => new += 1,
            found => panic!("{context}: {found} segments"),
        }
    });
    assert!(old > 0 && new > 0 && pending > 0, "{old} old, {new} new, {pending} to be finished");
}

/// Cuts what finishes an interrupted resize.
fn cut_while_finishing(volume: &Volume, left: &MemoryDevice, size: u64, after: u32, context: &str) {
    let recording = RecordingDevice::new(left.snapshot(), true);
    finish(&recording, &mut |_, _, _| ()).unwrap();
    each_cut(left, recording.take(), 7, &mut |_, left, again| {
        let context = format!("{context}; while it is finished: {again}");
        assert_eq!(continued(volume, left, size, false, &context), after, "{context}");
    });
}

/// Shows what is left on a device that began as `start`, for a cut before each of the requests.
fn each_cut(start: &MemoryDevice, requests: Vec<Request>, seed: u64, visit: &mut dyn FnMut(usize, MemoryDevice, &str)) {
    let durable = start.snapshot();
    let requests: Vec<Request> = requests.into_iter().filter(|request| request.kind != RequestKind::Read).collect();
    let mut unflushed: Vec<&Request> = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        for fate in [Fate::Lost, Fate::Kept, Fate::Torn(seed ^ at as u64)] {
            if matches!(fate, Fate::Torn(_)) && unflushed.is_empty() || matches!(fate, Fate::Kept) && at % 4 != 0 {
                continue;
            }
            let context = format!("cut before request {at} of {}, {fate:?}, seed {seed}", requests.len());
            visit(at, cut(&durable, &unflushed, fate), &context);
        }
        match request.kind {
            RequestKind::Flush => unflushed.drain(..).for_each(|request| apply(&durable, request)),
            _ => unflushed.push(request),
        }
    }
}

/// `fsck.f2fs` leaves a volume alone whose resize has to be finished, even when told to repair all it can.
fn refused_by_linux(left: &MemoryDevice) {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let path = directory.path().join("image");
    let mut content = vec![0; left.size() as usize];
    left.read_at(0, &mut content).unwrap();
    std::fs::write(&path, &content).unwrap();
    let status = std::process::Command::new("fsck.f2fs").args(["-f", "-y"]).arg(&path).output().unwrap().status;
    assert!(!status.success(), "{status}");
    assert!(std::fs::read(&path).unwrap() == content, "fsck.f2fs changed it");
}

fn apply(device: &MemoryDevice, request: &Request) {
    match &request.data {
        Some(data) => device.write_at(request.offset, data).unwrap(),
        None => device.discard(request.offset, request.length).unwrap(),
    }
}

fn cut(durable: &MemoryDevice, unflushed: &[&Request], fate: Fate) -> MemoryDevice {
    let device = durable.snapshot();
    match fate {
        Fate::Lost => {}
        Fate::Kept => unflushed.iter().for_each(|request| apply(&device, request)),
        Fate::Torn(seed) => {
            let mut rng = Rng::new(seed);
            for request in unflushed {
                let Some(data) = &request.data else {
                    if rng.chance(50) {
                        apply(&device, request);
                    }
                    continue;
                };
                for (offset, sector) in (request.offset..).step_by(SECTOR as usize).zip(data.chunks(SECTOR as usize)) {
                    if rng.chance(50) {
                        device.write_at(offset, sector).unwrap();
                    }
                }
            }
        }
    }
    device
}

/// Opens what is left, and expects everything there and nothing wrong; perhaps resizes again. Gives the segments found first.
fn continued(volume: &Volume, left: MemoryDevice, size: u64, again: bool, context: &str) -> u32 {
    let device: Arc<dyn BlockDevice> = Arc::new(left);
    let fs = open(device.clone()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = Geometry::read(&*device).unwrap_or_else(|error| panic!("{context}: {error}")).0.main_segments;
    expect_files(&fs, &volume.files, context);
    basalt_vfs::FileSystem::close(&fs).unwrap();
    drop(fs);
    expect_clean(&*device, context);
    if again {
        resized(&device, size).unwrap_or_else(|error| panic!("{context}: again: {error}"));
        expect_clean(&*device, &format!("{context}: again"));
        expect_files(&open(device).unwrap(), &volume.files, &format!("{context}: again"));
    }
    found
}

/// Cuts the resizes of several volumes of `before` bytes with `bytes` in files.
fn cut_volumes(options: &FormatOptions, before: u64, after: u64, bytes: u64, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let memory = Arc::new(MemoryDevice::new(before.max(after), SECTOR));
        let volume = filled(memory.clone(), before, options, 14, bytes, seed);
        cut_everywhere(&volume, &memory, after, seed);
    }
}

fn without_checksums() -> FormatOptions {
    FormatOptions { features: Features::empty(), ..FormatOptions::default() }
}

#[test]
fn shrinking() {
    cut_volumes(&FormatOptions::default(), 64 * MIB, 52 * MIB, 4 * MIB, 100..108);
    cut_volumes(&FormatOptions::default(), 100 * MIB, 72 * MIB, 20 * MIB, 110..112);
    cut_volumes(&without_checksums(), 64 * MIB, 58 * MIB, 8 * MIB, 120..124);
}

#[test]
fn shrinking_with_large_sections() {
    let options = FormatOptions { segments_per_section: 2, ..FormatOptions::default() };
    cut_volumes(&options, 128 * MIB, 112 * MIB, 8 * MIB, 130..134);
}

#[test]
fn growing_in_place() {
    cut_volumes(&FormatOptions::default(), 60 * MIB, 80 * MIB, 4 * MIB, 200..206);
    cut_volumes(&without_checksums(), 60 * MIB, 80 * MIB, 4 * MIB, 210..216);
}

#[test]
fn growing_with_larger_tables() {
    cut_volumes(&FormatOptions::default(), 100 * MIB, 1300 * MIB, 8 * MIB, 300..306);
    cut_volumes(&without_checksums(), 100 * MIB, 1300 * MIB, 8 * MIB, 310..316);
}
