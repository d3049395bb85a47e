//! What a device costs, as a TOML file says it.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::ModelError;
use crate::ftl::{Geometry, GeometryError, GeometryOptions, TranslationKind};

/// The largest file of a device that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// The most over-provisioning that flash can have.
const MOST_SPARE_PERCENT: f64 = 10_000.0;

/// A storage device as seen from outside: how long requests take, and what is known of the flash in it.
///
/// Bandwidths are in MB/s, which are 10⁶ bytes a second; sizes in bytes; times in microseconds.
///
/// ```toml
/// name = "example"
/// description = "An example card"
/// source = "measured by hand"
/// kind = "sd-card"
/// flush_us = 3000
///
/// [read]
/// streams = 4
/// sequential.points = [[4096, 6.4], [524288, 15.7]]
/// random.points = [[4096, 6.4], [524288, 15.7]]
///
/// [write]
/// streams = 2
/// sequential.points = [[4096, 1.3], [1048576, 9.2]]
/// random.points = [[4096, 0.14], [1048576, 2.3]]
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceModel {
    /// Short name, as used in options.
    pub name: String,
    /// What it is, in a few words.
    pub description: String,
    /// Where the numbers come from, and which are assumed.
    pub source: String,
    /// What sort of device.
    pub kind: DeviceKind,
    /// Bytes it holds, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// What a flush costs that has something to make durable, in microseconds. Writes are charged in full when they are
    /// issued, as if the cache had no room: it holds back only durability, never time. A flush with nothing written
    /// since the last one costs nothing.
    pub flush_us: f64,
    /// What a discard costs, in microseconds, whatever its length.
    #[serde(default)]
    pub discard_us: f64,
    /// How a request is spread over the device; without it the curves are those of whole requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<Parallelism>,
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// The flash inside; none for a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashModel>,
}

/// What sort of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A rotating disk.
    Disk,
    /// A solid-state drive.
    Ssd,
    /// A USB memory stick.
    UsbStick,
    /// An SD card.
    SdCard,
    /// Soldered eMMC.
    Emmc,
    /// An image file, or a device nobody knows more of.
    Other,
}

/// Costs of one direction, reads or writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// How many streams the device follows at once, 1 to 1024: a request that begins where one of the last so many
    /// streams ended continues it and costs as `sequential` says, any other begins a stream and costs as `random` says.
    /// Cards follow as many as they keep allocation units open.
    pub streams: u32,
    /// Requests that continue a stream.
    pub sequential: Curve,
    /// Requests that do not.
    pub random: Curve,
}

/// Time over request size: `latency + length / bandwidth(length)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Added to each request, in microseconds. 0 where the points were measured one request at a time, since they then
    /// contain it.
    #[serde(default)]
    pub latency_us: f64,
    /// Request size in bytes, ascending, and MB/s at that size. Between points the bandwidth's logarithm is linear in
    /// that of the size; above the last the bandwidth stays; a request below the first takes as long as the first.
    pub points: Vec<(u64, f64)>,
}

/// How a request is cut into stripes that units (channels, planes) serve at the same time. The curves are then those of
/// one unit, and a request takes as long as the unit with the most bytes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parallelism {
    /// Units that work at the same time, 1 to 4096.
    pub units: u32,
    /// Bytes that go to one unit before the next has its turn.
    pub stripe_bytes: u32,
}

/// The flash inside a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashModel {
    /// The translation layer.
    pub translation: TranslationKind,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of an erase block.
    pub block_bytes: u32,
    /// Spare space in percent of the logical.
    pub over_provisioning_percent: f64,
    /// Program/erase cycles that the maker, or the sort of flash, promises for each block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rated_cycles: Option<u32>,
    /// What erasing a block takes, in microseconds, where it is known. It matters where a translation layer's work takes device time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erase_us: Option<f64>,
    /// Bytes of an allocation unit of a card: what it opens, fills and closes as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_unit_bytes: Option<u64>,
}

impl DeviceModel {
    /// Reads a model from TOML; `place` is what messages call it.
    ///
    /// # Errors
    /// [`ModelError::Syntax`] with the line, [`ModelError::Field`] with the field that makes no sense.
    pub fn parse(text: &str, place: &str) -> Result<DeviceModel, ModelError> {
        let model: DeviceModel = toml::from_str(text).map_err(|error| ModelError::syntax(place, text, &error))?;
        model.check(place)?;
        Ok(model)
    }

    /// Reads a model from a file.
    ///
    /// # Errors
    /// When it cannot be read, or as [`parse`](Self::parse) says.
    pub fn load(path: impl AsRef<Path>) -> Result<DeviceModel, ModelError> {
        let path = path.as_ref();
        let mut text = String::new();
        // Devices and pipes do not tell how much there is in them.
        let read = std::fs::File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
        let read = read.and_then(|_| match text.len() as u64 {
            0..=LARGEST_FILE => Ok(()),
            _ => Err(std::io::Error::other("is too large for a device's file")),
        });
        read.map_err(|source| ModelError::Read { place: path.display().to_string(), source })?;
        DeviceModel::parse(&text, &path.display().to_string())
    }

    /// The model as a TOML file that [`parse`](Self::parse) reads back.
    ///
    /// # Errors
    /// [`ModelError::Field`] when a number does not fit TOML.
    pub fn to_toml(&self) -> Result<String, ModelError> {
        toml::to_string(self).map_err(|error| ModelError::field(&self.name, "model", error))
    }

    /// Whether it says what writes cost. What [`measure`](crate::profile::measure) makes without writing does not: writes cost there what reads cost,
    /// and flushes nothing.
    #[must_use]
    pub fn knows_writes(&self) -> bool {
        self.flush_us > 0.0 || self.write != self.read
    }

    /// The same device with another gap between random and sequential writes: a write that begins a stream takes as long as one of its length
    /// that goes on with a stream, and as much longer as `blocks` blocks of 4 KiB take at the bandwidth of the largest sequential writes.
    #[must_use]
    pub fn with_write_gap(mut self, blocks: u32) -> DeviceModel {
        const BLOCK: f64 = 4096.0;
        let mut random = self.write.sequential.clone();
        if let Some((_, largest)) = random.points.last() {
            // Bytes over MB/s are microseconds.
            random.latency_us += f64::from(blocks) * BLOCK / largest;
        }
        self.write.random = random;
        self
    }

    /// The same device, whose flash has pages of so many bytes.
    ///
    /// # Errors
    /// When it has no flash, or its erase blocks do not hold at least two such pages.
    pub fn with_flash_page(mut self, bytes: u64) -> Result<DeviceModel, ModelError> {
        let place = self.name.clone();
        let Some(flash) = &mut self.flash else {
            return Err(ModelError::field(&place, "flash.page_bytes", "this device has no flash"));
        };
        flash.page_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.check(&place)?;
        Ok(self)
    }

    /// The geometry of this device's flash, scaled to `logical_bytes`. A device without flash has the default one, so
    /// that its requests can be counted in flash pages all the same. A simulated device can be far smaller than the real
    /// one: where its percentage would come to less than 4 spare blocks, there are 4.
    ///
    /// # Errors
    /// When `logical_bytes` is 0 or too much.
    pub fn geometry(&self, logical_bytes: u64) -> Result<Geometry, GeometryError> {
        let mut options = GeometryOptions { logical_bytes, ..GeometryOptions::default() };
        if let Some(flash) = &self.flash {
            options.page_bytes = flash.page_bytes;
            options.block_bytes = flash.block_bytes;
            options.over_provisioning_percent = flash.over_provisioning_percent;
        }
        let blocks = logical_bytes.div_ceil(u64::from(options.block_bytes.max(1))).max(1);
        let logical = logical_bytes as f64 / f64::from(options.block_bytes.max(1));
        let least = ((blocks + 4) as f64 / logical - 1.0) * 100.0;
        if least.is_finite() && least > MOST_SPARE_PERCENT {
            let (few, block) = (logical_bytes, options.block_bytes);
            return Err(GeometryError(format!("{few} bytes are too few for erase blocks of {block}; make it larger")));
        }
        if options.over_provisioning_percent / 100.0 * (blocks as f64) < 4.0 && least.is_finite() {
            options.over_provisioning_percent = options.over_provisioning_percent.max(least);
        }
        Geometry::new(&options)
    }

    fn check(&self, place: &str) -> Result<(), ModelError> {
        check_time(place, "flush_us", self.flush_us)?;
        check_time(place, "discard_us", self.discard_us)?;
        if self.name.is_empty() || self.name.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(ModelError::field(place, "name", "must be one word"));
        }
        if let Some(Parallelism { units, stripe_bytes }) = self.parallelism {
            if !(1..=4096).contains(&units) {
                return Err(ModelError::field(place, "parallelism.units", format!("{units} is not from 1 to 4096")));
            }
            if !(512..=1 << 30).contains(&stripe_bytes) {
                let reason = format!("{stripe_bytes} is not from 512 to 2^30");
                return Err(ModelError::field(place, "parallelism.stripe_bytes", reason));
            }
        }
        self.read.check(place, "read")?;
        self.write.check(place, "write")?;
        if let Some(flash) = &self.flash {
            check_time(place, "flash.erase_us", flash.erase_us.unwrap_or(0.0))?;
            // Any size will do: what is checked are page, block and over-provisioning.
            self.geometry(1 << 36).map_err(|error| ModelError::field(place, "flash", error))?;
        }
        Ok(())
    }
}

impl Direction {
    fn check(&self, place: &str, name: &str) -> Result<(), ModelError> {
        if !(1..=1024).contains(&self.streams) {
            let reason = format!("{} is not from 1 to 1024", self.streams);
            return Err(ModelError::field(place, &format!("{name}.streams"), reason));
        }
        self.sequential.check(place, &format!("{name}.sequential"))?;
        self.random.check(place, &format!("{name}.random"))
    }
}

impl Curve {
    fn check(&self, place: &str, name: &str) -> Result<(), ModelError> {
        check_time(place, &format!("{name}.latency_us"), self.latency_us)?;
        let wrong = |reason: String| Err(ModelError::field(place, &format!("{name}.points"), reason));
        if self.points.is_empty() {
            return wrong("needs a point [bytes, MB/s]".to_owned());
        }
        for &(bytes, bandwidth) in &self.points {
            if bytes == 0 || bytes > 1 << 40 {
                return wrong(format!("a request of {bytes} bytes is not from 1 to 2^40"));
            }
            if !(1e-6..=1e6).contains(&bandwidth) {
                return wrong(format!("{bandwidth} MB/s is not from 0.000001 to 1000000"));
            }
        }
        match self.points.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            Some(pair) => wrong(format!("{} bytes follow {}; sizes must ascend", pair[1].0, pair[0].0)),
            None => Ok(()),
        }
    }
}

/// A time in microseconds, up to an hour.
fn check_time(place: &str, field: &str, microseconds: f64) -> Result<(), ModelError> {
    if (0.0..=3.6e9).contains(&microseconds) {
        return Ok(());
    }
    Err(ModelError::field(place, field, format!("{microseconds} is not a time from 0 to 3600000000 microseconds")))
}
