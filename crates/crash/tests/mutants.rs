//! The simulator finds bugs: each one planted in the engine, and each device that lies, is noticed.
#![cfg(feature = "mutants")]

use std::sync::Mutex;

use basalt_crash::campaign::campaign;
use basalt_crash::device_mutant::DeviceMutant;
use basalt_crash::explore::{Finding, Tally};
use basalt_crash::modes::{MODES, Setting};
use basalt_crash::planted::plant;
use basalt_crash::scenario::Scenario;
use basalt_crash::threads::threads;
use basalt_f2fs::mutant::Mutant;

/// Runs of each mode that a planted bug may survive.
const ROUNDS: u64 = 120;
/// Seeds of threads that a planted bug may survive which only threads can meet.
const THREAD_ROUNDS: u64 = 1_500;

/// Found by some seeds after some thousand cuts and by others not within this test's time: work for campaigns, and for `BASALT_MUTANT`.
const SELDOM_MET: [Mutant; 8] = [
    Mutant::InsideTakesAll,
    Mutant::TickWhileClosing,
    Mutant::ReusedWhileRead,
    Mutant::DiscardedInUse,
    Mutant::DeltaNotTranslated,
    Mutant::PendingOverSlack,
    Mutant::SealListsSlack,
    Mutant::PagesUnaligned,
];

/// A planted bug.
#[derive(Debug, Clone, Copy)]
enum Planted {
    Engine(Mutant),
    Device(DeviceMutant),
}

/// Runs the modes in turn until one of them finds something.
fn hunt(planted: Planted, tally: &mut Tally) -> Option<Finding> {
    let device_mutant = match planted {
        Planted::Device(mutant) => Some(mutant),
        Planted::Engine(_) => None,
    };
    let setting = Setting { device_mutant, ..Setting::default() };
    plant(match planted {
        Planted::Engine(mutant) => Some(mutant),
        Planted::Device(_) => None,
    });
    let needs_threads = matches!(planted, Planted::Engine(mutant) if mutant.needs_threads());
    let found = if needs_threads {
        (0..THREAD_ROUNDS).find_map(|round| threads(round, setting, tally).err())
    } else {
        hunt_alone(setting, tally)
    };
    plant(None);
    found
}

/// With one operation at a time.
fn hunt_alone(setting: Setting<'_>, tally: &mut Tally) -> Option<Finding> {
    (0..ROUNDS).find_map(|round| {
        // Others meet slack too, in less time.
        let is_left_out = |name: &str| ["threads", "slack"].contains(&name);
        let modes = MODES.iter().filter(|mode| mode.is_of_engine && !is_left_out(mode.name));
        modes.map(|mode| (mode.run)(mode.spread(round), setting, tally)).find_map(Result::err)
    })
}

#[test]
fn every_planted_bug_is_found() {
    // Planted bugs may make the engine panic: that is a finding, and no news.
    let told = std::panic::take_hook();
    let only = std::env::var("BASALT_MUTANT").unwrap_or_default();
    if only.is_empty() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let engine = Mutant::ALL.into_iter().filter(|mutant| !only.is_empty() || !SELDOM_MET.contains(mutant));
    let engine = engine.map(Planted::Engine);
    let device = DeviceMutant::ALL.map(Planted::Device);
    let all: Vec<Planted> = engine.chain(device).filter(|planted| format!("{planted:?}").contains(&only)).collect();
    assert!(all.len() >= 15 || !only.is_empty());
    let survivors = Mutex::new(Vec::new());
    campaign("planted bugs", 0..all.len() as u64, 0, |number, total| {
        let planted = all[number as usize];
        let mut tally = Tally::default();
        let found = hunt(planted, &mut tally);
        total.add(&tally);
        let first_line = |finding: &Finding| finding.what.lines().take(2).collect::<Vec<_>>().join(" ");
        match found {
            Some(finding) => println!("{planted:?}: found after {} cuts: {}", tally.cuts, first_line(&finding)),
            None => survivors.lock().unwrap().push(format!("{planted:?} after {} cuts", tally.cuts)),
        }
        Ok(())
    });
    std::panic::set_hook(told);
    let survivors = survivors.into_inner().unwrap();
    assert!(survivors.is_empty(), "not found: {survivors:#?}");
}

/// What is found is found again from its text.
#[test]
fn a_story_ends_the_same_way_each_time() {
    let mut tally = Tally::default();
    let finding = hunt(Planted::Device(DeviceMutant::SecondFlushLost), &mut tally).expect("a planted bug is found");
    let text = finding.scenario.to_string();
    let engine = basalt_crash::f2fs::volume(&finding.scenario.volume).expect("the volume of a finding is known");
    let shorter = basalt_crash::shrink::shrink(engine, &finding, std::time::Duration::from_secs(5));
    assert!(shorter.scenario.lives[0].0.len() <= finding.scenario.lives[0].0.len());
    for text in [text, shorter.scenario.to_string()] {
        let scenario: Scenario = text.parse().expect("a story is read back");
        let first = scenario.play(engine).err();
        assert!(first.is_some(), "nothing is violated by\n{text}");
        assert_eq!(first, scenario.play(engine).err());
    }
}
