//! Cutting one recorded life at many moments.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use basalt_device::{BlockDevice, MemoryDevice, Replay};
use basalt_testkit::rng::Rng;
use basalt_testkit::scratch;

use crate::chosen::Chosen;
use crate::cut::{Cut, Style};
use crate::device_mutant::DeviceMutant;
use crate::engine::Engine;
use crate::oracle::verify;
use crate::prepare::{Base, Image};
use crate::reach::{News, Reach};
use crate::sample::Sampler;
use crate::scenario::{Scenario, fail_read, go_on, recover, recover_damaged, relative};
use crate::script::Step;
use crate::session::{Life, Session};
use crate::tree::Tree;
use crate::usage::{Extent, usage};

/// What was done, for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lives recorded from a workload.
    pub runs: u64,
    /// Steps in them.
    pub steps: u64,
    /// Power cuts: what one has left, held against the oracle. What is left of one life, with the same promised, counts once.
    pub cuts: u64,
    /// Distinct states of a device among them, over all runs that share a [`Seen`].
    pub states: u64,
    /// Of these, the ones that met what followed another one: recovery, or work after it.
    pub nested: u64,
    /// Volumes shown to somebody else's check.
    pub checked_elsewhere: u64,
    /// Lives with threads that no other of the same run was like: other switches, or other steps.
    pub schedules: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.cuts += other.cuts;
        self.states += other.states;
        self.nested += other.nested;
        self.checked_elsewhere += other.checked_elsewhere;
        self.schedules += other.schedules;
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
    /// Where the power goes.
    pub moments: Moments,
    /// Cuts at each moment besides those where all or nothing of the cache is kept.
    pub random: usize,
    /// Percent of cuts that are followed by cuts of what comes next.
    pub nested: u64,
    /// Percent of cuts after which everything is used and then removed.
    pub thorough: u64,
}

/// The moments of a life at which the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moments {
    /// Each.
    All,
    /// So many; the neighbourhood of flushes is favoured. Keeping all of the cache, or nothing, is left out most of the time.
    Chosen(usize),
    /// So many while the volume was opened: what recovery has written over is missed by the next one.
    Opening(usize),
    /// Where a step that made something durable has returned, and in front of each flush in it; and at the end.
    Returns,
}

/// The states of devices that some runs have met.
#[derive(Debug)]
pub struct Seen([Mutex<HashSet<u64>>; 64]);

impl Seen {
    /// None yet.
    pub fn new() -> Seen {
        Seen(std::array::from_fn(|_| Mutex::default()))
    }

    /// Whether this is the first time.
    pub(crate) fn is_new(&self, digest: u64) -> bool {
        let shard = &self.0[(digest % 64) as usize];
        shard.lock().is_ok_and(|mut shard| shard.insert(digest))
    }
}

impl Default for Seen {
    fn default() -> Seen {
        Seen::new()
    }
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
    digest: u64,
}

/// What the cuts of one life have left so far.
#[derive(Default)]
struct Judged {
    /// What recovery made of it.
    trees: HashMap<u64, Tree>,
    /// With the steps that had returned: all that promises depend on.
    promises: HashSet<(u64, usize)>,
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
    /// What is on the volume before.
    pub image: Image,
    /// Steps at the beginning of the first life that are not cut.
    pub prelude: usize,
    /// The device has faults: what was not flushed may be unreadable, what was discarded may be anything, a read may fail in recovery.
    pub faults: bool,
    /// States met by this run and others.
    pub seen: Option<&'a Seen>,
    /// Branches that this run and others have reached.
    pub reach: Option<&'a Reach>,
    /// Where a cut reaches a new branch, more are made.
    pub steered: bool,
    /// Cuts that have reached something new.
    pub news: u64,
    /// Some cuts are put aside here, and none is judged.
    pub sampler: Option<&'a Sampler>,
    /// Flash pages are torn whole, now and then, in the life that is cut.
    tears_pages: bool,
    /// What was done.
    pub tally: Tally,
}

impl<'a> Explorer<'a> {
    /// With nothing done yet.
    pub fn new(engine: &'a dyn Engine) -> Explorer<'a> {
        Explorer {
            engine,
            device_mutant: None,
            elsewhere_every: 0,
            elsewhere_phase: 0,
            image: Image::Empty,
            prelude: 0,
            faults: false,
            seen: None,
            reach: None,
            steered: false,
            news: 0,
            sampler: None,
            tears_pages: false,
            tally: Tally::default(),
        }
    }

    /// Records `steps` on the image and cuts the life.
    pub fn run(&mut self, steps: &[Step], density: Density, seed: u64) -> Result<(), Finding> {
        let Base { device, digest } =
            self.image.base(self.engine).map_err(|what| self.finding(Vec::new(), Vec::new(), what))?;
        let mut rng = Rng::new(seed ^ 0xC07);
        let mut done = 0;
        let life = guarded(|| {
            let mut session = Session::open(self.engine, device, None, 0)?;
            for step in steps {
                done += 1;
                session.run(step)?;
            }
            Ok(session.end())
        });
        let life = life.map_err(|what| self.finding(Vec::new(), steps[..done].to_vec(), what))?;
        self.tally.runs += 1;
        self.tally.steps += steps.len() as u64;
        if let Some(sampler) = self.sampler {
            sampler.take(self, life, density, &mut rng);
            return Ok(());
        }
        self.cut_life(self.lie(life), digest, &mut Vec::new(), density, &mut rng)
    }

    fn lie(&self, mut life: Life) -> Life {
        if let Some(mutant) = self.device_mutant {
            mutant.alter(&mut life);
        }
        life
    }

    pub(crate) fn finding(&self, lives: Vec<(Vec<Step>, Cut)>, rest: Vec<Step>, what: String) -> Finding {
        let volume = self.engine.name().to_owned();
        let (image, device_mutant) = (self.image, self.device_mutant);
        let scenario = Scenario { volume, image, device_mutant, threads: None, lives, failing_read: None, rest };
        Finding { scenario, what }
    }

    /// Cuts a life that began with a device of this digest; `before` is what led to it.
    pub(crate) fn cut_life(
        &mut self,
        life: Life,
        digest: u64,
        before: &mut Vec<(Vec<Step>, Cut)>,
        density: Density,
        rng: &mut Rng,
    ) -> Result<(), Finding> {
        self.tears_pages = life.history.pages.is_some();
        let mut replay = Replay::knowing(&life.history, digest);
        let mut judged = Judged::default();
        let from = if before.is_empty() { self.prelude } else { 0 };
        let mut chosen = Chosen::new(moments(&life, from, density.moments, rng), density.random + 2);
        while let Some((at, number)) = chosen.next() {
            let Some((style, seed)) = self.fate(number, density.moments, rng) else { continue };
            let (image, digest) = replay.cut_with_digest(at, |cached| style.fates(seed, cached));
            let struck = Struck { life: &life, at, style, seed, image, digest };
            if self.judge(struck, &mut judged, before, density, rng)? {
                chosen.more(life.history.changes.len());
            }
        }
        Ok(())
    }

    /// What becomes of the cache in the so-many-eth cut at a moment, and which of its possibilities. Now and then none is made.
    pub(crate) fn fate(&self, number: usize, moments: Moments, rng: &mut Rng) -> Option<(Style, u64)> {
        let style = match number {
            0 => Style::Lost,
            1 => Style::Kept,
            _ if self.faults => Style::FAULTY[rng.index(Style::FAULTY.len())],
            _ if self.tears_pages && rng.chance(40) => Style::Page,
            _ if moments == Moments::Returns => Style::Scattered,
            _ => Style::ALL[2 + rng.index(Style::ALL.len() - 2)],
        };
        if matches!(moments, Moments::Chosen(_)) && style.is_fixed() && rng.chance(66) {
            return None;
        }
        let seed = if style.is_fixed() { 0 } else { rng.next_u64() >> 40 };
        Some((style, seed))
    }

    /// Opens what a power cut has left, and holds it against what was promised; cuts what follows, too, now and then. Whether more like it
    /// are wanted.
    fn judge(
        &mut self,
        struck: Struck<'_>,
        judged: &mut Judged,
        before: &mut Vec<(Vec<Step>, Cut)>,
        density: Density,
        rng: &mut Rng,
    ) -> Result<bool, Finding> {
        let Struck { life, at, style, seed, mut image, mut digest } = struck;
        let returned = life.done.iter().take_while(|done| done.changes.end <= at).count();
        // Reads of an opening are a few dozen; what comes later than the last does not fail.
        let most = if rng.chance(50) { 30 } else { 200 };
        let failing_read = (self.faults && rng.chance(60)).then(|| 1 + rng.below(most) as u32);
        digest ^= u64::from(failing_read.unwrap_or_default()).rotate_right(16);
        if !judged.promises.insert((digest, returned)) {
            return Ok(false);
        }
        self.tally.cuts += 1;
        self.tally.nested += u64::from(!before.is_empty());
        let engine = self.engine;
        let here = || {
            let (steps, after) = relative(life, at);
            (steps, Cut { after, style, seed })
        };
        let failed = |explorer: &Self, before: &[(Vec<Step>, Cut)], rest: &[Step], what: String| {
            let lives = before.iter().cloned().chain([here()]).collect();
            let mut finding = explorer.finding(lives, rest.to_vec(), what);
            finding.scenario.failing_read = failing_read;
            Err(finding)
        };
        if let Some(tree) = judged.trees.get(&digest) {
            // What recovery makes of it is known: only what was promised is different.
            return verify(life, at, tree).map(|_| false).or_else(|what| failed(self, before, &[], what));
        }
        if self.seen.is_none_or(|seen| seen.is_new(digest ^ name_digest(engine.name()))) {
            self.tally.states += 1;
        }
        let recovered = guarded(|| {
            if let Some(nth) = failing_read {
                image = fail_read(engine, image.snapshot(), life, at, nth)?;
            }
            if image.unreadable_sectors() > 0 {
                recover_damaged(engine, image, life, at)
            } else {
                recover(engine, image, life, at).map(Some)
            }
        });
        let mut session = match recovered {
            Ok(Some(session)) => session,
            Ok(None) => return Ok(false),
            Err(what) => return failed(self, before, &[], what),
        };
        let news = self.reach.map_or(News::Nothing, |reach| reach.add(session.way()));
        self.news += u64::from(news > News::Nothing);
        let more = self.steered && news == News::Branch;
        judged.trees.insert(digest, session.tree().clone());
        let extent = if rng.chance(density.thorough) { Extent::All } else { Extent::Some };
        let rest = usage(session.tree(), extent, rng.next_u64());
        if let Err(what) = guarded(|| go_on(&mut session, &rest)) {
            return failed(self, before, &rest, what);
        }
        if before.len() + 1 < DEPTH && !self.faults && rng.chance(density.nested) {
            let next = self.lie(session.end());
            before.push(here());
            // Recovery is short next to what follows it.
            let moments = if rng.chance(50) { Moments::Opening(4) } else { Moments::Chosen(4) };
            let density = Density { moments, random: 1, ..density };
            let result = self.cut_life(next, digest, before, density, rng);
            before.pop();
            return result.map(|()| more);
        }
        let phase = self.tally.cuts + self.elsewhere_phase;
        let elsewhere = self.elsewhere_every > 0 && phase.is_multiple_of(self.elsewhere_every);
        self.tally.checked_elsewhere += u64::from(elsewhere);
        let closed = guarded(|| {
            let image = session.close()?;
            if elsewhere { check_elsewhere(engine, &image) } else { Ok(()) }
        });
        closed.map(|()| more).or_else(|what| failed(self, before, &rest, what))
    }
}

/// Tells volumes apart that begin with the same bytes.
fn name_digest(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The moments to cut at, rising; steps before `from` are spared where only returns are cut.
pub(crate) fn moments(life: &Life, from: usize, which: Moments, rng: &mut Rng) -> Vec<usize> {
    let end = life.history.changes.len();
    let is_flush = |at: &usize| life.history.changes[*at].is_flush();
    let mut moments: Vec<usize> = match which {
        Moments::All => (0..=end).collect(),
        Moments::Chosen(count) => {
            let flushes: Vec<usize> = (0..end).filter(is_flush).collect();
            let chosen = |_| match rng.pick(&flushes) {
                Some(flush) if rng.chance(50) => (flush + rng.index(4)).saturating_sub(1).min(end),
                _ => rng.index(end + 1),
            };
            (0..count).map(chosen).collect()
        }
        Moments::Opening(count) => {
            let end = life.done.first().map_or(0, |opening| opening.changes.end);
            (0..count).map(|_| rng.index(end + 1)).collect()
        }
        Moments::Returns => {
            let of = |step: usize| {
                let changes = life.changes_of(step);
                // Where it has returned, and in front of each flush in it, where nothing of it is sure.
                changes.clone().filter(is_flush).chain([changes.end])
            };
            let last = life.steps.len().saturating_sub(1);
            (from..life.steps.len())
                .filter(|step| *step == last || life.steps[*step].is_persistence())
                .flat_map(of)
                .collect()
        }
    };
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

/// Writes a device to a sparse file. Sectors that cannot be read hold garbage there.
pub(crate) fn save(image: &MemoryDevice, path: &Path) -> io::Result<()> {
    const PIECE: u64 = 64 << 10;
    let file = File::create(path)?;
    file.set_len(image.size())?;
    let mut buffer = vec![0; PIECE as usize];
    for at in (0..image.size()).step_by(PIECE as usize) {
        let piece = &mut buffer[..PIECE.min(image.size() - at) as usize];
        if image.read_at(at, piece).is_err() {
            const SECTOR: usize = 512;
            for (sector, bytes) in (at..).step_by(SECTOR).zip(piece.chunks_mut(SECTOR)) {
                if image.read_at(sector, bytes).is_err() {
                    bytes.fill(0xA5);
                }
            }
        }
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
