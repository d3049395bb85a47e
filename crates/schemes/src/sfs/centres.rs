//! The centres of the groups, and how they follow the segments.

use rustc_hash::FxHashSet;

use super::Scale;
use crate::hints::bytes::Reader;
use crate::quantize::{Quantization, Quantizer};

/// Rounds of each quantization: the paper's.
const ROUNDS: u32 = 3;
/// For the first centres of [`Scale::Paper`].
const SEED: u64 = 1;

/// As many centres as there are groups.
pub struct Centres {
    scale: Scale,
    count: usize,
    how: How,
    /// They come from an earlier time, and were not yet moved to where segments are now.
    is_recalled: bool,
}

enum How {
    /// Of [`Scale::Linear`] and [`Scale::Logarithmic`].
    Scaled(Scaled),
    /// Of [`Scale::Paper`].
    Paper(Quantizer),
}

impl Centres {
    /// For so many groups.
    pub fn new(count: usize, scale: Scale) -> Centres {
        let how = match scale {
            Scale::Paper => How::Paper(Quantizer::new(count, Quantization::Iterative, SEED)),
            Scale::Linear => How::Scaled(Scaled { scale, count, centres: vec![0.0; count] }),
            Scale::Logarithmic => How::Scaled(Scaled { scale, count, centres: Vec::new() }),
        };
        Centres { scale, count, how, is_recalled: false }
    }

    /// The group with the nearest centre; the coldest where there are no centres yet.
    pub fn group(&self, hotness: f64) -> usize {
        match &self.how {
            How::Scaled(scaled) => scaled.group(hotness),
            How::Paper(quantizer) => quantizer.group(hotness),
        }
    }

    /// As bytes: how many there are, and each. Source: SFS, section 3.3: they are kept with the volume.
    pub fn keep(&self, bytes: &mut Vec<u8>) {
        let centres = match &self.how {
            How::Scaled(scaled) => &scaled.centres[..],
            How::Paper(quantizer) => quantizer.centres(),
        };
        // Groups are few.
        bytes.push(centres.len() as u8);
        centres.iter().for_each(|centre| bytes.extend(centre.to_le_bytes()));
    }

    /// The centres that were kept; `None` if these bytes are something else.
    pub fn kept(reader: &mut Reader<'_>) -> Option<Vec<f64>> {
        let count = reader.u8()?;
        let centres = (0..count).map(|_| reader.finite()).collect::<Option<Vec<f64>>>()?;
        // A group's number is its centre's.
        centres.is_sorted_by(|one, next| one >= next).then_some(centres)
    }

    /// Goes on with these centres. Those of another number of groups, or none, are left out.
    pub fn take_over(&mut self, kept: Vec<f64>) {
        if kept.len() != self.count {
            return;
        }
        self.is_recalled = true;
        match &mut self.how {
            How::Scaled(scaled) => scaled.centres = kept,
            How::Paper(quantizer) => quantizer.set_centres(kept),
        }
    }

    /// Moves the centres to where the segments are, by their hotness in any order.
    pub fn update(&mut self, segments: &[f64]) {
        if self.is_recalled && segments.len() > self.count {
            self.is_recalled = false;
            // A centre without segments stays where it is, also one that is nowhere.
            let groups: FxHashSet<usize> = segments.iter().map(|&hotness| self.group(hotness)).collect();
            if groups.len() < self.count {
                *self = Centres::new(self.count, self.scale);
            }
        }
        match &mut self.how {
            How::Scaled(scaled) => scaled.update(segments),
            How::Paper(quantizer) => quantizer.update(segments),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Three of 1 and one of 9: the first round puts all into one group, the second one parts them.
    const PARTED: [f64; 4] = [1.0, 1.0, 9.0, 1.0];

    #[test]
    fn segments_are_parted_in_three_rounds() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let mut centres = Centres::new(2, scale);
            centres.update(&PARTED);
            assert_eq!([9.0, 5.5, 2.0, 1.0].map(|hotness| centres.group(hotness)), [0, 0, 1, 1], "{scale:?}");
        }
        // One round from zero leaves the mean of all and zero: 2 would be nearer to 3 than to 0.
        let mut centres = Centres::new(2, Scale::Linear);
        centres.update(&PARTED);
        assert_eq!((centres.group(4.9), centres.group(2.0)), (1, 1));
    }

    #[test]
    fn a_centre_without_segments_goes_to_zero_or_stays() {
        for (scale, expected) in [(Scale::Linear, [0, 0, 1]), (Scale::Logarithmic, [0, 1, 1])] {
            let mut centres = Centres::new(2, scale);
            [PARTED, [1.0; 4]].iter().for_each(|segments| centres.update(segments));
            assert_eq!([8.0, 0.8, 0.4].map(|hotness| centres.group(hotness)), expected, "{scale:?}");
        }
    }

    #[test]
    fn without_segments_all_are_of_the_coldest_group_on_a_scale() {
        let groups = [Scale::Linear, Scale::Logarithmic].map(|scale| Centres::new(3, scale).group(1e9));
        assert_eq!(groups, [2, 2]);
    }
}
