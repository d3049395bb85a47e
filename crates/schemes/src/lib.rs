//! Placement schemes of the literature, to compare with, and one of our own: as placements and victim policies of `basalt-segments`.
//!
//! The volume simulator and the engine run them as they are, because they are ordinary [`Placement`](basalt_segments::Placement)s. Those in
//! [`BOUNDED`] keep to a limit of memory, and are options of mounts too. The others are for comparisons: each keeps some bytes for every block
//! that was ever written. [`Hazard`] and [`Auto`] give what they
//! know as [hints](basalt_segments::placement::Hints) to be kept with the volume; the others forget it when the volume is closed, and learn anew.
//!
//! | scheme | name | groups blocks by |
//! |---|---|---|
//! | [`SepBit`] | `sepbit` | how long the block that they replace has lived; copies by their age |
//! | [`Dac`] | `dac` | a level that rises with each overwrite and falls with each copy |
//! | [`Mdc`] | `mdc` | how often their segment lost blocks; with the victim policy [`DecliningCost`] |
//! | [`Sfs`] | `sfs-sepbit` | hotness around centres, as SepBIT's authors read SFS |
//! | [`Sfs`] | `sfs-log` | hotness around centres, on a logarithmic scale |
//! | [`FaithfulSfs`] | `sfs` | hotness around centres, as the SFS paper has it; it needs a pool of dirty blocks; with [`CostHotness`] |
//! | [`Hazard`] | `hazard` | the remaining life of blocks with the same history (ours); with the victim policy [`LeastGainByWaiting`] |
//! | [`Auto`] | `auto` | nothing until they are overwritten, then as `hazard` (ours); with the victim policy [`AutoVictim`] |
//! | [`Oracle`] | `oracle` | when they will be overwritten: it has to be told the future |
//!
//! Blocks of directories and nodes go where F2FS has them. All schemes need six logs.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

mod auto;
mod blocks;
mod cost_hotness;
mod dac;
mod declining_cost;
mod groups;
mod hazard;
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

/// The schemes that a name is enough for: all but the [`Oracle`] and [`FaithfulSfs`].
pub static PLACEMENTS: &[Policy] =
    &[sepbit::POLICY, dac::POLICY, mdc::POLICY, sfs::SEPBIT_POLICY, sfs::LOG_POLICY, hazard::POLICY, auto::POLICY];

/// Of [`PLACEMENTS`], those that [keep to a limit of memory](basalt_segments::Placement::limit_memory): what they have not seen for long they
/// take for new.
pub static BOUNDED: &[Policy] = &[sepbit::POLICY, dac::POLICY, mdc::POLICY, hazard::POLICY, auto::POLICY];

/// Victim policies that belong to schemes, or are for comparisons alone.
pub static VICTIMS: &[&dyn VictimPolicy] =
    &[&DecliningCost, &LeastGainByWaiting, &AutoVictim, &CostHotness, &Timestamp];

/// Of [`VICTIMS`], those that need no placement of a certain kind.
pub static VICTIMS_FOR_ALL: &[&dyn VictimPolicy] = &[&DecliningCost, &LeastGainByWaiting, &AutoVictim, &Timestamp];

/// The name of the [`Oracle`].
pub const ORACLE: &str = "oracle";

/// The name of [`FaithfulSfs`].
pub const SFS: &str = "sfs";

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

    #[test]
    fn each_name_is_one_policy_and_some_need_more_than_a_name() {
        let mut names: Vec<&str> = placements().map(|policy| policy.name).collect();
        assert!(names.iter().all(|name| placement_by_name(name).is_some_and(|found| found.name == *name)));
        names.extend([ORACLE, SFS]);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(placement_by_name(ORACLE).is_none() && placement_by_name(SFS).is_none());
        for policy in victims() {
            assert_eq!(victim_by_name(policy.name()).map(VictimPolicy::name), Some(policy.name()));
        }
    }

    #[test]
    fn schemes_need_six_logs() {
        for policy in PLACEMENTS {
            assert!((policy.make)(6).is_some() && (policy.make)(2).is_none() && (policy.make)(4).is_none());
        }
    }
}
