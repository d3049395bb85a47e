//! What the copies and erases of a translation layer take of a device's time.

use super::model::DeviceModel;
use crate::ftl::{FtlStatistics, Geometry};

/// Nanoseconds for what a translation layer does inside a device.
///
/// A page is read and programmed at the bandwidths of the largest sequential requests of the device's model, the best that is known of
/// its flash. An erase takes the time that the model states ([`erase_us`](crate::device::FlashModel::erase_us)), and nothing if it
/// states none. With [`Parallelism`](crate::device::Parallelism) the curves are those of one unit; all units work on it together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyCost {
    /// To read a page, by one unit.
    read_ns: f64,
    /// To program a page, by one unit.
    program_ns: f64,
    /// To erase a block, by one unit.
    erase_ns: f64,
    units: f64,
}

impl CopyCost {
    /// The costs on a device with this flash.
    #[must_use]
    pub fn new(model: &DeviceModel, geometry: &Geometry) -> CopyCost {
        let page = f64::from(geometry.page_bytes());
        // MB/s are bytes a microsecond.
        let time = |points: &[(u64, f64)]| points.last().map_or(0.0, |point| page * 1e3 / point.1);
        CopyCost {
            read_ns: time(&model.read.sequential.points),
            program_ns: time(&model.write.sequential.points),
            erase_ns: model.flash.and_then(|flash| flash.erase_us).unwrap_or(0.0) * 1e3,
            units: model.parallelism.map_or(1.0, |parallelism| f64::from(parallelism.units)),
        }
    }

    /// Nanoseconds to program `pages` copies, by all units, reads and erases left out: what a replayed trace adds to a device's time.
    #[must_use]
    pub fn programs_ns(&self, pages: u64) -> f64 {
        pages as f64 * self.program_ns / self.units
    }

    /// Nanoseconds for all copies and erases that a layer made from `earlier` to `now`, reads included.
    #[must_use]
    pub fn nanoseconds(&self, earlier: &FtlStatistics, now: &FtlStatistics) -> u64 {
        let copied = now.pages_copied.saturating_sub(earlier.pages_copied);
        let erased = now.erases.saturating_sub(earlier.erases);
        let unit = copied as f64 * (self.read_ns + self.program_ns) + erased as f64 * self.erase_ns;
        (unit / self.units).round() as u64
    }
}
