//! Which log a block is written to.
//!
//! A placement policy groups blocks that will die at about the same time, so that segments tend to be either full or
//! empty and cleaning moves little. One policy is one file of this module, named after its source; to add one, write
//! the file, name it here, and add it to [`POLICIES`]. Policies that need more than a block's own traits (its hotness,
//! say) get it as a new field of [`BlockTraits`] or hold it themselves.

mod hints;
mod page_cache;
mod static_f2fs;

pub use hints::{Hints, Recalled, SegmentHints};
pub use page_cache::{ByPageCache, LONG_RUN, Moved, RunLength};
pub use static_f2fs::StaticPlacement;

use crate::{List, LogId, MainBlock, SectionView, Segment, SegmentKind, Touches, VictimPolicy};

/// Every placement policy, by which options, help texts and reports list them. The first is the default.
pub static POLICIES: &[Policy] = &[static_f2fs::POLICY, page_cache::RUN_LENGTH, page_cache::PAGE_CACHE];

/// The names of all, in the order of [`POLICIES`].
#[must_use]
pub fn names() -> Vec<&'static str> {
    POLICIES.iter().map(|policy| policy.name).collect()
}

/// The policy of this name, as in options; `None` if there is none.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Policy> {
    POLICIES.iter().find(|policy| policy.name == name)
}

/// What a placement can be told when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementOptions {
    /// Logs of the volume: 2, 4 or 6.
    pub logs: u8,
    /// Groups of data; `None` leaves that to the placement.
    pub groups: Option<u8>,
    /// What touches a page of the lists that the placement looks at; `None` leaves that to the placement.
    pub touches: Option<Touches>,
}

impl PlacementOptions {
    /// With so many logs, and nothing else said.
    #[must_use]
    pub const fn new(logs: u8) -> PlacementOptions {
        PlacementOptions { logs, groups: None, touches: None }
    }

    /// For placements that need six logs.
    ///
    /// # Errors
    /// The reason, when there are fewer, as [`Policy::make`] goes on with it.
    pub fn expect_six_logs(&self) -> Result<(), String> {
        if self.logs == 6 { Ok(()) } else { Err(format!("does not work with logs={}; use logs=6", self.logs)) }
    }

    /// The groups that are asked for, or so many.
    #[must_use]
    pub fn groups_or(&self, usual: usize) -> usize {
        self.groups.map_or(usual, usize::from)
    }
}

impl Default for PlacementOptions {
    /// Six logs, F2FS's default.
    fn default() -> Self {
        PlacementOptions::new(6)
    }
}

/// Makes a placement for an opened volume; an error is the reason, behind "placement `NAME` ".
pub type Make = fn(&PlacementOptions) -> Result<Box<dyn Placement>, String>;

/// A placement policy that can be chosen.
#[derive(Clone, Copy)]
pub struct Policy {
    /// The name in options and reports.
    pub name: &'static str,
    /// What it does, in a few words for help texts.
    pub about: &'static str,
    /// Groups at most, where users may say how many.
    pub groups_max: Option<u8>,
    /// The victim policy that it is meant for, if that is not the volume's usual one.
    pub victim: Option<&'static dyn VictimPolicy>,
    /// Whether it looks at a page cache's lists ([`BlockTraits::list`]), so that users may say what touches a page.
    pub has_lists: bool,
    /// Whether it tells how soon blocks die ([`Placement::rate`]), which some victim policies [weigh](VictimPolicy::weighs_rate).
    pub has_rates: bool,
    make: Make,
}

impl Policy {
    /// One that decides on its groups itself, and goes with the usual victim policy.
    #[must_use]
    pub const fn new(name: &'static str, about: &'static str, make: Make) -> Policy {
        Policy { name, about, groups_max: None, victim: None, has_lists: false, has_rates: false, make }
    }

    /// The same, with as many groups as users say, from 1 to this.
    #[must_use]
    pub const fn with_groups(self, most: u8) -> Policy {
        Policy { groups_max: Some(most), ..self }
    }

    /// The same, meant for this victim policy.
    #[must_use]
    pub const fn with_victim(self, victim: &'static dyn VictimPolicy) -> Policy {
        Policy { victim: Some(victim), ..self }
    }

    /// The same, which looks at a page cache's lists.
    #[must_use]
    pub const fn with_lists(self) -> Policy {
        Policy { has_lists: true, ..self }
    }

    /// The same, which tells how soon blocks die.
    #[must_use]
    pub const fn with_rates(self) -> Policy {
        Policy { has_rates: true, ..self }
    }

    /// One for an opened volume.
    ///
    /// # Errors
    /// The reason, in one line, when it does not work with these options.
    pub fn make(&self, options: &PlacementOptions) -> Result<Box<dyn Placement>, String> {
        self.check(options)
            .and_then(|()| (self.make)(options))
            .map_err(|why| format!("placement `{}` {why}", self.name))
    }

    fn check(&self, options: &PlacementOptions) -> Result<(), String> {
        match (options.groups, self.groups_max) {
            (Some(_), None) => return Err("has groups of its own, or none: leave out groups=".into()),
            (Some(groups), Some(most)) if !(1..=most).contains(&groups) => {
                return Err(format!("has 1 to {most} groups, not {groups}"));
            }
            _ => {}
        }
        if options.touches.is_some() && !self.has_lists {
            return Err("looks at no page cache's lists: touches= is for `page-cache`".into());
        }
        Ok(())
    }
}

impl Default for &Policy {
    /// What F2FS does.
    fn default() -> Self {
        &static_f2fs::POLICY
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a placement may know of the block to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockTraits {
    /// A node block (inode, direct node, indirect node, or extended attributes); otherwise a data block.
    pub node: bool,
    /// Of nodes: an inode, a direct node or a block of extended attributes, and not an indirect node.
    pub direct_node: bool,
    /// The owning file is a directory.
    pub of_directory: bool,
    /// Of data: moved by cleaning, or of a file with a cold extension or marked cold.
    pub cold: bool,
    /// Of data: of a file marked hot.
    pub hot: bool,
    /// The inode number of the owning file.
    pub file: u32,
    /// Of data: which block of the file it is.
    pub index: u32,
    /// Why it is written.
    pub reason: Reason,
    /// Of data: where the block lies until now. `None` if it is new: behind the end of the file, in a hole, or written after it was cut off.
    pub from: Option<MainBlock>,
    /// Of data: the list of a page cache that its page is on at this moment. `None` if it is on none, or nobody keeps lists: the engine does
    /// for placements that [ask for it](Placement::touches).
    pub list: Option<List>,
    /// Of data that users write: how many neighbouring blocks of its file are written one after the other with it in one go, itself included.
    /// 0 if nobody knows. A go has an end: 256 blocks of writeback, or a call of write(2).
    pub run: u32,
}

/// Why a block is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A program changed it, and it goes to the device sooner or later.
    #[default]
    Writeback,
    /// A program changed it, and waits for it to be durable.
    Fsync,
    /// Cleaning copies it: nobody changed it.
    Cleaning,
}

/// Decides which log a block is written to, and hears what becomes of blocks and segments.
///
/// Everything happens under one lock, in the order in which it is told. Methods take `&self`: a policy keeps what it learns behind a
/// `Mutex` or in atomics.
pub trait Placement: Send + Sync {
    /// What touches a page of the lists that it wants to know of ([`BlockTraits::list`]); `None` if it looks at none.
    fn touches(&self) -> Option<Touches> {
        None
    }

    /// The kinds of segments that logs beside F2FS's six write: [`LogId::more`] names them by their index in this list. Each needs a
    /// free segment, so none opens a new one where sections run short, and those that have begun one are closed then: its blocks go to the
    /// recorded log of its kind. Each takes up to 1 MiB of memory for blocks on their way.
    fn more_logs(&self) -> &[SegmentKind] {
        &[]
    }

    /// What it keeps of blocks has to fit into so many bytes of memory: the engine says so once, before it asks for anything else. One that
    /// does not keep to it may take memory in proportion to the volume.
    fn limit_memory(&self, _bytes: usize) {}

    /// Users are about to overwrite the blocks at these places: whoever keeps something for each may read it now, all of it at a time. It need
    /// not come to that, and not every block is told.
    fn note_coming(&self, _places: &[MainBlock]) {}

    /// The log for this block: one of segments for data for data, one of segments for nodes for nodes. Any other answer counts as the
    /// one of [`StaticPlacement`].
    ///
    /// An fsync puts a file's direct nodes into the recorded log of [`SegmentKind::WarmNode`], whatever the answer. Where one of them
    /// went to another log before, the fsync is a checkpoint.
    fn log(&self, block: &BlockTraits) -> LogId;

    /// The block got this place. It is not told of metadata, of seals, nor of dead blocks that cleaning copies because recovery may need
    /// them, and does not hear of their end.
    fn note_written(&self, _block: &BlockTraits, _place: MainBlock) {}

    /// What was at this place is overwritten, moved or deleted.
    fn note_dead(&self, _place: MainBlock) {}

    /// A log has filled this segment, or left it.
    fn note_sealed(&self, _log: LogId, _segment: Segment) {}

    /// This segment is free: what was in it is gone.
    fn note_free(&self, _segment: Segment) {}

    /// The volume's clock, in nanoseconds: told before dirty blocks are sorted, before each section of them is written, and before victims
    /// are chosen. Only volumes that collect dirty blocks in a pool tell it: those of the volume simulator, if they are told to.
    fn note_time(&self, _now: u64) {}

    /// The dirty blocks of a pool are to be written: [`log`](Placement::log) is asked of each, and says the same until the next time.
    fn note_writing(&self) {}

    /// How soon the live blocks of a section will die, as far as the policy has learned it: the expected deaths of one block for each
    /// block that is written from now on. `None` if it does not know. Victim policies that [weigh it](crate::VictimPolicy::weighs_rate)
    /// get it as [`SectionView::rate`]; the other fields of the section are set.
    fn rate(&self, _section: &SectionView) -> Option<f64> {
        None
    }

    /// What it knows of the volume, to be kept until the volume is opened again: at most `most` bytes, with
    /// [`SegmentHints::OVERHEAD`] for each segment. `None` if it learns nothing that is worth it.
    fn hints(&self, _most: usize) -> Option<Hints> {
        None
    }

    /// What the same policy knew of the volume when it was open before, of those segments that nothing was written to since: told once, after
    /// the [limit](Self::limit_memory). The bytes come from the volume, and may be anything.
    fn recall(&self, _general: &[u8], _segments: &[Recalled<'_>]) {}

    /// Whether the answer depends neither on [`file`](BlockTraits::file), [`index`](BlockTraits::index), [`from`](BlockTraits::from),
    /// [`list`](BlockTraits::list) and [`run`](BlockTraits::run) nor on what came before, so that one answer does for many blocks.
    fn is_by_type_alone(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every policy keeps data and nodes apart, for every number of logs that it works with.
    #[test]
    fn policies_are_found_by_their_names_and_keep_data_and_nodes_apart() {
        for policy in POLICIES {
            assert_eq!(by_name(policy.name).map(|found| found.name), Some(policy.name));
            for placement in [2, 4, 6].into_iter().filter_map(|logs| policy.make(&PlacementOptions::new(logs)).ok()) {
                for node in [false, true] {
                    let block = BlockTraits { node, direct_node: node, ..BlockTraits::default() };
                    let (log, more) = (placement.log(&block), placement.more_logs());
                    let mut kinds = SegmentKind::ALL.iter().chain(more);
                    assert_eq!(kinds.nth(log.index()).map(|kind| kind.is_node()), Some(node), "{}", policy.name);
                }
            }
        }
        assert!(by_name("").is_none());
        assert_eq!(<&Policy>::default().name, POLICIES[0].name);
    }

    #[test]
    fn options_that_a_policy_does_not_have_are_refused_with_the_reason() {
        let refusal = |name: &str, options: PlacementOptions| by_name(name).unwrap().make(&options).err().unwrap();
        let six = PlacementOptions::default();
        let groups = refusal("static", PlacementOptions { groups: Some(4), ..six });
        assert_eq!(groups, "placement `static` has groups of its own, or none: leave out groups=");
        let touches = PlacementOptions { touches: Some(Touches::Reads), ..six };
        assert!(refusal("run-length", touches).starts_with("placement `run-length` looks at no page cache's lists"));
        let by_lists = by_name("page-cache").unwrap().make(&touches).unwrap();
        assert_eq!(by_lists.touches(), Some(Touches::Reads));
        let two = refusal("page-cache", PlacementOptions::new(2));
        assert_eq!(two, "placement `page-cache` needs a hot and a cold log: with 2 logs, there is one data log");
        assert!(refusal("static", PlacementOptions::new(5)).contains("logs=5"));
        let five = Policy::new("five", "", |options| {
            options.expect_six_logs().map(|()| Box::new(StaticPlacement::default()) as _)
        });
        let five = five.with_groups(5);
        let with = |groups| five.make(&PlacementOptions { groups: Some(groups), ..six }).err();
        assert!([1, 5].iter().all(|&groups| with(groups).is_none()));
        assert_eq!(with(0).as_deref(), Some("placement `five` has 1 to 5 groups, not 0"));
        assert!(with(6).is_some() && five.make(&PlacementOptions::new(4)).is_err());
    }
}
