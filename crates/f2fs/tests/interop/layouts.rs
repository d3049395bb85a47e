//! Structures that only large directories, large files and large attributes have.

use std::path::Path;

use basalt_f2fs::F2fs;
use basalt_f2fs::format::FormatOptions;
use basalt_testkit::images::{TOOLS, mkfs_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::{Uml, scratch};
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags, Seek, SetAttributes, XattrFlags};

use crate::guest::{self, Visit};
use crate::listing::{manifest, names};
use crate::volumes::{close, expect_clean, make, open};

const MIB: u64 = 1 << 20;
const ENTRIES: u32 = 5_000;
const FILE: NewNode<'static> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
const DIRECTORY: NewNode<'static> = NewNode { kind: FileKind::Directory, permissions: 0o755, ..FILE };

/// Long enough that few fit a block, so that the hash tree grows deep.
fn entry(number: u32) -> String {
    format!("entry {number:05} with a name that takes seven of the 214 slots")
}

/// Makes the same 5,000 names.
const CROWD: &str = "seq -f 'entry %05.0f with a name that takes seven of the 214 slots' 0 4999 | xargs -d '\\n' touch";

#[test]
fn large_directories() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let theirs = directory.path().join("theirs.img");
    mkfs_f2fs(&theirs, 128 * MIB, &[]).unwrap();
    // A directory made with `dir_level` starts with more buckets.
    let script = format!(
        "mkdir $MNT/plain; echo 3 > /sys/fs/f2fs/ubda/dir_level; mkdir $MNT/wide
        cd $MNT/plain; {CROWD}; cd $MNT/wide; {CROWD}; {}",
        guest::record(&theirs)
    );
    guest::visit(uml.clone(), &[Visit::new(&theirs, script)]);
    let fs = open(&theirs);
    guest::manifest(&theirs).expect_same(&manifest(&fs), "5,000 names made by Linux");
    for name in ["plain", "wide"] {
        thin_out(&fs, fs.lookup(fs.root(), name.as_bytes()).unwrap().ino);
    }
    let from_theirs = manifest(&fs);
    close(fs);
    expect_clean(&theirs, "thinned out by Basalt");

    let ours = directory.path().join("ours.img");
    make(&ours, 128 * MIB, &FormatOptions::default());
    let fs = open(&ours);
    let crowded = fs.create(fs.root(), b"crowded", &DIRECTORY, &Caller::default()).unwrap().ino;
    for number in 0..ENTRIES {
        let made = fs.create(crowded, entry(number).as_bytes(), &FILE, &Caller::default()).unwrap();
        fs.forget(made.ino, 1);
    }
    let from_ours = manifest(&fs);
    close(fs);
    expect_clean(&ours, "5,000 names made by Basalt");

    let thin = "rm *3\\ with*; mv 'entry 00004 with'* renamed; touch again; test $(ls | wc -l) = 4501";
    let look = guest::record(&ours);
    let change = format!("{look}; cd $MNT/crowded; {thin}; cd /; mv {0} {0}.before; {look}", path(&ours));
    guest::visit(uml, &[Visit::new(&theirs, guest::record(&theirs)), Visit::new(&ours, change)]);
    from_theirs.expect_same(&guest::manifest(&theirs), "thinned out by Basalt, read by Linux");
    let before = std::fs::read_to_string(format!("{}.before", path(&ours))).unwrap();
    from_ours.expect_same(&before.parse().unwrap(), "made by Basalt, read by Linux");
    guest::manifest(&ours).expect_same(&manifest(&open(&ours)), "thinned out by Linux, read by Basalt");
    expect_clean(&ours, "thinned out by Linux");
}

fn path(image: &Path) -> String {
    guest::manifest_path(image).display().to_string()
}

fn thin_out(fs: &F2fs, directory: InodeNumber) {
    for number in (0..ENTRIES).step_by(3) {
        fs.unlink(directory, entry(number).as_bytes()).unwrap();
    }
    for number in (1..ENTRIES).step_by(30) {
        let new = format!("moved {number}");
        let (old, caller) = (entry(number), Caller::default());
        fs.rename(directory, old.as_bytes(), directory, new.as_bytes(), RenameFlags::empty(), &caller).unwrap();
    }
    for number in ENTRIES..ENTRIES + 500 {
        let made = fs.create(directory, entry(number).as_bytes(), &FILE, &Caller::default()).unwrap();
        fs.forget(made.ino, 1);
    }
    assert_eq!(names(fs, directory).len(), 5_000 - 1_667 + 500);
}

/// Offsets in a file below its own addresses, its direct nodes, both indirect nodes and the double indirect one.
const OFFSETS: [u64; 8] = [
    0,
    900 * 4096,
    1_500 * 4096 + 17,
    5_000 * 4096,
    1_000_000 * 4096,
    1_500_000 * 4096 + 4000,
    2_100_000 * 4096,
    400_000_000 * 4096 + 1,
];

#[test]
fn sparse_files_with_every_sort_of_node() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, 128 * MIB, &["-O", "extra_attr,inode_checksum"]).unwrap();
    let writes: String = OFFSETS
        .iter()
        .map(|at| format!("printf 'Linux at %15d' {at} | dd of=$MNT/linux bs=64 seek={at} oflag=seek_bytes conv=notrunc status=none\n"))
        .collect();
    let cut = writes.replace("/linux", "/cut");
    let script = format!("{writes}{cut}truncate -s 4300000000 $MNT/cut");
    guest::visit(uml.clone(), &[Visit::new(&image, script)]);

    let fs = open(&image);
    let linux = fs.lookup(fs.root(), b"linux").unwrap();
    assert_eq!(linux.size, OFFSETS[7] + 24);
    for at in OFFSETS {
        let mut buffer = [0; 24];
        fs.read(linux.ino, at, &mut buffer).unwrap();
        assert_eq!(String::from_utf8_lossy(&buffer), format!("Linux at {at:15}"));
        assert_eq!(fs.seek(linux.ino, at, Seek::Data).unwrap(), at);
        let hole = fs.seek(linux.ino, at, Seek::Hole).unwrap();
        assert!(hole == linux.size || hole <= at + 8192, "{at}: {hole}");
        fs.write(linux.ino, at + 100, format!("Basalt at {at:15}").as_bytes(), false).unwrap();
    }
    let cut = fs.lookup(fs.root(), b"cut").unwrap();
    assert_eq!(cut.size, 4_300_000_000);
    let (mut at, mut found) = (0, 0);
    while let Ok(data) = fs.seek(cut.ino, at, Seek::Data) {
        at = fs.seek(cut.ino, data, Seek::Hole).unwrap();
        found += 1;
    }
    assert_eq!(found, 5);
    fs.set_attributes(cut.ino, &SetAttributes { size: Some(5_000_000), ..Default::default() }).unwrap();
    let basalt = fs.create(fs.root(), b"basalt", &FILE, &Caller::default()).unwrap();
    for at in OFFSETS {
        fs.write(basalt.ino, at, format!("Basalt at {at:15}").as_bytes(), false).unwrap();
    }
    close(fs);
    expect_clean(&image, "sparse files written by Basalt");

    let reads: String = OFFSETS
        .iter()
        .map(|at| {
            let (own, later) = (at, at + 100);
            let read = |file: &str, at: u64, who: &str, own: u64| {
                let length = who.len() + 19;
                format!(
                    "test \"$(dd if=$MNT/{file} bs={length} count=1 skip={at} iflag=skip_bytes status=none)\" = \
                     \"$(printf '{who} at %15d' {own})\"\n"
                )
            };
            read("linux", *at, "Linux", *own)
                + &read("linux", later, "Basalt", *own)
                + &read("basalt", *at, "Basalt", *own)
        })
        .collect();
    let script =
        format!("set -e\n{reads} test $(stat -c %s $MNT/cut) = 5000000; rm $MNT/basalt; truncate -s 10000 $MNT/linux");
    guest::visit(uml, &[Visit::new(&image, script)]);
    expect_clean(&image, "sparse files cut by Linux");
}

#[test]
fn large_attributes_and_links() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    let kinds: [&[&str]; 3] = [&[], &["-O", "extra_attr,flexible_inline_xattr"], &["-O", "extra_attr,inode_checksum"]];
    for arguments in kinds {
        mkfs_f2fs(&image, 64 * MIB, arguments).unwrap();
        let fs = open(&image);
        // From attributes within the inode to a value that fills the attribute block.
        for (number, length) in [1, 100, 170, 180, 200, 230, 1_000, 3_000, 3_900].into_iter().enumerate() {
            let name = format!("value of {length}");
            let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            fs.write(ino, 0, &vec![b'x'; number * 1_500], false).unwrap();
            fs.set_xattr(ino, b"user.first", &vec![b'a'; length], XattrFlags::CREATE).unwrap();
            fs.set_xattr(ino, b"trusted.second", b"small", XattrFlags::CREATE).unwrap();
            let target = vec![b't'; length];
            let link = NewNode { kind: FileKind::Symlink, permissions: 0o777, target: &target, ..FILE };
            let link = fs.create(fs.root(), format!("link of {length}").as_bytes(), &link, &Caller::default()).unwrap();
            fs.set_xattr(link.ino, b"trusted.link", &vec![b'l'; length / 2], XattrFlags::CREATE).unwrap();
        }
        let written = manifest(&fs);
        close(fs);
        expect_clean(&image, "attributes set by Basalt");
        let script = format!(
            "{0}; cp {1} {1}.before; cd $MNT
            for f in value*; do setfattr -n user.first -v changed \"$f\"; setfattr -x trusted.second \"$f\"; done
            setfattr -n user.large -v $(head -c 3000 /dev/zero | tr '\\0' z) 'value of 1'; cd /; {0}",
            guest::record(&image),
            path(&image)
        );
        guest::visit(uml.clone(), &[Visit::new(&image, script)]);
        let before = std::fs::read_to_string(format!("{}.before", path(&image))).unwrap();
        written.expect_same(&before.parse().unwrap(), "attributes set by Basalt, read by Linux");
        guest::manifest(&image).expect_same(&manifest(&open(&image)), "attributes set by Linux, read by Basalt");
    }
}
