//! Roll-forward across the two: what one fsynced before the power went, the other recovers.

use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::layout::Address;
use basalt_f2fs::layout::inside::{Inside, marked_inode};
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::images::{TOOLS, mkfs_f2fs};
use basalt_testkit::manifest::Kind;
use basalt_testkit::rng::Rng;
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::{Manifest, Uml, scratch};
use basalt_vfs::{
    Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags, SetAttributes, XattrFlags,
};

use crate::guest::{self, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, make, open_with};

const MIB: u64 = 1 << 20;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Files that a checkpoint has.
const BASE: &str = r#"cd $MNT; mkdir d
    for n in 1 2 3 4 5 6; do head -c $((n * 50000)) /dev/urandom > d/block$n; echo $n > d/small$n; done
    head -c 9000000 /dev/urandom > large; echo moves > moves; echo goes > goes
    setfattr -n user.short -v short d/small1; setfattr -n user.long -v $(head -c 1500 /dev/zero | tr '\0' x) d/small2
    sync"#;

/// Each is fsynced on its own, for which Linux takes a checkpoint.
const CHECKPOINTED: &str = r#"cd $MNT
    mkdir n; echo new > n/file; sync n/file
    mv moves moved; echo moved >> moved; sync moved
    rm goes; echo again > goes; sync goes"#;

/// Each is fsynced on its own, which Linux leaves to roll-forward.
const ROLLED_FORWARD: &str = r#"cd $MNT
    for n in 1 20 3000 5000 70000 2000000 5000001; do head -c $n /dev/urandom > d/new$n; sync d/new$n; done
    for n in 1 2 3; do
        dd if=/dev/urandom of=d/block$n bs=4k seek=$n count=3 conv=notrunc status=none; sync d/block$n
        truncate -s 10000 d/block$((n + 3)); sync d/block$((n + 3))
    done
    echo longer >> d/small3; sync -d d/small3
    head -c 8000 /dev/urandom > d/small4; sync d/small4
    truncate -s 1 d/small5; chmod 600 d/small5; sync d/small5
    setfattr -n user.long -v $(head -c 2500 /dev/zero | tr '\0' y) d/small1; sync d/small1
    setfattr -n user.long -v changed d/small2; sync d/small2
    echo x > d/attributed; setfattr -n user.a -v $(head -c 3000 /dev/zero | tr '\0' z) d/attributed; sync d/attributed
    dd if=/dev/urandom of=large bs=4k seek=1500 count=100 conv=notrunc status=none; sync -d large
    fallocate -p -o 100000 -l 400000 large; sync large
    fallocate -n -o 9000000 -l 1000000 large; sync large
    rm d/block1; head -c 30000 /dev/urandom > d/block1; sync d/block1; echo longer >> d/block1; sync d/block1"#;

/// A manifest without what fsync of a file does not keep: the times of directories.
pub fn durable(mut manifest: Manifest) -> Manifest {
    manifest.entries.values_mut().filter(|entry| entry.kind == Kind::Directory).for_each(|entry| entry.mtime = None);
    manifest
}

fn rescued(image: &Path) -> Rescued {
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(image, &DeviceOptions { read_only: true, ..DeviceOptions::default() }).unwrap());
    Rescued::open(device, &RescueOptions::default(), Arc::new(SystemClock), &mut |_| ()).unwrap()
}

/// Linux writes, the power goes, Basalt recovers: first in memory, then for good.
///
/// If `clean`, Linux has unmounted the volume in between, and its fsyncs stand behind a checkpoint that says that all is clean.
fn left_by_linux(arguments: &[&str], clean: bool) {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    mkfs_f2fs(&image, 128 * MIB, arguments).unwrap();
    let record = guest::record(&image);
    let script = if clean {
        guest::visit(uml.clone(), &[Visit::new(&image, format!("{BASE}; cd /"))]);
        format!("{ROLLED_FORWARD}\n{record}")
    } else {
        format!("{BASE}\n{CHECKPOINTED}\n{ROLLED_FORWARD}\n{record}")
    };
    uml.clone().image(&image).with_f2fs_then_power_cut("", &script).unwrap().expect_success();
    let expected = durable(guest::manifest(&image));
    let before = std::fs::read(&image).unwrap();

    let fs = open_with(&image, OpenOptions { read_only: true, ..OpenOptions::default() });
    expected.expect_same(&durable(manifest(&fs)), "fsynced by Linux, recovered in memory");
    close(fs);
    assert!(before == std::fs::read(&image).unwrap(), "a read-only mount wrote");
    let mut found = durable(manifest(&rescued(&image)));
    // What was removed can come back, under a name of its own.
    found.entries.retain(|name, _| !name.contains(&b'~'));
    expected.expect_same(&found, "fsynced by Linux, found by rescue");

    let fs = open_with(&image, OpenOptions::default());
    assert!(fs.warnings().iter().any(|warning| warning.contains("fsynced after")), "{:?}", fs.warnings());
    expected.expect_same(&durable(manifest(&fs)), "fsynced by Linux");
    // Nobody closes it: the recovery must be durable by itself.
    drop(fs);
    let fs = open_with(&image, OpenOptions::default());
    assert!(!fs.warnings().iter().any(|warning| warning.contains("fsynced after")), "{:?}", fs.warnings());
    close(fs);
    expect_clean(&image, "recovered by Basalt");
    guest::visit(uml, &[Visit::new(&image, guest::record(&image))]);
    expected.expect_same(&durable(guest::manifest(&image)), "recovered by Basalt, read by Linux");
}

#[test]
fn left_by_linux_behind_a_checkpoint() {
    left_by_linux(&["-O", "extra_attr,inode_checksum,sb_checksum"], false);
}

#[test]
fn left_by_linux_behind_a_clean_checkpoint() {
    left_by_linux(&[], true);
}

#[test]
fn left_by_basalt_behind_a_checkpoint() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let seed = 2;
    println!("seed {seed}");
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    make(&image, 128 * MIB, &FormatOptions::default());
    let fs = open_with(&image, OpenOptions::default());
    let mut rng = Rng::new(seed);
    let names = fill(&fs, &mut rng);
    fs.sync().unwrap();
    let checkpoints = fs.info().counters.checkpoints;
    rolled_forward(&fs, &names, &mut rng);
    assert_eq!(fs.info().counters.checkpoints, checkpoints, "nothing is left to roll forward");
    let expected = durable(manifest(&fs));
    let cuts = ["linux.img", "basalt.img"].map(|name| directory.path().join(name));
    cuts.iter().for_each(|cut| std::fs::copy(&image, cut).map(|_| ()).unwrap());
    // What comes after is not synced, and not in the copies.
    close(fs);
    guest::visit(uml, &[Visit::new(&cuts[0], guest::record(&cuts[0]))]);
    expected.expect_same(&durable(guest::manifest(&cuts[0])), "fsynced by Basalt, recovered by Linux");
    expect_clean(&cuts[0], "fsynced by Basalt, recovered by Linux");
    recovered_by_basalt(&cuts[1], &expected);
}

/// Linux keeps the bytes with which inodes said that they are their own seals, when it writes them elsewhere. In its chain they say nothing.
#[test]
fn inodes_of_linux_with_what_basalt_had_them_say() {
    const FILES: usize = 12;
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    make(&image, 128 * MIB, &FormatOptions::default());
    let fs = open_with(&image, OpenOptions::default());
    put(&fs, "first", b"first");
    fs.sync().unwrap();
    for number in 0..FILES {
        fs.sync_file(put(&fs, &format!("f{number}"), &vec![number as u8; 1 + 3_000 * number]), false).unwrap();
    }
    // The checkpoint has them as they are.
    close(fs);
    let script = format!(
        "cd $MNT; for n in $(seq 0 {}); do echo longer >> f$n; sync f$n; done\n{}",
        FILES - 1,
        guest::record(&image)
    );
    uml.image(&image).with_f2fs_then_power_cut("", &script).unwrap().expect_success();
    let expected = durable(guest::manifest(&image));
    let blocks = std::fs::read(&image).unwrap();
    let is_copied = |(at, block): (usize, &[u8])| {
        let raw = marked_inode(block).filter(|raw| Inside::is_set(raw));
        raw.is_some_and(|raw| Inside::read(raw, Address::new(at as u32)).is_none())
    };
    let copied = blocks.chunks(4096).enumerate().filter(|&(at, block)| is_copied((at, block))).count();
    assert!(copied >= FILES - 1, "{copied} inodes of Linux's chain have the bytes");
    recovered_by_basalt(&image, &expected);
}

fn recovered_by_basalt(cut: &Path, expected: &Manifest) {
    let fs = open_with(cut, OpenOptions::default());
    expected.expect_same(&durable(manifest(&fs)), "fsynced and recovered by Basalt");
    close(fs);
    expect_clean(cut, "fsynced and recovered by Basalt");
}

fn put(fs: &F2fs, name: &str, bytes: &[u8]) -> InodeNumber {
    let found = fs.lookup(fs.root(), name.as_bytes());
    let found = found.or_else(|_| fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()));
    let ino = found.unwrap().ino;
    fs.write(ino, 0, bytes, false).unwrap();
    ino
}

fn random(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

fn fill(fs: &F2fs, rng: &mut Rng) -> Vec<String> {
    let names: Vec<String> = (0..20).map(|number| format!("file {number}")).collect();
    for name in &names {
        let size = rng.size(400_000) as usize;
        let ino = put(fs, name, &random(rng, size));
        if rng.chance(50) {
            let value = rng.size(2000) as usize;
            fs.set_xattr(ino, b"user.value", &random(rng, value), XattrFlags::empty()).unwrap();
        }
    }
    put(fs, "large", &random(rng, 9_000_000));
    names
}

/// Changes that an fsync each makes durable without a checkpoint.
fn rolled_forward(fs: &F2fs, names: &[String], rng: &mut Rng) {
    for number in 0..30 {
        let size = rng.size(300_000) as usize;
        let ino = put(fs, &format!("new {number}"), &random(rng, size));
        if number % 3 == 0 {
            fs.set_xattr(ino, b"user.value", &random(rng, 100 * number), XattrFlags::empty()).unwrap();
        }
        fs.sync_file(ino, number % 2 == 0).unwrap();
    }
    for name in names {
        let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
        let (offset, size) = (rng.size(200_000), rng.size(30_000) as usize);
        match rng.below(4) {
            0 => assert_eq!(fs.write(ino, offset, &random(rng, size), false).unwrap(), size),
            1 => {
                let size = SetAttributes { size: Some(offset), permissions: Some(0o640), ..SetAttributes::default() };
                fs.set_attributes(ino, &size).unwrap();
            }
            2 => fs.set_xattr(ino, b"user.other", &random(rng, 10), XattrFlags::empty()).unwrap(),
            _ => {
                let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                fs.fallocate(ino, mode, offset, 50_000).unwrap();
            }
        }
        fs.sync_file(ino, false).unwrap();
    }
    let large = fs.lookup(fs.root(), b"large").unwrap().ino;
    for _ in 0..10 {
        fs.write(large, rng.below(2000) * 4096, &random(rng, 20_000), false).unwrap();
        fs.sync_file(large, true).unwrap();
    }
    // Unlinked and made again: the name belongs to the new one.
    fs.unlink(fs.root(), b"new 1").unwrap();
    fs.sync_file(put(fs, "new 1", b"again"), false).unwrap();
    fs.unlink(fs.root(), names[0].as_bytes()).unwrap();
    fs.sync_file(put(fs, &names[0], b"again too"), false).unwrap();
}

/// Names that need a checkpoint: Basalt takes one, Linux finds them.
#[test]
fn names_left_by_basalt() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let image = directory.path().join("volume.img");
    make(&image, 128 * MIB, &FormatOptions::default());
    let fs = open_with(&image, OpenOptions::default());
    let root = fs.root();
    put(&fs, "moves", b"moves");
    fs.sync().unwrap();
    let folder = NewNode { kind: FileKind::Directory, permissions: 0o755, ..FILE };
    let made = fs.create(root, b"directory", &folder, &Caller::default()).unwrap().ino;
    let inside = fs.create(made, b"inside", &FILE, &Caller::default()).unwrap().ino;
    fs.write(inside, 0, b"inside", false).unwrap();
    fs.sync_file(inside, false).unwrap();
    fs.rename(root, b"moves", made, b"moved", RenameFlags::empty(), &Caller::default()).unwrap();
    let moved = fs.lookup(made, b"moved").unwrap().ino;
    fs.write(moved, 5, b" on", false).unwrap();
    fs.sync_file(moved, false).unwrap();
    let linked = put(&fs, "linked", b"twice");
    fs.link(linked, made, b"link").unwrap();
    fs.sync_file(linked, false).unwrap();
    fs.sync_file(put(&fs, "moves", b"another"), false).unwrap();
    let expected = durable(manifest(&fs));
    let cuts = ["linux.img", "basalt.img"].map(|name| directory.path().join(name));
    cuts.iter().for_each(|cut| std::fs::copy(&image, cut).map(|_| ()).unwrap());
    close(fs);
    guest::visit(uml, &[Visit::new(&cuts[0], guest::record(&cuts[0]))]);
    expected.expect_same(&durable(guest::manifest(&cuts[0])), "names of Basalt's, recovered by Linux");
    expect_clean(&cuts[0], "names of Basalt's, recovered by Linux");
    recovered_by_basalt(&cuts[1], &expected);
}
