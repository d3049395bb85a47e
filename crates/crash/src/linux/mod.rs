//! Linux as oracle: what a power cut has left is mounted, and so recovered, by Linux's own F2FS in User-Mode Linux; the oracle that
//! judges Basalt's recovery judges that one, too.
//!
//! | module | what |
//! |---|---|
//! | [`guest`] | the machine: sixteen images a round, as many rounds as wanted in one boot |
//! | [`look`](mod@look) | inside it: everything there is below a mount point, by Linux's own system calls |
//! | [`dump`] | that, as a file |
//! | [`back`] | the other way round: what Linux did is cut, and Basalt recovers it |
//! | [`record`](mod@record), [`work`](mod@work) | what Linux did: on the host, and inside |
//!
//! A volume whose journal is live is none of Linux's business: the guard keeps it off. Such images are left out, and counted.

pub mod back;
pub mod dump;
pub mod guest;
pub mod look;
pub mod record;
pub mod work;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use basalt_device::{MemoryDevice, Replay};
use basalt_f2fs::geometry::Geometry;
use basalt_testkit::images::fsck_f2fs;
use basalt_testkit::scratch;
use basalt_uml::complaints;

use crate::engine::Engine;
use crate::explore::{Finding, Tally, guarded, save};
use crate::f2fs::{F2fsVolume, volume};
use crate::modes::{Setting, mode};
use crate::oracle::{By, verify_by};
use crate::same::expect_same;
use crate::sample::{Sample, Sampler, whole_blocks};
use crate::scenario::{Scenario, go_on, position};
use crate::session::Session;
use crate::tree::Tree;
use crate::usage::{Extent, usage};
use guest::{DISKS, Guest, Visited};

/// The modes whose cuts are shown to Linux, in turns.
const MODES: [&str; 6] = ["exhaustive", "sequences", "random", "triples", "enumerated", "journaled"];
/// Cuts taken of one life.
const PER_LIFE: usize = 3;

/// What Linux says of a checkpoint pack that was never written (mkfs writes one of the two only), or whose writing was cut; and of
/// a superblock whose guard was not yet taken away, or is set already, or was just being set. It mounts by the other one.
const OTHER_COPY: [&str; 4] = [
    "invalid crc_offset: ",
    "invalid crc value",
    "Can't find valid F2FS filesystem in 1th superblock",
    "Can't find valid F2FS filesystem in 2th superblock",
];

/// What Linux says of each inode that it rolls forward.
const ROLLED_FORWARD: &str = "recover_inode:";

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Images to show to Linux.
    pub images: u64,
    /// First seed.
    pub first: u64,
    /// One image in so many is shown to `fsck.f2fs` afterwards; 0 for none.
    pub fsck_every: u64,
    /// Violations after which it ends.
    pub findings: usize,
}

/// A violation.
#[derive(Debug)]
pub struct Found {
    /// The seed that it was met with.
    pub seed: u64,
    /// What is violated.
    pub what: String,
    /// The story.
    pub scenario: Scenario,
    /// Where the image is kept, as the cut left it.
    pub kept: Option<PathBuf>,
}

/// What was done, and found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Images that Linux was shown.
    pub images: u64,
    /// Of these, those with something to roll forward.
    pub recovered: u64,
    /// Images left out: their journal was live.
    pub guarded: u64,
    /// Images that `fsck.f2fs` was shown.
    pub checked_elsewhere: u64,
    /// What Linux promised, and does not find itself; with [`Outcome::is_back`] only.
    pub lost: Vec<String>,
    /// The other way round: Linux worked, Basalt recovered.
    pub is_back: bool,
    /// Seeds used.
    pub seeds: std::ops::Range<u64>,
    /// Violations.
    pub findings: Vec<Found>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for what in &self.lost {
            writeln!(f, "linux: Linux does not keep what it promised, and Basalt finds the same: {what}")?;
        }
        for Found { seed, what, scenario, kept } in &self.findings {
            writeln!(f, "linux: violation with seed {seed}: {what}")?;
            if let Some(kept) = kept {
                writeln!(f, "the image is kept as {}", kept.display())?;
            }
            let how = if self.is_back { "what Linux did" } else { "save this, and: basalt-crash linux --story FILE" };
            writeln!(f, "--- {how}\n{scenario}---")?;
        }
        let Outcome { images, recovered, guarded, checked_elsewhere, seeds, findings, is_back, lost } = self;
        let by = if *is_back { "what Linux did, recovered by Basalt and by Linux" } else { "recovered by Linux" };
        writeln!(
            f,
            "linux: {images} images {by} ({recovered} of them rolled forward), {guarded} with a live journal left out, \
             {checked_elsewhere} shown to fsck.f2fs, seeds {} to {}, {} that Linux itself did not keep, {} violations",
            seeds.start,
            seeds.end,
            lost.len(),
            findings.len()
        )
    }
}

/// A sample with its seed.
type Seeded = (u64, Sample);

/// Shows images to Linux until there are enough, or enough is found. `program` is `basalt-crash`.
///
/// # Errors
/// When there is no machine to be had, or it cannot be used.
pub fn run(program: &Path, wanted: &Wanted) -> Result<Outcome, String> {
    basalt_uml::Uml::installed().map_err(|error| error.to_string())?;
    let mut guest = Guest::boot(program)?;
    let mut outcome = Outcome { seeds: wanted.first..wanted.first, ..Outcome::default() };
    let mut waiting: Vec<Seeded> = Vec::new();
    while outcome.images < wanted.images && outcome.findings.len() < wanted.findings {
        while waiting.len() < DISKS && outcome.findings.len() < wanted.findings {
            let seed = outcome.seeds.end;
            outcome.seeds.end += 1;
            match samples(seed) {
                Ok(samples) => waiting.extend(samples.into_iter().map(|sample| (seed, sample))),
                Err(Finding { scenario, what }) => {
                    outcome.findings.push(Found { seed, what, scenario, kept: None });
                }
            }
            let before = waiting.len();
            waiting.retain(|(_, sample)| !is_guarded(&sample.image));
            outcome.guarded += (before - waiting.len()) as u64;
        }
        let round: Vec<Seeded> = waiting.drain(..DISKS.min(waiting.len())).collect();
        show(program, &mut guest, &round, wanted.fsck_every, &mut outcome)?;
    }
    Ok(outcome)
}

/// Shows Linux what the first power cut of a story leaves.
///
/// # Errors
/// As [`run`], and when the story does not come to its cut.
pub fn run_story(program: &Path, scenario: Scenario) -> Result<Outcome, String> {
    basalt_uml::Uml::installed().map_err(|error| error.to_string())?;
    let sample = play(scenario)?;
    let mut outcome = Outcome::default();
    if is_guarded(&sample.image) {
        outcome.guarded = 1;
        return Ok(outcome);
    }
    show(program, &mut Guest::boot(program)?, &[(0, sample)], 1, &mut outcome)?;
    Ok(outcome)
}

/// The cut of a story.
fn play(scenario: Scenario) -> Result<Sample, String> {
    let engine = engine_of(&scenario)?;
    let (steps, cut) = scenario.lives.first().ok_or("a story without a power cut")?;
    let mut session = Session::open(engine, scenario.image.base(engine)?.device, None, 0)?;
    steps.iter().try_for_each(|step| session.run(step))?;
    let life = Arc::new(session.end());
    let at = position(&life, cut);
    let image = Replay::new(&life.history).cut(at, |cached| whole_blocks(cut.style.fates(cut.seed, cached), cached));
    Ok(Sample { scenario, life, at, image })
}

fn engine_of(scenario: &Scenario) -> Result<&'static F2fsVolume, String> {
    volume(&scenario.volume).ok_or_else(|| format!("there is no volume `{}`", scenario.volume))
}

/// Some cuts of the workload of a seed.
fn samples(seed: u64) -> Result<Vec<Sample>, Finding> {
    let count = MODES.len() as u64;
    let sampler = Sampler::new(PER_LIFE);
    if let Some(mode) = mode(MODES[(seed % count) as usize]) {
        let setting = Setting { sampler: Some(&sampler), ..Setting::default() };
        (mode.run)(mode.spread(seed / count), setting, &mut Tally::default())?;
    }
    Ok(sampler.into_taken())
}

/// Whether the journal is live: both superblocks that can be read say so.
fn is_guarded(image: &MemoryDevice) -> bool {
    matches!(Geometry::read(image), Err(basalt_f2fs::Error::Unsupported { .. }))
}

/// One round. Where the machine does not come to its end, each image has one of its own.
fn show(
    program: &Path,
    guest: &mut Guest,
    round: &[Seeded],
    fsck_every: u64,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let images: Vec<&MemoryDevice> = round.iter().map(|(_, sample)| &sample.image).collect();
    match guest.visit(&images) {
        Ok(visited) => {
            for (disk, ((seed, sample), visited)) in round.iter().zip(visited).enumerate() {
                outcome.images += 1;
                let with_fsck = fsck_every > 0 && outcome.images.is_multiple_of(fsck_every);
                outcome.recovered += u64::from(visited.log.contains(ROLLED_FORWARD));
                outcome.checked_elsewhere += u64::from(with_fsck);
                let image = with_fsck.then(|| guest.disk(disk));
                if let Err(what) = guarded(|| judge(sample, visited, image.as_deref(), *seed)) {
                    outcome.findings.push(found(*seed, sample, what));
                }
            }
            Ok(())
        }
        Err(what) => {
            *guest = Guest::boot(program)?;
            match round {
                [(seed, sample)] => {
                    outcome.images += 1;
                    outcome.findings.push(found(*seed, sample, what));
                    Ok(())
                }
                _ => round.chunks(1).try_for_each(|one| show(program, guest, one, fsck_every, outcome)),
            }
        }
    }
}

/// A violation, with its image kept.
fn found(seed: u64, sample: &Sample, what: String) -> Found {
    Found { seed, what, scenario: sample.scenario.clone(), kept: keep(&sample.image, seed, sample.at) }
}

/// Keeps an image; says where.
fn keep(image: &MemoryDevice, seed: u64, at: usize) -> Option<PathBuf> {
    let path = scratch::place().join(format!("basalt-linux-{}-{seed}-{at}.img", std::process::id()));
    save(image, &path).is_ok().then_some(path)
}

/// Holds what Linux made of an image against what was promised; then the volume is checked, and used.
fn judge(sample: &Sample, visited: Visited, image: Option<&Path>, seed: u64) -> Result<(), String> {
    let Visited { tree, log, left } = visited;
    let engine = engine_of(&sample.scenario)?;
    let life = &*sample.life;
    let tree = tree.map_err(|error| format!("Linux: {error}\n{log}"))?;
    let complaints: Vec<&str> =
        complaints(&log).filter(|line| !OTHER_COPY.iter().any(|words| line.contains(words))).collect();
    if !complaints.is_empty() {
        return Err(format!("Linux complains:\n{}", complaints.join("\n")));
    }
    engine.check_closed(&left).map_err(|error| format!("unmounted by Linux: {error}"))?;
    if let Some(image) = image {
        let report = fsck_f2fs(image).map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(format!("unmounted by Linux: {report}"));
        }
    }
    let mut session = Session::open(engine, left, life.states.last(), life.next)?;
    let tree = with_what_is_not_shown(tree, session.tree());
    expect_same(session.tree(), &tree).map_err(|error| format!("Linux sees another tree than Basalt: {error}"))?;
    verify_by(By::Linux, life, sample.at, session.tree()).map_err(|error| format!("recovered by Linux: {error}"))?;
    let rest = usage(session.tree(), Extent::Some, seed);
    go_on(&mut session, &rest)?;
    session.close().map(drop)
}

/// What Linux saw, with the fields that it does not show taken from what Basalt sees.
fn with_what_is_not_shown(mut tree: Tree, found: &Tree) -> Tree {
    let nodes: HashMap<u64, _> = found.iter().map(|(_, node)| (node.ino, node)).collect();
    let ids: Vec<_> = tree.iter().map(|(id, node)| (id, node.ino, node.kind)).collect();
    for (id, ino, kind) in ids {
        let (Some(node), Some(found)) = (tree.change(id), nodes.get(&ino)) else { continue };
        let (meta, attributes) = (&found.meta, &found.xattrs);
        (node.meta.generation, node.meta.project) = (meta.generation, meta.project);
        let is_shown = matches!(kind, basalt_vfs::FileKind::Regular | basalt_vfs::FileKind::Directory);
        let hidden = if is_shown { !look::FLAGS.bits() } else { u32::MAX };
        node.meta.flags = node.meta.flags & !hidden | meta.flags & hidden;
        if !is_shown {
            // Linux lists a user's attributes of a symbolic link or a device, and does not let anybody read them.
            for (name, value) in node.xattrs.iter_mut().filter(|(name, _)| name.starts_with("user.")) {
                *value = attributes.get(name).cloned().unwrap_or_default();
            }
        }
    }
    tree
}
