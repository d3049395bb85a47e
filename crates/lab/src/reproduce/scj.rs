//! The machine of the SCJ paper (section VI.A): its volume, its workloads, and the ways of committing cleaning that it compares.
//!
//! A volume of 16 GiB at 80 % on a Samsung 970 class SSD, an eighth of that unless full size is asked for; the thresholds of the
//! adaptive checkpoint shrink with it, the journal area does not. Time is the device's, whose requests come one after the other:
//! processors and memory take none of it. Of the machine's 8 GB of memory a quarter holds pages of files, and a quarter nodes and what is
//! to be written: shares of the volume, as the rest. Checkpoints by age come after 60 s, as in the paper's F2FS.

mod watch;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use basalt_flash::device::preset;
use basalt_vfs::{CleaningWork, Counters};
use basalt_workloads::{LatencySummary, Limit, PageCacheSettings, Settings, by_name};

use super::{Baseline, Say, Scale, Tolerance};
use crate::engine::{EngineRun, EngineSettings, run_watched};
use crate::size;
use watch::Watched;

/// Size of the paper's file system in bytes, and what it is divided by unless asked otherwise, and for a first look.
const SIZE: u64 = 16 << 30;
const DIVISOR: u64 = 8;
const SMALL_DIVISOR: u64 = 32;
/// Utilization of the paper's runs, in percent, unless it is what varies.
pub(super) const UTILIZATION: u32 = 80;
/// Bytes that the application writes before and while it is measured, as shares of the volume in sixteenths.
const AGEING: u64 = 6;
const MEASURED: u64 = 6;
/// Size of the volume over that of the page cache, and over that of the engine's cache.
const MEMORY_SHARE: u64 = 8;
/// Checkpoints by age in the paper's F2FS (section II.C).
const INTERVAL: Duration = Duration::from_secs(60);
/// The threshold that the paper found best, in bytes at its size, and its journal area.
pub(super) const THRESHOLD: u64 = 128 << 20;
pub(super) const JOURNAL: u64 = 256 << 10;
const MICROSECOND: f64 = 1e-6;

/// The workloads of the paper's table 1 with its data sets, as far as the utilization leaves room for what they grow by.
pub(super) const LOADS: [(&str, &str); 4] =
    [("fileserver", "fileserver"), ("varmail", "varmail"), ("tpcc", "tpcc:set=48%"), ("ycsb-a", "ycsb-a")];
/// The workload of figures 4 to 7 and 10.
pub(super) const FILESERVER: &str = LOADS[0].1;
/// The checkpoint's share of the baseline's time of cleaning, in the order of the workloads (section III), and how far a share may be
/// off: two systems with other code differ by this much and still tell the same.
pub(super) const SHARES: [f64; 4] = [0.52, 0.44, 0.57, 0.56];
pub(super) const SHARE_TOLERANCE: Tolerance = Tolerance::OfValue(0.35);
/// How far a gain may be off that the paper states or that follows from what it states.
pub(super) const GAIN_TOLERANCE: Tolerance = Tolerance::OfGain(0.2);

/// By what cleaning is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Commit {
    /// A checkpoint.
    Checkpoint,
    /// The journal, and a checkpoint once this many bytes, at the paper's size, are pre-invalid.
    Threshold(u64),
    /// The journal, and a checkpoint when the engine's own rule finds it cheaper.
    Rule,
}

/// How cleaning is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Way {
    /// By what.
    pub commit: Commit,
    /// Whether victims share a commit, as many as the engine's pace allows; else one is emptied at a time, as in the paper.
    pub shared: bool,
}

/// The paper's baseline, F2FS in LFS mode: a checkpoint behind each victim.
pub(super) const BASELINE: Way = Way { commit: Commit::Checkpoint, shared: false };
/// Basalt without a journal: a checkpoint that many victims share.
pub(super) const SHARED: Way = Way { commit: Commit::Checkpoint, shared: true };
/// The paper's own way: a journal block behind each victim, and its best threshold.
pub(super) const PAPER: Way = Way { commit: Commit::Threshold(THRESHOLD), shared: false };
/// Basalt with a journal.
pub(super) const OURS: Way = Way { commit: Commit::Rule, shared: true };
/// The journalled ways that are held against the baseline, as rows name them.
pub(super) const JOURNALED: [(&str, Way); 2] = [("journal as in the paper", PAPER), ("journal as Basalt's", OURS)];

/// Whether a run is the paper's subject on its own terms: its scheme at its size. On a smaller volume the threshold shrinks and victims
/// do not, so fewer of them share a checkpoint.
pub(super) fn on_paper_terms(way: Way, scale: &Scale) -> bool {
    scale.full && way == PAPER
}

/// The size of the volume in bytes.
pub(super) fn volume_bytes(scale: &Scale) -> u64 {
    match (scale.full, scale.small) {
        (true, _) => SIZE,
        (false, true) => SIZE / SMALL_DIVISOR,
        (false, false) => SIZE / DIVISOR,
    }
}

/// One run: what runs on which volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Setup {
    /// The workload's specification.
    pub workload: String,
    /// How full the volume is, in percent.
    pub utilization: u32,
    /// How cleaning is committed.
    pub way: Way,
    /// Bytes of the journal area.
    pub journal_bytes: u64,
    /// fsync after that many writes where the workload leaves it open.
    pub sync_every: Option<u64>,
}

impl Setup {
    /// A workload at the usual utilization with the usual journal area.
    pub(super) fn new(workload: &str, way: Way) -> Setup {
        Setup { workload: workload.to_owned(), utilization: UTILIZATION, way, journal_bytes: JOURNAL, sync_every: None }
    }

    fn label(&self) -> String {
        let journal = size::human(self.journal_bytes);
        let commit = match self.way.commit {
            Commit::Checkpoint => "checkpoints".to_owned(),
            Commit::Threshold(bytes) => format!("a journal of {journal}, at most {} pre-invalid", mebibytes(bytes)),
            Commit::Rule => format!("a journal of {journal}, own rule"),
        };
        let shared = if self.way.shared { "victims together" } else { "each victim" };
        format!("{}, {} % in use: {shared} by {commit}", self.workload, self.utilization)
    }
}

/// A threshold as the paper writes it.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// One commit of cleaning in the foreground.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cleaning {
    /// Victims that it freed.
    pub victims: u64,
    /// Device time of choosing and copying them and of the commit.
    pub took: Duration,
    /// Of that, of the commit.
    pub commit: Duration,
    /// Blocks of nodes and other metadata written in the operation that had to clean: those of the commit.
    pub metadata: u64,
}

impl Cleaning {
    /// Device time for each victim.
    pub(super) fn each(&self) -> Duration {
        self.took / u32::try_from(self.victims.max(1)).unwrap_or(u32::MAX)
    }
}

/// What is kept of a run: the measured phase.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Device time of the phase.
    pub elapsed: Duration,
    /// Bytes that the application wrote.
    pub application_bytes: u64,
    /// Bytes that the device was given.
    pub device_bytes: u64,
    /// Requests to read that the device was given, of cleaning too.
    pub device_reads: u64,
    /// What the application asked for, as one number.
    pub operations: u64,
    /// What the engine did.
    pub engine: Counters,
    /// Each commit of cleaning.
    pub cleanings: Vec<Cleaning>,
    /// Device time of those commits that were checkpoints.
    pub checkpointing: Duration,
    /// Accesses of a database's connections that read, and those that commit an update.
    pub reads: LatencySummary,
    pub updates: LatencySummary,
}

impl Measured {
    fn new(run: &EngineRun, watched: Watched) -> Measured {
        Measured {
            elapsed: Duration::from_nanos(run.workload.measure.elapsed_ns),
            application_bytes: run.workload.measure.written_bytes,
            device_bytes: run.device.write.bytes,
            device_reads: run.device.read.requests,
            operations: run.workload.measure.operation_hash,
            engine: run.engine.clone(),
            cleanings: watched.cleanings,
            checkpointing: watched.checkpointing,
            reads: watched.reads.summary(),
            updates: watched.updates.summary(),
        }
    }

    /// How many times as fast as another run of the same operations.
    pub(super) fn speedup(&self, other: &Measured) -> f64 {
        debug_assert_eq!(self.operations, other.operations, "runs of different operations");
        ratio(other.elapsed.as_secs_f64(), self.elapsed.as_secs_f64())
    }

    /// How many times as fast another run would be if its cleaning in the foreground took as long as here, and all else as long as it
    /// does there.
    pub(super) fn speedup_by_cleaning(&self, other: &Measured) -> f64 {
        let spent = other.elapsed.saturating_sub(other.cleaning_time()) + self.cleaning_time();
        ratio(other.elapsed.as_secs_f64(), spent.as_secs_f64())
    }

    /// Device time of cleaning in the foreground: select, copy and commit.
    pub(super) fn cleaning_time(&self) -> Duration {
        let work = self.cleaning();
        work.select + work.copy + work.commit
    }

    /// Cleaning in the foreground.
    pub(super) fn cleaning(&self) -> CleaningWork {
        self.engine.cleaning.foreground
    }

    /// Checkpoints of all causes.
    pub(super) fn checkpoints(&self) -> u64 {
        self.engine.named.sum("checkpoints").unwrap_or(0)
    }

    /// Device time of cleaning for each victim: select, copy and commit; nothing where nothing was cleaned.
    pub(super) fn latency(&self) -> Duration {
        let work = self.cleaning();
        self.cleaning_time() / u32::try_from(work.victims.max(1)).unwrap_or(u32::MAX)
    }

    /// The commits' share of the time of foreground cleaning; not a number where nothing was cleaned.
    pub(super) fn commit_share(&self) -> f64 {
        let work = self.cleaning();
        work.commit.as_secs_f64() / self.cleaning_time().as_secs_f64()
    }

    /// What the paper gives of the baseline of one of its workloads, if this is it: what a ratio to this run rests on.
    pub(super) fn as_baseline(&self, load: usize) -> Option<Baseline> {
        let what = "the checkpoint's share of the baseline's cleaning";
        let ours = self.commit_share();
        let baseline = Baseline { what, paper: *SHARES.get(load)?, ours, tolerance: SHARE_TOLERANCE };
        ours.is_finite().then_some(baseline)
    }

    /// The device time of cleaning for each victim in words, by phase.
    pub(super) fn phases(&self) -> String {
        let work = self.cleaning();
        let each = |time: Duration| time.as_secs_f64() * 1e3 / work.victims.max(1) as f64;
        let nodes = (work.blocks_copied - work.data_blocks_copied) as f64 / work.victims.max(1) as f64;
        format!("copy {:.2}, commit {:.2} ({nodes:.0} nodes copied)", each(work.copy), each(work.commit))
    }

    /// Microseconds for each block of data that the application wrote: the paper's overhead.
    pub(super) fn overhead(&self, time: Duration) -> f64 {
        ratio(time.as_secs_f64() / MICROSECOND, self.engine.new_data_blocks() as f64)
    }

    /// Node, journal and other metadata blocks for each block of data that the application wrote.
    pub(super) fn metadata(&self) -> f64 {
        let written = self.engine.written;
        let metadata = written.node_blocks + written.metadata_blocks + written.journal_blocks;
        ratio(metadata as f64, self.engine.new_data_blocks() as f64)
    }

    /// Bytes to the device for each byte of the application.
    pub(super) fn amplification(&self) -> f64 {
        ratio(self.device_bytes as f64, self.application_bytes as f64)
    }

    /// What was done, in the words of the tables.
    pub(super) fn account(&self) -> String {
        let work = self.cleaning();
        format!(
            "{} victims, {} blocks copied ({} pre-invalid), {} journal commits, {} checkpoints",
            work.victims,
            work.blocks_copied,
            work.pre_invalid_copied,
            work.journal_commits,
            self.checkpoints()
        )
    }
}

/// A share; not a number of nothing.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { f64::NAN }
}

/// Runs that figures have in common: each is made once.
#[derive(Debug, Default)]
pub struct Runs {
    /// By setup, size of the volume in bytes, and seed.
    done: HashMap<(Setup, u64, u64), Result<Rc<Measured>, String>>,
}

impl Runs {
    /// The result of a run, made now or before.
    pub(super) fn get(&mut self, scale: &Scale, setup: &Setup, say: Say<'_>) -> Result<Rc<Measured>, String> {
        let size = volume_bytes(scale);
        let run = self.done.entry((setup.clone(), size, scale.seed)).or_insert_with(|| {
            say(&setup.label());
            measure(setup, size, scale.seed).map(Rc::new)
        });
        run.clone().map_err(|error| format!("{}: {error}", setup.label()))
    }
}

/// Runs a setup on a volume of this size.
fn measure(setup: &Setup, size_bytes: u64, seed: u64) -> Result<Measured, String> {
    let workload = Settings {
        size_bytes,
        utilization_percent: setup.utilization,
        seed,
        age: Some(Limit::Bytes(size_bytes / 16 * AGEING)),
        measure: Some(Limit::Bytes(size_bytes / 16 * MEASURED)),
        sync_every: setup.sync_every,
        ..Settings::default()
    };
    let device = preset("nvme").map_err(|error| error.to_string())?;
    let mut settings = EngineSettings::new(device, workload);
    settings.page_cache = Some(PageCacheSettings::new(size_bytes / MEMORY_SHARE));
    let options = &mut settings.options;
    options.cache_bytes = usize::try_from(size_bytes / MEMORY_SHARE).unwrap_or(usize::MAX);
    (options.checkpoint_interval, options.commit_interval) = (INTERVAL, INTERVAL);
    options.journal = setup.way.commit != Commit::Checkpoint;
    options.sections_per_commit = (!setup.way.shared).then_some(1);
    if let Commit::Threshold(bytes) = setup.way.commit {
        options.pre_invalid_bytes = Some(bytes / (SIZE / size_bytes).max(1));
    }
    // The same volume for all: what the journal takes is taken from the baseline too.
    settings.journal_bytes = setup.journal_bytes;
    let mut workload = by_name(&setup.workload, &settings.workload).map_err(|error| error.to_string())?;
    let mut watched = Watched::new();
    let run = run_watched(workload.as_mut(), &settings, &mut watched).map_err(|error| error.to_string())?;
    Ok(Measured::new(&run, watched))
}

#[cfg(test)]
impl Measured {
    /// A run that took so long, wrote so much metadata for each block of data, and had so many checkpoints.
    pub(super) fn example(milliseconds: u64, metadata: u64, checkpoints: u64) -> Measured {
        let mut engine = Counters::default();
        (engine.written.data_blocks, engine.written.metadata_blocks) = (1, metadata);
        engine.named.set("checkpoints/cleaning", checkpoints);
        Measured {
            elapsed: Duration::from_millis(milliseconds),
            application_bytes: 4096,
            device_bytes: 4096 * (1 + metadata),
            device_reads: 0,
            operations: 0,
            engine,
            cleanings: Vec::new(),
            checkpointing: Duration::ZERO,
            reads: LatencySummary::default(),
            updates: LatencySummary::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_run() {
        let (fast, slow) = (Measured::example(10, 1, 2), Measured::example(15, 3, 9));
        assert_eq!(fast.speedup(&slow), 1.5);
        assert_eq!((slow.metadata(), slow.amplification(), slow.checkpoints()), (3.0, 4.0, 9));
        assert!(ratio(1.0, 0.0).is_nan());
        let (mut fast, mut slow) = (fast, slow);
        fast.engine.cleaning.foreground.copy = Duration::from_millis(1);
        slow.engine.cleaning.foreground.commit = Duration::from_millis(4);
        // 15 ms, of which 4 become 1; the other 2 that are gone are not cleaning's.
        assert_eq!(fast.speedup_by_cleaning(&slow), 15.0 / 12.0);
    }

    /// The ways of committing do the same work of the application on the same volume, and are counted apart.
    #[test]
    fn a_small_volume_is_measured() {
        let size = 256 << 20;
        let get = |way| {
            let setup = Setup { utilization: 75, ..Setup::new("uniform", way) };
            measure(&setup, size, 1).unwrap_or_else(|error| panic!("{}: {error}", setup.label()))
        };
        let (each, shared) = (get(BASELINE), get(SHARED));
        assert_eq!(each.operations, shared.operations);
        assert!(each.cleaning().victims > 0 && each.updates.count > 0, "{each:?}");
        assert!(shared.speedup(&each) > 1.0 && shared.checkpoints() < each.checkpoints(), "{shared:?}");
        assert_eq!((each.cleaning().journal_commits, each.engine.written.journal_blocks), (0, 0));
        let victims: u64 = each.cleanings.iter().map(|cleaning| cleaning.victims).sum();
        assert!(victims > 0 && victims <= each.cleaning().victims, "{victims} of {:?}", each.cleaning());
        let journal = get(PAPER);
        assert_eq!(journal.operations, each.operations);
    }

    #[test]
    fn runs_are_made_once_and_failures_are_kept() {
        let scale = Scale { full: false, small: false, seed: 1 };
        let setup = Setup::new("no such workload", OURS);
        let (mut runs, mut said) = (Runs::default(), 0);
        for _ in 0..2 {
            let error = runs.get(&scale, &setup, &mut |_| said += 1).unwrap_err();
            assert!(error.contains("no such workload") && error.contains("own rule"), "{error}");
        }
        assert_eq!(said, 1);
    }
}
