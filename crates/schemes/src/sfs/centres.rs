//! The centres of the groups, and how they follow the segments.

use super::Scale;
use crate::quantize::{Quantization, Quantizer};

/// Rounds of each quantization: the paper's.
const ROUNDS: u32 = 3;
/// For the first centres of [`Scale::Paper`].
const SEED: u64 = 1;

/// As many centres as there are groups.
pub enum Centres {
    /// Of [`Scale::Linear`] and [`Scale::Logarithmic`].
    Scaled(Scaled),
    /// Of [`Scale::Paper`].
    Paper(Quantizer),
}

impl Centres {
    /// For so many groups.
    pub fn new(count: usize, scale: Scale) -> Centres {
        match scale {
            Scale::Paper => Centres::Paper(Quantizer::new(count, Quantization::Iterative, SEED)),
            Scale::Linear => Centres::Scaled(Scaled { scale, count, centres: vec![0.0; count] }),
            Scale::Logarithmic => Centres::Scaled(Scaled { scale, count, centres: Vec::new() }),
        }
    }

    /// The group with the nearest centre; the coldest where there are no centres yet.
    pub fn group(&self, hotness: f64) -> usize {
        match self {
            Centres::Scaled(scaled) => scaled.group(hotness),
            Centres::Paper(quantizer) => quantizer.group(hotness),
        }
    }

    /// Moves the centres to where the segments are, by their hotness in any order.
    pub fn update(&mut self, segments: &[f64]) {
        match self {
            Centres::Scaled(scaled) => scaled.update(segments),
            Centres::Paper(quantizer) => quantizer.update(segments),
        }
    }
}

pub struct Scaled {
    scale: Scale,
    count: usize,
    /// Falling; on the scale. None until segments were sealed, if logarithmic.
    centres: Vec<f64>,
}

impl Scaled {
    fn on_scale(&self, hotness: f64) -> f64 {
        if self.scale == Scale::Logarithmic { hotness.ln() } else { hotness }
    }

    fn group(&self, hotness: f64) -> usize {
        if self.centres.is_empty() { self.count - 1 } else { nearest(&self.centres, self.on_scale(hotness)) }
    }

    fn update(&mut self, segments: &[f64]) {
        if segments.len() <= self.count {
            return;
        }
        let segments: Vec<f64> = segments.iter().map(|&hotness| self.on_scale(hotness)).collect();
        if self.centres.is_empty() {
            self.spread(&segments);
        }
        for _ in 0..ROUNDS {
            self.move_once(&segments);
        }
        self.centres.sort_unstable_by(|one, other| other.total_cmp(one));
    }

    /// The first centres.
    fn spread(&mut self, segments: &[f64]) {
        let (least, most) =
            segments.iter().fold((f64::MAX, f64::MIN), |(least, most), &one| (least.min(one), most.max(one)));
        let at = |part: usize| most - (most - least) * (2 * part + 1) as f64 / (2 * self.count) as f64;
        self.centres = (0..self.count).map(at).collect();
    }

    fn move_once(&mut self, segments: &[f64]) {
        let mut sums = vec![(0.0, 0u32); self.count];
        for &hotness in segments {
            let (sum, members) = &mut sums[nearest(&self.centres, hotness)];
            (*sum, *members) = (*sum + hotness, *members + 1);
        }
        for (centre, (sum, members)) in self.centres.iter_mut().zip(sums) {
            match (members, self.scale) {
                (0, Scale::Linear) => *centre = 0.0,
                (0, _) => {}
                _ => *centre = sum / f64::from(members),
            }
        }
    }
}

/// The centre that is the nearest, the last of equals.
fn nearest(centres: &[f64], hotness: f64) -> usize {
    let distances = centres.iter().map(|centre| (centre - hotness).abs()).enumerate().rev();
    distances.min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(0, |(at, _)| at)
}
