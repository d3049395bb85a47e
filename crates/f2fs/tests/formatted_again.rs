//! A device that is formatted again, with the same UUID and without a discard: nothing of the earlier volume belongs to the new one.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::pack::read_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn format_again(device: &MemoryDevice) {
    let options = FormatOptions { uuid: Some([7; 16]), discard: false, ..FormatOptions::default() };
    format(device, &options, &mut |_, _| ()).unwrap();
}

fn open(device: &Arc<MemoryDevice>) -> F2fs {
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap()
}

fn make(fs: &F2fs, name: &str) -> u64 {
    let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
    fs.write(ino, 0, &[7; 9_000], false).unwrap();
    ino
}

/// A volume with 50 old files, made in so many rounds, and formatted again.
fn formatted_over(rounds: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(80 << 20, 512));
    format_again(&device);
    let fs = open(&device);
    for round in 0..rounds {
        for number in 0..50 / rounds {
            let ino = make(&fs, &format!("old{round}.{number}"));
            if number == 0 {
                fs.sync_file(ino, false).unwrap();
            }
        }
        fs.sync().unwrap();
    }
    fs.close().unwrap();
    drop(fs);
    format_again(&device);
    device
}

fn version(device: &dyn BlockDevice) -> u64 {
    let geometry = Geometry::read(device).unwrap().0;
    choose_pack(device, &geometry).unwrap().0.raw.checkpoint_ver.get()
}

fn names(fs: &dyn FileSystem) -> Vec<String> {
    let mut names = Vec::new();
    let listed = fs.read_directory(fs.root(), 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    });
    assert!(listed.is_ok(), "{listed:?}");
    names.retain(|name| !matches!(name.as_str(), "." | ".."));
    names.sort();
    names
}

#[test]
fn a_damaged_checkpoint_brings_back_nothing_of_the_earlier_volume() {
    for (rounds, pack) in [1, 3, 6].into_iter().flat_map(|rounds| [(rounds, 0), (rounds, 1)]) {
        let what = format!("{rounds} rounds, pack {pack}");
        let device = formatted_over(rounds);
        let fs = open(&device);
        for number in 0..5 {
            make(&fs, &format!("new{number}"));
        }
        if pack == 0 {
            // The first one counts only when the second one was written too.
            fs.sync().unwrap();
            fs.sync_file(make(&fs, "new5"), false).unwrap();
        }
        let image = Arc::new(device.snapshot());
        drop(fs);
        let geometry = Geometry::read(&*image).unwrap().0;
        image.write_at(u64::from(geometry.checkpoint + pack * 512) * BLOCK, &[0xEE; 512]).unwrap();
        let found =
            Rescued::open(image.clone(), &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
        assert!(names(&found).iter().all(|name| !name.starts_with("old")), "{what}: {:?}", names(&found));
        let report = plan(image.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert!(report.clean, "{what}: {report:?}");
        assert!(names(&open(&image)).iter().all(|name| !name.starts_with("old")), "{what}: {report:?}");
    }
}

#[test]
fn the_first_checkpoint_is_newer_than_those_of_before() {
    let device = formatted_over(1);
    let mut last = version(&*device);
    for _ in 0..3 {
        // Whatever the superblocks say, and where formatting was cut off behind its first write.
        device.write_at(0, &[0; 2 * BLOCK as usize]).unwrap();
        format_again(&device);
        let geometry = Geometry::read(&*device).unwrap().0;
        let first = read_pack(&*device, &geometry, 0).unwrap().raw.checkpoint_ver.get();
        assert!(first > last && first % 2 == 1 && first == version(&*device), "{first} behind {last}");
        last = first;
    }
    // The same options give the same image where nothing is left of the earlier volume.
    let again = || {
        let device = MemoryDevice::new(80 << 20, 512);
        let options = FormatOptions { uuid: Some([7; 16]), discard_reads_zeros: true, ..FormatOptions::default() };
        format(&device, &options, &mut |_, _| ()).unwrap();
        format(&device, &options, &mut |_, _| ()).unwrap();
        version(&device)
    };
    assert_eq!(again(), again());
}
