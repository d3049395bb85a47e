//! F2FS volumes under test: small ones, so that a cut costs little and cleaning is never far.

use std::path::Path;
use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, Severity, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::superblock::Features;
use basalt_f2fs::{Atime, Clock, F2fs, OpenOptions};
use basalt_testkit::images::{TOOLS, fsck_f2fs};
use basalt_testkit::skip::find_program;
use basalt_vfs::{FileSystem, Time};

use crate::engine::{Engine, StepClock};

/// A kind of F2FS volume, and how it is opened.
#[derive(Debug, Clone, Copy)]
pub struct F2fsVolume {
    name: &'static str,
    size_mib: u64,
    segments_per_section: u32,
    overprovision_percent: Option<f64>,
    features: Features,
    logs: u8,
    cache_bytes: usize,
    discard: bool,
}

const ROOMY: F2fsVolume = F2fsVolume {
    name: "roomy",
    size_mib: 80,
    segments_per_section: 1,
    overprovision_percent: None,
    features: FormatOptions::DEFAULT_FEATURES,
    logs: 6,
    cache_bytes: 8 << 20,
    discard: true,
};

/// The volumes there are. Tight ones leave the user a few segments: cleaning never stops there.
pub const VOLUMES: [F2fsVolume; 6] = [
    ROOMY,
    F2fsVolume { name: "tight", size_mib: 56, overprovision_percent: Some(50.0), cache_bytes: 1 << 20, ..ROOMY },
    F2fsVolume { name: "tightest", size_mib: 52, overprovision_percent: Some(50.0), cache_bytes: 64 << 10, ..ROOMY },
    F2fsVolume {
        name: "sections",
        size_mib: 104,
        segments_per_section: 2,
        overprovision_percent: Some(50.0),
        cache_bytes: 1 << 20,
        ..ROOMY
    },
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
];

/// The volume of this name.
pub fn volume(name: &str) -> Option<&'static F2fsVolume> {
    VOLUMES.iter().find(|volume| volume.name == name)
}

impl F2fsVolume {
    /// Bytes that files can take, about; more for volumes that are not tight.
    pub fn user_bytes(&self) -> u64 {
        match self.name {
            "tightest" => 6 << 20,
            "tight" => 8 << 20,
            "sections" => 12 << 20,
            _ => 32 << 20,
        }
    }
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

    fn format(&self, device: &MemoryDevice) -> Result<(), String> {
        let options = FormatOptions {
            segments_per_section: self.segments_per_section,
            overprovision_percent: self.overprovision_percent,
            features: self.features,
            uuid: Some([7; 16]),
            discard_reads_zeros: true,
            ..FormatOptions::default()
        };
        format(device, &options, &mut |_, _| {}).map(drop).map_err(|error| format!("format: {error}"))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, clock: Arc<StepClock>) -> Result<Box<dyn FileSystem>, String> {
        let options = OpenOptions {
            logs: self.logs,
            cache_bytes: self.cache_bytes,
            discard: self.discard,
            // Looking at what is left must not change it.
            atime: Atime::Noatime,
            ..OpenOptions::default()
        };
        let fs = F2fs::open(device, options, clock).map_err(|error| format!("open: {error}"))?;
        if !fs.is_writable() {
            return Err(format!("open: not writable: {:?} {:?}", fs.failure(), fs.warnings()));
        }
        Ok(Box::new(fs))
    }

    fn check(&self, device: &MemoryDevice) -> Result<(), String> {
        let options = CheckOptions { max_faults: 20 };
        let report = check(device, &options, &mut |_| {}).map_err(|error| format!("check: {error}"))?;
        if report.is_clean() {
            return Ok(());
        }
        let faults = report.faults.iter().filter(|fault| fault.severity != Severity::Note);
        let faults: Vec<String> = faults.map(|fault| format!("  {fault}")).collect();
        Err(format!("check:\n{}", faults.join("\n")))
    }

    fn check_elsewhere(&self, image: &Path) -> Option<Result<(), String>> {
        find_program(TOOLS[1])?;
        let report = fsck_f2fs(image).map_err(|error| error.to_string());
        Some(report.and_then(|report| if report.is_clean() { Ok(()) } else { Err(report.to_string()) }))
    }

    fn directory_fsync_is_sync(&self) -> bool {
        // Nothing but a checkpoint makes names of other files durable.
        true
    }
}
