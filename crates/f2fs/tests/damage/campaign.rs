//! Damage, repair, look; over and over.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, FileDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::repair::{RepairOptions, plan};
use basalt_testkit::command::run;
use basalt_testkit::images::{TOOLS, fsck_f2fs, fsck_f2fs_within};
use basalt_testkit::rng::Rng;
use basalt_testkit::scratch;
use basalt_testkit::skip::tools_or_skip;

use crate::editor::Editor;
use crate::reading::Reading;
use crate::structures::{Map, Structure};
use crate::verdict::{Count, losses};
use crate::volume::Base;

/// Places that are damaged on one volume.
const PLACES: u32 = 5;
/// Losses that are shown of one volume.
const SHOWN: usize = 6;
/// Seconds that `fsck.f2fs` may take for a repair, and for a look at what that left.
const OTHER_SECONDS: u32 = 60;

/// What to do.
pub struct Order {
    /// Volumes.
    pub count: u64,
    /// The first one's seed; the others have those that follow.
    pub seed: u64,
    /// Whether one structure is wiped, or bytes of five changed.
    pub wipe: bool,
    /// Whether `fsck.f2fs` repairs the same volumes.
    pub compare: bool,
}

/// A volume to be damaged, and what is on it.
struct Sound {
    device: MemoryDevice,
    map: Map,
    reading: Reading,
}

fn sound(base: Base) -> &'static Sound {
    static ALL: [OnceLock<Sound>; 3] = [const { OnceLock::new() }; 3];
    ALL[base as usize].get_or_init(|| {
        let device = base.make();
        let map = Map::of(&Editor::new(&device));
        let reading = Reading::of_mount(Arc::new(device.snapshot()), None);
        assert!(reading.paths.len() > 400, "{}", reading.paths.len());
        Sound { device, map, reading }
    })
}

/// What came of the volumes with one kind of damage.
#[derive(Debug, Default, Clone)]
struct Line {
    volumes: u64,
    clean: u64,
    refused: u64,
    /// Paths that were whole for a read-only mount and for rescue before, and for a read-only mount after.
    mounted_before: u64,
    rescued_before: u64,
    after: u64,
    /// The same after `fsck.f2fs`, and volumes that it calls clean then.
    after_other: u64,
    clean_other: u64,
    losing: u64,
    losing_other: u64,
    time: Duration,
    time_other: Duration,
}

/// What came of all.
pub struct Campaign {
    wipe: bool,
    seed: u64,
    lines: BTreeMap<Option<Structure>, Line>,
    problems: Vec<String>,
    total: Duration,
}

impl Campaign {
    /// Damages and repairs.
    pub fn run(order: &Order) -> Campaign {
        let start = Instant::now();
        let directory = tools_or_skip(TOOLS).then(|| scratch::directory().unwrap());
        let image = directory.as_ref().map(|directory| directory.path().join("volume.img"));
        let mut campaign = Campaign {
            wipe: order.wipe,
            seed: order.seed,
            lines: BTreeMap::new(),
            problems: Vec::new(),
            total: Duration::ZERO,
        };
        for seed in order.seed..order.seed + order.count {
            campaign.one(order, seed, image.as_deref());
            let done = seed + 1 - order.seed;
            if order.compare && done.is_multiple_of(50) {
                println!(
                    "{done} of {}, {} of them with losses, {:.0} s",
                    order.count,
                    campaign.problems.len(),
                    start.elapsed().as_secs_f64()
                );
            }
        }
        campaign.total = start.elapsed();
        campaign
    }

    fn one(&mut self, order: &Order, seed: u64, image: Option<&Path>) {
        let mut rng = Rng::new(seed);
        let sound = sound(Base::ALL[rng.index(Base::ALL.len())]);
        let editor = Editor::new(&sound.device);
        let (structure, what) = if order.wipe {
            let structure = Structure::ALL[rng.index(Structure::ALL.len())];
            (Some(structure), format!("{structure:?}: {}", sound.map.wipe(&editor, structure, &mut rng)))
        } else {
            let places: Vec<String> = (0..PLACES).map(|_| sound.map.scratch(&editor, &mut rng)).collect();
            (None, places.join("; "))
        };
        let damaged = editor.device.snapshot();
        let line = self.lines.entry(structure).or_default();
        line.volumes += 1;
        let known = Some(&sound.reading);
        let mounted = Reading::of_mount(Arc::new(damaged.snapshot()), known);
        let rescued = Reading::of_rescue(Arc::new(damaged.snapshot()), known);
        let before = [&mounted, &rescued];
        line.mounted_before += Count::of(&sound.reading, &mounted).whole;
        line.rescued_before += Count::of(&sound.reading, &rescued).whole;
        let mut problems = repair(line, Arc::new(damaged.snapshot()), sound, &before, image);
        if let Some(image) = image.filter(|_| order.compare) {
            repair_with_other(line, &damaged, sound, &before, image);
        }
        line.losing += u64::from(!problems.is_empty());
        if !problems.is_empty() {
            if let Ok(directory) = std::env::var("BASALT_DAMAGE_KEEP") {
                save(&damaged, &Path::new(&directory).join(format!("damaged-{seed}.img")));
            }
            let more = problems.len().saturating_sub(SHOWN);
            problems.truncate(SHOWN);
            let problems = problems.join("\n    ");
            if order.compare {
                println!("seed {seed}, wipe {}: {what}\n    {problems} (and {more} more)", order.wipe);
            }
            self.problems.push(format!("seed {seed}, wipe {}: {what}\n    {problems} (and {more} more)", order.wipe));
        }
    }

    /// Fails if anything was lost.
    pub fn expect_nothing_lost(&self) {
        let shown: String = self.problems.iter().take(12).map(|problem| format!("\n  {problem}")).collect();
        assert!(self.problems.is_empty(), "{} volumes, {self}{shown}", self.problems.len());
    }
}

fn repair(
    line: &mut Line,
    device: Arc<MemoryDevice>,
    sound: &Sound,
    before: &[&Reading],
    image: Option<&Path>,
) -> Vec<String> {
    let shared: Arc<dyn BlockDevice> = device.clone();
    let start = Instant::now();
    let plan = match plan(Arc::clone(&shared), &RepairOptions::default(), &mut |_| ()) {
        Ok(plan) if plan.report().losses.is_empty() => plan,
        // As the command does: nothing is written, and so nothing lost.
        Ok(plan) => {
            line.refused += 1;
            println!("refused: {:?}", plan.report().losses.first());
            return Vec::new();
        }
        Err(error) => return vec![format!("no repair: {error}")],
    };
    let report = match plan.commit() {
        Ok(report) => report,
        Err(error) => return vec![format!("no repair: {error}")],
    };
    line.time += start.elapsed();
    let mut problems: Vec<String> = report.left.iter().map(|fault| format!("left: {fault}")).collect();
    let again = check(&*shared, &CheckOptions::default(), &mut |_| ());
    let is_clean = again.as_ref().is_ok_and(|report| report.is_clean() && report.complete);
    if !is_clean && problems.is_empty() {
        problems.push(format!("not clean: {again:?}"));
    }
    let mut clean = is_clean;
    if let Some(image) = image {
        save(&device, image);
        let found = fsck_f2fs(image).unwrap();
        if !found.is_clean() {
            clean = false;
            problems.push(format!("{found}"));
        }
    }
    line.clean += u64::from(clean);
    let after = Reading::of_mount(shared, Some(&sound.reading));
    line.after += Count::of(&sound.reading, &after).whole;
    problems.extend(losses(&sound.reading, before, &after));
    if !problems.is_empty() {
        problems.extend(report.repairs.iter().take(8).map(|repair| format!("repair: {repair}")));
    }
    problems
}

/// The same with `fsck.f2fs`; what it keeps is read as what Basalt's repair keeps.
fn repair_with_other(line: &mut Line, damaged: &MemoryDevice, sound: &Sound, before: &[&Reading], image: &Path) {
    save(damaged, image);
    let start = Instant::now();
    // Whatever it says, and if it crashes: what is there afterwards counts.
    let limit = OTHER_SECONDS.to_string();
    let _ = run("timeout", [limit.as_ref(), "fsck.f2fs".as_ref(), "-f".as_ref(), image.as_os_str()]);
    line.time_other += start.elapsed();
    // It may leave sizes of terabytes, which it then reads block by block.
    line.clean_other += u64::from(fsck_f2fs_within(image, OTHER_SECONDS).is_ok_and(|report| report.is_clean()));
    let path: PathBuf = image.to_owned();
    let Ok(device) = FileDevice::open(&path, &basalt_device::OpenOptions::default()) else { return };
    let after = Reading::of_mount(Arc::new(device), Some(&sound.reading));
    line.after_other += Count::of(&sound.reading, &after).whole;
    line.losing_other += u64::from(!losses(&sound.reading, before, &after).is_empty());
}

/// Writes a device to an image file, holes left out.
fn save(device: &MemoryDevice, path: &Path) {
    let mut file = File::create(path).unwrap();
    file.set_len(device.size()).unwrap();
    let mut buffer = vec![0; 64 << 10];
    for offset in (0..device.size()).step_by(buffer.len()) {
        device.read_at(offset, &mut buffer).unwrap();
        if buffer.iter().any(|&byte| byte != 0) {
            file.seek(SeekFrom::Start(offset)).unwrap();
            file.write_all(&buffer).unwrap();
        }
    }
}

impl fmt::Display for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.wipe { "one structure wiped" } else { "five places damaged" };
        writeln!(f, "{kind}, seeds from {} on, {:.0} s", self.seed, self.total.as_secs_f64())?;
        writeln!(
            f,
            "| structure | volumes | whole: mounted | rescued | after repair | after fsck.f2fs | clean | by fsck.f2fs | refused | losing | by fsck.f2fs | ms | ms fsck.f2fs |"
        )?;
        let mut sum = Line::default();
        for (structure, line) in &self.lines {
            let name = structure.map_or("any".to_owned(), |structure| format!("{structure:?}"));
            row(f, &name, line)?;
            sum.add(line);
        }
        row(f, "all", &sum)
    }
}

impl Line {
    fn add(&mut self, other: &Line) {
        self.volumes += other.volumes;
        self.clean += other.clean;
        self.refused += other.refused;
        self.mounted_before += other.mounted_before;
        self.rescued_before += other.rescued_before;
        self.after += other.after;
        self.after_other += other.after_other;
        self.clean_other += other.clean_other;
        self.losing += other.losing;
        self.losing_other += other.losing_other;
        self.time += other.time;
        self.time_other += other.time_other;
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, line: &Line) -> fmt::Result {
    let each = |time: Duration| time.as_secs_f64() * 1000.0 / line.volumes.max(1) as f64;
    writeln!(
        f,
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.0} | {:.0} |",
        line.volumes,
        line.mounted_before,
        line.rescued_before,
        line.after,
        line.after_other,
        line.clean,
        line.clean_other,
        line.refused,
        line.losing,
        line.losing_other,
        each(line.time),
        each(line.time_other)
    )
}
