//! A device that is formatted over an earlier volume with the same UUID, whatever of that is left: the first checkpoint is newer than all that
//! the device has, so nothing of the earlier volume is ever taken for the new one's.

#[allow(dead_code)] // Part of it is for other tests.
mod packs;
#[allow(dead_code)]
mod repaired;

use std::sync::Arc;

use basalt_device::power::{Change, Fate};
use basalt_device::{BlockDevice, DeviceLayer, FaultyDevice, MemoryDevice, PowerCutDevice, Replay};
use basalt_f2fs::Geometry;
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileSystem};
use packs::{BLOCK, FILE, ends, make, open, unreadable};

/// A device to which a discard is a hint that it does not take.
struct Deaf(MemoryDevice);

impl DeviceLayer for Deaf {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.0
    }
    fn on_discard(&self, _: u64, _: u64) -> basalt_device::Result<()> {
        Ok(())
    }
}

fn format_over(device: &dyn BlockDevice, discard: bool) {
    let options = FormatOptions { uuid: Some([7; 16]), discard, ..FormatOptions::default() };
    format(device, &options, &mut |_, _| ()).unwrap();
}

fn old_volume() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(80 << 20, 512));
    format_over(&*device, false);
    make_old(&device);
    device.snapshot()
}

fn make_old(device: &Arc<MemoryDevice>) {
    let fs = open(device.clone());
    for number in 0..50 {
        let ino = fs.create(fs.root(), format!("old{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &[7; 9_000], false).unwrap();
        if number % 10 == 0 {
            fs.sync_file(ino, false).unwrap();
            fs.sync().unwrap();
        }
    }
    fs.close().unwrap();
}

fn newest_version(device: &dyn BlockDevice) -> u64 {
    let geometry = Geometry::read(device).unwrap().0;
    choose_pack(device, &geometry).unwrap().0.raw.checkpoint_ver.get()
}

/// What mkfs asks of a block device: a discard, of which nothing is said.
#[test]
fn the_first_checkpoint_is_newer_where_a_discard_was_not_heard() {
    let device = Deaf(old_volume());
    let last = newest_version(&device);
    format_over(&device, true);
    let first = newest_version(&device);
    assert!(first > last, "{first} behind {last}");
}

/// The newest checkpoint of before cannot be read: the other one tells how far the volume had come.
#[test]
fn the_first_checkpoint_is_newer_where_the_last_cannot_be_read() {
    let old = old_volume();
    let (geometry, last) = (Geometry::read(&old).unwrap().0, newest_version(&old));
    let start = u64::from(choose_pack(&old, &geometry).unwrap().0.start) * BLOCK;
    let device = FaultyDevice::new(old);
    unreadable(&device, start..start + 512 * BLOCK);
    format_over(&device, false);
    device.heal();
    let first = newest_version(&device);
    assert!(first > last, "{first} behind {last}");
}

/// Formatting is cut off at any request, and done again.
#[test]
fn formatting_cut_off_and_done_again_is_newer_too() {
    let old = old_volume();
    let last = newest_version(&old);
    let device = Arc::new(PowerCutDevice::new(old));
    format_over(&*device, false);
    let history = device.history();
    let mut rng = Rng::new(5);
    let mut bad = Vec::new();
    for at in 0..=history.changes.len() {
        for _ in 0..10 {
            let image = Replay::new(&history).cut(at, |cached| {
                let mut fate = |change: &Change| match rng.below(3) {
                    0 => Fate::Kept,
                    1 => Fate::Lost,
                    _ => Fate::Torn((0..change.sectors()).map(|_| rng.chance(60)).collect()),
                };
                cached.iter().map(&mut fate).collect()
            });
            format_over(&image, false);
            let first = newest_version(&image);
            if first <= last {
                bad.push(format!("request {at}: {first} behind {last}: {:?}", old_names_behind(image)));
            }
        }
    }
    assert!(bad.is_empty(), "{} of {}: {:?}", bad.len(), 10 * (history.changes.len() + 1), &bad[..bad.len().min(5)]);
}

/// The volume is used, its newest checkpoint is damaged, and it is repaired: which names of the earlier volume there are then.
fn old_names_behind(image: MemoryDevice) -> Vec<String> {
    let device = Arc::new(image);
    let fs = open(device.clone());
    make(&fs, 0, 5);
    let image = Arc::new({
        fs.sync().unwrap();
        device.snapshot()
    });
    drop(fs);
    for end in ends(&image) {
        image.write_at(end * BLOCK, &[0xEE; 4096]).unwrap();
    }
    plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    repaired::tree(image).into_keys().filter(|path| path.contains("old")).collect()
}

/// An image file on a file system that punches no holes (vfat, for example): the device takes the discard and does nothing.
#[test]
fn the_first_checkpoint_is_newer_where_an_image_cannot_be_discarded() {
    let old = old_volume();
    let last = newest_version(&old);
    let device = Deaf(old);
    let options = FormatOptions { uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
    format(&device, &options, &mut |_, _| ()).unwrap();
    let first = newest_version(&device);
    let names = old_names_behind(device.0);
    assert!(first > last, "{first} behind {last}: {names:?}");
}

/// As before; what the earlier volume fsynced behind its first checkpoint is not taken for what the new one did.
#[test]
fn what_was_fsynced_before_is_not_recovered_where_an_image_cannot_be_discarded() {
    let device = Arc::new(Deaf(MemoryDevice::new(80 << 20, 512)));
    let format_image = || {
        let options = FormatOptions { uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
        format(&*device, &options, &mut |_, _| ()).unwrap();
    };
    let fsynced = |what: &str, count: u32| {
        let fs = open(device.clone());
        for number in 0..count {
            let name = format!("{what}{number}");
            let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            fs.write(ino, 0, &[7; 9_000], false).unwrap();
            fs.sync_file(ino, false).unwrap();
        }
        // As if power went.
        Arc::new(device.0.snapshot())
    };
    format_image();
    let old = fsynced("old", 20);
    assert_eq!(repaired::tree(old.clone()).keys().filter(|path| path.contains("old")).count(), 20);
    device
        .write_at(0, &{
            let mut bytes = vec![0; 80 << 20];
            old.read_at(0, &mut bytes).unwrap();
            bytes
        })
        .unwrap();
    format_image();
    let mut found = Vec::new();
    for count in [1, 2, 5] {
        let new = fsynced("new", count);
        let names: Vec<String> = repaired::tree(new).into_keys().filter(|path| path.contains("old")).collect();
        found.push((count, names));
        format_image();
    }
    assert!(found.iter().all(|(_, names)| names.is_empty()), "{found:?}");
}

/// Both checkpoints of the earlier volume are damaged: perhaps that is why it is formatted.
#[test]
fn the_first_checkpoint_is_newer_where_both_of_before_are_damaged() {
    let device = old_volume();
    let (geometry, last) = (Geometry::read(&device).unwrap().0, newest_version(&device));
    device.write_at(u64::from(geometry.checkpoint) * BLOCK, &vec![0x5A; 1024 * BLOCK as usize]).unwrap();
    format_over(&device, false);
    let first = newest_version(&device);
    let names = old_names_behind(device);
    assert!(first > last, "{first} behind {last}: {} old names", names.len());
}

/// The earlier volume had its checkpoints elsewhere, and its superblocks are gone: formatting with other sections was cut off behind its
/// first write, for example.
#[test]
fn the_first_checkpoint_is_newer_whatever_the_layout_of_before() {
    let mut bad = Vec::new();
    let layouts = [(1, 8, 0), (8, 1, 0), (1, 2, 0), (2, 1, 0), (1, 4, 1), (2, 1, 1), (1, 2, 5), (4, 1, 3)];
    for (before, after, mebibytes) in layouts {
        let device = Arc::new(MemoryDevice::new(512 << 20, 512));
        let format_with = |segments_per_section| {
            let uuid = Some([7; 16]);
            let disk_offset = mebibytes << 20;
            let options =
                FormatOptions { uuid, discard: false, segments_per_section, disk_offset, ..FormatOptions::default() };
            format(&*device, &options, &mut |_, _| ()).unwrap();
        };
        format_with(before);
        make_old(&device);
        let last = newest_version(&*device);
        device.write_at(0, &[0; 2 * BLOCK as usize]).unwrap();
        format_with(after);
        let first = newest_version(&*device);
        if first <= last {
            let names = old_names_behind(device.snapshot());
            bad.push(format!(
                "{before} segments a section, then {after}, {mebibytes} MiB into the disk: {first} behind {last}, {} old names",
                names.len()
            ));
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
