//! Volumes as Basalt makes, opens and leaves them.

use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::check::{CheckOptions, FaultKind, Severity, check};
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::checkpoint::pack::read_pack;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::checkpoint::CheckpointFlags;
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_testkit::images::fsck_f2fs;
use basalt_vfs::FileSystem;

/// Makes a volume in a new image file, instead of what was there.
pub fn make(path: &Path, size: u64, options: &FormatOptions) {
    let _ = std::fs::remove_file(path);
    drop(FileDevice::create(path, size).unwrap());
    let device = FileDevice::open(path, &DeviceOptions::default()).unwrap();
    format(&device, options, &mut |_, _| {}).unwrap();
}

/// Opens the volume, whatever it has to say.
pub fn open_with(path: &Path, options: OpenOptions) -> F2fs {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path, &DeviceOptions::default()).unwrap());
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Opens a volume about which there must be nothing to say.
pub fn open(path: &Path) -> F2fs {
    let fs = open_with(path, OpenOptions::default());
    assert_eq!(fs.warnings(), Vec::<String>::new(), "{}", path.display());
    assert!(fs.is_writable());
    fs
}

/// Closes the volume and lets go of the image.
pub fn close(fs: F2fs) {
    fs.close().unwrap();
    assert_eq!(fs.failure(), None);
}

/// Nobody finds anything wrong with the volume.
pub fn expect_clean(path: &Path, context: &str) {
    expect_clean_but(path, context, &[]);
}

/// Nobody finds anything wrong with the volume, but for faults of these kinds.
pub fn expect_clean_but(path: &Path, context: &str, excused: &[FaultKind]) {
    let report = fsck_f2fs(path).unwrap();
    assert!(report.is_clean(), "{context}: {}: {report}", path.display());
    let device = FileDevice::open(path, &DeviceOptions { read_only: true, ..DeviceOptions::default() }).unwrap();
    let mut report = check(&device, &CheckOptions::default(), &mut |_| ()).unwrap();
    report.faults.retain(|fault| fault.kind.severity() != Severity::Note && !excused.contains(&fault.kind));
    let faults: Vec<String> = report.faults.iter().take(20).map(ToString::to_string).collect();
    assert!(faults.is_empty() && report.complete, "{context}: {}: basalt: {faults:#?}", path.display());
    drop(device);
    expect_end_to_do(path, context);
}

/// Whoever wrote the newest checkpoint: its last block alone tells of it, because what is in front of that is possible.
fn expect_end_to_do(path: &Path, context: &str) {
    let device = FileDevice::open(path, &DeviceOptions::default()).unwrap();
    let geometry = Geometry::read(&device).unwrap().0;
    let newest = choose_pack(&device, &geometry).unwrap().0;
    let Ok(other) = read_pack(&device, &geometry, 1 - newest.index) else { return };
    let (version, before) = (newest.raw.checkpoint_ver.get(), other.raw.checkpoint_ver.get());
    // fsck.f2fs leaves others behind.
    if before != 0 && !(1..=2).contains(&version.wrapping_sub(before)) {
        return;
    }
    let place = u64::from(newest.start) * 4096 + 200;
    let flip = || {
        let mut byte = [0];
        device.read_at(place, &mut byte).unwrap();
        device.write_at(place, &[byte[0] ^ 0x10]).unwrap();
    };
    flip();
    let report = check(&device, &CheckOptions::default(), &mut |_| ());
    flip();
    let kinds: Vec<FaultKind> = report.unwrap().faults.iter().map(|fault| fault.kind).collect();
    let is_right = kinds.contains(&FaultKind::CheckpointEnd) && !kinds.contains(&FaultKind::CheckpointLost);
    assert!(is_right, "{context}: {}: version {version} behind {before}: {kinds:?}", path.display());
}

/// Logs that the checkpoint in use has left in slack.
pub fn in_slack(path: &Path) -> usize {
    let device = FileDevice::open(path, &DeviceOptions { read_only: true, ..DeviceOptions::default() }).unwrap();
    let geometry = Geometry::read(&device).unwrap().0;
    let pack = choose_pack(&device, &geometry).unwrap().0;
    pack.raw.alloc_type[..6].iter().filter(|how| **how == 1).count()
}

/// Whether the checkpoint in use has its data summaries in the compact form.
pub fn is_compact(path: &Path) -> bool {
    let fs = open_with(path, OpenOptions { read_only: true, ..OpenOptions::default() });
    CheckpointFlags::from_bits_retain(fs.info().checkpoint.flags).contains(CheckpointFlags::COMPACT_SUMMARY)
}
