//! Volumes that nobody unmounted, and checkpoints that were never finished.

use std::os::unix::fs::FileExt;
use std::path::Path;

use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::{F2fs, OpenOptions};
use basalt_testkit::hash::Hasher;
use basalt_testkit::images::{TOOLS, mkfs_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::{Uml, scratch};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

use crate::changes::change;
use crate::fsync::durable;
use crate::guest::{self, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, make, open, open_with};

const MIB: u64 = 1 << 20;

fn expect_warning(fs: &F2fs, words: &str) {
    let warnings = fs.warnings();
    assert!(warnings.iter().any(|warning| warning.contains(words)), "{words}: {warnings:?}");
}

fn fingerprint(image: &Path) -> u64 {
    Hasher::of(&std::fs::read(image).unwrap())
}

/// Two orphans, a checkpoint, then a change that was fsynced and one that was not.
#[test]
fn left_by_linux_with_orphans() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, 128 * MIB, &["-O", "extra_attr,inode_checksum,sb_checksum"]).unwrap();
    let script = format!(
        "$TESTKIT build $MNT 9 files=100,directories=10,crowded=100,max-size=100000
        echo small > $MNT/small; exec 8<> $MNT/small; rm $MNT/small
        dd if=/dev/urandom of=$MNT/large bs=1M count=20 status=none; exec 9<> $MNT/large; rm $MNT/large
        sync
        dd if=/dev/urandom of=$MNT/later bs=1M count=1 conv=fsync status=none
        {}; echo lost > $MNT/lost",
        guest::record(&image)
    );
    uml.clone().image(&image).with_f2fs_then_power_cut("", &script).unwrap().expect_success();
    let expected = durable(guest::manifest(&image));

    let before = fingerprint(&image);
    let fs = open_with(&image, OpenOptions { read_only: true, ..OpenOptions::default() });
    expect_warning(&fs, "not unmounted cleanly");
    expected.expect_same(&durable(manifest(&fs)), "the last checkpoint and the fsync, read only");
    close(fs);
    assert_eq!(before, fingerprint(&image), "a read-only mount wrote");

    let fs = open_with(&image, OpenOptions::default());
    expect_warning(&fs, "not unmounted cleanly");
    let usage = fs.info().usage;
    assert!(usage.used_blocks * 4096 < 20 * MIB, "the orphans are still there: {usage:?}");
    expect_warning(&fs, "1 file fsynced");
    expected.expect_same(&durable(manifest(&fs)), "the last checkpoint and the fsync");
    change(&fs, 1, 100, 30_000);
    let written = manifest(&fs);
    close(fs);
    expect_clean(&image, "closed after a power cut");
    guest::visit(uml, &[Visit::new(&image, guest::record(&image))]);
    written.expect_same(&guest::manifest(&image), "after a power cut: Basalt, then Linux");
}

/// Basalt dies with open unlinked files and changes that no checkpoint has: Linux finds the last checkpoint.
#[test]
fn left_by_basalt_with_orphans() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    make(&image, 128 * MIB, &FormatOptions::default());
    let fs = open(&image);
    change(&fs, 2, 300, 60_000);
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    for number in 0..30_u64 {
        let name = format!("open {number}");
        let ino = fs.create(fs.root(), name.as_bytes(), &file, &Caller::default()).unwrap().ino;
        fs.write(ino, number * 100_000, &vec![7; 10_000 * number as usize], false).unwrap();
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    let unnamed = fs.create_unnamed(fs.root(), 0o600, &Caller::default()).unwrap();
    fs.write(unnamed.ino, 0, b"never had a name", false).unwrap();
    let expected = manifest(&fs);
    fs.sync().unwrap();
    assert_eq!(fs.info().checkpoint.orphans, 31);
    for number in 0..20 {
        let made = fs.create(fs.root(), format!("lost {number}").as_bytes(), &file, &Caller::default()).unwrap();
        fs.write(made.ino, 0, &[8; 20_000], false).unwrap();
    }
    let cut = directory.path().join("cut.img");
    std::fs::copy(&image, &cut).unwrap();
    close(fs);
    guest::visit(uml, &[Visit::new(&cut, guest::record(&cut))]);
    expect_clean(&cut, "left by Basalt, unmounted by Linux");
    expected.expect_same(&guest::manifest(&cut), "left by Basalt, read by Linux");
    expected.expect_same(&manifest(&open(&cut)), "left by Basalt, unmounted by Linux, read by Basalt");
}

/// One end of the newer of the two checkpoint packs is damaged: it counts by its other end, is mended, and this is said.
#[test]
fn newer_checkpoint_has_a_damaged_end() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    for place in [Damaged::First, Damaged::Last] {
        let image = directory.path().join("volume.img");
        mkfs_f2fs(&image, 128 * MIB, &[]).unwrap();
        let script = format!(
            "$TESTKIT build $MNT 9 files=100,directories=10,crowded=100,max-size=100000; sync
            mkdir $MNT/later; echo new > $MNT/later/file; {}; sync",
            guest::record(&image)
        );
        // Unmounting would write two checkpoints; discards would take away what only the older one refers to.
        uml.clone().image(&image).with_f2fs_then_power_cut("nodiscard", &script).unwrap().expect_success();
        let newest = damage(&image, place);
        let fs = open_with(&image, OpenOptions::default());
        expect_warning(&fs, &format!("checkpoint at pack {}", newest + 1));
        let expected = guest::manifest(&image);
        expected.expect_same(&manifest(&fs), "the newer checkpoint");
        change(&fs, 1, 100, 30_000);
        let written = manifest(&fs);
        close(fs);
        expect_clean(&image, "after the newer checkpoint");
        guest::visit(uml.clone(), &[Visit::new(&image, guest::record(&image))]);
        written.expect_same(&guest::manifest(&image), "after the newer checkpoint: Basalt, then Linux");
    }
}

#[derive(Clone, Copy)]
enum Damaged {
    First,
    Last,
}

/// Spoils one block of the newer checkpoint pack; returns which pack that is.
fn damage(image: &Path, place: Damaged) -> u64 {
    const PACKS: [u64; 2] = [512 * 4096, 1024 * 4096];
    let file = std::fs::File::options().read(true).write(true).open(image).unwrap();
    let heads = PACKS.map(|at| {
        let mut head = [0; 4096];
        file.read_exact_at(&mut head, at).unwrap();
        head
    });
    let number = |head: &[u8; 4096], at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    // checkpoint_ver is at 0; the versions of two neighbouring checkpoints differ in their low half.
    let newest = usize::from(number(&heads[1], 0).wrapping_sub(number(&heads[0], 0)) < 1 << 31);
    // cp_pack_total_block_count is at 136.
    let block = match place {
        Damaged::First => 0,
        Damaged::Last => u64::from(number(&heads[newest], 136)) - 1,
    };
    file.write_all_at(&[0x5a; 100], PACKS[newest] + block * 4096 + 40).unwrap();
    newest as u64
}

/// Leaves holes in most segments, then writes more: on a small volume Linux fills holes then, long before it is full. One
/// that is nearly full would be cleaned instead.
const FILL_HOLES: &str = r#"perl -e '
    sub fill {
        my ($name, $count) = @_;
        for my $number (1 .. $count) {
            open my $file, ">", "$name $number" or die "$name $number: $!";
            syswrite($file, chr($number % 256) x 20000) == 20000 or die "$name $number: $!";
        }
        system "sync";
    }
    fill("first", 260);
    unlink glob "first*[13579]";
    system "sync";
    fill("second", 100)'"#;

/// Linux has filled holes of old segments (SSR): its logs are not such as can be appended to.
#[test]
fn logs_in_slack() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, 64 * MIB, &["-O", "extra_attr"]).unwrap();
    let script = format!("mkdir $MNT/d; cd $MNT/d; {FILL_HOLES}; cd /; {}", guest::record(&image));
    guest::visit(uml.clone(), &[Visit::new(&image, script)]);
    assert!(is_in_slack(&image), "Linux did not fill holes");
    let expected = guest::manifest(&image);
    let fs = open(&image);
    expected.expect_same(&manifest(&fs), "filled by Linux");
    overwrite_for_long(&fs);
    let written = manifest(&fs);
    close(fs);
    expect_clean(&image, "overwritten by Basalt");
    let again = format!("{}; $TESTKIT mutate $MNT 5 100 20000 --stop-when-full", guest::record(&image));
    guest::visit(uml, &[Visit::new(&image, again)]);
    written.expect_same(&guest::manifest(&image), "overwritten by Basalt, read by Linux");
    expect_clean(&image, "full, in turn");
}

/// Whether a log of the clean checkpoint fills holes.
fn is_in_slack(image: &Path) -> bool {
    let file = std::fs::File::open(image).unwrap();
    // alloc_type is at 176: one byte for each of six logs.
    [512, 1024].into_iter().any(|block| {
        let mut types = [0; 6];
        file.read_exact_at(&mut types, block * 4096 + 176).unwrap();
        types.contains(&1)
    })
}

/// Overwrites all files many times over: without cleaning there would be no room.
fn overwrite_for_long(fs: &F2fs) {
    let directory = fs.lookup(fs.root(), b"d").unwrap().ino;
    let names = crate::listing::names(fs, directory);
    for round in 0..6_u8 {
        for name in names.iter().filter(|name| name.kind == FileKind::Regular) {
            fs.write(name.ino, 0, &[round; 10_000], false).unwrap();
        }
        fs.sync().unwrap();
    }
    assert!(fs.info().counters.sections_cleaned > 0, "{:?}", fs.info());
}
