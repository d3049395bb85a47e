//! Rescue: what is found without roots and checkpoints is what the volume had. `BASALT_SEED` chooses another first seed.

#[path = "../../flashlight/tests/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};

use basalt_flashlight::{FlashLight, inspect};
use basalt_flashlight_vfs::{RescueError, Rescued};
use basalt_nand::{Geometry, NandDevice};
use basalt_random::Rng;
use basalt_vfs::{FileKind, FileSystem, Seek};
use support::{Device, Lossy, Model, Node};

const SEEDS: u64 = 6;

fn geometry() -> Geometry {
    Geometry::new(2048, 64, 16, 160).unwrap()
}

fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("BASALT_SEED").map_or(0, |seed| seed.parse().unwrap());
    first..first + SEEDS
}

/// A chip that was used a while; closed at the end, or left as a power cut leaves it.
fn used(seed: u64, is_closed: bool) -> (Device, Vec<u8>, Model) {
    let mut device = support::chip(geometry(), seed);
    let mut memory = support::memory(&geometry());
    // A volume that was there before.
    support::format(&mut device, &mut memory, 1000 + seed);
    {
        let mut volume = support::volume_of(&mut device, &mut memory);
        let mut before = Model::new(seed + 77, 300_000);
        (0..60).for_each(|_| before.step(&mut volume));
        volume.close().unwrap();
    }
    support::format(&mut device, &mut memory, seed);
    let mut model = Model::new(seed, 1_500_000);
    for round in 0..3 {
        let mut volume = support::volume_of(&mut device, &mut memory);
        (0..250).for_each(|_| model.step(&mut volume));
        volume.sync().unwrap();
        if round < 2 || is_closed {
            volume.close().unwrap();
        }
    }
    (device, memory, model)
}

/// Pages of roots, second levels and leaves.
fn checkpoints(device: &mut Device) -> BTreeSet<u32> {
    let (mut page, mut spare) = ([0; 2048], vec![0; device.geometry().spare_bytes as usize]);
    let mut is_checkpoint = |number: &u32| {
        let is_read = device.read(*number, &mut page, &mut spare).is_ok();
        is_read && (1..=3).contains(&page[0]) && inspect::data_owner(&spare).is_none()
    };
    (0..geometry().pages()).filter(&mut is_checkpoint).collect()
}

/// All that was found; files of which a part is lost are `None`.
fn tree<D: NandDevice + Send>(fs: &Rescued<D>) -> BTreeMap<String, Option<Node>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(fs.root(), String::new())];
    while let Some((directory, path)) = waiting.pop() {
        let mut children = Vec::new();
        let mut take = |entry: basalt_vfs::DirectoryEntry<'_>| {
            children.push((entry.ino, entry.kind, String::from_utf8(entry.name.to_vec()).unwrap()));
            true
        };
        fs.read_directory(directory, 0, &mut take).unwrap();
        for (ino, kind, name) in children.into_iter().filter(|(_, _, name)| name != "." && name != "..") {
            let below = format!("{path}/{name}");
            assert_eq!(fs.lookup(directory, name.as_bytes()).unwrap().ino, ino);
            let attributes = fs.attributes(ino).unwrap();
            assert_eq!(attributes.kind, kind);
            let node = match kind {
                FileKind::Directory => {
                    waiting.push((ino, below.clone()));
                    Some(Node::Directory)
                }
                FileKind::Symlink => fs.read_link(ino).ok().map(Node::Link),
                _ => content(fs, ino, attributes.size).map(Node::File),
            };
            found.insert(below, node);
        }
    }
    found
}

/// The content of a file, and that all ways to ask for what is missing agree.
fn content<D: NandDevice + Send>(fs: &Rescued<D>, ino: u64, size: u64) -> Option<Vec<u8>> {
    let mut content = vec![0; size as usize];
    let read = fs.read(ino, 0, &mut content);
    let lost = fs.lost_ranges(ino).unwrap();
    assert_eq!(read.is_ok(), lost.is_empty());
    for range in &lost {
        assert!(fs.missing_until(ino, range.start).is_some_and(|end| end >= range.end));
        assert_eq!(fs.seek(ino, range.start, Seek::Data).unwrap(), range.start, "what is lost is no hole");
        assert!(range.end == size || fs.missing_until(ino, range.end).is_none());
    }
    read.ok().map(|_| content)
}

fn whole(model: &Model) -> BTreeMap<String, Option<Node>> {
    model.tree.iter().map(|(path, node)| (path.clone(), Some(node.clone()))).collect()
}

fn differences(found: &BTreeMap<String, Option<Node>>, wanted: &BTreeMap<String, Option<Node>>) -> Vec<String> {
    let all: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
    let differs = all.into_iter().filter(|path| found.get(*path) != wanted.get(*path));
    let said = |there: Option<&Option<Node>>| match there {
        None => "absent",
        Some(None) => "damaged",
        Some(Some(_)) => "there",
    };
    differs.map(|path| format!("{path}: {}, {} wanted", said(found.get(path)), said(wanted.get(path)))).collect()
}

#[test]
fn without_any_checkpoint_everything_is_found() {
    for seed in seeds() {
        for is_closed in [true, false] {
            let (mut device, _, model) = used(seed, is_closed);
            let lost = checkpoints(&mut device);
            assert!(lost.len() > 8);
            let found = Rescued::search(Lossy { device, lost }, false, &mut |_, _| {}).unwrap();
            let report = found.report();
            assert_eq!(report.identity, None, "no root can be read");
            assert_eq!((report.outdated, report.lost, report.damaged_directories), (0, 0, 0), "seed {seed}");
            assert_eq!(report.inodes as usize, model.tree.len(), "seed {seed}");
            let differences = differences(&tree(&found), &whole(&model));
            assert!(differences.is_empty(), "seed {seed}, closed {is_closed}: {differences:#?}");
        }
    }
}

/// What a power cut leaves is what the next mount would recover.
#[test]
fn what_a_mount_would_recover_is_found() {
    for seed in seeds() {
        let (mut device, mut memory, mut model) = used(seed, true);
        {
            let mut volume = support::volume_of(&mut device, &mut memory);
            (0..40).for_each(|_| model.step(&mut volume));
        }
        let found = Rescued::search(&mut device, false, &mut |_, _| {}).unwrap();
        let rescued = tree(&found);
        drop(found);
        let mut volume = FlashLight::mount(&mut device, &mut memory[..]).unwrap();
        let mounted = support::tree(&mut volume).into_iter().map(|(path, node)| (path, Some(node))).collect();
        let differences = differences(&rescued, &mounted);
        assert!(differences.is_empty(), "seed {seed}: {differences:#?}");
    }
}

/// With pages gone all over the chip, what is shown as whole is as it was, and what was not hit is there.
#[test]
fn what_was_not_hit_is_found_and_nothing_is_made_up() {
    for seed in seeds() {
        let (mut device, _, model) = used(seed, true);
        let mut rng = Rng::new(seed);
        let mut lost = checkpoints(&mut device);
        lost.extend((0..geometry().pages()).filter(|_| rng.chance(3)));
        let found = Rescued::search(Lossy { device, lost }, true, &mut |_, _| {}).unwrap();
        let report = found.report().clone();
        let all = tree(&found);
        let shown: BTreeMap<_, _> =
            all.iter().filter(|(path, node)| !path.starts_with("/lost+found") && node.is_some()).collect();
        let mut same = 0;
        for (path, node) in &shown {
            let is_same = model.tree.get(*path) == node.as_ref();
            same += usize::from(is_same);
            // Only an older inode, or a directory of which a bucket is gone, shows what is no longer so.
            assert!(is_same || report.outdated + report.damaged_directories > 0, "seed {seed}: {path}: {report:?}");
        }
        // One page in 33 is gone; a file of 40 pages survives with a probability of a third.
        assert!(same * 2 > model.tree.len(), "seed {seed}: {same} of {}: {report:?}", model.tree.len());
        let hit = shown.len() < all.len() || same < model.tree.len();
        assert!(hit && report.unreadable_pages > 0, "seed {seed}");
    }
}

#[test]
fn deleted_files_are_found_if_they_are_asked_for() {
    let mut device = support::chip(geometry(), 1);
    let mut memory = support::memory(&geometry());
    support::format(&mut device, &mut memory, 1);
    {
        let mut volume = support::volume_of(&mut device, &mut memory);
        for name in ["kept", "deleted"] {
            let file = volume.create(volume.root(), name.as_bytes(), &support::new_file(0o600)).unwrap();
            volume.write(file, 0, name.repeat(1000).as_bytes(), support::NOW).unwrap();
        }
        volume.sync().unwrap();
        volume.unlink(volume.root(), b"deleted", false, support::NOW).unwrap();
        volume.close().unwrap();
    }
    let found = Rescued::search(&mut device, false, &mut |_, _| {}).unwrap();
    assert_eq!(tree(&found).into_keys().collect::<Vec<_>>(), ["/kept"]);
    assert_eq!(found.report().deleted, 1);
    drop(found);
    let found = tree(&Rescued::search(&mut device, true, &mut |_, _| {}).unwrap());
    let deleted: Vec<_> = found.iter().filter(|(path, _)| path.starts_with("/lost+found/deleted/")).collect();
    assert_eq!(deleted.len(), 1, "{:?}", found.keys());
    assert_eq!(*deleted[0].1, Some(Node::File("deleted".repeat(1000).into_bytes())));
}

/// A file that contains an inode of a volume with the same number, newer than all that is here, makes no file.
#[test]
fn what_a_file_contains_is_no_inode() {
    let mut memory = support::memory(&geometry());
    let mut later = support::chip(geometry(), 1);
    support::format(&mut later, &mut memory, 1);
    let mut volume = support::volume_of(&mut later, &mut memory);
    let seed = volume.identity().seed();
    for at in 0..300 {
        let ghost = volume.create(volume.root(), format!("ghost{at}").as_bytes(), &support::new_file(0o600)).unwrap();
        volume.sync_file(ghost).unwrap();
    }
    volume.close().unwrap();
    let mut inodes = Vec::new();
    let mut page = vec![0; 2048];
    for number in 0..geometry().pages() {
        later.read(number, &mut page, &mut []).unwrap();
        let found = inspect::MetadataPage::of(&page, seed);
        if found.is_some_and(|found| matches!(found.kind(), inspect::PageKind::File(_))) {
            inodes.extend_from_slice(&page);
        }
    }
    assert!(inodes.len() >= 300 * 2048);
    let mut device = support::chip(geometry(), 1);
    support::format(&mut device, &mut memory, 1);
    let mut volume = support::volume_of(&mut device, &mut memory);
    let upload = volume.create(volume.root(), b"upload", &support::new_file(0o600)).unwrap();
    volume.write(upload, 0, &inodes, support::NOW).unwrap();
    volume.close().unwrap();
    let lost = checkpoints(&mut device);
    let found = tree(&Rescued::search(Lossy { device, lost }, true, &mut |_, _| {}).unwrap());
    assert_eq!(found, BTreeMap::from([("/upload".to_owned(), Some(Node::File(inodes)))]));
}

#[test]
fn a_chip_without_a_volume_is_told() {
    let search = |device: &mut Device| Rescued::search(device, true, &mut |_, _| {}).map(|_| ()).unwrap_err();
    let mut device = support::chip(geometry(), 1);
    assert_eq!(search(&mut device), RescueError::NoInode);
    // Pages of something else.
    let mut rng = Rng::new(1);
    for page in 0..300 {
        let mut bytes = [0; 2048];
        rng.fill(&mut bytes);
        device.program(page, &bytes, &[]).unwrap();
    }
    assert_eq!(search(&mut device), RescueError::NoInode);
}
