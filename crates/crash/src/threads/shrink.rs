//! Making a story with threads shorter while it still ends badly: fewer threads, fewer steps, fewer switches.

use std::time::Instant;

use basalt_device::Replay;

use super::explore::{check_closed, position, strike};
use super::oracle::verify;
use super::run::{Failure, Life, run};
use super::script::{Switch, Threads};
use super::stage::Choice;
use crate::cut::{Cut, Style};
use crate::engine::Engine;
use crate::explore::{Finding, guarded};
use crate::prepare::Image;
use crate::scenario::{Scenario, survive_as};

/// Cuts tried at each moment where the cut that failed does no harm any more.
const SEEDS: u64 = 3;

/// The shortest story found by then that still violates something, with what it violates.
pub(crate) fn shrink(engine: &dyn Engine, finding: &Finding, deadline: Instant) -> Finding {
    let mut best = finding.clone();
    if best.scenario.lives.len() > 1 {
        let mut single = best.scenario.clone();
        single.lives.truncate(1);
        best = fails(engine, single, deadline).unwrap_or(best);
    }
    loop {
        let before = best.scenario.to_string().len();
        for pass in [without_threads, without_acts, without_setup, without_switches] {
            best = pass(engine, best, deadline);
        }
        if Instant::now() > deadline || best.scenario.to_string().len() >= before {
            break;
        }
    }
    let scenario = Scenario { rest: Vec::new(), ..best.scenario.clone() };
    fails_as_is(engine, scenario).unwrap_or(best)
}

fn threads_of(finding: &Finding) -> Threads {
    finding.scenario.threads.as_deref().cloned().unwrap_or_default()
}

fn with_threads(finding: &Finding, threads: Threads) -> Scenario {
    Scenario { threads: Some(Box::new(threads)), ..finding.scenario.clone() }
}

/// Leaves out whole threads: what they do, first; the last one altogether.
fn without_threads(engine: &dyn Engine, mut best: Finding, deadline: Instant) -> Finding {
    for thread in (0..threads_of(&best).acts.len()).rev() {
        let threads = threads_of(&best);
        let mut shorter = threads.without(thread, 0, threads.acts[thread].len());
        if thread + 1 == shorter.acts.len() {
            shorter.acts.pop();
            shorter.switches.retain(|switch| switch.thread <= thread && switch.to <= thread);
        }
        if shorter != threads && !shorter.acts.is_empty() {
            best = fails(engine, with_threads(&best, shorter), deadline).unwrap_or(best);
        }
    }
    best
}

/// Leaves pieces out, half of what there is at first. `shorter` says what is left without some of `count` pieces.
fn halves(
    engine: &dyn Engine,
    mut best: Finding,
    deadline: Instant,
    count: impl Fn(&Finding) -> usize,
    shorter: impl Fn(&Finding, usize, usize) -> Scenario,
) -> Finding {
    let mut piece = count(&best).div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < count(&best) && Instant::now() < deadline {
            let to = (at + piece).min(count(&best));
            match fails(engine, shorter(&best, at, to), deadline) {
                Some(found) => best = found,
                None => at += piece,
            }
        }
        piece /= 2;
    }
    best
}

fn without_acts(engine: &dyn Engine, mut best: Finding, deadline: Instant) -> Finding {
    for thread in 0..threads_of(&best).acts.len() {
        let count = |finding: &Finding| threads_of(finding).acts.get(thread).map_or(0, Vec::len);
        best = halves(engine, best, deadline, count, |finding, from, to| {
            with_threads(finding, threads_of(finding).without(thread, from, to))
        });
    }
    best
}

fn without_setup(engine: &dyn Engine, best: Finding, deadline: Instant) -> Finding {
    let count = |finding: &Finding| finding.scenario.lives.first().map_or(0, |(setup, _)| setup.len());
    halves(engine, best, deadline, count, |finding, from, to| {
        let mut scenario = finding.scenario.clone();
        scenario.lives[0].0.drain(from..to);
        scenario
    })
}

fn without_switches(engine: &dyn Engine, best: Finding, deadline: Instant) -> Finding {
    let count = |finding: &Finding| threads_of(finding).switches.len();
    halves(engine, best, deadline, count, |finding, from, to| {
        let mut threads = threads_of(finding);
        threads.switches.drain(from..to);
        with_threads(finding, threads)
    })
}

fn fails_as_is(engine: &dyn Engine, scenario: Scenario) -> Option<Finding> {
    let what = guarded(|| scenario.play(engine)).err()?;
    Some(Finding { scenario, what })
}

/// Plays a story; where only its cut does no harm any more, others are tried. The switches of what fails are those that were made.
fn fails(engine: &dyn Engine, scenario: Scenario, deadline: Instant) -> Option<Finding> {
    if scenario.lives.len() != 1 {
        return fails_as_is(engine, scenario);
    }
    let threads = scenario.threads.as_deref().cloned().unwrap_or_default();
    let (setup, cut) = scenario.lives[0].clone();
    let base = Image::Empty.base(engine).ok()?.device;
    let found = |switches: Vec<Switch>, cut: Cut, what: String| {
        let threads = Some(Box::new(Threads { switches, ..threads.clone() }));
        Some(Finding { scenario: Scenario { threads, lives: vec![(setup.clone(), cut)], ..scenario.clone() }, what })
    };
    let life = match run(engine, &base, &setup, &threads, &Choice::Given(threads.switches.clone())) {
        Ok(life) => life,
        // Steps that lead nowhere any more are no finding.
        Err(Failure { what, .. }) if what.contains("its path leads to") => return None,
        Err(Failure { what, switches }) => return found(switches, cut, what),
    };
    if let Err(what) = check_closed(engine, &life) {
        return found(life.switches, cut, what);
    }
    let (cut, what) = cut_that_fails(engine, &life, cut, &scenario, deadline)?;
    found(life.switches, cut, what)
}

/// The cut as it is, or another of the same life, that violates something.
fn cut_that_fails(
    engine: &dyn Engine,
    life: &Life,
    cut: Cut,
    scenario: &Scenario,
    deadline: Instant,
) -> Option<(Cut, String)> {
    let mut seen = std::collections::HashSet::new();
    let mut fails = |replay: &mut Replay<'_>, cut: Cut| {
        let at = position(life, &cut);
        let (image, left) = strike(life, replay, at, &cut);
        if !seen.insert((at, left)) {
            return None;
        }
        let judge = |found: &crate::tree::Tree| verify(life, at, found);
        let end = || survive_as(engine, image, life.states.last(), judge, &scenario.rest)?.close().map(drop);
        guarded(end).err().map(|what| (cut, what))
    };
    if let Some(found) = fails(&mut Replay::new(&life.history), cut) {
        return Some(found);
    }
    let mut replay = Replay::new(&life.history);
    for after in 0..=life.end.saturating_sub(life.start) {
        for style in [cut.style, Style::Lost, Style::Kept, Style::OneLost, Style::OneKept] {
            for seed in 0..if style.is_fixed() { 1 } else { SEEDS } {
                if Instant::now() > deadline {
                    return None;
                }
                let found = fails(&mut replay, Cut { after, style, seed });
                if found.is_some() {
                    return found;
                }
            }
        }
    }
    None
}
