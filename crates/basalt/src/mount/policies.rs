//! The placements and victim policies that a mount can have.

use std::fmt::Write;

use basalt_f2fs::OpenOptions;
use basalt_segments::placement::{self, Policy};
use basalt_segments::{VictimPolicy, victim};

/// The placements that a mount can have: their memory has a limit.
fn placements() -> impl Iterator<Item = &'static Policy> {
    placement::POLICIES.iter().chain(basalt_schemes::BOUNDED)
}

fn victims() -> impl Iterator<Item = &'static dyn VictimPolicy> {
    victim::POLICIES.iter().chain(basalt_schemes::VICTIMS_FOR_ALL).copied()
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

/// The victim policy that goes with this placement if the user names none.
pub fn victim_for(placement: &Policy) -> &'static dyn VictimPolicy {
    match placement.name {
        "auto" => &basalt_schemes::AutoVictim,
        _ => OpenOptions::default().victim,
    }
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
