//! Cutting one recorded life at many moments.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use basalt_device::{BlockDevice, MemoryDevice, Replay};
use basalt_testkit::rng::Rng;
use basalt_testkit::scratch;

use crate::cut::{Cut, Style};
use crate::device_mutant::DeviceMutant;
use crate::engine::Engine;
use crate::scenario::{Scenario, relative, survive, work};
use crate::script::Step;
use crate::session::{Life, Session};

/// What was done, for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lives recorded from a workload.
    pub runs: u64,
    /// Steps in them.
    pub steps: u64,
    /// Power cuts: volumes opened after one, and held against the oracle.
    pub cuts: u64,
    /// Of these, the ones that met what followed another one: recovery, or work after it.
    pub nested: u64,
    /// Volumes shown to somebody else's check.
    pub checked_elsewhere: u64,
    /// Lives with threads that no other of the same run was like: other switches, or other steps.
    pub schedules: u64,
    /// Volumes left by power cuts that no other of the same life was like: those are opened and judged.
    pub states: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.cuts += other.cuts;
        self.nested += other.nested;
        self.checked_elsewhere += other.checked_elsewhere;
        self.schedules += other.schedules;
        self.states += other.states;
    }
}

/// A violation, and the story that leads to it.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The story; replaying it shows the violation again.
    pub scenario: Scenario,
    /// What is violated.
    pub what: String,
}

/// How a life is cut.
#[derive(Debug, Clone, Copy)]
pub struct Density {
    /// Moments; `None` cuts at every one.
    pub moments: Option<usize>,
    /// Cuts at each moment besides those where all or nothing of the cache is kept.
    pub random: usize,
    /// Percent of cuts that are followed by cuts of what comes next.
    pub nested: u64,
}

/// Lives after one another that are cut.
const DEPTH: usize = 3;

/// A life that the power cut has ended.
struct Struck<'a> {
    life: &'a Life,
    /// The change it met.
    at: usize,
    style: Style,
    seed: u64,
    /// What is left.
    image: MemoryDevice,
}

/// Explores lives on one kind of volume.
pub struct Explorer<'a> {
    /// The file system.
    pub engine: &'a dyn Engine,
    /// The device lies so.
    pub device_mutant: Option<DeviceMutant>,
    /// One closed volume in so many is shown to somebody else's check; 0 for none.
    pub elsewhere_every: u64,
    /// Closed volumes before the first: different from run to run, since each has fewer than that.
    pub elsewhere_phase: u64,
    /// What was done.
    pub tally: Tally,
}

impl<'a> Explorer<'a> {
    /// With nothing done yet.
    pub fn new(engine: &'a dyn Engine) -> Explorer<'a> {
        Explorer { engine, device_mutant: None, elsewhere_every: 0, elsewhere_phase: 0, tally: Tally::default() }
    }

    /// Records `steps` on a copy of `base` and cuts the life.
    pub fn run(&mut self, base: &MemoryDevice, steps: &[Step], density: Density, seed: u64) -> Result<(), Finding> {
        let mut rng = Rng::new(seed ^ 0xC07);
        let mut done = 0;
        let life = guarded(|| {
            let mut session = Session::open(self.engine, base.snapshot(), None)?;
            for step in steps {
                done += 1;
                session.run(step)?;
            }
            Ok(session.end())
        });
        let life = life.map_err(|what| self.finding(Vec::new(), steps[..done].to_vec(), what))?;
        self.tally.runs += 1;
        self.tally.steps += steps.len() as u64;
        self.cut_life(self.lie(life), &mut Vec::new(), density, &mut rng)
    }

    fn lie(&self, mut life: Life) -> Life {
        if let Some(mutant) = self.device_mutant {
            mutant.alter(&mut life);
        }
        life
    }

    /// The finding that not even an empty volume can be had.
    pub fn cannot_begin(&self, what: String) -> Finding {
        self.finding(Vec::new(), Vec::new(), what)
    }

    fn finding(&self, lives: Vec<(Vec<Step>, Cut)>, rest: Vec<Step>, what: String) -> Finding {
        let volume = self.engine.name().to_owned();
        Finding { scenario: Scenario { volume, device_mutant: self.device_mutant, threads: None, lives, rest }, what }
    }

    /// Cuts a life; `before` is what led to it.
    pub(crate) fn cut_life(
        &mut self,
        life: Life,
        before: &mut Vec<(Vec<Step>, Cut)>,
        density: Density,
        rng: &mut Rng,
    ) -> Result<(), Finding> {
        let mut replay = Replay::new(&life.history);
        for at in moments(&life, density.moments, rng) {
            for number in 0..density.random + 2 {
                let style = match number {
                    0 => Style::Lost,
                    1 => Style::Kept,
                    _ => Style::ALL[2 + rng.index(Style::ALL.len() - 2)],
                };
                if density.moments.is_some() && style.is_fixed() && rng.chance(66) {
                    continue;
                }
                let seed = if style.is_fixed() { 0 } else { rng.next_u64() >> 40 };
                let image = replay.cut(at, |cached| style.fates(seed, cached));
                let struck = Struck { life: &life, at, style, seed, image };
                self.judge(struck, before, density, rng)?;
            }
        }
        Ok(())
    }

    /// Opens what a power cut has left, and holds it against what was promised; cuts what follows, too, now and then.
    fn judge(
        &mut self,
        struck: Struck<'_>,
        before: &mut Vec<(Vec<Step>, Cut)>,
        density: Density,
        rng: &mut Rng,
    ) -> Result<(), Finding> {
        let Struck { life, at, style, seed, image } = struck;
        self.tally.cuts += 1;
        self.tally.nested += u64::from(!before.is_empty());
        let rest = work();
        let nested = before.len() + 1 < DEPTH && rng.chance(density.nested);
        let phase = self.tally.cuts + self.elsewhere_phase;
        let elsewhere = self.elsewhere_every > 0 && phase.is_multiple_of(self.elsewhere_every);
        let engine = self.engine;
        let outcome = guarded(|| {
            let session = survive(engine, image, life, at, &rest)?;
            if nested {
                return Ok(Some(session.end()));
            }
            let image = session.close()?;
            if elsewhere {
                check_elsewhere(engine, &image)?;
            }
            Ok(None)
        });
        self.tally.checked_elsewhere += u64::from(elsewhere && !nested);
        let here = || {
            let (steps, after) = relative(life, at);
            (steps, Cut { after, style, seed })
        };
        match outcome {
            Err(what) => {
                let mut lives = before.clone();
                lives.push(here());
                Err(self.finding(lives, rest, what))
            }
            Ok(None) => Ok(()),
            Ok(Some(next)) => {
                before.push(here());
                let density = Density { moments: Some(4), random: 1, ..density };
                let result = self.cut_life(self.lie(next), before, density, rng);
                before.pop();
                result
            }
        }
    }
}

/// The moments to cut at, rising. Chosen ones favour the neighbourhood of flushes.
fn moments(life: &Life, count: Option<usize>, rng: &mut Rng) -> Vec<usize> {
    let end = life.history.changes.len();
    let Some(count) = count else { return (0..=end).collect() };
    let flushes: Vec<usize> =
        (0..end).filter(|at| life.history.changes[*at].is_flush()).collect();
    let mut moments: Vec<usize> = (0..count)
        .map(|_| match rng.pick(&flushes) {
            Some(flush) if rng.chance(50) => (flush + rng.index(4)).saturating_sub(1).min(end),
            _ => rng.index(end + 1),
        })
        .collect();
    moments.sort_unstable();
    moments
}

/// Shows a closed volume to somebody else's check.
pub(crate) fn check_elsewhere(engine: &dyn Engine, image: &MemoryDevice) -> Result<(), String> {
    let directory = scratch::directory().map_err(|error| error.to_string())?;
    let path = directory.path().join("image");
    save(image, &path).map_err(|error| format!("{}: {error}", path.display()))?;
    engine.check_elsewhere(&path).unwrap_or(Ok(()))
}

/// Writes a device to a sparse file.
fn save(image: &MemoryDevice, path: &Path) -> io::Result<()> {
    const PIECE: u64 = 64 << 10;
    let file = File::create(path)?;
    file.set_len(image.size())?;
    let mut buffer = vec![0; PIECE as usize];
    for at in (0..image.size()).step_by(PIECE as usize) {
        let piece = &mut buffer[..PIECE.min(image.size() - at) as usize];
        image.read_at(at, piece).map_err(io::Error::other)?;
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, at)?;
        }
    }
    Ok(())
}

/// Turns a panic into a violation.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}
