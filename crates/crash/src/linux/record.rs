//! The other way round: a life on a volume that Linux has lived, as the simulator records its own.
//!
//! Everything that Linux writes is written down in order, and after each step a read that nobody else does marks where it has returned. What
//! was there after each step is what Linux itself showed then.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use basalt_device::MemoryDevice;
use basalt_device::power::{Change, History};
use basalt_f2fs::geometry::Geometry;
use basalt_testkit::rng::Rng;
use basalt_testkit::scratch;
use basalt_uml::{RequestKind, Requests, Status, Uml};
use basalt_vfs::FileKind;

use super::dump;
use super::guest::with_f2fs;
use super::work::{MARK_BYTES, mark_offset};
use crate::explore::save;
use crate::f2fs::F2fsVolume;
use crate::generate::{Flavour, steps};
use crate::prepare::Image;
use crate::script::Step;
use crate::session::{Done, Life, Promise};
use crate::tree::{Id, ROOT, Tree};

/// What Linux does on one volume.
pub struct Plan {
    /// The volume, made by Basalt.
    pub engine: &'static F2fsVolume,
    /// What is on it before.
    pub image: Image,
    /// The steps.
    pub steps: Vec<Step>,
    /// So many at the beginning make files, and are not cut.
    pub prelude: usize,
}

/// Volumes that Linux works on: no journals, and inodes that say when they were made.
const VOLUMES: [&str; 6] = ["roomy", "tight", "sections", "flexible", "tightest", "wide"];
const FLAVOURS: [Flavour; 4] = [Flavour::Fsync, Flavour::Mixed, Flavour::Fsync, Flavour::Sparse];

/// What Linux does with this seed.
pub fn plan(seed: u64) -> Option<Plan> {
    let mut rng = Rng::new(seed ^ 0x11_0F);
    let engine = crate::f2fs::volume(VOLUMES[(seed % VOLUMES.len() as u64) as usize])?;
    let image = if rng.chance(50) { Image::Empty } else { Image::Few };
    let flavour = *rng.pick(&FLAVOURS)?;
    // Unmounting is the machine's.
    let work = steps(&mut rng, flavour, 60).into_iter().filter(|step| *step != Step::Remount);
    Some(Plan { engine, image, steps: files().chain(work).collect(), prelude: files().count() })
}

/// The files that most steps are about.
fn files() -> impl Iterator<Item = Step> {
    let names =
        ["", "d0/", "d1/", "d0/e/"].into_iter().flat_map(|dir| (0..4).map(move |number| format!("{dir}f{number}")));
    let directories = ["d0", "d1", "d0/e"].into_iter().map(|name| Step::Mkdir(name.to_owned()));
    let written = |(seed, name): (u64, String)| {
        [Step::Create(name.clone()), Step::Write(name, 0, [100, 9_000, 40_000][(seed % 3) as usize], 77 + seed)]
    };
    directories.chain((0..).zip(names).flat_map(written)).chain([Step::Sync])
}

/// Has Linux do what is planned, and records it. The steps of the life are left out: of a file that has replaced another one by a rename
/// Linux promises nothing, and the oracle takes that from there.
///
/// # Errors
/// When the machine does not come to its end: what it said.
pub fn record(program: &Path, plan: &Plan) -> Result<Life, String> {
    let place = scratch::directory().map_err(|error| error.to_string())?;
    let at = |name: &str| place.path().join(name);
    let base = plan.image.base(plan.engine)?.device;
    let failed = |error: io::Error| format!("what the machine shares: {error}");
    save(&base, &at("disk")).map_err(failed)?;
    let text: String = plan.steps.iter().map(|step| format!("{step}\n")).collect();
    std::fs::write(at("steps"), text).map_err(failed)?;
    let script = format!(
        "mkdir -p /run/mnt && mount -t f2fs -o noatime /dev/ubda /run/mnt && {} work /run/mnt {} /dev/ubda {}",
        program.display(),
        at("steps").display(),
        at("trees").display()
    );
    let machine = with_f2fs(Uml::new()).timeout(Duration::from_secs(120)).image(at("disk"));
    let machine = machine.record(at("requests")).record_data(at("data"));
    let result = machine.run_script(&script).map_err(|error| error.to_string())?;
    if result.status != Status::Exited(0) || !result.complaints().is_empty() {
        return Err(format!("Linux works: {result}"));
    }
    let trees = dump::load(&std::fs::read(at("trees")).map_err(failed)?)?;
    let answers = std::fs::read_to_string(at("trees").with_extension("answers")).map_err(failed)?;
    let (changes, marks) = changes(&at("requests"), &at("data"))?;
    if marks.len() != plan.steps.len() + 1 || trees.len() != marks.len() {
        return Err(format!("{} trees and {} marks of {} steps", trees.len(), marks.len(), plan.steps.len()));
    }
    let checkpoints = checkpoint_area(&base)?;
    let states = numbered(trees);
    let is_done: Vec<bool> = answers.lines().map(|line| line == "done").collect();
    let done = promises(&plan.steps, &is_done, &states, &changes, &marks, &checkpoints);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let next = (now + Duration::from_secs(3600)).as_micros() as u64;
    Ok(Life { history: History { base, changes, pages: None }, done, states, steps: Vec::new(), next })
}

/// What changed the disk, and how much of it came before each mark.
fn changes(requests: &Path, data: &Path) -> Result<(Vec<Change>, Vec<usize>), String> {
    let mut data = File::open(data).map_err(|error| error.to_string())?;
    let (mut changes, mut marks) = (Vec::new(), Vec::new());
    for request in Requests::open(requests).map_err(|error| error.to_string())? {
        let request = request.map_err(|error| error.to_string())?;
        let (offset, length) = (request.offset, request.length);
        match request.kind {
            RequestKind::Read if (offset, length) == (mark_offset(marks.len() as u64), MARK_BYTES) => {
                marks.push(changes.len());
            }
            RequestKind::Read => {}
            RequestKind::Write => {
                let mut bytes = vec![0; length as usize];
                data.read_exact(&mut bytes).map_err(|error| format!("data of a write: {error}"))?;
                changes.push(Change::Write { offset, data: bytes.into() });
            }
            RequestKind::Zero => changes.push(Change::Write { offset, data: vec![0; length as usize].into() }),
            RequestKind::Discard => changes.push(Change::Discard { offset, length }),
            RequestKind::Flush => changes.push(Change::Flush),
        }
    }
    Ok((changes, marks))
}

/// The bytes of the device where checkpoints are.
fn checkpoint_area(device: &MemoryDevice) -> Result<std::ops::Range<u64>, String> {
    let (geometry, _) = Geometry::read(device).map_err(|error| error.to_string())?;
    let first = u64::from(geometry.checkpoint) * 4096;
    Ok(first..first + u64::from(geometry.checkpoint_segments) * (2 << 20))
}

/// What each step has done to the disk, and promised.
fn promises(
    steps: &[Step],
    is_done: &[bool],
    states: &[Tree],
    changes: &[Change],
    marks: &[usize],
    checkpoints: &std::ops::Range<u64>,
) -> Vec<Done> {
    let opening = Done { changes: 0..marks[0], promise: Promise::Nothing, aged: 0 };
    let one = |(number, step): (usize, &Step)| {
        let range = marks[number]..marks[number + 1];
        let with_checkpoint = changes[range.clone()].iter().any(|change| checkpoints.contains(&change.range().0));
        let promise =
            if is_done[number] { promise(step, &states[number + 2], with_checkpoint) } else { Promise::Nothing };
        Done { changes: range, promise, aged: 0 }
    };
    std::iter::once(opening).chain(steps.iter().enumerate().map(one)).collect()
}

/// Linux fsyncs a directory by a checkpoint, which does not write content of files; or finds that nothing of it is new: then nothing else
/// becomes durable either.
fn promise(step: &Step, tree: &Tree, with_checkpoint: bool) -> Promise {
    let of = |path: &str| tree.find(path).and_then(|id| tree.get(id).map(|node| (id, node.kind)));
    match step {
        Step::Sync => Promise::All,
        Step::Fsync(path) | Step::Fdatasync(path) => match (of(path), step) {
            (Some((_, FileKind::Directory)), _) if with_checkpoint => Promise::Names,
            (Some((id, FileKind::Regular)), Step::Fsync(_)) => Promise::File(id),
            (Some((id, FileKind::Regular)), _) => Promise::Data(id),
            _ => Promise::Nothing,
        },
        _ => Promise::Nothing,
    }
}

/// The trees with one number for each inode throughout: numbers of inodes are used again, and then they were made later. What there was
/// after mounting stands there twice, as before it.
fn numbered(trees: Vec<Tree>) -> Vec<Tree> {
    let mut known: HashMap<(u64, Option<(i64, u32)>), Id> = HashMap::new();
    let mut states: Vec<Tree> = Vec::with_capacity(trees.len() + 1);
    for tree in trees {
        let mut next: HashMap<Id, Id> = HashMap::from([(ROOT, ROOT)]);
        for (id, node) in tree.iter().filter(|(id, _)| *id != ROOT) {
            let free = known.len() as Id + ROOT + 1;
            let birth = node.meta.times.birth.map(|birth| (birth.seconds, birth.nanoseconds));
            next.insert(id, *known.entry((node.ino, birth)).or_insert(free));
        }
        let mut state = Tree::new(0);
        for (id, node) in tree.iter() {
            let mut node = (**node).clone();
            node.entries.values_mut().for_each(|child| *child = next[child]);
            state.insert(next[&id], node);
        }
        if states.is_empty() {
            states.push(state.clone());
        }
        states.push(state);
    }
    states
}
