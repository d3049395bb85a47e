//! Rounds in turn, nine or (with `BASALT_THOROUGH=1`) fifty: each changes what the other left, with another number of logs every time, in
//! Basalt's turn also with groups beside F2FS's logs and with hotness records, and nobody ever finds anything wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::{F2fs, OpenOptions};
use basalt_segments::Greedy;
use basalt_testkit::images::{TOOLS, mkfs_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::{Uml, scratch, thorough};
use basalt_vfs::path::Files;

use crate::changes::change;
use crate::guest::{self, Host, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, is_compact, make, open, open_with};

const TREE: &str = "files=50,directories=6,crowded=30,max-size=60000";
const LINUX: [&str; 4] = ["active_logs=6", "active_logs=4", "active_logs=2", "mode=lfs"];
/// Logs and placement.
const BASALT: [(u8, &str); 8] =
    [(6, "auto"), (4, "static"), (6, "auto"), (6, "hazard"), (2, "static"), (6, "sfs"), (4, "page-cache"), (6, "sfs")];

#[test]
fn many_rounds() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    // One volume of each kind shares every boot: made by mkfs.f2fs with small sections, made by Basalt with large ones.
    let theirs = directory.path().join("theirs.img");
    mkfs_f2fs(&theirs, 128 << 20, &["-O", "extra_attr,inode_checksum,sb_checksum"]).unwrap();
    let ours = directory.path().join("ours.img");
    make(&ours, 256 << 20, &FormatOptions { segments_per_section: 4, ..FormatOptions::default() });
    let images = [theirs, ours];
    let build = |image: &PathBuf| Visit::new(image, format!("$TESTKIT build $MNT 1 {TREE}; {}", guest::record(image)));
    let mut linux = Host::boot(uml, &images, directory.path());
    linux.visit(&images.each_ref().map(build));
    let mut forms = BTreeSet::new();
    let mut recalled = BTreeMap::<&str, u64>::new();
    // Once every combination of options, and one round more.
    for round in 0..thorough::count(9, 50) {
        let context = format!("round {round}");
        for image in &images {
            *recalled.entry(BASALT[(round % BASALT.len() as u64) as usize].1).or_default() +=
                basalts_turn(image, round, &context);
            forms.insert(("Basalt", is_compact(image)));
        }
        let visits = images.each_ref().map(|image| {
            let check = format!("$TESTKIT compare $MNT {}", guest::manifest_path(image).display());
            let mutate = guest::mutate_and_record(image, round, 50, 30_000);
            let options = LINUX[(round % LINUX.len() as u64) as usize];
            Visit { image: image.clone(), options, script: format!("{check}; {mutate}") }
        });
        linux.visit(&visits);
        for image in &images {
            expect_clean(image, &context);
            forms.insert(("Linux", is_compact(image)));
        }
    }
    linux.end();
    assert_eq!(forms.len(), 4, "not every form of summaries was met: {forms:?}");
    for placement in ["auto", "sfs"] {
        assert!(recalled[placement] > 0, "Linux leaves hotness records alone: {recalled:?}");
    }
    for image in &images {
        guest::manifest(image).expect_same(&manifest(&open(image)), "at the end");
    }
}

/// Reads what Linux recorded, changes the tree, leaves a record of it for Linux. Returns how many segments had hotness records.
fn basalts_turn(image: &Path, round: u64, context: &str) -> u64 {
    let (logs, placement) = BASALT[(round % BASALT.len() as u64) as usize];
    let placement = basalt_schemes::placement_by_name(placement).unwrap();
    let victim = placement.victim.unwrap_or(&Greedy);
    let fs = open_with(image, OpenOptions { logs, placement, victim, ..OpenOptions::default() });
    assert_eq!(fs.warnings(), Vec::<String>::new());
    guest::manifest(image).expect_same(&manifest(&fs), &format!("{context}: Linux, then Basalt"));
    change(&fs, round, 50, 30_000);
    if !placement.name.starts_with("static") {
        overwrite(&fs);
    }
    let written = manifest(&fs);
    let recalled = fs.statistics().hotness.segments_recalled;
    close(fs);
    std::fs::write(guest::manifest_path(image), written.to_string()).unwrap();
    expect_clean(image, context);
    recalled
}

/// Overwrites one file many times, so that the placement learns something.
fn overwrite(fs: &F2fs) {
    let files = Files::new(fs);
    let mut file = files.create("/overwritten").unwrap();
    for step in 0..1500_u64 {
        file.seek(SeekFrom::Start(step * 7 % 97 * 4096)).unwrap();
        file.write_all(&[step as u8; 4096]).unwrap();
        if step % 100 == 0 {
            file.sync_all().unwrap();
        }
    }
}
