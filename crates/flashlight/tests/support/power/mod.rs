//! The power-cut simulator: random operations, the power goes at a request, and what is found is held against what was promised.
//!
//! What must hold: a file or directory is what it was at its last fsync, or at some later moment; a name that led somewhere all the time
//! leads somewhere; nothing is there twice; all that is found is whole; live pages are counted right; and all goes on from there.

mod history;
mod steps;

use std::fmt::Display;

use basalt_flashlight::{Error, FlashLight};
use basalt_nand::chip::Failures;
use basalt_nand::{Chip, ChipOptions, Ecc, Geometry, NandError};
use basalt_random::Rng;

use super::{Device, Model, NOW, new_file};
use history::{History, State, found};

/// What volumes and operations are like.
#[derive(Clone, Copy, Debug)]
pub struct Flavour {
    pub failures: Failures,
    /// Names that a directory may have, and bytes that files may have together.
    pub names: u64,
    pub most: usize,
    /// Files that the root directory has from the beginning at least, and half of those at most: its index is in buckets if they are many.
    pub files: u64,
    /// Directories beside the root, at most.
    pub directories: usize,
    /// Nearly all that is done are changes of directories.
    pub is_nested: bool,
    /// Lives of a volume, and requests in each but the first at most.
    pub lives: u64,
    pub requests: u64,
    /// Another volume was on the chip before.
    pub is_used: bool,
}

impl Flavour {
    /// Few names, so that they come again.
    pub const PLAIN: Flavour = Flavour {
        failures: Failures { programs: 0, erases: 0, endurance: 0 },
        names: 12,
        most: 500_000,
        files: 0,
        directories: 7,
        is_nested: false,
        lives: 3,
        requests: 150,
        is_used: false,
    };
    /// Programs and erases fail.
    pub const FAILING: Flavour =
        Flavour { failures: Failures { programs: 1_000, erases: 2_000, endurance: 0 }, ..Flavour::PLAIN };
    /// Directories that have buckets.
    pub const CROWDED: Flavour = Flavour { names: 450, files: 200, most: 1_900_000, ..Flavour::PLAIN };
    /// Short lives among directories.
    pub const NESTED: Flavour = Flavour { is_nested: true, lives: 15, requests: 30, ..Flavour::PLAIN };
    /// Short lives of a few files in one directory: what was deleted has its name again soon.
    pub const TIGHT: Flavour = Flavour { names: 3, directories: 0, lives: 15, requests: 40, ..Flavour::PLAIN };
    /// A chip that had another volume.
    pub const USED: Flavour = Flavour { is_used: true, ..Flavour::PLAIN };
}

fn is_cut(error: Error) -> bool {
    error == Error::Nand(NandError::PowerLost)
}

/// What a life begins with: what is there is known, or a power cut has to be recovered from.
enum Start {
    Known(State),
    After(History),
}

/// A chip, and its lives so far.
struct Run {
    flavour: Flavour,
    seed: u64,
    device: Device,
    memory: Vec<u8>,
}

impl Run {
    /// A volume as the flavour wants it, and what is on it.
    fn new(flavour: Flavour, seed: u64) -> Result<(Run, State), String> {
        let geometry = Geometry::new(2048, 64, 16, 128).unwrap();
        let options = ChipOptions { seed, failures: flavour.failures, ..ChipOptions::new(geometry) };
        let mut device = Ecc::new(Chip::new(options)).unwrap();
        let mut memory = super::memory(&geometry);
        if flavour.is_used {
            use_before(&mut device, &mut memory, seed);
        }
        super::format(&mut device, &mut memory, seed);
        let mut run = Run { flavour, seed, device, memory };
        let state = run.prepare().map_err(|error| format!("seed {seed}: {error}"))?;
        Ok((run, state))
    }

    fn prepare(&mut self) -> Result<State, String> {
        if self.flavour.files == 0 {
            return Ok(State::new());
        }
        let mut volume =
            FlashLight::mount(&mut self.device, &mut self.memory[..]).map_err(|error| error.to_string())?;
        let files = self.flavour.files + Rng::new(self.seed).below(self.flavour.files);
        for at in 0..files {
            let made = volume.create(volume.root(), format!("n{at}").as_bytes(), &new_file(0o644));
            made.and_then(|file| volume.write(file, 0, b"old", NOW)).map_err(|error| error.to_string())?;
        }
        volume.close().map_err(|error| error.to_string())?;
        found(&mut volume)
    }

    /// Operations until the power goes at a request; `None`: all ended before.
    fn until(&mut self, rng: &mut Rng, steps: u32, cut: u64, start: Start) -> Result<Option<History>, String> {
        let what = |error: &dyn Display, log: &[String]| format!("seed {}, cut {cut}: {error}: {log:#?}", self.seed);
        let mut volume = match FlashLight::mount(&mut self.device, &mut self.memory[..]) {
            Ok(volume) => volume,
            Err(error) => return Err(what(&format!("mount: {error}"), &[])),
        };
        let state = match start {
            Start::Known(state) => state,
            // The session that has recovered goes on.
            Start::After(history) => {
                let found = found(&mut volume).and_then(|state| history.verify(&state).map(|()| state));
                found.map_err(|error| what(&error, &history.log))?
            }
        };
        let mut history = History::new(state);
        volume.device().device().cut_power_at(cut);
        for _ in 0..steps {
            match steps::step(&self.flavour, rng, &mut history, &mut volume) {
                Ok(()) => {}
                Err(error) if is_cut(error) => {
                    self.device.device().power_on().map_err(|error| error.to_string())?;
                    return Ok(Some(history));
                }
                Err(error) => return Err(what(&error, &history.log)),
            }
        }
        Ok(None)
    }

    /// Mounts after a cut, with further cuts in recovery, and compares.
    fn recover(&mut self, rng: &mut Rng, cut: u64, history: &History) -> Result<State, String> {
        self.recover_and_compare(rng, history)
            .map_err(|error| format!("seed {}, cut {cut}: {error}: {:#?}", self.seed, history.log))
    }

    fn recover_and_compare(&mut self, rng: &mut Rng, history: &History) -> Result<State, String> {
        for round in 0.. {
            if round < 4 && rng.chance(50) {
                self.device.device().cut_power_at(rng.below(20));
            }
            match FlashLight::mount(&mut self.device, &mut self.memory[..]) {
                Ok(_) => break,
                Err(error) if is_cut(error) => self.device.device().power_on().map_err(|error| error.to_string())?,
                Err(error) => return Err(format!("mount {round}: {error}")),
            }
        }
        // The cut that did not come.
        self.device.device().cut_power_at(u64::MAX);
        let volume = FlashLight::mount(&mut self.device, &mut self.memory[..]);
        let mut volume = volume.map_err(|error| format!("the last mount: {error}"))?;
        let state = found(&mut volume)?;
        history.verify(&state)?;
        let checked = volume.check().map_err(|error| error.to_string())?;
        if !checked.is_sound() {
            return Err(format!("{checked:?}"));
        }
        let inodes = volume.usage().inodes as usize;
        if inodes != state.len() + 1 {
            return Err(format!("{inodes} inodes, not {}", state.len() + 1));
        }
        // What was found stays what it is.
        for _ in 0..2 {
            if found(&mut volume)? != state {
                return Err("it changes".to_owned());
            }
        }
        Ok(state)
    }

    /// A life until a cut, and more that begin with what that one left; how many cuts there were. 0: all ended before the first.
    fn lives(mut self, start: State, steps: u32, cut: u64) -> Result<u64, String> {
        let (mut rng, mut more) = (Rng::new(self.seed), Rng::new(self.seed * 1_000_003 + cut));
        let Some(mut history) = self.until(&mut rng, steps, cut, Start::Known(start))? else { return Ok(0) };
        for cuts in 1..self.flavour.lives {
            let start = match more.chance(70) {
                true => Start::Known(self.recover(&mut more, cut, &history)?),
                false => Start::After(history),
            };
            let next = more.below(self.flavour.requests);
            let Some(left) = self.until(&mut more, 80, next, start)? else { return Ok(cuts) };
            history = left;
        }
        self.recover(&mut more, cut, &history)?;
        Ok(self.flavour.lives)
    }
}

/// An earlier volume: its pages stay on the chip, but for those of its roots.
fn use_before(device: &mut Device, memory: &mut [u8], seed: u64) {
    super::format(device, memory, !seed);
    let mut model = Model::new(seed, 600_000);
    let mut volume = super::volume_of(device, memory);
    (0..250).for_each(|_| model.step(&mut volume));
    // It ends anyhow.
    let _ = volume.sync();
}

/// Cuts at every so many requests of some operations, each followed by more lives that are cut, too; how many cuts there were. Errors:
/// what was promised and is not so, with the seed and what was done.
pub fn cut_everywhere(flavour: Flavour, seed: u64, steps: u32, every: u64) -> Result<u64, String> {
    let mut cuts = 0;
    for cut in (seed % every..).step_by(every as usize) {
        let (run, start) = Run::new(flavour, seed)?;
        match run.lives(start, steps, cut)? {
            0 => break,
            more => cuts += more,
        }
    }
    Ok(cuts)
}

/// As [`cut_everywhere`], but at one request, which the seed chooses.
pub fn cut_once(flavour: Flavour, seed: u64) -> Result<(), String> {
    let (run, start) = Run::new(flavour, seed)?;
    run.lives(start, 150, Rng::new(!seed).below(300)).map(|_| ())
}
