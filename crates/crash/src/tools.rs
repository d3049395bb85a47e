//! Tools that change a volume which nobody has open: the power goes while they work, or one of their writes fails. Done again, each
//! comes to the end that it would have come to, and nothing that was on the volume has become different.
//!
//! | tool | after a power cut | done again |
//! |---|---|---|
//! | mkfs | the old volume, whole; the new one, empty; or none | the new one |
//! | tune, resize | the same content, or refused until it is done again | the same content |
//! | repair of damage | whatever can be repaired | the volume that an undisturbed repair leaves |
//! | repair of what a power cut left, also beside inodes with a wrong field that no reader looks at | the same content | the same content |
//! | restore | whatever | the device as it was before the repair, to the byte |

use std::collections::HashSet;
use std::io::{self, Cursor};
use std::sync::Arc;

use basalt_device::power::Change;
use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, PowerCutDevice, Replay, RequestKind};
use basalt_f2fs::format::format;
use basalt_f2fs::geometry::Geometry;
use basalt_f2fs::repair::{RepairOptions, plan, restore};
use basalt_f2fs::resize::resize;
use basalt_f2fs::tune::set_journal;
use basalt_f2fs::{Clock, OpenOptions};
use basalt_testkit::rng::Rng;
use basalt_vfs::Time;

use crate::cut::{Cut, Style};
use crate::engine::{Engine, StepClock};
use crate::explore::{Finding, Tally, guarded};
use crate::f2fs::{F2fsVolume, VOLUMES};
use crate::found::find_tree;
use crate::interrupted::{disturb, interrupted};
use crate::meta::Times;
use crate::modes::Setting;
use crate::prepare::Image;
use crate::same::expect_same;
use crate::scenario::Scenario;
use crate::tree::Tree;

/// Cuts of one run of a tool.
const CUTS: usize = 24;
/// Failing writes, each on a copy.
const FAULTS: u64 = 6;
/// When tools work, in microseconds since the epoch: later than what made the volume.
pub(crate) const LATER: u64 = 1_800_000_000_000_000;

/// A tool, with all its choices made.
#[derive(Clone)]
enum Tool {
    Mkfs,
    Tune(u64),
    Resize(u64),
    Repair,
    Restore(Arc<Vec<u8>>),
}

/// The largest journal that there is room for: between the superblocks and segment 0.
const ROOM: u64 = 495 * 4096;

/// What must be there when a tool has done its work.
enum End {
    /// A volume with nothing in it.
    Empty,
    /// A volume with this in it.
    Content(Tree),
    /// A device with this digest.
    Digest(u64),
}

/// A tool about to work.
struct Case {
    engine: &'static F2fsVolume,
    tool: Tool,
    /// The device before.
    image: MemoryDevice,
    /// What is on it before.
    tree: Option<Tree>,
    end: End,
}

/// One tool on one volume, cut and failing.
pub fn tools(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let mut rng = Rng::new(seed ^ 0x7001);
    let engine = &VOLUMES[rng.index(VOLUMES.len())];
    let case = guarded(|| prepare(engine, &mut rng));
    let outcome = case.and_then(|case| case.map_or(Ok(()), |case| torment(&case, &mut rng, setting, tally)));
    tally.runs += 1;
    outcome.map_err(|what| {
        let scenario = Scenario {
            volume: engine.name().to_owned(),
            image: Image::Few,
            device_mutant: setting.device_mutant,
            threads: None,
            lives: Vec::new(),
            failing_read: None,
            rest: Vec::new(),
        };
        Finding {
            scenario,
            what: format!("{what}\n(no story: again with `basalt-crash run tools --first {seed} --seeds 1`)"),
        }
    })
}

/// Chooses a tool and makes what it works on. `None` where the damage is more than repair takes on, or none.
fn prepare(engine: &'static F2fsVolume, rng: &mut Rng) -> Result<Option<Case>, String> {
    let image = Image::Few.base(engine)?.device;
    let tree = content(engine, &image)?;
    let size = image.size();
    let same =
        |tool, image| Some(Case { engine, tool, image, tree: Some(tree.clone()), end: End::Content(tree.clone()) });
    Ok(match rng.below(9) {
        7.. => {
            // No content is damaged, and all that was fsynced has to be there after a repair.
            // Where there are hundreds of inodes, a repair of them needs segments of its own.
            let base = if rng.chance(40) { Image::Names.base(engine)?.device } else { image };
            let image = interrupted(engine, base, rng)?;
            let tree = content(engine, &image)?;
            if rng.chance(50) {
                disturb(&image, rng)?;
            }
            Some(Case { engine, tool: Tool::Repair, image, tree: Some(tree.clone()), end: End::Content(tree) })
        }
        0 => Some(Case { engine, tool: Tool::Mkfs, image, tree: Some(tree), end: End::Empty }),
        1 => same(Tool::Tune([0, 24 << 10, 128 << 10, ROOM, ROOM + 4096][rng.index(5)]), image),
        2 => same(Tool::Resize(size + (rng.between(2, 12) << 21)), enlarged(&image, size + (24 << 20))?),
        3 => same(Tool::Resize(size - (rng.between(1, 4) << 21)), image),
        which => {
            damage(&image, rng)?;
            let (repaired, mut backup) = (Arc::new(image.snapshot()), Vec::new());
            if repair(repaired.clone(), Some(&mut backup)).is_err() || backup.is_empty() {
                return Ok(None);
            }
            let repaired = repaired.snapshot();
            Some(if which < 6 {
                let end = End::Content(content(engine, &repaired)?);
                Case { engine, tool: Tool::Repair, image, tree: None, end }
            } else {
                let end = End::Digest(image.digest());
                Case { engine, tool: Tool::Restore(Arc::new(backup)), image: repaired, tree: None, end }
            })
        }
    })
}

/// Fills one block of metadata, or of the first that files use, with zeros or with another block.
fn damage(image: &MemoryDevice, rng: &mut Rng) -> Result<(), String> {
    let (geometry, _) = Geometry::read(image).map_err(|error| error.to_string())?;
    let places = [
        geometry.sit + rng.below(u64::from(geometry.sit_blocks)) as u32,
        geometry.nat,
        geometry.ssa + rng.below(6) as u32,
        geometry.checkpoint,
        geometry.main + rng.below(3 * 512) as u32,
        geometry.main + 512 * rng.below(6) as u32 + rng.below(12) as u32,
    ];
    let block = u64::from(places[rng.index(places.len())]) * 4096;
    let mut bytes = [0; 4096];
    if rng.chance(50) {
        image.read_at(block + 4096, &mut bytes).map_err(|error| error.to_string())?;
    }
    image.write_at(block, &bytes).map_err(|error| error.to_string())
}

/// A larger device that begins with the content of this one.
fn enlarged(image: &MemoryDevice, size: u64) -> Result<MemoryDevice, String> {
    let device = MemoryDevice::new(size, 512);
    let mut piece = vec![0; 64 << 10];
    for at in (0..image.size()).step_by(piece.len()) {
        let length = piece.len().min((image.size() - at) as usize);
        image.read_at(at, &mut piece[..length]).map_err(|error| error.to_string())?;
        if piece[..length].iter().any(|byte| *byte != 0) {
            device.write_at(at, &piece[..length]).map_err(|error| error.to_string())?;
        }
    }
    Ok(device)
}

/// What is on a volume, opened on a copy.
fn content(engine: &F2fsVolume, image: &MemoryDevice) -> Result<Tree, String> {
    let fs = engine.open(Arc::new(image.snapshot()), StepClock::starting(LATER))?;
    find_tree(&*fs, None)
}

/// Repairs a volume, and saves what that overwrites.
fn repair(device: Arc<dyn BlockDevice>, backup: Option<&mut Vec<u8>>) -> Result<(), String> {
    let clock: Arc<dyn Clock> = StepClock::starting(LATER);
    let options = RepairOptions { clock, ..RepairOptions::default() };
    let plan = plan(device, &options, &mut |_| {}).map_err(|error| format!("repair: {error}"))?;
    if let Some(backup) = backup {
        plan.back_up(backup).map_err(|error| format!("backup: {error}"))?;
    }
    plan.commit().map(drop).map_err(|error| format!("repair: {error}"))
}

impl Case {
    fn work(&self, device: Arc<dyn BlockDevice>) -> Result<(), String> {
        match &self.tool {
            Tool::Mkfs => {
                let options = self.engine.format_options();
                format(&*device, &options, &mut |_, _| {}).map(drop).map_err(|error| format!("mkfs: {error}"))
            }
            Tool::Tune(bytes) => set_journal(&*device, *bytes).map(drop).map_err(|error| format!("tune: {error}")),
            Tool::Resize(size) => {
                let clock: Arc<dyn Clock> = StepClock::starting(LATER);
                let resized = resize(&device, *size, &OpenOptions::default(), &clock, &mut |_, _, _| {});
                resized.map(drop).map_err(|error| format!("resize: {error}"))
            }
            Tool::Repair => repair(device, None),
            Tool::Restore(backup) => {
                let restored = restore(&*device, &mut Cursor::new(&backup[..]), false);
                restored.map(drop).map_err(|error| format!("restore: {error}"))
            }
        }
    }

    /// What a power cut in the middle of the work has left.
    fn expect_in_between(&self, image: &MemoryDevice) -> Result<(), String> {
        let Some(tree) = &self.tree else { return Ok(()) };
        let found = content(self.engine, image);
        if let Tool::Repair = self.tool {
            // A name that is recovered has its directory's time set, whenever that is.
            return expect_same(&early(tree), &early(&found?));
        }
        if let Tool::Mkfs = self.tool {
            let Ok(found) = found else { return Ok(()) };
            // One copy of the superblock may be missing: a check says so, and mkfs was told to go over all of it.
            return if is_new(&found) { Ok(()) } else { expect_same(tree, &found) };
        }
        expect_same(tree, &found?)
    }

    /// What the work has left.
    fn expect_end(&self, image: &MemoryDevice) -> Result<(), String> {
        match &self.end {
            End::Digest(digest) if image.digest() == *digest => Ok(()),
            End::Digest(_) => Err("the device is not what it was before the repair".to_owned()),
            End::Empty => {
                self.engine.check(image)?;
                let found = content(self.engine, image)?;
                if is_new(&found) { Ok(()) } else { Err(format!("a new volume holds {:?}", found.paths())) }
            }
            End::Content(tree) => {
                self.engine.check(image)?;
                let found = content(self.engine, image)?;
                match self.tool {
                    // What repair makes has the time of the repair.
                    Tool::Repair => expect_same(&early(tree), &early(&found)),
                    _ => expect_same(tree, &found),
                }
            }
        }
    }
}

/// Whether nothing is on a volume but what mkfs makes.
fn is_new(tree: &Tree) -> bool {
    tree.paths().iter().all(|(path, _)| path == "lost+found")
}

/// A tree in which all times of the work are the same.
fn early(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    let ids: Vec<_> = tree.iter().map(|(id, _)| id).collect();
    for id in ids {
        let Some(node) = tree.change(id) else { continue };
        let Times { access, modify, change, birth } = &mut node.meta.times;
        for time in [access, modify, change].into_iter().chain(birth) {
            if time.seconds >= (LATER / 1_000_000) as i64 {
                *time = Time::default();
            }
        }
    }
    tree
}

/// Lets a tool work, cuts it, and makes its writes fail.
fn torment(case: &Case, rng: &mut Rng, setting: Setting<'_>, tally: &mut Tally) -> Result<(), String> {
    let told = |what: String, when: String| format!("{:?} {when}: {what}", Named(&case.tool));
    let device = Arc::new(PowerCutDevice::new(case.image.snapshot()));
    if let Err(what) = guarded(|| case.work(device.clone())) {
        // A volume that cannot be made so small, or has no room for a journal.
        let is_whole = matches!(case.tool, Tool::Repair) && case.tree.is_some();
        return if is_whole || what.starts_with("panicked") { Err(told(what, "undisturbed".into())) } else { Ok(()) };
    }
    guarded(|| case.expect_end(&device.now())).map_err(|what| told(what, "undisturbed".into()))?;
    let history = device.history();
    let mut replay = Replay::knowing(&history, case.image.digest());
    let end = history.changes.len();
    let flushes: Vec<usize> = (0..end).filter(|at| history.changes[*at] == Change::Flush).collect();
    let near = |rng: &mut Rng| match rng.pick(&flushes) {
        Some(flush) if rng.chance(60) => (flush + rng.index(4)).saturating_sub(1).min(end),
        _ => rng.index(end + 1),
    };
    let mut moments: Vec<usize> = (0..CUTS).map(|_| near(rng)).collect();
    moments.sort_unstable();
    let mut judged = HashSet::new();
    for at in moments {
        let style = Style::ALL[rng.index(Style::ALL.len())];
        let cut = Cut { after: at, style, seed: if style.is_fixed() { 0 } else { rng.next_u64() >> 40 } };
        let (image, digest) = replay.cut_with_digest(at, |cached| style.fates(cut.seed, cached));
        if !judged.insert(digest) {
            continue;
        }
        tally.cuts += 1;
        tally.states += u64::from(setting.seen.is_none_or(|seen| seen.is_new(digest)));
        let judge = || {
            case.expect_in_between(&image)?;
            let device = Arc::new(image.snapshot());
            case.work(device.clone()).map_err(|what| format!("done again: {what}"))?;
            case.expect_end(&device.snapshot()).map_err(|what| format!("done again: {what}"))
        };
        guarded(judge).map_err(|what| told(what, format!("cut at request {at} of {end} (`{cut}`)")))?;
    }
    (0..FAULTS).try_for_each(|_| fail(case, end, rng))
}

/// Makes one request of a tool fail; then it works once more.
fn fail(case: &Case, requests: usize, rng: &mut Rng) -> Result<(), String> {
    let device = Arc::new(FaultyDevice::new(case.image.snapshot()));
    let kind = if rng.chance(80) { RequestKind::Write } else { RequestKind::Flush };
    let nth = 1 + rng.below(requests.max(1) as u64);
    device.fail_nth(kind, nth, io::ErrorKind::Other);
    let told = |what: String| format!("{:?}, its {kind:?} {nth} failing: {what}", Named(&case.tool));
    let result = guarded(|| case.work(device.clone()));
    let was_hit = device.injected() > 0;
    device.heal();
    match result {
        Err(what) if what.starts_with("panicked") => return Err(told(what)),
        Ok(()) if was_hit => return Err(told("the tool says that all went well".into())),
        _ => {}
    }
    let again = Arc::new(device.inner().snapshot());
    guarded(|| case.work(again.clone()).and_then(|()| case.expect_end(&again.snapshot())))
        .map_err(|what| told(format!("done again: {what}")))
}

/// A tool's name and numbers, without a backup's bytes.
struct Named<'a>(&'a Tool);

impl std::fmt::Debug for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Tool::Mkfs => write!(f, "mkfs"),
            Tool::Tune(bytes) => write!(f, "tune to a journal of {bytes} bytes"),
            Tool::Resize(bytes) => write!(f, "resize to {bytes} bytes"),
            Tool::Repair => write!(f, "repair"),
            Tool::Restore(_) => write!(f, "restore"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of the work itself are nobody's promise; all others are.
    #[test]
    fn times_from_before_the_work_count() {
        let engine = crate::f2fs::volume("roomy").unwrap();
        let tree = content(engine, &Image::Few.base(engine).unwrap().device).unwrap();
        let with_time = |seconds: u64| {
            let mut tree = tree.clone();
            tree.change(crate::tree::ROOT).unwrap().meta.times.modify.seconds = seconds as i64;
            early(&tree)
        };
        let work = LATER / 1_000_000;
        expect_same(&with_time(work), &with_time(work + 5)).unwrap();
        expect_same(&with_time(work - 2), &with_time(work - 1)).unwrap_err();
        expect_same(&with_time(work - 1), &with_time(work)).unwrap_err();
    }
}
