//! Dynamic programming over classes of blocks: which neighbours share a group, so that cleaning copies the least in the space there is.

use std::ops::RangeInclusive;

use super::super::buckets::edge;
use super::super::math::one_minus_exp_neg;

/// Cycle times for each octave that are tried.
const TIMES_PER_OCTAVE: usize = 8;
/// From 1 to 2^36 block writes.
const TIMES: usize = 36 * TIMES_PER_OCTAVE + 1;
/// 2^(1/8).
const STEP: f64 = 1.090_507_732_665_257_7;
/// The price of space is known well enough when its bounds differ by this factor, or after so many plans.
const PRECISION: f64 = 1.02;
const PLANS: u32 = 40;

/// Blocks that die at the same rate.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// The bucket of their predicted remaining life.
    pub bucket: usize,
    /// How many.
    pub blocks: f64,
    /// Deaths of one of them for each block write.
    pub rate: f64,
}

/// Finds groups, and remembers the price of space from one time to the next.
///
/// A group whose segments are cleaned at the age τ copies Σ nλ / (e^λτ − 1) blocks for each block write and takes Σ nλτ / (1 − e^−λτ) places,
/// summed over its classes of n blocks with the rate λ. With a price μ of space, the groups minimise the copies plus μ times the space; μ is
/// such that they fill the volume.
pub struct Planner {
    groups: usize,
    price: f64,
}

/// Copies and space, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    copies: f64,
    space: f64,
}

/// A plan: where each group ends, as an index into the classes, and what it takes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Plan {
    ends: Vec<usize>,
    cost: Cost,
}

impl Planner {
    /// For up to so many groups.
    pub fn new(groups: usize) -> Planner {
        Planner { groups, price: 1e-3 }
    }

    /// The ends of all groups but the last, as remaining lives. Classes come in rising order of their buckets; `open` is what each group takes
    /// beyond the space of its blocks.
    pub fn plan(&mut self, classes: &[Class], space: f64, open: f64) -> Vec<f64> {
        let costs = Costs::new(classes);
        let plan = self.fill(&costs, space, open);
        let ends = plan.ends.iter().filter(|end| **end < classes.len());
        // Between two classes that are not neighbours: in the middle.
        ends.map(|&end| (edge(classes[end - 1].bucket + 1) * edge(classes[end].bucket)).sqrt()).collect()
    }

    /// The plan at the price at which it takes just the space.
    fn fill(&mut self, costs: &Costs, space: f64, open: f64) -> Plan {
        let mut plan = costs.best(self.groups, self.price, open);
        let mut plans = 1;
        let is_large = plan.cost.space > space;
        let step = if is_large { 2.0 } else { 0.5 };
        let (mut one, mut other) = (self.price, self.price);
        // Space becomes smaller as its price rises.
        while (plan.cost.space > space) == is_large && plans < PLANS {
            (one, other) = (other, other * step);
            plan = costs.best(self.groups, other, open);
            plans += 1;
        }
        let (mut low, mut high) = (one.min(other), one.max(other));
        while high > low * PRECISION && plans < PLANS {
            let middle = (low * high).sqrt();
            plan = costs.best(self.groups, middle, open);
            plans += 1;
            if plan.cost.space > space { low = middle } else { high = middle }
        }
        self.price = high.clamp(1e-12, 1e3);
        plan
    }
}

/// What classes cost at each cycle time.
struct Costs {
    classes: usize,
    /// Of each class and one more: copies and space of all before it, at each time.
    copies: Vec<[f64; TIMES]>,
    space: Vec<[f64; TIMES]>,
}

impl Costs {
    fn new(classes: &[Class]) -> Costs {
        let mut times = [1.0; TIMES];
        (1..TIMES).for_each(|at| times[at] = times[at - 1] * STEP);
        let mut copies = vec![[0.0; TIMES]; classes.len() + 1];
        let mut space = copies.clone();
        for (class, Class { blocks, rate, .. }) in classes.iter().enumerate() {
            for (at, time) in times.iter().enumerate() {
                let dies = one_minus_exp_neg(rate * time);
                let cycles = blocks * rate / dies;
                copies[class + 1][at] = copies[class][at] + cycles * (1.0 - dies);
                space[class + 1][at] = space[class][at] + cycles * time;
            }
        }
        Costs { classes: classes.len(), copies, space }
    }

    /// Neighbouring classes as one group with the best cycle time of these.
    fn group(&self, first: usize, end: usize, price: f64, times: RangeInclusive<usize>) -> (usize, Cost) {
        let cost = |at: usize| Cost {
            copies: self.copies[end][at] - self.copies[first][at],
            space: self.space[end][at] - self.space[first][at],
        };
        let priced = |at: usize| cost(at).copies + price * cost(at).space;
        let start = *times.start();
        let (best, _) = times
            .map(|at| (at, priced(at)))
            .fold((start, f64::INFINITY), |best, next| if next.1 < best.1 { next } else { best });
        (best, cost(best))
    }

    /// The best up to `most` groups at this price of space.
    fn best(&self, most: usize, price: f64, open: f64) -> Plan {
        let alone: Vec<usize> =
            (0..self.classes).map(|class| self.group(class, class + 1, price, 0..=TIMES - 1).0).collect();
        // Of each number of groups, and each number of classes that they cover: the least that it costs, and the plan's last step.
        let nothing = Step { priced: 0.0, cost: Cost::default(), first: 0 };
        let none = Step { priced: f64::INFINITY, ..nothing };
        let mut steps = vec![vec![none; self.classes + 1]; most + 1];
        steps[0][0] = nothing;
        for first in 0..self.classes {
            // The best time of a group lies between those of its classes.
            let (mut least, mut last) = (alone[first], alone[first]);
            for end in first + 1..=self.classes {
                (least, last) = (least.min(alone[end - 1]), last.max(alone[end - 1]));
                let (_, cost) = self.group(first, end, price, least..=last);
                for groups in 0..most {
                    let before = steps[groups][first];
                    let priced = before.priced + cost.copies + price * (cost.space + open);
                    if priced < steps[groups + 1][end].priced {
                        let cost =
                            Cost { copies: before.cost.copies + cost.copies, space: before.cost.space + cost.space };
                        steps[groups + 1][end] = Step { priced, cost, first };
                    }
                }
            }
        }
        self.trace(&steps)
    }

    /// The cheapest of the plans for all classes, the one with the fewest groups of equals.
    fn trace(&self, steps: &[Vec<Step>]) -> Plan {
        let all = self.classes;
        let groups =
            (0..steps.len()).min_by(|one, other| steps[*one][all].priced.total_cmp(&steps[*other][all].priced));
        let mut groups = groups.unwrap_or(0);
        let cost = steps[groups][all].cost;
        let mut end = all;
        let mut ends = Vec::with_capacity(groups);
        while groups > 0 {
            ends.push(end);
            end = steps[groups][end].first;
            groups -= 1;
        }
        ends.reverse();
        Plan { ends, cost }
    }
}

/// The last group of a plan for the first classes.
#[derive(Clone, Copy)]
struct Step {
    /// Copies, and space at its price.
    priced: f64,
    cost: Cost,
    /// Its first class.
    first: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least cost of any division into up to `most` groups, each with the best of all times.
    fn by_force(costs: &Costs, most: usize, price: f64, open: f64) -> f64 {
        let inner = costs.classes - 1;
        let divisions = (0u32..1 << inner).filter(|cuts| (cuts.count_ones() as usize) < most);
        let cost = |cuts: u32| {
            let mut ends: Vec<usize> = (0..inner).filter(|cut| cuts >> cut & 1 == 1).map(|cut| cut + 1).collect();
            ends.push(costs.classes);
            let mut first = 0;
            let mut sum = 0.0;
            for end in ends {
                let (_, cost) = costs.group(first, end, price, 0..=TIMES - 1);
                sum += cost.copies + price * (cost.space + open);
                first = end;
            }
            sum
        };
        divisions.map(cost).fold(f64::INFINITY, f64::min)
    }

    fn classes() -> Vec<Class> {
        // Rates that fall with the bucket but for one, and uneven numbers.
        [
            (8, 30.0, 0.05),
            (11, 200.0, 0.01),
            (12, 10.0, 0.02),
            (16, 900.0, 1e-3),
            (17, 500.0, 7e-4),
            (25, 4000.0, 2e-5),
            (33, 9000.0, 1e-7),
        ]
        .map(|(bucket, blocks, rate)| Class { bucket, blocks, rate })
        .to_vec()
    }

    #[test]
    fn one_class_is_the_formula() {
        let costs = Costs::new(&[Class { bucket: 20, blocks: 1000.0, rate: 1e-3 }]);
        // The time 2^10.
        let at = 10 * TIMES_PER_OCTAVE;
        let x: f64 = 1.024;
        assert!((costs.copies[1][at] / (1.0 / (x.exp() - 1.0)) - 1.0).abs() < 1e-9);
        assert!((costs.space[1][at] / (1000.0 * x / (1.0 - (-x).exp())) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_other_division_costs_less() {
        let costs = Costs::new(&classes());
        for most in 1..=7 {
            for price in [1e-7, 1e-5, 1e-4, 1e-3] {
                for open in [0.0, 51.2, 1000.0] {
                    let plan = costs.best(most, price, open);
                    let cost = plan.cost.copies + price * (plan.cost.space + plan.ends.len() as f64 * open);
                    let expected = by_force(&costs, most, price, open);
                    assert!(cost <= expected * (1.0 + 1e-9), "{most} groups, {price}, {open}: {cost}, {expected}");
                    assert!(plan.ends.len() <= most && plan.ends.last() == Some(&7), "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn the_price_is_that_at_which_the_space_is_filled() {
        let costs = Costs::new(&classes());
        let blocks = 14_640.0;
        let mut planner = Planner::new(4);
        for share in [1.05, 1.2, 1.5, 1.05] {
            let plan = planner.fill(&costs, blocks * share, 51.2);
            assert!((plan.cost.space / (blocks * share) - 1.0).abs() < 0.03, "{share}: {plan:?}");
        }
        let ends = Planner::new(7).plan(&classes(), blocks * 1.2, 0.0);
        assert!(ends.is_sorted() && ends.len() == 6, "{ends:?}");
        assert_eq!(ends[0], (edge(9) * edge(11)).sqrt());
        assert_eq!(Planner::new(1).plan(&classes(), blocks * 1.2, 0.0), []);
    }

    #[test]
    fn a_group_that_gains_less_than_its_open_segment_is_not_used() {
        let alike = [10, 11].map(|bucket| Class { bucket, blocks: 100.0, rate: 1e-3 });
        assert_eq!(Planner::new(2).plan(&alike, 250.0, 51.2), []);
    }
}
