//! Placement schemes of the literature, to compare with, and one of our own: as placements and victim policies of `basalt-segments`.
//!
//! The volume simulator and the engine run them as they are, because they are ordinary [`Placement`](basalt_segments::Placement)s. Those that
//! a name is enough for keep to a limit of memory, and are options of mounts too. [`Sfs`], [`Hazard`] and [`Auto`] give what they
//! know as [hints](basalt_segments::placement::Hints) to be kept with the volume; the others forget it when the volume is closed, and learn anew.
//!
//! | scheme | name | groups blocks by |
//! |---|---|---|
//! | [`SepBit`] | `sepbit` | how long the block that they replace has lived; copies by their age |
//! | [`Dac`] | `dac` | a level that rises with each overwrite and falls with each copy |
//! | [`Mdc`] | `mdc` | how often their segment lost blocks; with the victim policy [`DecliningCost`] |
//! | [`Sfs`] | `sfs-sepbit` | hotness around centres, as SepBIT's authors read SFS |
//! | [`Sfs`] | `sfs-log` | hotness around centres, on a logarithmic scale |
//! | [`Sfs`] | `sfs` | hotness around centres, as the SFS paper has it, with logs for groups; with [`CostHotness`] |
//! | [`FaithfulSfs`] | `sfs` with a pool | the same, from a pool of dirty blocks, for the volume simulator |
//! | [`Hazard`] | `hazard` | the remaining life of blocks with the same history (ours); with the victim policy [`LeastGainByWaiting`] |
//! | [`Auto`] | `auto` | nothing until they are overwritten, then as `hazard` (ours); with the victim policy [`AutoVictim`] |
//! | [`Oracle`] | `oracle` | when they will be overwritten: it has to be told the future |
//!
//! Blocks of directories and nodes go where F2FS has them. All schemes need six logs.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

mod auto;
mod blocks;
mod boxes;
mod cost_hotness;
mod dac;
mod declining_cost;
mod groups;
mod hazard;
mod hints;
mod hotness;
mod mdc;
mod oracle;
mod quantize;
mod segments;
mod sepbit;
mod sfs;
mod sfs_faithful;
mod timestamp;

pub use auto::Auto;
pub use cost_hotness::CostHotness;
pub use dac::Dac;
pub use declining_cost::DecliningCost;
pub use groups::{GROUPS_MAX, Groups};
pub use hazard::{AutoVictim, Hazard, LeastGainByWaiting};
pub use mdc::Mdc;
pub use oracle::Oracle;
pub use quantize::Quantization;
pub use sepbit::SepBit;
pub use sfs::{Scale, Sfs};
pub use sfs_faithful::{FaithfulSfs, SfsOptions};
pub use timestamp::Timestamp;

use basalt_segments::placement::{self, Policy};
use basalt_segments::{VictimPolicy, victim};

/// The schemes that a name is enough for: all but the [`Oracle`] and [`FaithfulSfs`]. They [keep to a limit of
/// memory](basalt_segments::Placement::limit_memory): what they have not seen for long they take for new, or for like its neighbours.
pub static PLACEMENTS: &[Policy] = &[
    sfs::PAPER_POLICY,
    sfs::LOG_POLICY,
    sfs::SEPBIT_POLICY,
    sepbit::POLICY,
    dac::POLICY,
    mdc::POLICY,
    hazard::POLICY,
    auto::POLICY,
];

/// Victim policies that belong to schemes, or are for comparisons alone.
pub static VICTIMS: &[&dyn VictimPolicy] =
    &[&DecliningCost, &LeastGainByWaiting, &AutoVictim, &CostHotness, &Timestamp];

/// The name of the [`Oracle`].
pub const ORACLE: &str = "oracle";

/// The placements of `basalt-segments`, then these.
pub fn placements() -> impl Iterator<Item = &'static Policy> {
    placement::POLICIES.iter().chain(PLACEMENTS)
}

/// The placement of this name, of either; `None` if there is none.
#[must_use]
pub fn placement_by_name(name: &str) -> Option<&'static Policy> {
    placements().find(|policy| policy.name == name)
}

/// The victim policies of `basalt-segments`, then these.
pub fn victims() -> impl Iterator<Item = &'static dyn VictimPolicy> {
    victim::POLICIES.iter().chain(VICTIMS).copied()
}

/// The victim policy of this name, of either; `None` if there is none.
#[must_use]
pub fn victim_by_name(name: &str) -> Option<&'static dyn VictimPolicy> {
    victims().find(|policy| policy.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::placement::PlacementOptions;

    #[test]
    fn each_name_is_one_policy_and_some_need_more_than_a_name() {
        let mut names: Vec<&str> = placements().map(|policy| policy.name).collect();
        assert!(names.iter().all(|name| placement_by_name(name).is_some_and(|found| found.name == *name)));
        names.push(ORACLE);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(placement_by_name(ORACLE).is_none());
        for policy in victims() {
            assert_eq!(victim_by_name(policy.name()).map(VictimPolicy::name), Some(policy.name()));
        }
    }

    #[test]
    fn schemes_need_six_logs() {
        for policy in PLACEMENTS {
            let works = |logs| policy.make(&PlacementOptions::new(logs)).is_ok();
            assert!(works(6) && !works(2) && !works(4));
        }
    }

    #[test]
    fn each_placement_has_the_groups_that_are_asked_for() {
        for (policy, usual) in [("dac", 6), ("mdc", 6), ("sfs", 4), ("sfs-log", 6), ("sfs-sepbit", 6)] {
            let policy = placement_by_name(policy).unwrap();
            let logs = |groups| {
                let options = PlacementOptions { groups, ..PlacementOptions::default() };
                policy.make(&options).ok().map(|placement| placement.more_logs().len())
            };
            assert_eq!((logs(None), logs(Some(0)), logs(Some(9))), (Some(usual - 3), None, None), "{}", policy.name);
            for groups in 1..=8 {
                assert_eq!(logs(Some(groups)), Some(usize::from(groups).saturating_sub(3)), "{}", policy.name);
            }
        }
        let own = PLACEMENTS.iter().filter(|policy| policy.groups_max.is_none()).map(|policy| policy.name);
        assert_eq!(own.collect::<Vec<_>>(), ["sepbit", "hazard", "auto"]);
    }

    /// The one that the authors had, or that weighs what the placement learns: never one without the other.
    #[test]
    fn each_placement_goes_with_a_victim_policy() {
        let expected = [
            ("sfs", "cost-hotness"),
            ("sfs-log", "cost-benefit"),
            ("sfs-sepbit", "cost-benefit"),
            ("sepbit", "cost-benefit"),
            ("dac", "cost-benefit"),
            ("mdc", "declining-cost"),
            ("hazard", "hazard"),
            ("auto", "auto"),
        ];
        let victims = PLACEMENTS.iter().map(|policy| (policy.name, policy.victim.unwrap().name()));
        assert_eq!(victims.collect::<Vec<_>>(), expected);
        assert!(PLACEMENTS.iter().all(|policy| policy.has_rates || !policy.victim.unwrap().weighs_rate()));
    }
}
