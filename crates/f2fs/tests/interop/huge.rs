//! Volumes so large that their version bitmaps do not fit the checkpoint's first block (`cp_payload`).

use std::path::PathBuf;

use basalt_f2fs::format::FormatOptions;
use basalt_testkit::images::{TOOLS, mkfs_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::{Uml, scratch};

use crate::changes::change;
use crate::guest::{self, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, make, open};

const TIB: u64 = 1 << 40;

#[test]
fn six_tebibytes() {
    // Linux keeps about a hundred bytes for each of three million segments.
    let Some(uml) = Uml::new_or_skip().map(|uml| uml.memory_mib(1_500)) else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let theirs = directory.path().join("theirs.img");
    mkfs_f2fs(&theirs, 6 * TIB, &["-O", "extra_attr,inode_checksum,sb_checksum"]).unwrap();
    let ours = directory.path().join("ours.img");
    make(&ours, 6 * TIB, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() });
    let fill = "$TESTKIT build $MNT 2 files=80,directories=8,crowded=50,max-size=60000";
    let images = [theirs, ours];
    let build = |image: &PathBuf| Visit::new(image, format!("{fill}; {}", guest::record(image)));
    guest::visit(uml.clone(), &images.each_ref().map(build));
    let written = images.each_ref().map(|image| {
        let fs = open(image);
        guest::manifest(image).expect_same(&manifest(&fs), "6 TiB filled by Linux");
        change(&fs, 1, 100, 30_000);
        let written = manifest(&fs);
        close(fs);
        expect_clean(image, "6 TiB written by Basalt");
        written
    });
    guest::visit(uml, &images.each_ref().map(|image| Visit::new(image, guest::record(image))));
    for (image, written) in images.iter().zip(written) {
        written.expect_same(&guest::manifest(image), "6 TiB written by Basalt, read by Linux");
    }
}
