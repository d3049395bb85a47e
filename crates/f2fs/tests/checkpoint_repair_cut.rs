//! Repairs of volumes whose newest checkpoint is lost, and that power cuts at any of their requests: what shows the loss stays until there is
//! another checkpoint, and a second repair has what the first one had.

#[allow(dead_code)] // Part of it is for other tests.
mod packs;

use std::sync::Arc;

use basalt_device::power::{Change, Fate, History, Replay};
use basalt_device::{BlockDevice, MemoryDevice, PowerCutDevice};
use basalt_f2fs::Geometry;
use basalt_f2fs::check::FaultKind;
use basalt_f2fs::checkpoint::choose::choose_pack;
use basalt_f2fs::layout::superblock::RawSuperblock;
use basalt_f2fs::repair::{RepairOptions, plan, restore};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileSystem};
use packs::{
    BLOCK, FILE, FILES, Outcome, both, ends, files, fill, flip, fresh, last, make, open, unmounted, written_behind,
};
use zerocopy::FromBytes;

/// Cuts a repair before each of its requests; each time nothing is lost, or hidden, and a backup puts all back as it was.
fn cut_everywhere(what: &str, image: MemoryDevice) {
    cut_and_maybe_ask(what, image, false);
}

/// With `may_ask`, nothing but the order of versions tells what counts, once the journals of both packs are gone: a repair may say so.
fn cut_and_maybe_ask(what: &str, image: MemoryDevice, may_ask: bool) {
    let is_told = |found: &Outcome| found.losses <= usize::from(may_ask);
    let before = Outcome::of(&image, files);
    assert_eq!((before.rescued, before.repaired), (Some(FILES), Some(FILES)), "{what}: {before:?}");
    assert!(is_told(&before), "{what}: {before:?}");
    let mut backup = Vec::new();
    let original: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    plan(original, &RepairOptions::default(), &mut |_| ()).unwrap().back_up(&mut backup).unwrap();
    let device = Arc::new(PowerCutDevice::new(image.snapshot()));
    plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    let history = device.history();
    for at in 0..=history.changes.len() {
        let cut = Replay::new(&history).cut(at, |cached| cached.iter().map(|_| Fate::Kept).collect());
        let after = Outcome::of(&cut, files);
        let what = format!(
            "{what}, cut before {at} of {}: {:?}",
            history.changes.len(),
            history.changes.get(at).map(Change::range)
        );
        assert!(after.repaired == Some(FILES) && is_told(&after), "{what}: {after:?}");
        assert!(!after.is_silent(FILES), "{what}: {after:?}");
        restore(&cut, &mut std::io::Cursor::new(&backup), false).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(Outcome::of(&cut, files).repaired, Some(FILES), "{what}, put back");
        let torn = Replay::new(&history).cut(at, |cached| {
            cached
                .iter()
                .map(|change| Fate::Torn((0..change.sectors()).map(|sector| sector % 8 > 2).collect()))
                .collect()
        });
        restore(&torn, &mut std::io::Cursor::new(&backup), false)
            .unwrap_or_else(|error| panic!("{what}, torn: {error}"));
        for unreadable in unreadable_cuts(&history, at) {
            let after = Outcome::of(&unreadable, files);
            assert!(!after.is_silent(FILES), "{what}, pages unreadable: {after:?}");
            assert!(!after.is_writable || after.mounted == Some(FILES), "{what}, pages unreadable: {after:?}");
            // A repair stops at a page that it needs and cannot read, as any program would: rescue goes on.
            let found = if after.repaired.is_none() { after.rescued } else { after.repaired };
            assert!(found == Some(FILES) && is_told(&after), "{what}, pages unreadable: {after:?}");
            restore(&unreadable, &mut std::io::Cursor::new(&backup), false)
                .unwrap_or_else(|error| panic!("{what}, pages unreadable: {error}"));
            assert_eq!(Outcome::of(&unreadable, files).repaired, Some(FILES), "{what}, pages unreadable, put back");
        }
    }
}

/// What a cut leaves where pages that were being written cannot be read: all of them, or each of the first three alone.
fn unreadable_cuts(history: &History, at: usize) -> Vec<MemoryDevice> {
    let mut cuts = Vec::new();
    for only in [None].into_iter().chain((0..3).map(Some)) {
        let mut blocks = 0;
        let image = Replay::new(history).cut(at, |cached| {
            let fate = |change: &Change| {
                let Change::Write { data, .. } = change else { return Fate::Kept };
                let first = blocks;
                blocks += data.len() / BLOCK as usize;
                Fate::Unreadable(
                    (0..change.sectors()).map(|sector| only.is_none_or(|only| only == first + sector / 8)).collect(),
                )
            };
            cached.iter().map(fate).collect()
        });
        if only.is_none_or(|only| only < blocks) {
            cuts.push(image);
        }
    }
    cuts
}

#[test]
fn of_an_unmounted_volume() {
    let image = unmounted();
    fill(&image, ends(&image)[0], 10, 0x5A);
    cut_everywhere("unmounted", image);
}

#[test]
fn of_a_volume_in_use() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 3);
    fs.sync().unwrap();
    make(&fs, 3, FILES);
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    fill(&image, ends(&image)[0], 10, 0x5A);
    cut_everywhere("in use", image);
}

/// The checkpoint that counts meanwhile has a damaged end as well, which is not mended before there is another.
#[test]
fn beside_a_checkpoint_with_a_damaged_end() {
    let image = written_behind();
    let [newest, older] = both(&image);
    // A version far ahead: the next one is not near the one that counts.
    image.write_at(u64::from(newest.start) * BLOCK, &(newest.raw.checkpoint_ver.get() + 32).to_le_bytes()).unwrap();
    fill(&image, last(&newest), 1, 0x5A);
    fill(&image, u64::from(newest.start) + 3, 508, 0);
    flip(&image, last(&older) * BLOCK + 99, 0x40);
    cut_everywhere("a damaged end", image);
}

/// The volume was repaired before: a last block of that repair is where the next one writes its summaries in front of it.
fn repaired_before() -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 3);
    fs.close().unwrap();
    drop(fs);
    fill(&device, ends(&device)[0], 10, 0x5A);
    plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    let fs = open(device.clone());
    for name in ["one", "two"] {
        fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap();
        fs.sync().unwrap();
    }
    make(&fs, 3, FILES);
    fs.sync().unwrap();
    let image = device.snapshot();
    drop(fs);
    for end in ends(&image) {
        fill(&image, end, 1, 0x5A);
    }
    image
}

#[test]
fn behind_an_earlier_repair() {
    cut_everywhere("behind an earlier repair", repaired_before());
}

/// Of the newest checkpoint, that of a volume unmounted with many blocks in its data logs, the last blocks are left.
fn unmounted_long() -> MemoryDevice {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, FILES);
    let ino = fs.create(fs.root(), b"long", &FILE, &Caller::default()).unwrap().ino;
    fs.write(ino, 0, &vec![1; 480 * BLOCK as usize], false).unwrap();
    fs.close().unwrap();
    drop(fs);
    let image = device.snapshot();
    fill(&image, ends(&image)[0], 4, 0x5A);
    image
}

/// What is left are the last blocks of packs of long ago.
#[test]
fn beside_ends_of_before() {
    let image = written_behind();
    let [newest, older] = both(&image);
    for pack in [&newest, &older] {
        flip(&image, u64::from(pack.start) * BLOCK + 99, 0x40);
        fill(&image, last(pack), 1, 0x5A);
    }
    cut_everywhere("both damaged at both ends", image);
    let image = written_behind();
    let packs = both(&image);
    for pack in &packs {
        let count = if pack.index == 0 { u64::from(pack.raw.cp_pack_total_block_count.get()) } else { 16 };
        fill(&image, pack.start.into(), count, 0x5A);
    }
    cut_and_maybe_ask("one is gone", image, true);
}

/// A lost pack claims a version far ahead: the repair's is behind that, also where power cut one repair and then another.
#[test]
fn versions_go_on_behind_what_was_lost() {
    let image = written_behind();
    let [newest, _] = both(&image);
    let claimed = newest.raw.checkpoint_ver.get() + 32;
    image.write_at(u64::from(newest.start) * BLOCK, &claimed.to_le_bytes()).unwrap();
    fill(&image, last(&newest), 1, 0x5A);
    fill(&image, u64::from(newest.start) + 3, 508, 0);
    for (at, once) in cuts(&image).iter().enumerate() {
        for (again, twice) in cuts(once).into_iter().enumerate() {
            let device: Arc<MemoryDevice> = Arc::new(twice);
            plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
            let geometry = Geometry::read(&*device).unwrap().0;
            let version = choose_pack(&*device, &geometry).unwrap().0.raw.checkpoint_ver.get();
            assert!(version > claimed, "cut at {at}, then {again}: {version} is not behind {claimed}");
            assert_eq!(files(&open(device)), FILES, "cut at {at}, then {again}");
        }
    }
}

/// Only its own last block tells how far a lost pack was.
#[test]
fn versions_go_on_behind_a_last_block() {
    let image = unmounted();
    let geometry = Geometry::read(&image).unwrap().0;
    let lost = both(&image)[0].raw.checkpoint_ver.get();
    let [first, end] = ends(&image);
    fill(&image, first, end - first, 0x5A);
    let device: Arc<dyn BlockDevice> = Arc::new(image);
    plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    let version = choose_pack(&*device, &geometry).unwrap().0.raw.checkpoint_ver.get();
    assert!(version > lost, "{version} is not behind {lost}");
    assert_eq!(files(&open(device)), FILES);
}

/// A repair is put back, and power cuts that: it leaves what a cut of the repair leaves.
#[test]
fn putting_back_is_cut_like_a_repair() {
    let rng = &mut Rng::new(5);
    let gone = |image: MemoryDevice| {
        let [first, last] = ends(&image);
        fill(&image, first, last - first + 1, 0x5A);
        image
    };
    let images = [
        ("in use", gone(written_behind())),
        ("unmounted", gone(unmounted())),
        ("repaired before", repaired_before()),
        ("its last blocks are left", unmounted_long()),
    ];
    for (what, image) in images {
        let device = Arc::new(image);
        let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
        let mut backup = Vec::new();
        planned.back_up(&mut backup).unwrap();
        planned.commit().unwrap();
        let device = PowerCutDevice::new(device.snapshot());
        restore(&device, &mut std::io::Cursor::new(&backup), false).unwrap();
        let history = device.history();
        for at in 0..=history.changes.len() {
            for style in 0..8 {
                let cut = Replay::new(&history).cut(at, |cached| {
                    let fate = |change: &Change| match style {
                        0 => Fate::Kept,
                        1..4 if rng.chance(50) => Fate::Kept,
                        1..4 => Fate::Lost,
                        6.. => Fate::Unreadable((0..change.sectors() / 8).flat_map(|_| [rng.chance(50); 8]).collect()),
                        _ => Fate::Torn((0..change.sectors()).map(|_| rng.chance(50)).collect()),
                    };
                    cached.iter().map(fate).collect()
                });
                let found = Outcome::of(&cut, files);
                let what = format!("{what}, cut before {at} of {}, style {style}: {found:?}", history.changes.len());
                let is_found = found.repaired == Some(FILES) || found.repaired.is_none() && style >= 6;
                assert!(is_found && found.rescued == Some(FILES) && !found.is_silent(FILES), "{what}");
                assert!(!found.is_writable || found.mounted == Some(FILES), "{what}");
                restore(&cut, &mut std::io::Cursor::new(&backup), false).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
}

/// What a repair leaves that power cuts before each of its requests.
fn cuts(image: &MemoryDevice) -> Vec<MemoryDevice> {
    let device = Arc::new(PowerCutDevice::new(image.snapshot()));
    plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    let history = device.history();
    (0..=history.changes.len())
        .map(|at| Replay::new(&history).cut(at, |c| c.iter().map(|_| Fate::Kept).collect()))
        .collect()
}

/// A block of the newest pack, which is damaged at both ends, or one of these, cannot be read: nothing makes it look older while it may be
/// readable again.
#[test]
fn beside_a_pack_that_cannot_be_read() {
    for spoilt in 0..3 {
        let image = written_behind();
        let newest = both(&image)[0].clone();
        let last = last(&newest);
        [newest.start.into(), last].into_iter().for_each(|end| fill(&image, end, 1, 0x5A));
        image.spoil([u64::from(newest.start) + 1, last, newest.start.into()][spoilt] * BLOCK, BLOCK).unwrap();
        let before = Outcome::of(&image, files);
        if before.is_clean {
            // A first block that cannot be read is what a cut leaves: docs/fsck.md.
            assert_eq!(spoilt, 2, "{before:?}");
            continue;
        }
        let device = Arc::new(PowerCutDevice::new(image));
        plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        let history = device.history();
        for at in 0..=history.changes.len() {
            let kept = Replay::new(&history).cut(at, |cached| cached.iter().map(|_| Fate::Kept).collect());
            for cut in unreadable_cuts(&history, at).into_iter().chain([kept]) {
                let after = Outcome::of(&cut, files);
                let what = format!("{spoilt}, cut before {at} of {}: {after:?}", history.changes.len());
                assert!(!after.is_silent(FILES) && after.rescued == Some(FILES), "{what}");
                assert!(!after.is_writable || after.mounted == Some(FILES), "{what}");
            }
        }
    }
}

/// A repair writes both superblocks, and power cuts it: whichever cannot be read then, the other one can.
#[test]
fn of_both_superblocks() {
    let image = unmounted();
    let mut block = [0; BLOCK as usize];
    image.read_at(0, &mut block).unwrap();
    let superblock = &mut block[1024..];
    let raw = RawSuperblock::mut_from_prefix(superblock).unwrap().0;
    // An inode for quota that does not exist.
    raw.qf_ino[0].set(40_000);
    raw.crc.set(raw.expected_crc());
    [0, BLOCK].into_iter().for_each(|copy| image.write_at(copy, &block).unwrap());
    let device = Arc::new(PowerCutDevice::new(image));
    let report = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    assert!(report.clean && report.repairs.iter().any(|repair| repair.kind == FaultKind::QuotaInode), "{report:?}");
    let history = device.history();
    for at in 0..=history.changes.len() {
        for cut in unreadable_cuts(&history, at) {
            let after = Outcome::of(&cut, files);
            assert_eq!(after.mounted, Some(FILES), "cut before {at} of {}: {after:?}", history.changes.len());
        }
    }
}

/// Random use, random damage to one pack or both, and a cut of the repair somewhere, with blocks lost, kept or torn.
#[test]
fn of_random_damage() {
    for seed in 0..30 {
        let rng = &mut Rng::new(seed);
        let (image, values) = random_volume(rng);
        let whole = |fs: &dyn FileSystem| {
            let is_whole = |(number, value): &(usize, &u8)| {
                let Ok(found) = fs.lookup(fs.root(), format!("file{number}").as_bytes()) else { return false };
                let mut bytes = vec![0; 9_000];
                fs.read(found.ino, 0, &mut bytes).is_ok() && bytes.iter().all(|byte| byte == *value)
            };
            values.iter().enumerate().filter(is_whole).count() as u64
        };
        let what = format!("seed {seed}: {}", damage(&image, rng));
        let before = Outcome::of(&image, whole);
        let goes_back = before.is_writable && before.mounted < Some(FILES);
        if goes_back || before.is_silent(FILES) || before.repaired.is_none() {
            // What looks like a cut, and zeros in place of the first pack: docs/fsck.md.
            let is_known = ["bits at either end of the newest", "zeros over the newest, the first"];
            assert!(is_known.iter().any(|known| what.contains(known)) || before.losses > 0, "{what}: {before:?}");
            continue;
        }
        let device = Arc::new(PowerCutDevice::new(image.snapshot()));
        plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        let history = device.history();
        for at in 0..history.changes.len() {
            // Without a checkpoint to keep, a repair writes nodes where they are: a page that is torn then is gone.
            let style = rng.below(if before.mounted.is_some() { 4 } else { 2 });
            let cut = Replay::new(&history).cut(at, |cached| {
                let fate = |change: &Change| match style {
                    0 => Fate::Kept,
                    1 if rng.below(2) == 0 => Fate::Kept,
                    1 => Fate::Lost,
                    3 => Fate::Unreadable((0..change.sectors() / 8).flat_map(|_| [rng.below(2) == 0; 8]).collect()),
                    _ => Fate::Torn((0..change.sectors()).map(|_| rng.below(2) == 0).collect()),
                };
                cached.iter().map(fate).collect()
            });
            let after = Outcome::of(&cut, whole);
            let what = format!("{what}, cut before {at} of {}, style {style}", history.changes.len());
            // A repair stops at a page that it needs and cannot read: rescue goes on.
            let is_stopped = style == 3 && after.repaired.is_none() && after.rescued >= before.rescued;
            assert!(is_stopped || after.repaired >= before.repaired, "{what}: {before:?}, then {after:?}");
            assert!(!after.is_silent(before.repaired.unwrap()), "{what}: {before:?}, then {after:?}");
        }
    }
}

/// A volume after some use, and what each file holds.
fn random_volume(rng: &mut Rng) -> (MemoryDevice, Vec<u8>) {
    let device = Arc::new(fresh());
    let mut fs = open(device.clone());
    make(&fs, 0, FILES);
    let mut values: Vec<u8> = (0..FILES as u8).collect();
    fs.sync().unwrap();
    let mut held = Vec::new();
    for step in 0..5 + rng.below(40) {
        let number = rng.below(FILES);
        let name = format!("file{number}");
        match rng.below(10) {
            0..=3 => {
                let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
                values[number as usize] = 100 + step as u8;
                fs.write(ino, 0, &[100 + step as u8; 9_000], false).unwrap();
                if rng.chance(50) {
                    fs.sync_file(ino, false).unwrap();
                }
            }
            4 => {
                fs.unlink(fs.root(), name.as_bytes()).unwrap();
                make(&fs, number, number + 1);
                values[number as usize] = number as u8;
            }
            5 | 6 => fs.sync().unwrap(),
            7 => {
                let name = format!("open{step}");
                held.push(fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino);
                fs.unlink(fs.root(), name.as_bytes()).unwrap();
            }
            8 => held.pop().into_iter().for_each(|ino| fs.forget(ino, 1)),
            _ if rng.chance(30) => {
                held.clear();
                fs.close().unwrap();
                drop(fs);
                fs = open(device.clone());
            }
            _ => {
                let ino = fs.create(fs.root(), format!("big{step}").as_bytes(), &FILE, &Caller::default()).unwrap().ino;
                fs.write(ino, 0, &vec![1; (rng.below(300) * BLOCK) as usize], false).unwrap();
            }
        }
    }
    match rng.below(3) {
        0 => fs.sync().unwrap(),
        1 => fs.close().unwrap(),
        _ => (0..FILES).for_each(|number| {
            let ino = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap().ino;
            fs.sync_file(ino, false).unwrap();
        }),
    }
    let image = device.snapshot();
    drop(fs);
    (image, values)
}

/// Damages the newest pack, the older one or both; says how.
fn damage(image: &MemoryDevice, rng: &mut Rng) -> String {
    let [newest, older] = both(image);
    let mut what = Vec::new();
    let which = [1, 1, 2, 3][rng.index(4)];
    for (bit, pack) in [newest, older].into_iter().enumerate().filter(|(bit, _)| which >> bit & 1 != 0) {
        let (start, total) = (u64::from(pack.start), u64::from(pack.raw.cp_pack_total_block_count.get()));
        let (byte, name) = [(0, "zeros"), (0x5A, "garbage"), (0xFF, "ones")][rng.index(3)];
        let role = format!("the {}, the {}", ["newest", "older"][bit], ["first", "second"][pack.index as usize]);
        let (way, more, count) = (rng.below(6), rng.below(8), 1 + rng.below(total));
        let mut turn = |block: u64| flip(image, block * BLOCK + rng.below(BLOCK), 1 << rng.below(8));
        match way {
            0 => fill(image, start, total + more, byte),
            1 => fill(image, start, count, byte),
            2 => [start, last(&pack)].into_iter().for_each(|block| fill(image, block, 1, byte)),
            3 => turn(start),
            4 => turn(last(&pack)),
            _ => [start, last(&pack)].into_iter().for_each(turn),
        }
        what.push(match way {
            0..=2 => format!("{name} over {role}"),
            3 | 4 => format!("a bit of {role}"),
            _ => format!("bits at either end of {role}"),
        });
    }
    what.join(", ")
}

/// The same of superblocks of which only one is of use.
#[test]
fn the_superblock_of_use_is_written_last() {
    for broken in 0..2 {
        let image = unmounted();
        let mut block = [0; BLOCK as usize];
        image.read_at(0, &mut block).unwrap();
        let raw = RawSuperblock::mut_from_prefix(&mut block[1024..]).unwrap().0;
        raw.qf_ino[0].set(40_000);
        raw.crc.set(raw.expected_crc());
        [0, BLOCK].into_iter().for_each(|copy| image.write_at(copy, &block).unwrap());
        fill(&image, broken, 1, 0x5A);
        let device = Arc::new(PowerCutDevice::new(image));
        plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
        let history = device.history();
        for at in 0..=history.changes.len() {
            for cut in unreadable_cuts(&history, at) {
                let after = Outcome::of(&cut, files);
                assert_eq!(after.mounted, Some(FILES), "{broken}, cut before {at}: {after:?}");
            }
        }
    }
}

/// What the repair did not write, and whoever uses the volume does, cannot be read: nobody knows whether it is as it was.
#[test]
fn nothing_is_put_back_beside_a_witness_that_cannot_be_read() {
    let image = unmounted();
    let newest = both(&image)[0].clone();
    fill(&image, newest.start.into(), 10, 0x5A);
    let device = Arc::new(image);
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap();
    let mut backup = Vec::new();
    planned.back_up(&mut backup).unwrap();
    planned.commit().unwrap();
    let repaired = device.snapshot();
    restore(&repaired.snapshot(), &mut std::io::Cursor::new(&backup), false).unwrap();
    for witness in witnesses(&repaired) {
        let spoilt = repaired.snapshot();
        spoilt.spoil(witness * BLOCK, BLOCK).unwrap();
        assert!(restore(&spoilt, &mut std::io::Cursor::new(&backup), false).is_err(), "block {witness}");
    }
}

/// Where the logs go on, and nothing is yet.
fn witnesses(image: &MemoryDevice) -> Vec<u64> {
    let geometry = Geometry::read(image).unwrap().0;
    let raw = choose_pack(image, &geometry).unwrap().0.raw;
    let logs = raw.cur_data_segno[..3].iter().zip(&raw.cur_data_blkoff[..3]);
    logs.map(|(segment, offset)| u64::from(geometry.main + segment.get() * 512 + u32::from(offset.get()))).collect()
}

/// Nothing says how far a lost pack was; both packs of a repair are newer than the one that was left.
#[test]
fn both_packs_of_a_repair_are_newer_than_what_was_left() {
    let image = unmounted();
    let left = both(&image)[1].raw.checkpoint_ver.get();
    let [first, last] = ends(&image);
    fill(&image, first, last - first + 1, 0x5A);
    let device = Arc::new(image);
    plan(device.clone(), &RepairOptions::default(), &mut |_| ()).unwrap().commit().unwrap();
    let versions = both(&device).map(|pack| pack.raw.checkpoint_ver.get());
    assert!(versions.iter().all(|version| *version > left), "{versions:?} behind {left}");
}

/// A file that only the lost journal had is found, and its inode is to be changed: not where it is, before the checkpoint is durable.
#[test]
fn of_a_node_that_only_the_journal_had() {
    let device = Arc::new(fresh());
    let fs = open(device.clone());
    make(&fs, 0, 38);
    fs.close().unwrap();
    drop(fs);
    let fs = open(device.clone());
    make(&fs, 38, FILES);
    fs.close().unwrap();
    let image = device.snapshot();
    drop(fs);
    let main = u64::from(Geometry::read(&image).unwrap().0.main);
    let mut block = [0; BLOCK as usize];
    for address in main..image.size() / BLOCK {
        image.read_at(address * BLOCK, &mut block).unwrap();
        // The name, and the number of links.
        if block[88..98] == *b"\x06\0\0\0file39" {
            image.write_at(address * BLOCK + 12, &[7]).unwrap();
        }
    }
    fill(&image, u64::from(both(&image)[0].start) + 1, 1, 0x5A);
    cut_and_maybe_ask("a damaged journal", image, true);
}
