//! Volumes nearly full, in turn: Basalt's logs fill slack and are left there, every other round after copying what splits it; Linux goes on in its own
//! way, filling slack or not.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::{OpenOptions, Reclaim};
use basalt_segments::slack::DeviceClass;
use basalt_testkit::images::{TOOLS, mkfs_f2fs};
use basalt_testkit::rng::Rng;
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::{Uml, scratch, thorough};
use basalt_vfs::FileSystem;
use basalt_vfs::path::{FileOptions, Files};

use crate::guest::{self, Host, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, in_slack, make, open, open_with};

/// Of its volume, what the file takes, in percent.
const FULL: u64 = 93;
const LINUX: [&str; 3] = ["mode=adaptive", "mode=lfs", "mode=adaptive,active_logs=2"];
/// Blocks that each overwrites in its turn.
const BASALTS: u64 = 1500;
const LINUXS: u64 = 25;

#[test]
fn rounds_of_filling_slack() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let theirs = directory.path().join("theirs.img");
    mkfs_f2fs(&theirs, 96 << 20, &["-O", "extra_attr,inode_checksum,sb_checksum"]).unwrap();
    let ours = directory.path().join("ours.img");
    make(&ours, 96 << 20, &FormatOptions { journal_bytes: 64 << 10, ..FormatOptions::default() });
    let images = [theirs, ours];
    let sizes = images.each_ref().map(|image| fill(image));
    let mut linux = Host::boot(uml, &images, directory.path());
    let rounds = thorough::count(9, 30);
    let (mut basalts, mut islands, mut left_there, mut linuxs) = (0, 0, 0, 0);
    for round in 0..rounds {
        let context = format!("round {round}");
        for (image, blocks) in images.iter().zip(sizes) {
            let (in_place, copied) = basalts_turn(image, blocks, round, &context);
            (basalts, islands) = (basalts + in_place, islands + copied);
            left_there += in_slack(image) as u64;
        }
        let options = LINUX[(round % LINUX.len() as u64) as usize];
        let visits = [0, 1].map(|at| {
            let check = format!("$TESTKIT compare $MNT {}", guest::manifest_path(&images[at]).display());
            let script = format!("{check}; {}; {}", overwrite_in_linux(sizes[at], round), guest::record(&images[at]));
            Visit { image: images[at].clone(), options, script }
        });
        linux.visit(&visits);
        for image in &images {
            expect_clean(image, &context);
            linuxs += in_slack(image) as u64;
        }
    }
    linux.end();
    assert!(
        basalts * 3 > 1000 * rounds && left_there * 3 > 2 * rounds,
        "Basalt: {basalts} blocks, {left_there} logs left in slack"
    );
    assert!(islands * 3 > 100 * rounds, "Basalt copied {islands} islands");
    assert!(linuxs * 3 > 2 * rounds, "Linux left {linuxs} logs in slack");
    for image in &images {
        guest::manifest(image).expect_same(&manifest(&open(image)), "at the end");
    }
}

/// Fills most of a volume with a file; its blocks.
fn fill(image: &Path) -> u64 {
    let fs = open(image);
    let blocks = fs.stat_fs().unwrap().available * FULL / 100;
    let files = Files::new(&fs);
    let mut file = files.create("/file").unwrap();
    (0..blocks).for_each(|block| file.write_all(&[block as u8; 4096]).unwrap());
    drop(file);
    std::fs::write(guest::manifest_path(image), manifest(&fs).to_string()).unwrap();
    close(fs);
    blocks
}

/// Finds what Linux recorded, overwrites blocks at random, leaves a record of it for Linux. Returns how many blocks went to slack, and how many were
/// copied out of its way.
fn basalts_turn(image: &Path, blocks: u64, round: u64, context: &str) -> (u64, u64) {
    let reclaim = if round.is_multiple_of(2) { Reclaim::Slack } else { Reclaim::Partial };
    // With these times, islands are worth a copy, and full cleaning is not the better way.
    let times = DeviceClass::Emmc.device_times();
    let options = OpenOptions { reclaim, times, background_cleaning: false, ..OpenOptions::default() };
    let fs = open_with(image, options);
    assert_eq!(fs.warnings(), Vec::<String>::new());
    guest::manifest(image).expect_same(&manifest(&fs), &format!("{context}: Linux, then Basalt"));
    let files = Files::new(&fs);
    let mut file = files.open_with("/file", &FileOptions::new().write(true)).unwrap();
    let mut rng = Rng::new(round);
    for step in 0..BASALTS {
        file.seek(SeekFrom::Start(rng.below(blocks) * 4096)).unwrap();
        file.write_all(&[step as u8; 4096]).unwrap();
        if step % 50 == 0 {
            file.sync_all().unwrap();
        }
    }
    drop(file);
    let written = manifest(&fs);
    let counts = fs.statistics().written;
    close(fs);
    std::fs::write(guest::manifest_path(image), written.to_string()).unwrap();
    expect_clean(image, context);
    (counts.slack_blocks, counts.islands_copied)
}

/// Linux overwrites blocks, far from each other, where they are to be written elsewhere: below 16 GiB it writes in place of its own accord.
fn overwrite_in_linux(blocks: u64, round: u64) -> String {
    format!(
        "for policy in /sys/fs/f2fs/*/ipu_policy; do echo 0 > $policy; done; n=0; while [ $n -lt {LINUXS} ]; do \
         dd if=/dev/urandom of=$MNT/file bs=4096 count=1 conv=notrunc,fsync seek=$(( ({round} * 7919 + n * 104729) % {blocks} )) 2> /dev/null; \
         n=$((n + 1)); done"
    )
}
