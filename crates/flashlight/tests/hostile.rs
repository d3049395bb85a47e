//! Chips on which anything stands, with checksums that are right: no panic, no endless loop, an error or some answer.

mod support;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use basalt_flashlight::{FlashLight, InodeNumber};
use basalt_nand::{Geometry, NandDevice, NandError, ReadStatus};
use basalt_random::Rng;
use crc::{CRC_32_ISCSI, Crc};
use support::{Device, Model, NOW, new_file};

static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// A chip of which some pages read as somebody wants them to.
struct Forged<'d> {
    device: &'d mut Device,
    pages: HashMap<u32, Vec<u8>>,
    reads: u64,
}

impl NandDevice for Forged<'_> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, NandError> {
        self.reads += 1;
        assert!(self.reads < 3_000_000, "it reads for ever");
        let status = self.device.read(page, data, spare)?;
        if let Some(forged) = self.pages.get(&page).filter(|_| !data.is_empty()) {
            data.copy_from_slice(forged);
        }
        Ok(status)
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<(), NandError> {
        self.pages.remove(&page);
        self.device.program(page, data, spare)
    }

    fn erase(&mut self, block: u32) -> Result<(), NandError> {
        let geometry = self.geometry();
        self.pages.retain(|&page, _| geometry.block_of(page) != block);
        self.device.erase(block)
    }

    fn is_bad(&mut self, block: u32) -> Result<bool, NandError> {
        self.device.is_bad(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), NandError> {
        self.device.mark_bad(block)
    }
}

/// What the checksums of a volume begin with: as `Identity::seed`.
fn seed_of(uuid: &[u8; 16]) -> u32 {
    uuid.chunks(4).fold(0x9E37_79B9, |seed: u32, part| {
        (seed ^ u32::from_le_bytes(part.try_into().unwrap())).wrapping_mul(0x85EB_CA6B).rotate_left(13)
    })
}

/// The checksum of a page, with the volume's seed.
fn checksum(page: &[u8], seed: u32) -> u32 {
    let mut digest = CRC.digest_with_initial(seed);
    digest.update(&page[..16]);
    digest.update(&[0; 4]);
    digest.update(&page[20..]);
    digest.finalize()
}

/// Metadata pages of the chip that are whole, each with the seed of its checksum.
fn metadata(device: &mut Device, seed: u32) -> Vec<(u32, Vec<u8>, u32)> {
    let geometry = device.geometry();
    let mut found = Vec::new();
    for number in 0..geometry.pages() {
        let mut page = vec![0; geometry.page_bytes as usize];
        if device.read(number, &mut page, &mut []).is_ok() && (1..=10).contains(&page[0]) {
            let said = u32::from_le_bytes(page[16..20].try_into().unwrap());
            let seed = if page[0] == 1 { 0 } else { seed };
            if said == checksum(&page, seed) {
                found.push((number, page, seed));
            }
        }
    }
    found
}

/// Changes some numbers of a page, and its checksum with them.
fn forge(rng: &mut Rng, page: &mut [u8], seed: u32) {
    for _ in 0..rng.between(1, 4) {
        // The beginning is where numbers matter most.
        let end = if rng.chance(60) { 200 } else { page.len() };
        let at = rng.between(1, end as u64 - 5) as usize;
        let value = match rng.below(5) {
            0 => u32::MAX,
            1 => rng.below(4000) as u32,
            2 => rng.next_u64() as u32,
            3 => 0,
            _ => u32::from_le_bytes(page[at..at + 4].try_into().unwrap()).wrapping_add(1),
        };
        match rng.below(3) {
            0 => page[at] = value as u8,
            1 => page[at..at + 2].copy_from_slice(&value.to_le_bytes()[..2]),
            _ => page[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        }
    }
    let sum = checksum(page, seed);
    page[16..20].copy_from_slice(&sum.to_le_bytes());
}

/// Uses all that a volume has, whatever it answers.
fn use_all(device: &mut Forged<'_>, memory: &mut [u8]) {
    let Ok(mut volume) = FlashLight::mount(device, memory) else { return };
    let mut waiting = vec![volume.root()];
    let mut seen = 0;
    let mut files: Vec<InodeNumber> = Vec::new();
    while let Some(directory) = waiting.pop() {
        let mut from = Some(0);
        while let Some(cookie) = from {
            let mut name = [0; 255];
            let Ok(Some(listed)) = volume.list(directory, cookie, &mut name) else { break };
            from = listed.next;
            seen += 1;
            let Ok(attributes) = volume.attributes(listed.number) else { continue };
            if attributes.is_directory() && seen < 300 {
                waiting.push(listed.number);
            } else {
                files.push(listed.number);
                let mut content = [0; 5000];
                for part in 0..8 {
                    let at = attributes.size / 8 * part;
                    let _ = volume.read(listed.number, at, &mut content);
                    let _ = (volume.next_data(listed.number, at), volume.next_hole(listed.number, at));
                }
            }
            let _ = volume.lookup(directory, &name[..listed.name_length]);
        }
    }
    let _ = volume.check();
    let root = volume.root();
    for (at, &file) in files.iter().enumerate().take(8) {
        let _ = volume.write(file, 3000 * at as u64, &[1; 3000], NOW);
        (0..40).for_each(|part| _ = volume.write(file, WIDE / 40 * part, &[2; 3000], NOW));
        let size = volume.attributes(file).map_or(0, |attributes| attributes.size);
        for (offset, length) in [(3000, 5), (WIDE / 3, WIDE / 4), (size.saturating_sub(3), 2), (100, u64::MAX)] {
            let _ = volume.punch(file, offset, length, NOW);
        }
        let _ = volume.set_length(file, WIDE / 2, NOW);
        let _ = volume.set_length(file, 100, NOW);
    }
    let _ = volume.create(root, b"new", &new_file(0o600));
    let _ = volume.make_directory(root, b"new-directory", &new_file(0o700));
    let _ = volume.rename((root, b"new"), (root, b"n1"), false, NOW);
    let _ = volume.unlink(root, b"n2", false, NOW);
    let _ = volume.remove_directory(root, b"n3", NOW);
    let _ = volume.clean(2);
    let _ = volume.sync();
    let _ = volume.unmount();
}

/// Bytes of a file whose index has maps, and extent logs in front of them.
const WIDE: u64 = 40 << 20;

/// Writes single pages all over a file.
fn write_all_over(volume: &mut FlashLight<&mut [u8], &mut Device>, rng: &mut Rng) {
    let file = volume.create(volume.root(), b"wide", &new_file(0o644)).unwrap();
    for _ in 0..400 {
        volume.write(file, 2048 * rng.below(WIDE / 2048), &[7; 2048], NOW).unwrap();
    }
    volume.sync_file(file).unwrap();
}

#[test]
fn forged_pages_do_no_harm_beyond_themselves() {
    let first: u64 = std::env::var("BASALT_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..first + 12 {
        let geometry = Geometry::new(2048, 64, 16, 160).unwrap();
        let mut device = support::chip(geometry, seed);
        let mut memory = support::memory(&geometry);
        support::format(&mut device, &mut memory, seed);
        let mut model = Model::new(seed, 600_000);
        let mut volume = support::volume_of(&mut device, &mut memory);
        write_all_over(&mut volume, &mut Rng::new(seed));
        (0..200).for_each(|_| model.step(&mut volume));
        if seed % 2 == 0 {
            volume.unmount().map_err(|(error, _)| error).unwrap();
        }
        let mut uuid = [7; 16];
        uuid[..8].copy_from_slice(&seed.to_le_bytes());
        let whole = metadata(&mut device, seed_of(&uuid));
        assert!(whole.len() > 50, "{}", whole.len());
        let index: Vec<usize> = (0..whole.len()).filter(|&at| matches!(whole[at].1[0], 8..=10)).collect();
        assert!(index.iter().any(|&at| whole[at].1[0] == 10), "no extent log");
        let mut rng = Rng::new(seed);
        for round in 0..60 {
            let mut copy = Device::new(device.device().snapshot().unwrap()).unwrap();
            let mut pages = HashMap::new();
            for _ in 0..rng.between(1, 6) {
                let at = if rng.chance(50) { index[rng.index(index.len())] } else { rng.index(whole.len()) };
                let (number, page, seed) = &whole[at];
                let mut page = page.clone();
                forge(&mut rng, &mut page, *seed);
                pages.insert(*number, page);
            }
            let start = Instant::now();
            use_all(&mut Forged { device: &mut copy, pages, reads: 0 }, &mut memory);
            assert!(start.elapsed() < Duration::from_secs(120), "seed {seed}, round {round}");
        }
    }
}

/// Inodes whose log is full, and that say another size: of more maps than they have room to lead to, or of fewer than their extents are in.
#[test]
fn sizes_that_do_not_fit_their_extents_are_borne() {
    let geometry = Geometry::new(2048, 64, 64, 300).unwrap();
    for (size, behind) in [(300 * 506 * 2048_u64, 0), (481 * 2048, 0x20), (u64::MAX - 1, 0), (1 << 43, 0)] {
        let mut device = support::chip(geometry, 1);
        let mut memory = support::memory(&geometry);
        support::format(&mut device, &mut memory, 1);
        let mut volume = support::volume_of(&mut device, &mut memory);
        let file = volume.create(volume.root(), b"file", &new_file(0o644)).unwrap();
        (0..157).for_each(|at| volume.write(file, (1 + 3 * at) * 2048, &[1; 2048], NOW).unwrap());
        volume.unmount().map_err(|(error, _)| error).unwrap();
        let mut uuid = [7; 16];
        uuid[..8].copy_from_slice(&1_u64.to_le_bytes());
        let inodes = metadata(&mut device, seed_of(&uuid)).into_iter().filter(|(_, page, _)| page[0] == 8);
        let forged = inodes.map(|(number, mut page, seed)| {
            page[32..40].copy_from_slice(&size.to_le_bytes());
            // Behind a name of four bytes and no pointers.
            (0..150).for_each(|at| page[108 + 12 * at + 2] |= behind);
            let sum = checksum(&page, seed);
            page[16..20].copy_from_slice(&sum.to_le_bytes());
            (number, page)
        });
        let pages: HashMap<u32, Vec<u8>> = forged.collect();
        assert!(!pages.is_empty());
        use_all(&mut Forged { device: &mut device, pages: pages.clone(), reads: 0 }, &mut memory);
        let mut again = Forged { device: &mut device, pages, reads: 0 };
        if let Ok(mut volume) = FlashLight::mount(&mut again, &mut memory[..]) {
            let _ = volume.unlink(volume.root(), b"file", false, NOW);
        }
    }
}
