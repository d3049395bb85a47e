//! SFS's segment quantization: as many centres of hotness as there are groups.
//!
//! Source: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, section 3.4.

use basalt_random::Rng;

/// Rounds of each quantization, at most.
const ROUNDS: u32 = 3;

/// How centres are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantization {
    /// From the centres of the last time, up to three rounds: each section counts for the nearest centre, and each centre becomes the mean
    /// of its sections. One without sections stays. With no more sections than groups, each centre is the hotness of one by chance.
    #[default]
    Iterative,
    /// The middles of parts of the range of hotness, all of the same width. The paper prints "equi-height" for it.
    EqualRange,
    /// The means of parts of the sections, sorted by hotness, all of the same number. The paper prints "equi-width" for it.
    EqualCount,
}

impl Quantization {
    /// All, with the names that options have for them.
    pub const ALL: [(&'static str, Quantization); 3] = [
        ("iterative", Quantization::Iterative),
        ("eq-range", Quantization::EqualRange),
        ("eq-count", Quantization::EqualCount),
    ];

    /// The one of this name; `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Quantization> {
        Quantization::ALL.iter().find(|(known, _)| *known == name).map(|(_, quantization)| *quantization)
    }
}

/// The centres, and how they are found.
pub struct Quantizer {
    how: Quantization,
    /// Falling. All 0 before there were sections.
    centres: Vec<f64>,
    rng: Rng,
}

impl Quantizer {
    /// For so many groups, at least one.
    #[must_use]
    pub fn new(groups: usize, how: Quantization, seed: u64) -> Quantizer {
        Quantizer { how, centres: vec![0.0; groups.max(1)], rng: Rng::new(seed) }
    }

    /// The centres, falling.
    #[must_use]
    pub fn centres(&self) -> &[f64] {
        &self.centres
    }

    /// Goes on with these centres, falling, one for each group.
    pub fn set_centres(&mut self, centres: Vec<f64>) {
        self.centres = centres;
    }

    /// The group whose centre is the nearest, the hottest of equals.
    #[must_use]
    pub fn group(&self, hotness: f64) -> usize {
        nearest(&self.centres, hotness)
    }

    /// Moves the centres to where the sections are now, by their hotness in any order.
    pub fn update(&mut self, sections: &[f64]) {
        if sections.is_empty() {
            return;
        }
        match self.how {
            Quantization::Iterative if sections.len() <= self.centres.len() => {
                for centre in &mut self.centres {
                    *centre = self.rng.pick(sections).copied().unwrap_or(*centre);
                }
            }
            Quantization::Iterative => self.iterate(sections),
            Quantization::EqualRange => self.divide_range(sections),
            Quantization::EqualCount => self.divide_sections(sections),
        }
        self.centres.sort_unstable_by(|one, other| other.total_cmp(one));
    }

    fn iterate(&mut self, sections: &[f64]) {
        for _ in 0..ROUNDS {
            let mut groups = vec![(0.0, 0u32); self.centres.len()];
            for &hotness in sections {
                let (sum, count) = &mut groups[nearest(&self.centres, hotness)];
                (*sum, *count) = (*sum + hotness, *count + 1);
            }
            let means = self.centres.iter().zip(groups);
            let means =
                means.map(|(&old, (sum, count))| if count > 0 { sum / f64::from(count) } else { old }).collect();
            let old = std::mem::replace(&mut self.centres, means);
            if old == self.centres {
                return;
            }
        }
    }

    fn divide_range(&mut self, sections: &[f64]) {
        let (least, most) =
            sections.iter().fold((f64::MAX, f64::MIN), |(least, most), &one| (least.min(one), most.max(one)));
        let halves = (2 * self.centres.len()) as f64;
        for (part, centre) in self.centres.iter_mut().enumerate() {
            *centre = most - (most - least) * (2 * part + 1) as f64 / halves;
        }
    }

    fn divide_sections(&mut self, sections: &[f64]) {
        let mut sections = sections.to_vec();
        sections.sort_unstable_by(|one, other| other.total_cmp(one));
        let (all, groups) = (sections.len(), self.centres.len());
        for (part, centre) in self.centres.iter_mut().enumerate() {
            let members = &sections[part * all / groups..(part + 1) * all / groups];
            if !members.is_empty() {
                *centre = members.iter().sum::<f64>() / members.len() as f64;
            }
        }
    }
}

/// The centre that is the nearest, the first of equals.
fn nearest(centres: &[f64], hotness: f64) -> usize {
    let distances = centres.iter().map(|centre| (centre - hotness).abs()).enumerate();
    distances.min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantizer(how: Quantization, centres: &[f64]) -> Quantizer {
        Quantizer { centres: centres.to_vec(), ..Quantizer::new(centres.len(), how, 1) }
    }

    fn is_about(quantizer: &Quantizer, expected: &[f64]) {
        let same = quantizer.centres().iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-9);
        assert!(same && quantizer.centres().len() == expected.len(), "{:?} {expected:?}", quantizer.centres());
    }

    /// Centres 9 and 1. Round 1: {10, 8, 6} are nearer to 9 and {4, 2} to 1: means 8 and 3. Round 2: 6 is nearer to 8 than to 3, 4 to 3: the
    /// same groups, the same means, the end.
    #[test]
    fn each_section_counts_for_the_nearest_centre() {
        let mut one = quantizer(Quantization::Iterative, &[9.0, 1.0]);
        one.update(&[2.0, 10.0, 6.0, 4.0, 8.0]);
        is_about(&one, &[8.0, 3.0]);
        assert_eq!([9.0, 5.6, 5.5, 5.4, 0.0].map(|hotness| one.group(hotness)), [0, 0, 0, 1, 1]);
    }

    /// Sections 0, 1, 2, 3, 4, 5, 6, 7 from centres 1 and 0. Round 1: {1…7} and {0}: 4 and 0. Round 2: 2 is as near to both and goes to the
    /// hotter: {2…7} and {0, 1}: 4.5 and 0.5. Round 3: 2.5 is the border: {3…7} and {0, 1, 2}: 5 and 1. A fourth, with the border at 3,
    /// would change nothing; of the longer row, the fourth round is the first of the next time.
    #[test]
    fn three_rounds_at_most_go_on_from_the_last_centres() {
        let row: Vec<f64> = (0..8).map(f64::from).collect();
        let mut one = quantizer(Quantization::Iterative, &[1.0, 0.0]);
        one.update(&row);
        is_about(&one, &[5.0, 1.0]);
        // 0…15. Rounds: {1…15}, {0}: 8, 0; {4…15}, {0…3}: 9.5, 1.5; {6…15}, {0…5}: 10.5, 2.5. Then {7…15}, {0…6}: 11, 3, and so it stays.
        let row: Vec<f64> = (0..16).map(f64::from).collect();
        let mut one = quantizer(Quantization::Iterative, &[1.0, 0.0]);
        one.update(&row);
        is_about(&one, &[10.5, 2.5]);
        one.update(&row);
        is_about(&one, &[11.0, 3.0]);
    }

    #[test]
    fn a_group_without_sections_keeps_its_centre() {
        let mut one = quantizer(Quantization::Iterative, &[100.0, 5.0, 1.0]);
        one.update(&[1.0, 2.0, 6.0, 8.0]);
        // 100 has none; {6, 8} are nearest to 5, {1, 2} to 1.
        is_about(&one, &[100.0, 7.0, 1.5]);
    }

    #[test]
    fn with_few_sections_each_centre_is_one_of_them_by_chance() {
        let mut one = Quantizer::new(4, Quantization::Iterative, 7);
        assert_eq!(one.group(3.0), 0, "all are the same before there are sections");
        one.update(&[]);
        is_about(&one, &[0.0; 4]);
        let sections = [1.0, 2.0, 3.0, 4.0];
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            one.update(&sections);
            assert!(
                one.centres().iter().all(|centre| sections.contains(centre))
                    && one.centres().is_sorted_by(|a, b| a >= b)
            );
            seen.insert(format!("{:?}", one.centres()));
        }
        assert!(seen.len() > 5, "{seen:?}");
        let mut again = Quantizer::new(4, Quantization::Iterative, 7);
        (0..20).for_each(|_| again.update(&sections));
        assert_eq!(again.centres(), one.centres(), "the same seed, the same centres");
    }

    /// Most sections are cold, as in figure 5. Range 0…8 in four parts of 2: middles 7, 5, 3, 1. By number, two in each of the four: {8, 4},
    /// {2, 1}, {1, 0}, {0, 0}: 6, 1.5, 0.5, 0.
    #[test]
    fn equal_ranges_and_equal_numbers() {
        let sections = [0.0, 1.0, 8.0, 0.0, 1.0, 2.0, 4.0, 0.0];
        let mut range = Quantizer::new(4, Quantization::EqualRange, 1);
        range.update(&sections);
        is_about(&range, &[7.0, 5.0, 3.0, 1.0]);
        // The nearest middle is the part that a hotness lies in.
        assert_eq!([8.0, 6.1, 5.9, 4.1, 3.9, 2.1, 1.9, 0.0].map(|one| range.group(one)), [0, 0, 1, 1, 2, 2, 3, 3]);
        let mut count = Quantizer::new(4, Quantization::EqualCount, 1);
        count.update(&sections);
        is_about(&count, &[6.0, 1.5, 0.5, 0.0]);
        // Fewer sections than groups: those parts that have none keep their centre.
        let mut few = Quantizer::new(4, Quantization::EqualCount, 1);
        few.update(&[3.0, 5.0]);
        is_about(&few, &[5.0, 3.0, 0.0, 0.0]);
    }

    #[test]
    fn one_to_eight_groups() {
        let sections: Vec<f64> = (0..1000u32).map(|one| f64::from(one * one)).collect();
        for groups in 1..=8 {
            for (name, how) in Quantization::ALL {
                assert_eq!(Quantization::by_name(name), Some(how));
                let mut one = Quantizer::new(groups, how, 3);
                one.update(&sections[..groups]);
                (0..50).for_each(|_| one.update(&sections));
                assert_eq!(one.centres().len(), groups, "{name}");
                assert_eq!((one.group(1e9), one.group(-1.0)), (0, groups - 1), "{name}");
                let different = one.centres().is_sorted_by(|hotter, colder| hotter > colder);
                assert!(different, "{name}, {groups} groups: {:?}", one.centres());
            }
        }
        assert_eq!(Quantization::by_name("equal"), None);
    }
}
