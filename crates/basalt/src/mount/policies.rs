//! The placements and victim policies that a mount can have.

use std::fmt::Write;

use basalt_segments::placement::{self, Policy};
use basalt_segments::{VictimPolicy, victim};

/// The placements that a mount can have: their memory has a limit.
fn placements() -> impl Iterator<Item = &'static Policy> {
    placement::POLICIES.iter().chain(basalt_schemes::PLACEMENTS)
}

fn victims() -> impl Iterator<Item = &'static dyn VictimPolicy> {
    victim::POLICIES.iter().chain(basalt_schemes::VICTIMS).copied()
}

/// The placement of this name.
///
/// # Errors
/// A text for the user that has all names.
pub fn placement(name: &str) -> Result<&'static Policy, String> {
    placements()
        .find(|policy| policy.name == name)
        .ok_or_else(|| expected(&placements().map(|policy| policy.name).collect::<Vec<_>>()))
}

/// The victim policy of this name.
///
/// # Errors
/// A text for the user that has all names.
pub fn victim(name: &str) -> Result<&'static dyn VictimPolicy, String> {
    victims()
        .find(|policy| policy.name() == name)
        .ok_or_else(|| expected(&victims().map(VictimPolicy::name).collect::<Vec<_>>()))
}

/// Whether a victim policy goes with a placement.
///
/// # Errors
/// The reason for the user when it would be another policy than its name says.
pub fn check(placement: &Policy, victim: &dyn VictimPolicy) -> Result<(), String> {
    if !victim.weighs_rate() || placement.has_rates {
        return Ok(());
    }
    let names: Vec<&str> = placements().filter(|policy| policy.has_rates).map(|policy| policy.name).collect();
    let (last, others) = names.split_last().expect("some placements learn");
    Err(format!(
        "weighs what a placement learns, and `{}` tells nothing: use placement={} or {last}, or another policy",
        placement.name,
        others.join(", ")
    ))
}

/// Whether as many groups can be asked of a placement.
///
/// # Errors
/// The reason for the user when it has groups of its own, or none: with the names of those that leave them to the user.
pub fn check_groups(placement: &Policy, groups: Option<u8>) -> Result<(), String> {
    if groups.is_none() || placement.groups_max.is_some() {
        return Ok(());
    }
    let names: Vec<&str> =
        placements().filter(|policy| policy.groups_max.is_some()).map(|policy| policy.name).collect();
    Err(format!("is for placement={}; `{}` has groups of its own, or none", names.join(" or "), placement.name))
}

/// Adds a line for each policy.
pub fn add_help(text: &mut String) {
    // Writing to a String cannot fail.
    text.push_str("\nPlacement policies:\n");
    for policy in placements() {
        let _ = writeln!(text, "  {:<22} {}", policy.name, policy.about);
    }
    text.push_str("\nVictim policies:\n");
    for policy in victims() {
        let _ = writeln!(text, "  {:<22} {}", policy.name(), policy.about());
    }
}

/// What is said of a value that is none of `names`.
pub fn expected(names: &[&str]) -> String {
    format!("expected {}", names.join(" or "))
}
