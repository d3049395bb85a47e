//! A device in a line of a table.

use basalt_device::RequestKind;
use serde::Serialize;

use super::model::{DeviceKind, DeviceModel};
use crate::ftl::TranslationKind;

/// Bytes of the requests that stand for "sequential": every device is as fast as it gets.
const LARGE: u64 = 32 << 20;
/// Bytes of the requests that stand for "random".
const SMALL: u64 = 4096;

/// What a device does, in the four numbers that everybody compares. Bandwidths are in MB/s of 10⁶ bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceSummary {
    /// The model's name.
    pub name: String,
    /// What sort of device.
    pub kind: DeviceKind,
    /// What it is.
    pub description: String,
    /// Reads of 32 MiB that continue each other.
    pub sequential_read: f64,
    /// Reads of 4 KiB far from each other.
    pub random_read: f64,
    /// Writes of 32 MiB that continue each other.
    pub sequential_write: f64,
    /// Writes of 4 KiB far from each other.
    pub random_write: f64,
    /// The translation layer inside; none in a disk.
    pub translation: Option<TranslationKind>,
    /// Rated program/erase cycles, where known.
    pub rated_cycles: Option<u32>,
    /// Where the numbers come from.
    pub source: String,
}

impl DeviceModel {
    /// The four numbers that everybody compares, and what else a table says.
    pub fn summary(&self) -> DeviceSummary {
        DeviceSummary {
            name: self.name.clone(),
            kind: self.kind,
            description: self.description.clone(),
            sequential_read: self.sequential(RequestKind::Read),
            random_read: self.random(RequestKind::Read),
            sequential_write: self.sequential(RequestKind::Write),
            random_write: self.random(RequestKind::Write),
            translation: self.flash.map(|flash| flash.translation),
            rated_cycles: self.flash.and_then(|flash| flash.rated_cycles),
            source: self.source.clone(),
        }
    }

    /// MB/s of large requests that continue each other.
    fn sequential(&self, kind: RequestKind) -> f64 {
        let mut meter = self.meter();
        meter.request(kind, 0, LARGE);
        bandwidth(LARGE, meter.request(kind, LARGE, LARGE))
    }

    /// MB/s of small requests that do not.
    fn random(&self, kind: RequestKind) -> f64 {
        bandwidth(SMALL, self.meter().request(kind, LARGE, SMALL))
    }
}

fn bandwidth(bytes: u64, nanoseconds: u64) -> f64 {
    // Bytes a microsecond are MB/s.
    bytes as f64 * 1e3 / nanoseconds.max(1) as f64
}
