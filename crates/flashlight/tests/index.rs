//! The index of large files where it is just about to grow: pieces that go past the last map, extents that are split in a full log, the
//! longest names.

mod support;

use std::collections::BTreeMap;

use basalt_flashlight::{FlashLight, InodeNumber};
use basalt_nand::Geometry;
use basalt_random::Rng;
use support::{Device, NOW, chip, new_file, volume_of};

const PAGE: u64 = 2048;
const PER_MAP: u64 = 506;
const PER_REGION: u64 = 16 * PER_MAP;

type Volume<'m, 'd> = FlashLight<&'m mut [u8], &'d mut Device>;

fn content(page: u64, version: u32) -> Vec<u8> {
    (page << 32 | u64::from(version)).to_le_bytes().repeat(PAGE as usize / 8)
}

/// Runs a test on a new volume with an empty file.
fn with_file(geometry: Geometry, test: impl FnOnce(&mut Volume<'_, '_>, InodeNumber)) {
    let mut device = chip(geometry, 1);
    let mut memory = support::memory(&geometry);
    support::format(&mut device, &mut memory, 1);
    let mut volume = volume_of(&mut device, &mut memory);
    let file = volume.create(volume.root(), b"wide", &new_file(0o644)).unwrap();
    test(&mut volume, file);
    assert!(volume.check().unwrap().is_sound());
    volume.unmount().map_err(|(error, _)| error).unwrap();
}

fn expect(volume: &mut Volume<'_, '_>, file: InodeNumber, pages: &BTreeMap<u64, u32>) {
    for (&page, &version) in pages {
        let mut read = vec![0; PAGE as usize];
        volume.read(file, page * PAGE, &mut read).unwrap();
        assert!(read == content(page, version), "page {page} is not of version {version}");
    }
}

/// A piece that goes past the last map is cut in two by the end of a block: the first part must not leave the inode for a map that is not there.
#[test]
fn what_is_written_past_the_last_map_is_there() {
    for seed in 0..2 {
        with_file(Geometry::new(2048, 64, 16, 700).unwrap(), |volume, file| {
            let mut rng = Rng::new(seed);
            let other = volume.create(volume.root(), b"other", &new_file(0o644)).unwrap();
            let (mut now, mut end) = (BTreeMap::new(), 0);
            for version in 1..2_000 {
                if end == 0 || end > 24 * PER_MAP {
                    now.clear();
                    volume.set_length(file, 0, NOW).unwrap();
                    end = 17 * PER_MAP + rng.below(400);
                    volume.set_length(file, end * PAGE, NOW).unwrap();
                }
                volume.write(other, rng.below(20) * 17 * PAGE, &[1; 17 * PAGE as usize], NOW).unwrap();
                let appends = rng.chance(60);
                let (page, pages) =
                    if appends { (end, rng.between(17, 32)) } else { (PER_REGION + rng.below(end - PER_REGION), 1) };
                let bytes: Vec<u8> = (page..page + pages).flat_map(|page| content(page, version)).collect();
                volume.write(file, page * PAGE, &bytes, NOW).unwrap();
                end = end.max(page + pages);
                let written: BTreeMap<u64, u32> = (page..page + pages).map(|page| (page, version)).collect();
                expect(volume, file, &written);
                now.extend(written);
            }
            expect(volume, file, &now);
        });
    }
}

/// The log of the inode is full, and an extent that begins in front of a region ends behind its first map.
#[test]
fn an_extent_is_split_in_a_full_log() {
    for before in 120..140 {
        with_file(Geometry::new(2048, 64, 64, 300).unwrap(), |volume, file| {
            let mut now = BTreeMap::new();
            let mut write = |volume: &mut Volume<'_, '_>, page: u64, pages: u64, version: u32| {
                let bytes: Vec<u8> = (page..page + pages).flat_map(|page| content(page, version)).collect();
                volume.write(file, page * PAGE, &bytes, NOW).unwrap();
                now.extend((page..page + pages).map(|page| (page, version)));
            };
            volume.set_length(file, 40 * PER_MAP * PAGE, NOW).unwrap();
            (0..160).for_each(|at| write(volume, PER_REGION + 3000 + 3 * at, 1, 1));
            write(volume, PER_REGION - 700, 1900, 2);
            (0..before).for_each(|at| write(volume, PER_REGION + 5000 + 3 * at, 1, 3));
            write(volume, PER_REGION - 300, 1, 4);
            write(volume, PER_REGION + 7000, 1, 5);
            expect(volume, file, &now);
        });
    }
}

/// The longest name leaves as much of an inode to the index as the largest file needs.
#[test]
fn the_largest_file_may_have_the_longest_name() {
    with_file(Geometry::new(2048, 64, 64, 300).unwrap(), |volume, file| {
        let most =
            (1..1000).take_while(|maps| volume.set_length(file, maps * PER_MAP * PAGE, NOW).is_ok()).last().unwrap();
        assert!(most > 250, "{most} maps");
        let name = [b'n'; 255];
        volume.rename((volume.root(), b"wide"), (volume.root(), &name), false, NOW).unwrap();
        let mut rng = Rng::new(1);
        for version in 1..600 {
            let page = rng.below(most * PER_MAP);
            volume.write(file, page * PAGE, &content(page, version), NOW).unwrap();
        }
        volume.sync_file(file).unwrap();
    });
}
