//! One wide file, which has extent maps and the extent logs of regions: written all over, cut off, and read; also after power cuts.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use basalt_flashlight::{Bytes, Error, FlashLight, InodeNumber};
use basalt_nand::{Geometry, NandDevice, NandError};
use basalt_random::Rng;
use support::{Device, NOW, chip, new_file, volume_of};

const PAGE: u64 = 2048;
/// Pages of a file that an extent map has, and that the maps of a region have.
const PER_MAP: u64 = 506;
const PER_REGION: u64 = 16 * PER_MAP;
/// Pages that the file has at most at a time: the chip has no more.
const MOST: usize = 700;

fn geometry() -> Geometry {
    Geometry::new(2048, 64, 16, 160).unwrap()
}

/// What each page of the file may hold: versions; 0 is a hole.
#[derive(Clone, Debug, Default)]
struct Wide {
    /// What it holds now.
    now: BTreeMap<u64, u32>,
    /// What else it may hold after a power cut: what it held at the last sync, or since.
    since: BTreeMap<u64, BTreeSet<u32>>,
    versions: u32,
    log: Vec<String>,
}

fn content(page: u64, version: u32) -> Vec<u8> {
    if version == 0 {
        return vec![0; PAGE as usize];
    }
    let mark = page << 32 | u64::from(version);
    mark.to_le_bytes().repeat(PAGE as usize / 8)
}

impl Wide {
    fn set(&mut self, page: u64, version: u32) {
        let old = self.now.insert(page, version).unwrap_or(0);
        self.since.entry(page).or_default().insert(old);
    }

    fn live(&self) -> usize {
        self.now.values().filter(|version| **version > 0).count()
    }

    /// One operation.
    fn step<M: Bytes, D: NandDevice>(
        &mut self,
        rng: &mut Rng,
        volume: &mut FlashLight<M, D>,
        file: InodeNumber,
    ) -> Result<(), Error> {
        let end = self.now.iter().rev().find(|(_, version)| **version > 0).map_or(0, |(page, _)| page + 1);
        match rng.below(200) {
            0 => {
                self.log.push("sync".to_owned());
                volume.sync_file(file)?;
                self.since.clear();
            }
            1 => {
                volume.sync()?;
                self.since.clear();
            }
            _ if self.live() > MOST || rng.below(400) == 0 => {
                // To the end of a map, of a region, to anywhere, to nothing.
                let part = [PER_MAP, PER_REGION, 1, end.max(1)][rng.index(4)];
                let from = rng.below(end + 1) / part * part;
                self.log.push(format!("cut at {from}"));
                let gone: Vec<u64> = self.now.range(from..).map(|(page, _)| *page).collect();
                gone.into_iter().for_each(|page| self.set(page, 0));
                volume.set_length(file, from * PAGE, NOW)?;
            }
            2..8 if end > 0 => {
                // A map, a region, more than that, anything; from the beginning of one, or anywhere.
                let part = [PER_MAP, PER_REGION, 1][rng.index(3)];
                let from = rng.below(end) / part * part;
                let pages = [1, PER_MAP, PER_REGION, 3 * PER_REGION, rng.between(1, 40)][rng.index(5)];
                self.log.push(format!("punch {pages} at {from}"));
                let gone: Vec<u64> = self.now.range(from..from + pages).map(|(page, _)| *page).collect();
                gone.into_iter().for_each(|page| self.set(page, 0));
                volume.punch(file, from * PAGE, pages * PAGE, NOW)?;
            }
            _ => {
                // Near each other, so that maps have several, in up to five regions and more.
                let near = rng.below(6) * PER_REGION / 2 + rng.below(3) * PER_MAP;
                let width = if rng.chance(50) { 60 } else { 4 * PER_MAP };
                let (page, pages) = (near + rng.below(width), rng.between(1, 4));
                self.versions += 1;
                self.log.push(format!("write {page} {pages} {}", self.versions));
                let bytes: Vec<u8> = (page..page + pages).flat_map(|page| content(page, self.versions)).collect();
                (page..page + pages).for_each(|page| self.set(page, self.versions));
                volume.write(file, page * PAGE, &bytes, NOW)?;
            }
        }
        Ok(())
    }

    /// The file holds what it may; from here on that is all that it may.
    fn compare<M: Bytes, D: NandDevice>(
        &mut self,
        volume: &mut FlashLight<M, D>,
        file: InodeNumber,
    ) -> Result<(), String> {
        let mut bytes = [0; PAGE as usize];
        let pages: Vec<u64> = self.now.keys().copied().collect();
        for page in pages {
            bytes.fill(0);
            volume.read(file, page * PAGE, &mut bytes).map_err(|error| format!("page {page}: {error}"))?;
            let allowed = [self.now[&page]].into_iter().chain(self.since.get(&page).into_iter().flatten().copied());
            let found = allowed.into_iter().find(|version| bytes[..] == content(page, *version));
            let Some(found) = found else {
                let version = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                return Err(format!(
                    "page {page} has version {version}, not {}: {:?}",
                    self.now[&page],
                    self.since.get(&page)
                ));
            };
            self.now.insert(page, found);
        }
        self.since.clear();
        self.compare_holes(volume, file)
    }

    /// What is no hole was written; no more is stored than that, the inode and the index.
    fn compare_holes<M: Bytes, D: NandDevice>(
        &self,
        volume: &mut FlashLight<M, D>,
        file: InodeNumber,
    ) -> Result<(), String> {
        let mut data = BTreeSet::new();
        let mut at = 0;
        while let Some(start) = volume.next_data(file, at).map_err(|error| error.to_string())? {
            at = volume.next_hole(file, start).map_err(|error| error.to_string())?.ok_or("no hole at the end")?;
            data.extend(start / PAGE..at.div_ceil(PAGE));
        }
        let live: BTreeSet<u64> = self.now.iter().filter(|(_, version)| **version > 0).map(|(page, _)| *page).collect();
        if data != live {
            return Err(format!("data and not written, or the reverse: {:?}", data.symmetric_difference(&live)));
        }
        let attributes = volume.attributes(file).map_err(|error| error.to_string())?;
        let least = 1 + data.len() as u64;
        let maps = attributes.size.div_ceil(PAGE * PER_MAP);
        let stored = attributes.stored / PAGE;
        let fits = (least..=least + maps + maps.div_ceil(16)).contains(&stored);
        if fits { Ok(()) } else { Err(format!("{} pages of data, but {stored} are stored", data.len())) }
    }
}

/// A volume with an empty file, and memory for its mounts.
fn with_empty_file(seed: u64) -> (Device, Vec<u8>) {
    let mut device = chip(geometry(), seed);
    let mut memory = support::memory(&geometry());
    support::format(&mut device, &mut memory, seed);
    let mut volume = volume_of(&mut device, &mut memory);
    volume.create(volume.root(), b"wide", &new_file(0o644)).unwrap();
    volume.unmount().map_err(|(error, _)| error).unwrap();
    (device, memory)
}

#[test]
fn a_wide_file_holds_what_was_written_to_it() {
    for seed in 0..4 {
        let (mut device, mut memory) = with_empty_file(seed);
        let (mut rng, mut wide) = (Rng::new(seed), Wide::default());
        for round in 0..6 {
            let mut volume = volume_of(&mut device, &mut memory);
            let file = volume.lookup(volume.root(), b"wide").unwrap();
            for _ in 0..600 {
                wide.step(&mut rng, &mut volume, file).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
            wide.since.clear();
            wide.compare(&mut volume, file).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            assert!(volume.check().unwrap().is_sound(), "seed {seed}, round {round}");
            volume.unmount().map_err(|(error, _)| error).unwrap();
        }
    }
}

fn is_cut(error: Error) -> bool {
    matches!(error, Error::Nand(NandError::PowerLost) | Error::Stopped)
}

/// Mounts after a cut, with another one in the recovery now and then.
fn recover(device: &mut Device, memory: &mut [u8], rng: &mut Rng, what: &str) {
    loop {
        device.device().power_on().unwrap();
        if rng.chance(30) {
            device.device().cut_power_at(rng.below(20));
        }
        match FlashLight::mount(&mut *device, &mut *memory).map(|_| ()) {
            Ok(()) => {
                device.device().cut_power_at(u64::MAX);
                return;
            }
            Err(error) if is_cut(error) => {}
            Err(error) => panic!("{what}: mount: {error}"),
        }
    }
}

#[test]
fn a_wide_file_survives_power_cuts() {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let first: u64 = number("BASALT_SEED", 0);
    let mut cuts = 0;
    for seed in first..first + number("BASALT_SEEDS", 3) {
        let (mut device, mut memory) = with_empty_file(seed);
        let (mut rng, mut wide) = (Rng::new(seed), Wide::default());
        for _ in 0..40 {
            let what = format!("seed {seed}, cut {cuts}");
            {
                let mut volume = volume_of(&mut device, &mut memory);
                let file = volume.lookup(volume.root(), b"wide").unwrap();
                volume.device().device().cut_power_at(rng.below(1500));
                wide.log.clear();
                loop {
                    match wide.step(&mut rng, &mut volume, file) {
                        Ok(()) => {}
                        Err(error) if is_cut(error) => break,
                        Err(error) => panic!("{what}: {error}"),
                    }
                }
            }
            cuts += 1;
            recover(&mut device, &mut memory, &mut rng, &what);
            let mut volume = volume_of(&mut device, &mut memory);
            let file = volume.lookup(volume.root(), b"wide").unwrap();
            wide.compare(&mut volume, file).unwrap_or_else(|error| panic!("{what}: {error}: {:#?}", wide.log));
            let checked = volume.check().unwrap();
            assert!(checked.is_sound(), "{what}: {checked:?}");
        }
    }
    println!("{cuts} power cuts");
}
