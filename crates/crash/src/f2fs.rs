//! F2FS volumes under test: small ones, so that a cut costs little and cleaning is never far.

mod threaded;

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use basalt_device::{BlockDevice, FlashPages, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, Severity, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::geometry::Geometry;
use basalt_f2fs::journal::guard;
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::rescue::{RescueOptions, Rescued};
use basalt_f2fs::{Atime, Clock, Deltas, Error, F2fs, OpenOptions, Reclaim, SystemClock};
use basalt_segments::cleaning::KeepFree;
use basalt_segments::placement::Policy;
use basalt_segments::slack::{DeviceClass, FlashPage};
use basalt_testkit::images::{TOOLS, fsck_f2fs};
use basalt_testkit::skip::find_program;
use basalt_vfs::{FileSystem, Time};

use crate::engine::{Engine, Opener, StepClock};

/// A kind of F2FS volume, and how it is opened.
#[derive(Debug, Clone, Copy)]
pub struct F2fsVolume {
    name: &'static str,
    size_mib: u64,
    segments_per_section: u32,
    /// Where on its disk the volume begins, in bytes.
    disk_offset: u64,
    overprovision_percent: Option<f64>,
    features: Features,
    logs: u8,
    cache_bytes: usize,
    discard: bool,
    journal_bytes: u64,
    pre_invalid_bytes: Option<u64>,
    sections_per_commit: Option<u32>,
    commit_seconds: u64,
    /// By its name.
    placement: &'static str,
    /// Of cleaning while a writer waits; by its name.
    victim: &'static str,
    keep_free: KeepFree,
    delta: Deltas,
    reclaim: Reclaim,
    /// What the engine knows of the device's flash pages.
    flash_page: FlashPage,
}

const ROOMY: F2fsVolume = F2fsVolume {
    name: "roomy",
    size_mib: 80,
    segments_per_section: 1,
    disk_offset: 0,
    overprovision_percent: None,
    features: FormatOptions::DEFAULT_FEATURES,
    logs: 6,
    cache_bytes: 8 << 20,
    discard: true,
    journal_bytes: 0,
    pre_invalid_bytes: None,
    sections_per_commit: None,
    commit_seconds: 5,
    placement: "static",
    victim: "greedy",
    keep_free: KeepFree::Adaptive,
    delta: Deltas::Auto,
    reclaim: Reclaim::Clean,
    flash_page: FlashPage::BLOCK,
};

const TIGHT: F2fsVolume =
    F2fsVolume { name: "tight", size_mib: 56, overprovision_percent: Some(50.0), cache_bytes: 1 << 20, ..ROOMY };

const TIGHTEST: F2fsVolume =
    F2fsVolume { name: "tightest", size_mib: 52, overprovision_percent: Some(50.0), cache_bytes: 64 << 10, ..ROOMY };

// Room enough that a checkpoint is hardly ever due.
const WIDE_JOURNAL: F2fsVolume = F2fsVolume {
    name: "wide-journal",
    size_mib: 88,
    journal_bytes: 1 << 20,
    pre_invalid_bytes: Some(1 << 30),
    sections_per_commit: Some(1),
    ..TIGHT
};

const SECTIONS: F2fsVolume = F2fsVolume {
    name: "sections",
    size_mib: 104,
    segments_per_section: 2,
    // As the first partition of a disk usually does.
    disk_offset: 1 << 20,
    overprovision_percent: Some(50.0),
    cache_bytes: 1 << 20,
    ..ROOMY
};

/// A flash page of 16 KiB.
const PAGE: FlashPage = match FlashPage::of_bytes(16 << 10) {
    Some(page) => page,
    None => FlashPage::BLOCK,
};

/// The volumes there are. Tight ones leave the user a few segments: cleaning never stops there.
pub const VOLUMES: [F2fsVolume; 46] = [
    ROOMY,
    TIGHT,
    TIGHTEST,
    SECTIONS,
    F2fsVolume {
        name: "plain",
        size_mib: 64,
        features: Features::empty(),
        logs: 2,
        cache_bytes: 256 << 10,
        discard: false,
        ..ROOMY
    },
    F2fsVolume {
        name: "flexible",
        size_mib: 64,
        features: FormatOptions::DEFAULT_FEATURES.union(Features::FLEXIBLE_INLINE_XATTR),
        logs: 4,
        cache_bytes: 64 << 10,
        ..ROOMY
    },
    F2fsVolume { name: "roomy-journal", journal_bytes: 256 << 10, placement: "run-length", ..ROOMY },
    // A checkpoint only where nothing else helps, and a commit for each victim: the journal does as much as it can.
    F2fsVolume {
        name: "tight-journal",
        journal_bytes: 256 << 10,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..TIGHT
    },
    // Full after a few commits.
    F2fsVolume { name: "tight-small-journal", journal_bytes: 24 << 10, pre_invalid_bytes: Some(4 << 20), ..TIGHT },
    F2fsVolume { name: "tightest-journal", journal_bytes: 256 << 10, ..TIGHTEST },
    WIDE_JOURNAL,
    // As that, and nodes leave the small cache all the time: they make the chain longer without an fsync.
    F2fsVolume { name: "wide-eager-journal", cache_bytes: 64 << 10, ..WIDE_JOURNAL },
    // More segments than one SIT block has entries for, or a word has bits; overwriting comes round to all of them.
    F2fsVolume { name: "wide", size_mib: 168, overprovision_percent: Some(80.0), ..TIGHT },
    // Nodes leave the small cache all the time, and a commit frees each victim at once: what a seal lists is moved and reused soonest.
    F2fsVolume {
        name: "tightest-eager-journal",
        journal_bytes: 256 << 10,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..TIGHTEST
    },
    // Nothing is committed by its age: background cleaning is what ticks do.
    F2fsVolume { name: "lazy", commit_seconds: 1 << 20, ..TIGHT },
    F2fsVolume {
        name: "lazy-journal",
        commit_seconds: 1 << 20,
        journal_bytes: 256 << 10,
        pre_invalid_bytes: Some(1 << 30),
        ..TIGHT
    },
    F2fsVolume { name: "sections-journal", journal_bytes: 64 << 10, pre_invalid_bytes: Some(1 << 30), ..SECTIONS },
    // More logs than F2FS records.
    F2fsVolume { name: "groups", size_mib: 72, placement: "sepbit", ..TIGHT },
    F2fsVolume {
        name: "groups-journal",
        size_mib: 72,
        placement: "dac",
        journal_bytes: 256 << 10,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..TIGHT
    },
    // What is deleted and overwritten tells where the next block goes.
    F2fsVolume { name: "groups-hazard", size_mib: 72, placement: "hazard", victim: "hazard", ..TIGHT },
    F2fsVolume {
        name: "groups-hazard-journal",
        size_mib: 72,
        placement: "hazard",
        victim: "hazard",
        journal_bytes: 256 << 10,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..TIGHT
    },
    // As that, for what is overwritten. The cache has room for more dirty pages than the volume.
    F2fsVolume { name: "groups-auto", size_mib: 72, placement: "auto", victim: "auto", cache_bytes: 32 << 20, ..TIGHT },
    F2fsVolume {
        name: "groups-auto-journal",
        size_mib: 72,
        placement: "auto",
        victim: "auto",
        cache_bytes: 32 << 20,
        journal_bytes: 256 << 10,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..TIGHT
    },
    // Groups by hotness around centres, whose victims are weighed by what the placement has learned.
    F2fsVolume { name: "groups-sfs", size_mib: 72, placement: "sfs", victim: "cost-hotness", ..TIGHT },
    F2fsVolume {
        name: "groups-sfs-log-journal",
        size_mib: 72,
        placement: "sfs-log",
        victim: "cost-benefit",
        cache_bytes: 32 << 20,
        journal_bytes: 256 << 10,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..TIGHT
    },
    F2fsVolume {
        name: "groups-mdc-journal",
        size_mib: 72,
        placement: "mdc",
        victim: "declining-cost",
        journal_bytes: 256 << 10,
        ..TIGHT
    },
    F2fsVolume { name: "groups-sfs-sepbit", size_mib: 72, placement: "sfs-sepbit", victim: "cost-benefit", ..TIGHT },
    // By the length of a run.
    F2fsVolume { name: "run-length-journal", placement: "run-length", journal_bytes: 256 << 10, ..TIGHT },
    // What a page cache's lists say, with the logs that they need at least.
    F2fsVolume { name: "page-cache", logs: 4, placement: "page-cache", ..TIGHT },
    F2fsVolume { name: "page-cache-journal", placement: "page-cache", journal_bytes: 256 << 10, ..TIGHT },
    // An fsync writes no nodes, from the first one on, where it can do without.
    F2fsVolume { name: "roomy-delta-journal", journal_bytes: 256 << 10, delta: Deltas::On, ..ROOMY },
    F2fsVolume {
        name: "tight-delta-journal",
        journal_bytes: 256 << 10,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        delta: Deltas::On,
        ..TIGHT
    },
    F2fsVolume { name: "wide-delta-journal", delta: Deltas::On, placement: "run-length", ..WIDE_JOURNAL },
    // Nodes that deltas tell of leave the small cache all the time.
    F2fsVolume { name: "wide-eager-delta-journal", cache_bytes: 64 << 10, delta: Deltas::On, ..WIDE_JOURNAL },
    // Logs fill the dead blocks of segments in use.
    F2fsVolume { name: "tight-slack", reclaim: Reclaim::Slack, ..TIGHT },
    F2fsVolume { name: "tightest-slack-journal", journal_bytes: 256 << 10, reclaim: Reclaim::Slack, ..TIGHTEST },
    F2fsVolume { name: "wide-slack-journal", reclaim: Reclaim::Slack, ..WIDE_JOURNAL },
    F2fsVolume {
        name: "wide-eager-slack-journal",
        cache_bytes: 64 << 10,
        delta: Deltas::On,
        reclaim: Reclaim::Slack,
        ..WIDE_JOURNAL
    },
    F2fsVolume { name: "sections-slack", reclaim: Reclaim::Slack, ..SECTIONS },
    F2fsVolume { name: "tight-partial", reclaim: Reclaim::Partial, placement: "run-length", ..TIGHT },
    F2fsVolume { name: "tightest-partial-journal", journal_bytes: 256 << 10, reclaim: Reclaim::Partial, ..TIGHTEST },
    F2fsVolume { name: "wide-partial-journal", reclaim: Reclaim::Partial, ..WIDE_JOURNAL },
    F2fsVolume { name: "sections-partial-journal", journal_bytes: 256 << 10, reclaim: Reclaim::Partial, ..SECTIONS },
    // The power tears whole flash pages. The last one is as mounts of eMMC are.
    F2fsVolume { name: "tight-slack-pages", reclaim: Reclaim::Slack, flash_page: PAGE, ..TIGHT },
    F2fsVolume { name: "wide-slack-journal-pages", reclaim: Reclaim::Slack, flash_page: PAGE, ..WIDE_JOURNAL },
    F2fsVolume {
        name: "wide-partial-journal-pages",
        reclaim: Reclaim::Partial,
        flash_page: PAGE,
        placement: "run-length",
        ..WIDE_JOURNAL
    },
];

/// As [`VOLUMES`], with all kept free that the format reserves, so that cleaning begins earlier: for stories that were found where it did.
/// Their names end in `-reserve`.
static WITH_RESERVE: LazyLock<Vec<F2fsVolume>> = LazyLock::new(|| {
    let with_reserve = |volume: &F2fsVolume| F2fsVolume {
        name: Box::leak(format!("{}-reserve", volume.name).into_boxed_str()),
        keep_free: KeepFree::Reserve,
        ..*volume
    };
    VOLUMES.iter().map(with_reserve).collect()
});

/// The volume of this name, of [`VOLUMES`] or with `-reserve` behind.
pub fn volume(name: &str) -> Option<&'static F2fsVolume> {
    VOLUMES.iter().chain(WITH_RESERVE.iter()).find(|volume| volume.name == name)
}

impl F2fsVolume {
    /// Whether it is tight, and has a journal.
    pub fn is_journaled(&self) -> bool {
        self.journal_bytes > 0 && self.overprovision_percent.is_some()
    }

    /// Whether its logs fill slack.
    pub fn fills_slack(&self) -> bool {
        self.reclaim != Reclaim::Clean
    }

    /// Whether the engine is told what a flash page is.
    pub fn knows_pages(&self) -> bool {
        self.flash_page != FlashPage::BLOCK
    }

    /// Bytes that files can take, about; more for volumes that are not tight.
    pub fn user_bytes(&self) -> u64 {
        match self.size_mib {
            52 => 6 << 20,
            56 => 8 << 20,
            72 => 12 << 20,
            88 => 14 << 20,
            168 => 16 << 20,
            104 => 12 << 20,
            _ => 32 << 20,
        }
    }
}

impl F2fsVolume {
    fn placement(&self) -> &'static Policy {
        basalt_schemes::placement_by_name(self.placement).expect("placements of volumes have names")
    }

    fn open_volume(&self, device: Arc<dyn BlockDevice>, clock: Arc<StepClock>) -> Result<F2fs, String> {
        let options = OpenOptions {
            logs: self.logs,
            cache_bytes: self.cache_bytes,
            discard: self.discard,
            pre_invalid_bytes: self.pre_invalid_bytes,
            sections_per_commit: self.sections_per_commit,
            commit_interval: Duration::from_secs(self.commit_seconds),
            checkpoint_interval: Duration::from_secs(self.commit_seconds.max(60)),
            // Looking at what is left must not change it.
            atime: Atime::Noatime,
            placement: self.placement(),
            victim: basalt_schemes::victim_by_name(self.victim).expect("victim policies of volumes have names"),
            keep_free: self.keep_free,
            delta: self.delta,
            reclaim: self.reclaim,
            // A device on which islands are worth a copy.
            times: DeviceClass::Sd.device_times(),
            flash_page: self.flash_page,
            ..OpenOptions::default()
        };
        F2fs::open(device, options, clock).map_err(|error| format!("open: {error}"))
    }

    /// What a volume of this kind is formatted with.
    pub(crate) fn format_options(&self) -> FormatOptions {
        FormatOptions {
            segments_per_section: self.segments_per_section,
            disk_offset: self.disk_offset,
            overprovision_percent: self.overprovision_percent,
            features: self.features,
            uuid: Some([7; 16]),
            discard: self.discard,
            discard_reads_zeros: true,
            journal_bytes: self.journal_bytes,
            ..FormatOptions::default()
        }
    }
}

/// Whether a volume says no more in opening than that the power went, before something was written or in the middle of it; or that it has no
/// journal any more, which a tool took off it.
fn is_expected(warning: &str) -> bool {
    let is_torn = |place, whole| warning.starts_with(place) && warning.contains(whole);
    warning.starts_with("not unmounted cleanly")
        || warning.ends_with("fsynced after the last checkpoint recovered")
        // Written in place at the checkpoint that was cut.
        || warning.starts_with("summary of segment")
        || warning.starts_with("delta=on: no cleaning journal")
        || is_torn("checkpoint at pack", "the other pack")
        || is_torn("checkpoint at pack", "its other end is used")
        || is_torn("superblock at copy", "the second copy is used")
}

/// A copy of a volume with a live journal, recovered and closed.
fn recovered(device: &MemoryDevice) -> Result<MemoryDevice, String> {
    let copy = Arc::new(device.snapshot());
    let options = OpenOptions { journal: false, ..OpenOptions::default() };
    let fs = F2fs::open(copy.clone(), options, Arc::new(SystemClock)).map_err(|error| format!("recovery: {error}"))?;
    fs.close().map_err(|error| format!("recovery: {error}"))?;
    Ok(copy.snapshot())
}

impl Clock for StepClock {
    fn now(&self) -> Time {
        self.read()
    }
}

impl Engine for F2fsVolume {
    fn name(&self) -> &str {
        self.name
    }

    fn device_size(&self) -> u64 {
        self.size_mib << 20
    }

    fn flash_pages(&self, volume: &MemoryDevice) -> Option<FlashPages> {
        if self.flash_page == FlashPage::BLOCK {
            return None;
        }
        // What is not the main area is promised to nobody whose device tears pages.
        let (geometry, _) = Geometry::read(volume).ok()?;
        Some(FlashPages { bytes: u64::from(self.flash_page.bytes()), from: u64::from(geometry.main) * 4096 })
    }

    fn format(&self, device: &MemoryDevice) -> Result<(), String> {
        format(device, &self.format_options(), &mut |_, _| {}).map_err(|error| format!("format: {error}"))?;
        // Without its journal a volume would do as well, and nothing of the journal would be tested.
        let opened = self.open_volume(Arc::new(device.snapshot()), StepClock::starting(0))?;
        if self.journal_bytes > 0 && opened.info().journal_bytes == 0 {
            return Err("the cleaning journal is not found".to_owned());
        }
        Ok(())
    }

    fn open(&self, device: Arc<dyn BlockDevice>, clock: Arc<StepClock>) -> Result<Box<dyn FileSystem>, String> {
        let fs = self.open_volume(device, clock)?;
        if !fs.is_writable() {
            return Err(format!("open: not writable: {:?} {:?}", fs.failure(), fs.warnings()));
        }
        if let Some(warning) = fs.warnings().into_iter().find(|warning| !is_expected(warning)) {
            return Err(format!("open: {warning}"));
        }
        Ok(Box::new(fs))
    }

    fn open_to_look(&self, device: Arc<dyn BlockDevice>, clock: Arc<StepClock>) -> Result<Box<dyn FileSystem>, String> {
        let fs = self.open_volume(device, clock)?;
        if !fs.is_writable() && fs.failure().is_none() && fs.warnings().is_empty() {
            return Err("open: read-only, and nothing says why".to_owned());
        }
        Ok(Box::new(fs))
    }

    fn open_as_told(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<StepClock>,
    ) -> Option<Result<Box<dyn FileSystem>, String>> {
        let fs = self.open_volume(Arc::clone(&device), clock.clone()).ok()?;
        let is_told =
            !fs.is_writable() && fs.warnings().iter().any(|warning| warning.ends_with("`basalt rescue` finds more"));
        drop(fs);
        let rescue = || Rescued::open(device, &RescueOptions::default(), clock, &mut |_| {});
        let boxed = |rescued: Rescued| Box::new(rescued) as Box<dyn FileSystem>;
        is_told.then(|| rescue().map(boxed).map_err(|error| format!("rescue: {error}")))
    }

    fn check(&self, device: &MemoryDevice) -> Result<(), String> {
        let options = CheckOptions { max_faults: 20 };
        let report = match check(device, &options, &mut |_| {}) {
            // The session goes on, and has begun to clean: what counts is what recovery makes of it.
            Err(Error::Unsupported { .. }) => check(&recovered(device)?, &options, &mut |_| {}),
            report => report,
        };
        let report = report.map_err(|error| format!("check: {error}"))?;
        if report.is_clean() {
            return Ok(());
        }
        let faults = report.faults.iter().filter(|fault| fault.severity != Severity::Note);
        let faults: Vec<String> = faults.map(|fault| format!("  {fault}")).collect();
        Err(format!("check:\n{}", faults.join("\n")))
    }

    fn check_closed(&self, device: &MemoryDevice) -> Result<(), String> {
        if guard::read(device).map_err(|error| format!("guard: {error}"))?.is_set {
            return Err("closed, and its guard still keeps others out".to_owned());
        }
        let report =
            check(device, &CheckOptions { max_faults: 20 }, &mut |_| {}).map_err(|error| format!("check: {error}"))?;
        if report.is_clean() { Ok(()) } else { self.check(device) }
    }

    fn check_elsewhere(&self, image: &Path) -> Option<Result<(), String>> {
        find_program(TOOLS[1])?;
        let report = fsck_f2fs(image).map_err(|error| error.to_string());
        Some(report.and_then(|report| if report.is_clean() { Ok(()) } else { Err(report.to_string()) }))
    }

    fn for_threads(&self) -> Option<Arc<Opener>> {
        Some(threaded::opener(*self))
    }

    fn directory_fsync_is_sync(&self) -> bool {
        // Nothing but a checkpoint makes names of other files durable.
        true
    }

    fn commit_interval(&self) -> Duration {
        Duration::from_secs(self.commit_seconds)
    }
}
