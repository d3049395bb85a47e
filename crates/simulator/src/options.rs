//! What is simulated.

use std::time::Duration;

use basalt_segments::cleaning::KeepFree;
use basalt_segments::placement::{self, PlacementOptions};
use basalt_segments::{BLOCKS_PER_SEGMENT, Greedy, LogId, MAX_SEGMENTS, Placement, VictimPolicy};

use crate::BLOCK_SIZE;
use crate::error::{Error, Result};

/// Free sections that [`Options::of`] keeps.
const FREE_SECTIONS: u32 = 4;
/// Segments of a simulated volume at most: the number of blocks has to fit a `u32`, whose largest value is no block.
const MOST_SEGMENTS: u32 = MAX_SEGMENTS - 1;
/// Of all sections, one in this many is emptied by one search that has to look at every section.
const VICTIMS_SHARE: u32 = 1024;

/// When a volume is cleaned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cleaning {
    /// As the F2FS engine does it: steps that follow what is written, by [`basalt_segments::cleaning`].
    Paced {
        /// Sections that the format reserves for cleaning.
        reserved_sections: u32,
        /// How much of them is kept free.
        keep_free: KeepFree,
    },
    /// When fewer than `least` sections are free, until they are; the usual rule of the literature.
    FreeSections {
        /// Free sections to keep, at least 2: one to copy to, one to write to.
        least: u32,
        /// Sections chosen in one search.
        victims: u32,
    },
    /// When more than `most` of the blocks written and not yet erased are dead, until they are not; the rule of the SepBIT
    /// simulator (FAST 2022). The volume has to be large enough for them.
    GarbageShare {
        /// The share, between 0 and 1.
        most: f64,
        /// Sections chosen in one search.
        victims: u32,
    },
}

impl Cleaning {
    /// Sections that are kept free of live blocks.
    #[must_use]
    pub fn kept_sections(&self) -> u32 {
        match *self {
            Cleaning::Paced { reserved_sections, .. } => reserved_sections,
            Cleaning::FreeSections { least, .. } => least,
            Cleaning::GarbageShare { .. } => 2,
        }
    }
}

/// Sections beyond those kept free that a volume needs: two open data logs, and one to gain.
pub const WORKING_SECTIONS: u32 = 3;

/// From when on a section ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Age {
    /// From the last time that a block of it was written or died, as F2FS's SIT has it.
    #[default]
    Modified,
    /// From the last time that a block of it was written, as simulators of the literature have it.
    Written,
}

/// Where a log begins: some of its segment may be taken already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStart {
    /// Its segment.
    pub segment: u32,
    /// The block in the segment that it writes next.
    pub offset: u32,
    /// The live blocks of the segment, right in front of `offset`: what is there and is never overwritten.
    pub live: u32,
}

/// The blocks are those of one file of the F2FS engine: they pass through its page cache, and nodes point to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileModel {
    /// Blocks that the cache holds: `cache_bytes` of the engine's options, in blocks.
    pub cache_blocks: usize,
    /// Block addresses in the inode.
    pub inode_slots: u32,
    /// Where the six logs begin, in the order of [`basalt_segments::SegmentKind::ALL`]. The last live block of the warm node log
    /// is the file's inode.
    pub logs: [LogStart; 6],
}

/// SFS's write path: what users write and what cleaning reads waits in a pool of dirty blocks. When enough were changed, all that waits is
/// sorted into groups by the placement, and groups that fill a section are written. Checkpoints write the others too.
///
/// The volume's clock is then the time that the device takes, one request after the other: users take none. So SFS's timer of five seconds
/// never finds anything to write.
///
/// Source: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, sections 3.5 and 3.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Blocks that users change before what waits is sorted and written. Deferred blocks, less than a section for each log, come on top.
    pub blocks: u32,
    /// The log for what fills no section.
    pub mixed: LogId,
    /// Sections written from one checkpoint to the next, at most.
    pub checkpoint_sections: u32,
    /// Time from one checkpoint to the next, at most.
    pub checkpoint_interval: Duration,
    /// Nanoseconds to write a block, in large sequential requests.
    pub write_ns: u64,
    /// Nanoseconds to read a block for cleaning.
    pub read_ns: u64,
}

impl PoolOptions {
    /// With the paper's checkpoints (every 20 sections and every 30 s), on a device that reads single blocks and writes sequentially at these
    /// bandwidths, in 10⁶ bytes a second.
    #[must_use]
    pub fn of(blocks: u32, mixed: LogId, random_read: f64, sequential_write: f64) -> PoolOptions {
        // A whole number of nanoseconds, and not none.
        let nanoseconds = |bandwidth: f64| ((BLOCK_SIZE as f64 * 1000.0 / bandwidth).round() as u64).max(1);
        PoolOptions {
            blocks,
            mixed,
            checkpoint_sections: 20,
            checkpoint_interval: Duration::from_secs(30),
            write_ns: nanoseconds(sequential_write),
            read_ns: nanoseconds(random_read),
        }
    }
}

/// What is simulated.
#[derive(Clone)]
pub struct Options {
    /// Segments of the main area.
    pub segments: u32,
    /// Segments in a section.
    pub segments_per_section: u32,
    /// Blocks that may be written: numbers from 0 up to this.
    pub blocks: u32,
    /// Logs, of which the first half is for data: 2 put what cleaning copies with what users write, 4 too; 6 keep it apart.
    pub logs: u8,
    /// Which log each block is written to.
    pub placement: &'static placement::Policy,
    /// Groups of data, for placements that leave them to the user; `None`: as many as the placement usually has.
    pub groups: Option<u8>,
    /// Which section is cleaned next.
    pub policy: &'static dyn VictimPolicy,
    /// When to clean.
    pub cleaning: Cleaning,
    /// From when on a section ages.
    pub age: Age,
    /// Nodes and page cache as the engine has them; without, blocks go to their log as they come, and nothing else is written.
    pub file: Option<FileModel>,
    /// Dirty blocks wait in a pool, and are written by groups; without, each write is.
    pub pool: Option<PoolOptions>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("segments", &self.segments)
            .field("segments_per_section", &self.segments_per_section)
            .field("blocks", &self.blocks)
            .field("logs", &self.logs)
            .field("placement", &self.placement)
            .field("policy", &self.policy)
            .field("cleaning", &self.cleaning)
            .field("age", &self.age)
            .field("file", &self.file)
            .field("pool", &self.pool)
            .finish()
    }
}

impl Options {
    /// A volume of `size` bytes of which `utilization` percent are in use: six logs, sections of one segment, greedy, cleaned when
    /// fewer than four sections are free.
    ///
    /// # Errors
    /// When there is no such volume.
    pub fn of(size: u64, utilization: u8) -> Result<Options> {
        let segments = size / BLOCK_SIZE / u64::from(BLOCKS_PER_SEGMENT);
        let segments = u32::try_from(segments).ok().filter(|&segments| segments <= MOST_SEGMENTS);
        let Some(segments) = segments else {
            return Err(Error::Options(format!("{size} bytes are more than {MOST_SEGMENTS} segments of 2 MiB")));
        };
        if !(1..=99).contains(&utilization) {
            return Err(Error::Options(format!("a utilization of {utilization} %, expected 1 to 99")));
        }
        let blocks = u64::from(segments) * u64::from(BLOCKS_PER_SEGMENT) * u64::from(utilization) / 100;
        let options = Options {
            segments,
            segments_per_section: 1,
            // A share of blocks that a `u32` numbers.
            blocks: blocks as u32,
            logs: 6,
            placement: Default::default(),
            groups: None,
            policy: &Greedy,
            cleaning: Cleaning::FreeSections { least: FREE_SECTIONS, victims: 1 },
            age: Age::Modified,
            file: None,
            pool: None,
        };
        options.check()?;
        Ok(options)
    }

    /// Sections worth emptying after one search by `policy`: one where an index finds it; otherwise so many that searches take
    /// little time, yet only a thousandth of the volume.
    #[must_use]
    pub fn victims_for(policy: &dyn VictimPolicy, sections: u32) -> u32 {
        if policy.is_by_live_alone() { 1 } else { (sections / VICTIMS_SHARE).max(1) }
    }

    /// Sections of the volume.
    #[must_use]
    pub fn sections(&self) -> u32 {
        self.segments / self.segments_per_section.max(1)
    }

    /// Whether there can be such a volume; [`Volume::new`](crate::Volume::new) asks too.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn check(&self) -> Result<()> {
        self.check_volume()?;
        self.make_placement().map(|_| ())
    }

    /// As [`check`](Options::check), whatever the placement.
    pub(crate) fn check_volume(&self) -> Result<()> {
        let wrong = |reason: String| Err(Error::Options(reason));
        let per_section = self.segments_per_section;
        if per_section == 0 || per_section > MAX_SEGMENTS / 2 || self.segments > MOST_SEGMENTS {
            return wrong(format!("{} segments in sections of {per_section}: too many, or none", self.segments));
        }
        if !self.segments.is_multiple_of(per_section) {
            return wrong(format!("{} segments are not whole sections of {per_section}", self.segments));
        }
        if ![2, 4, 6].contains(&self.logs) {
            return wrong(format!("{} logs, expected 2, 4 or 6", self.logs));
        }
        match self.cleaning {
            Cleaning::FreeSections { least, .. } if least < 2 => {
                return wrong(format!("{least} free sections, expected at least 2"));
            }
            Cleaning::GarbageShare { most, .. } if !(0.001..0.999).contains(&most) => {
                return wrong(format!("a garbage share of {most}, expected a number between 0 and 1"));
            }
            _ => {}
        }
        let kept = u64::from(self.cleaning.kept_sections());
        let victims = match self.cleaning {
            Cleaning::FreeSections { victims, .. } | Cleaning::GarbageShare { victims, .. } => victims,
            Cleaning::Paced { .. } => 1,
        };
        if victims == 0 {
            return wrong("no victims are chosen, expected at least 1".into());
        }
        let section_blocks = u64::from(per_section) * u64::from(BLOCKS_PER_SEGMENT);
        let usable = u64::from(self.sections()).saturating_sub(kept + u64::from(WORKING_SECTIONS)) * section_blocks;
        if self.blocks == 0 || u64::from(self.blocks) > usable {
            let sections = self.sections();
            return wrong(format!(
                "{} blocks in use of {sections} sections with {kept} kept free: at most {usable} fit",
                self.blocks
            ));
        }
        self.file.as_ref().map_or(Ok(()), |file| self.check_file(file))
    }

    pub(crate) fn make_placement(&self) -> Result<Box<dyn Placement>> {
        let options = PlacementOptions { groups: self.groups, ..PlacementOptions::new(self.logs) };
        self.placement.make(&options).map_err(Error::Options)
    }

    fn check_file(&self, file: &FileModel) -> Result<()> {
        let mut taken: Vec<u32> = file.logs.iter().map(|log| log.segment).collect();
        taken.sort_unstable();
        taken.dedup();
        let fits =
            |log: &LogStart| log.segment < self.segments && log.live <= log.offset && log.offset < BLOCKS_PER_SEGMENT;
        if self.logs != 6 || taken.len() != 6 || !file.logs.iter().all(fits) {
            return Err(Error::Options("a file needs six logs in six segments, each with room".into()));
        }
        let inode_log = basalt_segments::SegmentKind::WarmNode.index();
        if file.inode_slots == 0 || file.logs[inode_log].live == 0 {
            return Err(Error::Options("a file needs an inode with addresses, in the warm node log".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks are numbered by a `u32`, and the largest is none.
    #[test]
    fn the_largest_volume_is_a_segment_below_16_tib() {
        assert!(Options::of((16 << 40) - (2 << 20), 85).is_ok());
        let error = Options::of(16 << 40, 85).unwrap_err().to_string();
        assert!(error.contains("17592186044416 bytes are more than 8388607 segments of 2 MiB"), "{error}");
    }
}
