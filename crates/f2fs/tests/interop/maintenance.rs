//! What others do to a volume that Basalt wrote: `resize.f2fs`, and Linux's own cleaning; what they see of one that was defragmented.

use std::path::Path;

use basalt_f2fs::F2fs;
use basalt_f2fs::check::FaultKind;
use basalt_f2fs::format::FormatOptions;
use basalt_testkit::images::{TOOLS, grow_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::{Manifest, Uml, scratch};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, SetAttributes};

use crate::changes::change;
use crate::guest::{self, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, expect_clean_but, make, open};

const MIB: u64 = 1 << 20;

/// Calls F2FS_IOC_GARBAGE_COLLECT (linux/f2fs.h) with `sync` until Linux finds nothing more to clean, at most 40 times.
const CLEAN: &str = r#"perl -e '
    open my $top, "<", $ENV{MNT} or die "open: $!";
    my $rounds = 0;
    for (1 .. 40) { my $sync = pack "L", 1; ioctl $top, 0x4004f506, $sync or last; $rounds++ }
    print "cleaned $rounds times\n"; exit($rounds < 3)'"#;

/// Sections of one segment only: with larger ones, resize.f2fs 1.15 fails on what mkfs.f2fs itself has just made.
#[test]
fn grown_by_resize() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    make(&image, 128 * MIB, &FormatOptions::default());
    let fs = open(&image);
    change(&fs, 3, 600, 100_000);
    let blocks = fs.stat_fs().unwrap().blocks;
    let written = finish(fs);
    grow_f2fs(&image, 300 * MIB).unwrap();
    // It writes the second pack, whatever the version.
    expect_clean_but(&image, "grown", &[FaultKind::CheckpointParity]);
    let fs = open(&image);
    assert!(fs.stat_fs().unwrap().blocks > 2 * blocks);
    written.expect_same(&manifest(&fs), "grown, read by Basalt");
    close(fs);
    let script = format!("{}; dd if=/dev/zero of=$MNT/new bs=1M count=150 status=none", guest::record(&image));
    guest::visit(uml, &[Visit::new(&image, script)]);
    written.expect_same(&guest::manifest(&image), "grown, read by Linux");
    let fs = open(&image);
    change(&fs, 4, 300, 100_000);
    close(fs);
    expect_clean(&image, "grown and written by both");
}

#[test]
fn cleaned_by_linux() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    for (segments_per_section, size, mode) in [(1, 200, "mode=lfs"), (4, 400, "mode=adaptive")] {
        make(&image, size * MIB, &FormatOptions { segments_per_section, ..FormatOptions::default() });
        let fs = open(&image);
        fragment(&fs);
        let written = finish(fs);
        expect_clean(&image, "fragmented by Basalt");
        let script = format!("{CLEAN}; echo 3 > /proc/sys/vm/drop_caches; {}", guest::record(&image));
        guest::visit(uml.clone(), &[Visit { image: image.clone(), options: mode, script }]);
        written.expect_same(&guest::manifest(&image), "cleaned by Linux");
        expect_clean(&image, "cleaned by Linux");
        let fs = open(&image);
        written.expect_same(&manifest(&fs), "cleaned by Linux, read by Basalt");
        fragment_again(&image, fs);
    }
}

/// Linux's filefrag counts the extents that Basalt counts, and finds a file in sequence.
#[test]
fn put_in_sequence_by_basalt() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) || !tools_or_skip(&["filefrag"]) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    make(&image, 128 * MIB, &FormatOptions::default());
    let fs = open(&image);
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let files = [b"one", b"two"].map(|name| fs.create(fs.root(), name, &file, &Caller::default()).unwrap().ino);
    for run in 0..80_u8 {
        files.iter().for_each(|ino| _ = fs.write(*ino, u64::from(run) << 16, &[run; 1 << 16], false).unwrap());
    }
    fs.sync().unwrap();
    let before = fs.count_extents(files[0]).unwrap().extents;
    assert_eq!(fs.defragment(files[0], 0, 80 << 16).unwrap().next, 80 << 16);
    let found = files.map(|ino| fs.count_extents(ino).unwrap().extents);
    assert!(before > 40 && found[0] <= 3 && found[1] == before, "{before} to {found:?}");
    files.iter().for_each(|ino| fs.forget(*ino, 1));
    let written = finish(fs);
    expect_clean(&image, "put in sequence by Basalt");
    let count =
        |name, extents| format!("filefrag -v $MNT/{name} | tee /dev/stderr | grep -q ' {extents} extents* found'");
    let script = [count("one", found[0]), count("two", found[1]), guest::record(&image)].join(" && ");
    guest::visit(uml, &[Visit::new(&image, script)]);
    written.expect_same(&guest::manifest(&image), "put in sequence by Basalt, read by Linux");
}

/// Fills about half of the volume, in pieces that leave no segment whole.
fn fragment(fs: &F2fs) {
    change(fs, 5, 400, 60_000);
    let file = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    for number in 0..1_200_u32 {
        let ino = fs.create(fs.root(), format!("piece {number}").as_bytes(), &file, &Caller::default()).unwrap().ino;
        let content: Vec<u8> = (0..90_000_u32).map(|at| (at.wrapping_mul(number | 1) >> 5) as u8).collect();
        fs.write(ino, 0, &content, false).unwrap();
        if number % 3 == 0 {
            fs.set_attributes(ino, &SetAttributes { size: Some(20_000), ..Default::default() }).unwrap();
        }
        fs.forget(ino, 1);
        if number % 2 == 0 {
            fs.sync_file(ino, false).unwrap();
        }
        if number % 4 == 3 {
            fs.unlink(fs.root(), format!("piece {}", number - 2).as_bytes()).unwrap();
        }
    }
}

/// Goes on writing where Linux has cleaned.
fn fragment_again(image: &Path, fs: F2fs) {
    change(&fs, 6, 400, 60_000);
    close(fs);
    expect_clean(image, "written after Linux cleaned");
}

fn finish(fs: F2fs) -> Manifest {
    let written = manifest(&fs);
    close(fs);
    written
}
