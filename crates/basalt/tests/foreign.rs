//! What commands say of a target that is no F2FS volume, or no longer looks like one: what it holds, and what helps. Nobody is sent to
//! mkfs whose data may be there.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use basalt_testkit::rng::Rng;
use basalt_testkit::skip;
use rustix::fs::FallocateFlags;
use support::{Scratch, basalt};

const BLOCK: usize = 4096;

/// A volume of 64 MiB with files in it, as bytes.
fn volume(scratch: &Scratch) -> Vec<u8> {
    let tree = scratch.directory("tree");
    for number in 0..300 {
        fs::write(tree.join(format!("file{number}")), vec![number as u8; 10_000]).unwrap();
    }
    basalt(["put", "-r", &scratch.text("image"), tree.to_str().unwrap(), "/"]).ok();
    fs::read(scratch.path("image")).unwrap()
}

/// Mount, fsck, info and ls all say the same, and none names mkfs unless it is wanted.
fn expect_said(scratch: &Scratch, target: &str, parts: &[&str]) {
    let point = scratch.directory("point");
    let commands: [(&[&str], i32); 5] = [
        (&["ls", target], 1),
        (&["info", target], 1),
        (&["fsck", target], 8),
        (&["fsck", "--repair", target], 8),
        (&["mount", target, point.to_str().unwrap()], 32),
    ];
    for (arguments, code) in commands {
        let done = basalt(arguments);
        let said = done.err();
        assert_eq!(done.code(), code, "{arguments:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}, expected {parts:?}");
        assert!(said.contains("mkfs") == parts.contains(&"basalt mkfs"), "{arguments:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
    }
}

/// mkfs leaves alone what the others recognize, and says so in the same words.
fn expect_spared_by_mkfs(target: &str, part: &str) {
    let before = fs::read(target).unwrap();
    for arguments in [&["mkfs", target][..], &["mkfs", "-n", target]] {
        basalt(arguments).fails(1, &[part, "basalt rescue", "--force"]);
    }
    assert!(fs::read(target).unwrap() == before, "{target}: something was written");
    basalt(["mkfs", "-q", "--force", target]).ok();
}

#[test]
fn a_volume_without_superblocks_is_sent_to_rescue_which_helps() {
    let scratch = Scratch::with_volume("64M");
    let bytes = volume(&scratch);
    for filling in [0, 0xFF] {
        let mut bytes = bytes.clone();
        bytes[..2 * BLOCK].fill(filling);
        let target = scratch.file("headless", bytes);
        expect_said(&scratch, &target, &["superblocks are gone", "basalt rescue"]);
        let saved = scratch.text(&format!("saved{filling}"));
        basalt(["rescue", "-q", &target, &saved]).ok();
        assert_eq!(fs::read(format!("{saved}/tree/file7")).unwrap(), [7; 10_000]);
        expect_spared_by_mkfs(&target, "superblocks are gone");
    }
}

#[test]
fn a_volume_that_was_cut_off_is_sent_to_rescue() {
    let scratch = Scratch::with_volume("64M");
    let bytes = volume(&scratch);
    let target = scratch.file("cut", &bytes[..40 << 20]);
    let point = scratch.directory("point");
    for (arguments, code) in
        [(vec!["ls", &target], 1), (vec!["info", &target], 1), (vec!["mount", &target, point.to_str().unwrap()], 32)]
    {
        basalt(arguments).fails(code, &["cut off", "41943040 are there", "basalt rescue"]);
    }
    let checked = basalt(["fsck", &target]);
    assert!(checked.code() == 4 && checked.out().contains("cut off"), "{}", checked.out());
    assert!(checked.out().contains("basalt rescue"), "{}", checked.out());
}

/// Another format was put over it, perhaps by mistake a minute ago.
#[test]
fn what_was_overwritten_is_named_and_what_is_left_too() {
    let scratch = Scratch::with_volume("64M");
    let mut bytes = volume(&scratch);
    bytes[..2 * BLOCK].fill(0);
    bytes[512..520].copy_from_slice(b"EFI PART");
    let target = scratch.file("partitioned", bytes);
    expect_said(&scratch, &target, &["GPT partition table", "left of an F2FS volume", "basalt rescue"]);
}

#[test]
fn other_formats_are_named_with_what_opens_them() {
    let scratch = Scratch::new();
    type Write = (usize, &'static [u8]);
    let mbr: [Write; 2] = [(450, b"\x83"), (510, b"\x55\xAA")];
    let cases: [(&str, &[Write], &[&str]); 12] = [
        ("gpt", &[(512, b"EFI PART")], &["GPT partition table", "partitions"]),
        ("mbr", &mbr, &["MBR partition table", "partitions"]),
        ("luks", &[(0, b"LUKS\xBA\xBE\0\x02")], &["LUKS", "cryptsetup open"]),
        ("lvm", &[(512, b"LABELONE")], &["LVM2", "vgchange"]),
        ("raid", &[(4096, b"\xFC\x4E\x2B\xA9")], &["RAID", "mdadm"]),
        ("squashfs", &[(0, b"hsqs")], &["squashfs"]),
        ("iso", &[(32_769, b"CD001")], &["iso9660"]),
        ("swap", &[(4086, b"SWAPSPACE2")], &["swap"]),
        ("ntfs", &[(3, b"NTFS    ")], &["ntfs"]),
        ("exfat", &[(3, b"EXFAT   ")], &["exfat"]),
        ("fat", &[(82, b"FAT32   ")], &["vfat"]),
        ("bitlocker", &[(3, b"-FVE-FS-")], &["bitlocker", "bitlk"]),
    ];
    for (name, writes, parts) in cases {
        let target = scratch.text(name);
        let file = File::create(&target).unwrap();
        file.set_len(32 << 20).unwrap();
        writes.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at as u64).unwrap());
        expect_said(&scratch, &target, parts);
    }
}

#[test]
fn what_other_tools_make_is_named() {
    let cases: [(&str, &[&str], &str); 6] = [
        ("mkfs.ext2", &["-q", "-F"], "ext2"),
        ("mkfs.ext4", &["-q", "-F"], "ext4"),
        ("mkfs.xfs", &["-q", "-f"], "xfs"),
        ("mkfs.btrfs", &["-q", "-f"], "btrfs"),
        ("mkfs.vfat", &[], "vfat"),
        ("mkswap", &["-q"], "swap"),
    ];
    let scratch = Scratch::new();
    let mut known = 0;
    for (tool, arguments, name) in cases {
        let target = scratch.text(name);
        File::create(&target).unwrap().set_len(400 << 20).unwrap();
        let Ok(output) = Command::new(tool).args(arguments).arg(&target).output() else { continue };
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
        expect_said(&scratch, &target, &["no F2FS volume", &format!("it holds {name}")]);
        known += 1;
    }
    assert!(known >= 2, "only {known} tools are installed");
}

/// A device of several, or a piece of an image: its nodes say that they belong elsewhere.
#[test]
fn pieces_of_a_volume_are_told_from_a_volume() {
    let scratch = Scratch::with_volume("64M");
    let bytes = volume(&scratch);
    let piece = scratch.file("piece", &bytes[8 << 20..]);
    expect_said(&scratch, &piece, &["part of an F2FS volume", "2048 blocks", "several devices"]);
    expect_spared_by_mkfs(&piece, "part of an F2FS volume");
    let shifted = scratch.file("shifted", [vec![0xEE; 1 << 20], bytes].concat());
    expect_said(&scratch, &shifted, &["begin at byte 1048576", "losetup --offset 1048576"]);
    expect_spared_by_mkfs(&shifted, "begin at byte 1048576");
}

#[test]
fn one_of_several_devices_says_so() {
    if !skip::tools_or_skip(&["mkfs.f2fs"]) {
        return;
    }
    let scratch = Scratch::new();
    let (first, second) = (scratch.text("first"), scratch.text("second"));
    for path in [&first, &second] {
        File::create(path).unwrap().set_len(200 << 20).unwrap();
    }
    let made = Command::new("mkfs.f2fs").args(["-q", "-f", "-c", &second, &first]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    basalt(["ls", &first]).fails(1, &["several devices"]);
    basalt(["fsck", &first]).fails(8, &["several devices"]);
}

#[test]
fn only_what_is_empty_is_sent_to_mkfs() {
    let scratch = Scratch::new();
    let zeros = scratch.text("zeros");
    File::create(&zeros).unwrap().set_len(64 << 20).unwrap();
    expect_said(&scratch, &zeros, &["only zeros", "basalt mkfs"]);
    let mut rng = Rng::new(15);
    let noise: Vec<u8> = (0..8 << 20).map(|_| rng.below(256) as u8).collect();
    let noise = scratch.file("noise", noise);
    expect_said(&scratch, &noise, &["nothing that is known", "basalt rescue"]);
    let short = scratch.file("short", "x".repeat(1000));
    expect_said(&scratch, &short, &["only 1000 bytes"]);
    // A single block somewhere is not nothing.
    let speck = scratch.text("speck");
    let file = File::create(&speck).unwrap();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(b"a diary", 5 << 20).unwrap();
    expect_said(&scratch, &speck, &["nothing that is known"]);
}

/// A sparse file of this size; what is written to it is all it holds.
fn sparse(scratch: &Scratch, name: &str, size: u64, writes: &[(u64, &[u8])]) -> String {
    let file = File::create(scratch.path(name)).unwrap();
    file.set_len(size).unwrap();
    writes.iter().for_each(|&(at, bytes)| file.write_all_at(bytes, at).unwrap());
    scratch.text(name)
}

/// On a large image, samples alone miss what is there: `mkfs` was named then, and asked for no `--force`.
#[test]
fn files_of_a_large_image_without_metadata_are_found() {
    const SIZE: &str = "64G";
    let scratch = Scratch::with_volume(SIZE);
    let tree = scratch.directory("tree");
    (0..300).for_each(|number| fs::write(tree.join(format!("file{number}")), [number as u8; 5000]).unwrap());
    let target = scratch.text("image");
    basalt(["put", "-r", &target, tree.to_str().unwrap(), "/"]).ok();
    let main = basalt(["info", "--json", &target]).json()["areas"]["main"].as_u64().unwrap();
    let file = File::options().write(true).open(&target).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, main * BLOCK as u64)
        .unwrap();
    expect_said(&scratch, &target, &["superblocks are gone", "basalt rescue"]);
    for arguments in [&["mkfs", &target][..], &["mkfs", "-n", &target]] {
        basalt(arguments).fails(1, &["superblocks are gone", "basalt rescue", "--force"]);
    }
    basalt(["mkfs", "-q", "--force", &target]).ok();
    basalt(["fsck", &target]).ok();
}

/// Holes are known to be zeros, whatever the size. A single byte anywhere is not nothing.
#[test]
fn a_sparse_image_is_empty_only_if_it_is_all_holes() {
    let scratch = Scratch::new();
    let holes = sparse(&scratch, "holes", 64 << 30, &[]);
    expect_said(&scratch, &holes, &["only zeros", "basalt mkfs"]);
    basalt(["mkfs", "-q", &holes]).ok();
    // Somewhere between samples, and behind the last whole block.
    for (name, size, at) in [("between", 64 << 30, (37 << 30) + 12_345_678), ("end", (1 << 30) + 100, (1 << 30) + 99)] {
        let speck = sparse(&scratch, name, size, &[(at, b"x")]);
        expect_said(&scratch, &speck, &["nothing that is known", "basalt rescue"]);
    }
    // What is allocated and holds zeros is looked at.
    let written = sparse(&scratch, "written", 64 << 30, &[((37 << 30) + 12_345_678, &[0; 100])]);
    expect_said(&scratch, &written, &["only zeros", "basalt mkfs"]);
}

/// What was not looked at may be somebody's data. A new disk can be formatted all the same.
#[test]
fn zeros_as_far_as_was_looked_are_not_called_empty() {
    let scratch = Scratch::new();
    let target = scratch.text("zeros");
    let file = File::create(&target).unwrap();
    (0..80).for_each(|part| file.write_all_at(&[0; 1 << 20], part << 20).unwrap());
    expect_said(&scratch, &target, &["zeros wherever it was looked", "basalt rescue", "searches the whole device"]);
    basalt(["mkfs", "-q", "-n", &target]).ok();
    basalt(["mkfs", "-q", &target]).ok();
}
