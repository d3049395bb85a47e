//! fsck: volumes that mkfs.f2fs, our own mkfs, Linux and our own engine made are clean.

use std::path::{Path, PathBuf};

use basalt_device::{FileDevice, MemoryDevice, OpenOptions};
use basalt_f2fs::check::{CheckOptions, CheckReport, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::superblock::Features;
use basalt_testkit::images::{TOOLS, fsck_f2fs, mkfs_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::variants::{Access, VARIANTS, Variant};
use basalt_testkit::{Uml, scratch};

const MIB: u64 = 1 << 20;
const TREE: &str = "files=150,directories=20,crowded=1500,max-size=400000";

fn check_file(path: &Path) -> CheckReport {
    let device = FileDevice::open(path, &OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap();
    check(&device, &CheckOptions::default(), &mut |progress| assert!(progress.done <= progress.total)).unwrap()
}

fn assert_clean(report: &CheckReport, what: &str) {
    assert!(report.is_clean() && report.complete && !report.truncated, "{what}: {}", list(report));
}

fn list(report: &CheckReport) -> String {
    report.faults.iter().take(20).map(|fault| format!("{fault}; ")).collect()
}

#[test]
fn new_volumes_of_mkfs_f2fs_are_what_fsck_f2fs_says() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    for variant in VARIANTS {
        mkfs_f2fs(&image, variant.size(), variant.arguments).unwrap();
        let report = check_file(&image);
        let clean = fsck_f2fs(&image).unwrap().is_clean();
        // mkfs.f2fs 1.15 miscounts free segments when the last section is cut off.
        assert_eq!(report.is_clean(), clean, "{}: {}", variant.name, list(&report));
        assert!(report.complete && report.counts.directories >= 1, "{}", variant.name);
    }
}

#[test]
fn new_volumes_of_our_own_are_clean() {
    for (size, per_section) in
        [(52 * MIB, 1), (300 * MIB, 1), (300 * MIB, 4), (1024 * MIB, 16), (1 << 40, 1), (5 << 40, 1)]
    {
        for features in [FormatOptions::DEFAULT_FEATURES, FormatOptions::POSSIBLE_FEATURES, Features::empty()] {
            let device = MemoryDevice::new(size, 512);
            let options = FormatOptions {
                segments_per_section: per_section,
                features,
                discard_reads_zeros: true,
                ..FormatOptions::default()
            };
            format(&device, &options, &mut |_, _| ()).unwrap();
            let report = check(&device, &CheckOptions::default(), &mut |_| ()).unwrap();
            assert!(report.faults.is_empty(), "{size} {per_section} {features:?}: {:#?}", report.faults);
        }
    }
}

/// One boot for many volumes, of which a machine can have sixteen: each is filled and changed.
fn fill(variants: &[&Variant], directory: &Path) -> Option<Vec<PathBuf>> {
    let mut uml = Uml::new_or_skip()?.quota().timeout(std::time::Duration::from_secs(180));
    let mut script = "set -e; mkdir /run/mnt\n".to_owned();
    let mut images = Vec::new();
    for (variant, letter) in variants.iter().zip('a'..) {
        let image = directory.join(format!("{}.img", variant.name));
        mkfs_f2fs(&image, variant.size(), variant.arguments).unwrap();
        uml = uml.image(&image);
        script.push_str(&format!(
            "mount -t f2fs /dev/ubd{letter} /run/mnt
             $TESTKIT build /run/mnt 5 {TREE}
             $TESTKIT mutate /run/mnt 6 200 30000 > /dev/null
             umount /run/mnt\n"
        ));
        images.push(image);
    }
    uml.run_script(&script).unwrap().expect_success();
    Some(images)
}

#[test]
fn what_linux_filled_is_clean() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let written: Vec<&Variant> = VARIANTS.iter().filter(|variant| variant.linux == Access::Writes).collect();
    for half in written.chunks(12) {
        let directory = scratch::directory().unwrap();
        let Some(images) = fill(half, directory.path()) else { return };
        for (image, variant) in images.iter().zip(half) {
            fsck_f2fs(image).unwrap().expect_clean();
            let report = check_file(image);
            assert_clean(&report, variant.name);
            let counts = &report.counts;
            assert!(counts.files > 100 && counts.directories > 10 && counts.symlinks > 0, "{counts:?}");
            assert!(counts.data_blocks > 500 && counts.reserved_blocks > 0, "{counts:?}");
        }
    }
}

#[test]
fn a_power_cut_is_no_fault() {
    if !tools_or_skip(TOOLS) {
        return;
    }
    let Some(uml) = Uml::new_or_skip() else { return };
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, 128 * MIB, &["-O", "extra_attr,inode_checksum,sb_checksum"]).unwrap();
    let script = "set -e; $TESTKIT build $MNT 5 files=50,directories=5,crowded=50; sync
        for i in 1 2 3 4 5; do dd if=/dev/urandom of=$MNT/f$i bs=64k count=3 conv=fsync 2> /dev/null; done
        dd if=/dev/urandom of=$MNT/lost bs=64k count=3 2> /dev/null";
    uml.image(&image).with_f2fs_then_power_cut("", script).unwrap();
    let report = check_file(&image);
    assert_clean(&report, "after a power cut");
    let notes: Vec<&str> = report.faults.iter().map(|fault| fault.kind.name()).collect();
    assert_eq!(notes, ["not-unmounted", "roll-forward"]);
    assert!(
        report.faults[1].found.starts_with("5 ") || report.faults[1].found.starts_with("10 "),
        "{:?}",
        report.faults
    );
}
