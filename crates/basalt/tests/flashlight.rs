//! FlashLight volumes in images of NAND chips: `mkfs --type flashlight`, and all commands on what it made.

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::process::Command;

use basalt_testkit::loopdev::LoopDevice;
use basalt_testkit::tree::{TreeOptions, build_random_tree};
use basalt_testkit::{Manifest, skip};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use support::{Mounted, Scratch, basalt, can_mount, mount_line, server_of, wait_until};

/// 16 MiB, with spare bytes for the weaker code.
const CHIP: &str = "2048+64x64x128";
const RAW_PAGE: usize = 2048 + 64;
const RAW_BLOCK: usize = 64 * RAW_PAGE;

/// A directory with a new volume in `image`.
fn with_volume(chip: &str) -> Scratch {
    let scratch = Scratch::new();
    basalt(["mkfs", "-q", "-t", "flashlight", "--nand", chip, &scratch.text("image")]).ok();
    scratch
}

/// A tree without what the format has not: hard links, extended attributes, preallocated files, links to more than 1,600 bytes.
fn plain_tree(sparse: bool) -> TreeOptions {
    let plain = TreeOptions {
        hard_links: false,
        xattrs: false,
        acls: false,
        symlinks: false,
        sparse,
        ..TreeOptions::default()
    };
    TreeOptions { files: 120, directories: 20, max_size: 100_000, ..plain }
}

/// Marks a block bad, as the factory does.
fn mark_bad(scratch: &Scratch, block: usize) {
    let file = File::options().write(true).open(scratch.path("image")).unwrap();
    file.write_all_at(&[0; 2], (block * RAW_BLOCK + 2048) as u64).unwrap();
}

#[test]
fn a_volume_is_made_shown_and_checked() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    let uuid = "11111111-2222-3333-4444-555555555555";
    let mkfs = |more: &[&str]| {
        let plain =
            ["mkfs", "--json", "-t", "flashlight", "--nand", "W25N01KV", "-L", "firmware", "--uuid", uuid, &image];
        basalt([&plain, more].concat()).json()
    };
    let rehearsed = mkfs(&["-n"]);
    assert!(!scratch.path("image").exists());
    let made = mkfs(&["--root-owner", "7:8"]);
    assert_eq!(rehearsed, made);
    assert_eq!(
        (&made["page_bytes"], &made["spare_bytes"], &made["corrected_bits"]),
        (&2048.into(), &96.into(), &8.into())
    );
    assert_eq!(fs::metadata(&image).unwrap().len(), 1024 * 64 * (2048 + 96));
    let info = basalt(["info", "--json", &image]).json();
    for (name, value) in [("label", "firmware"), ("uuid", uuid), ("type", "flashlight")] {
        assert_eq!(info[name], value);
    }
    for name in [
        "size",
        "page_bytes",
        "spare_bytes",
        "pages_per_block",
        "blocks",
        "user_bytes",
        "memory_bytes",
        "corrected_bits",
    ] {
        assert_eq!(info[name], made[name], "{name}");
    }
    assert_eq!((&info["clean"], &info["inodes"]), (&true.into(), &1.into()));
    let text = basalt(["info", &image]).ok();
    for part in ["FlashLight", "firmware", "1024 blocks of 64 pages of 2 KiB", "clean", "0 bad", "inodes", "wear"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(basalt(["stat", "--json", &image, "/"]).json()[0]["uid"], 7);
    let checked = basalt(["fsck", "--json", &image]).json();
    assert_eq!((&checked["clean"], &checked["files"], &checked["directories"]), (&true.into(), &0.into(), &1.into()));
    assert!(basalt(["fsck", &image]).ok().contains("clean; 0 files, 1 directories"));
    basalt(["fsck", "-p", "-q", &image]).ok();
}

#[test]
fn trees_go_in_and_come_out_as_they_were() {
    let scratch = with_volume(CHIP);
    let (image, tree) = (scratch.text("image"), scratch.directory("tree"));
    build_random_tree(&tree, 5, &plain_tree(true)).unwrap();
    symlink("nowhere", tree.join("link")).unwrap();
    basalt(["put", "-r", &image, &scratch.text("tree"), "/copy"]).ok();
    // Whoever only looks changes nothing.
    let before = fs::read(&image).unwrap();
    basalt(["get", "-r", &image, "/copy", &scratch.text("out")]).ok();
    Manifest::of(&tree).unwrap().expect_same(&Manifest::of(scratch.path("out")).unwrap(), "what came out");
    assert!(basalt(["ls", "-b", &image, "/copy"]).ok().contains("link"));
    scratch.file("two", "second");
    basalt(["fsck", &image]).ok();
    assert!(fs::read(&image).unwrap() == before, "reading has changed the image");
    basalt(["put", &image, &scratch.text("two"), "/copy/two"]).ok();
    assert_eq!(basalt(["cat", &image, "/copy/two"]).ok(), "second");
    basalt(["fsck", &image]).ok();
}

/// A file with data in the middle of a long hole, and a copy of it on the host: each stores what is data, and hardly more.
#[test]
fn get_and_put_keep_holes() {
    let scratch = with_volume(CHIP);
    let image = scratch.text("image");
    let file = File::create(scratch.path("sparse")).unwrap();
    file.write_all_at(&[7; 50_000], 8 << 20).unwrap();
    file.write_all_at(&[9; 10], 20 << 20).unwrap();
    file.set_len(100 << 20).unwrap();
    basalt(["put", &image, &scratch.text("sparse"), "/sparse"]).ok();
    let said = basalt(["stat", "--json", &image, "/sparse"]).json();
    let sectors = said[0]["sectors"].as_u64().unwrap();
    // 25 pages or one more of the first piece, one or two of the second, the inode; or whole blocks of the host's file system.
    assert!((4 * 27..=4 * 64).contains(&sectors), "{said}");
    basalt(["get", &image, "/sparse", &scratch.text("out")]).ok();
    let (before, after) = (fs::read(scratch.path("sparse")).unwrap(), fs::read(scratch.path("out")).unwrap());
    assert!(before == after, "{} and {} bytes", before.len(), after.len());
    let stored = fs::metadata(scratch.path("out")).unwrap().blocks() * 512;
    assert!(stored < 1 << 20, "{stored} bytes");
}

/// What programs do with holes, through the kernel.
#[test]
fn a_mount_finds_and_punches_holes() {
    if !can_mount() {
        return;
    }
    let scratch = with_volume(CHIP);
    let mounted = Mounted::new(&scratch, "");
    let path = mounted.path("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let stored = || file.metadata().unwrap().blocks() * 512;
    file.write_all_at(&vec![7; 1 << 20], 4 << 20).unwrap();
    file.set_len(12 << 20).unwrap();
    file.sync_all().unwrap();
    assert!(((1 << 20)..(1 << 20) + 10_000).contains(&stored()), "{}", stored());
    let at = |whence| rustix::fs::seek(&file, whence);
    assert_eq!((at(SeekFrom::Data(5)), at(SeekFrom::Hole(4 << 20))), (Ok(4 << 20), Ok(5 << 20)));
    assert_eq!(at(SeekFrom::Data(5 << 20)), Err(Errno::NXIO));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let before = file.metadata().unwrap();
    fallocate(&file, punch, (4 << 20) + 100, 512 << 10).unwrap();
    let after = file.metadata().unwrap();
    assert_eq!(after.size(), 12 << 20);
    assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()), "{after:?}");
    assert!(((512 << 10)..(512 << 10) + 14_000).contains(&stored()), "{}", stored());
    // What is zeroed is a hole, and makes the file longer.
    fallocate(&file, FallocateFlags::ZERO_RANGE, 12 << 20, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 13 << 20);
    fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 14 << 20, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 13 << 20);
    for refused in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, FallocateFlags::COLLAPSE_RANGE] {
        assert_eq!(fallocate(&file, refused, 0, 4096), Err(Errno::OPNOTSUPP), "{refused:?}");
    }
    let mut wanted = vec![0; 13 << 20];
    wanted[4 << 20..5 << 20].fill(7);
    wanted[(4 << 20) + 100..][..512 << 10].fill(0);
    assert!(fs::read(&path).unwrap() == wanted);
    let mut copy = Command::new("cp");
    copy.arg(&path).arg(mounted.path("copy"));
    assert!(copy.status().unwrap().success());
    let copy = File::open(mounted.path("copy")).unwrap();
    copy.sync_all().unwrap();
    let copied = copy.metadata().unwrap();
    assert!(copied.size() == 13 << 20 && copied.blocks() * 512 < 540_000, "{copied:?}");
    drop((file, copy));
    mounted.unmount();
    basalt(["fsck", &scratch.text("image")]).ok();
    assert!(basalt(["cat", &scratch.text("image"), "/copy"]).0.stdout == wanted);
}

/// Each with the error that programs know from other file systems without it.
#[test]
fn what_the_format_has_not_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = with_volume(CHIP);
    let mounted = Mounted::new(&scratch, "");
    let (one, two) = (mounted.path("one"), mounted.path("two"));
    fs::write(&one, "1").unwrap();
    fs::write(&two, "2").unwrap();
    let rename = |flags| rustix::fs::renameat_with(CWD, &one, CWD, &two, flags);
    assert_eq!(rename(RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(rename(RenameFlags::WHITEOUT), Err(Errno::INVAL));
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    let unnamed = rustix::fs::open(&mounted.point, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
    assert_eq!(unnamed.map(drop), Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::link(&one, mounted.path("three").as_path()), Err(Errno::PERM));
    assert_eq!(rustix::fs::setxattr(&one, "user.name", b"value", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::getxattr(&one, "user.name", &mut [0; 8][..]), Err(Errno::NODATA));
    assert_eq!(symlink("t".repeat(1601), mounted.path("link")).unwrap_err().raw_os_error(), Some(36));
    assert_eq!((fs::read_to_string(&one).unwrap(), fs::read_to_string(&two).unwrap()), ("1".into(), "2".into()));
    mounted.unmount();
    basalt(["fsck", &scratch.text("image")]).ok();
}

/// What the factory marked stays bad, and holds nothing.
#[test]
fn bad_blocks_stay_bad_when_a_volume_is_made_again() {
    let scratch = with_volume(CHIP);
    let image = scratch.text("image");
    mark_bad(&scratch, 3);
    mark_bad(&scratch, 77);
    let again = |more: &[&str]| basalt([&["mkfs", "--json", "-f", "-t", "flashlight", &image], more].concat()).json();
    // The shape is that of the volume which is there.
    let made = again(&[]);
    assert_eq!((&made["bad_blocks"], &made["blocks"]), (&2.into(), &128.into()));
    assert_eq!(again(&["--nand", CHIP])["bad_blocks"], 2);
    assert_eq!(basalt(["info", "--json", &image]).json()["bad_blocks"], 2);
    // On a chip of another shape they are nowhere.
    assert_eq!(again(&["--nand", "2048+64x64x256"])["bad_blocks"], 0);
    // A dump of a chip on which nothing is: its length tells what it is.
    fs::write(&image, vec![0xFF; 128 * RAW_BLOCK]).unwrap();
    mark_bad(&scratch, 5);
    assert_eq!(basalt(["mkfs", "--json", "-t", "flashlight", "--nand", CHIP, &image]).json()["bad_blocks"], 1);
    // Zeros are no marks: nobody has a chip that is bad as a whole.
    fs::write(&image, []).unwrap();
    File::options().write(true).open(&image).unwrap().set_len(128 * RAW_BLOCK as u64).unwrap();
    assert_eq!(basalt(["mkfs", "--json", "-t", "flashlight", "--nand", CHIP, &image]).json()["bad_blocks"], 0);
}

#[test]
fn what_cannot_be_made_is_said_in_one_line() {
    let scratch = Scratch::with_volume("64M");
    let (f2fs, new) = (scratch.text("image"), scratch.text("new"));
    let mkfs = |arguments: &[&str]| basalt([&["mkfs", "-t", "flashlight"], arguments].concat());
    mkfs(&[&new]).fails(2, &["--nand CHIP says"]);
    mkfs(&["--nand", "floppy", &new]).fails(2, &["w25n01gv", "PAGE+SPARE"]);
    mkfs(&["--nand", "1024+64x32x1024", &new]).fails(1, &["pages of less than 2 KiB"]);
    mkfs(&["--nand", "2048+20x64x1024", &new]).fails(1, &["20 spare bytes", "error correction"]);
    mkfs(&["--nand", CHIP, "--size", "1G", &new]).fails(2, &["--size is for F2FS volumes"]);
    mkfs(&["--nand", CHIP, "-L", &"l".repeat(65), &new]).fails(2, &["--label", "65 bytes"]);
    basalt(["mkfs", "--nand", CHIP, &new]).fails(2, &["--type flashlight"]);
    mkfs(&["--nand", "2048+64x64x64", &new]).fails(1, &["64 blocks", "no room for files", "more blocks"]);
    mkfs(&["-n", "--nand", "2048+64x64x64", &new]).fails(1, &["no room for files"]);
    let help = basalt(["mkfs", "--help"]).ok();
    assert!(help.contains("w25n01gv (2048+64x64x1024)") && help.contains("nandsim"), "{help}");
    assert!(!scratch.path("new").exists(), "nothing is left of what failed");
    mkfs(&["--nand", CHIP, &f2fs]).fails(1, &["holds f2fs", "--force"]);
    basalt(["fsck", &f2fs]).ok();
    mkfs(&["-q", "-f", "--nand", CHIP, &f2fs]).ok();
    // The other way round.
    basalt(["mkfs", &f2fs]).fails(1, &["holds flashlight", "--force"]);
    mkfs(&[&f2fs]).fails(1, &["holds flashlight", "--force"]);
    for command in [&["resize", &f2fs, "128M"][..], &["tune", &f2fs, "--journal", "off"]] {
        basalt(command).fails(1, &["flashlight"]);
    }
    // Where nothing is wrong there is nothing to repair.
    basalt(["fsck", "-y", &f2fs]).ok();
    if skip::root_or_skip()
        && let Ok(device) = LoopDevice::attach(&scratch.path("image"))
    {
        mkfs(&["-f", "--nand", CHIP, device.path().to_str().unwrap()]).fails(1, &["is a block device"]);
    }
}

/// Bits that have flipped are set right; a page that is lost is named, and no other file suffers.
#[test]
fn flipped_bits_cost_nothing_until_they_are_too_many() {
    let scratch = with_volume(CHIP);
    let image = scratch.text("image");
    let content = |byte: u8| vec![byte; 100_000];
    for (name, byte) in [("first", 0x5A), ("second", 0xC3)] {
        scratch.file(name, content(byte));
        basalt(["put", &image, &scratch.text(name), &format!("/{name}")]).ok();
    }
    let clean = fs::read(&image).unwrap();
    let pages: Vec<usize> =
        (0..clean.len()).step_by(RAW_PAGE).filter(|&at| clean[at..][..2048] == [0x5A; 2048]).collect();
    assert!(pages.len() > 40, "{} pages", pages.len());
    let mut flipped = clean.clone();
    pages.iter().for_each(|at| (0..4).for_each(|sector| flipped[at + 512 * sector + 100] ^= 0x0F));
    fs::write(&image, &flipped).unwrap();
    basalt(["fsck", &image]).ok();
    assert!(basalt(["cat", &image, "/first"]).0.stdout == content(0x5A));
    // Bits of erased pages flip as well.
    let erased: Vec<usize> =
        (0..clean.len()).step_by(RAW_PAGE).filter(|&at| clean[at..][..RAW_PAGE] == [0xFF; RAW_PAGE]).collect();
    erased.iter().for_each(|at| flipped[at + at / 7 % 2000] ^= 0x10);
    fs::write(&image, &flipped).unwrap();
    basalt(["fsck", &image]).ok();
    basalt(["put", &image, &scratch.text("first"), "/third"]).ok();
    assert!(basalt(["cat", &image, "/third"]).0.stdout == content(0x5A));
    flipped[pages[20] + 700] ^= 0xFF;
    fs::write(&image, &flipped).unwrap();
    let read = basalt(["cat", &image, "/first"]);
    read.fails(1, &["/first", "more bits have flipped than can be corrected"]);
    for repair in ["-n", "-y", "-p"] {
        let told = basalt(["fsck", repair, &image]);
        assert_eq!(told.code(), 4);
        let (page, said) = (20 * 2048, told.out());
        assert!(said.contains(&format!("damage: /first: 2048 bytes at {page}: ")) && said.contains("rescue"), "{said}");
    }
    let faults = basalt(["fsck", "--json", &image]).0.stdout;
    let faults: serde_json::Value = serde_json::from_slice(&faults).unwrap();
    assert_eq!((&faults["fault_count"], &faults["complete"], &faults["files"]), (&1.into(), &true.into(), &2.into()));
    assert_eq!(faults["faults"][0]["bytes"], serde_json::json!([20 * 2048, 2048]));
    assert!(basalt(["cat", &image, "/second"]).0.stdout == content(0xC3));
    // Cut off, and no volume any more: one line.
    fs::write(&image, &clean[..clean.len() / 2]).unwrap();
    for command in ["info", "ls", "fsck"] {
        let told = basalt([command, &image]);
        assert!(told.code() != 0 && told.err().lines().count() == 1, "{command}: {}", told.err());
    }
}

/// Without the blocks of the checkpoint nothing can be mounted, and everything is found.
#[test]
fn rescue_finds_what_no_mount_shows() {
    let scratch = with_volume(CHIP);
    let (image, tree) = (scratch.text("image"), scratch.directory("tree"));
    build_random_tree(&tree, 6, &plain_tree(true)).unwrap();
    symlink("nowhere", tree.join("link")).unwrap();
    basalt(["put", "-r", &image, &scratch.text("tree"), "/copy"]).ok();
    let wanted = Manifest::of(&tree).unwrap();
    let whole = fs::read(&image).unwrap();
    let rescue = |more: &[&str], to: &str| basalt([&["rescue", &image], more, &[&scratch.text(to)[..]]].concat());
    let report = rescue(&["--json"], "whole").json();
    assert_eq!((&report["search"]["outdated"], &report["files_with_holes"]), (&0.into(), &0.into()));
    wanted.expect_same(&Manifest::of(scratch.path("whole/copy")).unwrap(), "what was rescued");
    // No roots: the length and the content do not tell what it is.
    let mut damaged = whole.clone();
    damaged[..8 * RAW_BLOCK].fill(0);
    fs::write(&image, &damaged).unwrap();
    assert_ne!(basalt(["fsck", &image]).code(), 0);
    rescue(&["--nand", CHIP], "rootless").ok();
    wanted.expect_same(&Manifest::of(scratch.path("rootless/copy")).unwrap(), "what was rescued without roots");
    assert!(fs::read(&image).unwrap() == damaged, "rescue has changed the image");
    // Cut off: a part of it, and exit code 1.
    fs::write(&image, &whole[..40 * RAW_BLOCK + 777]).unwrap();
    for command in [&["info", &image][..], &["fsck", &image], &["ls", &image], &["rescue", "--list", &image]] {
        let told = basalt(command);
        assert!(told.code() != 0 && told.err().contains("cut off") && told.err().contains("--nand"), "{}", told.err());
    }
    let cut = rescue(&["--nand", CHIP], "cut");
    assert_eq!(cut.code(), 1, "{}", cut.err());
    assert!(cut.out().contains("truncated"), "{}", cut.out());
    let found = basalt(["rescue", "--list", "--nand", CHIP, &image]).out();
    assert!(found.lines().count() > 20, "{found}");
    // Added bytes.
    fs::write(&image, [&whole[..], &[0; 100]].concat()).unwrap();
    basalt(["ls", &image]).fails(1, &["cut off, or made longer"]);
    // Nothing of a volume.
    fs::write(&image, vec![0xFF; whole.len()]).unwrap();
    basalt(["rescue", "--list", "--nand", CHIP, &image]).fails(1, &["no file of a FlashLight volume"]);
    basalt(["rescue", "--list", "--nand", CHIP, "--nodes-only", &image]).fails(2, &["--nodes-only"]);
}

/// Where there are no hard links the file is copied once more, and the copy goes on.
#[test]
fn hard_links_become_copies() {
    let scratch = with_volume(CHIP);
    let (image, tree) = (scratch.text("image"), scratch.directory("tree"));
    fs::write(tree.join("a"), "linked").unwrap();
    for name in ["b", "c"] {
        fs::hard_link(tree.join("a"), tree.join(name)).unwrap();
    }
    fs::write(tree.join("z"), "last").unwrap();
    let put = basalt(["put", "-r", &image, &scratch.text("tree"), "/put"]);
    assert_eq!(put.code(), 1);
    assert_eq!(put.err().matches("hard link: the file is copied once more").count(), 2, "{}", put.err());
    for (name, content) in [("a", "linked"), ("b", "linked"), ("c", "linked"), ("z", "last")] {
        assert_eq!(basalt(["cat", &image, &format!("/put/{name}")]).ok(), content);
    }
    basalt(["fsck", &image]).ok();
}

/// Both pages of the newest root are lost: nothing is shown that was, and `-o rescue` shows what is.
#[test]
fn a_mount_for_rescue_shows_what_is_found() {
    if !can_mount() {
        return;
    }
    let scratch = with_volume(CHIP);
    let image = scratch.text("image");
    for name in ["first", "second", "third"] {
        scratch.file(name, name.repeat(3000));
        basalt(["put", &image, &scratch.text(name), &format!("/{name}")]).ok();
    }
    let bytes = fs::read(&image).unwrap();
    let generation = |block: usize| u32::from_le_bytes(bytes[block * RAW_BLOCK + 128..][..4].try_into().unwrap());
    let roots = (0..8).filter(|block| bytes[block * RAW_BLOCK] == 1);
    let newest = roots.clone().map(generation).max().unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    for block in roots.filter(|&block| generation(block) == newest) {
        file.write_all_at(&[0x3C; 2048], (block * RAW_BLOCK) as u64).unwrap();
    }
    for command in ["ls", "info"] {
        basalt([command, &image]).fails(1, &["the newest root cannot be read"]);
    }
    let checked = basalt(["fsck", &image]);
    assert!(checked.code() == 4 && checked.out().contains("basalt rescue"), "{}", checked.out());
    let before = fs::read(&image).unwrap();
    let mounted = Mounted { point: scratch.directory("mnt") };
    let mount = basalt(["mount", "-o", "rescue", &image, mounted.point.to_str().unwrap()]);
    assert!(mount.code() == 0 && mount.err().contains("searching the whole volume"), "{}", mount.err());
    for name in ["first", "second", "third"] {
        assert_eq!(fs::read_to_string(mounted.path(name)).unwrap(), name.repeat(3000));
    }
    assert!(fs::write(mounted.path("new"), "").is_err());
    mounted.unmount();
    assert!(fs::read(&image).unwrap() == before, "a mount for rescue has changed the image");
}

#[test]
fn a_mount_serves_the_kernel_and_comes_back_clean() {
    if !can_mount() {
        return;
    }
    let scratch = with_volume("2048+128x64x512");
    let image = scratch.text("image");
    let mounted = Mounted::new(&scratch, "");
    let tree = mounted.path("tree");
    fs::create_dir(&tree).unwrap();
    build_random_tree(&tree, 8, &plain_tree(false)).unwrap();
    let before = Manifest::of(&tree).unwrap();
    let mut file = File::create(mounted.path("file")).unwrap();
    (0..50_000).for_each(|number| writeln!(file, "line {number}").unwrap());
    fs::rename(mounted.path("file"), mounted.path("moved")).unwrap();
    fs::remove_file(mounted.path("moved")).unwrap();
    assert!(file.metadata().unwrap().size() > 500_000, "it is open still");
    drop(file);
    assert_eq!(fs::hard_link(mounted.path("tree"), mounted.path("link")).unwrap_err().raw_os_error(), Some(1));
    let room = rustix::fs::statvfs(&mounted.point).unwrap();
    assert!(room.f_bsize == 2048 && room.f_bfree < room.f_blocks && room.f_favail > 1_000_000);
    let emptied = basalt(["clean".as_ref(), "--sections".as_ref(), "4".as_ref(), mounted.point.as_os_str()]).ok();
    assert!(emptied.contains("section"), "{emptied}");
    let live = basalt(["stats".as_ref(), "--json".as_ref(), mounted.point.as_os_str()]).json();
    assert!(live.to_string().contains("failed_blocks"), "{live}");
    mounted.unmount();
    basalt(["fsck", &image]).ok();
    let read_only = Mounted::new(&scratch, "ro");
    let bytes = fs::read(&image).unwrap();
    before.expect_same(&Manifest::of(read_only.path("tree")).unwrap(), "what a second mount shows");
    assert!(fs::write(read_only.path("new"), "").is_err());
    read_only.unmount();
    assert!(fs::read(&image).unwrap() == bytes, "a read-only mount has changed the image");
}

/// A killed server loses what it had in memory. The file system below the image keeps what the server wrote to it.
#[test]
fn what_was_fsynced_is_there_after_the_server_was_killed() {
    if !can_mount() {
        return;
    }
    let scratch = with_volume("2048+64x64x512");
    let image = scratch.text("image");
    for round in 0..3 {
        let mounted = Mounted { point: scratch.directory("mnt") };
        let mount = basalt(["mount", "-o", "noloop", &image, mounted.point.to_str().unwrap()]);
        assert_eq!((mount.code(), mount.err().contains("not unmounted cleanly")), (0, round > 0), "{}", mount.err());
        for number in 0..20 {
            let name = format!("file {round} {number}");
            let mut file = File::create(mounted.path(&name)).unwrap();
            file.write_all(name.repeat(1000).as_bytes()).unwrap();
            file.sync_all().unwrap();
        }
        kill_process(server_of(&image).expect("a server"), Signal::KILL).unwrap();
        wait_until("the server has ended", || server_of(&image).is_none());
        support::umount(&mounted.point);
        wait_until("the mount is gone", || mount_line(&mounted.point).is_none());
        let checked = basalt(["fsck", &image]).ok();
        assert!(checked.contains("was not unmounted"), "{checked}");
        for earlier in 0..=round {
            for number in 0..20 {
                let name = format!("file {earlier} {number}");
                assert!(basalt(["cat", &image, &name]).out() == name.repeat(1000), "{name}");
            }
        }
    }
}
