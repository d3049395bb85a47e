//! Cleaning that a journal committed: clean volumes are as any other to Linux, and one whose journal is live it leaves alone.

use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_f2fs::{Error, F2fs, OpenOptions};
use basalt_testkit::hash::Hasher;
use basalt_testkit::images::{TOOLS, fsck_f2fs};
use basalt_testkit::rng::Rng;
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::uml::Status;
use basalt_testkit::{Uml, scratch};
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

use crate::fsync::durable;
use crate::guest::{self, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, make, open, open_with};

const MIB: u64 = 1 << 20;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Commits by the journal wherever it can, and leaves checkpoints to whoever asks for one.
fn options() -> OpenOptions {
    OpenOptions { pre_invalid_bytes: Some(1 << 30), cache_bytes: 4 << 20, ..OpenOptions::default() }
}

fn make_with_journal(image: &Path) {
    make(image, 128 * MIB, &FormatOptions { journal_bytes: 1 << 20, ..FormatOptions::default() });
}

/// Fills 80 percent of a volume; returns its files, of 1 MiB each.
fn fill(fs: &F2fs) -> Vec<InodeNumber> {
    let space = fs.stat_fs().unwrap();
    let count = space.available * 4096 / 5 * 4 / MIB;
    let files = (0..count).map(|number| {
        let ino = fs.create(fs.root(), format!("file{number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
        fs.write(ino, 0, &vec![number as u8; MIB as usize], false).unwrap();
        ino
    });
    let files = files.collect();
    fs.sync().unwrap();
    files
}

/// Overwrites pieces of files until the journal has committed cleanings since a checkpoint, and everything was fsynced since that.
fn churn(fs: &F2fs, files: &[InodeNumber], rng: &mut Rng) {
    let mut checkpoints = 0;
    let mut before = 0;
    for round in 1..200_000 {
        let ino = *rng.pick(files).unwrap();
        let bytes = vec![rng.next_u64() as u8; 4096 * rng.between(1, 16) as usize];
        fs.write(ino, 4096 * rng.below(240), &bytes, false).unwrap();
        if round % 8 == 0 {
            fs.sync_file(ino, false).unwrap();
        }
        let committed = |fs: &F2fs| fs.statistics().cleaning.total().journal_commits;
        if round % 500 == 0 && committed(fs) > before {
            files.iter().for_each(|&file| fs.sync_file(file, false).unwrap());
            if fs.statistics().checkpoints.total() == checkpoints && committed(fs) > before + 1 {
                return;
            }
        }
        if fs.statistics().checkpoints.total() != checkpoints {
            (checkpoints, before) = (fs.statistics().checkpoints.total(), committed(fs));
        }
    }
    panic!("the journal was not used: {:?}", fs.statistics());
}

#[test]
fn closed_after_cleaning_by_journal() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    make_with_journal(&image);
    let fs = open_with(&image, options());
    let files = fill(&fs);
    churn(&fs, &files, &mut Rng::new(11));
    let written = manifest(&fs);
    close(fs);
    expect_clean(&image, "closed after cleaning by the journal");
    let script = guest::mutate_and_record(&image, 5, 60, 20_000);
    let first = image.with_extension("first");
    let keep = format!("cp {} {}", guest::manifest_path(&image).display(), first.display());
    guest::visit(uml, &[Visit::new(&image, format!("{}\n{keep}\n{script}", guest::record(&image)))]);
    let first = std::fs::read_to_string(first).unwrap();
    written.expect_same(&first.parse().unwrap(), "closed by Basalt, read by Linux");
    expect_clean(&image, "cleaned by the journal, written by Linux");
    let fs = open(&image);
    guest::manifest(&image).expect_same(&manifest(&fs), "written by Linux, read by Basalt");
    close(fs);
}

#[test]
fn a_live_journal_keeps_linux_off_until_it_is_recovered() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    make_with_journal(&image);
    let fs = open_with(&image, options());
    let files = fill(&fs);
    churn(&fs, &files, &mut Rng::new(12));
    // Everything was fsynced: what is on the device now is all there is.
    let expected = durable(manifest(&fs));
    let cut = directory.path().join("cut.img");
    std::fs::copy(&image, &cut).unwrap();
    close(fs);
    let before = Hasher::of(&std::fs::read(&cut).unwrap());

    let refused = "if mount -t f2fs /dev/ubda /run/mnt; then exit 3; fi; if mount -t f2fs -o ro /dev/ubda /run/mnt; then exit 4; fi
        dmesg | grep 'Invalid log sectors per block' > /dev/null";
    let result = uml.clone().image(&cut).run_script(&format!("mkdir -p /run/mnt; {refused}")).unwrap();
    assert_eq!(
        result.status,
        Status::Exited(0),
        "mounted, or not told why not: {}\n{}",
        result.output,
        result.kernel_log
    );
    assert!(!fsck_f2fs(&cut).is_ok_and(|report| report.is_clean()), "fsck.f2fs takes a volume with a live journal");
    let device = || -> Arc<dyn BlockDevice> { Arc::new(FileDevice::open(&cut, &DeviceOptions::default()).unwrap()) };
    match check(&*device(), &CheckOptions::default(), &mut |_| ()) {
        Err(Error::Unsupported { reason, .. }) => assert!(reason.contains("live cleaning journal"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let fs = open_with(&cut, OpenOptions { read_only: true, ..OpenOptions::default() });
    expected.expect_same(&durable(manifest(&fs)), "a live journal, read only");
    close(fs);
    assert_eq!(before, Hasher::of(&std::fs::read(&cut).unwrap()), "somebody wrote to a volume with a live journal");

    let report = plan(device(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean, "{report:?}");
    expect_clean(&cut, "a live journal, repaired");
    guest::visit(uml, &[Visit::new(&cut, guest::record(&cut))]);
    expected.expect_same(&durable(guest::manifest(&cut)), "a live journal, repaired, read by Linux");
}
