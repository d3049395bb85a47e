//! Power cuts at every request of a resize: what was not flushed is lost, kept, or kept in part, sector by sector.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice, RecordingDevice, Request, RequestKind};
use basalt_f2fs::Geometry;
use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::layout::superblock::Features;
use basalt_testkit::rng::Rng;

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
fn cut_everywhere(volume: &Volume, size: u64, seed: u64) {
    let recording = Arc::new(RecordingDevice::new(volume.device.snapshot(), true));
    let device: Arc<dyn BlockDevice> = recording.clone();
    resized(&device, size).unwrap();
    let after = Geometry::read(&*device).unwrap().0.main_segments;
    let requests: Vec<Request> =
        recording.take().into_iter().filter(|request| request.kind != RequestKind::Read).collect();
    let before = Geometry::read(&*volume.device).unwrap().0.main_segments;
    let durable = volume.device.snapshot();
    let (mut unflushed, mut old, mut new, mut pending): (Vec<&Request>, u32, u32, u32) = (Vec::new(), 0, 0, 0);
    for (at, request) in requests.iter().enumerate() {
        let in_cache = unflushed.len() as u64;
        for fate in [Fate::Lost, Fate::Kept, Fate::Torn(seed ^ at as u64)] {
            if matches!(fate, Fate::Torn(_)) && in_cache == 0 || matches!(fate, Fate::Kept) && at % 4 != 0 {
                continue;
            }
            let context = format!("cut before request {at} of {}, {fate:?}, seed {seed}", requests.len());
            let left = cut(&durable, &unflushed, fate);
            pending += u32::from(Geometry::read(&left).is_err());
            match continued(volume, left, size, at % 7 == 0, &context) {
                found if found == before => old += 1,
                found if found == after => new += 1,
                found => panic!("{context}: {found} segments"),
            }
        }
        match request.kind {
            RequestKind::Flush => unflushed.drain(..).for_each(|request| apply(&durable, request)),
            _ => unflushed.push(request),
        }
    }
    assert!(old > 0 && new > 0 && pending > 0, "{old} old, {new} new, {pending} to be finished");
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

#[test]
fn shrinking() {
    let volume = filled(64 * MIB, &FormatOptions::default(), 14, 4 * MIB, 20);
    cut_everywhere(&volume, 52 * MIB, 20);
}

#[test]
fn growing_in_place_without_a_checksum() {
    let options = FormatOptions { features: Features::empty(), ..FormatOptions::default() };
    let volume = filled(60 * MIB, &options, 10, 2 * MIB, 21).on_device_of(80 * MIB);
    cut_everywhere(&volume, 80 * MIB, 21);
}

#[test]
fn growing_with_larger_tables() {
    let volume = filled(100 * MIB, &FormatOptions::default(), 14, 4 * MIB, 22).on_device_of(1300 * MIB);
    cut_everywhere(&volume, 1300 * MIB, 22);
}

#[test]
fn growing_with_larger_tables_without_a_checksum() {
    let options = FormatOptions { features: Features::empty(), ..FormatOptions::default() };
    let volume = filled(100 * MIB, &options, 8, 2 * MIB, 23).on_device_of(1300 * MIB);
    cut_everywhere(&volume, 1300 * MIB, 23);
}
