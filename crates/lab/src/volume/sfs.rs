//! `sfs` on the volume simulator: the placement, and the pool of dirty blocks that it needs.

use std::sync::Arc;
use std::time::Duration;

use basalt_flash::device::DeviceModel;
use basalt_schemes::{FaithfulSfs, Quantization, Scale, Sfs, SfsOptions};
use basalt_segments::BLOCKS_PER_SEGMENT;
use basalt_simulator::{BLOCK_SIZE, Options, PoolOptions, Volume};

use crate::engine::block_times;
use crate::size;

/// Victims read at once (SFS paper, section 3.6).
pub(super) const VICTIMS: u32 = 3;

/// What `sfs` has that other placements do not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SfsSetup {
    /// Bytes of blocks that users change before what waits is sorted; without, two sections for each group.
    pub pool: Option<u64>,
    /// Groups, quantization, least age, and whether cleaning counts as a write. The sections are the volume's.
    pub options: SfsOptions,
    /// Random reads of 4 KiB and sequential writes, which the clock goes by, in MB/s.
    pub bandwidths: (f64, f64),
    /// Sections written, and seconds, from one checkpoint to the next, at most.
    pub checkpoints: (u32, u64),
    /// Bytes of the volume that this one stands for, if it is another: while all of this one is written, as much time passes as on that.
    pub stands_for: Option<u64>,
}

impl Default for SfsSetup {
    /// On the paper's SSD-M.
    fn default() -> Self {
        SfsSetup {
            pool: None,
            options: SfsOptions::default(),
            bandwidths: (10.6, 87.0),
            checkpoints: (20, 30),
            stands_for: None,
        }
    }
}

impl SfsSetup {
    /// The names of its parameters, their usual values, and what they are.
    pub const PARAMETERS: [(&'static str, &'static str, &'static str); 8] = [
        (
            "pool",
            "",
            "of placement sfs: dirty blocks that are collected before they are sorted; 0: groups are logs, as on mounts [default: two sections for each group]",
        ),
        ("groups", "4", "of placement sfs: groups, from 1 to 8"),
        ("age-floor", "30", "of placement sfs: seconds that blocks and sections are old at least"),
        ("clean-touch", "on", "of placement sfs: whether what cleaning writes counts as a write of the block"),
        ("quantization", "iterative", "of placement sfs: how groups are found"),
        ("checkpoint-sections", "20", "of placement sfs: sections written from one checkpoint to the next, at most"),
        ("checkpoint-seconds", "30", "of placement sfs: seconds from one checkpoint to the next, at most"),
        (
            "stands-for",
            "",
            "of placement sfs: size of the volume that this one stands for: seconds are that one's [default: none]",
        ),
    ];

    /// Sets a parameter.
    ///
    /// # Errors
    /// In words, when there is none of this name, or the value is none for it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("{name}: `{value}` is not {expected}");
        let options = &mut self.options;
        match name {
            "pool" => self.pool = Some(size::parse(value)?),
            "groups" => {
                let groups = value.parse().ok().filter(|groups| (1..=SfsOptions::GROUPS_MAX).contains(groups));
                options.groups = groups.ok_or_else(|| wrong("a number of groups from 1 to 8"))?;
            }
            "age-floor" => {
                let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                options.age_floor = seconds.ok_or_else(|| wrong("a number of seconds"))?;
            }
            "clean-touch" => {
                options.clean_touch = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(wrong("on or off")),
                }
            }
            "quantization" => {
                let found = Quantization::by_name(value);
                options.quantization = found.ok_or_else(|| wrong("iterative, eq-range or eq-count"))?;
            }
            "checkpoint-sections" => {
                let sections = value.parse().ok().filter(|sections| *sections > 0);
                self.checkpoints.0 = sections.ok_or_else(|| wrong("a number of sections"))?;
            }
            "checkpoint-seconds" => {
                self.checkpoints.1 = value.parse().map_err(|_| wrong("a whole number of seconds"))?;
            }
            "stands-for" => self.stands_for = Some(size::parse(value)?),
            _ => return Err(format!("{name}: placement sfs has no such parameter")),
        }
        Ok(())
    }

    /// Lets the clock go by what this device takes for blocks of 4 KiB.
    pub fn set_device(&mut self, device: &Arc<DeviceModel>) {
        let (read, write) = block_times(device);
        // Nanoseconds for 4 KiB as 10⁶ bytes a second.
        self.bandwidths = (4_096_000.0 / read.max(1.0), 4_096_000.0 / write.max(1.0));
    }

    /// The volume with the placement and the pool.
    ///
    /// # Errors
    /// In words, when it cannot be.
    pub(super) fn volume(self, options: Options) -> Result<Volume, String> {
        let segments_per_section = options.segments_per_section;
        if self.pool == Some(0) {
            let placement = Box::new(Sfs::new(self.options.groups, Scale::Paper));
            return Volume::with_placement(options, placement).map_err(|error| error.to_string());
        }
        let placement = FaithfulSfs::new(SfsOptions { segments_per_section, ..self.options });
        let section_bytes = u64::from(segments_per_section) * u64::from(BLOCKS_PER_SEGMENT) * BLOCK_SIZE;
        let bytes = self.pool.unwrap_or(2 * self.options.groups as u64 * section_bytes);
        let blocks = u32::try_from(bytes / BLOCK_SIZE).unwrap_or(u32::MAX);
        let own = u64::from(options.segments) * u64::from(BLOCKS_PER_SEGMENT) * BLOCK_SIZE;
        let slower = own as f64 / self.stands_for.unwrap_or(own).max(1) as f64;
        let (read, write) = (self.bandwidths.0 * slower, self.bandwidths.1 * slower);
        let pool = PoolOptions {
            checkpoint_sections: self.checkpoints.0,
            checkpoint_interval: Duration::from_secs(self.checkpoints.1),
            ..PoolOptions::of(blocks, placement.mixed_log(), read, write)
        };
        let options = Options { pool: Some(pool), ..options };
        Volume::with_placement(options, Box::new(placement)).map_err(|error| error.to_string())
    }
}
