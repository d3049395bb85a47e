//! What Linux has written and a power cut has ended, recovered by Basalt: what Linux promised is there, and Basalt finds what Linux itself
//! finds.

use std::collections::HashMap;
use std::path::Path;

use basalt_device::{MemoryDevice, Replay};
use basalt_testkit::rng::Rng;
use basalt_uml::complaints;
use basalt_vfs::FileKind;

use super::guest::{DISKS, Guest, Visited};
use super::record::{Plan, plan, record};
use super::{Found, OTHER_COPY, Outcome, ROLLED_FORWARD, Wanted, keep, look, with_what_is_not_shown};
use crate::cut::{Cut, Style};
use crate::engine::Engine;
use crate::explore::{check_elsewhere, guarded};
use crate::oracle::{By, verify_by};
use crate::prepare::Image;
use crate::same::expect_same;
use crate::sample::whole_blocks;
use crate::scenario::{Scenario, go_on};
use crate::session::{Life, Promise, Session};
use crate::tree::{Id, Tree};
use crate::usage::{Extent, usage};

/// A cut of what Linux did.
struct Struck {
    /// The change it met.
    at: usize,
    style: Style,
    seed: u64,
    image: MemoryDevice,
}

/// Has Linux work on one volume after the other, cuts what it did, and has Basalt recover it.
///
/// # Errors
/// When there is no machine to be had, or it cannot be used.
pub fn run(program: &Path, wanted: &Wanted) -> Result<Outcome, String> {
    basalt_uml::Uml::installed().map_err(|error| error.to_string())?;
    let mut guest = Guest::boot(program)?;
    let mut outcome = Outcome { seeds: wanted.first..wanted.first, is_back: true, ..Outcome::default() };
    while outcome.images < wanted.images && outcome.findings.len() < wanted.findings {
        let seed = outcome.seeds.end;
        outcome.seeds.end += 1;
        let Some(plan) = plan(seed) else { continue };
        let life = match record(program, &plan) {
            Ok(life) => life,
            Err(what) => {
                outcome.findings.push(found(seed, &plan, None, what));
                continue;
            }
        };
        let cuts = cuts(&life, plan.prelude, seed);
        let images: Vec<&MemoryDevice> = cuts.iter().map(|struck| &struck.image).collect();
        let visited = guest.visit(&images)?;
        for (struck, visited) in cuts.iter().zip(visited) {
            outcome.images += 1;
            outcome.recovered += u64::from(visited.log.contains(ROLLED_FORWARD));
            let with_fsck = wanted.fsck_every > 0 && outcome.images.is_multiple_of(wanted.fsck_every);
            outcome.checked_elsewhere += u64::from(with_fsck);
            match guarded(|| judge(&plan, &life, struck, visited, with_fsck)) {
                Ok(None) => {}
                Ok(Some(what)) => outcome.lost.push(format!("seed {seed}, cut at request {}: {what}", struck.at)),
                Err(what) => outcome.findings.push(found(seed, &plan, Some((&life, struck)), what)),
            }
        }
    }
    Ok(outcome)
}

/// Where the power goes: mostly where a step that made something durable has returned. As many cuts as the machine has disks.
fn cuts(life: &Life, prelude: usize, seed: u64) -> Vec<Struck> {
    let mut rng = Rng::new(seed ^ 0xC07);
    let start = life.done[prelude].changes.end;
    let end = life.history.changes.len();
    let promising = life.done[prelude..].iter().filter(|done| done.promise != Promise::Nothing);
    let returns: Vec<usize> = promising.map(|done| done.changes.end).collect();
    let moment = |rng: &mut Rng| match rng.pick(&returns) {
        Some(at) if rng.chance(60) => *at,
        _ => start + rng.index(end - start + 1),
    };
    let mut moments: Vec<usize> = (0..DISKS).map(|_| moment(&mut rng)).collect();
    moments.sort_unstable();
    let mut replay = Replay::new(&life.history);
    let mut cut = |at: usize| {
        let style = [Style::Kept, Style::Kept, Style::Lost, Style::Sectors][rng.index(4)];
        let seed = if style.is_fixed() { 0 } else { rng.next_u64() >> 40 };
        let image = replay.cut(at, |cached| whole_blocks(style.fates(seed, cached), cached));
        Struck { at, style, seed, image }
    };
    moments.into_iter().map(&mut cut).collect()
}

/// Basalt recovers, and so does Linux: both find the same, and what was promised. Then the volume is checked, and used. What Linux itself
/// does not keep is no fault of Basalt's, and returned.
fn judge(
    plan: &Plan,
    life: &Life,
    struck: &Struck,
    visited: Visited,
    with_fsck: bool,
) -> Result<Option<String>, String> {
    let Struck { at, style, image, .. } = struck;
    let engine = plan.engine;
    let log = &visited.log;
    let of_linux = visited.tree.map_err(|error| format!("Linux cannot recover its own: {error}\n{log}"))?;
    let complaints: Vec<&str> =
        complaints(log).filter(|line| !OTHER_COPY.iter().any(|words| line.contains(words))).collect();
    if !complaints.is_empty() {
        return Err(format!("Linux complains of its own:\n{}", complaints.join("\n")));
    }
    let mut session = Session::open(engine, image.snapshot(), life.states.last(), life.next)
        .map_err(|error| format!("{error}, and Linux recovers it:\n{log}"))?;
    engine.check(&session.image()).map_err(|error| format!("recovered by Basalt: {error}"))?;
    let of_linux = with_what_is_not_shown(of_linux, session.tree());
    let is_rolled = log.contains(ROLLED_FORWARD);
    let of_linux = if is_rolled { with_times_of_directories(of_linux, session.tree()) } else { of_linux };
    expect_same(&of_linux, session.tree())
        .map_err(|error| format!("Basalt finds another tree than Linux: {error}\n{log}"))?;
    // Linux writes data in place, and waits for no flush between data and the nodes that point to it: nothing is sure where requests are
    // reordered.
    let found = as_linux_shows(session.tree().clone());
    let lost = if style.is_fixed() { verify_by(By::LinuxWrote, life, *at, &found).err() } else { None };
    let rest = usage(session.tree(), Extent::Some, *at as u64);
    go_on(&mut session, &rest)?;
    let closed = session.close()?;
    if with_fsck {
        check_elsewhere(engine, &closed)?;
    }
    Ok(lost)
}

/// Recovery gives names back, and directories the times of that.
fn with_times_of_directories(mut tree: Tree, of: &Tree) -> Tree {
    let directories = of.iter().filter(|(_, node)| node.kind == FileKind::Directory);
    let times: HashMap<u64, _> = directories.map(|(_, node)| (node.ino, node.meta.times)).collect();
    let ids: Vec<(Id, u64)> = tree.iter().map(|(id, node)| (id, node.ino)).collect();
    for (id, ino) in ids {
        if let (Some(node), Some(times)) = (tree.change(id), times.get(&ino)) {
            node.meta.times = *times;
        }
    }
    tree
}

/// What Basalt has found, without what Linux does not show.
fn as_linux_shows(mut tree: Tree) -> Tree {
    let ids: Vec<_> = tree.iter().map(|(id, _)| id).collect();
    for id in ids {
        let Some(node) = tree.change(id) else { continue };
        let is_shown = matches!(node.kind, FileKind::Regular | FileKind::Directory);
        let shown = if is_shown { look::FLAGS.bits() } else { 0 };
        (node.meta.generation, node.meta.project) = (0, 0);
        node.meta.flags &= shown;
    }
    tree
}

/// A violation: the steps as far as the cut, and its image. Linux does not do the same again to the byte, so the image is what counts.
fn found(seed: u64, plan: &Plan, struck: Option<(&Life, &Struck)>, what: String) -> Found {
    let (returned, cut) = struck.map_or((plan.steps.len(), None), |(life, Struck { at, style, seed, .. })| {
        let returned = life.done.iter().take_while(|done| done.changes.end <= *at).count();
        let last = returned.min(life.done.len() - 1);
        let after = at - life.done[last].changes.start;
        (last, Some(Cut { after, style: *style, seed: *seed }))
    });
    let steps = plan.steps[..returned].to_vec();
    let (lives, rest) = cut.map_or_else(|| (Vec::new(), steps.clone()), |cut| (vec![(steps.clone(), cut)], Vec::new()));
    let (volume, image): (String, Image) = (plan.engine.name().to_owned(), plan.image);
    let scenario = Scenario { volume, image, device_mutant: None, threads: None, lives, failing_read: None, rest };
    let kept = struck.and_then(|(_, Struck { at, image, .. })| keep(image, seed, *at));
    Found { seed, what, scenario, kept }
}
