//! What a run is given: the volume's size, how full, how long, which seed.

use serde::{Deserialize, Serialize};

/// When a phase ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// When this many bytes have been written by the application; 0 leaves the phase out.
    Bytes(u64),
    /// After this many operations; 0 leaves the phase out.
    Operations(u64),
    /// After this much of the observer's time. Which operations run then depends on the target's speed.
    Nanoseconds(u64),
}

/// What the files of a run are filled with. What is done to them is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contents {
    /// Random bytes that depend on the seed, other ones for each write: no target can compress them or take two blocks for one.
    Random,
    /// The byte 0xA5 throughout, which a target in memory need not keep 4096 times a block. Says nothing about a target that looks
    /// at bytes, and cannot be verified: a block read from the wrong place looks like the right one.
    Plain,
}

/// The settings of a run. Every workload derives its own sizes from the volume's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// How full the file system is, with dummy data, while the workload runs: percent of the space that was free when the run began.
    /// What a file system keeps for itself (metadata areas, over-provisioning) is not part of that.
    pub utilization_percent: u32,
    /// The seed of all choices and of the content.
    pub seed: u64,
    /// How long to age before measuring; `None`: as the workload says.
    pub age: Option<Limit>,
    /// How long to measure; `None`: as the workload says.
    pub measure: Option<Limit>,
    /// fsync after that many writes where a workload leaves it open (overwrites); 0 never, `None`: as the workload says.
    pub sync_every: Option<u64>,
    /// Bytes of dummy data, instead of what fills up to the utilization: the same on every file system.
    pub dummy_bytes: Option<u64>,
    /// Check what is read against what was written, and everything once more at the end. Needs memory for every extent written.
    pub verify: bool,
    /// What files are filled with; `None`: as whoever runs the workload needs it, random if nobody says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Contents>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            size_bytes: 1 << 30,
            utilization_percent: 85,
            seed: 1,
            age: None,
            measure: None,
            sync_every: None,
            dummy_bytes: None,
            verify: false,
            contents: None,
        }
    }
}

impl Settings {
    /// Bytes that are `share_percent` of the volume.
    pub fn share(&self, share_percent: f64) -> u64 {
        (self.size_bytes as f64 * share_percent / 100.0) as u64
    }
}

/// What a workload needs and how long it runs if nobody says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of its files after the prepare phase, rounded up to blocks of 4 KiB a file.
    pub initial_bytes: u64,
    /// Bytes of its files at most, rounded likewise.
    pub peak_bytes: u64,
    /// Files and directories at most.
    pub files: u64,
    /// Length of the ageing phase.
    pub age: Limit,
    /// Length of the measured phase.
    pub measure: Limit,
}

impl Plan {
    /// Bytes at most with a metadata block for each file and directory, and 1/500 for index blocks.
    pub fn peak_with_metadata(&self) -> u64 {
        self.with_metadata(self.peak_bytes)
    }

    /// What the files still grow by behind the prepare phase, with its part of the metadata.
    pub fn growth(&self) -> u64 {
        self.with_metadata(self.peak_bytes).saturating_sub(self.with_metadata(self.initial_bytes))
    }

    /// Files are taken to be made in step with bytes.
    fn with_metadata(&self, bytes: u64) -> u64 {
        let share = u128::from(self.files) * u128::from(BLOCK) * u128::from(bytes) / u128::from(self.peak_bytes.max(1));
        bytes.saturating_add(u64::try_from(share).unwrap_or(u64::MAX)).saturating_add(bytes / 500)
    }
}

/// The unit in which file systems give space away, in bytes.
pub const BLOCK: u64 = 4096;

/// Rounds up to whole blocks.
pub fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}
