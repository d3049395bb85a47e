//! Cutting lives with threads at many moments.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use basalt_device::power::Fate;
use basalt_device::{MemoryDevice, Replay};
use basalt_testkit::rng::Rng;

use super::generate::{Workload, numbers, workload, write_behind};
use super::oracle::verify;
use super::run::{Failure, Life, run};
use super::script::{Switch, Threads};
use super::stage::Choice;
use crate::cut::{Cut, Style};
use crate::engine::Engine;
use crate::explore::{Density, Explorer, Finding, Moments, Tally, check_elsewhere, guarded};
use crate::f2fs::F2fsVolume;
use crate::modes::Setting;
use crate::prepare::Image;
use crate::scenario::{Scenario, survive_as};
use crate::script::Step;
use crate::session::Session;
use crate::tree::Tree;
use crate::usage::begin;

/// Schedules of one workload.
const SCHEDULES: u64 = 4;
/// Moments of a life that are cut, at the most.
const MOMENTS: usize = 18;
/// Percent of cuts that are followed by cuts of what comes next.
const NESTED: u64 = 4;

/// Random threads under random schedules.
pub fn threads(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let mut rng = numbers(seed);
    let mut workload = workload(&mut rng);
    workload.acts.extend(write_behind(seed));
    let mut hunt = Hunt { workload: &workload, setting, phase: seed.wrapping_mul(0x9E37_79B9) >> 8, tally };
    let base = Image::Empty
        .base(workload.engine)
        .map(|base| base.device)
        .map_err(|what| hunt.finding(Vec::new(), None, what))?;
    let mut seen = HashSet::new();
    for number in 0..SCHEDULES {
        let threads = Threads { acts: workload.acts.clone(), switches: Vec::new() };
        let choice = Choice::Seeded(seed.wrapping_mul(SCHEDULES) + number);
        let life = run(workload.engine, &base, &workload.setup, &threads, &choice)
            .map_err(|Failure { what, switches }| hunt.finding(switches, None, what))?;
        hunt.tally.runs += 1;
        hunt.tally.steps += life.done.len() as u64;
        if seen.insert(life.switches.clone()) {
            hunt.tally.schedules += 1;
            hunt.cut_life(&life, &mut rng)?;
        }
    }
    Ok(())
}

struct Hunt<'a> {
    workload: &'a Workload,
    setting: Setting<'a>,
    /// Which of the closed volumes are shown to somebody else's check.
    phase: u64,
    tally: &'a mut Tally,
}

impl Hunt<'_> {
    fn finding(&self, switches: Vec<Switch>, cut: Option<Cut>, what: String) -> Finding {
        let threads = Threads { acts: self.workload.acts.clone(), switches };
        Finding { scenario: scenario(self.workload.engine, self.workload.setup.clone(), threads, cut), what }
    }

    fn cut_life(&mut self, life: &Life, rng: &mut Rng) -> Result<(), Finding> {
        if life.end < life.start {
            // The volume was full before there were threads.
            return Ok(());
        }
        check_closed(self.workload.engine, life).map_err(|what| self.finding(life.switches.clone(), None, what))?;
        let mut replay = Replay::new(&life.history);
        let mut judged = HashMap::new();
        for at in moments(life, rng) {
            for number in 0..4 {
                let style = match number {
                    0 => Style::Lost,
                    1 => Style::Kept,
                    _ if life.history.pages.is_some() && rng.chance(40) => Style::Page,
                    _ => Style::ALL[2 + rng.index(Style::ALL.len() - 2)],
                };
                if style.is_fixed() && rng.chance(66) && at != life.end {
                    continue;
                }
                let cut = Cut {
                    after: at - life.start,
                    style,
                    seed: if style.is_fixed() { 0 } else { rng.next_u64() >> 40 },
                };
                let (image, left) = strike(life, &mut replay, at, &cut);
                self.judge(life, (at, cut), image, judged.entry(left).or_default(), rng)?;
            }
        }
        self.tally.states += judged.len() as u64;
        Ok(())
    }

    /// Opens what a power cut has left, holds it against what was promised, and goes on. What was opened before is held against what is
    /// promised by now.
    fn judge(
        &mut self,
        life: &Life,
        (at, cut): (usize, Cut),
        image: MemoryDevice,
        found: &mut Option<Tree>,
        rng: &mut Rng,
    ) -> Result<(), Finding> {
        let engine = self.workload.engine;
        self.tally.cuts += 1;
        if let Some(found) = found {
            return verify(life, at, found).map_err(|what| self.finding(life.switches.clone(), Some(cut), what));
        }
        let nested = rng.chance(NESTED);
        let every = self.setting.elsewhere_every;
        let elsewhere = !nested && every > 0 && (self.tally.cuts + self.phase).is_multiple_of(every);
        self.tally.checked_elsewhere += u64::from(elsewhere);
        let outcome = guarded(|| {
            let judge = |tree: &Tree| {
                *found = Some(tree.clone());
                verify(life, at, tree)
            };
            let session = survive_as(engine, image, life.states.last(), judge, &begin())?;
            if nested {
                return Ok(Some(session.end()));
            }
            let image = session.close()?;
            if elsewhere {
                check_elsewhere(engine, &image)?;
            }
            Ok(None)
        });
        let next = outcome.map_err(|what| self.finding(life.switches.clone(), Some(cut), what))?;
        let Some(next) = next else { return Ok(()) };
        let mut explorer = Explorer::new(engine);
        let density = Density { moments: Moments::Chosen(4), random: 1, nested: 0, thorough: 4 };
        let digest = next.history.base.digest();
        let mut before = vec![(self.workload.setup.clone(), cut)];
        let result = explorer.cut_life(next, digest, &mut before, density, rng);
        self.tally.add(&explorer.tally);
        result.map_err(|mut finding| {
            let switches = life.switches.clone();
            finding.scenario.threads = Some(Box::new(Threads { acts: self.workload.acts.clone(), switches }));
            finding
        })
    }
}

/// The story of threads and one power cut; without it, of their end.
pub(super) fn scenario(engine: &F2fsVolume, setup: Vec<Step>, threads: Threads, cut: Option<Cut>) -> Scenario {
    // As many requests as there are.
    let cut = cut.unwrap_or(Cut { after: 1_000_000, style: Style::Kept, seed: 0 });
    let rest = if cut.after < 1_000_000 { begin() } else { Vec::new() };
    let volume = engine.name().to_owned();
    let lives = vec![(setup, cut)];
    Scenario {
        volume,
        image: Image::Empty,
        device_mutant: None,
        threads: Some(Box::new(threads)),
        lives,
        failing_read: None,
        rest,
    }
}

/// A volume that was closed last is clean.
pub(super) fn check_closed(engine: &dyn Engine, life: &Life) -> Result<(), String> {
    if !life.is_closed {
        return Ok(());
    }
    let end = life.history.changes.len();
    let image = Replay::new(&life.history).cut(end, |cached| vec![Fate::Kept; cached.len()]);
    guarded(|| engine.check_closed(&image)).map_err(|error| format!("closed by one of the threads: {error}"))
}

/// The device that a power cut leaves, and a number that tells it from others that cuts of this life leave.
pub(super) fn strike(life: &Life, replay: &mut Replay<'_>, at: usize, cut: &Cut) -> (MemoryDevice, u64) {
    let mut left = DefaultHasher::new();
    // The change that the cut meets is in the cache, unless it is a flush.
    let cached_until = at + usize::from(life.history.changes.get(at).is_some_and(|change| !change.is_flush()));
    let image = replay.cut(at, |cached| {
        let fates = cut.style.fates(cut.seed, cached);
        // Where the cache begins tells what is durable; a flush in between changes nothing.
        (cached_until - cached.len()).hash(&mut left);
        let fated = cached.iter().zip(&fates).enumerate().filter(|(_, (change, _))| !change.is_flush());
        for (index, (change, fate)) in fated {
            match fate {
                Fate::Lost => {}
                Fate::Kept => (index, vec![true; change.sectors()]).hash(&mut left),
                Fate::Torn(sectors) if sectors.contains(&true) => (index, sectors).hash(&mut left),
                Fate::Torn(_) => {}
                Fate::Programmed(seed) => (index, seed, false).hash(&mut left),
                Fate::Unreadable(sectors) => (index, sectors, true).hash(&mut left),
                Fate::Garbage(seed) => (index, seed).hash(&mut left),
            }
        }
        fates
    });
    (image, left.finish())
}

/// The moments to cut at, rising: near flushes, near returns, at the end, and anywhere.
fn moments(life: &Life, rng: &mut Rng) -> Vec<usize> {
    let (start, end) = (life.start, life.end);
    let flushes: Vec<usize> = (start..end).filter(|at| life.history.changes[*at].is_flush()).collect();
    let returns: Vec<usize> = life.done.iter().map(|done| done.returned.changes).filter(|at| *at >= start).collect();
    let mut moments: Vec<usize> = (1..MOMENTS.min(2 + (end - start) / 2))
        .map(|number| {
            let near = match number % 3 {
                0 => rng.pick(&flushes),
                1 => rng.pick(&returns),
                _ => None,
            };
            match near {
                Some(near) => (near + rng.index(4)).saturating_sub(1).clamp(start, end),
                None => start + rng.index(end - start + 1),
            }
        })
        .chain([end])
        .collect();
    moments.sort_unstable();
    moments
}

/// Plays threads up to the power cut that ends them; with none, to their end. `first` is what is done before, and the cut.
pub(crate) fn play<'a>(
    engine: &'a dyn Engine,
    threads: &Threads,
    first: Option<&(Vec<Step>, Cut)>,
    rest: &[Step],
) -> Result<Session<'a>, String> {
    let end = Cut { after: usize::MAX, style: Style::Kept, seed: 0 };
    let (setup, cut, rest) = first.map_or((rest, &end, &[][..]), |(setup, cut)| (setup, cut, rest));
    let choice = Choice::Given(threads.switches.clone());
    let life =
        run(engine, &Image::Empty.base(engine)?.device, setup, threads, &choice).map_err(|failure| failure.what)?;
    check_closed(engine, &life)?;
    survive(engine, &life, cut, rest)
}

/// What a power cut of a life has left, held against what was promised; then the rest.
pub(super) fn survive<'a>(
    engine: &'a dyn Engine,
    life: &Life,
    cut: &Cut,
    rest: &[Step],
) -> Result<Session<'a>, String> {
    let at = position(life, cut);
    let image = Replay::new(&life.history).cut(at, |cached| cut.style.fates(cut.seed, cached));
    survive_as(engine, image, life.states.last(), |found| verify(life, at, found), rest)
}

/// The change of a life that a cut meets.
pub(super) fn position(life: &Life, cut: &Cut) -> usize {
    life.start.saturating_add(cut.after).min(life.end)
}
