//! The ways to choose what is done and where the power goes.
//!
//! | mode | workloads | cuts |
//! |---|---|---|
//! | exhaustive | short ones, written by hand and random | at every request, all styles |
//! | sequences, triples | every two operations, or three of a smaller set, on a prepared image, then fsync, fdatasync or sync of whatever is there | where that has returned, and at its flushes: lost, kept, scattered |
//! | enumerated | every sequence of two operations, each followed by nothing, fsync or sync; three, sampled (as CrashMonkey's ACE, OSDI 2018) | chosen ones |
//! | random | long ones; tiny volumes nearly full, where cleaning never stops; directories of many names | chosen ones, and cuts of what follows them |
//! | faults | as random, shorter | chosen ones; blocks that were not flushed cannot be read, discarded ones hold anything, a read of the recovery fails |
//! | tools | mkfs, tune, resize, repair, restore | chosen ones; or one of their writes fails |
//! | journaled | longer ones on tight volumes with a journal, fsync-heavy or not | as random |
//! | slack | longer ones on tight volumes whose logs fill slack, of half of which flash pages are torn | as random |
//! | defragmented | overwriting and fsync, and files are put in sequence in between | as random |

mod rewriting;

use basalt_testkit::rng::Rng;

use crate::device_mutant::DeviceMutant;
use crate::enumerate::{PAIRS, sequence};
use crate::explore::{Density, Explorer, Finding, Moments, Seen, Tally};
use crate::f2fs::{F2fsVolume, VOLUMES, volume};
use crate::generate::{Flavour, steps};
use crate::prepare::Image;
use crate::reach::Reach;
use crate::sample::Sampler;
use crate::script::Step;
use crate::sequences;

/// What every run has in common.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setting<'a> {
    /// The device lies so.
    pub device_mutant: Option<DeviceMutant>,
    /// One closed volume in so many is shown to `fsck.f2fs`; 0 for none.
    pub elsewhere_every: u64,
    /// States of devices that other runs have met.
    pub seen: Option<&'a Seen>,
    /// Branches that other runs have reached.
    pub reach: Option<&'a Reach>,
    /// Where a cut reaches a new branch, more are made.
    pub steered: bool,
    /// Some cuts are put aside here, and none is judged.
    pub sampler: Option<&'a Sampler>,
}

/// A way to choose what is done and where the power goes.
pub struct Mode {
    /// Its name, as the command line has it.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Does the run of a number, the same for the same number.
    pub run: fn(u64, Setting<'_>, &mut Tally) -> Result<(), Finding>,
    /// Runs that are done if nothing else is said.
    pub runs: u64,
    /// Whether runs are entries of a list, not seeds: neighbours are alike then.
    pub is_list: bool,
    /// Whether what it finds is the engine's alone, on a device that does what it should.
    pub is_of_engine: bool,
    /// Its part of a campaign's cuts, in relation to the other modes' parts.
    pub share: u64,
    /// Its part of the cuts that tests make: those that cost little have more.
    pub part_of_tests: u64,
}

impl Mode {
    /// The run to do as the so-many-eth where only a part of a list is done: an odd stride reaches all kinds early.
    pub const fn spread(&self, number: u64) -> u64 {
        if self.is_list { number.wrapping_mul(100_003) % (2 * self.runs) } else { number }
    }
}

/// All modes. One more needs a line here, and no change elsewhere.
pub const MODES: &[Mode] = &[
    Mode {
        name: "exhaustive",
        about: "short workloads, cut at every request",
        run: exhaustive,
        runs: 200,
        is_list: false,
        is_of_engine: true,
        share: 4,
        part_of_tests: 9,
    },
    Mode {
        name: "sequences",
        about: "every two operations and what makes one of their files durable, cut there: lost, kept and scattered",
        run: pairs,
        runs: sequences::PAIRS,
        is_list: true,
        is_of_engine: true,
        share: 6,
        part_of_tests: 8,
    },
    Mode {
        name: "triples",
        about: "three operations of a smaller set, in the same way",
        run: triples,
        runs: sequences::TRIPLES,
        is_list: true,
        is_of_engine: true,
        share: 2,
        part_of_tests: 3,
    },
    Mode {
        name: "enumerated",
        about: "every two operations with nothing, fsync or sync after each, then random ones of three, cut anywhere",
        run: enumerated,
        runs: PAIRS,
        is_list: true,
        is_of_engine: true,
        share: 2,
        part_of_tests: 4,
    },
    Mode {
        name: "random",
        about: "long random workloads, cut at random moments",
        run: random,
        runs: 1000,
        is_list: false,
        is_of_engine: true,
        share: 4,
        part_of_tests: 4,
    },
    Mode {
        name: "journaled",
        about: "long workloads on volumes whose cleaning a journal commits, cut at random moments",
        run: journaled,
        runs: 1000,
        is_list: false,
        is_of_engine: true,
        share: 2,
        part_of_tests: 3,
    },
    Mode {
        name: "slack",
        about: "long workloads on volumes whose logs fill slack, cut at random moments; flash pages of some are torn whole",
        run: rewriting::slack,
        runs: 1000,
        is_list: false,
        is_of_engine: true,
        share: 2,
        part_of_tests: 1,
    },
    Mode {
        name: "defragmented",
        about: "overwriting and fsync among which files are put in sequence, cut at random moments",
        run: rewriting::defragmented,
        runs: 1000,
        is_list: false,
        is_of_engine: true,
        share: 1,
        part_of_tests: 1,
    },
    Mode {
        name: "threads",
        about: "two to four threads, closing among them, under random schedules, cut at random moments",
        run: crate::threads::threads,
        runs: 200,
        is_list: false,
        is_of_engine: true,
        share: 4,
        part_of_tests: 4,
    },
    Mode {
        name: "steered",
        about: "what has led recovery to new branches, varied; where the engine tells them (make crash-campaign)",
        run: crate::steered::steered,
        runs: 1000,
        is_list: false,
        is_of_engine: true,
        share: 4,
        part_of_tests: 1,
    },
    Mode {
        name: "faults",
        about: "as random; what was not flushed may be unreadable, what was discarded anything, and reads fail in recovery",
        run: faults,
        runs: 1000,
        is_list: false,
        is_of_engine: false,
        share: 2,
        part_of_tests: 2,
    },
    Mode {
        name: "tools",
        about: "mkfs, tune, resize, repair and restore, cut and with failing writes; then done again",
        run: crate::tools::tools,
        runs: 200,
        is_list: false,
        is_of_engine: false,
        share: 1,
        part_of_tests: 1,
    },
];

/// The mode of this name.
pub fn mode(name: &str) -> Option<&'static Mode> {
    MODES.iter().find(|mode| mode.name == name)
}

/// What is done, and on what.
pub(crate) struct Workload<'a> {
    pub image: Image,
    /// Steps at the beginning that are not cut.
    pub prelude: usize,
    /// The device has faults.
    pub faults: bool,
    pub steps: &'a [Step],
}

impl Workload<'_> {
    pub(crate) fn on(image: Image, steps: &[Step]) -> Workload<'_> {
        Workload { image, prelude: 0, faults: false, steps }
    }
}

/// What a run does, and on what.
#[derive(Debug, Clone)]
pub(crate) struct Drawn {
    pub engine: &'static F2fsVolume,
    pub image: Image,
    pub steps: Vec<Step>,
}

impl Drawn {
    pub(crate) fn workload(&self) -> Workload<'_> {
        Workload::on(self.image, &self.steps)
    }
}

/// The most that one call of write brings to a file system, and whose multiples it ends at: more is more than one change.
const CALL: u64 = 1 << 20;

/// Steps with long writes taken apart, as the kernel does.
fn as_called(steps: &[Step]) -> Vec<Step> {
    let mut calls = Vec::with_capacity(steps.len());
    for step in steps {
        let (Step::Write(path, offset, length, seed) | Step::WriteBack(path, offset, length, seed)) = step else {
            calls.push(step.clone());
            continue;
        };
        let end = offset + u64::from(*length);
        let borders = (offset / CALL + 1..end.div_ceil(CALL)).map(|border| border * CALL);
        let begins: Vec<u64> = std::iter::once(*offset).chain(borders).collect();
        for (part, &begin) in (0..).zip(&begins) {
            let length = (begins.get(part + 1).unwrap_or(&end) - begin) as u32;
            let (path, seed) = (path.clone(), seed + part as u64);
            calls.push(match step {
                Step::Write(..) => Step::Write(path, begin, length, seed),
                _ => Step::WriteBack(path, begin, length, seed),
            });
        }
    }
    calls
}

/// Runs a workload and cuts it.
pub(crate) fn explore(
    engine: &'static F2fsVolume,
    workload: Workload<'_>,
    density: Density,
    seed: u64,
    setting: Setting<'_>,
    tally: &mut Tally,
) -> Result<(), Finding> {
    let mut explorer = Explorer::new(engine);
    (explorer.image, explorer.prelude) = (workload.image, workload.prelude);
    explorer.device_mutant = setting.device_mutant;
    explorer.elsewhere_every = setting.elsewhere_every;
    explorer.elsewhere_phase = seed.wrapping_mul(0x9E37_79B9) >> 8;
    (explorer.seen, explorer.reach) = (setting.seen, setting.reach);
    explorer.sampler = setting.sampler;
    explorer.faults = workload.faults;
    explorer.steered = setting.steered;
    let result = explorer.run(&as_called(workload.steps), density, seed);
    tally.add(&explorer.tally);
    if let Some(reach) = setting.reach.filter(|_| explorer.news > 0 && !workload.faults && workload.prelude == 0) {
        reach.kept.add(Drawn { engine, image: workload.image, steps: workload.steps.to_vec() });
    }
    result
}

/// Short workloads whose every request is cut: the ones below first, then random ones.
pub fn exhaustive(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let mut rng = Rng::new(seed ^ 0xE0);
    let story = usize::try_from(seed).ok().and_then(|seed| SHORT.get(seed));
    let drawn = match story {
        Some(lines) => Drawn { engine: any_volume(&mut rng), image: Image::Empty, steps: parse(lines) },
        None => draw_short(&mut rng),
    };
    let density = Density { moments: Moments::All, random: 3, nested: 10, thorough: 5 };
    explore(drawn.engine, drawn.workload(), density, seed, setting, tally)
}

fn any_volume(rng: &mut Rng) -> &'static F2fsVolume {
    &VOLUMES[rng.index(VOLUMES.len())]
}

/// A few steps.
pub(crate) fn draw_short(rng: &mut Rng) -> Drawn {
    let engine = any_volume(rng);
    let flavours = [Flavour::Mixed, Flavour::Mixed, Flavour::Fsync, Flavour::Fsync, Flavour::Sparse, Flavour::Brim];
    let flavour = flavours[rng.index(6)];
    let steps = steps(rng, flavour, 16);
    let images = [Image::Few, Image::Worn];
    let image = if rng.chance(40) { images[rng.index(2)] } else { Image::Empty };
    Drawn { engine, image, steps }
}

/// Sequence `number` of those enumerated.
pub fn enumerated(number: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let name = if number.is_multiple_of(2) { "roomy" } else { "tight-journal" };
    let engine = volume(name).unwrap_or(&VOLUMES[0]);
    let density = Density { moments: Moments::Chosen(3), random: 1, nested: 5, thorough: 5 };
    explore(engine, Workload::on(Image::Few, &sequence(number)), density, number, setting, tally)
}

/// Every pair of operations with what makes a file durable, cut there.
pub fn pairs(number: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    ends(number, sequences::PAIRS, &sequences::pair(number % sequences::PAIRS), setting, tally)
}

/// As [`pairs`], of three operations.
pub fn triples(number: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    ends(number, sequences::TRIPLES, &sequences::triple(number % sequences::TRIPLES), setting, tally)
}

/// Cuts a sequence where something is durable. Every pass through the list is on other kinds of volume.
fn ends(number: u64, list: u64, steps: &[Step], setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let kind = (number % list + number / list) % VOLUMES.len() as u64;
    let density = Density { moments: Moments::Returns, random: 1, nested: 2, thorough: 5 };
    let workload = Workload { image: Image::Few, prelude: sequences::PRELUDE, faults: false, steps };
    explore(&VOLUMES[kind as usize], workload, density, number, setting, tally)
}

/// A long random workload.
pub fn random(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let drawn = draw_random(&mut Rng::new(seed ^ 0x4A));
    let density = Density { moments: Moments::Chosen(24), random: 1, nested: 12, thorough: 4 };
    explore(drawn.engine, drawn.workload(), density, seed, setting, tally)
}

/// Many steps of any kind.
pub(crate) fn draw_random(rng: &mut Rng) -> Drawn {
    let engine = any_volume(rng);
    let (flavour, image) = long(engine, rng);
    // Filling the volume is a large part of those that grow.
    let count = if matches!(flavour, Flavour::Growth(_)) { 300 } else { 120 };
    Drawn { engine, image, steps: steps(rng, flavour, count) }
}

/// What a long random workload is like.
fn long(engine: &F2fsVolume, rng: &mut Rng) -> (Flavour, Image) {
    let user = engine.user_bytes();
    let is_tight = user < 24 << 20;
    match rng.below(14) {
        13 => (Flavour::Large(user / 100 * if is_tight { rng.between(40, 80) } else { 20 }), Image::Empty),
        12 => (Flavour::Many, Image::Empty),
        9 | 11 if is_tight => (Flavour::Growth(user / 100 * rng.between(70, 95)), Image::Empty),
        10 => (Flavour::Sparse, Image::Empty),
        0..2 => (Flavour::Fsync, Image::Empty),
        2 => {
            let image = if rng.chance(50) { Image::Worn } else { Image::Empty };
            (Flavour::Churn(if is_tight { user / 100 * rng.between(30, 60) } else { 4 << 20 }), image)
        }
        // Tight volumes are filled to between 60 percent and more than they hold.
        3..6 if is_tight => {
            let percent = if rng.chance(40) { rng.between(96, 110) } else { rng.between(60, 96) };
            (Flavour::Pressure(user / 100 * percent), if rng.chance(25) { Image::Worn } else { Image::Empty })
        }
        6 => (Flavour::Names, Image::Names),
        7 => (Flavour::Mixed, Image::Names),
        8 => (Flavour::Mixed, if rng.chance(50) { Image::Worn } else { Image::Few }),
        _ => (Flavour::Mixed, Image::Empty),
    }
}

/// Volumes with a journal on which a checkpoint is hardly ever due.
const WITH_ROOM: [&str; 7] = [
    "wide-journal",
    "wide-eager-journal",
    "wide-delta-journal",
    "wide-eager-delta-journal",
    "wide-slack-journal",
    "wide-eager-slack-journal",
    "wide-partial-journal",
];

/// Volumes on which fsync writes deltas wherever it can.
const TELLING: [&str; 4] =
    ["roomy-delta-journal", "tight-delta-journal", "wide-delta-journal", "wide-eager-delta-journal"];

/// A long workload on a volume whose journal is never idle.
pub fn journaled(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let (flavour, drawn) = draw_flavoured(&mut Rng::new(seed ^ 0x10));
    let density = match flavour {
        // What a seal lists wrongly shows only until the next checkpoint: every fsync is cut, and few things are.
        Flavour::Seldom(_) => Density { moments: Moments::Returns, random: 0, nested: 1, thorough: 2 },
        _ => Density { moments: Moments::Chosen(24), random: 1, nested: 12, thorough: 4 },
    };
    explore(drawn.engine, drawn.workload(), density, seed, setting, tally)
}

/// Many steps on a volume with a journal.
pub(crate) fn draw_journaled(rng: &mut Rng) -> Drawn {
    draw_flavoured(rng).1
}

fn draw_flavoured(rng: &mut Rng) -> (Flavour, Drawn) {
    let engines: Vec<&'static F2fsVolume> = VOLUMES.iter().filter(|volume| volume.is_journaled()).collect();
    let engine = engines[rng.index(engines.len())];
    let kind = rng.below(18);
    let engine = match kind {
        12..15 => volume(WITH_ROOM[rng.index(WITH_ROOM.len())]).unwrap_or(engine),
        15.. if rng.chance(70) => volume(TELLING[rng.index(TELLING.len())]).unwrap_or(engine),
        _ => engine,
    };
    let user = engine.user_bytes();
    let (flavour, count) = match kind {
        15.. => (Flavour::Told(user / 100 * rng.between(20, 60)), [150, 300, 600][rng.index(3)]),
        14 => (Flavour::Rounds(user / 100 * rng.between(12, 30)), [450, 700][rng.index(2)]),
        12..14 => (Flavour::Lulls(user / 100 * rng.between(20, 40)), [600, 1200, 1800][rng.index(3)]),
        10..12 => (Flavour::Large(user / 100 * rng.between(40, 85)), [100, 200][rng.index(2)]),
        0 => (Flavour::Pressure(user / 100 * rng.between(60, 90)), 260),
        1..3 => (Flavour::Churn(user / 100 * rng.between(40, 80)), 400),
        3..5 => (Flavour::Chain(user / 100 * rng.between(60, 90)), 1200),
        5..7 => (Flavour::Seldom(user / 100 * rng.between(33, 60)), 300),
        _ => (Flavour::Cleaning(user / 100 * rng.between(50, 85)), [160, 260, 600][rng.index(3)]),
    };
    (flavour, Drawn { engine, image: Image::Empty, steps: steps(rng, flavour, count) })
}

/// Shorter workloads on devices with faults.
pub fn faults(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let mut rng = Rng::new(seed ^ 0xFA);
    let engine = &VOLUMES[rng.index(VOLUMES.len())];
    let user = engine.user_bytes();
    let flavour = match rng.below(4) {
        0 if user < 24 << 20 => Flavour::Cleaning(user / 100 * rng.between(50, 85)),
        0..2 => Flavour::Fsync,
        _ => Flavour::Mixed,
    };
    let steps = steps(&mut rng, flavour, 60);
    let density = Density { moments: Moments::Chosen(16), random: 3, nested: 0, thorough: 4 };
    explore(engine, Workload { faults: true, ..Workload::on(Image::Few, &steps) }, density, seed, setting, tally)
}

fn parse(lines: &str) -> Vec<Step> {
    lines.split(';').filter_map(|line| line.trim().parse().ok()).collect()
}

/// Stories that file systems have got wrong before.
const SHORT: [&str; 16] = [
    "create a; write a 0 5000 1; fsync a; write a 0 5000 2; write a 8192 4096 3; fsync a",
    "create a; write a 0 100 1; fsync a; write a 50 9000 2; sync; truncate a 10; fsync a",
    "create a; write a 0 9000 1; fsync a; rename a b; create a; write a 0 20000 2; fsync a",
    "create a; write a 0 9000 1; sync; create b; write b 0 9000 2; fsync b; rename b a; sync",
    "mkdir d; create d/a; fsync d/a; rename d e; create e/b; fsync e/b; sync",
    "create a; sync; link a b; fsync a; unlink a; fsync b; create a; fsync a",
    "create a; write a 0 70000 1; hold a; sync; unlink a; sync; create b; write b 0 70000 2; sync; release; sync",
    "create a; setxattr a 0 100 1; fsync a; setxattr a 0 1500 2; setxattr a 1 8 3; fsync a; removexattr a 0; fsync a",
    "create a; allocate a 0 40000; fsync a; write a 4096 8192 1; fdatasync a; punch a 4096 4096; fsync a",
    "create a; write a 3600000 9000 1; fsync a; truncate a 100; fsync a; write a 3600000 4096 2; fsync a",
    "mkdir d; mkdir e; create d/x; create e/y; sync; exchange d e; fsync d; rename d/y e/x; fsync e/x",
    "create a; write a 0 163840 1; sync; write a 0 163840 2; fsync a; unlink a; create b; write b 0 163840 3; sync",
    "create a; write a 0 4096 1; fsync a; unlink a; create a; write a 0 4096 2; fsync a; unlink a; sync; remount",
    // As many blocks as a seal lists, and one fewer.
    "create a; write a 0 2072576 1; fsync a; write a 0 2076672 2; fsync a; write a 0 2072576 3; fsync a",
    // Its direct nodes are in the chain before the seal is.
    "create a; write a 3686400 4096 1; fsync a; write a 3780000 2400000 2; fdatasync a; write a 3780000 2400000 3; fdatasync a",
    "symlink s 3000; symlink t 20; create a; fsync s; fsync t; chmod a 4711; fsync a; tick 10; tick 70",
];

/// How many of the exhaustive workloads are written by hand.
pub const STORIES: u64 = SHORT.len() as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::f2fs::volume;

    #[test]
    fn stories_are_scripts() {
        for story in SHORT {
            assert_eq!(parse(story).len(), story.split(';').count(), "{story}");
        }
    }

    #[test]
    fn long_writes_are_several_calls() {
        let called = as_called(&parse("write a 1048575 1048578 7; write a 0 1048576 9; write-back a 4096 0 1; sync"));
        let wanted = parse(
            "write a 1048575 1 7; write a 1048576 1048576 8; write a 2097152 1 9; write a 0 1048576 9; write-back a 4096 0 1; sync",
        );
        assert_eq!(called, wanted);
    }

    /// A flavour that no number leads to shows nothing.
    #[test]
    fn long_workloads_are_of_every_flavour() {
        let mut rng = Rng::new(1);
        let engine = volume("tight").unwrap();
        let met: Vec<Flavour> = (0..400).map(|_| long(engine, &mut rng).0).collect();
        let wanted: [fn(&Flavour) -> bool; 9] = [
            |flavour| matches!(flavour, Flavour::Mixed),
            |flavour| matches!(flavour, Flavour::Fsync),
            |flavour| matches!(flavour, Flavour::Pressure(_)),
            |flavour| matches!(flavour, Flavour::Churn(_)),
            |flavour| matches!(flavour, Flavour::Growth(_)),
            |flavour| matches!(flavour, Flavour::Names),
            |flavour| matches!(flavour, Flavour::Sparse),
            |flavour| matches!(flavour, Flavour::Many),
            |flavour| matches!(flavour, Flavour::Large(_)),
        ];
        for (number, is_wanted) in wanted.iter().enumerate() {
            assert!(met.iter().any(is_wanted), "the flavour in place {number} is never chosen");
        }
    }
}
