//! Ways to look for mistakes of the engine: each a function of a seed, which says what is wrong.

use std::collections::BTreeSet;

use basalt_flashlight::{Error, FlashLight};
use basalt_nand::chip::{Failures, Flips};
use basalt_nand::{Chip, ChipOptions, Ecc, Geometry, NandDevice, NandError};
use basalt_random::Rng;

use super::power::{Flavour, cut_once};
use super::{CutsRoots, Device, Lossy, Model, NOW, full, new_file};

/// A way to look for mistakes.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub name: &'static str,
    /// Runs in each round: quick ones have more.
    pub share: u64,
    /// Errors and panics: a mistake.
    pub run: fn(u64) -> Result<(), String>,
}

/// All of them.
pub const MODES: [Mode; 15] = [
    Mode { name: "power", share: 12, run: |seed| cut_once(Flavour::PLAIN, seed) },
    Mode { name: "power-failing", share: 8, run: |seed| cut_once(Flavour::FAILING, seed) },
    Mode { name: "power-crowded", share: 4, run: |seed| cut_once(Flavour::CROWDED, seed) },
    Mode { name: "power-used", share: 3, run: |seed| cut_once(Flavour::USED, seed) },
    Mode { name: "power-nested", share: 6, run: |seed| cut_once(Flavour::NESTED, seed) },
    Mode { name: "power-tight", share: 6, run: |seed| cut_once(Flavour::TIGHT, seed) },
    Mode { name: "roots-cut", share: 2, run: cut_roots },
    Mode { name: "model", share: 1, run: |seed| run_model(seed, Failures::default()) },
    Mode {
        name: "model-failing",
        share: 1,
        run: |seed| run_model(seed, Failures { programs: 400, erases: 1_000, endurance: 0 }),
    },
    Mode { name: "alike", share: 1, run: names_alike },
    Mode { name: "flips", share: 1, run: flips },
    Mode { name: "root-page-lost", share: 2, run: |seed| lose_roots(seed, false) },
    Mode { name: "root-lost", share: 2, run: |seed| lose_roots(seed, true) },
    Mode { name: "page-lost", share: 1, run: lose_page },
    Mode {
        name: "full",
        share: 1,
        run: |seed| full::fill_and_empty(Geometry::new(2048, 64, 16, 160).unwrap(), 60, seed),
    },
];

/// A small chip, so that cleaning is at work all the time.
pub fn small() -> Geometry {
    Geometry::new(2048, 64, 16, 160).unwrap()
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Random operations with mounts in between.
fn run_model(seed: u64, failures: Failures) -> Result<(), String> {
    let factory_bad = if failures == Failures::default() { 0 } else { 20 };
    let options = ChipOptions { seed, failures, factory_bad, ..ChipOptions::new(small()) };
    let mut device = Ecc::new(Chip::new(options)).unwrap();
    let mut memory = super::memory(&small());
    super::format(&mut device, &mut memory, seed);
    let mut model = Model::new(seed, 600_000);
    for _ in 0..4 {
        let mut volume = FlashLight::mount(&mut device, &mut memory[..]).map_err(text)?;
        (0..100).for_each(|_| model.step(&mut volume));
        model.check(&mut volume);
        volume.close().map_err(text)?;
    }
    Ok(())
}

/// Names that have the same hash come and go.
fn names_alike(seed: u64) -> Result<(), String> {
    let mut device = super::chip(small(), seed);
    let mut memory = super::memory(&small());
    super::format(&mut device, &mut memory, seed);
    let mut volume = FlashLight::mount(&mut device, &mut memory[..]).map_err(text)?;
    let names = super::names_alike(&volume.identity().uuid);
    let (root, mut rng, mut there) = (volume.root(), Rng::new(seed), BTreeSet::new());
    for _ in 0..200 {
        let name = &names[rng.index(names.len())];
        if there.remove(name) {
            volume.unlink(root, name.as_bytes(), false, NOW).map_err(|error| format!("{name}: {error}"))?;
        } else {
            volume.create(root, name.as_bytes(), &new_file(0o644)).map_err(|error| format!("{name}: {error}"))?;
            there.insert(name);
        }
        if let Some(name) =
            names.iter().find(|name| volume.lookup(root, name.as_bytes()).is_ok() != there.contains(name))
        {
            return Err(format!("{name} should be there: {}", there.contains(name)));
        }
    }
    Ok(())
}

/// Bits flip while time passes; everything is read now and then, as somebody who scrubs does.
fn flips(seed: u64) -> Result<(), String> {
    const AGE: u64 = 1_000_000_000_000_000;
    let flips = Flips { age: AGE, ..Flips::default() };
    let options = ChipOptions { seed, flips, ..ChipOptions::new(small()) };
    let mut device: Device = Ecc::new(Chip::new(options)).unwrap();
    let mut memory = super::memory(&small());
    super::format(&mut device, &mut memory, seed);
    let mut model = Model::new(seed, 400_000);
    for round in 0..30 {
        // Without an unmount, so that all logs go on in other blocks: the chip takes the age of a page from the first of its block.
        let mut volume = FlashLight::mount(&mut device, &mut memory[..]).map_err(text)?;
        (0..if round == 0 { 100 } else { 0 }).for_each(|_| model.step(&mut volume));
        for _ in 0..3 {
            model.check(&mut volume);
            model.step(&mut volume);
        }
        volume.sync().map_err(text)?;
        device.device().pass(AGE / 12);
    }
    Ok(())
}

/// Sessions, the last of which may end without an unmount; then a page of a root cannot be read any more, or neither page of the newest.
fn lose_roots(seed: u64, is_whole: bool) -> Result<(), String> {
    let geometry = Geometry::new(2048, 64, 16, 96).unwrap();
    let mut rng = Rng::new(seed);
    let mut device = super::chip(geometry, seed);
    let mut memory = super::memory(&geometry);
    super::format(&mut device, &mut memory, seed);
    let mut model = Model::new(seed, 100_000);
    for _ in 0..rng.between(1, 6) {
        let mut volume = FlashLight::mount(&mut device, &mut memory[..]).map_err(text)?;
        (0..10).for_each(|_| model.step(&mut volume));
        volume.sync().map_err(text)?;
        if rng.chance(60) {
            volume.close().map_err(text)?;
        }
    }
    // Roots are in the first eight blocks; each says its generation.
    let mut roots = Vec::new();
    for page in (0..8).map(|block| geometry.first_page(block)) {
        let mut bytes = [0; 2048];
        device.read(page, &mut bytes, &mut []).map_err(|error| error.to_string())?;
        let generation = u32::from_le_bytes(bytes[128..132].try_into().unwrap());
        roots.extend((bytes[0] == 1).then_some((generation, page)));
    }
    let newest = roots.iter().map(|root| root.0).max();
    let lost: Vec<u32> = match is_whole {
        true => roots.iter().filter(|root| Some(root.0) == newest).map(|root| root.1).collect(),
        false => vec![roots[rng.index(roots.len())].1],
    };
    let mut lossy = Lossy { device, lost: lost.into_iter().collect() };
    match FlashLight::mount(&mut lossy, &mut memory[..]) {
        Ok(mut volume) => model.check(&mut volume),
        Err(Error::Damaged { .. }) if is_whole => {}
        Err(error) => return Err(text(error)),
    }
    Ok(())
}

/// The power goes in the first page of a root that a session programs, again and again.
fn cut_roots(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut device = CutsRoots { device: super::chip(small(), seed), left: None };
    let mut memory = super::memory(&small());
    super::format(&mut device.device, &mut memory, seed);
    let mut model = Model::new(seed, 200_000);
    for round in 0..rng.between(8, 20) {
        let mut volume =
            FlashLight::mount(&mut device, &mut memory[..]).map_err(|error| format!("{round}: {error}"))?;
        model.check(&mut volume);
        (0..5).for_each(|_| model.step(&mut volume));
        volume.sync().map_err(text)?;
        if rng.chance(50) {
            volume.close().map_err(text)?;
        }
        for _ in 0..rng.below(30) {
            device.left = Some(u64::from(rng.chance(10)));
            let volume = FlashLight::mount(&mut device, &mut memory[..]);
            // Where the mount programs nothing, the first change does.
            let done = volume.and_then(|mut volume| volume.clean(0));
            device.left = None;
            device.device.device().power_on().map_err(|error| error.to_string())?;
            match done {
                Ok(_) | Err(Error::Nand(NandError::PowerLost)) => {}
                Err(error) => return Err(format!("{round}: {error}")),
            }
        }
    }
    Ok(())
}

/// A page of a file cannot be read any more: that is said for ever, and nothing else is shown in its place.
fn lose_page(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut lossy = Lossy { device: super::chip(small(), seed), lost: BTreeSet::new() };
    let mut memory = super::memory(&small());
    super::format_any(&mut lossy, &mut memory, seed);
    let mut volume = FlashLight::mount(&mut lossy, &mut memory[..]).map_err(text)?;
    let root = volume.root();
    let mut write = |volume: &mut FlashLight<_, _>, name: &str, byte: u8| -> Result<(), Error> {
        let file = match volume.lookup(root, name.as_bytes()) {
            Ok(file) => file,
            Err(_) => volume.create(root, name.as_bytes(), &new_file(0o644))?,
        };
        volume.write(file, 2048 * rng.below(8), &[byte; 2048 * 4], NOW)
    };
    for at in 0..20 {
        write(&mut volume, &format!("f{at}"), at).map_err(text)?;
    }
    volume.sync().map_err(text)?;
    // Where some page of file 7 is, the spare bytes say.
    let seven = volume.lookup(root, b"f7").map_err(text)?;
    let holds = |volume: &mut FlashLight<_, &mut Lossy<Device>>, page: u32| {
        let mut spare = [0; 64];
        let spare = &mut spare[..volume.geometry().spare_bytes as usize];
        volume.device().read(page, &mut [], spare).is_ok() && spare[..4] == seven.0.to_le_bytes()
    };
    let pages = volume.geometry().pages();
    let lost = (0..pages).find(|&page| holds(&mut volume, page)).ok_or("file 7 has no page")?;
    volume.device().lost.insert(lost);
    // The others are written until cleaning has seen every block.
    for round in 0..600_u32 {
        let at = round % 20;
        if at != 7 {
            write(&mut volume, &format!("f{at}"), round as u8 | 128).map_err(text)?;
        }
        if round % 50 == 0 {
            volume.clean(3).map_err(text)?;
        }
    }
    let mut read_any = false;
    for at in 0..12 {
        let mut bytes = [7; 2048];
        let read = volume.read(seven, 2048 * at, &mut bytes);
        read_any |= read.is_err();
        if read.is_ok() && bytes.iter().any(|&byte| ![0, 7].contains(&byte)) {
            return Err(format!("page {at} of file 7 shows what another file holds"));
        }
    }
    if read_any { Ok(()) } else { Err("the lost page reads well".to_owned()) }
}
