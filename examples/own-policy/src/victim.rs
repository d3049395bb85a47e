//! Which section is cleaned: an old one, and an empty one counts more than in the usual weighing.

use basalt_segments::{SectionView, VictimPolicy};

/// `live / (dead² · age)`: what cleaning gains counts twice, so a section is left alone longer while its blocks still die.
pub struct Patient;

impl VictimPolicy for Patient {
    fn name(&self) -> &'static str {
        "patient"
    }

    fn about(&self) -> &'static str {
        "by age, and by gained space squared"
    }

    fn cost(&self, section: &SectionView, now: u64, _oldest: u64, _youngest: u64) -> f64 {
        let dead = f64::from(section.capacity - section.live);
        let age = now.saturating_sub(section.modified).max(1) as f64;
        f64::from(section.live) / (dead * dead * age)
    }

    fn ranks_ages(&self) -> bool {
        false
    }
}
