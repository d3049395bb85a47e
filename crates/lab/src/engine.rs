//! A workload on the F2FS engine on a simulated device, in virtual time.
//!
//! [`run`] formats a volume in memory, lets the workload prepare, age and be measured on it, and reports the measured phase alone:
//! what the application asked for, what the engine did, what the device and its translation layers did. The engine is the one that
//! mounts volumes; it runs on one thread, its clock is the device's, and [`FileSystem::tick`] is called when that clock says so.
//! Only requests to the device take time, and processors if the settings say so; neither memory does, nor a page cache. Whatever the
//! engine learns to do otherwise is a field of its [`OpenOptions`], and so of [`EngineSettings`].
//!
//! Nothing here looks at what files hold: neither the engine nor device models nor translation layers. So files hold one byte throughout
//! unless the run verifies them or its settings say otherwise ([`Contents`]), and the device keeps blocks of one byte as a byte.
//!
//! **Threads.** With [`EngineSettings::overlap`] each logical thread of the workload has a time of its own. The next operation is that of the
//! thread whose time is the least; the engine carries it out as a whole, and the thread's time is the end of its last request then. What is
//! simulated of the threads' effect on each other:
//!
//! - Requests wait for each other at the device, which serves [`EngineSettings::queue_depth`] of them at a time, and flushes are shared
//!   ([`Queue`](basalt_flash::device::Queue)).
//! - An operation in which the engine took a checkpoint or cleaned in the foreground holds the modifying operations of all other threads
//!   until it ends; one that began before it is not held. A checkpoint in the background holds them too.
//! - Nothing else waits for a lock. What an operation changed is seen by those that come later in this order, even if by its own
//!   time it is not over yet.
//! - The engine's clock never goes back: it is the latest of all times so far. Durations that the engine measures by it
//!   ([`CleaningWork::copy`](basalt_vfs::CleaningWork) and others) are too short then.
//!
//! The same settings give the same [`EngineRun`], byte for byte, on any machine.

mod time;

use std::sync::Arc;
use std::time::Duration;

use basalt_device::{BlockDevice, CompactDevice, RequestKind, StopwatchDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::BLOCK_SIZE;
use basalt_f2fs::{Clock, F2fs, Learner, OpenOptions};
use basalt_flash::device::{
    CopyCost, DeviceModel, DeviceStatistics, LayerReport, Meter, ModelError, TimedDevice, VirtualClock,
};
use basalt_flash::ftl::{FtlStatistics, GeometryError, TranslationKind};
use basalt_segments::BLOCKS_PER_SEGMENT;
use basalt_segments::slack::{DeviceTimes, FlashPage};
use basalt_vfs::{Counters, Engine, FileSystem};
use basalt_workloads::{
    Contents, Event, PageCache, PageCacheSettings, PageCacheStatistics, Runner, Settings, VfsFiles, Workload,
    WorkloadReport,
};

use time::{EngineClock, Ticker};

/// The volume's UUID: any, but always the same.
const UUID: [u8; 16] = *b"Basalt's lab run";
const SECTOR: u32 = 4096;

/// What runs on what.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// The device. What it holds is kept in memory: metadata as it is, of files only a few bytes for each block.
    pub device: Arc<DeviceModel>,
    /// Size of the volume, utilization, seed, lengths of the phases.
    pub workload: Settings,
    /// Segments of 2 MiB in a section.
    pub segments_per_section: u32,
    /// Share kept back for cleaning, in percent; `None` as mkfs chooses it.
    pub overprovision_percent: Option<f64>,
    /// Bytes of the volume's cleaning journal; 0 leaves it out.
    pub journal_bytes: u64,
    /// The page cache between the workload and the engine; `None`: every read and write is the engine's.
    pub page_cache: Option<PageCacheSettings>,
    /// How the volume is opened.
    pub options: OpenOptions,
    /// Whether the engine learns how long the device takes from its requests, as a mount does with `profile=auto`. It begins with the times of the
    /// options.
    pub learns_times: bool,
    /// Time that passes after each operation before the application asks for the next one.
    pub think: Duration,
    /// Translation layers that listen to the requests. They change the device's times only as `layer_time` says.
    pub layers: Vec<TranslationKind>,
    /// Share of the flash that was written once, in order, before the volume is made, in percent. What is written then is neither
    /// counted nor timed. Above 0, the volume is made without a discard, which would undo it.
    pub layers_filled_percent: u8,
    /// Whether what the layer copies and erases for a request takes device time, as part of that request ([`CopyCost`]). There must
    /// be exactly one layer then.
    pub layer_time: bool,
    /// Requests that the device serves at a time, as [`Queue`](basalt_flash::device::Queue) says. The engine waits for each of its
    /// requests, so that one thread has only one under way.
    pub queue_depth: u32,
    /// Whether the logical threads of the workload overlap in time while it ages and is measured, instead of doing one operation after the
    /// other. The [module](self) says what is simulated of that.
    pub overlap: bool,
    /// Nanoseconds of processor time for each block of 4 KiB that the engine reads from the device or writes to it, before that request.
    pub processor_ns: u64,
}

impl EngineSettings {
    /// A workload on a device, everything else as a mount has it.
    #[must_use]
    pub fn new(device: DeviceModel, workload: Settings) -> EngineSettings {
        let device = Arc::new(device);
        let options =
            OpenOptions { times: run_times(&device), flash_page: flash_page(&device), ..OpenOptions::default() };
        EngineSettings {
            device,
            workload,
            segments_per_section: 1,
            overprovision_percent: None,
            journal_bytes: FormatOptions::default().journal_bytes,
            page_cache: None,
            options,
            learns_times: false,
            think: Duration::ZERO,
            layers: Vec::new(),
            layers_filled_percent: 100,
            layer_time: false,
            queue_depth: 1,
            overlap: false,
            processor_ns: 0,
        }
    }
}

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The volume cannot be made, opened or closed so.
    #[error("the volume: {0}")]
    Volume(#[from] basalt_f2fs::Error),
    /// The workload cannot be had, does not fit, or failed.
    #[error("{0}")]
    Workload(#[from] basalt_workloads::Error),
    /// The device is not known, or its file is wrong.
    #[error("{0}")]
    Device(#[from] ModelError),
    /// The flash of the device cannot be simulated.
    #[error("the flash: {0}")]
    Flash(#[from] GeometryError),
    /// The work of translation layers can take time only where there is one.
    #[error("the translation layer's work can take time with exactly one layer, not {0}")]
    LayerTime(usize),
}

/// A translation layer in the measured phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerRun {
    /// Which.
    pub kind: TranslationKind,
    /// What it did in the measured phase.
    pub statistics: FtlStatistics,
    /// What it was like in the end, earlier phases included: its flash and the wear of it.
    pub end: LayerReport,
}

/// The measured phase of a run.
#[derive(Debug, Clone)]
pub struct EngineRun {
    /// What the application did, and how long it took.
    pub workload: WorkloadReport,
    /// What the engine did.
    pub engine: Counters,
    /// What the device did.
    pub device: DeviceStatistics,
    /// What the page cache did, if there was one.
    pub page_cache: Option<PageCacheStatistics>,
    /// What each listening translation layer did, in the order of the settings.
    pub layers: Vec<LayerRun>,
    /// [`read_weight`] of the device.
    pub read_weight: f64,
    /// How long the device takes, as the engine has learned it.
    pub learned_times: Option<DeviceTimes>,
}

impl EngineRun {
    /// Bytes written to the device for each byte that the application wrote; `None` if it wrote none.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.device.write.bytes, self.workload.measure.written_bytes)
    }

    /// Blocks that the engine wrote for reasons other than cleaning.
    #[must_use]
    pub fn new_blocks(&self) -> u64 {
        let written = self.engine.written;
        let all = written.data_blocks + written.node_blocks + written.metadata_blocks;
        all.saturating_sub(self.engine.cleaning.total().blocks_copied)
    }

    /// Write cost as the SFS paper has it (section 4.1): device time of new writes, cleaning reads and cleaning writes over that of
    /// new writes, where writes cost what sequential ones do, and reads what random ones of 4 KiB do. New writes are nodes and
    /// metadata too; cleaning reads are those that happened, dead blocks between live ones included.
    #[must_use]
    pub fn write_cost(&self) -> Option<f64> {
        let cleaning = self.engine.cleaning.total();
        let new = self.new_blocks();
        let moved = ratio(cleaning.blocks_copied, new)?;
        let read = ratio(cleaning.blocks_read, new)?;
        Some(1.0 + moved + read * self.read_weight)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Sees the measured phase of a run as it goes.
pub trait Watch {
    /// Behind each operation: what it was, and what the engine has done since the volume was opened.
    fn operation(&mut self, event: &Event, counters: &Counters);

    /// Behind each step of the workload: the virtual time in nanoseconds.
    fn step(&mut self, now: u64);
}

/// Runs a workload. The volume is in memory while it does, in some hundredths of its size; with random contents, all of it.
///
/// # Errors
/// When the volume cannot be made so, or the workload does not fit or fails.
pub fn run(workload: &mut dyn Workload, settings: &EngineSettings) -> Result<EngineRun, EngineError> {
    run_with(workload, settings, None)
}

/// As [`run`], while somebody watches the measured phase.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    workload: &mut dyn Workload,
    settings: &EngineSettings,
    watch: &mut dyn Watch,
) -> Result<EngineRun, EngineError> {
    run_with(workload, settings, Some(watch))
}

fn run_with(
    workload: &mut dyn Workload,
    settings: &EngineSettings,
    watch: Option<&mut dyn Watch>,
) -> Result<EngineRun, EngineError> {
    let clock = EngineClock::new(VirtualClock::new());
    let device = Arc::new(make_device(settings, &clock)?);
    make_volume(&*device, settings, &clock)?;
    let mut shared: Arc<dyn BlockDevice> = Arc::<TimedDevice<CompactDevice>>::clone(&device);
    let learner = settings.learns_times.then(|| {
        let time = clock.time().clone();
        Arc::new(Learner::new(settings.options.times.clone(), move || time.now()))
    });
    if let Some(learner) = &learner {
        shared = Arc::new(StopwatchDevice::new(shared, learner.clone()));
    }
    let options = OpenOptions { learner: learner.clone(), ..settings.options.clone() };
    let engine = F2fs::open(shared, options, Arc::new(clock.clone()))?;
    let run = measure(workload, settings, &engine, &device, clock, watch);
    let closed = engine.close().map_err(|error| EngineError::Volume(error.into()));
    // Where both fail, the run's error is the cause.
    let learned_times = learner.and_then(|learner| learner.times());
    run.and_then(|run| closed.map(|()| EngineRun { learned_times, ..run }))
}

fn make_device(settings: &EngineSettings, clock: &EngineClock) -> Result<TimedDevice<CompactDevice>, EngineError> {
    if settings.layer_time && settings.layers.len() != 1 {
        return Err(EngineError::LayerTime(settings.layers.len()));
    }
    let memory = CompactDevice::new(settings.workload.size_bytes, SECTOR);
    let mut device = TimedDevice::new(memory, Arc::clone(&settings.device), clock.time().clone());
    device = device.with_processor(settings.processor_ns);
    if settings.queue_depth > 1 || settings.overlap {
        device = device.with_queue(settings.queue_depth);
    }
    for kind in &settings.layers {
        let geometry = settings.device.geometry(settings.workload.size_bytes)?;
        let mut layer = kind.build(geometry)?;
        layer.fill(f64::from(settings.layers_filled_percent) / 100.0);
        device = device.with_layer(layer);
        if settings.layer_time {
            device = device.with_layer_time(CopyCost::new(&settings.device, &geometry));
        }
    }
    Ok(device)
}

fn make_volume(device: &dyn BlockDevice, settings: &EngineSettings, clock: &EngineClock) -> Result<(), EngineError> {
    let options = FormatOptions {
        segments_per_section: settings.segments_per_section,
        overprovision_percent: settings.overprovision_percent,
        journal_bytes: settings.journal_bytes,
        uuid: Some(UUID),
        discard: settings.layers.is_empty() || settings.layers_filled_percent == 0,
        discard_reads_zeros: true,
        time: clock.now(),
        ..FormatOptions::default()
    };
    format(device, &options, &mut |_, _| {})?;
    Ok(())
}

/// What files are filled with: what takes the least memory, unless somebody looks at it.
fn contents(settings: &Settings) -> Option<Contents> {
    settings.contents.or_else(|| (!settings.verify).then_some(Contents::Plain))
}

/// All phases, with the counters of the last one alone.
fn measure(
    workload: &mut dyn Workload,
    settings: &EngineSettings,
    engine: &dyn Engine,
    device: &TimedDevice<CompactDevice>,
    clock: EngineClock,
    watch: Option<&mut dyn Watch>,
) -> Result<EngineRun, EngineError> {
    let name = workload.name();
    let think_ns = u64::try_from(settings.think.as_nanos()).unwrap_or(u64::MAX);
    let mut files = match settings.page_cache {
        Some(cache) => {
            let clock = clock.clone();
            VfsFiles::with_page_cache(engine, PageCache::new(cache, move || clock.latest()))
        }
        None => VfsFiles::new(engine),
    };
    let mut ticker = Ticker::new(engine, clock, think_ns, settings.overlap, watch);
    let filled = Settings { contents: contents(&settings.workload), ..settings.workload.clone() };
    let mut runner = Runner::new(workload, &filled, &mut files, &mut ticker).overlap(settings.overlap);
    let mut before = vec![runner.prepare()?, runner.fill()?];
    before.extend(runner.age()?);
    let (engine_before, device_before, layers_before) = (engine.counters(), device.statistics(), device.layers());
    let cache_before = runner.page_cache_statistics().unwrap_or_default();
    let measure = runner.measure()?;
    let page_cache = runner.page_cache_statistics().map(|now| now.since(&cache_before));
    let engine = engine.counters().since(&engine_before);
    let statistics = device.statistics().since(&device_before);
    let layers = device.layers().into_iter().zip(layers_before);
    let layers = layers.map(|(end, before)| LayerRun {
        kind: end.kind,
        statistics: end.statistics.since(&before.statistics),
        end,
    });
    let layers = layers.collect();
    let verified_bytes = if settings.workload.verify { runner.verify()? } else { 0 };
    let workload = WorkloadReport {
        workload: name,
        settings: settings.workload.clone(),
        dummy_bytes: runner.dummy_bytes(),
        utilization_percent: runner.utilization_percent(),
        verified_bytes,
        measure,
        before,
    };
    Ok(EngineRun {
        workload,
        engine,
        device: statistics,
        page_cache,
        layers,
        read_weight: read_weight(&settings.device),
        learned_times: None,
    })
}

/// How long a block of 4 KiB read at random takes on a device compared with one of a long sequential write.
#[must_use]
pub fn read_weight(device: &Arc<DeviceModel>) -> f64 {
    let (random, sequential) = block_times(device);
    if sequential > 0.0 { random / sequential } else { 1.0 }
}

/// Nanoseconds that a block of 4 KiB read at random takes on a device, and one of a long sequential write.
#[must_use]
pub fn block_times(device: &Arc<DeviceModel>) -> (f64, f64) {
    const LONG: u64 = 1 << 20;
    let mut meter = Meter::new(Arc::clone(device));
    meter.request(RequestKind::Write, 0, LONG);
    let sequential = meter.request(RequestKind::Write, LONG, LONG) as f64 / (LONG / BLOCK_SIZE as u64) as f64;
    let random = meter.request(RequestKind::Read, LONG * 64, BLOCK_SIZE as u64) as f64;
    (random, sequential)
}

/// The flash page of a device, as far as slack can be aligned to it; a block where it has none.
#[must_use]
pub fn flash_page(device: &DeviceModel) -> FlashPage {
    device.flash.as_ref().and_then(|flash| FlashPage::of_bytes(flash.page_bytes)).unwrap_or_default()
}

/// How long a device takes for runs of blocks that have nothing to do with one another.
#[must_use]
pub fn run_times(device: &Arc<DeviceModel>) -> DeviceTimes {
    // A device that was asked for nothing yet continues nothing.
    let time = |kind, length| Meter::new(Arc::clone(device)).request(kind, 0, length);
    let lengths = (0..=BLOCKS_PER_SEGMENT.ilog2()).map(|power| 1 << power);
    let points = |kind| -> Vec<(u32, u64)> {
        lengths.clone().map(|blocks| (blocks, time(kind, u64::from(blocks) * BLOCK_SIZE as u64))).collect()
    };
    DeviceTimes::new(&points(RequestKind::Write), &points(RequestKind::Read), time(RequestKind::Flush, 0))
}
