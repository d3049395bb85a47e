//! `basalt rescue`: what it brings back of volumes that are damaged in every way.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions as FileOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use basalt_device::{FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::geometry::Geometry;
use basalt_f2fs::layout::Address;
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_testkit::images::mkfs_f2fs;
use basalt_testkit::manifest::{Entry, Kind, Manifest, Parts};
use basalt_testkit::rng::Rng;
use basalt_testkit::tree::{TreeOptions, build_random_tree};
use basalt_testkit::uml::Uml;
use basalt_vfs::{FileKind, FileSystem, InodeNumber};
use support::{Scratch, basalt};

const BLOCK: u64 = 4096;
const NODE_MAX: u32 = 100_000;

/// A volume with a history: files of an earlier state were deleted, directories have grown and shrunk.
struct Volume {
    scratch: Scratch,
    geometry: Geometry,
    /// What is on it.
    expected: Manifest,
    /// Inode numbers by path, as the manifest writes paths.
    inodes: BTreeMap<Vec<u8>, InodeNumber>,
}

impl Volume {
    /// Made by Basalt alone.
    fn ours(seed: u64) -> Volume {
        let scratch = Scratch::with_volume("128M");
        let image = scratch.text("image");
        for (round, name) in ["first", "second"].into_iter().enumerate() {
            let tree = scratch.directory(name);
            build_random_tree(&tree, seed + round as u64, &TreeOptions { crowded: 400, ..TreeOptions::default() })
                .expect("building a tree");
            basalt(["put", "-r", &image, tree.parent().unwrap().join(name).to_str().unwrap(), "/"]).ok();
            fs::remove_dir_all(&tree).unwrap();
            if round == 0 {
                delete_some(&scratch.path("image"), seed);
            }
        }
        Volume::read(scratch)
    }

    /// Made by mkfs.f2fs, filled and changed by Linux.
    fn linux(arguments: &[&str]) -> Option<Volume> {
        let uml = Uml::new_or_skip()?;
        let scratch = Scratch::new();
        let image = scratch.path("image");
        mkfs_f2fs(&image, 128 << 20, arguments).expect("mkfs.f2fs");
        let script = "set -e; $TESTKIT build $MNT 5 files=150,directories=20,crowded=600,max-size=300000
            sync; $TESTKIT mutate $MNT 6 300 30000 > /dev/null";
        uml.image(&image).with_f2fs("", script).expect("Linux").expect_success();
        Some(Volume::read(scratch))
    }

    fn read(scratch: Scratch) -> Volume {
        let (image, good) = (scratch.text("image"), scratch.text("good"));
        assert_eq!(basalt(["get", "-r", &image, "/", &good]).code(), 0);
        let expected = Manifest::read(Path::new(&good), &parts()).unwrap();
        fs::remove_dir_all(&good).unwrap();
        let device = open(&scratch.path("image"));
        let geometry = Geometry::read(&device).unwrap().0;
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let fs = F2fs::open(Arc::new(device), options, Arc::new(SystemClock)).unwrap();
        let mut inodes = BTreeMap::new();
        walk(&fs, fs.root(), b".", &mut |path, ino, _| {
            inodes.insert(path.to_vec(), ino);
        });
        Volume { scratch, geometry, expected, inodes }
    }

    /// A copy to damage.
    fn copy(&self, name: &str) -> PathBuf {
        let path = self.scratch.path(name);
        fs::copy(self.scratch.path("image"), &path).unwrap();
        path
    }

    /// Rescues a damaged copy; what came back, and the report.
    fn rescue(&self, image: &Path, options: &[&str]) -> (Manifest, serde_json::Value, PathBuf) {
        let out = self.scratch.path(&format!("{}.out", image.file_name().unwrap().to_str().unwrap()));
        let arguments = ["rescue", "--json", image.to_str().unwrap(), out.to_str().unwrap()];
        let finished = basalt(arguments.iter().chain(options));
        assert!(matches!(finished.code(), 0 | 1), "{}", finished.err());
        let report = serde_json::from_str(&finished.out()).expect("JSON");
        (Manifest::read(&out, &parts()).unwrap(), report, out)
    }

    fn expect_all(&self, image: &Path, what: &str) -> serde_json::Value {
        let (found, report, out) = self.rescue(image, &[]);
        self.expected.expect_same(&found, &format!("{what}: {report:#}"));
        fs::remove_dir_all(out).unwrap();
        report
    }

    /// The blocks of the main area that look like nodes, and the inode of each.
    fn nodes(&self) -> BTreeMap<u64, u32> {
        let image = File::open(self.scratch.path("image")).unwrap();
        let main = u64::from(self.geometry.main);
        let mut block = [0; BLOCK as usize];
        let mut found = BTreeMap::new();
        for address in main..main + u64::from(self.geometry.main_blocks()) {
            image.read_exact_at(&mut block, address * BLOCK).unwrap();
            let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
            let (nid, ino, next) = (word(4072), word(4076), word(4092));
            if (3..NODE_MAX).contains(&nid) && (3..NODE_MAX).contains(&ino) && self.geometry.in_main(Address::new(next))
            {
                found.insert(address, ino);
            }
        }
        found
    }
}

/// What of a tree must be the same: everything but the top directory's own attributes, which belong to the destination.
fn parts() -> Parts {
    Parts { top: false, ..Parts::default() }
}

fn open(path: &Path) -> FileDevice {
    FileDevice::open(path, &DeviceOptions { read_only: true, ..DeviceOptions::default() }).unwrap()
}

fn walk(fs: &F2fs, directory: InodeNumber, path: &[u8], visit: &mut dyn FnMut(&[u8], InodeNumber, FileKind)) {
    let mut entries = Vec::new();
    fs.read_directory(directory, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            entries.push(([path, b"/", entry.name].concat(), entry.ino, entry.kind));
        }
        true
    })
    .unwrap();
    for (path, ino, kind) in entries {
        visit(&path, ino, kind);
        if kind == FileKind::Directory {
            walk(fs, ino, &path, visit);
        }
    }
}

/// Deletes every third file, so that old versions of nodes and directories are left behind.
fn delete_some(image: &Path, seed: u64) {
    let device = FileDevice::open(image, &DeviceOptions::default()).unwrap();
    let fs = F2fs::open(Arc::new(device), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
    let mut files = Vec::new();
    walk(&fs, fs.root(), b".", &mut |path, ino, kind| files.push((path.to_vec(), ino, kind)));
    let directories: BTreeMap<Vec<u8>, InodeNumber> =
        files.iter().filter(|(_, _, kind)| *kind == FileKind::Directory).map(|(p, i, _)| (p.clone(), *i)).collect();
    let mut rng = Rng::new(seed);
    for (path, _, kind) in files {
        let cut = path.iter().rposition(|byte| *byte == b'/').unwrap();
        let parent = directories.get(&path[..cut]).copied().unwrap_or(fs.root());
        if kind != FileKind::Directory && rng.chance(33) {
            // Immutable files stay.
            let _ = fs.unlink(parent, &path[cut + 1..]);
        }
    }
    fs.close().unwrap();
}

fn zero(image: &Path, blocks: Range<Address>) {
    let file = FileOptions::new().write(true).open(image).unwrap();
    for block in Address::all(blocks) {
        file.write_all_at(&[0; BLOCK as usize], u64::from(block) * BLOCK).unwrap();
    }
}

/// An area that can be lost as a whole.
#[derive(Clone, Copy)]
enum Area {
    Superblocks,
    Checkpoints,
    FirstPack,
    SecondPack,
    /// The first block of a pack.
    FirstHead,
    SecondHead,
    Sit,
    Nat,
    Ssa,
}

/// What is lost, alone and together.
const CASES: [(&str, &[Area]); 12] = {
    use Area::{Checkpoints, FirstHead, FirstPack, Nat, SecondHead, SecondPack, Sit, Ssa, Superblocks};
    [
        ("checkpoints", &[Checkpoints]),
        ("nat", &[Nat]),
        ("superblocks", &[Superblocks]),
        ("sit", &[Sit]),
        ("tables", &[Sit, Nat, Ssa]),
        ("superblocks and nat", &[Superblocks, Nat]),
        ("superblocks and checkpoints", &[Superblocks, Checkpoints]),
        ("superblocks and the first pack", &[Superblocks, FirstPack]),
        ("superblocks and the second pack", &[Superblocks, SecondPack]),
        ("superblocks and the first pack's head", &[Superblocks, FirstHead]),
        ("superblocks and the second pack's head", &[Superblocks, SecondHead]),
        ("all but the main area", &[Superblocks, Checkpoints, Sit, Nat, Ssa]),
    ]
};

fn lose_areas(volume: &Volume, cases: &[(&str, &[Area])]) {
    let g = &volume.geometry;
    let blocks = |area: &Area| match area {
        Area::Superblocks => Address::new(0)..Address::new(2),
        Area::Checkpoints => g.checkpoint..g.sit,
        Area::FirstPack => g.checkpoint..g.checkpoint + 512,
        Area::SecondPack => g.checkpoint + 512..g.checkpoint + 1024,
        Area::FirstHead => g.checkpoint..g.checkpoint + 1,
        Area::SecondHead => g.checkpoint + 512..g.checkpoint + 513,
        Area::Sit => g.sit..g.nat,
        Area::Nat => g.nat..g.ssa,
        Area::Ssa => g.ssa..g.main,
    };
    for &(what, areas) in cases {
        let image = volume.copy(what);
        areas.iter().for_each(|area| zero(&image, blocks(area)));
        let report = volume.expect_all(&image, what);
        assert_eq!(report["search"]["without_place"], 0, "{what}: {report:#}");
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn whole_areas_may_be_gone() {
    let volume = Volume::ours(1);
    let report = volume.expect_all(&volume.copy("nothing"), "undamaged");
    assert_eq!((report["search"]["nat"].as_str(), report["search"]["sit"].as_str()), (Some("whole"), Some("whole")));
    lose_areas(&volume, &CASES);
}

#[test]
fn whole_areas_of_volumes_that_linux_made_may_be_gone() {
    let features = "extra_attr,inode_checksum,sb_checksum,flexible_inline_xattr,inode_crtime,lost_found";
    for arguments in [&[][..], &["-O", features]] {
        let Some(volume) = Volume::linux(arguments) else { return };
        lose_areas(&volume, &CASES[4..]);
    }
}

/// What tells one entry from another.
type Identity = (Option<u64>, Option<u64>, Option<u32>, Option<(i64, u32)>);

/// What tells one file from another wherever it is.
fn identity(entry: &Entry) -> Identity {
    (entry.content, entry.size, entry.mode, entry.mtime)
}

#[test]
fn five_percent_of_the_metadata_may_be_garbage() {
    for seed in 10..12 {
        let volume = Volume::ours(seed);
        let nodes = volume.nodes();
        let image = volume.copy("garbage");
        let file = FileOptions::new().write(true).open(&image).unwrap();
        let mut rng = Rng::new(seed);
        let mut spoiled = BTreeSet::new();
        let metadata = (0..u64::from(volume.geometry.main)).map(|block| (block, None));
        for (block, ino) in metadata.chain(nodes.into_iter().map(|(block, ino)| (block, Some(ino)))) {
            if rng.chance(5) {
                let mut garbage = [0; BLOCK as usize];
                rng.fill(&mut garbage);
                file.write_all_at(&garbage, block * BLOCK).unwrap();
                spoiled.extend(ino.map(u64::from));
            }
        }
        let (found, report, _) = volume.rescue(&image, &[]);
        let everything: BTreeSet<_> = found.entries.values().map(identity).collect();
        let mut whole = 0;
        for (path, entry) in &volume.expected.entries {
            if entry.kind == Kind::File && !spoiled.contains(&volume.inodes[path]) {
                whole += 1;
                let path = String::from_utf8_lossy(path);
                assert!(everything.contains(&identity(entry)), "seed {seed}: {path} did not come back: {report:#}");
            }
        }
        assert!(whole > 300, "seed {seed}: only {whole} files were left undamaged");
        assert!(!spoiled.is_empty());
    }
}

#[test]
fn an_image_may_be_cut_off() {
    let volume = Volume::ours(20);
    let nodes = volume.nodes();
    let cut = *nodes.keys().nth(nodes.len() * 3 / 4).unwrap();
    let image = volume.copy("cut");
    // Behind three of four nodes, and not at a block.
    FileOptions::new().write(true).open(&image).unwrap().set_len(cut * BLOCK + 512).unwrap();
    let (found, report, out) = volume.rescue(&image, &[]);
    assert!(report["search"]["truncated_bytes"].as_u64().unwrap() > 0, "{report:#}");
    let holes: BTreeMap<String, Vec<(u64, u64)>> = report["holes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            let path = file["path"].as_str().unwrap().replacen(out.to_str().unwrap(), ".", 1);
            (path, serde_json::from_value(file["missing"].clone()).unwrap())
        })
        .collect();
    let mut whole = 0;
    for (path, entry) in found.entries.iter().filter(|(_, entry)| entry.kind == Kind::File) {
        let Some(good) = volume.expected.entries.get(path) else { continue };
        if holes.contains_key(String::from_utf8_lossy(path).as_ref()) {
            assert_eq!(entry.size, good.size);
        } else if std::str::from_utf8(path).is_ok() && entry.same_as.is_none() {
            whole += 1;
            assert_eq!(identity(entry), identity(good), "{}: {report:#}", String::from_utf8_lossy(path));
        }
    }
    assert!(whole > 20, "{whole} whole files: {report:#}");
    assert!(!holes.is_empty(), "{report:#}");
}

#[test]
fn deleted_files_come_back_only_when_asked_for() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let content: Vec<u8> = (0..100_000u32).flat_map(|i| i.to_le_bytes()).collect();
    let (kept, gone) = (scratch.file("kept", "kept"), scratch.file("gone", &content));
    basalt(["put", &image, &kept, &gone, "/"]).ok();
    {
        let device = FileDevice::open(Path::new(&image), &DeviceOptions::default()).unwrap();
        let fs = F2fs::open(Arc::new(device), OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        fs.unlink(fs.root(), b"gone").unwrap();
        fs.close().unwrap();
    }
    let found = |options: &[&str], name: &str| {
        let out = scratch.path(name);
        let arguments = ["rescue", "-q", &image, out.to_str().unwrap()];
        assert_eq!(basalt(arguments.iter().chain(options)).code(), 0);
        assert_eq!(fs::read(out.join("kept")).unwrap(), b"kept");
        fs::read(out.join("lost+found/deleted/gone")).ok()
    };
    assert_eq!(found(&[], "without"), None);
    assert_eq!(found(&["--nodes-only"], "nodes-only"), None);
    assert_eq!(found(&["--deleted"], "with"), Some(content));
}

#[test]
fn a_list_writes_nothing_and_a_full_directory_is_refused() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    basalt(["put", &image, &scratch.file("name", "12345"), "/"]).ok();
    let before = fs::read(&image).unwrap();
    let list = basalt(["rescue", "--list", &image]).ok();
    assert!(list.lines().any(|line| line.trim_start().starts_with("5  /name")), "{list}");
    let full = scratch.directory("full");
    scratch.file("full/something", "");
    basalt(["rescue", &image, full.to_str().unwrap()]).fails(1, &["is not empty", "new directory"]);
    basalt(["rescue", &image]).fails(2, &["DIR"]);
    let nothing = scratch.file("nothing", vec![7; 4 << 20]);
    basalt(["rescue", "--list", &nothing]).fails(1, &["found no file"]);
    assert_eq!(fs::read(&image).unwrap(), before);
}

#[test]
fn a_list_says_how_much_there_is_to_copy() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    scratch.directory("tree");
    scratch.file("tree/small", "12345");
    scratch.file("tree/large", vec![7; 300_000]);
    fs::hard_link(scratch.path("tree/large"), scratch.path("tree/again")).unwrap();
    let holed = File::create(scratch.path("tree/holed")).unwrap();
    holed.write_all_at(&[7; 5000], 8 << 20).unwrap();
    holed.set_len(16 << 20).unwrap();
    basalt(["put", "-r", &image, &scratch.text("tree")]).ok();
    let listed = basalt(["rescue", "--list", "--json", &image]).json();
    let copied = basalt(["rescue", "--json", &image, &scratch.text("out")]).json();
    for what in ["bytes", "files", "hard_links"] {
        assert_eq!(listed["copied"][what], copied["copied"][what], "{what}");
    }
    assert!(listed["copied"]["bytes"].as_u64().unwrap() > 305_000, "{listed}");
    assert!(basalt(["rescue", "--list", &image]).ok().contains(" KiB; 0 left out"));
}

#[test]
fn a_rescue_that_finds_nothing_leaves_no_directory() {
    let scratch = Scratch::new();
    let (out, nothing) = (scratch.text("out"), scratch.file("nothing", vec![7; 4 << 20]));
    for image in [&scratch.text("missing"), &nothing] {
        assert_eq!(basalt(["rescue", image, &out]).code(), 1);
        assert!(!scratch.path("out").exists(), "{image}");
    }
    // One that was there stays.
    fs::create_dir(&out).unwrap();
    assert_eq!(basalt(["rescue", &nothing, &out]).code(), 1);
    assert!(scratch.path("out").exists());
}
