//! Making a story that ends badly shorter while it still does.

use std::time::{Duration, Instant};

use basalt_device::{MemoryDevice, Replay};

use crate::cut::{Cut, Style};
use crate::engine::Engine;
use crate::explore::{Finding, guarded};
use crate::prepare::Image;
use crate::scenario::{Scenario, go_on, position, recover};
use crate::script::Step;
use crate::session::{Life, Session};
use crate::threads::shrink::shrink as shrink_threads;

/// Seeds tried for each moment and style.
const SEEDS: u64 = 4;

/// The shortest story found within the time that still violates something, with what it violates.
pub fn shrink(engine: &dyn Engine, finding: &Finding, patience: Duration) -> Finding {
    let deadline = Instant::now() + patience;
    if finding.scenario.threads.is_some() {
        return shrink_threads(engine, finding, deadline);
    }
    let mut best = finding.clone();
    if let Some(single) = as_single_life(engine, &best, deadline) {
        best = single;
    }
    let mut piece = longest(&best.scenario).div_ceil(2);
    while piece > 0 && Instant::now() < deadline {
        let mut shorter = false;
        for life in 0..best.scenario.lives.len() {
            let mut at = 0;
            while at < best.scenario.lives[life].0.len() && Instant::now() < deadline {
                let mut candidate = best.scenario.clone();
                let steps = &mut candidate.lives[life].0;
                steps.drain(at..(at + piece).min(steps.len()));
                match fails(engine, &candidate, deadline) {
                    Some(found) => {
                        best = found;
                        shorter = true;
                    }
                    None => at += piece,
                }
            }
        }
        if !shorter || piece > 1 {
            piece /= 2;
        }
    }
    trim_rest(engine, best)
}

fn longest(scenario: &Scenario) -> usize {
    scenario.lives.iter().map(|(steps, _)| steps.len()).max().unwrap_or_default()
}

/// Whether the first life alone violates something, wherever it is cut.
fn as_single_life(engine: &dyn Engine, finding: &Finding, deadline: Instant) -> Option<Finding> {
    if finding.scenario.lives.len() < 2 {
        return None;
    }
    let mut scenario = finding.scenario.clone();
    scenario.lives.truncate(1);
    fails(engine, &scenario, deadline)
}

/// Plays a story; where only its last cut does no harm any more, others of the same step are tried.
fn fails(engine: &dyn Engine, scenario: &Scenario, deadline: Instant) -> Option<Finding> {
    let as_is = guarded(|| scenario.play(engine));
    if let Err(what) = as_is {
        return Some(Finding { scenario: scenario.clone(), what });
    }
    let [(steps, cut)] = &scenario.lives[..] else { return None };
    if scenario.failing_read.is_some() || Style::FAULTY.contains(&cut.style) {
        return None;
    }
    let life = guarded(|| live(engine, scenario.image, steps)).ok().map(|mut life| {
        if let Some(mutant) = scenario.device_mutant {
            mutant.alter(&mut life);
        }
        life
    })?;
    let last = life.done.last()?.changes.clone();
    for after in 0..=last.len() {
        let mut replay = Replay::new(&life.history);
        for style in [cut.style].into_iter().chain(Style::ALL.into_iter().filter(|style| *style != cut.style)) {
            for seed in 0..if style.is_fixed() { 1 } else { SEEDS } {
                if Instant::now() > deadline {
                    return None;
                }
                let cut = Cut { after, style, seed };
                let at = position(&life, &cut);
                let image = replay.cut(at, |cached| style.fates(seed, cached));
                if let Err(what) = end(engine, image, &life, at, &scenario.rest) {
                    let lives = vec![(steps.clone(), cut)];
                    return Some(Finding { scenario: Scenario { lives, ..scenario.clone() }, what });
                }
            }
        }
    }
    None
}

fn live(engine: &dyn Engine, image: Image, steps: &[Step]) -> Result<Life, String> {
    let mut session = Session::open(engine, image.base(engine)?.device, None, 0)?;
    steps.iter().try_for_each(|step| session.run(step))?;
    Ok(session.end())
}

fn end(engine: &dyn Engine, image: MemoryDevice, life: &Life, at: usize, rest: &[Step]) -> Result<(), String> {
    guarded(|| {
        let mut session = recover(engine, image, life, at)?;
        go_on(&mut session, rest)?;
        session.close().map(drop)
    })
}

/// Leaves out what is done afterwards, if nothing of it matters.
fn trim_rest(engine: &dyn Engine, finding: Finding) -> Finding {
    let scenario = Scenario { rest: Vec::new(), ..finding.scenario.clone() };
    match guarded(|| scenario.play(engine)) {
        Err(what) => Finding { scenario, what },
        Ok(_) => finding,
    }
}
