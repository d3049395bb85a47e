//! Making the golden volumes that are missing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::{F2fs, OpenOptions};
use basalt_testkit::images::mkfs_f2fs;
use basalt_testkit::rng::Rng;
use basalt_testkit::variants::{Access, VARIANTS, Variant};
use basalt_testkit::{Uml, scratch};
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode, Time, XattrFlags};

use super::{clock, contents, open, store};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

#[test]
#[ignore = "makes volumes that are missing; the others stay as they are"]
fn make_what_is_missing() {
    let options = FormatOptions { discard_reads_zeros: true, uuid: Some([0x1D; 16]), ..FormatOptions::default() };
    let volumes = [
        ("basalt-default", options.clone()),
        ("basalt-plain", FormatOptions { features: Features::empty(), journal_bytes: 0, ..options.clone() }),
        (
            "basalt-all-features",
            FormatOptions {
                features: FormatOptions::POSSIBLE_FEATURES
                    .difference(Features::CASEFOLD.union(Features::COMPRESSION).union(Features::READ_ONLY)),
                ..options.clone()
            },
        ),
        ("basalt-sections-4", FormatOptions { segments_per_section: 4, ..options.clone() }),
    ];
    for (name, options) in volumes {
        keep(name, || {
            let device = fresh(128 * MIB, &options);
            let fs = open(&device, name);
            fill(&fs);
            fs.close().unwrap();
            device
        });
    }
    keep("basalt-behind-its-checkpoint", || behind(&options));
    keep("basalt-live-journal", || live_journal(&options));
    of_linux();
}

fn keep(name: &str, make: impl FnOnce() -> Arc<MemoryDevice>) {
    if !store::has(name) {
        let device = make().snapshot();
        let contents = contents(&open(&Arc::new(device.snapshot()), name));
        store::keep(name, &device, &contents);
    }
}

fn fresh(size: u64, options: &FormatOptions) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(size, 512));
    format(&*device, options, &mut |_, _| ()).unwrap();
    device
}

fn create(fs: &F2fs, parent: InodeNumber, name: &str, kind: FileKind) -> InodeNumber {
    let new = NewNode { kind, permissions: 0o640, rdev: 0x0103, target: b"where/it/leads" };
    fs.create(parent, name.as_bytes(), &new, &Caller { uid: 1000, gid: 100, ..Caller::default() }).unwrap().ino
}

/// Something of each kind: inline and not, with holes, names in many buckets, attributes, links.
fn fill(fs: &F2fs) {
    let root = fs.root();
    for (name, pieces) in [
        ("inline", vec![(0, 100)]),
        ("blocks", vec![(0, 300_000)]),
        ("holes", vec![(0, 10), (9 * MIB, 5_000), (24 * MIB, 100)]),
        ("empty", vec![]),
    ] {
        let ino = create(fs, root, name, FileKind::Regular);
        pieces.into_iter().for_each(|(at, length)| {
            assert_eq!(fs.write(ino, at, &vec![name.as_bytes()[1]; length], false).unwrap(), length)
        });
        fs.set_xattr(ino, b"user.note", name.as_bytes(), XattrFlags::empty()).unwrap();
    }
    let long = create(fs, root, "attributes", FileKind::Regular);
    fs.set_xattr(long, b"user.long", &[3; 2_500], XattrFlags::empty()).unwrap();
    fs.link(long, root, b"its other name").unwrap();
    create(fs, root, "link", FileKind::Symlink);
    create(fs, root, "pipe", FileKind::Fifo);
    create(fs, root, "device", FileKind::CharDevice);
    let directory = create(fs, root, "many names", FileKind::Directory);
    for number in 0..600 {
        create(fs, directory, &format!("a name of some length, number {number}"), FileKind::Regular);
    }
    let (inner, late) =
        (create(fs, directory, "inner", FileKind::Directory), Time { seconds: 1 << 33, nanoseconds: 7 });
    let file = create(fs, inner, "of the future", FileKind::Regular);
    let times = basalt_vfs::SetAttributes { mtime: Some(basalt_vfs::SetTime::To(late)), ..Default::default() };
    fs.set_attributes(file, &times).unwrap();
}

/// A volume in use: what was fsynced behind the last checkpoint is in no table.
fn behind(options: &FormatOptions) -> Arc<MemoryDevice> {
    let device = fresh(64 * MIB, options);
    let fs = open(&device, "behind");
    let [first, second] = ["before", "replaced"].map(|name| create(&fs, fs.root(), name, FileKind::Regular));
    fs.write(first, 0, &[1; 20_000], false).unwrap();
    fs.write(second, 0, &[2; 20_000], false).unwrap();
    fs.sync().unwrap();
    fs.write(first, 5_000, &[3; 9_000], false).unwrap();
    fs.sync_file(first, false).unwrap();
    let third = create(&fs, fs.root(), "behind", FileKind::Regular);
    fs.write(third, 0, &[4; 2_000_000], false).unwrap();
    fs.sync_file(third, false).unwrap();
    let left = Arc::new(device.snapshot());
    drop(fs);
    left
}

/// A volume whose cleaning journal is live.
fn live_journal(options: &FormatOptions) -> Arc<MemoryDevice> {
    let device = fresh(
        96 * MIB,
        &FormatOptions {
            overprovision_percent: Some(30.0),
            journal_bytes: FormatOptions::DEFAULT_JOURNAL_BYTES,
            ..options.clone()
        },
    );
    let open_options = OpenOptions {
        sections_per_commit: Some(1),
        pre_invalid_bytes: Some(1 << 30),
        cache_bytes: 1 << 20,
        ..OpenOptions::default()
    };
    let fs = F2fs::open(device.clone(), open_options, clock()).unwrap();
    let count = fs.stat_fs().unwrap().available * BLOCK * 85 / 100 / MIB;
    let inodes: Vec<_> =
        (0..count).map(|number| create(&fs, fs.root(), &format!("file{number}"), FileKind::Regular)).collect();
    for (value, ino) in (0..).zip(&inodes) {
        fs.write(*ino, 0, &[value; MIB as usize], false).unwrap();
    }
    fs.sync().unwrap();
    let mut rng = Rng::new(3);
    for _ in 0..100 {
        let before = fs.statistics();
        while fs.statistics().since(&before).checkpoints.total() == 0 {
            for _ in 0..20 {
                let ino = inodes[rng.index(inodes.len())];
                fs.write(ino, rng.below(256) * BLOCK, &[rng.next_u64() as u8; BLOCK as usize], false).unwrap();
                fs.sync_file(ino, false).unwrap();
            }
            let done = fs.statistics().since(&before);
            if done.cleaning.total().journal_commits > 6 && done.checkpoints.total() == 0 {
                return Arc::new(device.snapshot());
            }
        }
    }
    panic!("the journal was not used: {:?}", fs.statistics());
}

/// Those of `mkfs.f2fs`, filled by Linux in one boot for up to twelve.
fn of_linux() {
    let is_missing = |variant: &&Variant| !store::has(&name_of(variant)) && variant.size_mib <= 256;
    let missing: Vec<&Variant> =
        VARIANTS.iter().filter(|variant| variant.linux == Access::Writes).filter(is_missing).collect();
    for some in missing.chunks(12) {
        let directory = scratch::directory().unwrap();
        let mut uml = Uml::new_or_skip().expect("User-Mode Linux").quota().timeout(Duration::from_secs(180));
        let mut script = "set -e; mkdir /run/mnt\n".to_owned();
        for (variant, letter) in some.iter().zip('a'..) {
            let image = directory.path().join(variant.name);
            mkfs_f2fs(&image, variant.size(), variant.arguments).unwrap();
            uml = uml.image(&image);
            script.push_str(&format!(
                "mount -t f2fs /dev/ubd{letter} /run/mnt
                 $TESTKIT build /run/mnt 5 files=12,directories=4,crowded=250,max-size=12000
                 $TESTKIT mutate /run/mnt 6 30 3000 > /dev/null
                 umount /run/mnt\n"
            ));
        }
        uml.run_script(&script).unwrap().expect_success();
        some.iter().for_each(|variant| keep(&name_of(variant), || load(&directory.path().join(variant.name))));
    }
}

fn name_of(variant: &Variant) -> String {
    format!("linux-{}", variant.name)
}

fn load(path: &Path) -> Arc<MemoryDevice> {
    let bytes = std::fs::read(path).unwrap();
    let device = Arc::new(MemoryDevice::new(bytes.len() as u64, 512));
    for (at, block) in (0..).zip(bytes.chunks(BLOCK as usize)).filter(|(_, block)| block.iter().any(|byte| *byte != 0))
    {
        device.write_at(at * BLOCK, block).unwrap();
    }
    device
}
