//! Holes of files: where data and holes are, against a list of pages; what a long hole costs; what punching frees.

mod support;

use std::collections::BTreeSet;

use basalt_flashlight::{Error, FlashLight, InodeNumber};
use basalt_nand::{Geometry, NandDevice};
use basalt_random::Rng;
use support::{Device, Lossy, NOW, chip, new_file, volume_of};

type Volume<'m, 'd> = FlashLight<&'m mut [u8], &'d mut Device>;

/// A volume on a new chip.
fn with_volume(geometry: Geometry, seed: u64, test: impl FnOnce(&mut Volume<'_, '_>)) {
    let mut device = chip(geometry, seed);
    let mut memory = support::memory(&geometry);
    support::format(&mut device, &mut memory, seed);
    let mut volume = volume_of(&mut device, &mut memory);
    test(&mut volume);
    assert!(volume.check().unwrap().is_sound(), "seed {seed}");
    volume.unmount().map_err(|(error, _)| error).unwrap();
}

fn new(volume: &mut Volume<'_, '_>, name: &str) -> InodeNumber {
    volume.create(volume.root(), name.as_bytes(), &new_file(0o644)).unwrap()
}

const PAGE: u64 = 2048;
/// Pages that a file has at most: more than a region.
const PAGES: u64 = 10_000;
/// Pages of data that it has at most: the chip has hardly more.
const MOST: usize = 900;

/// The bytes of a file, and which of its pages have data.
struct Plain {
    bytes: Vec<u8>,
    data: Vec<bool>,
}

impl Plain {
    fn resize(&mut self, size: u64) {
        self.bytes.resize(size as usize, 0);
        self.data.resize(size.div_ceil(PAGE) as usize, false);
    }

    fn next(&self, offset: u64, data: bool) -> Option<u64> {
        let size = self.bytes.len() as u64;
        if offset >= size {
            return None;
        }
        let found = (offset / PAGE..self.data.len() as u64).find(|&page| self.data[page as usize] == data);
        found.map(|page| offset.max(page * PAGE)).or((!data).then_some(size))
    }

    /// One operation on both.
    fn step(&mut self, rng: &mut Rng, volume: &mut Volume<'_, '_>, file: InodeNumber) {
        let size = self.bytes.len() as u64;
        let full = self.data.iter().filter(|data| **data).count() > MOST;
        match rng.below(100) {
            0..2 => {
                let size = rng.between(PAGE, PAGES * PAGE);
                volume.set_length(file, size, NOW).unwrap();
                self.resize(size);
            }
            2..4 => drop(volume.clean(1).unwrap()),
            4..30 if !full => {
                let (offset, length) = (rng.below(size), rng.between(1, 2 * PAGE));
                self.punch(volume, file, offset, length);
            }
            30..34 => self.punch(volume, file, rng.below(size), rng.between(1, 500 * PAGE)),
            _ if full => self.punch(volume, file, rng.below(size), 2000 * PAGE),
            _ => {
                let (offset, length) = (rng.below(PAGES * PAGE), rng.between(1, 3 * PAGE));
                let mut bytes = vec![0; length as usize];
                rng.fill(&mut bytes);
                volume.write(file, offset, &bytes, NOW).unwrap();
                self.resize(size.max(offset + length));
                self.bytes[offset as usize..][..length as usize].copy_from_slice(&bytes);
                self.data[(offset / PAGE) as usize..(offset + length).div_ceil(PAGE) as usize].fill(true);
            }
        }
    }

    fn punch(&mut self, volume: &mut Volume<'_, '_>, file: InodeNumber, offset: u64, length: u64) {
        volume.punch(file, offset, length, NOW).unwrap();
        support::zero(&mut self.bytes, offset, length);
        let size = self.bytes.len() as u64;
        let end = if offset + length >= size { size.div_ceil(PAGE) } else { (offset + length) / PAGE };
        let first = offset.div_ceil(PAGE);
        if first < end {
            self.data[first as usize..end as usize].fill(false);
        }
    }
}

/// To the page: what was written is data, what was not, or was punched, is none.
#[test]
fn data_and_holes_are_where_a_list_of_pages_has_them() {
    for seed in 0..6 {
        with_volume(Geometry::new(2048, 64, 16, 200).unwrap(), seed, |volume| {
            let mut rng = Rng::new(seed);
            let file = new(volume, "file");
            let mut plain = Plain { bytes: Vec::new(), data: Vec::new() };
            volume.set_length(file, 3 * PAGE, NOW).unwrap();
            plain.resize(3 * PAGE);
            for step in 0..1_500 {
                plain.step(&mut rng, volume, file);
                for _ in 0..4 {
                    let offset = rng.below(plain.bytes.len() as u64 + 5000);
                    let found = (volume.next_data(file, offset).unwrap(), volume.next_hole(file, offset).unwrap());
                    let wanted = (plain.next(offset, true), plain.next(offset, false));
                    assert_eq!(found, wanted, "seed {seed}, step {step}: from {offset} of {}", plain.bytes.len());
                }
            }
            let mut bytes = vec![1; plain.bytes.len()];
            assert_eq!(volume.read(file, 0, &mut bytes), Ok(bytes.len()));
            assert!(bytes == plain.bytes, "seed {seed}");
        });
    }
}

/// A hole is passed in one step, or one for each map that it has not; nothing of it is read.
#[test]
fn long_holes_answer_at_once() {
    // Pages of 4 KiB, so that files may have 3 GiB.
    with_volume(Geometry::new(4096, 128, 64, 256).unwrap(), 1, |volume| {
        let reads = |volume: &mut Volume<'_, '_>| volume.device().device().counters().reads;
        let (page, end) = (4096, 2 << 30);
        let file = new(volume, "file");
        volume.set_length(file, end, NOW).unwrap();
        let before = reads(volume);
        assert_eq!((volume.next_data(file, 5), volume.next_hole(file, 5)), (Ok(None), Ok(Some(5))));
        assert_eq!(reads(volume), before, "one hole");
        // An inode without room for more: the file has maps and logs of regions, at both ends.
        for at in 0..900 {
            volume.write(file, 3 * at * page, b"x", NOW).unwrap();
            volume.write(file, end - (3 * at + 1) * page, b"x", NOW).unwrap();
        }
        let stored = volume.attributes(file).unwrap().stored;
        assert!((1_801 * page..1_820 * page).contains(&stored), "{} pages", stored / page);
        let (first, last) = (2_697 * page + page, end - (2_697 + 1) * page);
        let before = reads(volume);
        for offset in [first, first + 1, 300 << 20, last - 1] {
            assert_eq!(volume.next_data(file, offset), Ok(Some(last)), "from {offset}");
            assert_eq!(volume.next_hole(file, offset), Ok(Some(offset)), "from {offset}");
        }
        println!("{} pages are read for 8 questions about a hole of 2 GiB", reads(volume) - before);
        assert!(reads(volume) - before < 40, "{} reads", reads(volume) - before);
        // Punching it all costs at most four pages for each extent that is not in the inode, for it is first seen that all can be read. Nothing
        // is left.
        let before = reads(volume);
        volume.punch(file, 0, u64::MAX, NOW).unwrap();
        println!("{} pages are read to punch it", reads(volume) - before);
        assert!(reads(volume) - before < 1000, "{} reads", reads(volume) - before);
        let found = volume.attributes(file).unwrap();
        assert_eq!((found.size, found.stored), (end, page));
        assert_eq!(volume.next_data(file, 0), Ok(None));
    });
}

/// As many pages are in use as before there was anything; and a chip that is full has room again.
#[test]
fn what_is_punched_is_free() {
    with_volume(Geometry::new(2048, 64, 16, 160).unwrap(), 1, |volume| {
        let file = new(volume, "file");
        volume.sync().unwrap();
        let before = volume.usage().used;
        let mut rng = Rng::new(1);
        let full = loop {
            let at = rng.below(PAGES) * PAGE;
            if let Err(error) = volume.write(file, at, &[7; PAGE as usize], NOW) {
                break error;
            }
        };
        assert_eq!(full, Error::NoSpace);
        // Parts of pages first: each takes a page for one that it frees.
        let size = volume.attributes(file).unwrap().size;
        let mut at = 0;
        while let Some(data) = volume.next_data(file, at).unwrap().filter(|data| *data < size / 3) {
            volume.punch(file, data + 100, 200, NOW).unwrap();
            let mut bytes = [1; PAGE as usize];
            volume.read(file, data / PAGE * PAGE, &mut bytes).unwrap();
            assert!(
                bytes[..100] == [7; 100] && bytes[100..300] == [0; 200] && bytes[300..] == [7; PAGE as usize - 300]
            );
            at = data + PAGE;
        }
        assert!(volume.check().unwrap().is_sound());
        volume.punch(file, 0, size, NOW).unwrap();
        assert_eq!(volume.attributes(file).unwrap().stored, PAGE);
        volume.sync().unwrap();
        assert!(volume.usage().used <= before + PAGE, "{} and {before}", volume.usage().used);
        volume.write(file, 0, &[8; 100 * PAGE as usize], NOW).unwrap();
    });
}

/// What the inode holds is data, and is zeroed there.
#[test]
fn content_in_the_inode_is_zeroed_there() {
    with_volume(Geometry::new(2048, 64, 16, 160).unwrap(), 1, |volume| {
        let file = new(volume, "file");
        assert_eq!((volume.next_data(file, 0), volume.next_hole(file, 0)), (Ok(None), Ok(None)));
        volume.punch(file, 0, 100, NOW).unwrap();
        assert_eq!(volume.attributes(file).unwrap().size, 0);
        volume.write(file, 0, &[7; 500], NOW).unwrap();
        volume.punch(file, 100, 50, NOW).unwrap();
        volume.punch(file, 450, 5000, NOW).unwrap();
        let mut wanted = [7; 500];
        wanted[100..150].fill(0);
        wanted[450..].fill(0);
        let mut bytes = [1; 600];
        assert_eq!(volume.read(file, 0, &mut bytes), Ok(500));
        assert!(bytes[..500] == wanted);
        assert_eq!((volume.next_data(file, 120), volume.next_hole(file, 120)), (Ok(Some(120)), Ok(Some(500))));
        assert_eq!(volume.attributes(file).unwrap().stored, PAGE);
        assert_eq!(volume.punch(volume.root(), 0, 1, NOW), Err(Error::IsADirectory));
        assert_eq!(volume.next_data(volume.root(), 0), Err(Error::IsADirectory));
    });
}

/// A page of the index that cannot be read stops punching and truncating before anything has changed: no page is counted dead that lives on.
#[test]
fn a_lost_map_costs_nothing_else() {
    let geometry = Geometry::new(2048, 64, 16, 200).unwrap();
    let mut device = chip(geometry, 1);
    let mut memory = support::memory(&geometry);
    support::format(&mut device, &mut memory, 1);
    let mut lossy = Lossy { device, lost: BTreeSet::new() };
    let page_of = |at: u64| at * 7 % 1500 * 2048;
    {
        let mut volume = FlashLight::mount(&mut lossy, &mut memory[..]).unwrap();
        let file = volume.create(volume.root(), b"file", &new_file(0o644)).unwrap();
        let other = volume.create(volume.root(), b"other", &new_file(0o644)).unwrap();
        for at in 0..250 {
            volume.write(file, page_of(at), &[at as u8; 2048], NOW).unwrap();
            volume.write(other, at * 2048, &[0xAA; 2048], NOW).unwrap();
        }
        volume.close().unwrap();
    }
    // The last map of the file.
    let mut page = [0; 2048];
    let number = |page: &[u8], at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    let mut maps = Vec::new();
    for place in 0..geometry.pages() {
        lossy.device.read(place, &mut page, &mut []).unwrap();
        if page[0] == 9 && number(&page, 8) < 10 {
            maps.push((number(&page, 12), place));
        }
    }
    let last = maps.iter().max().unwrap().0;
    assert!(last > 0, "there are more maps: {maps:?}");
    lossy.lost = maps.iter().filter(|map| map.0 == last).map(|map| map.1).collect();
    let mut volume = FlashLight::mount(&mut lossy, &mut memory[..]).unwrap();
    let file = volume.lookup(volume.root(), b"file").unwrap();
    let other = volume.lookup(volume.root(), b"other").unwrap();
    let used = volume.usage().used;
    for _ in 0..6 {
        volume.punch(file, 0, 1 << 30, NOW).unwrap_err();
        volume.set_length(file, 0, NOW).unwrap_err();
    }
    assert!(volume.usage().used >= used, "pages that live on are counted dead");
    let more = volume.create(volume.root(), b"more", &new_file(0o644)).unwrap();
    for round in 0..3000 {
        volume.write(more, round % 500 * 2048, &[0x55; 2048], NOW).unwrap();
        if round % 50 == 0 {
            volume.sync().unwrap();
        }
    }
    let per_map = 506 * 2048;
    for at in (0..250).filter(|&at| page_of(at) < u64::from(last) * per_map) {
        volume.read(file, page_of(at), &mut page).unwrap();
        assert_eq!(page, [at as u8; 2048], "page {}", page_of(at) / 2048);
    }
    for at in 0..250 {
        volume.read(other, at * 2048, &mut page).unwrap();
        assert_eq!(page, [0xAA; 2048], "page {at} of another file");
    }
}
