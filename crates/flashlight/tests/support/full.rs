//! A full chip.

use basalt_flashlight::{Change, Error, FlashLight};
use basalt_nand::{Chip, ChipOptions, Geometry};
use basalt_random::Rng;

use super::{NOW, new_file};

/// Small files of many directories, until there is no room; then changes as long as there is, then deletions, which always must go on.
/// Moving such a file costs an inode, a directory and two pages of the inode table.
pub fn fill_and_empty(geometry: Geometry, directories: usize, seed: u64) -> Result<(), String> {
    let mut chip = Chip::new(ChipOptions { seed, ..ChipOptions::new(geometry) });
    let mut memory = super::memory(&geometry);
    super::format_any(&mut chip, &mut memory, seed);
    let mut volume = FlashLight::mount(&mut chip, &mut memory[..]).map_err(|error| error.to_string())?;
    let root = volume.root();
    let parents = (0..directories).map(|at| volume.make_directory(root, format!("d{at}").as_bytes(), &new_file(0o755)));
    let parents: Vec<_> = parents.collect::<Result<_, Error>>().map_err(|error| error.to_string())?;
    let mut files = Vec::new();
    loop {
        let parent = parents[files.len() % directories];
        let name = format!("f{}", files.len());
        let made = volume.create(parent, name.as_bytes(), &new_file(0o644)).and_then(|made| {
            files.push((parent, name, made));
            volume.write(made, 0, &[9; 6000], NOW)
        });
        match made {
            Ok(()) => {}
            Err(Error::NoSpace) => break,
            Err(error) => return Err(format!("file {}: {error}", files.len())),
        }
    }
    let mut rng = Rng::new(seed);
    // Changes go on until there is no room for them either.
    for round in 0..5 * files.len() as u32 {
        let file = files[rng.index(files.len())].2;
        let change = Change { uid: Some(round), ..Change::default() };
        match volume.change(file, &change, NOW).and_then(|()| volume.sync_file(file)) {
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => return Err(format!("change {round}: {error}")),
        }
    }
    for round in 0..files.len() - files.len() / 10 {
        let (parent, name, _) = files.swap_remove(rng.index(files.len()));
        let done = volume.unlink(parent, name.as_bytes(), false, NOW);
        done.map_err(|error| format!("deletion {round}: {error}"))?;
    }
    volume.sync().map_err(|error| error.to_string())?;
    for at in 0..50 {
        let made = volume.create(root, format!("more{at}").as_bytes(), &new_file(0o644));
        made.and_then(|file| volume.write(file, 0, &[7; 6000], NOW)).map_err(|error| format!("more {at}: {error}"))?;
    }
    let checked = volume.check().map_err(|error| error.to_string())?;
    if !checked.is_sound() {
        return Err(format!("{checked:?}"));
    }
    volume.close().map_err(|error| error.to_string())
}
