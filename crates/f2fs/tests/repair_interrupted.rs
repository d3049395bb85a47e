//! Repairs that power cuts off, or whose reads fail: what was fsynced behind the last checkpoint is there before, between and afterwards.

#[allow(dead_code)]
mod editor;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_device::power::{Change, Fate};
use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, PowerCutDevice, Replay, RequestKind};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{F2fs, Geometry, OpenOptions, SystemClock};
use basalt_segments::cleaning::KeepFree;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
use editor::Editor;

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn open(device: Arc<dyn BlockDevice>, read_only: bool) -> F2fs {
    // All of the reserve is kept free: cleaning begins early and leaves a live journal.
    let options =
        OpenOptions { read_only, background_cleaning: false, keep_free: KeepFree::Reserve, ..OpenOptions::default() };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

fn make(fs: &F2fs, name: &str) -> u64 {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

/// Files of the directory `crowd`.
fn crowd(device: &MemoryDevice) -> Vec<u32> {
    let editor = Editor::new(device);
    let names = editor.entries(editor.path(&["crowd"]));
    names.into_iter().filter(|entry| entry.0 != b"." && entry.0 != b"..").map(|entry| entry.1).collect()
}

/// A file fsynced so often, and others once each, behind the checkpoint; the first ones' nodes are out of date, so their segments hold
/// nothing that is live once it is recovered.
fn fsynced_often(others: usize) -> MemoryDevice {
    let base = Arc::new(editor::filled_volume());
    let crowd = crowd(&base);
    let fs = open(base.clone(), false);
    let kept = make(&fs, "kept");
    fs.sync().unwrap();
    let busy = |steps: std::ops::Range<u32>| {
        for step in steps {
            fs.write(kept, 0, format!("{step:08}").as_bytes(), false).unwrap();
            fs.sync_file(kept, false).unwrap();
        }
    };
    busy(0..900);
    for &ino in &crowd[..others] {
        fs.write(ino.into(), 0, b"fsynced", false).unwrap();
        fs.sync_file(ino.into(), false).unwrap();
    }
    busy(900..910);
    let image = base.snapshot();
    drop(fs);
    image
}

/// What is in the file, and how many of the others are as they were fsynced.
fn fsynced(device: &MemoryDevice, others: &[u32]) -> (String, usize) {
    let fs = open(Arc::new(device.snapshot()), true);
    let read = |ino: u64| {
        let mut bytes = vec![0; 8];
        let length = fs.read(ino, 0, &mut bytes).unwrap_or_default();
        bytes.truncate(length);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let kept = fs.lookup(fs.root(), b"kept").map(|found| read(found.ino));
    let is_there = |ino: &&u32| read(u64::from(**ino)).starts_with("fsynced");
    (kept.unwrap_or_default(), others.iter().filter(is_there).count())
}

/// What recovery needs is not written over before the checkpoint of the repair is durable, though the recovery that comes first frees it.
#[test]
fn a_repair_that_is_cut_off_keeps_what_was_fsynced() {
    for (others, faults) in [(0, 700), (500, 12), (500, 40)] {
        let image = fsynced_often(others);
        let crowd = crowd(&image);
        let editor = Editor::new(&image);
        for &ino in crowd.iter().rev().take(faults) {
            editor.edit_inode(ino, |inode| inode.i_links.set(7));
        }
        let image = editor.device.snapshot();
        let others = &crowd[..others];
        let expected = ("00000909".to_owned(), others.len());
        assert_eq!(fsynced(&image, others), expected);
        let geometry = Geometry::read(&image).unwrap().0;
        let packs = u64::from(geometry.checkpoint) * BLOCK..u64::from(geometry.sit) * BLOCK;
        let device = Arc::new(PowerCutDevice::new(image));
        let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert!(report.clean && report.repaired >= faults as u64, "{report:?}");
        let history = device.history();
        let is_pack = |change: &Change| matches!(change, Change::Write { offset, .. } if packs.contains(offset));
        let first = history.changes.iter().position(is_pack).unwrap();
        assert!(first > 0);
        let cut = Replay::new(&history).cut(first, |cached| cached.iter().map(|_| Fate::Kept).collect());
        let what = format!("{} others, {faults} faults", others.len());
        assert_eq!(fsynced(&cut, others), expected, "{what}: after the cut");
        let again = Arc::new(cut);
        plan(again.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        assert_eq!(fsynced(&again, others), expected, "{what}: repaired again");
        assert_eq!(fsynced(&device.now(), others), expected, "{what}: not cut");
    }
}

/// A volume with a live cleaning journal, and three files fsynced behind its last checkpoint.
fn with_live_journal(seed: u64) -> MemoryDevice {
    const SIZE: u64 = 256 << 10;
    let device = Arc::new(MemoryDevice::new(80 << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, journal_bytes: 256 << 10, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let fs = open(device.clone(), false);
    let stat = fs.stat_fs().unwrap();
    let files = stat.available * u64::from(stat.block_size) / 100 * 75 / SIZE;
    let inos: Vec<u64> = (0..files)
        .map(|number| {
            let ino = make(&fs, &format!("file{number}"));
            fs.write(ino, 0, &vec![number as u8; SIZE as usize], false).unwrap();
            ino
        })
        .collect();
    fs.sync().unwrap();
    let mut rng = Rng::new(seed);
    for step in 0..6000u64 {
        let ino = inos[rng.index(inos.len())];
        fs.write(ino, rng.below(SIZE / BLOCK) * BLOCK, &[(step % 251) as u8; BLOCK as usize], false).unwrap();
        if rng.below(3) == 0 {
            fs.sync_file(ino, false).unwrap();
        }
    }
    for number in 0..3 {
        let ino = make(&fs, &format!("fsynced{number}"));
        fs.write(ino, 0, b"precious", false).unwrap();
        fs.sync_file(ino, false).unwrap();
    }
    let image = device.snapshot();
    drop(fs);
    image
}

/// The plan says that all is recovered. A read fails once while that is done: it is done, or it is an error, and never less.
#[test]
fn a_read_that_fails_while_a_journal_is_recovered_gives_nothing_up() {
    let image = with_live_journal(0);
    let count = |device: &MemoryDevice| {
        let fs = open(Arc::new(device.snapshot()), true);
        (0..3).filter(|number| fs.lookup(fs.root(), format!("fsynced{number}").as_bytes()).is_ok()).count()
    };
    assert_eq!(count(&image), 3);
    let (mut failed, mut done) = (0, 0);
    for failing in (0..64).chain((64..400).step_by(7)) {
        let device = Arc::new(FaultyDevice::new(image.snapshot()));
        let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
        let report = planned.report();
        assert!(report.repairs.iter().any(|repair| repair.found.contains("live cleaning journal")), "{report:?}");
        assert!(report.losses.is_empty(), "{report:?}");
        let reads = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&reads);
        device.fail_when(move |request| {
            let is_read = request.kind == RequestKind::Read;
            (is_read && counted.fetch_add(1, Ordering::Relaxed) == failing).then_some(ErrorKind::Other)
        });
        done += u32::from(planned.commit().is_ok());
        failed += u32::from(reads.load(Ordering::Relaxed) > failing);
        assert_eq!(count(&device.inner().snapshot()), 3, "read {failing}");
    }
    assert!(failed > 50 && done > 0, "{failed} reads failed, {done} repairs done");
}
