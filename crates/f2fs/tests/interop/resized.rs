//! Volumes that Basalt resized, as Linux sees them.

use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::resize::resize;
use basalt_f2fs::{Clock, OpenOptions, SystemClock};
use basalt_testkit::images::{TOOLS, mkfs_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::{Uml, scratch};

use crate::changes::change;
use crate::guest::{self, Host, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, make, open};

const MIB: u64 = 1 << 20;
/// Length of the images, room for the largest size.
const LENGTH: u64 = 2300 * MIB;
const TREE: &str = "files=60,directories=6,crowded=40,max-size=200000";

/// Resizes, and expects that nobody finds fault.
fn to(path: &Path, size: u64) {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path, &DeviceOptions::default()).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = resize(&device, size, &OpenOptions::default(), &clock, &mut |_, _, _| ()).unwrap();
    assert_eq!(report.after.bytes, size);
    drop(device);
    expect_clean(path, &format!("resized to {size}"));
}

/// Linux reads what was there, writes until little is left, and cleans up; volumes that Linux made and Basalt made, grown in
/// place, with larger tables, and shrunk.
#[test]
fn linux_goes_on_with_resized_volumes() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let theirs = directory.path().join("theirs.img");
    mkfs_f2fs(&theirs, 150 * MIB, &[]).unwrap();
    let ours = directory.path().join("ours.img");
    make(&ours, 300 * MIB, &FormatOptions { segments_per_section: 2, ..FormatOptions::default() });
    let images = [theirs.as_path(), ours.as_path()];
    for image in images {
        // Disks of the machine keep their size.
        std::fs::File::options().write(true).open(image).unwrap().set_len(LENGTH).unwrap();
    }
    let mut linux = Host::boot(uml, &images.map(Path::to_path_buf), directory.path());
    let build = |image| Visit::new(image, format!("$TESTKIT build $MNT 5 {TREE}; {}", guest::record(image)));
    linux.visit(&images.map(build));
    let mut expected = images.map(guest::manifest);
    for sizes in [[200 * MIB, 180 * MIB], [1500 * MIB, LENGTH], [120 * MIB, 160 * MIB]] {
        for ((image, size), expected) in images.iter().zip(sizes).zip(&expected) {
            to(image, size);
            let fs = open(image);
            expected.expect_same(&manifest(&fs), &format!("resized to {size}, read by Basalt"));
            close(fs);
        }
        let visits = images.map(|image| {
            let script = format!(
                "{0}; cp {1} {1}.before; free=$(df -m $MNT | awk 'END {{ print $4 }}'); test $free -gt 20
                dd if=/dev/zero of=$MNT/large bs=1M count=$((free > 200 ? 100 : free * 3 / 4)) status=none; sync; rm $MNT/large; sync
                $TESTKIT mutate $MNT {2} 60 40000 > /dev/null; {0}",
                guest::record(image),
                guest::manifest_path(image).display(),
                sizes[0] / MIB
            );
            Visit::new(image, script)
        });
        linux.visit(&visits);
        for (image, expected) in images.iter().zip(&mut expected) {
            let before = format!("{}.before", guest::manifest_path(image).display());
            expected.expect_same(&std::fs::read_to_string(before).unwrap().parse().unwrap(), "read by Linux");
            *expected = guest::manifest(image);
            expect_clean(image, "written by Linux");
        }
    }
    linux.end();
    for image in images {
        let fs = open(image);
        change(&fs, 9, 200, 50_000);
        close(fs);
        expect_clean(image, "written by Basalt");
    }
}
