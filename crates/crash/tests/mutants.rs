//! The simulator finds bugs: each one planted in the engine, and each device that lies, is noticed.
#![cfg(feature = "mutants")]

use std::sync::Mutex;

use basalt_crash::campaign::campaign;
use basalt_crash::device_mutant::DeviceMutant;
use basalt_crash::explore::{Finding, Tally};
use basalt_crash::modes::{MODES, Mode, Setting, mode};
use basalt_crash::planted::plant;
use basalt_crash::scenario::Scenario;
use basalt_crash::threads::generate;
use basalt_f2fs::mutant::Mutant;

/// Runs of each mode that a planted bug may survive.
const ROUNDS: u64 = 120;
/// Seeds of threads that a planted bug may survive which only threads can meet.
const THREAD_ROUNDS: usize = 1_500;

/// Found by some seeds after some thousand cuts and by others not within this test's time. Here only the run on record is done; to look for
/// another is work for campaigns, and for `BASALT_MUTANT`.
const SELDOM_MET: [Mutant; 8] = [
    Mutant::InsideTakesAll,
    Mutant::ChangesWhileClosing,
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

impl Planted {
    /// As [`RECORDED`] has it.
    fn name(self) -> String {
        match self {
            Planted::Engine(mutant) => format!("{mutant:?}"),
            Planted::Device(mutant) => format!("{mutant:?}"),
        }
    }
}

/// A run that finds a planted bug: its mode and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    mode: String,
    number: u64,
}

/// The runs that have found planted bugs before, one to a line: the bug, the mode, the number.
///
/// They are tried first, which is quick. Where the volumes or the workloads have changed since, they may find nothing; the others find it then.
/// `BASALT_RECORD=1` writes them anew.
const RECORDED: &str = include_str!("mutants/found-by.txt");

impl Run {
    /// The one on record.
    fn recorded(planted: Planted) -> Option<Run> {
        let lines = RECORDED.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.into_iter().find_map(|words| match words[..] {
            [name, mode, number] if name == planted.name() => {
                Some(Run { mode: mode.to_owned(), number: number.parse().ok()? })
            }
            _ => None,
        })
    }

    fn finds(&self, setting: Setting<'_>, tally: &mut Tally) -> Option<Finding> {
        (mode(&self.mode)?.run)(self.number, setting, tally).err()
    }
}

/// Does the run on record, and then, if they are wanted, others of the modes that may meet the bug, in turn, until one finds something.
fn hunt(planted: Planted, are_others_done: bool, tally: &mut Tally) -> Option<(Run, Finding)> {
    let device_mutant = match planted {
        Planted::Device(mutant) => Some(mutant),
        Planted::Engine(_) => None,
    };
    let setting = Setting { device_mutant, ..Setting::default() };
    plant(match planted {
        Planted::Engine(mutant) => Some(mutant),
        Planted::Device(_) => None,
    });
    let is_recording = std::env::var_os("BASALT_RECORD").is_some();
    let recorded = Run::recorded(planted).filter(|_| !is_recording);
    let others = runs(planted).take(if are_others_done { usize::MAX } else { 0 });
    let found = recorded.into_iter().chain(others).find_map(|run| Some((run.clone(), run.finds(setting, tally)?)));
    plant(None);
    found
}

/// The runs that may find it.
fn runs(planted: Planted) -> Box<dyn Iterator<Item = Run>> {
    let run = |mode: &str, number: u64| Run { mode: mode.to_owned(), number };
    match planted {
        Planted::Engine(mutant) if mutant.needs_threads() => {
            let numbers = (0..).filter(move |number| !mutant.needs_closing() || generate::closes(*number));
            Box::new(numbers.take(THREAD_ROUNDS).map(move |number| run("threads", number)))
        }
        _ => Box::new((0..ROUNDS).flat_map(move |round| {
            let modes = MODES.iter().filter(move |mode| may_meet(planted, mode));
            modes.map(move |mode| run(mode.name, mode.spread(round)))
        })),
    }
}

/// Whether a mode is worth the time: the others hardly meet the bug.
fn may_meet(planted: Planted, mode: &Mode) -> bool {
    let modes: &[&str] = match planted {
        Planted::Engine(mutant) if mutant.needs_slack() => &["slack", "journaled"],
        Planted::Engine(mutant) if mutant.needs_journal() => &["journaled"],
        _ => &["exhaustive", "sequences", "triples", "enumerated", "random", "journaled", "defragmented", "steered"],
    };
    modes.contains(&mode.name)
}

#[test]
fn every_planted_bug_is_found() {
    // Planted bugs may make the engine panic: that is a finding, and no news.
    let told = std::panic::take_hook();
    let only = std::env::var("BASALT_MUTANT").unwrap_or_default();
    if only.is_empty() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let engine = Mutant::ALL.map(Planted::Engine).into_iter();
    let device = DeviceMutant::ALL.map(Planted::Device);
    let all: Vec<Planted> = engine.chain(device).filter(|planted| format!("{planted:?}").contains(&only)).collect();
    assert!(all.len() >= 15 || !only.is_empty());
    let (survivors, found_by) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    campaign("planted bugs", 0..all.len() as u64, 0, |number, total| {
        let planted = all[number as usize];
        let mut tally = Tally::default();
        let is_seldom = matches!(planted, Planted::Engine(mutant) if SELDOM_MET.contains(&mutant)) && only.is_empty();
        let found = hunt(planted, !is_seldom, &mut tally);
        total.add(&tally);
        let first_line = |finding: &Finding| finding.what.lines().take(2).collect::<Vec<_>>().join(" ");
        match found {
            Some((Run { mode, number }, finding)) => {
                println!("{planted:?}: found by {mode} {number}, after {} cuts: {}", tally.cuts, first_line(&finding));
                found_by.lock().unwrap().push(format!("{} {mode} {number}\n", planted.name()));
            }
            None if is_seldom => {
                println!("{planted:?}: NOT FOUND by the run on record; BASALT_MUTANT looks for another")
            }
            None => survivors.lock().unwrap().push(format!("{planted:?} after {} cuts", tally.cuts)),
        }
        Ok(())
    });
    std::panic::set_hook(told);
    record(found_by.into_inner().unwrap());
    let survivors = survivors.into_inner().unwrap();
    assert!(survivors.is_empty(), "not found: {survivors:#?}");
}

/// Writes what has found each planted bug, where that is asked for, and keeps what is on record of the others.
fn record(found_by: Vec<String>) {
    if std::env::var_os("BASALT_RECORD").is_none() {
        return;
    }
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let names: Vec<String> = found_by.iter().map(|line| name(line)).collect();
    let mut lines: Vec<String> = RECORDED.lines().map(|line| format!("{line}\n")).collect();
    lines.retain(|line| !names.contains(&name(line)));
    lines.extend(found_by);
    lines.sort();
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mutants/found-by.txt"), lines.concat()).unwrap();
}

/// What is found is found again from its text.
#[test]
fn a_story_ends_the_same_way_each_time() {
    let mut tally = Tally::default();
    let (_, finding) =
        hunt(Planted::Device(DeviceMutant::SecondFlushLost), true, &mut tally).expect("a planted bug is found");
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
