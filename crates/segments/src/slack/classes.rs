//! How long usual devices take: what plans are made by where nobody has measured the device.
//!
//! A table whose fixed part of a write is too long costs a little: too much is copied. One where it is too short leaves holes as they are, which
//! costs more. So these are devices on the slow side of their class.

use std::sync::OnceLock;

use super::DeviceTimes;

/// Blocks in a run, and MB/s.
type Bandwidths = &'static [(u32, f64)];

/// What a device is, as far as its times are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceClass {
    /// A solid-state drive: a small write at a random place takes little more than its share of a large one.
    #[default]
    Ssd,
    /// Flash that is soldered in, with a simple controller.
    Emmc,
    /// A memory card.
    Sd,
    /// A hard disk: each run costs a seek.
    Hdd,
}

impl DeviceClass {
    /// All of them.
    pub const ALL: [DeviceClass; 4] = [DeviceClass::Ssd, DeviceClass::Emmc, DeviceClass::Sd, DeviceClass::Hdd];

    /// The name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DeviceClass::Ssd => "ssd",
            DeviceClass::Emmc => "emmc",
            DeviceClass::Sd => "sd",
            DeviceClass::Hdd => "hdd",
        }
    }

    /// The one of this name; `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<DeviceClass> {
        DeviceClass::ALL.into_iter().find(|class| class.name() == name)
    }

    /// How long such a device takes.
    ///
    /// `emmc` is that of an Orange Pi Plus 2E, `sd` a Lexar 633x, as others measured them; the small reads of `sd` and all flushes are assumed. `ssd` and
    /// `hdd` are assumed: 90 MB/s for single blocks and 450 for segments, as a usual SATA drive has; 12 ms for a seek and half a turn, and 150 MB/s.
    #[must_use]
    pub fn device_times(self) -> DeviceTimes {
        static TIMES: [OnceLock<DeviceTimes>; DeviceClass::ALL.len()] =
            [const { OnceLock::new() }; DeviceClass::ALL.len()];
        TIMES[self as usize].get_or_init(|| self.tables()).clone()
    }

    fn tables(self) -> DeviceTimes {
        let (write, read, flush): (Bandwidths, Bandwidths, u64) = match self {
            DeviceClass::Ssd => {
                (&[(1, 90.0), (4, 180.0), (16, 300.0), (512, 450.0)], &[(1, 30.0), (4, 90.0), (128, 400.0)], 500_000)
            }
            DeviceClass::Emmc => {
                (&[(1, 6.7), (4, 23.2), (128, 36.9), (256, 38.1)], &[(1, 14.1), (4, 35.1), (128, 63.7)], 1_000_000)
            }
            DeviceClass::Sd => {
                (&[(1, 1.2), (4, 4.5), (16, 8.8), (128, 12.1)], &[(1, 6.0), (4, 12.0), (128, 20.0)], 3_000_000)
            }
            DeviceClass::Hdd => (&[(1, 0.341), (512, 80.7)], &[(1, 0.341), (512, 80.7)], 24_000_000),
        };
        DeviceTimes::from_bandwidths(write, read, flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a single block costs beyond its share of a segment, in blocks: where islands of so many are copied out.
    #[test]
    fn islands_up_to_a_few_blocks_are_worth_a_copy_where_small_writes_are_dear() {
        let worth = DeviceClass::ALL.map(|class| {
            let times = class.device_times();
            let each = times.write(512) / 512;
            (times.write(1) - each) / each
        });
        assert_eq!(worth, [4, 4, 9, 235]);
    }

    #[test]
    fn names_are_those_of_options() {
        assert!(DeviceClass::ALL.into_iter().all(|class| DeviceClass::by_name(class.name()) == Some(class)));
        assert_eq!(DeviceClass::by_name("tape"), None);
    }
}
