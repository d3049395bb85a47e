//! How a volume is opened: one place for names and defaults, read by the command line and by reports.

use std::sync::Arc;
use std::time::Duration;

use basalt_segments::cleaning::KeepFree;
use basalt_segments::placement::{self, PlacementOptions, RunLength};
use basalt_segments::slack::{DeviceClass, DeviceTimes, FlashPage};
use basalt_segments::{CostBenefit, Greedy, Touches, VictimPolicy};

use crate::learner::Learner;

/// When reading a file changes its access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atime {
    /// When it is older than the last change, or than a day.
    #[default]
    Relatime,
    /// Never.
    Noatime,
    /// Always.
    Strict,
}

/// How cleaning reads the blocks that it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VictimReads {
    /// Those near each other in one request, with the dead ones between them.
    #[default]
    Runs,
    /// Each with a request of its own that is waited for. It is slower, and made for comparisons: F2FS in Linux has a request for each block
    /// too, but several under way, and the block layer may merge neighbours (`gc_data_segment` reads ahead under a plug).
    Single,
}

/// When an fsync tells what changed of a file, in place of writing its nodes: see `layout/delta.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deltas {
    /// While other F2FSs are kept off the volume anyway: once cleaning was committed by the journal.
    #[default]
    Auto,
    /// Wherever there is a cleaning journal that may be used. From the first fsync on other F2FSs are kept off until the volume is unmounted.
    On,
    /// Never.
    Off,
}

impl Deltas {
    /// All of them.
    pub const ALL: [Deltas; 3] = [Deltas::Auto, Deltas::On, Deltas::Off];

    /// The one of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Deltas> {
        Deltas::ALL.into_iter().find(|deltas| deltas.name() == name)
    }

    /// The name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Deltas::Auto => "auto",
            Deltas::On => "on",
            Deltas::Off => "off",
        }
    }
}

/// Where logs go on when free segments run short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reclaim {
    /// In free segments, which cleaning makes: writing stays sequential.
    #[default]
    Clean,
    /// In the slack of segments that are in use, as F2FS in Linux does (slack space recycling, SSR): nothing is copied, and writes are
    /// scattered. The log of the roll-forward chain always goes on in a free segment. Cleaning begins where there is no slack.
    Slack,
    /// As [`Slack`](Reclaim::Slack), but the live blocks that split the holes of a segment are copied out first, where the device's
    /// [times](OpenOptions::times) say that this pays (partial garbage collection). A commit of the cleaning journal, or a checkpoint, comes
    /// before their places are written.
    Partial,
}

impl Reclaim {
    /// All of them.
    pub const ALL: [Reclaim; 3] = [Reclaim::Clean, Reclaim::Slack, Reclaim::Partial];

    /// The one of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Reclaim> {
        Reclaim::ALL.into_iter().find(|reclaim| reclaim.name() == name)
    }

    /// The name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reclaim::Clean => "clean",
            Reclaim::Slack => "slack",
            Reclaim::Partial => "partial",
        }
    }
}

/// Options of [`F2fs::open`](crate::F2fs::open).
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Refuse every change, and write nothing to the device.
    pub read_only: bool,
    /// Read what is left of a damaged volume: implies `read_only`, goes on where the damage is in something that reading does not
    /// need, and leaves out what is broken, with a line in the log.
    pub rescue: bool,
    /// Active logs: 2, 4 or 6.
    pub logs: u8,
    /// Which log each block is written to: one of [`basalt_segments::placement::POLICIES`], or another one. What it keeps of blocks may take
    /// an eighth of [`cache_bytes`](Self::cache_bytes) besides.
    pub placement: &'static placement::Policy,
    /// Groups of data, where the placement [leaves them to the user](placement::Policy::groups_max); `None`: as many as it usually has.
    pub groups: Option<u8>,
    /// What touches a page, where the placement [looks at a page cache's lists](placement::Policy::has_lists); `None`: its own choice.
    pub touches: Option<Touches>,
    /// Which section is cleaned while a writer waits: one of [`basalt_segments::victim::POLICIES`].
    pub victim: &'static dyn VictimPolicy,
    /// Which section is cleaned while the volume is idle.
    pub background_victim: &'static dyn VictimPolicy,
    /// Memory for cached nodes, directory blocks and data not yet written, in bytes.
    pub cache_bytes: usize,
    /// Longest time between checkpoints while something is dirty.
    pub checkpoint_interval: Duration,
    /// Longest time until a change is durable without being asked for.
    pub commit_interval: Duration,
    /// Tell the device what is free after each checkpoint.
    pub discard: bool,
    /// Clean sections while nothing else happens.
    pub background_cleaning: bool,
    /// Sections that cleaning empties at most before they are freed by one checkpoint, or one commit of the journal; `None`: as many
    /// as room and pace allow, which is faster. 1 is what F2FS in Linux does in the foreground.
    pub sections_per_commit: Option<u32>,
    /// How much of what the format reserves cleaning keeps free before the volume is full.
    pub keep_free: KeepFree,
    /// Where logs go on when free segments run short.
    pub reclaim: Reclaim,
    /// How long the device takes for runs of blocks: what [`Reclaim::Partial`] plans by.
    pub times: DeviceTimes,
    /// The device's flash page: slack is whole pages. [`FlashPage::BLOCK`] where it is not known.
    pub flash_page: FlashPage,
    /// Who learns better times from the engine's requests: they replace `times` while the volume is in use. The device has to tell it of them
    /// ([`StopwatchDevice`](basalt_device::StopwatchDevice)).
    pub learner: Option<Arc<Learner>>,
    /// How cleaning reads what it moves.
    pub victim_reads: VictimReads,
    /// How long nothing must have happened for the volume to count as idle.
    pub idle_after: Duration,
    /// Commit cleaning by the journal, where the volume has one and there are 6 logs; else by checkpoints.
    pub journal: bool,
    /// Bytes of pre-invalid blocks from which on a cleaning is committed by a checkpoint all the same; `None` leaves that to
    /// [the adaptive rule](basalt_segments::cleaning::Rule::Adaptive).
    pub pre_invalid_bytes: Option<u64>,
    /// When an fsync writes a delta.
    pub delta: Deltas,
    /// An inode is its own seal where it can be: an fsync costs a block less. Versions of Basalt that do not know this drop such fsyncs when
    /// they recover the volume after a power cut.
    pub inside_seals: bool,
    /// Access times.
    pub atime: Atime,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            read_only: false,
            rescue: false,
            logs: 6,
            placement: Default::default(),
            groups: None,
            touches: None,
            // As Linux's F2FS: the least work while somebody waits.
            victim: &Greedy,
            background_victim: &CostBenefit,
            cache_bytes: 64 << 20,
            checkpoint_interval: Duration::from_secs(60),
            commit_interval: Duration::from_secs(5),
            discard: true,
            background_cleaning: true,
            sections_per_commit: None,
            keep_free: KeepFree::Adaptive,
            reclaim: Reclaim::Clean,
            times: DeviceClass::default().device_times(),
            flash_page: FlashPage::BLOCK,
            learner: None,
            victim_reads: VictimReads::Runs,
            // As Linux's F2FS (`DEF_IDLE_INTERVAL`).
            idle_after: Duration::from_secs(5),
            journal: true,
            pre_invalid_bytes: None,
            delta: Deltas::Auto,
            inside_seals: true,
            atime: Atime::Relatime,
        }
    }
}

/// Bytes of the flash page that cards and eMMC are taken to have, which seldom tell.
const CARD_PAGE_BYTES: u32 = 16 << 10;

impl OpenOptions {
    /// What suits a device of this class, as `basalt mount` opens volumes: placement `run-length`, and by class where logs go on when free segments run
    /// short, the flash page, and what the device takes for runs of blocks. The choice follows from measurements: docs/policies.md, "Defaults".
    #[must_use]
    pub fn for_class(class: DeviceClass) -> OpenOptions {
        let (reclaim, page_bytes) = match class {
            DeviceClass::Emmc => (Reclaim::Partial, CARD_PAGE_BYTES),
            DeviceClass::Sd => (Reclaim::Clean, CARD_PAGE_BYTES),
            DeviceClass::Ssd | DeviceClass::Hdd => (Reclaim::Clean, FlashPage::BLOCK.bytes()),
        };
        OpenOptions {
            placement: placement::by_name(RunLength::NAME).unwrap_or_default(),
            reclaim,
            flash_page: FlashPage::of_bytes(page_bytes).unwrap_or_default(),
            times: class.device_times(),
            ..OpenOptions::default()
        }
    }

    /// What the placement is made with.
    #[must_use]
    pub fn placement_options(&self) -> PlacementOptions {
        PlacementOptions { logs: self.logs, groups: self.groups, touches: self.touches }
    }
}

/// How much of what is behind the last checkpoint is recovered, from most to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The cleaning journal, and what was fsynced.
    All,
    /// The cleaning journal.
    Journal,
    /// As much of a damaged cleaning journal as makes sense.
    RestOfJournal,
}

/// How a volume is recovered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recovery {
    /// How much.
    pub extent: Extent,
    /// For a repair. Where the SIT contradicts the checkpoint's counts, what is live is found anew, by reading every node; and where the
    /// chain of fsyncs is broken, what counts behind that is recovered too. A mount is read-only instead.
    pub is_repair: bool,
}

impl Recovery {
    /// As a mount does it.
    pub const MOUNT: Recovery = Recovery { extent: Extent::All, is_repair: false };
}
