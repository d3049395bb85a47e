//! Damage inside the newest checkpoint pack, of which both ends are whole: the summaries of the logs, and the journals with the newest
//! entries of NAT and SIT, have no checksum.

#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::sync::Arc;

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice};
use basalt_f2fs::SystemClock;
use basalt_f2fs::check::{CheckOptions, FaultKind, check};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_vfs::FileSystem;
use packs::{BLOCK, FILES, Outcome, both, files, fill, fresh, last, make, open, unreadable};

/// Volumes whose newest checkpoint has entries of the NAT that the table itself has not: of new files, and of such as were written again.
fn volumes() -> Vec<(&'static str, MemoryDevice)> {
    let (is_unmounted, is_synced) = (true, false);
    vec![
        ("new files, unmounted", new_files(is_unmounted)),
        ("new files, in use", new_files(is_synced)),
        ("written again, unmounted", written_again(is_unmounted)),
        ("written again, in use", written_again(is_synced)),
    ]
}

fn new_files(is_unmounted: bool) -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 38);
    fs.close().unwrap();
    drop(fs);
    let fs = open(device.clone());
    make(&fs, 38, FILES);
    end(&fs, is_unmounted);
    let image = device.snapshot();
    drop(fs);
    image
}

fn written_again(is_unmounted: bool) -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let inos = [3, 5].map(|number| fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino);
    inos.into_iter().for_each(|ino| assert_eq!(fs.write(ino, 0, &[0; 9_000], false).unwrap(), 9_000));
    fs.close().unwrap();
    drop(fs);
    let fs = open(device.clone());
    for (ino, value) in inos.into_iter().zip([3, 5]) {
        fs.write(ino, 0, &[value; 9_000], false).unwrap();
    }
    end(&fs, is_unmounted);
    let image = device.snapshot();
    drop(fs);
    image
}

fn end(fs: &basalt_f2fs::F2fs, is_unmounted: bool) {
    if is_unmounted { fs.close().unwrap() } else { fs.sync().unwrap() }
}

#[test]
fn what_only_the_journal_has_is_found_without_it() {
    for (name, volume) in volumes() {
        let newest = both(&volume)[0].clone();
        for block in u64::from(newest.start) + 1..last(&newest) {
            for byte in [0, 0x5A, 0xFF] {
                let image = volume.snapshot();
                fill(&image, block, 1, byte);
                let found = Outcome::of(&image, files);
                let what = format!("{name}, block {} of {byte:#x}: {found:?}", block - u64::from(newest.start));
                assert!(found.rescued == Some(FILES) && found.repaired == Some(FILES) && found.losses == 0, "{what}");
                assert!(!found.is_writable || found.mounted == Some(FILES), "{what}");
            }
        }
    }
}

#[test]
fn what_only_the_journal_has_is_found_where_a_block_of_the_pack_cannot_be_read() {
    for (name, volume) in volumes() {
        let newest = both(&volume)[0].clone();
        for block in u64::from(newest.start) + 1..last(&newest) {
            let device = Arc::new(FaultyDevice::new(volume.snapshot()));
            unreadable(&device, block * BLOCK..(block + 1) * BLOCK);
            let device: Arc<dyn BlockDevice> = device;
            let found = Rescued::open(device, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap();
            let what = format!("{name}, block {}: {:?}", block - u64::from(newest.start), found.report());
            assert_eq!(files(&found), FILES, "{what}");
        }
    }
}

/// A block that looks like one without entries, where the volume could be mounted otherwise: no table contradicts, and nothing may be written.
#[test]
fn a_mount_without_the_journal_is_only_to_read() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let ino = fs.lookup(fs.root(), b"file3").unwrap().ino;
    // Of more segments than a journal has room for.
    fs.write(ino, 0, &vec![3; 20 << 20], false).unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = open(device.clone());
    fs.write(ino, 0, &[4; 9_000], false).unwrap();
    fs.close().unwrap();
    drop(fs);
    let volume = device.snapshot();
    let newest = both(&volume)[0].clone();
    fill(&volume, u64::from(newest.start) + 1, 1, 0);
    let report = check(&volume, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::NatJournal), "{:?}", report.faults);
    let fs = open(Arc::new(volume));
    assert!(!fs.is_writable() && fs.warnings().iter().any(|line| line.contains("NAT journal")), "{:?}", fs.warnings());
}
